from __future__ import annotations

import importlib
import math
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kerchief.privacy import (
    Composed,
    DiscreteGaussian,
    Event,
    Gaussian,
    Laplace,
    NonPrivate,
    Nothing,
    RandomizedResponse,
    Repeated,
    Zcdp,
    delta_at,
    epsilon_at,
    gaussian_epsilon,
    gaussian_noise_multiplier,
    share,
    to_dp_event,
)
from kerchief.privacy.calibration import zcdp_delta
from kerchief.privacy.curves import LaplaceCurve
from kerchief.privacy.search import least, least_epsilon

dp_accounting: Any = importlib.import_module("dp_accounting")
SPECIAL = dp_accounting.NeighboringRelation.REPLACE_SPECIAL
MIXED = (Gaussian(noise_multiplier=5.0), Laplace(noise_multiplier=4.0))

closed: st.SearchStrategy[Event] = st.one_of(
    st.floats(0.5, 50.0).map(lambda x: Gaussian(noise_multiplier=x)),
    st.floats(0.0, 1.0).map(lambda x: Zcdp(rho=x)),
)


def test_gaussians_compose_to_one_gaussian() -> None:
    parts = [Gaussian(noise_multiplier=m) for m in share(3.0, [1, 2, 3.5])]
    assert epsilon_at(parts, 1e-6) == pytest.approx(gaussian_epsilon(1e-6, 3.0), rel=1e-9)
    many = [Repeated(event=Gaussian(noise_multiplier=12.0), count=16)]
    assert epsilon_at(many, 1e-6) == pytest.approx(gaussian_epsilon(1e-6, 3.0), rel=1e-12)


def test_ends_of_the_scale() -> None:
    assert epsilon_at([], 1e-5) == 0.0
    assert epsilon_at([Nothing()], 0.0) == 0.0
    assert epsilon_at([Repeated(event=NonPrivate(), count=0)], 0.0) == 0.0
    assert delta_at([Nothing()], 0.0) == 0.0
    assert epsilon_at([NonPrivate(), Nothing()], 1e-5) == math.inf
    assert delta_at([NonPrivate()], 100.0) == 1.0
    assert epsilon_at([Gaussian(noise_multiplier=100.0)], 0.0) == math.inf
    assert epsilon_at([Gaussian(noise_multiplier=1e-200)], 1e-5) == math.inf


def test_one_zcdp_event_sends_gaussians_through_zcdp() -> None:
    both = [Gaussian(noise_multiplier=5.0), Zcdp(rho=0.03)]
    assert epsilon_at(both, 1e-5) == pytest.approx(
        least_epsilon(partial(zcdp_delta, 0.05), 1e-5), rel=1e-12
    )


def test_pure_events() -> None:
    pure = [RandomizedResponse(epsilon=0.5), Laplace(noise_multiplier=2.0)]
    assert epsilon_at(pure, 0.0) == 1.0
    one = RandomizedResponse(epsilon=1.0)
    exact = math.log(math.e - 1e-3 * (1 + math.e))
    assert epsilon_at([one], 1e-3) == pytest.approx(exact, rel=1e-9)
    assert delta_at([one], 0.5) == pytest.approx((math.e - math.exp(0.5)) / (1 + math.e))
    many = [Repeated(event=RandomizedResponse(epsilon=0.1), count=100)]
    assert 1.0 < epsilon_at(many, 1e-6) < 6.0
    assert epsilon_at([Repeated(event=RandomizedResponse(epsilon=40.0), count=3)], 1e-6) <= 120.0


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 7.5])
def test_one_pure_event_is_priced_exactly(epsilon: float) -> None:
    laplace, response = Laplace(noise_multiplier=1 / epsilon), RandomizedResponse(epsilon=epsilon)
    module, step = dp_accounting.pld.privacy_loss_distribution, 1e-3
    stay = 2 / (1 + math.exp(epsilon))
    for event, losses in [
        (laplace, module.from_laplace_mechanism(1 / epsilon, value_discretization_interval=step)),
        (response, module.from_randomized_response(stay, 2, value_discretization_interval=step)),
    ]:
        points = [0.0, epsilon / 3, epsilon / 2, epsilon * 0.99]
        exact = [delta_at([event], point) for point in points]
        rounded = [losses.get_delta_for_epsilon(point) for point in points]
        assert exact == sorted(exact, reverse=True)
        assert exact == pytest.approx(rounded, abs=step)
        assert all(one <= other * (1 + 1e-9) for one, other in zip(exact, rounded, strict=True))
        for delta in exact:
            assert epsilon_at([event], delta) == pytest.approx(points[exact.index(delta)], abs=1e-9)
        assert delta_at([event], epsilon) == 0.0
        assert delta_at([event], 1.5 * epsilon) == 0.0
        assert epsilon_at([event], 0.0) == pytest.approx(epsilon, rel=1e-15)
        assert epsilon_at([event], 0.9999) == 0.0
    # Of two that promise the same, noise with a tail tells less than two answers do.
    assert delta_at([laplace], epsilon / 2) < delta_at([response], epsilon / 2)


@pytest.mark.parametrize("epsilon", [-3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0])
def test_the_laplace_curve_is_the_integral_of_its_densities(epsilon: float) -> None:
    """The part of one density above e^ε times the other, at every real ε."""
    width = 1e-4
    at = np.arange(-30.0, 31.0, width) + width / 2
    one, other = np.exp(-np.abs(at)) / 2, np.exp(-np.abs(at - 1.0)) / 2
    above = float(np.maximum(one - math.exp(epsilon) * other, 0.0).sum()) * width
    assert LaplaceCurve(total=1.0).delta(epsilon) == pytest.approx(above, abs=1e-7)


