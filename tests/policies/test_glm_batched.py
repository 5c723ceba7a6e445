"""Batched elimination: its formulas on numbers worked out by hand, and what it loses."""

from __future__ import annotations

import dataclasses
import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats  # type: ignore[import-untyped]

from kerchief.core.contracts import Arms, Clock, FitRelease, NoiseInfo, Release, Start
from kerchief.core.minimizers import GradientDescent, PreconditionedSteps
from kerchief.core.problems import Problem
from kerchief.core.random import POLICY, Stream
from kerchief.environments import make_environment
from kerchief.policies import POLICIES
from kerchief.policies.glm import batched
from kerchief.policies.glm.batched import Batched, Model, State
from kerchief.policies.glm.batched_paper import recursion
from kerchief.policies.glm.radius import Facts, distance, excess
from kerchief.privacy import Guarantee, MemoryLedger, Trust
from kerchief.privatizers import Protection, protect
from kerchief.privatizers.shuffled_fits import ShuffledFits
from kerchief.simulation.run import Run, simulate

FACTS = Problem(dim=2, arms=4, norm=1.0, radius=2.0, low=0.0, high=1.0, horizon=1000, link="probit")
BATCHES = (10, 30, 100)
PHI = 1 / math.sqrt(2 * math.pi)
survivors = jax.jit(batched.survivors)
publish = jax.jit(Batched.publish)


def policy(**changes: Any) -> Batched:
    return Batched.of(FACTS, batches=BATCHES, **changes)


@partial(jax.jit, static_argnames="noisy")
def begun(bandit: Batched, *, noisy: bool = False) -> State:
    return bandit.init(dict.fromkeys(bandit.queries, NoiseInfo(noisy=noisy)))


def arms(*rows: tuple[float, float]) -> Arms:
    return Arms(features=jnp.array(rows, jnp.float32), allowed=jnp.ones(len(rows), bool))


def clock(round: int) -> Clock:
    return Clock(round=jnp.int32(round), since={})


def total(a: float, b: float) -> Any:
    """The flat form of diag(a, b)."""
    return jnp.array([a, 0.0, b])


@jax.jit
def told(bandit: Batched, state: State, sums: Any, noise: float, point: Any, jitter: float) -> Any:
    """The releases of one batch, in the order in which they come."""
    release = Release(total=sums, count=jnp.int32(0), noise=jnp.float64(noise))
    state = bandit.update(state, "curvature", release)
    asked = bandit.request(state, "fit")
    fit = FitRelease(point=jnp.asarray(point), count=jnp.int32(7), noise=jnp.float64(jitter))
    return bandit.update(state, "fit", fit), asked


def model(**changes: Any) -> Model:
    """Three batches, two of them known: radii of 0.5 around (1, 0) and of 0.1 around (0, 1)."""
    shape = jnp.stack([jnp.eye(2), jnp.eye(2), jnp.full((2, 2), jnp.nan)])
    facts: dict[str, Any] = {
        "estimate": jnp.array([[1.0, 0.0], [0.0, 1.0], [9.0, 9.0]], jnp.float32),
        "shape": shape.astype(jnp.float32),
        "width": jnp.array([0.5, 0.1, 1.0], jnp.float32),
        "known": jnp.int32(2),
        **changes,
    }
    return Model(**facts)


def test_an_arm_goes_if_any_batch_rules_it_out() -> None:
    # First set: scores 1, 0.6, -1 and -1, known up to 0.5, so the last two go. Second set, among
    # the rest: 0 and 0.8, up to 0.1, so the first goes; -1 and 1 for those that are gone.
    shown = arms((1.0, 0.0), (0.6, 0.8), (-1.0, 0.0), (-0.6, 0.8))
    assert survivors(model(), shown).tolist() == [False, True, False, False]
    assert survivors(model(known=jnp.int32(1)), shown).tolist() == [True, True, False, False]
    assert survivors(model(known=jnp.int32(0)), shown).tolist() == [True] * 4
    masked = Arms(features=shown.features, allowed=jnp.array([True, False, True, False]))
    assert survivors(model(), masked).tolist() == [True, False, False, False]


