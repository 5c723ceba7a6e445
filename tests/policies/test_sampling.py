"""Sampling on the device: weights, shrinking, who explores where, and that nobody is stuck."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kerchief.comparison.comparison import Comparison
from kerchief.comparison.players import player
from kerchief.core.batches import span_horizon
from kerchief.core.contracts import Arms, Clock, NoiseInfo, Release, Separate
from kerchief.core.precision import double_precision
from kerchief.core.problems import Problem
from kerchief.core.random import Stream
from kerchief.deployment import deploy, read_deployment
from kerchief.deployment.protected_policy import build_protected
from kerchief.environments import make_environment
from kerchief.policies import POLICIES
from kerchief.policies.posterior import PosteriorModel
from kerchief.policies.sampling import Sampling
from kerchief.policies.thompson_sampling import LinearSampling, build_sampling
from kerchief.privacy import Gaussian
from kerchief.privacy.guarantee import Guarantee, Trust
from kerchief.privacy.ledger import MemoryLedger
from kerchief.privatizers import At, PrefixSums
from kerchief.privatizers.protect import Protection
from kerchief.simulation import simulate
from kerchief_protocol.task import Task

FACTS = Problem(dim=3, arms=10, norm=1.0, radius=1.0, low=-1.0, high=1.0, horizon=5000)


def _flat(policy: Sampling, gram: Any, moment: Any) -> Any:
    """A total of these sums, as it is released."""
    upper = np.triu_indices(policy.query.dim)
    weights = np.where(upper[0] == upper[1], 1.0, np.sqrt(2.0)) * policy.query.balance
    return np.concatenate([np.asarray(gram, float)[upper] * weights, moment])


Cohort = tuple[int, float, Any, Any]


def _state(policy: Sampling, *cohorts: Cohort, separate: Separate = "cohorts") -> Any:
    """What the learner keeps after cohorts of so many users with noise and sums of their own."""
    state = policy.init({"moments": NoiseInfo(noisy=True, separate=separate)})
    count, variance, total = 0, 0.0, np.zeros(policy.query.size)
    for users, noise, gram, moment in cohorts:
        count, variance = count + users, variance + noise**2
        total = total + _flat(policy, gram, moment)
        release = Release(
            total=jnp.asarray(total), count=jnp.int32(count), noise=jnp.float64(variance**0.5)
        )
        state = _updated(policy, state, release)
    return state


_updated = jax.jit(lambda policy, state, release: policy.update(state, "moments", release))


def _with(
    policy: Sampling, gram: Any, moment: Any, *, noise: float = 0.0, count: int = 1000
) -> Any:
    """The state after a release of these sums."""
    total = _flat(policy, gram, moment)
    state = policy.init({"moments": NoiseInfo(noisy=noise > 0)})
    release = Release(total=jnp.asarray(total), count=jnp.int32(count), noise=jnp.float64(noise))
    return _updated(policy, state, release)


EARLY: Cohort = (900, 9.0, np.diag([300.0, 300.0, 300.0]), [150.0, 60.0, 0.0])
LATE: Cohort = (20_000, 9.0, np.diag([20_000.0, 0.0, 0.0]), [10_000.0, 0.0, 0.0])


@double_precision
def test_later_noise_does_not_hide_an_early_cohort() -> None:
    """Cohorts that play one direction leave what is known of the others as it is."""
    policy = LinearSampling.of(FACTS)
    once, often = _state(policy, EARLY), _state(policy, EARLY, *[LATE] * 8)
    for known in (1, 2):
        assert float(often.precision[known, known]) >= float(once.precision[known, known])
    told = [float(policy.publish(state).estimate[1]) for state in (once, often)]
    assert told[1] == pytest.approx(told[0], rel=0.05)
    summed = _state(policy, EARLY, *[LATE] * 8, separate="nobody")
    unsure = [np.linalg.norm(policy.publish(state).sample[1]) for state in (often, summed)]
    assert unsure[1] > 1.3 * unsure[0]


@double_precision
def test_noiseless_cohorts_give_the_posterior_of_their_total() -> None:
    policy = LinearSampling.of(FACTS)
    draw = np.random.default_rng(3)
    cohorts: list[Cohort] = []
    for users in (5, 40, 300):
        x = draw.normal(size=(users, 3))
        cohorts.append((users, 0.0, x.T @ x, x.T @ (x @ [0.3, -0.2, 0.1])))
    parted, whole = (
        policy.publish(_state(policy, *cohorts, separate=separate))
        for separate in ("cohorts", "nobody")
    )
    assert parted.estimate == pytest.approx(np.asarray(whole.estimate), abs=1e-6)
    for ours, theirs in ((parted.widen, whole.widen), (parted.sample, whole.sample)):
        assert ours @ ours.T == pytest.approx(np.asarray(theirs @ theirs.T), abs=1e-6)


@double_precision
@pytest.mark.parametrize(
    ("separate", "noise", "closed"),
    [("nobody", 3.0, 0), ("users", 4.0, 0), ("cohorts", 12.0, 0), ("cohorts", 3.0, 5000)],
)
def test_high_dim_posterior_matches_with_fewer_decompositions(
    separate: Separate, noise: float, closed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = dataclasses.replace(FACTS, dim=36)
    policy, draw = LinearSampling.of(facts), np.random.default_rng(5)
    given: list[Cohort] = []
    for users in (2000, 3000, 400):
        x = draw.normal(size=(users, 36)) * np.linspace(0.02, 0.4, 36)
        given.append((users, noise, x.T @ x, x.T @ (0.1 * x[:, 0] - 0.2 * x[:, 30])))
    state = _state(policy, *given, separate=separate)
    assert int(state.closed_count) == closed
    few = policy.publish(state)
    monkeypatch.setattr("kerchief.policies.sampling._MOST_SMALL", 36)
    more = policy.publish(state)
    assert np.abs(more.estimate).max() > 0.01
    assert few.estimate == pytest.approx(np.asarray(more.estimate), abs=1e-6)
    for ours, theirs in ((few.widen, more.widen), (few.sample, more.sample)):
        assert np.abs(theirs).max() > 0
        assert ours @ ours.T == pytest.approx(np.asarray(theirs @ theirs.T), rel=1e-4, abs=1e-6)


def test_high_dim_models_are_posted_at_a_fixed_interval() -> None:
    def posts(dim: int, until: int) -> list[int]:
        policy = LinearSampling.of(dataclasses.replace(FACTS, dim=dim))
        clocks = Clock(round=jnp.arange(until, dtype=jnp.int32), since={})
        found = jax.vmap(lambda clock: jnp.asarray(policy.refreshes(clock)))(clocks)
        return [int(one) + 1 for one in np.flatnonzero(found)]

    assert posts(32, 66) == list(range(1, 67))
    assert posts(64, 192) == list(range(4, 193, 4))
    assert posts(256, 960) == list(range(16, 961, 16))


@double_precision
@pytest.mark.parametrize(("separate", "ripe"), [("cohorts", 2.0), ("users", 5.0)])
def test_cohort_closes_when_its_gram_matrix_exceeds_its_noise(
    separate: Separate, ripe: float
) -> None:
    """By public numbers alone: users, noise and bounds."""
    policy = LinearSampling.of(FACTS)
    enough = ripe * 9.0 * 3**0.5 * 3
    for users, closed in ((int(enough) - 1, 0), (int(enough) + 1, int(enough) + 1)):
        cohort: Cohort = (users, 9.0, np.zeros((3, 3)), np.zeros(3))
        assert int(_state(policy, cohort, separate=separate).closed_count) == closed


@double_precision
def test_cohorts_grow_so_that_there_are_never_many() -> None:
    """Each tells of its noise, too: many would end exploration (`sampling.md`)."""
    policy = LinearSampling.of(FACTS)
    state, closings = policy.init({"moments": NoiseInfo(noisy=True, separate="users")}), 0
    readings = span_horizon(200_000, first=1000, growth=1.02)
    query = dataclasses.replace(policy.query, readings=readings)
    policy = dataclasses.replace(policy, query=query)
    update = jax.jit(lambda state, release: policy.update(state, "moments", release))
    for count in readings:
        release = Release(
            total=jnp.zeros(policy.query.size),
            count=jnp.int32(count),
            noise=jnp.float64((count / 1000) ** 0.5),
        )
        before, state = state, update(state, release)
        closings += int(state.closed_count) > int(before.closed_count)
    assert 20 < closings < math.log(200) / math.log(1.1)


@double_precision
@pytest.mark.parametrize("mode", ["tuned", "theory"])
def test_totals_are_taken_as_they_are_where_noise_is_shared(mode: Any) -> None:
    """Under joint trust, and for the proved widths, which speak about plain totals."""
    policy = LinearSampling.of(FACTS, mode=mode)
    separate: Separate = "nobody" if mode == "tuned" else "cohorts"
    state = _state(policy, EARLY, LATE, separate=separate)
    assert int(state.closed_count) == 0
    assert not state.precision.any()
    assert state.total[0] == 20_300.0
    assert float(state.noise) == pytest.approx(9.0 * 2**0.5)


@double_precision
def test_eigenvalue_spread_within_noise_is_shrunk() -> None:
    policy = LinearSampling.of(FACTS)
    values, _, mean = policy._shrink_spectrum(
        jnp.diag(jnp.array([90.0, 100.0, 110.0])), jnp.float64(20.0)
    )
    assert values.tolist() == pytest.approx([100.0] * 3)
    assert float(mean) == pytest.approx(100.0)
    values, _, _ = policy._shrink_spectrum(jnp.diag(jnp.array([0.0, 0.0, 300.0])), jnp.float64(0.1))
    assert values.tolist() == pytest.approx([0.0, 0.0, 300.0], abs=0.1)


@double_precision
def test_starved_directions_are_sampled_and_others_widened() -> None:
    policy = LinearSampling.of(FACTS)
    model = policy.publish(_with(policy, np.diag([500.0, 450.0, 1.0]), [250.0, 0.0, 0.0]))
    assert np.abs(model.sample[:2]).max() == 0
    assert float(np.abs(model.sample[2]).max()) > 0.1
    assert np.abs(model.widen[2]).max() == 0
    assert float(np.abs(model.widen[0]).max()) > 0
    assert float(model.estimate[0]) == pytest.approx(0.5, abs=0.02)


@double_precision
def test_estimate_long_by_chance_keeps_posterior_spread() -> None:
    """Three users made it long, and nobody else has told anything of that direction."""
    policy = LinearSampling.of(FACTS, epsilon=math.inf)
    long, short = (
        policy.publish(_with(policy, np.diag([5000.0, 3.0, 3.0]), [2500.0, 6 * length, 0.0]))
        for length in (1.0, 0.0)
    )
    assert float(jnp.linalg.norm(long.estimate)) > 0.95
    doubts = [float(jnp.linalg.norm(model.sample[1])) for model in (long, short)]
    assert doubts[0] > 0.6 * doubts[1]
    # The same length where it is known leaves no room: the parameter cannot be longer.
    known = policy.publish(_with(policy, np.diag([5000.0, 3.0, 3.0]), [4990.0, 0.0, 0.0]))
    assert float(jnp.linalg.norm(known.sample[1])) < 0.6 * doubts[1]


@double_precision
def test_noise_per_user_leaves_wider_prior_than_noise_per_cohort() -> None:
    """At a large epsilon, of a direction that nobody has told anything of."""
    policy = LinearSampling.of(FACTS, epsilon=4.0)
    spreads = {}
    for separate in ("cohorts", "users"):
        state = policy.init({"moments": NoiseInfo(noisy=True, separate=separate)})
        _, spread = policy._solve_along_axes(state.separate, jnp.eye(3), jnp.zeros(3), jnp.zeros(3))
        spreads[separate] = float(spread[0, 0])
    assert spreads["users"] == pytest.approx((3 * 0.16) ** -0.5, rel=1e-6)
    assert spreads["users"] > 1.4 * spreads["cohorts"]


@pytest.mark.parametrize(
    ("dim", "horizon", "epsilon", "users"),
    [
        (5, 20_000, 1.0, 210),
        (20, 200_000, 1.0, 840),
        (20, 6_000, 1.0, 100),
        (5, 20_000, 0.1, 1486),
        (5, 20_000, 0.01, 1486),
        (5, 20_000, 4.0, 64),
        (5, 20_000, math.inf, 64),
        (1, 100, 4.0, 20),
    ],
)
def test_first_cohort_size_follows_dimension_and_epsilon(
    dim: int, horizon: int, epsilon: float, users: int
) -> None:
    facts = dataclasses.replace(FACTS, dim=dim, horizon=horizon)
    batches = LinearSampling.of(facts, epsilon=epsilon).query.batches
    assert batches[0] == users
    assert batches[-1] == horizon
    growth = [later / sooner for sooner, later in itertools.pairwise(batches[:-1])]
    assert all(one == pytest.approx(1.7, rel=0.05) for one in growth)


@double_precision
def test_eigenvalue_within_noise_does_not_end_exploration() -> None:
    """The same spurious eigenvalue is information without noise, and none with it."""
    policy = LinearSampling.of(FACTS)
    sums = np.diag([5000.0, 30.0, 30.0]), [0.0, 0.0, 0.0]
    sure, unsure = (
        np.linalg.norm(policy.publish(_with(policy, *sums, noise=noise)).sample)
        for noise in (0.0, 30.0)
    )
    assert unsure > 3 * sure


@double_precision
def test_sampling_outgrows_every_root_of_a_logarithm() -> None:
    policy = LinearSampling.of(FACTS)
    sums = np.diag([1e9, 1.0, 1.0]), [1e9, 0.0, 0.0]
    counts = (10**3, 10**6, 2**31 - 1)
    found = [np.linalg.norm(policy.publish(_with(policy, *sums, count=n)).sample) for n in counts]
    logs = [np.log1p(n / 1000) for n in counts]
    slopes = np.diff(found) / np.diff(logs)
    assert slopes.min() > 0
    assert slopes.max() == pytest.approx(slopes.min(), rel=1e-4)


@double_precision
def test_devices_of_one_batch_play_many_arms() -> None:
    """All see one model, and each acts on a guess of its own; what is not allowed is not played."""
    policy = LinearSampling.of(FACTS)
    model = policy.publish(policy.init({"moments": NoiseInfo(noisy=True)}))
    points = np.random.default_rng(0).normal(size=(10, 3))
    features = jnp.asarray(points / np.linalg.norm(points, axis=1, keepdims=True))
    arms = Arms(features=features, allowed=jnp.arange(10) < 8)
    clock = Clock(round=jnp.int32(0), since={})
    act = jax.jit(lambda round: policy.act(model, arms, clock, Stream.of(seed=0, replicate=round)))
    played = {int(act(jnp.uint32(n))) for n in range(200)}
    assert len(played) >= 5
    assert max(played) < 8


@double_precision
@pytest.mark.parametrize("link", ["linear", "logistic"])
def test_theory_mode_draws_from_the_proved_set(link: str) -> None:
    facts = dataclasses.replace(FACTS, low=0.0, link=link)
    policy: Any = build_sampling(facts, mode="theory")
    assert type(policy).__name__ == ("LinearSampling" if link == "linear" else "GLMSampling")
    state = _with(policy, np.diag([50.0, 20.0, 10.0]), [10.0, 5.0, 1.0], noise=2.0)
    ridge, _, width = policy._theory_width(state)
    model: PosteriorModel = policy.publish(state)
    scale = 1.0 if link == "linear" else policy.steepest
    sizes = sorted((float(width) / np.sqrt(scale * np.array([50.0, 20.0, 10.0]) + ridge)).tolist())
    assert sorted(np.linalg.norm(model.sample, axis=0)) == pytest.approx(sizes, rel=1e-5)
    assert not model.widen.any()


@double_precision
def test_a_cohort_is_noisy_on_its_own_and_a_prefix_total_is_not() -> None:
    for trust, separate in (
        ("central", "cohorts"),
        ("shuffle", "cohorts"),
        ("joint", "nobody"),
        ("local", "users"),
    ):
        promise = Guarantee(epsilon=1.0, delta=1e-5, trust=Trust(trust))
        made = build_protected("sampling", FACTS, Protection(guarantee=promise))
        assert made.privatizers["moments"].outlook.separate == separate


def test_running_totals_are_read_rarely_where_each_costs_noise() -> None:
    """One event for all, with the noise of a stream as long as there are readings."""
    promise = Protection(guarantee=Guarantee(epsilon=1.0, delta=1e-5, trust=Trust.JOINT))
    prices, noises = [], []
    for name in ("sampling", "linucb"):
        sums = build_protected(name, FACTS, promise).privatizers["moments"]
        assert isinstance(sums, PrefixSums)
        (charge,) = sums.charges(FACTS.horizon)
        assert isinstance(charge.event, Gaussian)
        prices.append(charge.event.noise_multiplier)
        last = jnp.int32(sums.schedule.capacity(FACTS.horizon))
        noises.append(float(sums.noise_after(jnp.int32(FACTS.horizon), last)))
    assert prices[0] == pytest.approx(prices[1], rel=1e-12)
    assert noises[0] < 0.75 * noises[1]


@pytest.mark.parametrize("trust", ["shuffle", "joint", "central"])
@pytest.mark.parametrize("horizon", [37, 130, 5000])
def test_the_last_planned_user_is_served_too(trust: str, horizon: int) -> None:
    promise = Guarantee(epsilon=1.0, delta=1e-5, trust=Trust(trust))
    facts = dataclasses.replace(FACTS, horizon=horizon)
    schedule = (
        build_protected("best", facts, Protection(guarantee=promise))
        .privatizers["moments"]
        .schedule
    )
    assert isinstance(schedule, At)
    assert schedule.ends[-1] == horizon


def _regret(name: str, trust: str, replicates: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    world = make_environment(contexts="fixed", dim=3, arms=30)
    promise = Guarantee(epsilon=1.0, delta=1e-5, trust=Trust(trust))
    made = build_protected(name, world.problem(4000), Protection(guarantee=promise))
    run = simulate(
        policy=made.policy,
        privatizers=made.privatizers,
        environment=world,
        ledger=MemoryLedger(promise),
        horizon=4000,
        replicates=replicates,
        seed=77,
        ticks=2,
    )
    return np.asarray(run.regret)


@pytest.mark.nightly
def test_batches_on_fixed_arms_are_not_stuck() -> None:
    """Optimism plays one arm for a whole batch; sampling does not."""
    ours, others = (_regret(name, "central", 64) for name in ("sampling", "linucb"))
    assert ours[-1].mean() < 0.7 * others[-1].mean()
    assert np.quantile(ours[-1], 0.95) < 0.7 * np.quantile(others[-1], 0.95)


def test_best_is_an_alias_shown_as_sampling() -> None:
    """A word, not a bandit of its own: what is stored and shown is the name of what plays."""
    assert player("best", trust="joint", epsilon=1.0).label() == "sampling joint ε=1"
    asked = Comparison(policies=("best",), trusts=("joint",), epsilons=(1.0,), contexts=("ball",))
    assert asked.lead().startswith("best (sampling) in the linear world")
    assert "--policy best" in asked.command()
    assert "best" not in set(POLICIES)
    promise = Guarantee(epsilon=1.0, delta=1e-6, trust=Trust.JOINT)
    made = deploy(policy="best", problem=FACTS, guarantee=promise)
    assert type(made.policy) is LinearSampling
    assert type(read_deployment(Task.read(made.task.data)).policy) is LinearSampling
    assert made.task.name == "sampling"
