"""The noise of a guarantee, against the tables of the notes, and what others would have cost."""

from __future__ import annotations

import importlib
import json
import math
import re
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from kerchief.core.errors import InvalidValueError, KerchiefError
from kerchief.core.queries import RegressionMoments
from kerchief.environments import make_environment
from kerchief.planning.calibrate import CalibratedNoise, calibrate
from kerchief.planning.protected_statistic import Ball, ProtectedStatistic
from kerchief.policies import POLICIES
from kerchief.privacy import Guarantee, MemoryLedger, Trust
from kerchief.privatizers import MECHANISMS_OF, Protection, protect
from kerchief.privatizers.billing import pay

_stats: Any = importlib.import_module("scipy.stats")

SENSITIVITY = math.sqrt(4.5)
TRUSTS = ("local", "shuffle", "joint", "central")
# Bits are searched for in seconds, for every size of a cohort: once for all who can share them.
SHARED: Any = {"epsilon": 1.0, "delta": 1e-5, "horizon": 100, "dim": 2}


def stds(answer: CalibratedNoise) -> dict[str, float]:
    """The deviation of every way that is not refused."""
    return {one.name: one.std for one in answer.alternatives if one.std is not None}


@pytest.mark.parametrize("trust", TRUSTS)
def test_the_noise_is_that_of_the_default_player(trust: str) -> None:
    """The last total of a run that anybody can play has exactly the noise that is shown."""
    answer = calibrate(**SHARED, trust=trust)
    policy = POLICIES["linucb"].build(make_environment(dim=2).problem(100), "tuned")
    promise = Guarantee(epsilon=1.0, delta=1e-5, trust=Trust(trust), rounds=100)
    (made,) = protect(policy, Protection(guarantee=promise), horizon=100).values()
    releases = made.schedule.capacity(100)
    users = getattr(made.schedule, "ends", (100,))[-1]
    stated: Any = made
    wanted = stated.noise_after(jnp.int32(users), jnp.int32(releases))
    assert answer.total_std == pytest.approx(float(wanted))
    assert answer.releases == releases
    assert answer.kind == type(made.noises[0]).__name__
    ledger = MemoryLedger(promise)
    pay({"moments": made.exact()}, ledger, horizon=100)
    assert answer.twin.epsilon == pytest.approx(ledger.spent().epsilon)
    assert answer.twin.epsilon is not None
    assert 0.98 < answer.twin.epsilon <= 1.0


@pytest.mark.parametrize("trust", TRUSTS)
def test_calibrate_lists_every_mechanism_and_marks_the_used_one(trust: str) -> None:
    answer = calibrate(**SHARED, trust=trust)
    words = [word for word in MECHANISMS_OF[Trust(trust)] if word != "best"]
    rows = {one.name: one for one in answer.alternatives}
    assert set(words) <= set(rows)
    (used,) = [one for one in answer.alternatives if one.used]
    assert used.name == answer.word
    assert used.std == pytest.approx(answer.std)
    assert used.factor == pytest.approx(1.0)
    used_of = {"local": "privunit", "joint": "blt", "central": "laplace"}
    assert answer.word == used_of.get(trust, "best")
    # The word for the default has a row of its own only where no other word names its noise.
    assert ("best" in rows) == (answer.word == "best")
    for word in words:
        assert rows[word].note == MECHANISMS_OF[Trust(trust)][word].summary or not rows[word].std


def test_the_gaussian_is_exact_and_joint() -> None:
    answer = calibrate(epsilon=1.0, delta=1e-6, trust="central")
    assert answer.sensitivity == pytest.approx(SENSITIVITY)
    assert answer.std == pytest.approx(8.96, abs=0.005)
    assert answer.gaussian_noise_multiplier is not None
    assert answer.noise_multiplier == answer.gaussian_noise_multiplier
    assert answer.std == pytest.approx(answer.gaussian_noise_multiplier * SENSITIVITY)