def test_repeated_randomized_response_costs_its_exact_binomial() -> None:
    # dp_accounting 0.6's own accountant drops the count here; this is the direct sum.
    n, epsilon, truth = 20, 0.3, math.exp(0.3) / (1 + math.exp(0.3))
    target = 2.0
    exact = sum(
        math.comb(n, k)
        * max(
            0.0,
            truth**k * (1 - truth) ** (n - k)
            - math.exp(target) * truth ** (n - k) * (1 - truth) ** k,
        )
        for k in range(n + 1)
    )
    ours = delta_at([Repeated(event=RandomizedResponse(epsilon=epsilon), count=n)], target)
    assert exact <= ours <= exact * 1.01


def test_mixed_agrees_with_the_loss_distribution_accountant() -> None:
    accountant = dp_accounting.pld.PLDAccountant(SPECIAL)
    accountant.compose(to_dp_event(Composed(events=MIXED)))
    assert epsilon_at(MIXED, 1e-5) == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-4)
    with_zcdp = epsilon_at([*MIXED, Zcdp(rho=1e-9)], 1e-5)
    assert epsilon_at(MIXED, 1e-5) <= with_zcdp < math.inf


@pytest.mark.parametrize(
    "event",
    [
        Gaussian(noise_multiplier=2.0),
        RandomizedResponse(epsilon=0.5),
        Zcdp(rho=0.1),
        DiscreteGaussian(sensitivity=2.0**19, scale=2**20, dimension=5),
    ],
)
def test_a_renyi_accountant_reads_an_upper_bound(event: Event) -> None:
    many = Repeated(event=event, count=7)
    accountant = dp_accounting.rdp.RdpAccountant(neighboring_relation=SPECIAL)
    accountant.compose(to_dp_event(many))
    assert epsilon_at([many], 1e-6) <= accountant.get_epsilon(1e-6) * (1 + 1e-9)


@pytest.mark.parametrize(("a", "b"), [(0.5, 0.5), (1.0, 0.2), (2.0, 1.5)])
@pytest.mark.parametrize("epsilon", [0.0, 0.4, 1.0])
def test_laplace_in_two_coordinates_is_no_worse_than_in_one(
    a: float, b: float, epsilon: float
) -> None:
    two = [Laplace(noise_multiplier=1 / a), Laplace(noise_multiplier=1 / b)]
    one = max(0.0, 1 - math.exp((epsilon - a - b) / 2))
    assert delta_at(two, epsilon) <= one + 1e-4
    assert delta_at([Laplace(noise_multiplier=1 / (a + b))], epsilon) == pytest.approx(
        one, abs=1e-4
    )


@given(events=st.lists(closed, min_size=1, max_size=5), more=closed, data=st.data())
@settings(max_examples=25, deadline=None)
def test_order_is_free_and_more_never_costs_less(
    events: list[Event], more: Event, data: st.DataObject
) -> None:
    epsilon = epsilon_at(events, 1e-5)
    assert epsilon_at(data.draw(st.permutations(events)), 1e-5) == epsilon
    assert epsilon_at([*events, more], 1e-5) >= epsilon * (1 - 1e-12)
    assert epsilon_at(events, 1e-4) <= epsilon
    if epsilon > 0:
        assert delta_at(events, epsilon) <= 1e-5


def test_mixed_order_is_free() -> None:
    assert epsilon_at(MIXED, 1e-5) == epsilon_at(MIXED[::-1], 1e-5)


@pytest.mark.parametrize(("scale", "dimension", "count"), [(2**20, 210, 1), (2**12, 15, 16)])
def test_discrete_calibration_fits_and_is_nearly_free(
    scale: int, dimension: int, count: int
) -> None:
    def releases(m: float) -> list[Event]:
        event = DiscreteGaussian(sensitivity=scale / m, scale=scale, dimension=dimension)
        return [Repeated(event=event, count=count)]

    m = least(lambda m: delta_at(releases(m), 1.0) <= 1e-6)
    total = releases(m)
    assert delta_at(total, 1.0) <= 1e-6
    assert epsilon_at(total, 1e-6) <= 1.0 + 1e-9
    ideal = gaussian_noise_multiplier(1.0, 1e-6) * math.sqrt(count)
    assert ideal <= m <= ideal * 1.001


def test_discrete_and_pure_mix() -> None:
    event = DiscreteGaussian(sensitivity=2.0**18, scale=2**20, dimension=10)
    smooth = [Gaussian(noise_multiplier=4.0), RandomizedResponse(epsilon=0.2)]
    ours = epsilon_at([event, smooth[1]], 1e-5)
    assert epsilon_at(smooth, 1e-5) <= ours <= epsilon_at(smooth, 1e-5) + 1e-6


def test_below_the_reach_of_the_loss_distribution_zcdp_answers() -> None:
    assert epsilon_at(MIXED, 1e-11) < math.inf
    assert epsilon_at(MIXED, 1e-11) > epsilon_at(MIXED, 1e-9)


def test_gaussian_of_vanishing_precision_has_a_price() -> None:
    """Its squared inverse multiplier is no float, and the price rounds up."""
    price = epsilon_at([Gaussian(noise_multiplier=1e300)], 1e-6)
    assert 0.0 <= price < 1e-100
