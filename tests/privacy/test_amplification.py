"""Shuffle amplification against laws that are enumerated in full."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats  # type: ignore[import-untyped]

from kerchief.core.errors import InvalidValueError
from kerchief.privacy.amplification import (
    shuffled_delta,
    unshuffled_epsilon,
)
from kerchief.privacy.search import least, least_epsilon

Floats = NDArray[np.float64]
Counts = tuple[int, ...]


def shuffled_epsilon(local: float, reports: int, delta: float) -> float:
    """The least ε for a shuffled batch; ε₀ itself where nothing is gained."""
    found = least_epsilon(lambda epsilon: shuffled_delta(epsilon, local, reports), delta)
    return min(found, local)


def excess(p: Floats, q: Floats, epsilon: float) -> float:
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


def binary(reports: int, local: float, epsilon: float) -> float:
    """The true δ of shuffled binary randomized response, whatever the others hold."""
    true = math.exp(local) / (1 + math.exp(local))
    worst = 0.0
    for ones in range(reports):
        law = np.convolve(
            stats.binom.pmf(range(ones + 1), ones, true),
            stats.binom.pmf(range(reports - ones), reports - 1 - ones, 1 - true),
        )
        p, q = np.convolve(law, [1 - true, true]), np.convolve(law, [true, 1 - true])
        worst = max(worst, excess(p, q, epsilon), excess(q, p, epsilon))
    return worst


def shuffled(randomizers: Sequence[Floats]) -> dict[Counts, float]:
    """The law of the numbers of reports of each kind, user by user."""
    law: dict[Counts, float] = {(0,) * len(randomizers[0]): 1.0}
    for chances in randomizers:
        longer: dict[Counts, float] = defaultdict(float)
        for (counts, mass), (i, chance) in itertools.product(law.items(), enumerate(chances)):
            longer[(*counts[:i], counts[i] + 1, *counts[i + 1 :])] += mass * chance
        law = longer
    return law


def between(first: Floats, second: Floats, others: Sequence[Floats], epsilon: float) -> float:
    p, q = shuffled([first, *others]), shuffled([second, *others])
    return sum(max(0.0, p[key] - math.exp(epsilon) * q[key]) for key in p)


def by_pairs(epsilon: float, local: float, reports: int) -> float:
    """The same bound as it is usually written: one user, truthful or not, among n − 1 others."""
    e = math.exp(local)
    total = 0.0
    for clones in range(reports):
        heads = stats.binom.pmf(np.arange(-1, clones + 1), clones, 0.5)
        more, less = heads[:-1], heads[1:]
        more, less = np.append(more, heads[-1]), np.append(less, 0.0)
        p, q = (e * more + less) / (e + 1), (more + e * less) / (e + 1)
        total += stats.binom.pmf(clones, reports - 1, 2 / (e + 1)) * excess(p, q, epsilon)
    return total


@pytest.mark.parametrize(
    ("reports", "local", "delta", "expected"),
    [
        (1000, 1.0, 1e-6, 0.149),
        (10_000, 1.0, 1e-6, 0.043),
        (10_000, 4.0, 1e-6, 0.411),
        (1000, 1.08, 1e-5, 0.139),
        (1000, 0.6, 1e-5, 0.065),
        (1000, 3.04, 1e-5, 0.724),
    ],
)
def test_known_values(reports: int, local: float, delta: float, expected: float) -> None:
    assert shuffled_epsilon(local, reports, delta) == pytest.approx(expected, abs=6e-4)


def test_a_large_batch_is_below_what_older_bounds_give() -> None:
    assert shuffled_epsilon(4.0, 100_000, 1e-6) < 0.1675


@pytest.mark.parametrize("reports", [1, 2, 7, 40])
@pytest.mark.parametrize("local", [0.3, 1.0, 3.0])
def test_shuffled_delta_is_the_bound_with_one_user_among_clones(reports: int, local: float) -> None:
    for part in (0.0, 0.1, 0.4, 0.9):
        expected = by_pairs(part * local, local, reports)
        assert shuffled_delta(part * local, local, reports) == pytest.approx(expected, rel=1e-8)
        assert shuffled_delta(part * local, local, reports) >= expected * (1 - 1e-13)


@pytest.mark.parametrize("local", [0.5, 1.0, 2.0, 4.0])
@pytest.mark.parametrize("reports", [2, 5, 20, 60])
def test_covers_binary_response(reports: int, local: float) -> None:
    for part in (0.0, 0.05, 0.2, 0.5, 0.8):
        bound = shuffled_delta(part * local, local, reports)
        assert binary(reports, local, part * local) <= bound * (1 + 1e-9) + 1e-15


@pytest.mark.nightly
def test_is_close_to_binary_response() -> None:
    true = least(lambda epsilon: binary(200, 0.5, epsilon) <= 1e-6)
    assert true <= shuffled_epsilon(0.5, 200, 1e-6) <= 1.15 * true


def test_more_clones_than_proved_would_be_refuted() -> None:
    assert binary(200, 0.5, 0.1) > shuffled_delta(0.1, 0.5, 300)


@pytest.mark.parametrize("local", [0.7, 2.0])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.7, 0.95])
def test_covers_the_extreme_randomizers_of_three_inputs(local: float, share: float) -> None:
    """Kinds: the user's two truths, one that tells the user from the rest, one that is the rest's.

    All probabilities are at the edge of what ε₀ allows. `share` moves from ternary response to
    randomizers whose third kind is as likely under both of the user's inputs.
    """
    e = math.exp(local)
    third = share / (e + 1)
    truth, rest = (1 - third * (e + 1)) / (e + 2), (1 + third) / (e + 2)
    first = np.array([e * truth, truth, e * third, rest])
    second = np.array([truth, e * truth, e * third, rest])
    other = np.array([truth, truth, third, e * rest])
    assert sum(first) == pytest.approx(1) == pytest.approx(sum(other))
    for reports, part in itertools.product((2, 5, 9), (0.05, 0.3, 0.6)):
        bound = shuffled_delta(part * local, local, reports)
        assert between(first, second, [other] * (reports - 1), part * local) <= bound + 1e-14


def test_covers_arbitrary_randomizers() -> None:
    source = np.random.default_rng(3)
    closest = 0.0
    for _ in range(60):
        laws = source.dirichlet(np.full(3, 4.0), size=6) + 0.02
        laws /= laws.sum(1, keepdims=True)
        logs = np.log(laws)
        local = float((logs.max(0) - logs.min(0)).max())
        epsilon = local * float(source.uniform(0.02, 0.5))
        true = between(laws[0], laws[1], list(laws[2:]), epsilon)
        bound = shuffled_delta(epsilon, local, 5)
        assert true <= bound + 1e-14
        closest = max(closest, true / bound)
    assert closest > 0.3


def test_without_a_crowd_there_is_no_amplification() -> None:
    assert shuffled_epsilon(1.0, 1, 1e-9) == pytest.approx(1.0, abs=1e-7)
    assert shuffled_epsilon(6.25, 1000, 1e-5) > 6.2
    assert shuffled_epsilon(60.0, 1000, 1e-5) == 60.0
    assert shuffled_delta(1.0, 60.0, 1000) == 1.0


def test_epsilon_never_exceeds_the_reports_own() -> None:
    for local, reports in itertools.product((1e-12, 1e-3, 0.5, 5.0, 39.0), (1, 3, 100)):
        assert shuffled_epsilon(local, reports, 1e-12) <= local


def test_shuffled_epsilon_is_monotone_in_users_epsilon_and_delta() -> None:
    by_size = [shuffled_epsilon(1.0, n, 1e-6) for n in (10, 100, 1000, 10_000)]
    by_local = [shuffled_epsilon(local, 1000, 1e-6) for local in (0.1, 0.5, 1.0, 2.0, 4.0)]
    by_delta = [shuffled_epsilon(1.0, 1000, delta) for delta in (1e-9, 1e-6, 1e-3)]
    assert by_size == sorted(by_size, reverse=True)
    assert by_local == sorted(by_local)
    assert by_delta == sorted(by_delta, reverse=True)
    assert shuffled_epsilon(0.01, 10_000, 0.1) == 0.0


@pytest.mark.parametrize(
    ("epsilon", "reports"), [(0.05, 10_000), (0.3, 1000), (1.0, 200), (1.0, 1)]
)
def test_the_inverse_is_the_last_that_keeps_the_promise(epsilon: float, reports: int) -> None:
    local = unshuffled_epsilon(epsilon, reports, 1e-6)
    assert local >= epsilon
    assert shuffled_delta(epsilon, local, reports) <= 1e-6
    assert shuffled_delta(epsilon, local * (1 + 1e-6), reports) > 1e-6


def test_refuses_nonsense() -> None:
    for epsilon, local, reports in ((-0.1, 1.0, 10), (0.1, 0.0, 10), (0.1, 1.0, 0)):
        with pytest.raises(InvalidValueError):
            shuffled_delta(epsilon, local, reports)
    for delta in (0.0, 1.0):
        with pytest.raises(InvalidValueError, match="delta"):
            unshuffled_epsilon(1.0, 10, delta)
    with pytest.raises(InvalidValueError, match="epsilon"):
        unshuffled_epsilon(0.0, 10, 1e-6)