def test_noise_multiplier_is_given_only_for_gaussian_noise() -> None:
    local = calibrate(epsilon=1.0, delta=1e-5)
    assert local.noise_multiplier is None
    assert local.gaussian_noise_multiplier == pytest.approx(3.7306, abs=1e-4)
    # With so large a delta normal noise is the least noisy.
    loud = calibrate(epsilon=1.0, delta=0.5)
    assert (loud.word, loud.kind) == ("gaussian", "Gaussian")
    assert loud.noise_multiplier == pytest.approx(loud.std / loud.sensitivity)


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 10.0])
@pytest.mark.parametrize(("trust", "near"), [("central", 1e-4), ("local", 0.011), ("joint", 1e-4)])
def test_the_twin_keeps_the_promise(epsilon: float, trust: str, near: float) -> None:
    answer = calibrate(epsilon=epsilon, delta=1e-5, trust=trust, horizon=1000)
    twin = answer.twin
    assert twin.epsilon is not None
    assert twin.epsilon <= epsilon
    assert twin.std == pytest.approx(answer.std, rel=near)
    assert (twin.grid is None) == (twin.grid_bits is None) == (twin.scale is None)
    # The shortlist picks a candidate: no noise in steps of a grid.
    assert (twin.grid is None) == (trust == "local")


@pytest.mark.parametrize(
    ("epsilon", "delta", "dim", "reason"),
    [(0.005, 1e-6, 8, "coins"), (1.0, 1e-25, 2, "to epsilon inf")],
)
def test_a_twin_that_cannot_be_is_refused_with_the_reason(
    epsilon: float, delta: float, dim: int, reason: str
) -> None:
    answer = calibrate(epsilon=epsilon, delta=delta, trust="shuffle", horizon=100, dim=dim)
    assert answer.twin.refused is not None
    assert reason in answer.twin.refused
    assert answer.twin.epsilon is None
    assert json.dumps(answer.to_dict(), allow_nan=False)


@pytest.mark.nightly
def test_coins_keep_a_generous_promise() -> None:
    answer = calibrate(epsilon=100.0, delta=1e-6, trust="shuffle", horizon=100, dim=2)
    assert answer.twin.epsilon is not None
    assert 93.0 <= answer.twin.epsilon <= 100.0


def test_other_accountings_cost_more() -> None:
    answer = calibrate(epsilon=0.2, delta=1e-5)
    found = stds(answer)
    normal = found["gaussian"]
    assert normal == pytest.approx(SENSITIVITY * 16.3041, rel=1e-5)
    assert found["classical Gaussian"] / normal == pytest.approx(1.486, abs=5e-4)
    assert found["zCDP, tight"] / normal == pytest.approx(17.9096 / 16.3041, abs=1e-4)
    assert found["zCDP, loose"] / normal == pytest.approx(24.0964 / 16.3041, abs=1e-4)
    assert found["naive sensitivity"] / normal == pytest.approx(4 / 3)
    # 17.727 is its deviation for statistics within √2; ours are within √1.8 of their middle.
    assert answer.std == pytest.approx(17.727 * math.sqrt(1.8 / 2), rel=1e-3)
    assert found["shortlist"] == pytest.approx(answer.std, rel=0.01)
    assert all(std >= answer.std for std in found.values())


def test_the_classical_formula_is_refused_above_one() -> None:
    answer = calibrate(epsilon=1.5, delta=1e-5)
    (classical,) = [one for one in answer.alternatives if one.name == "classical Gaussian"]
    assert classical.std is None
    assert "epsilon 1" in classical.note


def test_a_word_that_cannot_be_built_is_refused_with_the_reason() -> None:
    local = calibrate(epsilon=1.0, delta=1e-5)
    joint = calibrate(epsilon=1.0, delta=1e-5, trust="joint", horizon=20_001)
    for answer, name, reason in (
        (local, "one-bit", "does not fit"),
        (local, "compass", "does not fit"),
        (joint, "toeplitz", "20000"),
    ):
        (row,) = [one for one in answer.alternatives if one.name == name]
        assert row.std is None
        assert row.factor is None
        assert reason in row.note


def test_a_curator_adds_less_noise_to_the_total() -> None:
    local = calibrate(epsilon=1.0, delta=1e-5, trust="local", horizon=400)
    central = calibrate(epsilon=1.0, delta=1e-5, trust="central", horizon=400)
    assert local.total_std == pytest.approx(20 * local.std)
    assert central.std == pytest.approx(stds(local)["gaussian"])
    assert central.total_std == pytest.approx(central.std * math.sqrt(central.releases))
    assert central.total_std < local.total_std / 3