def test_batch_bound_of_a_ruled_out_arm_rules_out_no_others() -> None:
    """The best lower bound of the second set is that of an arm which the first has ruled out."""
    shown = arms((1.0, 0.0), (-1.0, 0.2), (0.0, 1.0))
    narrow = model(width=jnp.array([0.1, 0.1, 1.0], jnp.float32))
    assert survivors(narrow, shown).tolist() == [True, False, False]


def test_batch_holds_growth_of_the_total_and_its_own_noise() -> None:
    bandit = policy()
    state = begun(bandit, noisy=True)
    state, _ = told(bandit, state, total(4.0, 2.0), 3.0, [0.5, 0.0], 0.1)
    state, _ = told(bandit, state, total(9.0, 3.0), 5.0, [0.7, 0.0], 0.2)
    np.testing.assert_allclose(state.told.gram[0], [[4, 0], [0, 2]], atol=1e-12)
    np.testing.assert_allclose(state.told.gram[1], [[5, 0], [0, 1]], atol=1e-12)
    np.testing.assert_allclose(state.told.shake, [3, 4, 0])
    np.testing.assert_allclose(state.told.jitter, [0.1, 0.2, 0])
    assert int(state.batch) == 2


def test_a_fit_begins_at_the_last_one_in_its_own_metric() -> None:
    bandit = policy(ridge=0.5, damping=2.0, shrinkage=0.25)
    state, first = told(bandit, begun(bandit, noisy=True), total(40.0, 20.0), 1.0, [0.5, 0.1], 0.1)
    _, second = told(bandit, state, total(140.0, 20.0), math.sqrt(2), [0.7, 0.0], 0.2)
    extra = 2 * PHI * math.sqrt(2 * 2)
    np.testing.assert_allclose(first.point, [0, 0])
    np.testing.assert_allclose(second.point, [0.5, 0.1])
    wanted = np.diag([PHI * 40, PHI * 20]) + (0.5 + extra) * np.eye(2)
    np.testing.assert_allclose(first.metric, wanted, rtol=1e-12)
    # Of nothing but noise only the ridge is left.
    assert float(second.metric[1, 1]) == pytest.approx(0.5 + extra)
    assert float(first.ridge) == pytest.approx(0.5 + 0.25 * extra)


def test_eigenvalues_are_floored_under_noise() -> None:
    bandit = policy(ridge=0.5, damping=0.0)
    _, asked = told(bandit, begun(bandit, noisy=True), total(-100.0, 20.0), 1.0, [0.0, 0.0], 0.1)
    assert float(asked.metric[0, 0]) == pytest.approx(0.05)


def test_sets_are_shaped_by_the_matrix_and_the_noise_of_the_fit() -> None:
    bandit = policy(ridge=0.5, damping=0.0, allowance=2.0, exploration=3.0, rough=1.5)
    state, _ = told(bandit, begun(bandit), total(40.0, 20.0), 0.0, [0.5, 0.1], 0.7)
    posted = publish(bandit, state)
    matrix = np.array([PHI * 40, PHI * 20]) + 0.5
    np.testing.assert_allclose(
        np.diag(posted.shape[0]), 1 / matrix + 2 * 0.49 / matrix**2, rtol=1e-6
    )
    np.testing.assert_allclose(posted.width, [4.5, 3.0, 3.0])


def test_weights_are_slopes_at_the_first_estimate() -> None:
    x = jnp.array([[0.6, 0.8], [1.0, 0.0]], jnp.float32)
    plain = policy(doubt=0.0)._weights(model(), x)
    np.testing.assert_allclose(plain, stats.norm.pdf([0.6, 1.0]) / PHI, rtol=1e-5)
    # The width is 0.5 for unit arms; with a width of 99 the doubt ends at twice the reach.
    doubting = policy(doubt=0.3)._weights(model(), x)
    np.testing.assert_allclose(doubting, np.exp(-0.15) * np.asarray(plain), rtol=1e-5)
    lost = policy(doubt=0.3)._weights(model(width=jnp.full(3, 99.0)), x)
    np.testing.assert_allclose(lost, np.exp(-1.2) * np.asarray(plain), rtol=1e-5)


