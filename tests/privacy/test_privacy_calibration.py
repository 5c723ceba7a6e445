from __future__ import annotations

import importlib
import math
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kerchief.core.errors import InvalidValueError
from kerchief.privacy import (
    gaussian_delta,
    gaussian_epsilon,
    gaussian_noise_multiplier,
    share,
    zcdp_rho,
)
from kerchief.privacy.calibration import (
    bun_steinke_rho,
    classical_gaussian_noise_multiplier,
    pure_rho,
    zcdp_delta,
)
from kerchief.privacy.search import least_epsilon

dp_accounting: Any = importlib.import_module("dp_accounting")
special: Any = importlib.import_module("scipy.special")

# Computed apart: eps, delta, classical, BS16, CKS20, analytic, true delta of classical
TABLE = [
    (0.2, 1e-5, 24.2240, 24.0964, 17.9096, 16.3041, 5.54e-09),
    (0.2, 1e-6, 26.4940, 26.3774, 20.5553, 18.9888, 4.31e-10),
    (0.2, 5e-6, 24.9291, 24.8051, 18.7362, 17.1418, 2.56e-09),
    (0.5, 1e-5, 9.6896, 9.7001, 7.6672, 7.0318, 1.61e-08),
    (0.5, 1e-6, 10.5976, 10.6073, 8.6766, 8.0576, 1.25e-09),
    (0.5, 5e-6, 9.9716, 9.9819, 7.9817, 7.3511, 7.42e-09),
    (1.0, 1e-5, 4.8448, 4.9006, 4.0451, 3.7306, 4.11e-08),
    (1.0, 1e-6, 5.2988, 5.3500, 4.5309, 4.2247, 3.20e-09),
    (1.0, 5e-6, 4.9858, 5.0401, 4.1962, 3.8841, 1.90e-08),
    (5.0, 1e-5, 0.9690, 1.0545, 0.9526, 0.8919, 1.35e-06),
    (5.0, 1e-6, 1.0598, 1.1391, 1.0391, 0.9800, 1.07e-07),
    (5.0, 5e-6, 0.9972, 1.0807, 0.9794, 0.9191, 6.26e-07),
    (10.0, 1e-5, 0.4845, 0.5679, 0.5296, 0.4999, 2.27e-05),
    (10.0, 1e-6, 0.5299, 0.6079, 0.5699, 0.5411, 1.90e-06),
    (10.0, 5e-6, 0.4986, 0.5803, 0.5421, 0.5126, 1.07e-05),
]

# Computed apart: mu(eps, delta)
EPSILONS = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 10.0)
MU = {
    0.1: (0.4350, 0.6426, 0.9209, 1.3662, 2.0596, 3.1109, 3.5485),
    1e-5: (0.0613, 0.1422, 0.2681, 0.5016, 0.9249, 1.6660, 2.0004),
    1e-6: (0.0527, 0.1241, 0.2367, 0.4483, 0.8379, 1.5315, 1.8481),
}

epsilons = st.floats(0.01, 20.0)
deltas = st.floats(-12.0, -0.5).map(lambda x: 10.0**x)
multipliers = st.floats(0.1, 50.0)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row[0]}-{row[1]}")
def test_table_of_noise(row: tuple[float, ...]) -> None:
    epsilon, delta, classical, older, tight, exact, true = row
    assert gaussian_noise_multiplier(epsilon, delta) == pytest.approx(exact, abs=6e-5)
    assert (0.5 / zcdp_rho(epsilon, delta)) ** 0.5 == pytest.approx(tight, abs=6e-5)
    assert (0.5 / bun_steinke_rho(epsilon, delta)) ** 0.5 == pytest.approx(older, abs=6e-5)
    formula = math.sqrt(2 * math.log(1.25 / delta)) / epsilon
    assert formula == pytest.approx(classical, abs=6e-5)
    assert gaussian_delta(epsilon, formula) == pytest.approx(true, rel=6e-3)
    if epsilon <= 1:
        assert classical_gaussian_noise_multiplier(epsilon, delta) == pytest.approx(formula)


@pytest.mark.parametrize("delta", MU)
def test_table_of_mu(delta: float) -> None:
    ours = [1 / gaussian_noise_multiplier(epsilon, delta) for epsilon in EPSILONS]
    assert ours == pytest.approx(MU[delta], abs=6e-5)


@pytest.mark.parametrize(("delta", "crossing"), [(0.1, 5.74), (1e-3, 7.46), (1e-5, 8.42)])
def test_the_classical_formula_fails_where_the_note_says(delta: float, crossing: float) -> None:
    def true(epsilon: float) -> float:
        return gaussian_delta(epsilon, math.sqrt(2 * math.log(1.25 / delta)) / epsilon)

    assert true(crossing - 0.02) < delta < true(crossing + 0.02)