def test_joint_noise_is_that_of_the_worst_prefix() -> None:
    central = calibrate(epsilon=1.0, delta=1e-5, trust="central", horizon=20_000)
    joint = calibrate(epsilon=1.0, delta=1e-5, trust="joint", horizon=20_000)
    factors = {one.name: one.factor for one in joint.alternatives}
    # 4.22 for BLT, 14.49 for the tree at its worst, the root of T without either.
    assert joint.std == pytest.approx(4.22 * central.std, rel=1e-3)
    assert joint.total_std == joint.std
    assert joint.releases == 20_000
    assert factors["tree"] == pytest.approx(14.49 / 4.22, rel=1e-3)
    assert factors["fresh noise on every prefix"] == pytest.approx(
        math.sqrt(20_000) / 4.22, rel=1e-3
    )
    assert factors["naive sensitivity"] == pytest.approx(4 / 3)
    assert joint.noise_multiplier == pytest.approx(central.gaussian_noise_multiplier)
    # Deployment has the noise of BLT, and no less.
    assert joint.twin.std is not None
    assert 1.0 <= joint.twin.std / joint.std < 1.0001
    assert joint.twin.epsilon == pytest.approx(1.0, rel=1e-4)


def amplified_delta(epsilon: float, local: float, users: int) -> float:
    """The sum of `amplification.md`, section 1, term by term."""
    share = 1 / (math.exp(local) + 1)
    total = 0.0
    for typed in range(1, users + 1):
        chance = _stats.binom.pmf(typed, users, 2 * share)
        first = np.arange(typed + 1)
        gain = (math.exp(local) - math.exp(epsilon)) * first
        loss = math.expm1(local + epsilon) * (typed - first)
        total += chance * (_stats.binom.pmf(first, typed, 0.5) @ np.maximum(gain - loss, 0))
    return total / users


def test_shuffled_local_reports_are_priced_by_amplification() -> None:
    """One cohort of 50: what each device has, and the noise of the best reports that keep it."""
    users, epsilon, delta = 50, 1.0, 1e-3
    answer = calibrate(epsilon=epsilon, delta=delta, trust="shuffle", horizon=users, dim=2)
    assert answer.releases == 1
    (row,) = [one for one in answer.alternatives if one.name == "shuffled local reports"]
    alone = float(row.note.split("epsilon ")[1].split(",")[0])
    assert "49 others" in row.note
    assert alone > 1.3 * epsilon
    # Four digits are shown.
    assert amplified_delta(epsilon, alone * 0.999, users) < delta
    assert amplified_delta(epsilon, alone * 1.001, users) > delta
    # PrivUnitG, from its threshold: above it with chance p instead of q.
    assert row.std is not None
    radius = RegressionMoments.of(make_environment(dim=2).problem(users)).radius
    threshold = radius / (row.std / math.sqrt(users))
    q = _stats.norm.sf(threshold)
    p = q * (1 + threshold * (1 - q) / _stats.norm.pdf(threshold))
    assert math.log(p * (1 - q) / ((1 - p) * q)) == pytest.approx(alone, rel=1e-3)
    assert row.std > answer.std


def test_a_given_sensitivity_scales_the_noise() -> None:
    for trust in ("local", "central"):
        one = calibrate(epsilon=1.0, delta=1e-5, trust=trust, sensitivity=1.0)
        two = calibrate(epsilon=1.0, delta=1e-5, trust=trust, sensitivity=2.0)
        assert two.std == pytest.approx(2 * one.std)
        assert (one.sensitivity, two.sensitivity) == (1.0, 2.0)
        assert all("split" not in other.name for other in one.alternatives)


def test_a_ball_is_as_wide_as_it_says() -> None:
    ball = Ball(size=2, diameter=6.0)
    ends = [np.asarray(ball.encode(jnp.array([0.0, far]))) for far in (-100.0, 100.0)]
    assert np.linalg.norm(ends[1] - ends[0]) == pytest.approx(ball.sensitivity)
    assert np.linalg.norm(ends[0]) == pytest.approx(ball.radius)


def test_worlds_have_their_own_bounds() -> None:
    linear, logistic = (
        calibrate(epsilon=1.0, delta=1e-5, env=env) for env in ("linear", "logistic")
    )
    assert logistic.sensitivity < linear.sensitivity
    assert calibrate(epsilon=1.0, delta=1e-5, dim=3).size == 9


@pytest.mark.parametrize(
    "change",
    [
        {"epsilon": 0.0},
        {"delta": 1.0},
        {"trust": "secret"},
        {"sensitivity": -1.0},
        {"sensitivity": math.inf},
        {"dim": 0},
        {"horizon": 0},
        {"env": "population"},
        {"env": "chance"},
        {"env": "nowhere"},
    ],
)
def test_bad_values_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(KerchiefError):
        calibrate(**({"epsilon": 1.0, "delta": 1e-5} | change))