def test_weights_stay_within_the_unit_interval_and_the_reach() -> None:
    wild = model(estimate=jnp.full((3, 2), 1e9, jnp.float32))
    x = jnp.array([[1.0, 0.0], [-1.0, 0.0]], jnp.float32)
    np.testing.assert_allclose(policy()._weights(wild, x), math.exp(-2.0), rtol=1e-5)
    poisson = Batched.of(dataclasses.replace(FACTS, link="poisson", high=8.0), batches=BATCHES)
    assert (poisson._weights(wild, x) <= 1).all()


def test_before_the_first_fit_every_arm_weighs_the_same() -> None:
    bandit = policy(doubt=5.0)
    posted = publish(bandit, begun(bandit))
    x = jnp.array([[0.6, 0.8], [1.0, 0.0]], jnp.float32)
    np.testing.assert_allclose(bandit._weights(posted, x), 1.0)


def test_survivors_follow_the_design_and_last_users_get_the_best() -> None:
    bandit, shown = policy(), arms((1.0, 0.0), (0.0, 1.0), (0.9, 0.1), (-1.0, 0.0))
    loose = model(width=jnp.array([0.9, 1.0, 1.0], jnp.float32))
    act = jax.jit(jax.vmap(lambda i: bandit.act(loose, shown, clock(50), stream(i))))
    played = np.bincount(act(jnp.arange(400, dtype=jnp.uint32)), minlength=4)
    # The last arm is ruled out; the design is on two that span the plane, about evenly.
    assert played[3] == 0
    assert (played > 0).sum() == 2
    assert played.max() < 260
    # The latest estimate is (0, 1).
    assert int(bandit.act(loose, shown, clock(100), stream(0))) == 1


def test_learned_design_plays_least_known_direction_of_last_gram() -> None:
    """One for all users, as the arms of one user say nothing of what others bring."""
    shown = arms((1.0, 0.0), (0.0, 0.9), (0.9, 0.1), (-1.0, 0.0))
    # In the last matrix the second direction is known a hundred times worse.
    shape = jnp.stack([jnp.diag(jnp.array([0.01, 1.0], jnp.float32))] * 3)
    loose = model(width=jnp.array([9.0, 9.0, 9.0], jnp.float32), shape=shape)

    def played(bandit: Batched, posted: Model) -> Any:
        act = jax.jit(jax.vmap(lambda i: bandit.act(posted, shown, clock(50), stream(i))))
        return np.bincount(act(jnp.arange(400, dtype=jnp.uint32)), minlength=4)

    assert played(policy(learned=1.0), loose)[1] > 380
    assert 150 < played(policy(), loose)[1] < 250
    # Before the first matrix there is nothing to learn from.
    fresh = dataclasses.replace(loose, known=jnp.int32(0))
    np.testing.assert_array_equal(played(policy(learned=1.0), fresh), played(policy(), fresh))


def test_learned_design_ignores_masked_arms() -> None:
    shown = arms((1e-18, 0.0), (0.0, 1e-18), (1.0, 0.0), (-1.0, 0.0))
    shown = dataclasses.replace(shown, allowed=jnp.array([False, True, False, False]))
    loose = model(width=jnp.array([9.0, 9.0, 9.0], jnp.float32))
    act = jax.jit(lambda i: policy(learned=1.0).act(loose, shown, clock(50), stream(i)))
    assert [int(act(jnp.uint32(i))) for i in range(5)] == [1] * 5


def stream(replicate: Any) -> Stream:
    return Stream.of(seed=1, replicate=replicate).at(POLICY)


def test_curvature_and_fit_are_due_when_a_batch_ends() -> None:
    bandit = policy()
    state = begun(bandit)
    for round, ends in ((8, False), (9, True), (10, False), (99, True)):
        assert {bool(due) for due in bandit.due(state, clock(round)).values()} == {ends}
        assert bool(bandit.refreshes(clock(round))) is ends
    # The fit needs the matrix of its own batch, so it comes second.
    assert list(bandit.queries) == ["curvature", "fit"]


