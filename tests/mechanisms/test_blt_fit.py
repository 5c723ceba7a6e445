"""The fit of buffered Toeplitz factors: closed forms against long sums, and a true minimum."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from kerchief.core.errors import InvalidValueError
from kerchief.mechanisms.blt_fit import Fit, energy, fit, fit_of

Floats = NDArray[np.float64]


def response(factor: Fit, count: int) -> Floats:
    fading = np.power.outer(np.array(factor.decays), np.arange(count))
    return np.asarray(factor.base + np.array(factor.weights) @ fading)


def worst(factor: Fit, horizon: int) -> float:
    """The noise on the last prefix, per unit of multiplier and sensitivity, by the closed form."""
    base, weights = np.array([factor.base]), np.array(factor.weights)
    return factor.column_norm * math.sqrt(
        float(energy(base, weights, 1.0 - np.array(factor.decays), horizon))
    )


def series(gaps: list[float], count: int) -> list[Fraction]:
    """C's first column by long division of its two polynomials, in exact fractions."""
    below, above = [Fraction(1)], [Fraction(1)]
    for theta, phi in zip(gaps[0::2], gaps[1::2], strict=True):
        below, above = times(below, 1 - Fraction(theta)), times(above, 1 - Fraction(phi))
    found: list[Fraction] = []
    for i in range(count):
        known = sum(
            (below[j] * found[i - j] for j in range(1, min(i, len(below) - 1) + 1)), Fraction()
        )
        found.append((above[i] if i < len(above) else Fraction()) - known)
    return found


def times(polynomial: list[Fraction], root: Fraction) -> list[Fraction]:
    """The polynomial times (1 - root x)."""
    shifted = [Fraction(), *(root * value for value in polynomial)]
    return [a - b for a, b in zip([*polynomial, Fraction()], shifted, strict=True)]


@pytest.mark.parametrize(
    "gaps", [[0.25, 0.5], [2.0**-20, 2.0**-16, 0.125, 0.75], [0.1, 0.5, 0.6, 0.875]]
)
def test_factor_is_its_definition_in_exact_fractions(gaps: list[float]) -> None:
    horizon = 24
    column = series(gaps, horizon)
    factor = fit_of(np.array(gaps), horizon)
    norm = math.sqrt(sum(value * value for value in column))
    assert factor.column_norm == pytest.approx(norm, rel=1e-13)
    product = np.convolve([float(value) for value in column], response(factor, horizon))[:horizon]
    assert product == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize(("horizon", "buffers"), [(1, 2), (2, 6), (1000, 3), (1_000_000, 6)])
def test_closed_form_is_the_long_sum(horizon: int, buffers: int) -> None:
    factor = fit(horizon, buffers)
    long = float(np.linalg.norm(response(factor, horizon)))
    assert worst(factor, horizon) == pytest.approx(factor.column_norm * long, rel=1e-11)


@pytest.mark.parametrize("horizon", [1, 3, 77, 10_000_000])
@pytest.mark.parametrize("buffers", [2, 6])
def test_every_part_is_positive(horizon: int, buffers: int) -> None:
    factor = fit(horizon, buffers)
    assert factor.base > 0
    assert min(factor.weights) > 0
    assert all(0 < decay < 1 for decay in factor.decays)
    assert sum(factor.weights) + factor.base == pytest.approx(1.0, rel=1e-12)


LONGER = [(20_000, 4.2189), (1_000_000, 5.4640)]


@pytest.mark.parametrize(
    ("horizon", "limit"),
    [(1000, 3.2652), *(pytest.param(*one, marks=pytest.mark.nightly) for one in LONGER)],
)
def test_more_buffers_come_closer_to_the_square_root(horizon: int, limit: float) -> None:
    found = [worst(fit(horizon, buffers), horizon) for buffers in range(2, 7)]
    assert all(more < fewer for fewer, more in itertools.pairwise(found))
    assert found[-1] > limit * (1 - 1e-4)


def test_no_neighbour_is_better() -> None:
    horizon, rng = 1000, np.random.default_rng(3)
    factor = fit(horizon, 2)
    phi = 1.0 - np.array(factor.decays)
    best = worst(factor, horizon)
    theta = recovered(factor)
    gaps = np.ravel([theta, phi], order="F")
    assert worst(fit_of(gaps, horizon), horizon) == pytest.approx(best, rel=1e-9)
    for _ in range(50):
        moved = gaps * np.exp(0.05 * rng.normal(size=4))
        assert worst(fit_of(moved, horizon), horizon) > best * (1 - 1e-7)


def recovered(factor: Fit) -> Floats:
    """The gaps of θ, as the zeros of base / gap + Σ weights (...): roots of B's numerator."""
    roots = [1.0, *factor.decays]
    weights = [factor.base, *factor.weights]
    parts = [
        weight * np.poly([other for other in roots if other != root])
        for root, weight in zip(roots, weights, strict=True)
    ]
    return np.asarray(1.0 - np.sort(np.roots(np.sum(parts, axis=0)).real)[::-1])


@pytest.mark.parametrize("gaps", [[0.0, 0.5], [0.5, 0.25], [0.5, 0.5], [0.5, 1.0], [math.nan, 0.5]])
def test_roots_that_do_not_alternate_are_refused(gaps: list[float]) -> None:
    with pytest.raises(InvalidValueError, match="gaps"):
        fit_of(np.array(gaps), 10)
