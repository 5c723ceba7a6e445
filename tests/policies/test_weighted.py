"""Weighted surprises: what devices send, what the learner makes of it, and what it brings."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kerchief.core.contracts import Arms, NoiseInfo, Release
from kerchief.core.errors import InvalidValueError
from kerchief.core.links import get_link
from kerchief.core.precision import double_precision
from kerchief.core.problems import Problem
from kerchief.deployment.bandit import Bandit
from kerchief.deployment.deployment import deploy
from kerchief.deployment.protected_policy import build_protected
from kerchief.environments import make_environment
from kerchief.policies import sampling, thompson_sampling
from kerchief.policies import weighted as module
from kerchief.policies.posterior import PosteriorModel
from kerchief.policies.sampling import Sampling
from kerchief.policies.thompson_sampling import GLMSampling, LinearSampling, build_sampling
from kerchief.policies.weighted import ResidualModel, SurprisedSampling, shrink_to_mixture
from kerchief.privacy.guarantee import Guarantee, Trust
from kerchief.privacy.ledger import MemoryLedger
from kerchief.privatizers.protect import Protection
from kerchief.simulation import simulate
from kerchief_device import record

FACTS = Problem(dim=3, arms=4, norm=2.0, radius=1.0, low=0.0, high=1.0, horizon=5000, constant=1.0)
WEIGHTS = np.array([[1.5, 0.2, 0.0], [0.2, 4.0, 0.3], [0.0, 0.3, 9.0]])


OUTLOOK = {"moments": NoiseInfo(noisy=True, separate="users")}


LINKS = ("linear", "logistic", "probit", "poisson")


def _policy(**changes: Any) -> LinearSampling:
    return LinearSampling.of(dataclasses.replace(FACTS, **changes), trust="local")


def _of(link: str) -> SurprisedSampling:
    """For rewards of any link, in three dimensions."""
    facts = dataclasses.replace(FACTS, high=8.0 if link == "poisson" else 1.0)
    return build_sampling(dataclasses.replace(facts, link=link, constant=0.0), trust="local")


def _model(weights: Any, reference: Any) -> ResidualModel:
    nothing = jnp.zeros((3, 3))
    return ResidualModel(
        estimate=jnp.zeros(3),
        sample=nothing,
        widen=nothing,
        weights=jnp.asarray(weights),
        reference=jnp.asarray(reference),
    )


def _example(
    policy: SurprisedSampling, weights: Any, x: Any, reward: float, reference: Any = (0.0, 0.0, 0.0)
) -> Any:
    arms = Arms(features=jnp.asarray(x)[None], allowed=jnp.ones(1, bool))
    made = policy.record(_model(weights, reference), arms, jnp.int32(0), jnp.float64(reward))
    return made["moments"]


_ANY = st.floats(width=64, allow_nan=True, allow_infinity=True)


@settings(deadline=None)
@given(
    link=st.sampled_from(LINKS),
    entries=st.lists(_ANY, min_size=9, max_size=9),
    reference=st.lists(_ANY, min_size=3, max_size=3),
    x=st.lists(_ANY, min_size=3, max_size=3),
    reward=_ANY,
)
@double_precision
def test_report_stays_in_domain_of_its_query_for_any_model(
    link: str, entries: list[float], reference: list[float], x: list[float], reward: float
) -> None:
    policy = _of(link)
    example = _example(policy, np.reshape(entries, (3, 3)), x, reward, reference)
    statistic = np.asarray(policy.query.encode(example))
    assert np.isfinite(statistic).all()
    assert np.linalg.norm(statistic - policy.query.center) <= policy.query.radius * (1 + 1e-9)


@settings(deadline=None)
@given(
    link=st.sampled_from(LINKS),
    size=st.floats(1e-3, 1e12),
    reference=st.lists(st.floats(-9.0, 9.0), min_size=3, max_size=3),
    x=st.lists(st.floats(-1.0, 1.0), min_size=3, max_size=3),
    reward=st.floats(0.0, 1.0),
)
@double_precision
def test_device_example_has_reward_that_needs_no_clipping(
    link: str, size: float, reference: list[float], x: list[float], reward: float
) -> None:
    policy = _of(link)
    example = _example(policy, size * WEIGHTS, x, reward, reference)
    assert float(jnp.linalg.norm(example.features)) <= 2.0 * (1 + 1e-9)
    assert policy.query.low - 1e-9 <= float(example.reward) <= policy.query.high + 1e-9


@double_precision
def test_rewards_on_one_side_leave_room_for_surprises_on_both() -> None:
    """Rewards from 0 to 1, none of them an offset: an expected 0.5 that did not come is -0.5."""
    policy = _policy(constant=0.0)
    assert (policy.query.low, policy.query.offset, policy.query.high) == (-1.0, 0.0, 1.0)
    example = _example(policy, np.eye(3), [1.0, 0.0, 0.0], 0.0, [0.5, 0.0, 0.0])
    assert float(example.reward) == pytest.approx(-0.5 / 1.5)
    # A vector of length 2, and a matrix of 0.49 times that, but for its trace.
    assert policy.query.radius**2 == pytest.approx(4 * (1 + 0.49**2 * (1 - 1 / 3 + 1 / 12)))


@pytest.mark.parametrize("size", [0.1, 1.0, 30.0])
@pytest.mark.parametrize("reference", [(0.0, 0.0, 0.0), (0.3, 0.1, -0.5)])
@double_precision
def test_the_model_stays_linear_however_an_example_is_scaled(size: float, reference: Any) -> None:
    policy, theta = _policy(), np.array([0.1, -0.2, 0.15])
    x, offset = np.array([0.6, -0.5, 0.4]), policy.query.offset
    assert offset == 0.5
    example = _example(policy, size * WEIGHTS, x, offset + x @ theta, reference)
    weight = min(1.0, float(example.weight))
    wrong = np.linalg.solve(size * WEIGHTS, theta - np.array(reference))
    mean = weight * float(example.features @ wrong)
    assert float(jnp.linalg.norm(example.features)) == pytest.approx(2.0)
    assert float(example.reward) - offset == pytest.approx(mean, rel=1e-9)
    assert abs(mean) > 1e-3


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("size", [0.1, 1.0, 30.0])
@double_precision
def test_a_surprise_follows_the_slope_of_the_link(link: str, size: float) -> None:
    """Of a parameter near the reference; where the reference is right, nothing is a surprise."""
    policy, reference = _of(link), np.array([0.3, 0.1, -0.5])
    x, mean = np.array([0.6, -0.5, 0.4]), get_link(link).mean
    for apart in (0.0, 1e-5):
        theta = reference + apart * np.array([1.0, 2.0, -1.0])
        example = _example(
            policy, size * WEIGHTS, x, float(mean(jnp.float64(x @ theta))), reference
        )
        weight = min(1.0, float(example.weight))
        wrong = np.linalg.solve(size * WEIGHTS, theta - reference)
        steepest = getattr(policy, "steepest", 1.0)
        expected = steepest * weight * float(example.features @ wrong)
        assert float(example.reward) == pytest.approx(expected, rel=1e-4, abs=1e-12)
        assert (abs(expected) > 1e-9) == (apart > 0)


@double_precision
@pytest.mark.parametrize(
    ("link", "radius", "weight"),
    [
        ("logistic", 1.0, (0.5, 0.2)),
        ("probit", 2.0, (0.358, 0.143)),
        ("logistic", 5.0, (0.156, 0.1)),
        ("logistic", 20.0, (0.15, 0.1)),
    ],
)
def test_usual_weight_follows_slopes_at_possible_scores(
    link: str, radius: float, weight: tuple[float, float]
) -> None:
    """A first cohort of small scores weighs as linear rewards do; one of large scores far less."""
    facts = dataclasses.replace(FACTS, link=link, radius=radius, low=0.0, constant=0.0, norm=1.0)
    usual, spread = GLMSampling.of(facts, trust="local", epsilon=4.0)._usual_weight
    assert (float(usual), float(spread)) == pytest.approx(weight, rel=0.01)


@pytest.mark.parametrize("trust", ["locally", "", None, ()])
def test_unknown_trust_model_is_rejected(trust: Any) -> None:
    """Else a bandit for another trust would be built without a word."""
    facts = dataclasses.replace(FACTS, link="logistic", low=0.0, constant=0.0)
    for problem in (FACTS, facts):
        with pytest.raises(InvalidValueError, match="choose one of none, local"):
            build_sampling(problem, trust=trust)


@double_precision
def test_zero_features_give_zero_statistic() -> None:
    policy = _policy()
    statistic = policy.query.encode(_example(policy, WEIGHTS, [0.0, 0.0, 0.0], 1.0))
    assert statistic.tolist() == [0.0] * 9


@pytest.mark.parametrize("alike", [True, False], ids=["weights alike", "references right"])
@double_precision
def test_without_noise_cohorts_tell_the_least_squares(alike: bool) -> None:
    """Rewards without chance, of arms that each cohort weighs and expects in its own way.

    They need users of one weight, or a reference with which nothing is a surprise.
    """
    policy = dataclasses.replace(_policy(low=-1.0, norm=1.0, constant=0.0), prior=1e-9)
    theta, draw = np.array([0.4, -0.3, 0.5]), np.random.default_rng(4)
    state, total = policy.init(OUTLOOK), jnp.zeros(policy.query.size)
    for weights, reference in (
        (np.eye(3), np.zeros(3)),
        (WEIGHTS, theta / 2),
        (2 * WEIGHTS[::-1, ::-1], np.array([0.7, 0.7, -0.1])),
    ):
        state = dataclasses.replace(
            state,
            weights=jnp.asarray(weights),
            unweighing=jnp.asarray(np.linalg.inv(weights)),
        )
        expected = reference if alike else theta
        state = dataclasses.replace(state, reference=jnp.asarray(expected))
        for x in draw.uniform(-0.5, 0.5, size=(40, 3)):
            if alike:  # at the length at which it weighs 0.3
                x = x * 0.3 / (np.linalg.norm(weights @ x) - 0.3 * abs(x @ expected))
            example = _example(policy, weights, x, x @ theta, expected)
            total = total + policy.query.encode(example)
        state = dataclasses.replace(state, total=total, count=state.count + 40)
        matrix = policy._measure_everyone(state)[0]
        told: Any = Sampling._close_cohort(policy, state)
        state = dataclasses.replace(told, seen=matrix)
    assert policy.publish(state).estimate == pytest.approx(theta, abs=1e-5)


@double_precision
def test_gram_of_all_users_is_directions_times_their_mean_weight() -> None:
    policy, draw = _policy(norm=9.0), np.random.default_rng(5)
    x = draw.uniform(-0.5, 0.5, size=(30, 3))
    examples = [_example(policy, WEIGHTS, row, 0.5) for row in x]
    state = dataclasses.replace(
        policy.init(OUTLOOK),
        total=jnp.stack([policy.query.encode(one) for one in examples]).sum(0),
        weights=jnp.asarray(WEIGHTS),
        unweighing=jnp.linalg.inv(WEIGHTS),
        count=jnp.int32(30),
    )
    share = np.mean([min(1.0, float(one.weight)) for one in examples])
    assert 0.05 < share < 0.9
    units = x / np.linalg.norm(x @ WEIGHTS, axis=1)[:, None]
    wanted = share * 81 * units.T @ units
    assert policy._measure_everyone(state)[0] == pytest.approx(wanted, rel=1e-9, abs=1e-9)


@double_precision
def test_noise_of_everyones_matrix_has_the_size_that_is_stated() -> None:
    policy, draw = _policy(), np.random.default_rng(6)
    back = np.linalg.inv(WEIGHTS)
    state = dataclasses.replace(
        policy.init(OUTLOOK), noise=jnp.float64(3.0), unweighing=jnp.asarray(back)
    )
    share = float(policy._mean_weight(state))
    noises = [
        share * policy.query.split(jnp.asarray(draw.normal(0, 3.0, 9)))[0] for _ in range(4000)
    ]
    found = np.mean([np.linalg.norm(back @ np.asarray(one) @ back) ** 2 for one in noises])
    stated = float(policy._measure_everyone(state)[1]) ** 2 * 6
    assert found == pytest.approx(stated, rel=0.08)
    assert stated < (share * 3.0 / policy.query.balance) ** 2 * 6


EVEN, NOTHING = jnp.eye(3), jnp.zeros((3, 3))


@pytest.mark.parametrize("norm", [1.0, 1.5])
@double_precision
def test_weights_raise_all_directions_to_one_level(norm: float) -> None:
    policy = _policy(norm=norm)
    gram = jnp.diag(jnp.array([400.0, 100.0, 25.0]))
    weights, unweighing = policy._weights(
        gram, jnp.float64(1e-6), EVEN, NOTHING, count=jnp.int32(1000)
    )
    assert unweighing @ weights == pytest.approx(np.eye(3), abs=1e-6)
    level = norm**2 * 1000 * module._FILL / 3
    assert jnp.diag(weights @ gram @ weights) == pytest.approx([level] * 3, rel=1e-5)
    # What noise may be is not raised as if it were small.
    blurred, _ = policy._weights(gram, jnp.float64(60.0), EVEN, NOTHING, count=jnp.int32(1000))
    assert float(blurred[2, 2] / blurred[0, 0]) < 0.8 * float(weights[2, 2] / weights[0, 0])


@double_precision
def test_without_noise_nothing_is_weighted() -> None:
    gram = jnp.diag(jnp.array([400.0, 100.0, 25.0]))
    weights, _ = _policy()._weights(gram, jnp.float64(0), EVEN, NOTHING, count=jnp.int32(1000))
    assert weights == pytest.approx(np.eye(3), abs=1e-6)


@pytest.mark.parametrize("heaviest", [0.0, 1.0, 10.0, 1e6])
@double_precision
def test_weights_have_bounds(heaviest: float) -> None:
    policy = dataclasses.replace(_policy(norm=1.0), heaviest=heaviest)
    for scale in (1e-6, 1.0, 1e9):
        gram = scale * jnp.diag(jnp.array([400.0, 100.0, 1e-3]))
        made = policy._weights(gram, jnp.float64(1e-9), EVEN, NOTHING, count=jnp.int32(1000))
        values = np.linalg.eigvalsh(made[0])
        assert values.min() >= 0.1 - 1e-6
        assert values.max() <= 10.0 + 1e-5
        assert (values.max() > 1.01 * values.min()) == (heaviest > 1 and scale == 1.0)


def _along(direction: Any, users: float) -> Any:
    unit = np.asarray(direction) / np.linalg.norm(direction)
    return jnp.asarray(users * np.outer(unit, unit))


@double_precision
def test_noisy_gram_shrinks_to_that_of_users_following_estimates() -> None:
    """Two numbers are read off it: how much arms vary, and how much more along what is followed."""
    followed, draw = _along([1, 2, 2], 100.0), np.random.default_rng(0)
    play, before, after = 50 * np.eye(3) + 4 * np.asarray(followed), 0.0, 0.0
    for _ in range(50):
        half = draw.normal(0, 8, (3, 3))
        shaken = play + (half + half.T) / 2
        found = np.asarray(
            shrink_to_mixture(jnp.asarray(shaken), jnp.float64(40.0), EVEN, followed)[0]
        )
        before += float(((shaken - play) ** 2).sum())
        after += float(((found - play) ** 2).sum())
    assert after < 0.5 * before
    # It has the axes of what was followed, however small the noise was.
    values = np.linalg.eigvalsh(found)
    assert values[0] == pytest.approx(values[1])
    assert values[2] > 3 * values[1]


@pytest.mark.parametrize(
    "followed",
    [NOTHING, 7 * jnp.eye(3), _along([0, 0, 1], 50.0), _along([1, 0, 0], 50.0)],
    ids=["nothing", "everything alike", "what is seen least", "too much of it"],
)
@double_precision
def test_followed_directions_count_only_where_they_explain(followed: Any) -> None:
    play = jnp.diag(jnp.array([90.0, 1.0, 1.0]))
    found, mean = shrink_to_mixture(play, jnp.float64(1e3), EVEN, followed)
    # At once the floor of the mean, which noise sets.
    assert float(mean) == pytest.approx(250 / 3**0.5)
    assert found == pytest.approx(float(mean) * np.eye(3))


@double_precision
def test_gram_beyond_noise_is_kept_unshrunk() -> None:
    play = jnp.asarray(np.diag([9.0, 4.0, 1.0]) + 2 * np.eye(3)[::-1])
    found, mean = shrink_to_mixture(play, jnp.float64(1e-9), EVEN, _along([0, 1, 0], 3.0))
    assert found == pytest.approx(np.asarray(play), abs=1e-6)
    assert float(mean) == pytest.approx(16 / 3)


def _released(policy: LinearSampling, count: int, noise: float, gram: Any, moment: Any) -> Release:
    flat = policy.query.balance * np.asarray(gram)[np.triu_indices(3)]
    return Release(
        total=jnp.concatenate([jnp.asarray(flat), jnp.asarray(moment)]),
        count=jnp.int32(count),
        noise=jnp.float64(noise),
    )


@double_precision
def test_what_users_follow_is_added_up_between_looks() -> None:
    policy = _policy(norm=1.0, constant=0.0)
    update = jax.jit(lambda state, release: policy.update(state, "moments", release))
    early, first, second = (
        next(one for one in policy.query.readings if one > least) for least in (9, 100, 200)
    )
    state, gram = policy.init(OUTLOOK), np.diag([0.3, 0.3, 0.3])
    state = update(state, _released(policy, early, 1e3, early * gram, [0.0, 9.0, 0.0]))
    assert int(state.looked) == 0
    state = update(state, _released(policy, first, 1e3, first * gram, [60.0, 0.0, 0.0]))
    assert state.direction == pytest.approx([1.0, 0.0, 0.0])
    assert state.followed.tolist() == NOTHING.tolist()
    # Between two looks a model speaks of those who came since, too.
    later = dataclasses.replace(state, count=jnp.int32(first + 7))
    assert policy._measure_everyone(later)[3] == pytest.approx(np.diag([7.0, 0, 0]))
    state = update(state, _released(policy, second, 1e3, second * gram, [0.0, 0.0, 90.0]))
    assert (int(state.closed_count), int(state.looked)) == (0, second)
    assert state.direction == pytest.approx([0.0, 0.0, 1.0])
    assert state.followed == pytest.approx(np.diag([second - first, 0.0, 0.0]))


@pytest.mark.parametrize(
    ("times", "before", "closed"),
    [(6.0, 0.0, True), (5.0, 0.0, False), (9.0, 0.5, True), (9.0, 0.8, False)],
    ids=["stands out", "too noisy", "as many again", "too few users"],
)
@pytest.mark.parametrize(("norm", "most"), [(1.0, 1.0), (4.0, 10.0)])
@double_precision
def test_a_cohort_is_closed_when_its_vector_stands_out(
    times: float, before: float, closed: bool, norm: float, most: float
) -> None:
    policy = _policy(norm=norm, low=-most, high=most, radius=most / norm, constant=0.0)
    count = next(one for one in policy.query.readings if one > 1000)
    then = int(before * count)
    noise = norm * most * (count - then) / 3 / 3**0.5 / times
    state = dataclasses.replace(
        policy.init(OUTLOOK), closed_count=jnp.int32(then), direction=jnp.array([0.0, 1.0, 0.0])
    )
    gram = norm**2 * count * np.diag([0.6, 0.1, 0.01])
    moment = norm * most * np.array([300.0, 9.0, 1.0])
    release = _released(policy, count, noise, gram, moment)
    found = jax.jit(lambda state: policy.update(state, "moments", release))(state)
    assert (int(found.closed_count) == count) == closed
    assert (float(found.weights.max()) > 1.25) == closed
    assert (float(jnp.linalg.norm(found.reference)) > 0.1) == closed
    assert found.followed == pytest.approx(np.diag([0.0, count, 0.0]))
    assert (found.closed_followed.tolist() == found.followed.tolist()) == closed
    model = policy.publish(found)
    assert model.weights.tolist() == found.weights.tolist()
    assert model.reference.tolist() == found.reference.tolist()


@double_precision
def test_doubt_about_gram_matrix_follows_error_of_the_reference() -> None:
    policy = _policy()
    state = policy.init(OUTLOOK)
    state = dataclasses.replace(
        state, noise=jnp.float64(2.0), unweighing=jnp.eye(3) / 4, reach=jnp.float64(0.1)
    )
    # One direction of three is starved, and doubted no less.
    values, mean = jnp.array([50.0, 50.0, 5.0]), jnp.float64(50.0)
    precision, _ = policy._combine_cohorts(state, values, jnp.eye(3), mean)
    share = float(policy._mean_weight(state))
    blurred = policy.caution * (module._REACH * share * 2.0 / policy.query.balance * 0.1) ** 2
    # Signs are as much chance where weights are small.
    told = values**2 / (float(policy.spread) ** 2 / share * values + 4.0 + blurred)
    assert jnp.diag(precision) == pytest.approx(np.asarray(told) / 16, rel=1e-6)


@double_precision
def test_cohort_shrinks_to_followed_directions_in_its_weights() -> None:
    """Only directions that users of the cohort itself followed count."""
    policy = _policy()
    before, own = _along([1, 0, 1], 30.0), _along([0, 1, 1], 50.0)
    state = dataclasses.replace(
        policy.init(OUTLOOK),
        weights=jnp.asarray(WEIGHTS),
        followed=before + own,
        closed_followed=before,
    )
    _, _, even, followed = policy._measure_open_cohort(state)
    assert even == pytest.approx(WEIGHTS @ WEIGHTS)
    assert followed == pytest.approx(WEIGHTS @ np.asarray(own) @ WEIGHTS)


@double_precision
def test_noise_of_closed_cohorts_stays_in_everyones_matrix() -> None:
    policy = _policy()
    state = dataclasses.replace(
        policy.init(OUTLOOK), count=jnp.int32(900), noise=jnp.float64(7), blur=jnp.float64(90)
    )
    wanted = 90 + (float(policy._mean_weight(state)) * 7 / policy.query.balance) ** 2
    assert float(policy._measure_everyone(state)[1]) ** 2 == pytest.approx(wanted)
    reopened = policy._reopen_cohort(state, (state.precision, state.pull), state.pull, jnp.eye(3))
    assert float(reopened.blur) == pytest.approx(wanted)


@double_precision
def test_residual_reports_sample_less_and_widen_bounds() -> None:
    policy, values, mean = _policy(), jnp.array([1.0, 90.0, 90.0]), jnp.float64(60)
    plain = LinearSampling.of(FACTS)
    states = [
        dataclasses.replace(one, count=jnp.int32(900), noise=jnp.float64(1e9))
        for one in (policy.init(OUTLOOK), plain.init({"moments": NoiseInfo(noisy=False)}))
    ]
    ours, others = (
        policy._scale_directions(states[0], values, mean),
        plain._scale_directions(states[1], values, mean),
    )
    assert float(ours[0][0]) == pytest.approx(module._SAMPLED * float(others[0][0]))
    assert ours[1][1:] == pytest.approx(module._WIDENED * np.asarray(others[1][1:]))


@double_precision
def test_high_dim_first_cohort_matches_the_general_computation() -> None:
    """One decomposition is all that is needed there; it must tell what the general way tells."""
    facts = dataclasses.replace(FACTS, dim=40, norm=1.0, low=-1.0, constant=0.0)
    policy, draw = LinearSampling.of(facts, trust="local"), np.random.default_rng(2)
    half = draw.normal(size=(40, 40)) / 40**0.5
    gram = policy.query.balance * 900 * (half @ half.T + np.eye(40) / 4) / 40
    rows, columns = np.triu_indices(40)
    flat = np.where(rows == columns, 1.0, 2**0.5) * gram[rows, columns]
    state = dataclasses.replace(
        policy.init(OUTLOOK),
        total=jnp.concatenate([jnp.asarray(flat), jnp.asarray(draw.normal(0, 60, 40))]),
        count=jnp.int32(900),
        noise=jnp.float64(2.0),
    )
    values = policy._shrink_spectrum(*policy._measure_everyone(state))
    at_once = policy._build_beliefs_at_once(state, *values)
    apart = policy._combine_spectra(
        state, policy._shrink_spectrum(*policy._measure_open_cohort(state)), values
    )
    assert float(jnp.linalg.norm(at_once.estimate)) > 0.1
    assert at_once.estimate == pytest.approx(np.asarray(apart.estimate), rel=1e-6, abs=1e-9)
    for name in ("sample", "widen"):
        one, other = (np.asarray(getattr(found, name)) for found in (at_once, apart))
        assert one @ one.T == pytest.approx(other @ other.T, rel=1e-6, abs=1e-9)


def test_extreme_units_are_accepted_with_capped_balance() -> None:
    facts = dataclasses.replace(FACTS, norm=1e-3, radius=1e9, high=1e7, constant=0.0)
    assert LinearSampling.of(facts, trust="local").query.balance == 1e9


def test_devices_know_the_rule() -> None:
    assert record.RULE == module.RULE


@double_precision
def test_reach_is_posterior_uncertainty_capped_by_the_radius() -> None:
    policy = _policy(norm=1.0, low=-1.0, constant=0.0)
    state = dataclasses.replace(policy.init(OUTLOOK), count=jnp.int32(5000), noise=jnp.float64(9))
    assert float(state.reach) == 1.0
    release = _released(policy, 5000, 9.0, 5000 * np.diag([0.5, 0.2, 0.2]), [900.0, 90.0, 0.0])
    state = dataclasses.replace(state, total=release.total)
    closed = policy._update_direction(state)
    assert int(closed.closed_count) == 5000
    assert 0 < float(closed.reach) < 0.1
    gathered = state.precision, state.pull
    blind = policy._reopen_cohort(state, gathered, state.pull, 9 * jnp.eye(3))
    longest = float(jnp.linalg.norm(blind.unweighing)) / 3**0.5
    assert float(blind.reach) == pytest.approx(longest)
    assert longest > 0.1


@double_precision
def test_cohorts_are_decoded_in_coordinates_of_their_own_weights() -> None:
    """Devices weigh as the model says, the learner unweighs: the estimate finds the truth."""
    policy, theta = _policy(low=-1.0, norm=1.0, constant=0.0), np.array([0.3, -0.4, 0.6])
    draw, scales = np.random.default_rng(3), np.array([0.7, 0.2, 0.1])
    state = policy.init(OUTLOOK)
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
    values = np.linalg.eigvalsh(np.asarray(model.weights))
    assert values[-1] > 3 * values[0]
    assert model.estimate == pytest.approx(theta, abs=0.08)
    assert model.reference == pytest.approx(theta, abs=0.1)


READINGS = ((3, 4, 5, 6, 7, 8), 73)
PROMISE = Guarantee(epsilon=4.0, delta=1e-5, trust=Trust.LOCAL)


@pytest.mark.parametrize(
    ("change", "trust", "mode", "rule"),
    [
        ({}, "local", "tuned", module.RULE),
        ({}, "joint", "tuned", 0),
        ({}, "local", "theory", 0),
        ({"low": 1.0, "high": 2.0, "constant": 0.0}, "local", "tuned", module.RULE),
        ({"link": "logistic", "constant": 0.0}, "local", "tuned", module.RULE),
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


def test_weight_constants_are_bound_to_the_rule_number() -> None:
    """Weights of a deployed bandit are computed again when it is opened: count the rule up."""
    made = module.RULE, module._GROWTH, module._FILL, module._HEAVIEST
    assert made == (3, 0.5, 0.8, 10.0)
    assert (LinearSampling._closed_at, GLMSampling._closed_at) == (5.5, 3.5)
    assert LinearSampling.of(FACTS)._usual_weight == (0.5, 0.2)
    assert thompson_sampling._LEAST_USUAL == (0.15, 0.1)
    drawing = module._LOOKED_FROM, module._LEAST_EVEN, module._REACH, module._MATRIX
    assert drawing == (8, 0.1, 0.7, (0.36, 0.13, 0.85))
    assert module._LEAST_WEIGHT == (0.05, 0.25)
    assert (module._SAMPLED, module._WIDENED) == (0.62, 1.5)
    assert (module._APART_UP_TO, module._TOGETHER) == (8.0, 0.7)
    # When cohorts are looked at is the same under every trust.
    assert sampling._FIRST_USERS == 4
    assert dict(sampling._MOST_PRIOR)["users"] == 0.16
    readings = LinearSampling.of(FACTS, epsilon=4.0).query.readings
    assert (readings[:6], len(readings)) == READINGS


@pytest.mark.nightly
def test_light_devices_and_learner_recover_small_scale_features() -> None:
    facts = dataclasses.replace(FACTS, low=-1.0, norm=1.0, constant=0.0, horizon=6000)
    promise = dataclasses.replace(PROMISE, epsilon=16.0)
    theta, scales = np.array([0.2, -0.4, 0.85]), np.array([0.8, 0.25, 0.1])
    errors = []
    for numbers in ({}, {"heaviest": 1.0}):
        draw = np.random.default_rng(2)
        bandit = Bandit(
            policy="best", problem=facts, guarantee=promise, numbers=numbers, window_s=0
        )
        for _ in range(6000):
            rows = scales * draw.uniform(-0.55, 0.55, size=(4, 3))
            choice = bandit.decide(rows)
            bandit.reward(choice.id, float(rows[int(choice.arm)] @ theta))
        values = np.linalg.eigvalsh(np.asarray(bandit.model["weights"]))
        assert (values[-1] > 2 * values[0]) == (not numbers)
        errors.append(np.linalg.norm(np.asarray(bandit.model["estimate"]) - theta))
    assert errors[0] < 0.7 * errors[1]


def _regret(
    contexts: str, replicates: int, **numbers: float
) -> np.ndarray[Any, np.dtype[np.float64]]:
    world = make_environment(contexts=contexts, dim=3, arms=10)
    made = build_protected(
        "best", world.problem(6000), Protection(guarantee=PROMISE), numbers=numbers
    )
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


@pytest.mark.nightly
@pytest.mark.parametrize("contexts", ["ball", "fixed"])
def test_surprises_of_clicks_save_regret(contexts: str) -> None:
    """Beside moments that are linearized around the posted estimate: `glm`."""
    world = make_environment(link="logistic", contexts=contexts, dim=5, arms=20, radius=5.0)
    lost = []
    for name in ("best", "glm"):
        made = build_protected(name, world.problem(10_000), Protection(guarantee=PROMISE))
        run = simulate(
            policy=made.policy,
            privatizers=made.privatizers,
            environment=world,
            ledger=MemoryLedger(PROMISE),
            horizon=10_000,
            replicates=96,
            seed=14_000,
            ticks=4,
        )
        lost.append(run.regret[-1].mean())
    assert lost[0] < 0.85 * lost[1]


@pytest.mark.parametrize("build", [LinearSampling.of, GLMSampling.of])
@pytest.mark.parametrize(
    ("separate", "mode"), [("nobody", "tuned"), ("cohorts", "tuned"), ("users", "theory")]
)
@double_precision
def test_only_tuned_reports_with_noise_of_their_own_are_weighted(
    build: Any, separate: Any, mode: Any
) -> None:
    facts = FACTS
    if build == GLMSampling.of:
        facts = dataclasses.replace(FACTS, link="logistic", constant=0.0)
    policy = build(facts, mode=mode, trust="local")
    outlook = NoiseInfo(noisy=True, separate=separate)
    assert not policy.weighs(outlook)
    model = policy.publish(policy.init({"moments": outlook}))
    assert type(model) is PosteriorModel
    arms = Arms(features=jnp.eye(3), allowed=jnp.ones(3, bool))
    example = policy.record(model, arms, jnp.int32(1), jnp.float64(0.25))["moments"]
    assert example.features.tolist() == [0.0, 1.0, 0.0]
    # At an estimate of 0 a linearized reward is how far it is from one half.
    assert float(example.reward) == (0.25 if build == LinearSampling.of else -0.25)