def facts(**changes: Any) -> Facts:
    known: dict[str, Any] = {
        "dim": 2,
        "users": jnp.array(100.0),
        "ridge": jnp.array(4.0),
        "radius": 2.0,
        "norm": 1.0,
        "steepest": 0.5,
        "spread": 1.0,
        "bend": 3.0,
        "log": 5.0,
        **changes,
    }
    return Facts(**known)


def test_the_radius_by_hand() -> None:
    psi = 2 * math.log(2) + 5 + math.log(1 + 100 * 0.5 / 8)
    gamma, curve = 2 * 2.5 + psi, 2 + 3 * (2 + 1.5)
    estimate = jnp.array([0.0, 1.5])
    exact = float(distance(facts(), estimate, jnp.array(0.0)))
    assert exact == pytest.approx(curve * gamma)
    left = float(distance(facts(), estimate, jnp.array(7.0)))
    assert left == pytest.approx(curve * gamma + math.sqrt(curve * 7))


def test_excess_of_descent_matches_hand_computation() -> None:
    tail = math.sqrt(2 * (5 + math.log(16)))
    planned = math.sqrt(50**2 + 2 * 9)
    longest = 50 + 8 + 3 * (math.sqrt(2) + tail)
    wanted = ((planned + longest**2 / (2 * planned)) / math.sqrt(2) + 3 * tail) * 4 / 4
    found = float(excess(facts(), steps=16, clip=0.5, noise=jnp.array(3.0)))
    assert found == pytest.approx(wanted)


def test_descent_keeps_its_bound() -> None:
    """On a slope as steep as can be: no run of 200 ends above ν, nor far below it."""
    users, steps, noise, clip = 40, 25, 4.0, 0.5
    minimizer = GradientDescent(steps=steps, radius=2.0, clip=clip)
    down = jnp.array([0.6, -0.8])
    start = Start(point=jnp.zeros(2), metric=jnp.eye(2), ridge=jnp.float64(0), radius=1e6)

    def left(replicate: Any) -> Any:
        root = Stream.of(seed=4, replicate=replicate).at(POLICY)

        def gradient(point: Any, step: Any) -> Any:
            return users * clip * -down + noise * root.split(step).normal(2)

        found = minimizer.descend(gradient, start, users=jnp.int32(users), noise=jnp.array(noise))
        return users * clip * (2 - found @ down)

    found = jax.jit(jax.vmap(left))(jnp.arange(200, dtype=jnp.uint32))
    known = facts(users=jnp.array(40.0), ridge=jnp.array(0.0))
    bound = float(excess(known, steps=steps, clip=clip, noise=jnp.array(noise)))
    assert bound / 20 < float(found.mean()) < float(found.max()) <= bound


@pytest.mark.parametrize("noisy", [False, True])
def test_in_theory_no_arm_is_ruled_out_at_the_sizes_of_a_study(noisy: bool) -> None:
    """A batch of 20 000 users along each of two axes, and a parameter as long as can be."""
    problem = dataclasses.replace(FACTS, horizon=100_000)
    bandit = Batched.of(problem, mode="theory")
    assert isinstance(bandit.loss.minimizer, GradientDescent)
    state = begun(bandit, noisy=noisy)
    release = Release(total=total(2e4, 2e4), count=jnp.int32(0), noise=jnp.float64(0))
    fit = FitRelease(point=jnp.array([2.0, 0.0]), count=jnp.int32(40_000), noise=jnp.float64(1.0))

    @jax.jit
    def learned(state: State) -> Model:
        state = bandit.update(state, "curvature", release)
        return bandit.publish(bandit.update(state, "fit", fit))

    posted = learned(state)
    shown = arms((1.0, 0.0), (-1.0, 0.0), (0.0, 1.0))
    assert survivors(posted, shown).all()
    # With widths of order one two of them are gone.
    close = dataclasses.replace(posted, width=0 * posted.width + 1)
    assert survivors(close, shown).tolist() == [True, False, False]