@pytest.mark.parametrize("word", ["blt", "tree", "toeplitz", "doubling"])
def test_calibrated_noise_counts_readings_instead_of_users(word: str) -> None:
    """Three readings of 40 users: nobody adds the noise of 40."""
    query = RegressionMoments(dim=2, norm=1.0, low=0.0, high=1.0, readings=(10, 20, 40))
    promise = Guarantee(epsilon=1.0, delta=1e-6, trust=Trust.JOINT)
    asked = ProtectedStatistic(query=query, promise=promise, horizon=40)
    stated: Any = asked.protected(word)
    worst = max(float(stated.noise_after(jnp.int32(40), jnp.int32(n))) for n in (1, 2, 3))
    assert asked.std(word) == pytest.approx(worst)


def test_shuffle_calibration_states_guarantee_per_observer() -> None:
    """Coins say nothing about one report; bits say less the more there are, and sums all alike."""
    answer = calibrate(**SHARED, trust="shuffle")
    views = {one.name: one for one in answer.views}
    assert list(views) == ["best", "theorem", "bits", "byte", "bit"]
    assert views["best"].wire is None
    wires = [views[word].wire or 0.0 for word in ("bit", "byte", "bits")]
    assert 1.0 < wires[0] < wires[1] < wires[2]
    for one in views.values():
        assert 0.97 <= one.sums == one.models <= 1.0
    assert json.loads(json.dumps(answer.to_dict()))["views"][0]["wire"] is None
    assert calibrate(**SHARED, trust="joint").views == ()


@pytest.mark.nightly
def test_calibrate_keeps_report_guarantee_beside_that_of_sums() -> None:
    answer = calibrate(**SHARED, trust="shuffle", local=1.0)
    views = {one.name: one for one in answer.views}
    assert list(views) == ["bits", "byte", "bit"]
    assert all(0.99 <= (one.wire or 0.0) <= 1.0 for one in views.values())
    assert (answer.word, answer.kind) == ("bit", "Response")
    # The worst of all cohorts, as the ledger charges it.
    assert answer.twin.epsilon == pytest.approx(views["bit"].sums)
    assert views["bit"].sums < 0.3
    # What is said to be kept is what is kept, by a Gaussian too.
    assert (answer.kept.epsilon, answer.guarantee.epsilon) == (views["bit"].sums, 1.0)
    kept = calibrate(epsilon=views["bit"].sums, delta=1e-5, trust="shuffle", horizon=100, dim=2)
    assert answer.gaussian_noise_multiplier == kept.gaussian_noise_multiplier
    assert kept.kept == kept.guarantee
    assert kept.alone is None
    assert all(one.std is not None or "only bits" in one.note for one in answer.alternatives)


@pytest.mark.parametrize("trust", ["local", "joint", "central"])
def test_other_trusts_have_no_promise_for_one_shuffled_report(trust: str) -> None:
    with pytest.raises(KerchiefError, match="only bits behind a shuffler"):
        calibrate(epsilon=1.0, delta=1e-5, trust=trust, horizon=100, local=1.0)


@pytest.mark.parametrize("trust", ["local", "central"])
def test_a_pure_promise_is_kept_by_the_noise_that_is_played(trust: str) -> None:
    answer = calibrate(epsilon=1.0, delta=0.0, trust=trust, horizon=500)
    promise = Guarantee(epsilon=1.0, delta=0.0, trust=Trust(trust), rounds=500)
    policy = POLICIES["linucb"].build(make_environment().problem(500), "tuned")
    (played,) = protect(policy, Protection(guarantee=promise), horizon=500).values()
    assert answer.std == pytest.approx(float(played.noises[0].std))
    assert answer.kind == type(played.noises[0]).__name__
    assert answer.gaussian_noise_multiplier is None
    (gaussian,) = (one for one in answer.alternatives if one.name == "gaussian")
    assert gaussian.std is None


@pytest.mark.parametrize("trust", ["shuffle", "joint"])
def test_pure_dp_error_names_a_remedy(trust: str) -> None:
    with pytest.raises(InvalidValueError, match="or trust 'local' or 'central' with pure noise"):
        calibrate(epsilon=1.0, delta=0.0, trust=trust, horizon=500)


def test_least_epsilon_named_in_error_can_be_calibrated() -> None:
    """Bits behind a shuffler are refused below it, and have noise from it on."""
    shared: Any = {"trust": "shuffle", "delta": 1e-5, "horizon": 100, "dim": 2}
    noted = {one.name: one.note for one in calibrate(epsilon=0.005, **shared).alternatives}
    (least,) = set(re.findall(r"certify ([\d.E+-]+) at the least", noted["bit"]))
    assert stds(calibrate(epsilon=float(least), **shared))["bit"] > 0
