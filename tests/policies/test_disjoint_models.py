"""Arms with models of their own: what cohorts tell, what is believed, and who is refused."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from kerchief.core.contracts import Arms, Clock, NoiseInfo, Release, Separate
from kerchief.core.errors import BudgetExceededError, InvalidValueError
from kerchief.core.problems import Problem
from kerchief.core.random import Stream
from kerchief.deployment.protected_policy import build_protected
from kerchief.environments import make_environment
from kerchief.environments.disjoint import DisjointModels
from kerchief.policies import POLICIES, disjoint_beliefs, disjoint_contexts, resolve_name
from kerchief.policies.disjoint_beliefs import VARIANCES
from kerchief.policies.disjoint_contexts import DisjointPosterior
from kerchief.policies.disjoint_models import DisjointSampling
from kerchief.privacy.guarantee import Guarantee, Trust
from kerchief.privacy.ledger import MemoryLedger
from kerchief.privatizers.protect import Protection
from kerchief.simulation import simulate

FACTS = Problem(
    dim=3, arms=4, norm=1.0, radius=1.0, low=0.0, high=1.0, horizon=200, constant=0.5, own=3
)
POLICY = DisjointSampling.of(FACTS)
QUERY = POLICY.query
# So many users to come that they will tell everything.
FULL = jnp.tile(1e12 * jnp.eye(3), (4, 1, 1))
ALIKE = DisjointPosterior(estimate=jnp.zeros((4, 3)), sample=jnp.zeros((4, 3, 3)) + jnp.eye(3))


def total(features: Any, arms: Any, rewards: Any) -> Any:
    """The statistics of some users, added up."""

    def one(x: Array, arm: Array, reward: Array) -> Array:
        offered = Arms(features=jnp.tile(x, (4, 1)), allowed=jnp.ones(4, bool))
        return QUERY.encode(POLICY.record(None, offered, arm, reward)["moments"])

    given = map(jnp.asarray, (features, arms, rewards))
    return jax.jit(jax.vmap(one))(*given).sum(0)


updated = jax.jit(lambda state, release: POLICY.update(state, "moments", release))
# As one program each, as in a run.
believed = jax.jit(disjoint_beliefs.estimate_parameters, static_argnums=0)
information = jax.jit(disjoint_beliefs.measure_information)
corrected = jax.jit(disjoint_contexts.correct_gram, static_argnums=0)
met = jax.jit(disjoint_contexts.predict_gram, static_argnums=0)
simulated = jax.jit(disjoint_contexts.simulate_contexts, static_argnums=0)


def test_information_is_that_of_a_regression_with_this_noise() -> None:
    gram, moments = jnp.diag(jnp.array([4.0, 1.0]))[None], jnp.array([[8.0, 3.0]])
    told, evidence = information(gram, moments, jnp.float64(0.5), jnp.full((1, 2), 2.0))
    np.testing.assert_allclose(told[0], np.diag([16 / 4, 1 / 2.5]), rtol=1e-6)
    np.testing.assert_allclose(evidence[0], [4 / 4 * 8, 1 / 2.5 * 3], rtol=1e-6)


@pytest.mark.nightly
def test_posterior_without_information_is_equal_for_all_arms() -> None:
    mean, covariance = believed(QUERY, jnp.zeros((4, 3, 3)), jnp.zeros((4, 3)), FULL, 0.1, 1.0)
    np.testing.assert_allclose(mean, np.zeros((4, 3)), atol=1e-12)
    own = (0.1 / QUERY.lever) ** 2
    variances = VARIANCES / QUERY.norm**2
    weights = np.average(
        np.minimum(variances, 1.0), weights=np.sqrt([*VARIANCES[[1]], *VARIANCES[1:]])
    )
    np.testing.assert_allclose(covariance[2], np.diag([weights, weights, own]), rtol=1e-9)


def test_contexts_that_do_not_pay_leave_one_mean_per_arm() -> None:
    """Much is known, and no weight is above its error: the belief ends at one mean per arm."""
    told = jnp.tile(jnp.diag(jnp.array([1e5, 1e5, 1e5])), (4, 1, 1))
    levels = np.array([0.1, 0.2, 0.3, 0.4]) / QUERY.lever
    mean, covariance = believed(
        QUERY, told, jnp.zeros((4, 3)).at[:, -1].set(1e5 * levels), FULL, 0.1, 1.0
    )
    np.testing.assert_allclose(mean[:, -1], levels, rtol=1e-3)
    np.testing.assert_allclose(mean[:, :2], 0, atol=1e-9)
    assert float(covariance[0, 0, 0]) < 5e-6


def test_paying_contexts_give_the_least_squares_estimate() -> None:
    told = jnp.tile(1e6 * jnp.eye(3), (4, 1, 1))
    truth = np.random.default_rng(0).normal(size=(4, 3)) * 0.3
    mean, _ = believed(QUERY, told, jnp.asarray(1e6 * truth), FULL, 0.3, 1.0)
    np.testing.assert_allclose(mean, truth, atol=1e-3)


def test_the_common_level_is_found_by_itself() -> None:
    """Arms that nobody played are believed to be like the others, not like half of the range."""
    told = jnp.zeros((4, 3, 3)).at[:3, -1, -1].set(1e6)
    mean, _ = believed(
        QUERY, told, jnp.zeros((4, 3)).at[:3, -1].set(-0.4e6 / QUERY.lever), FULL, 0.1, 1.0
    )
    assert float(mean[3, -1]) * QUERY.lever == pytest.approx(-0.4, abs=0.02)


def test_unplayed_arm_scores_like_the_others_at_user_contexts() -> None:
    """Features far from 0, as where only their ranges are known: nobody is at the origin."""
    rng = np.random.default_rng(6)
    varying = np.array([0.5, 0.0]) + rng.uniform(-0.3, 0.3, size=(120, 2))
    rows = jnp.asarray(np.column_stack([varying, np.full(120, 0.5)]))
    made = total(rows, rng.integers(3, size=120), 0.2 + 0.8 * varying[:, 0])
    release = Release(total=100 * made, count=jnp.int32(12_000), noise=jnp.float64(0))
    state = POLICY.init({"moments": NoiseInfo(noisy=True, separate="cohorts")})
    learned = updated(state, release)
    scores = QUERY.levered(jnp.asarray(varying.mean(0))) @ learned.beliefs.estimate.T
    np.testing.assert_allclose(scores + QUERY.offset, np.full(4, 0.6), atol=0.05)


def test_score_variance_is_what_future_users_can_resolve() -> None:
    """With a lever alone: prior variance less what is left of it, v - 1 / (1/v + told + coming)."""
    told = jnp.zeros((4, 3, 3)).at[:, -1, -1].set(200.0)
    own, moved = (0.1 / QUERY.lever) ** 2, []
    for coming in (0.0, 300.0):
        more = jnp.zeros((4, 3, 3)).at[:, -1, -1].set(coming)
        _, movable = believed(QUERY, told, jnp.zeros((4, 3)), more, 0.1, 1.0)
        expected = 1 / (1 / own + 200) - 1 / (1 / own + 200 + coming)
        np.testing.assert_allclose(movable[:, -1, -1], np.full(4, expected), rtol=1e-9, atol=1e-15)
        np.testing.assert_allclose(movable[:, :2, :2], 0, atol=1e-15)
        moved.append(expected)
    assert moved[0] == 0 < moved[1]


@pytest.mark.nightly
def test_last_model_does_not_explore() -> None:
    """The last model is posted with the last release: no user is left to learn for."""
    state = POLICY.init({"moments": NoiseInfo(noisy=True)})
    widths = [
        updated(
            state,
            Release(total=jnp.zeros(QUERY.size), count=jnp.int32(count), noise=jnp.float64(3)),
        ).beliefs.sample
        for count in (QUERY.readings[0], QUERY.readings[-1])
    ]
    assert np.abs(widths[0]).max() > 1e-3
    np.testing.assert_allclose(widths[1], 0, atol=1e-6)


def test_simulated_contexts_match_released_moments_beyond_noise() -> None:
    rng = np.random.default_rng(3)
    features = np.column_stack([0.3 * rng.normal(size=400) + 0.2, 0.1 * rng.normal(size=400)])
    rows = np.column_stack([features, np.full(400, 0.5)])
    sums = QUERY.split(total(jnp.asarray(rows), [0] * 400, [0.5] * 400))
    users = simulated(QUERY, sums, jnp.int32(400), jnp.float64(0))
    shown = features / np.maximum(1, np.linalg.norm(features, axis=1) / QUERY.norm)[:, None]
    np.testing.assert_allclose(users.mean(0), shown.mean(0), rtol=1e-9)
    np.testing.assert_allclose(np.cov(users.T, bias=True), np.cov(shown.T, bias=True), rtol=1e-9)
    users = simulated(QUERY, sums, jnp.int32(400), jnp.float64(1e6))
    np.testing.assert_allclose(users.mean(0), [0, 0], atol=1e-12)
    spread = np.cov(users.T, bias=True)
    np.testing.assert_allclose(spread, spread[0, 0] * np.eye(2), atol=1e-12)


def test_first_users_play_at_random_and_all_of_them_play() -> None:
    users = jnp.array([0.1, -0.2]) + 0.3 * np.random.default_rng(5).normal(size=(200, 2))
    seen = np.column_stack([users, np.full(200, QUERY.lever)])
    second = seen.T @ seen / 200
    first = met(QUERY, ALIKE, jnp.array(True), users)
    np.testing.assert_allclose(first, np.tile(second / 4, (4, 1, 1)), rtol=1e-6)
    sure = DisjointPosterior(estimate=jnp.eye(4, 3) * 5, sample=ALIKE.sample)
    later = met(QUERY, sure, jnp.array(False), users)
    np.testing.assert_allclose(later.sum(0), second, rtol=1e-6)
    assert float(later[0, 0, 2]) > 0 > float(later[3, 0, 2])


def test_released_sums_of_features_correct_the_simulated_ones() -> None:
    users = 0.3 * 2**0.5 * jnp.concatenate([jnp.eye(2), -jnp.eye(2)])
    gram = met(QUERY, ALIKE, jnp.array(True), users) * 400
    heard = jnp.zeros((4, 3)).at[1].set(jnp.array([20.0, -5.0, 50 * QUERY.lever]))
    right, unknown = corrected(QUERY, gram, heard, jnp.float64(0), 0.05)
    np.testing.assert_allclose(right[1, :, -1], heard[1] * QUERY.lever, rtol=1e-6)
    np.testing.assert_allclose(
        right[1, :2, :2],
        50 * 0.09 * np.eye(2) + np.outer(heard[1, :2], heard[1, :2]) / 50,
        rtol=1e-6,
    )
    same, doubt = corrected(QUERY, gram, heard, jnp.float64(1e12), 0.05)
    np.testing.assert_allclose(same, gram, rtol=1e-6, atol=1e-9)
    assert (np.asarray(doubt) > np.asarray(unknown)).all()


PUBLIC = [[0.5, 0.0, 0.5], [-0.5, 0.3, 0.5], [0.1, -0.6, 0.5]]


def test_public_contexts_need_no_second_moment_from_users() -> None:
    policy = DisjointSampling.of(FACTS, public=PUBLIC)
    asked = policy.query
    assert asked.size == QUERY.size - 3

    @jax.jit
    def learn(value: Array) -> Any:
        release = Release(
            total=jnp.full(asked.size, value),
            count=jnp.int32(30),
            noise=jnp.float64(3.0),
            action=jnp.int32(0),
        )
        return policy._learn_release(policy.init({"moments": NoiseInfo(noisy=True)}), release).gram

    learned = [learn(jnp.float64(value)) for value in (0.0, 5.0)]
    # What users met is played on the public contexts, whatever was released.
    np.testing.assert_allclose(learned[0], learned[1], rtol=1e-12)
    users = np.column_stack([np.array(PUBLIC)[:, :2], np.full(3, asked.lever)])
    np.testing.assert_allclose(learned[0], np.tile(users.T @ users / 3 * 30 / 4, (4, 1, 1)))


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([[0.1, 0.2]], "rows of 3 features"),
        ([[0.9, 0.2, 0.5]], "longer than norm"),
        ([[0.1, float("nan"), 0.5]], "longer than norm"),
        ([[0.1, 0.2, 0.4]], "not the constant"),
        ([], "rows of 3 features"),
    ],
)
def test_public_contexts_keep_the_bounds(rows: Any, said: str) -> None:
    with pytest.raises(InvalidValueError, match=said):
        DisjointSampling.of(FACTS, public=rows)


def test_public_contexts_cannot_be_set_as_a_parameter() -> None:
    promise = Guarantee(epsilon=1.0, delta=1e-6, trust=Trust.CENTRAL)
    with pytest.raises(InvalidValueError, match="parameter is 'public'; DisjointSampling has"):
        build_protected("own-models", FACTS, Protection(guarantee=promise), numbers={"public": 3.0})


def test_cohorts_add_up_what_totals_say_at_once() -> None:
    """Without noise, one cohort or one total of the same users leave the same belief."""
    rng = np.random.default_rng(4)
    rows = np.column_stack([rng.uniform(-0.5, 0.5, size=(60, 2)), np.full(60, 0.5)])
    arms = rng.integers(4, size=60)
    rewards = (rows[:, 0] > 0) == (arms % 2 == 0)
    made = total(jnp.asarray(rows), arms, rewards.astype(float))
    count = jnp.int32(QUERY.readings[-1])
    release = Release(total=made, count=count, noise=jnp.float64(0))
    each: tuple[Separate, ...] = ("cohorts", "nobody")
    learned = [
        updated(POLICY.init({"moments": NoiseInfo(noisy=True, separate=separate)}), release)
        for separate in each
    ]
    np.testing.assert_allclose(learned[0].beliefs.estimate, learned[1].beliefs.estimate, rtol=1e-9)
    early = dataclasses.replace(release, count=jnp.int32(QUERY.readings[0] - 1))
    state = POLICY.init({"moments": NoiseInfo(noisy=True)})
    assert updated(state, early).count == 0


def test_posted_beliefs_are_for_features_with_their_constant() -> None:
    state = POLICY.init({"moments": NoiseInfo(noisy=False)})
    estimate = jnp.asarray(np.random.default_rng(5).normal(size=(4, 3)))
    beliefs = DisjointPosterior(estimate=estimate, sample=state.beliefs.sample)
    model = POLICY.publish(dataclasses.replace(state, beliefs=beliefs))
    z = jnp.array([0.2, -0.3])
    seen = QUERY.levered(z) @ estimate.T
    np.testing.assert_allclose(jnp.append(z, 0.5) @ model.estimate.T, seen, rtol=1e-5)


def test_a_masked_arm_is_never_played() -> None:
    model = POLICY.publish(POLICY.init({"moments": NoiseInfo(noisy=False)}))
    arms = Arms(features=jnp.ones((4, 3)) * 0.5, allowed=jnp.array([False, True, False, True]))
    clock = Clock(round=jnp.int32(0), since={})
    played = {
        int(POLICY.act(model, arms, clock, Stream.of(seed=seed, replicate=0))) for seed in range(30)
    }
    assert played == {1, 3}


def test_the_best_bandit_is_the_one_that_fits() -> None:
    assert resolve_name("best", FACTS) == "own-models"
    assert resolve_name("best", dataclasses.replace(FACTS, own=0)) == "sampling"


@pytest.mark.parametrize("name", ["linucb", "sampling", "elimination", "glm"])
def test_bandits_with_one_parameter_refuse_and_say_which_fit(name: str) -> None:
    with pytest.raises(InvalidValueError, match=r"models of their own.*choose one of .*own-models"):
        POLICIES[name].build(FACTS, "tuned")


@pytest.mark.parametrize(
    ("facts", "said"),
    [({"own": 1}, "own is 1 of 3 features"), ({"link": "logistic"}, "take linear rewards")],
)
def test_disjoint_sampling_rejects_unsupported_problems(facts: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidValueError, match=said):
        DisjointSampling.of(dataclasses.replace(FACTS, **facts))
    with pytest.raises(
        InvalidValueError, match="takes a Problem with arms with models of their own"
    ):
        POLICIES["own-models"].build(dataclasses.replace(FACTS, own=0), "tuned")


def played(name: str, trust: str, epsilon: float) -> float:
    """The mean regret of a few runs."""
    world = DisjointModels.of(dim=3, arms=3)
    private = trust != "none"
    promise = Guarantee(
        epsilon=epsilon if private else math.inf, delta=1e-6 if private else 0.0, trust=Trust(trust)
    )
    made = build_protected(name, world.problem(2000), Protection(guarantee=promise))
    run = simulate(
        policy=made.policy,
        privatizers=made.privatizers,
        environment=world,
        ledger=MemoryLedger(promise),
        horizon=2000,
        replicates=24,
        seed=77,
        ticks=1,
    )
    return float(run.regret[-1].mean())


@pytest.mark.nightly
def test_disjoint_models_beat_single_arm_which_beats_uniform() -> None:
    uniform, single = played("uniform", "none", math.inf), played("single-arm", "none", math.inf)
    assert single < 0.5 * uniform
    assert played("own-models", "none", math.inf) < 0.6 * single


@pytest.mark.nightly
def test_disjoint_models_learn_behind_noise_or_stay_near_uniform() -> None:
    assert played("own-models", "joint", 8.0) < played("single-arm", "none", math.inf)
    assert played("own-models", "local", 0.05) < 1.1 * played("uniform", "none", math.inf)


def test_policy_given_the_best_arm_has_no_guarantee() -> None:
    """What it knows may be everybody's data; a promise refuses it, and so does a silent world."""
    world = DisjointModels.of(dim=2, arms=3)
    policy = POLICIES["single-arm"].build(world.problem(20), "tuned")
    free = MemoryLedger(Guarantee(epsilon=math.inf, delta=0.0, trust=Trust.NONE))
    bound = MemoryLedger(Guarantee(epsilon=1.0, delta=1e-6, trust=Trust.JOINT))
    facts: Any = {"policy": policy, "privatizers": {}, "horizon": 20, "replicates": 2, "seed": 1}
    assert simulate(environment=world, ledger=free, **facts).spent.epsilon == math.inf
    with pytest.raises(BudgetExceededError):
        simulate(environment=world, ledger=bound, **facts)
    with pytest.raises(InvalidValueError, match="does not say"):
        simulate(environment=make_environment(dim=2, arms=3), ledger=free, **facts)
