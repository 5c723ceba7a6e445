"""Weighted reports: what devices send, what the learner makes of it, and what it brings."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kerchief.core.contracts import Arms, Outlook, Release
from kerchief.core.precision import double_precision
from kerchief.core.problems import Problem
from kerchief.environments import make_environment
from kerchief.policies import sampling
from kerchief.policies import weighted as module
from kerchief.policies.sampling import Beliefs, Sampling
from kerchief.policies.weighted import LinearSampling, WeightedBeliefs, water_level
from kerchief.privacy.guarantee import Guarantee, Trust
from kerchief.privacy.ledger import MemoryLedger
from kerchief.privatizers.protect import Protection
from kerchief.roles.arrange import arrange
from kerchief.roles.bandit import Bandit
from kerchief.roles.deployment import deploy
from kerchief.simulation import simulate

FACTS = Problem(dim=3, arms=4, norm=2.0, radius=1.0, low=0.0, high=1.0, horizon=5000, constant=1.0)
WEIGHTS = np.array([[1.5, 0.2, 0.0], [0.2, 4.0, 0.3], [0.0, 0.3, 9.0]])


def _model(weights: Any) -> WeightedBeliefs:
    nothing = jnp.zeros((3, 3))
    return WeightedBeliefs(
        estimate=jnp.zeros(3), sample=nothing, widen=nothing, weights=jnp.asarray(weights)
    )


def _example(policy: LinearSampling, weights: Any, x: Any, reward: float) -> Any:
    arms = Arms(features=jnp.asarray(x)[None], allowed=jnp.ones(1, bool))
    made = policy.record(_model(weights), arms, jnp.int32(0), jnp.float64(reward))
    return made["moments"]


_ANY = st.floats(width=64, allow_nan=True, allow_infinity=True)


@settings(deadline=None)
@given(
    entries=st.lists(_ANY, min_size=9, max_size=9),
    x=st.lists(_ANY, min_size=3, max_size=3),
    reward=_ANY,
)
@double_precision
def test_whatever_is_posted_a_report_is_in_the_domain_of_the_query(
    entries: list[float], x: list[float], reward: float
) -> None:
    policy = LinearSampling.of(FACTS)
    example = _example(policy, np.reshape(entries, (3, 3)), x, reward)
    statistic = np.asarray(policy.query.encode(example))
    assert np.isfinite(statistic).all()
    assert np.linalg.norm(statistic - policy.query.center) <= policy.query.radius * (1 + 1e-9)


@settings(deadline=None)
@given(
    size=st.floats(1.0, 1e12),
    x=st.lists(st.floats(-1.0, 1.0), min_size=3, max_size=3),
    reward=st.floats(0.0, 1.0),
)
@double_precision
def test_a_device_makes_an_example_that_needs_no_clipping(
    size: float, x: list[float], reward: float
) -> None:
    policy = LinearSampling.of(FACTS)
    example = _example(policy, size * WEIGHTS, x, reward)
    assert float(jnp.linalg.norm(example.features)) <= 2.0 * (1 + 2e-6)
    assert 0.0 <= float(example.reward) <= 1.0


@pytest.mark.parametrize("size", [0.1, 1.0, 30.0])
@double_precision
def test_the_model_stays_linear_however_an_example_is_scaled(size: float) -> None:
    policy, theta = LinearSampling.of(FACTS), np.array([0.1, -0.2, 0.15])
    x = np.array([0.6, -0.5, 0.4])
    offset = policy.query.offset
    assert offset == 0.5
    example = _example(policy, size * WEIGHTS, x, offset + x @ theta)
    mean = example.features @ np.linalg.solve(size * WEIGHTS, theta)
    assert float(example.reward) - offset == pytest.approx(float(mean), rel=1e-9)
    assert abs(float(mean)) > 1e-3


@double_precision
def test_without_noise_cohorts_of_other_weights_tell_the_least_squares() -> None:
    """Rewards without chance, of arms that each cohort weighs in its own way."""
    facts = dataclasses.replace(FACTS, low=-1.0, norm=1.0, constant=0.0)
    policy = dataclasses.replace(LinearSampling.of(facts), prior=1e-9)
    theta, draw = np.array([0.4, -0.3, 0.5]), np.random.default_rng(4)
    state = policy.init({"moments": Outlook(noisy=True, separate="users")})
    total = jnp.zeros(policy.query.size)
    for weights in (np.eye(3), WEIGHTS, 2 * WEIGHTS[::-1, ::-1]):
        state = dataclasses.replace(
            state, weights=jnp.asarray(weights), unweighing=jnp.asarray(np.linalg.inv(weights))
        )
        for x in draw.uniform(-0.5, 0.5, size=(40, 3)):
            total = total + policy.query.encode(_example(policy, weights, x, x @ theta))
        state = dataclasses.replace(state, total=total, count=state.count + 40)
        state = _closed_as_it_is(policy, state)
    assert policy.publish(state).estimate == pytest.approx(theta, abs=1e-5)


def _closed_as_it_is(policy: LinearSampling, state: Any) -> Any:
    """The open cohort is added up, and the next one keeps its weights."""
    matrix, _ = policy._everyones(state)
    told: Any = Sampling._closed(policy, state)
    return dataclasses.replace(told, seen=matrix)


@double_precision
def test_everyones_matrix_is_that_of_the_arms() -> None:
    policy, draw = (
        LinearSampling.of(dataclasses.replace(FACTS, norm=9.0)),
        np.random.default_rng(5),
    )
    x = draw.uniform(-0.5, 0.5, size=(30, 3))
    examples = [_example(policy, WEIGHTS, row, 0.5) for row in x]
    state = policy.init({"moments": Outlook(noisy=True, separate="users")})
    state = dataclasses.replace(
        state,
        total=jnp.stack([policy.query.encode(one) for one in examples]).sum(0),
        weights=jnp.asarray(WEIGHTS),
        unweighing=jnp.linalg.inv(WEIGHTS),
    )
    assert policy._everyones(state)[0] == pytest.approx(x.T @ x, rel=1e-9, abs=1e-9)


@double_precision
def test_noise_of_everyones_matrix_has_the_size_that_is_stated() -> None:
    policy, draw = LinearSampling.of(FACTS), np.random.default_rng(6)
    back = np.linalg.inv(WEIGHTS)
    state = policy.init({"moments": Outlook(noisy=True, separate="users")})
    state = dataclasses.replace(state, noise=jnp.float64(3.0), unweighing=jnp.asarray(back))
    drawn = [policy.query.split(jnp.asarray(draw.normal(0, 3.0, 9)))[0] for _ in range(4000)]
    found = np.mean([np.linalg.norm(back @ np.asarray(one) @ back) ** 2 for one in drawn])
    stated = float(policy._everyones(state)[1]) ** 2 * 6
    assert found == pytest.approx(stated, rel=0.08)
    assert stated < 9.0 * 6


@double_precision
def test_weights_raise_the_least_directions_until_examples_fill_the_ball() -> None:
    policy = LinearSampling.of(dataclasses.replace(FACTS, norm=1.0))
    gram = jnp.diag(jnp.array([400.0, 100.0, 25.0]))
    weights, unweighing, worth = policy._weights(gram, jnp.float64(1e-6), jnp.int32(1000))
    assert bool(worth)
    assert unweighing @ weights == pytest.approx(np.eye(3), abs=1e-6)
    assert jnp.diag(weights @ gram @ weights) == pytest.approx([400.0, 300.0, 300.0], rel=1e-5)
    # What noise may be is not raised as if it were small.
    blurred, _, _ = policy._weights(gram, jnp.float64(60.0), jnp.int32(1000))
    assert float(blurred.max()) < 0.8 * float(weights.max())
    assert float(jnp.linalg.eigvalsh(blurred).min()) >= 1 - 1e-6


@double_precision
def test_what_noise_hides_is_not_raised_above_it() -> None:
    """Seen: 16 and 485 of 1000 users, with noise of 50; both are raised to 500, the least by 50."""
    policy = LinearSampling.of(dataclasses.replace(FACTS, dim=2, norm=1.0))
    gram, noise = jnp.diag(jnp.array([500.0, 1.0])), jnp.float64(50)
    values, _, _ = policy._shrunk(gram, noise)
    assert float(values[0]) < 20
    weights, _, worth = policy._weights(gram, noise, jnp.int32(1000))
    assert bool(worth)
    assert float(weights[1, 1]) == pytest.approx((500 / 50) ** 0.5, rel=1e-5)


@double_precision
def test_where_nothing_is_weighted_rounding_shortens_no_example() -> None:
    policy = LinearSampling.of(FACTS)
    x = np.array([2.0 * (1 + 4e-7), 0.0, 0.0])
    example = _example(policy, np.eye(3), x, 0.9)
    assert example.features.tolist() == x.tolist()
    assert float(example.reward) == 0.9


@pytest.mark.parametrize(
    ("values", "noise", "users"),
    [([700.0, 100.0, 25.0], 1e-6, 1000), ([400.0, 100.0, 25.0], 0.0, 1000)],
    ids=["examples are long", "there is no noise"],
)
@double_precision
def test_nothing_is_weighted_where_little_is_to_gain(
    values: list[float], noise: float, users: int
) -> None:
    policy = LinearSampling.of(dataclasses.replace(FACTS, norm=1.0))
    count = jnp.int32(users)
    weights, _, worth = policy._weights(jnp.diag(jnp.array(values)), jnp.float64(noise), count)
    assert not bool(worth)
    assert weights.tolist() == np.eye(3).tolist()


@settings(deadline=None)
@given(values=st.lists(st.floats(0.0, 100.0), min_size=1, max_size=8), room=st.floats(0.0, 100.0))
@double_precision
def test_raised_values_have_the_sum_that_was_asked_for(values: list[float], room: float) -> None:
    ascending = np.sort(values)
    total = ascending.sum() + room
    level = float(water_level(jnp.asarray(ascending), total))
    assert np.maximum(ascending, level).sum() == pytest.approx(total, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(
    ("scale", "times", "before", "early"),
    [(1.0, 2.0, 0.0, True), (5.0, 2.0, 0.0, False), (1.0, 1.2, 0.0, False), (1.0, 2.0, 0.8, False)],
    ids=["worth it", "examples are long", "too noisy", "too few users"],
)
@double_precision
def test_a_cohort_is_closed_early_only_for_other_weights(
    scale: float, times: float, before: float, early: bool
) -> None:
    """Its matrix could stand out so many times from its noise; five times would always do."""
    policy = LinearSampling.of(dataclasses.replace(FACTS, norm=1.0, constant=0.0))
    count = next(one for one in policy.query.readings if one > 1000)
    closed = int(before * count)
    noise = (count - closed) / 3 / 3**0.5 / times
    gram = count * np.diag([0.16, 0.1, 0.01]) * scale
    release = Release(
        total=jnp.concatenate([jnp.asarray(gram[np.triu_indices(3)]), jnp.zeros(3)]),
        count=jnp.int32(count),
        noise=jnp.float64(noise),
    )
    state = policy.init({"moments": Outlook(noisy=True, separate="users")})
    state = dataclasses.replace(state, closed_count=jnp.int32(closed))
    found = jax.jit(lambda state: policy.update(state, "moments", release))(state)
    assert (int(found.closed_count) == count) == early
    assert (float(found.weights.max()) > 1.25) == early
    assert policy.publish(found).weights.tolist() == found.weights.tolist()


@double_precision
def test_doubt_about_the_matrix_is_that_of_a_shorter_parameter() -> None:
    policy = LinearSampling.of(FACTS)
    state = policy.init({"moments": Outlook(noisy=True, separate="users")})
    state = dataclasses.replace(state, noise=jnp.float64(2.0), unweighing=jnp.eye(3) / 4)
    values, mean = jnp.full(3, 50.0), jnp.float64(50.0)
    precision, _ = policy._gathered(state, values, jnp.eye(3), mean)
    blurred = policy.caution * (2.0 * float(policy.radius) / 4) ** 2
    told = 50.0**2 / (float(policy.spread) ** 2 * 50.0 + 4.0 + blurred)
    assert jnp.diag(precision) == pytest.approx(told / 16, rel=1e-6)


@double_precision
def test_cohorts_are_read_in_the_coordinates_of_their_own_weights() -> None:
    """Devices weigh as the model says, the learner unweighs: the estimate finds the truth."""
    facts = dataclasses.replace(FACTS, low=-1.0, norm=1.0, constant=0.0)
    policy, theta = LinearSampling.of(facts), np.array([0.3, -0.4, 0.6])
    draw, scales = np.random.default_rng(3), np.array([0.7, 0.2, 0.1])
    state = policy.init({"moments": Outlook(noisy=True, separate="users")})
    update = jax.jit(lambda state, release: policy.update(state, "moments", release))
    publish = jax.jit(policy.publish)
    total, noise, last, model = np.zeros(policy.query.size), 0.05, 0, publish(state)

    @jax.jit
    def reported(model: Any, rows: Any, rewards: Any) -> Any:
        def one(x: Any, reward: Any) -> Any:
            arms = Arms(features=x[None], allowed=jnp.ones(1, bool))
            return policy.query.encode(policy.record(model, arms, jnp.int32(0), reward)["moments"])

        return jax.vmap(one)(rows, rewards).sum(0)

    for count in policy.query.readings:
        rows = scales * draw.uniform(-1, 1, size=(count - last, 3))
        blur = draw.normal(0, noise * (count - last) ** 0.5, total.size)
        total, last = total + reported(model, rows, rows @ theta) + blur, count
        release = Release(
            total=jnp.asarray(total), count=jnp.int32(count), noise=jnp.float64(noise * count**0.5)
        )
        state = update(state, release)
        model = publish(state)
    assert float(model.weights.max()) > 3
    assert model.estimate == pytest.approx(theta, abs=0.12)


READINGS = ((3, 4, 5, 6, 7, 8), 73)
PROMISE = Guarantee(epsilon=4.0, delta=1e-5, trust=Trust.LOCAL)


@pytest.mark.parametrize(
    ("change", "trust", "mode", "rule"),
    [
        ({}, "local", "tuned", module.RULE),
        ({}, "joint", "tuned", 0),
        ({}, "local", "theory", 0),
        ({"low": 1.0, "high": 2.0, "constant": 0.0}, "local", "tuned", 0),
        ({"link": "logistic", "constant": 0.0}, "local", "tuned", 0),
    ],
    ids=["local", "joint", "theory", "rewards far from 0", "logistic"],
)
def test_a_task_says_whether_its_devices_weigh(
    change: dict[str, Any], trust: str, mode: Any, rule: int
) -> None:
    promise = dataclasses.replace(PROMISE, trust=Trust(trust))
    facts = dataclasses.replace(FACTS, **change)
    made = deploy(policy="best", problem=facts, guarantee=promise, mode=mode)
    program: Any = made.task.program
    assert program.reweighed == rule
    policy: Any = made.policy
    outlook = {name: one.outlook for name, one in made.privatizers.items()}
    model = policy.publish(policy.init(outlook))
    assert hasattr(model, "weights") == bool(rule)


def test_another_way_to_choose_weights_is_another_rule() -> None:
    """Weights of a deployed bandit are computed again when it is opened: count the rule up."""
    made = module.RULE, module._EARLY, module._GROWTH, module._ROOM, module._HEAVIEST
    assert made == (1, 1.5, 0.5, 0.6, 10.0)
    # When cohorts are closed, and weights with them, is the unweighted bandit's.
    closing = sampling._RIPE["users"], sampling._LEAST_GROWTH, sampling._FIRST_USERS
    assert closing == (5.0, 0.1, 4)
    readings = LinearSampling.of(FACTS, epsilon=4.0).query.readings
    assert (readings[:6], len(readings)) == READINGS


@pytest.mark.nightly
def test_light_devices_and_a_learner_find_what_small_scales_are_worth() -> None:
    facts = dataclasses.replace(FACTS, low=-1.0, norm=1.0, constant=0.0, horizon=6000)
    promise = dataclasses.replace(PROMISE, epsilon=16.0)
    theta, scales = np.array([0.2, -0.4, 0.85]), np.array([0.8, 0.25, 0.1])
    errors = []
    for numbers in ({}, {"heaviest": 1.0}):
        draw = np.random.default_rng(2)
        bandit = Bandit(policy="best", problem=facts, guarantee=promise, numbers=numbers)
        for _ in range(6000):
            rows = scales * draw.uniform(-0.55, 0.55, size=(4, 3))
            choice = bandit.decide(rows)
            bandit.reward(choice.id, float(rows[int(choice.arm)] @ theta))
        heaviest = float(np.asarray(bandit.model["weights"]).max())
        assert (heaviest > 2) == (not numbers)
        errors.append(np.linalg.norm(np.asarray(bandit.model["estimate"]) - theta))
    assert errors[0] < 0.7 * errors[1]


def _regret(
    contexts: str, replicates: int, **numbers: float
) -> np.ndarray[Any, np.dtype[np.float64]]:
    world = make_environment(contexts=contexts, dim=3, arms=10)
    made = arrange("best", world.problem(6000), Protection(guarantee=PROMISE), numbers=numbers)
    run = simulate(
        policy=made.policy,
        privatizers=made.privatizers,
        environment=world,
        ledger=MemoryLedger(PROMISE),
        horizon=6000,
        replicates=replicates,
        seed=14_000,
        ticks=8,
    )
    return np.asarray(run.regret)


def test_on_features_of_other_scales_weights_save_regret() -> None:
    ours, others = _regret("skewed", 48), _regret("skewed", 48, heaviest=1.0)
    assert ours[-1].mean() < 0.85 * others[-1].mean()


@double_precision
def test_without_weights_it_believes_what_unweighted_sampling_believes() -> None:
    """Of the same releases: cohorts are closed at the same times, and tell the same."""
    facts = dataclasses.replace(FACTS, norm=1.0, constant=0.0)
    plain = LinearSampling.of(facts)
    ours = dataclasses.replace(plain, heaviest=1.0)
    outlook, draw = {"moments": Outlook(noisy=True, separate="users")}, np.random.default_rng(8)
    states = [Sampling.init(plain, outlook), ours.init(outlook)]
    updates = [jax.jit(lambda s, r, p=p: p.update(s, "moments", r)) for p in (plain, ours)]
    total, noise, last = np.zeros(plain.query.size), 0.3, 0
    for count in plain.query.readings:
        new, last = count - last, count
        mean = np.concatenate([np.array([0.2, 0, 0, 0.05, 0, 0.01]), [0.1, 0.02, 0.005]])
        total = total + new * mean + draw.normal(0, noise * new**0.5, total.size)
        release = Release(
            total=jnp.asarray(total), count=jnp.int32(count), noise=jnp.float64(noise * count**0.5)
        )
        states = [update(state, release) for update, state in zip(updates, states, strict=True)]
        closed = [int(state.closed_count) for state in states]
        assert closed[0] == closed[1]
    assert closed[0] > 0
    models = [policy.publish(state) for policy, state in zip((plain, ours), states, strict=True)]
    assert models[1].weights.tolist() == np.eye(3).tolist()
    for name in ("estimate", "sample", "widen"):
        one, other = (np.asarray(getattr(model, name)) for model in models)
        assert one == pytest.approx(other, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize(
    ("separate", "mode"), [("nobody", "tuned"), ("cohorts", "tuned"), ("users", "theory")]
)
@double_precision
def test_only_tuned_reports_with_noise_of_their_own_are_weighted(separate: Any, mode: Any) -> None:
    policy = LinearSampling.of(FACTS, mode=mode)
    outlook = Outlook(noisy=True, separate=separate)
    assert not policy.weighs(outlook)
    model = policy.publish(policy.init({"moments": outlook}))
    assert type(model) is Beliefs
    arms = Arms(features=jnp.eye(3), allowed=jnp.ones(3, bool))
    example = policy.record(model, arms, jnp.int32(1), jnp.float64(0.25))["moments"]
    assert (example.features.tolist(), float(example.reward)) == ([0.0, 1.0, 0.0], 0.25)
