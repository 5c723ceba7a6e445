"""Shuffle-batched bandits: the paper's p, batch lengths and widths, and what a user may choose."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats  # type: ignore[import-untyped]

from kerchief.core.contracts import Arms, Clock, Release
from kerchief.core.errors import InvalidValueError
from kerchief.core.precision import double_precision
from kerchief.core.problems import Problem
from kerchief.core.random import Stream
from kerchief.deployment.deployment import deploy, read_deployment
from kerchief.deployment.protected_policy import ProtectedPolicy, build_protected
from kerchief.policies.ellipsoid import lengths
from kerchief.policies.linear.sblb import SBLB, batch_length, corollary_keep, printed_keep
from kerchief.privacy import Guarantee, Trust
from kerchief.privacy.randomized_bits import KEEP_UNIT, local_keep, paper_local_epsilon
from kerchief.privatizers import Protection
from kerchief_protocol.noise import KEEP_UNITS, Bits

DELTA = 1e-5


def facts(
    horizon: int = 20_000, *, dim: int = 2, norm: float = 1.0, radius: float = 1.0
) -> Problem:
    return Problem(dim=dim, arms=3, norm=norm, radius=radius, low=0.0, high=1.0, horizon=horizon)


def made(name: str, problem: Problem, epsilon: float, **numbers: float) -> ProtectedPolicy:
    promise = Guarantee(epsilon=epsilon, delta=DELTA, trust=Trust.SHUFFLE)
    protection = Protection(guarantee=promise, mechanism="bit")
    return build_protected(name, problem, protection, numbers=numbers)


def query_of(arranged: ProtectedPolicy) -> Any:
    return arranged.policy.queries["moments"]


def sums_of(arranged: ProtectedPolicy) -> Any:
    return arranged.privatizers["moments"]


# The chance with which a bit is kept.


@pytest.mark.parametrize(("local", "dim", "bits"), [(1.0, 2, 1), (0.3, 5, 1), (4.0, 2, 8)])
def test_the_printed_p_keeps_the_printed_local_promise(local: float, dim: int, bits: int) -> None:
    keep = printed_keep(local, dim=dim, bits=bits)
    size = dim * (dim + 3) // 2
    assert 2 / (math.exp(local / (bits * size)) + 1) == pytest.approx(1 - keep)
    assert paper_local_epsilon(keep, bits=bits, dimension=size) == pytest.approx(local)


@pytest.mark.parametrize("horizon", [2000, 20_000, 10**6])
def test_the_corollarys_p_stays_a_probability(horizon: int) -> None:
    largest = 1 / (27 * horizon**0.25)
    assert corollary_keep(largest, horizon) == pytest.approx(1 / 9)
    assert corollary_keep(largest / 8, horizon) == pytest.approx(1 / 36)
    # Where the formula has no probability, and everywhere beyond its condition.
    for epsilon in (2 * largest, horizon**-0.25, 1.0, 100.0):
        assert corollary_keep(epsilon, horizon) == 1 / 9


# Batches.


@pytest.mark.parametrize(
    ("horizon", "dim", "epsilon", "numbers"),
    [
        (2500, 2, 1.0, {}),
        (20_000, 5, 1.0, {}),
        pytest.param(200_000, 2, 1.0, {}, marks=pytest.mark.nightly),
        (20_000, 2, 1.31, {"local": 1.0}),
        (20_000, 5, 12.0, {"local": 5.0}),
    ],
)
def test_batch_length_solves_equation_at_played_p_and_horizon(
    horizon: int, dim: int, epsilon: float, numbers: dict[str, float]
) -> None:
    found = made("sblb@paper", facts(horizon, dim=dim), epsilon, **numbers)
    (keep,) = {one.keep for one in sums_of(found).batches}
    length, *_ = query_of(found).batches
    assert query_of(found).batches == tuple(range(length, horizon + 1, length))
    # Of the p of the equation, the device plays the next multiple of 2**-20.
    assert 0 <= query_of(found).keep - keep < KEEP_UNIT
    solved = batch_length(
        epsilon, DELTA, horizon=horizon, dim=dim, keep=query_of(found).keep, printed=True
    )
    assert length == solved
    lie: float = 1 - query_of(found).keep
    log = math.log(2 * horizon / DELTA)

    def allowed(size: int) -> bool:
        u = epsilon * size / (32 * dim * (dim + 3) * math.log(8 * horizon / DELTA))
        square = (u / math.sqrt(2 * horizon * log)) ** 2
        left = math.sqrt((2 + square) ** 2 - 4)
        enough = size * lie >= 14 * math.log(8 * horizon / DELTA)
        most = 1 - 2 * lie + 2 * math.sqrt(2 * log / size) + square
        return enough and left >= most

    assert allowed(length)
    assert not allowed(length - 1)


def test_the_printed_length_does_not_keep_the_corollarys_promise() -> None:
    """One coordinate of 371 users' sums, at 1 − p = 1/9: it tells more than ε = 0.0031, δ = 1e-5.

    All others code 0, and one user's bit is a one with chance (1 ± keep)/2.
    """
    horizon, keep = 20_000, 1 / 9
    epsilon = 1 / (27 * horizon**0.25)
    length = batch_length(epsilon, DELTA, horizon=horizon, dim=2, keep=keep, printed=True)
    others = stats.binom.pmf(range(length), length - 1, 0.5)
    first, second = (
        np.convolve(others, [1 - chance, chance]) for chance in ((1 + keep) / 2, (1 - keep) / 2)
    )
    told = np.maximum(first - math.exp(epsilon) * second, 0).sum()
    assert told > 100 * DELTA


@pytest.mark.parametrize("epsilon", [0.001, 0.2, 1.0, 5.0])
def test_printed_batch_length_does_not_depend_on_epsilon(epsilon: float) -> None:
    length = batch_length(epsilon, 1e-5, horizon=20_000, dim=2, keep=1 / 9, printed=True)
    assert length == 371


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 5.0])
@pytest.mark.parametrize("dim", [2, 5])
def test_corrected_batch_length_exceeds_the_horizon(epsilon: float, dim: int) -> None:
    assert batch_length(epsilon, 1e-5, horizon=20_000, dim=dim, keep=1 / 9) > 20_000


@pytest.mark.parametrize(
    ("epsilon", "dim", "expected"), [(0.2, 2, 3.9e6), (1.0, 2, 8.1e5), (5.0, 5, 6.5e5)]
)
def test_known_values(epsilon: float, dim: int, expected: float) -> None:
    length = batch_length(epsilon, 1e-5, horizon=20_000, dim=dim, keep=0.1)
    assert length == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("keep", [0.01, 0.1, 0.6])
def test_is_the_first_length_that_the_derivation_allows(keep: float) -> None:
    """(1 − q)² ≤ u² q, where q is the chance of a coin less a deviation."""
    horizon, delta, dim, epsilon = 20_000, 1e-5, 2, 1.0
    length = batch_length(epsilon, delta, horizon=horizon, dim=dim, keep=keep)

    def allowed(size: int) -> bool:
        q = 1 - keep - math.sqrt(2 * math.log(2 * horizon / delta) / size)
        u = epsilon * size / (32 * dim * (dim + 3) * math.log(8 * horizon / delta))
        u /= math.sqrt(2 * horizon * math.log(2 * horizon / delta))
        return q > 0 and (1 - q) ** 2 <= u * u * q

    assert allowed(length)
    assert not allowed(length - 1)


# What a user may choose.


def test_equal_batches_of_a_length_and_a_promise_for_each_report() -> None:
    free = made("sblb", facts(200), 1.0)
    chosen = made("sblb", facts(200), 1.0, length=80, local=1.0)
    assert query_of(chosen).batches == (80, 160)
    assert query_of(free).batches != query_of(chosen).batches
    assert 0.99 < sums_of(chosen).views(DELTA)["device wire"].epsilon <= 1.0
    assert sums_of(free).views(DELTA)["device wire"].epsilon > 1.0
    assert query_of(made("sblb", facts(100), 1.0, length=300)).batches == (100,)


def test_a_task_has_the_same_box_and_both_promises() -> None:
    promise = Guarantee(epsilon=1.0, delta=DELTA, trust=Trust.SHUFFLE, rounds=600)
    chosen = {"length": 300, "local": 1.0}
    task = deploy(
        policy="sblb", problem=facts(600), guarantee=promise, mechanism="bit", numbers=chosen
    ).task
    (noise,) = task.noise
    keep = local_keep(1.0, bits=1, dimension=5, taxicab=1 + math.sqrt(2) + 1 / math.sqrt(2))
    assert noise == Bits(size=5, bits=1, bound=1.0, keep=(round(keep * KEEP_UNITS),) * 2)
    assert read_deployment(task).task == task


@pytest.mark.parametrize(
    ("numbers", "why"),
    [
        ({"length": 0.5}, "length is 0.5; it must be finite and at least 1"),
        ({"length": 250.7}, "length is 250.7; a batch has a whole number of users"),
        ({"local": 0.0}, "local is 0.0; it must lie in"),
        ({"horizon": 5}, "SBLB has confidence, growth, length, local"),
        ({"promise": 5}, "SBLB has"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(numbers: dict[str, float], why: str) -> None:
    with pytest.raises(InvalidValueError, match=why):
        made("sblb@paper", facts(), 1.0, **numbers)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"epsilon": 1e-300}, r"epsilon is 1e-300; it must lie in \[1e-09, 1000000000.0\]"),
        ({"epsilon": 1e155}, "epsilon is 1e[+]155; it must lie in"),
        ({"delta": 1e-310}, r"delta is 1e-310; it must lie in \(1e-300, 1.0\)"),
    ],
)
def test_promises_without_a_length_are_refused(changed: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidValueError, match=why):
        SBLB.of(facts(), switching=True, **changed)


@pytest.mark.parametrize("epsilon", [1e-9, 1e9])
def test_the_farthest_promises_have_a_length(epsilon: float) -> None:
    assert SBLB.of(facts(), switching=True, epsilon=epsilon, delta=1e-299).queries


# Widths.


def scores(norm: float, features: Any, noise: float) -> tuple[Any, Any]:
    """Estimates and widths of arms within a norm, after sums of 1000 users, in units of rewards."""
    policy = SBLB.of(facts(norm=norm, radius=1 / norm), switching=True)
    gram, moment = np.array([600.0, 100.0 * math.sqrt(2), 400.0]), np.array([300.0, 200.0])
    total = np.concatenate([gram * norm**2, moment * norm])
    release = Release(total=jnp.asarray(total), count=jnp.int32(1000), noise=jnp.float64(noise))
    model = policy.publish(policy.update(policy.init({}), "moments", release))
    x = jnp.asarray(features * norm)
    return x @ model.estimate, model.width * lengths(x, model.inverse)


@pytest.mark.parametrize("norm", [0.5, 3.0])
@double_precision
def test_widths_do_not_depend_on_the_unit_of_the_features(norm: float) -> None:
    """Arms L times as long, with a parameter 1/L times as long, are the same arms."""
    features = np.array([[1.0, 0.0], [0.6, 0.8], [0.0, -1.0]])
    for mine, theirs in zip(scores(norm, features, 0.0), scores(1.0, features, 0.0), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5)


def printed(t: int, p: float, *, dim: int = 2, radius: float = 1.0) -> tuple[float, float]:
    """Equations (8) and (7) for one bit, λ = √T at T = 20000 and δ = 0.05."""
    log = math.log(2 * t / 0.05)
    ridge = math.sqrt(8 * t * log) * (1 + 2 / (1 - p)) + math.sqrt(20_000)
    sampling = 0.5 * math.sqrt(8 * log + dim * math.log(3 + t / ridge))
    bits = 2 * math.sqrt(p * (1 - p / 2) * t * log) + 8 * log / 3 + math.sqrt(8 * t * log)
    return ridge, sampling + radius * math.sqrt(3 * ridge) + dim / math.sqrt(ridge) * bits


@pytest.mark.parametrize("t", [371, 3710, 19_663])
@pytest.mark.parametrize("norm", [1.0, 2.0])
@double_precision
def test_widths_are_as_printed(t: int, norm: float) -> None:
    """At the p that has the noise of the release, read in units of the features."""
    policy = SBLB.of(facts(norm=norm, radius=1 / norm), switching=True)
    for p in (0.5, 8 / 9):
        noise = jnp.float64(math.sqrt(t) / (1 - p) * norm**2)
        found = [float(one) for one in policy._widths(jnp.int32(t), noise)]
        assert found == pytest.approx(printed(t, p), rel=1e-6)
    assert np.isfinite(policy._widths(jnp.int32(t), jnp.float64(0.0))).all()


@double_precision
def test_the_longest_arm_is_played_before_the_first_release() -> None:
    policy = SBLB.of(facts(), switching=True)
    model = policy.publish(policy.init({}))
    x = jnp.array([[0.1, 0.2], [0.6, -0.7], [0.5, 0.0]])
    arms = Arms(features=x, allowed=jnp.ones(3, bool))
    clock = Clock(round=jnp.int32(0), since={})
    assert int(policy.act(model, arms, clock, Stream.of(seed=0, replicate=0))) == 1


@double_precision
def test_the_matrix_adds_up_the_printed_steps_of_the_regularizer() -> None:
    """Algorithm 1 begins at λ and adds 2(λ_j+1 - λ_j): with nothing heard, 2λ_j - λ is left."""
    policy = SBLB.of(facts(), switching=False)
    state = policy.init({})
    assert state.matrix[0, 0] == policy.regularizer
    for count in (371, 742):
        noise = jnp.float64(9 * math.sqrt(count))
        release = Release(total=jnp.zeros(5), count=jnp.int32(count), noise=noise)
        state = policy.update(state, "moments", release)
        ridge, _ = printed(count, 8 / 9)
        left = (2 * ridge - math.sqrt(20_000)) * np.eye(2)
        np.testing.assert_allclose(state.matrix, left, rtol=1e-6)


@double_precision
def test_a_shared_coordinate_shifts_the_parameter() -> None:
    problem = dataclasses.replace(facts(), constant=0.5)
    assert SBLB.of(problem, switching=True).radius == problem.radius + 0.5 / 0.5