def test_the_first_set_is_wider_by_what_its_weights_do_not_know() -> None:
    bandit = Batched.of(FACTS, mode="theory", batches=BATCHES)
    state, _ = told(bandit, begun(bandit), total(40.0, 20.0), 0.0, [0.5, 0.1], 0.0)
    state, _ = told(bandit, state, total(80.0, 40.0), 0.0, [0.5, 0.1], 0.0)
    first, second, _ = np.asarray(publish(bandit, state).width)
    # κ μ'(0) = exp(S²/2) for a probit.
    assert first / second == pytest.approx(math.e, rel=1e-5)


def test_modes_change_the_minimizer_but_not_protected_batches() -> None:
    tuned, theory = (POLICIES["glm-batched"].build(FACTS, mode) for mode in ("tuned", "theory"))
    for one in (tuned, theory):
        assert {query.batches for query in one.queries.values()} == {(100, 250, 625)}
    fits: Any = [one.queries["fit"] for one in (tuned, theory)]
    assert isinstance(fits[0].minimizer, PreconditionedSteps)
    assert isinstance(fits[1].minimizer, GradientDescent)


def test_published_batches() -> None:
    # α = 1000^(4/7), that once more, and then α√α more: α√(α√α) more would be beyond the end.
    alpha = 1000 ** (4 / 7)
    ends = np.cumsum([alpha, alpha, alpha**1.5])
    assert recursion(1000) == tuple(np.floor(ends).astype(int))
    for horizon in (1, 5, 40, 400, 10**6):
        found = recursion(horizon)
        assert all(0 < a < b for a, b in zip((0, *found), found, strict=False) if a)
        assert not found or found[-1] < horizon


def test_the_published_versions() -> None:
    private: Any = POLICIES["glm-batched@paper"].build(FACTS, "tuned")
    assert private.loss.minimizer == GradientDescent(steps=50, radius=2.0, clip=1.0)
    assert private.doubt == 1.0
    wider: Any = POLICIES["glm-batched@paper"].build(dataclasses.replace(FACTS, high=2.0), "tuned")
    assert wider.doubt == 2.0  # R in the exponent of β(x)
    parent: Any = POLICIES["b-glincb"].build(FACTS, "theory")
    state = begun(parent)
    width = 30 * 2 * math.sqrt(2 * math.log(1000))
    assert float(parent.publish(state).width[1]) == pytest.approx(width, rel=1e-6)
    assert parent.ridge == pytest.approx(20 * 2 * math.log(1000))


def play(trust: str, *, name: str = "glm-batched", epsilon: float = 4.0) -> Run:
    home = make_environment(link="probit", dim=2, arms=10, radius=2.0)
    bandit = POLICIES[name].build(home.problem(3000), "tuned")
    private = trust != "none"
    promise = Guarantee(
        epsilon=epsilon if private else math.inf,
        delta=1e-5 if private else 0.0,
        trust=Trust(trust),
    )
    privatizers = protect(bandit, Protection(guarantee=promise), horizon=3000)
    if private:
        assert isinstance(privatizers["fit"], ShuffledFits)
    return simulate(
        policy=bandit,
        privatizers=privatizers,
        environment=home,
        ledger=MemoryLedger(promise),
        horizon=3000,
        replicates=16,
        seed=1,
        ticks=1,
    )


@pytest.mark.nightly
def test_glm_batched_regret_stays_low_with_and_without_privacy() -> None:
    """Means of 16 replicates, fixed seed; uniform play loses 1250 here."""
    plain, private = play("none"), play("shuffle")
    assert 0.98 * 4 <= private.spent.epsilon <= 4.0
    loss = {"none": plain.regret[-1].mean(), "shuffle": private.regret[-1].mean()}
    assert loss["none"] < loss["shuffle"] < 200
    assert loss["none"] < 120


def test_a_restored_state_is_plain_numpy() -> None:
    bandit = policy()
    plain: Any = jax.tree.map(np.asarray, begun(bandit))
    state, _ = told(bandit, plain, total(4.0, 2.0), 0.0, [0.5, 0.0], 0.0)
    posted: Any = jax.tree.map(np.asarray, bandit.publish(jax.tree.map(np.asarray, state)))
    assert int(bandit.act(posted, arms((1.0, 0.0), (-1.0, 0.0)), clock(100), stream(0))) == 0
