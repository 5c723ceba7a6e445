"""Sums of coins: both theorems against the exact laws, and the accountant that uses them."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats  # type: ignore[import-untyped]

from kerchief.core.errors import InvalidValueError
from kerchief.privacy import (
    Binomial,
    Gaussian,
    NonPrivate,
    Repeated,
    Zcdp,
    event_from_dict,
    gaussian_delta,
    gaussian_noise_multiplier,
)
from kerchief.privacy.binomial import binomial_renyi, binomial_slack, log_ratios
from kerchief.privacy.composition import delta_at, epsilon_at
from kerchief.privacy.curves import ORDERS, GaussianCurve, RenyiCurve, SlackCurve
from kerchief.privacy.vector_sum import scalar_sum, vector_sum

Floats = NDArray[np.float64]


def law(scale: int) -> Floats:
    trials = 4 * scale**2
    pmf: Floats = stats.binom.pmf(np.arange(trials + 1), trials, 0.5)
    return pmf


def exact_delta(scale: int, shifts: tuple[int, ...], epsilon: float) -> float:
    """The sum over all outcomes of the positive part of P - e^epsilon Q."""
    pmf = law(scale)
    moved, still = np.ones(1), np.ones(1)
    for shift in shifts:
        wide = np.zeros(len(pmf) + shift)
        wide[shift:] = pmf
        moved = np.multiply.outer(moved, wide).ravel()
        still = np.multiply.outer(still, np.append(pmf, np.zeros(shift))).ravel()
    return float(np.maximum(0, moved - math.exp(epsilon) * still).sum())


def comparison(event: Binomial) -> SlackCurve:
    curve = GaussianCurve(precision=event.noise_multiplier**-2)
    return SlackCurve(continuous=curve, slack=binomial_slack(event))


@pytest.mark.parametrize("scale", [8, 20, 60])
@pytest.mark.parametrize("share", [0.1, 0.5, 1.5])
def test_both_theorems_bound_the_exact_curve(scale: int, share: float) -> None:
    shift = max(1, round(share * scale))
    event = Binomial(sensitivity=float(shift), scale=scale, dimension=1)
    for epsilon in (0.1, 0.5, 1.0, 3.0, 9.0):
        true = exact_delta(scale, (shift,), epsilon)
        assert true <= comparison(event).delta(epsilon)
        assert true <= RenyiCurve(profile=binomial_renyi(event)).delta(epsilon)


def test_the_comparison_is_tight_where_coins_are_many() -> None:
    event = Binomial(sensitivity=30.0, scale=90, dimension=1)
    for epsilon in (0.3, 1.0):
        true = exact_delta(90, (30,), epsilon)
        assert true <= comparison(event).delta(epsilon) <= 1.1 * true


def test_rare_sums_are_charged_once_however_large_epsilon_is() -> None:
    event = Binomial(sensitivity=5000.0, scale=512, dimension=1)
    assert binomial_slack(event).tail == 0.0
    assert delta_at([event], 100.0) == pytest.approx(gaussian_delta(100.0, 0.1024), rel=0.1)


@pytest.mark.parametrize("shifts", [(3, 4), (5, 0), (4, 4)])
def test_two_coordinates(shifts: tuple[int, int]) -> None:
    event = Binomial(sensitivity=math.hypot(*shifts), scale=10, dimension=2)
    for epsilon in (0.2, 0.6, 1.0):
        true = exact_delta(10, shifts, epsilon)
        assert true <= delta_at([event], epsilon)
        assert true <= RenyiCurve(profile=binomial_renyi(event)).delta(epsilon)


@pytest.mark.parametrize(("scale", "sensitivity"), [(2, 1.0), (3, 2.0), (4, 3.0)])
def test_few_coins_are_scanned(scale: int, sensitivity: float) -> None:
    """Where the window does not fit, only the whole support is left: nothing is promised."""
    event = Binomial(sensitivity=sensitivity, scale=scale, dimension=1)
    assert math.isinf(binomial_slack(event).shift)
    assert delta_at([event], 1.0) >= exact_delta(scale, (int(sensitivity),), 1.0)


def test_the_scan_holds_for_every_shift_and_order() -> None:
    event = Binomial(sensitivity=9.5, scale=30, dimension=1)
    profile, pmf = binomial_renyi(event), law(30)
    for shift, (order, value) in itertools.product(
        range(1, 10), zip(ORDERS, profile.values, strict=True)
    ):
        moved, still = pmf[:-shift], pmf[shift:]
        keep = (moved > 1e-200) & (still > 1e-200)
        logs = np.log(still[keep]) + order * (np.log(moved[keep]) - np.log(still[keep]))
        inner = logs[np.abs(np.arange(len(logs)) - len(logs) / 2) < 250]
        most = float(inner.max())
        divergence = (most + math.log(np.exp(inner - most).sum())) / (order - 1)
        assert divergence <= value * (shift / 9.5) ** 2 * (1 + 1e-6) + 1e-9


def test_log_ratios_are_those_of_the_law() -> None:
    pmf = law(20)
    ratios = log_ratios(800, 200)
    np.testing.assert_allclose(ratios, np.log(pmf[600:1001] / pmf[800]), atol=1e-11)


def test_noise_a_third_too_small_costs_half_as_much_again() -> None:
    """Coins of two thirds of the deviation cost half as much again."""
    m = gaussian_noise_multiplier(1.0, 1e-6)
    full = Binomial(sensitivity=100.0, scale=math.ceil(100 * m), dimension=15)
    thin = Binomial(sensitivity=100.0, scale=math.ceil(200 / 3 * m), dimension=15)
    assert 0.99 <= epsilon_at([full], 1e-6) <= 1.01
    assert epsilon_at([thin], 1e-6) > 1.4


def test_coins_compose_as_gaussians_do() -> None:
    event = Binomial(sensitivity=100.0, scale=1200, dimension=5)
    alone = Gaussian(noise_multiplier=12.0 / math.sqrt(7))
    together = epsilon_at([Repeated(event=event, count=5), Repeated(event=event, count=2)], 1e-6)
    assert epsilon_at([alone], 1e-6) <= together <= 1.01 * epsilon_at([alone], 1e-6)
    beside = epsilon_at([event, Gaussian(noise_multiplier=12.0)], 1e-6)
    assert beside == pytest.approx(epsilon_at([Gaussian(noise_multiplier=12 / 2**0.5)], 1e-6), 0.01)


def test_beside_zcdp_profiles_add() -> None:
    event = Binomial(sensitivity=20.0, scale=200, dimension=5)
    with_zcdp = epsilon_at([event, Zcdp(rho=0.005)], 1e-6)
    assert epsilon_at([Gaussian(noise_multiplier=10 / 2**0.5)], 1e-6) <= with_zcdp
    assert with_zcdp <= 1.1 * epsilon_at([Zcdp(rho=0.01)], 1e-6)
    assert epsilon_at([event, NonPrivate()], 1e-6) == math.inf


def test_the_event_is_stored_with_all_that_a_check_needs() -> None:
    event = Binomial(sensitivity=20.5, scale=200, dimension=5)
    assert event_from_dict(event.to_dict()) == event
    assert event.trials == 160_000
    with pytest.raises(InvalidValueError, match="scale"):
        Binomial(sensitivity=1.0, scale=0, dimension=1)


def test_the_published_constants() -> None:
    """Figures of the notes, and a certificate hundreds of times below the theorem."""
    constants = vector_sum(users=10_000, size=6, epsilon=1.0, delta=1e-5)
    assert (constants.levels, constants.coins) == (10, 104_579)
    reach = 2 * constants.levels / 2 + math.sqrt(6)
    scale = math.floor(math.sqrt(constants.users * constants.coins) / 2)
    real = epsilon_at([Binomial(sensitivity=reach, scale=scale, dimension=6)], 1e-5)
    assert real < 1 / 150
    assert gaussian_delta(1.0, scale / reach) < 1e-5
    for epsilon, delta in ((15.0, 1e-5), (1.0, 0.5)):
        with pytest.raises(InvalidValueError):
            vector_sum(users=100, size=3, epsilon=epsilon, delta=delta)
    for users in (0, 1):
        with pytest.raises(InvalidValueError, match="users"):
            vector_sum(users=users, size=3, epsilon=1.0, delta=1e-5)
    with pytest.raises(InvalidValueError, match="epsilon"):
        scalar_sum(users=100, epsilon=30.0, delta=1e-5)
    one = scalar_sum(users=400, epsilon=1.0, delta=1e-5)
    assert one.bits == one.levels + one.coins
    assert one.std < vector_sum(users=400, size=1, epsilon=1.0, delta=1e-5).std