def test_the_classical_formula_is_refused_above_one() -> None:
    with pytest.raises(InvalidValueError, match="proved up to epsilon 1"):
        classical_gaussian_noise_multiplier(1.0001, 1e-5)


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(0.2, 1e-6), (1.0, 1e-5), (5.0, 1e-6), (10.0, 1e-5)]
)
def test_agrees_with_dp_accounting(epsilon: float, delta: float) -> None:
    m = gaussian_noise_multiplier(epsilon, delta)
    theirs = dp_accounting.get_sigma_gaussian(epsilon, delta)
    assert m == pytest.approx(theirs, rel=1e-6)
    accountant = dp_accounting.pld.PLDAccountant()
    accountant.compose(dp_accounting.GaussianDpEvent(m))
    assert accountant.get_epsilon(delta) == pytest.approx(epsilon, rel=1e-4)


@given(epsilon=epsilons, m=multipliers)
def test_delta_agrees_with_the_textbook_form(epsilon: float, m: float) -> None:
    first = float(special.log_ndtr(0.5 / m - epsilon * m))
    second = epsilon + float(special.log_ndtr(-0.5 / m - epsilon * m))
    expected = math.exp(first) - math.exp(second)
    assert gaussian_delta(epsilon, m) == pytest.approx(expected, rel=1e-6, abs=1e-12)


@given(epsilon=epsilons, delta=deltas)
@settings(max_examples=50)
def test_calibration_is_on_the_safe_side(epsilon: float, delta: float) -> None:
    m = gaussian_noise_multiplier(epsilon, delta)
    assert gaussian_delta(epsilon, m) <= delta
    assert gaussian_delta(epsilon, m * (1 - 1e-6)) > delta
    assert gaussian_epsilon(delta, m) == pytest.approx(epsilon, rel=1e-9)


@given(epsilon=epsilons, delta=deltas)
@settings(max_examples=15, deadline=None)
def test_zcdp_conversions_invert_each_other(epsilon: float, delta: float) -> None:
    rho = zcdp_rho(epsilon, delta)
    assert zcdp_delta(rho, epsilon) <= delta
    found = least_epsilon(partial(zcdp_delta, rho), delta)
    assert found == pytest.approx(epsilon, rel=1e-6)
    older = rho + 2 * math.sqrt(rho * -math.log(delta))
    assert found <= older * (1 + 1e-9)
    assert gaussian_delta(epsilon, (0.5 / rho) ** 0.5) <= delta * (1 + 1e-9)


@given(epsilon=epsilons, m=multipliers, factor=st.floats(1.01, 3.0))
def test_more_noise_or_more_epsilon_never_costs_more(
    epsilon: float, m: float, factor: float
) -> None:
    assert gaussian_delta(epsilon, m * factor) <= gaussian_delta(epsilon, m) + 1e-15
    assert gaussian_delta(epsilon * factor, m) <= gaussian_delta(epsilon, m) + 1e-15


@given(m=multipliers, weights=st.lists(st.floats(0.01, 100.0), min_size=1, max_size=8))
def test_shares_cost_exactly_the_whole(m: float, weights: list[float]) -> None:
    parts = share(m, weights)
    cost = math.fsum(1 / part / part for part in parts)
    assert cost <= 1 / m / m
    assert cost == pytest.approx(1 / m / m, rel=1e-12)


@given(epsilon=st.floats(0.01, 10.0), alpha=st.floats(1.001, 100.0))
def test_pure_rho_bounds_randomized_response(epsilon: float, alpha: float) -> None:
    def log_cosh(x: float) -> float:
        return x + math.log1p(math.exp(-2 * x)) - math.log(2)

    renyi = (log_cosh((alpha - 0.5) * epsilon) - log_cosh(epsilon / 2)) / (alpha - 1)
    assert renyi <= alpha * pure_rho(epsilon) * (1 + 1e-9)


def test_extreme_values_neither_overflow_nor_vanish_early() -> None:
    assert gaussian_delta(700.0, 0.02) == pytest.approx(1.0, abs=1e-9)
    assert 0.0 < gaussian_delta(30.0, 1.0) < 1e-180
    assert gaussian_delta(1000.0, 5.0) == 0.0
    assert gaussian_delta(0.0, 1.0) == pytest.approx(math.erf(0.5 / math.sqrt(2)))
    assert gaussian_delta(-1.0, 1.0) > gaussian_delta(0.0, 1.0)


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(-1.0, 0.1), (1.0, 0.0), (1.0, 1.0), (math.nan, 0.1)]
)
def test_values_out_of_bounds_are_refused(epsilon: float, delta: float) -> None:
    for function in (gaussian_noise_multiplier, zcdp_rho, bun_steinke_rho):
        with pytest.raises(InvalidValueError):
            function(epsilon, delta)


def test_share_refuses_nonsense() -> None:
    with pytest.raises(InvalidValueError):
        share(1.0, [])
    with pytest.raises(InvalidValueError, match=r"weights\[1\]"):
        share(1.0, [1.0, 0.0])
