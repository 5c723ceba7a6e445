"""What a learner that hears single reports may know of them: read off the noise that is added."""

from __future__ import annotations

import numpy as np

from kerchief.core.errors import InvalidValueError
from kerchief.core.report_distribution import ReportDistribution
from kerchief.mechanisms.gaussian import Gaussian
from kerchief.mechanisms.laplace import Laplace
from kerchief.mechanisms.one_bit import OneBit
from kerchief.mechanisms.privunit import PrivUnitG
from kerchief.privatizers.privatizer import Privatizer
from kerchief.privatizers.sums import CohortSums


def channel_of(privatizer: Privatizer) -> ReportDistribution:
    """What is public about single reports: their bounds, and how far each number spreads.

    The spread holds for every law of losses within the query's bounds: half the interval for what
    the loss itself does (Hoeffding), and beside it what the device's noise does.

    Raises:
        InvalidValueError: the noise is not on the device, or not one that is known here.
    """
    if not isinstance(privatizer, CohortSums) or privatizer.aggregator is not None:
        raise InvalidValueError(
            "the aggregator adds noise to sums, and this bandit learns from single reports; choose "
            "trust 'local' or 'none'"
        )
    device, query = privatizer.device, privatizer.query
    half = query.sensitivity / 2
    if device is None or float(device.std) == 0:
        center = np.asarray(query.center).item()
        return ReportDistribution.clear(low=center - half, high=center + half)
    match device:
        case OneBit():
            low, high = device.reports
            return ReportDistribution(low=low, high=high, spread=device.subgaussian)
        case Gaussian():
            return ReportDistribution(low=None, high=None, spread=(half**2 + device.std**2) ** 0.5)
        case Laplace() | PrivUnitG():
            deviation = (half**2 + device.std**2) ** 0.5
            return ReportDistribution(low=None, high=None, spread=deviation, heavy=True)
    bounded = "one-bit" if query.size == 1 else "privunit"
    raise InvalidValueError(
        f"nothing is known here about reports with noise of kind {type(device).__name__}; choose "
        f"randomizer {bounded!r}, or no word for the bandit's own, and idealized noise"
    )
