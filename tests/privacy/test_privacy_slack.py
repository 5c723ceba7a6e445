from __future__ import annotations

import math

import numpy as np
import pytest

from kerchief.mechanisms.exact_gaussian import ExactGaussian
from kerchief.privacy import DiscreteGaussian, delta_at, epsilon_at, gaussian_delta
from kerchief.privacy.calibration import gaussian_noise_multiplier
from kerchief.privacy.discrete_slack import slack


def law(scale: int, shift: int, reach: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return the discrete Gaussian's probabilities on −reach..reach, summed exactly."""
    grid = np.arange(-reach, reach + 1, dtype=np.float64)
    wide = np.exp(-0.5 * (np.arange(-40 * scale, 40 * scale + 1) / scale) ** 2)
    return np.asarray(np.exp(-0.5 * ((grid - shift) / scale) ** 2) / math.fsum(wide))


def exact_delta(scale: int, shift: int, epsilon: float) -> float:
    reach = 40 * scale + shift
    here, there = law(scale, 0, reach), law(scale, shift, reach)
    return math.fsum(np.maximum(0.0, here - math.exp(epsilon) * there))


@pytest.mark.parametrize(
    "scale", [1, 2, 5, 20, *(pytest.param(s, marks=pytest.mark.nightly) for s in (100, 1000))]
)
@pytest.mark.parametrize("ratio", [0.3, 1.0, 2.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.0, 4.0])
def test_the_bound_covers_the_exact_delta(scale: int, ratio: float, epsilon: float) -> None:
    shift = max(1, round(scale * ratio))
    event = DiscreteGaussian(sensitivity=float(shift), scale=scale, dimension=1)
    stretch, moved, tail, outside = slack(event)
    assert outside == 0.0
    smooth = gaussian_delta(epsilon - moved, scale / shift)
    bound = math.exp(stretch) * smooth + math.exp(epsilon) * tail
    exact = exact_delta(scale, shift, epsilon)
    assert exact <= bound * (1 + 1e-9) + 1e-14
    assert exact <= delta_at([event], epsilon) * (1 + 1e-9) + 1e-14


@pytest.mark.parametrize("scale", [1, 5, 100])
@pytest.mark.parametrize("ratio", [4, 10, 30])
@pytest.mark.parametrize("share", [0.3, 0.8, 1.0, 1.3])
def test_the_second_form_covers_the_exact_delta(scale: int, ratio: int, share: float) -> None:
    event = DiscreteGaussian(sensitivity=float(scale * ratio), scale=scale, dimension=1)
    stretch, moved, tail, outside = slack(event)
    assert tail == 0.0
    assert outside > 0.0
    epsilon = share * ratio**2 / 2
    bound = math.exp(stretch) * gaussian_delta(epsilon - moved, 1 / ratio) + outside
    assert exact_delta(scale, scale * ratio, epsilon) <= bound * (1 + 1e-9) + 1e-14


@pytest.mark.parametrize("epsilon", [100.0, 300.0, 1000.0])
def test_noise_for_large_epsilon_is_priced_just_below_its_target(epsilon: float) -> None:
    multiplier = gaussian_noise_multiplier(epsilon, 1e-6)
    price = epsilon_at([ExactGaussian.matching(multiplier, 1.0, 20).event()], 1e-6)
    assert epsilon * (1 - 1e-4) < price <= epsilon


def test_without_slack_the_continuous_formula_would_be_wrong() -> None:
    # The planted fault: pricing a coarse discrete Gaussian as a continuous one.
    pairs = [(s, k, e) for s in (1, 2, 3) for k in (1, 2, 3) for e in (0.5, 1.0, 2.0)]
    assert any(exact_delta(s, k, e) > gaussian_delta(e, s / k) * (1 + 1e-6) for s, k, e in pairs)


@pytest.mark.parametrize("scale", [1, 3, 30, 1000])
def test_each_pointwise_inequality_of_the_proof(scale: int) -> None:
    k = np.arange(0, 14 * scale + 1, dtype=np.float64)
    p = law(scale, 0, 14 * scale)[14 * scale :]
    erfc = np.vectorize(math.erfc)
    root = scale * math.sqrt(2.0)
    q = 0.5 * (erfc((k - 0.5) / root) - erfc((k + 0.5) / root))
    ratio = np.log(q / p)
    normalizer = 3 * math.exp(-2 * (math.pi * scale) ** 2)
    assert np.all(ratio >= -1 / (24 * scale**2) - 1e-9)
    assert np.all(ratio <= k**2 / (24 * scale**4) + normalizer + 1e-9)


def test_slack_adds_over_dims_and_releases_and_fades_with_scale() -> None:
    one = slack(DiscreteGaussian(sensitivity=1.0, scale=1024, dimension=1))
    ten = slack(DiscreteGaussian(sensitivity=1.0, scale=1024, dimension=5), 2)
    assert ten == pytest.approx(tuple(10 * value for value in one))
    fine = slack(DiscreteGaussian(sensitivity=1.0, scale=2**24, dimension=210))
    assert fine.shift < 1e-11
    assert fine.tail < 1e-40


def test_coarse_grids_fall_back_on_zcdp() -> None:
    coarse = DiscreteGaussian(sensitivity=1.0, scale=2, dimension=1000)
    assert 0.0 < epsilon_at([coarse], 1e-6) < 10.0
