"""The meaning of a privacy promise and its cost: guarantees, events, ledgers, accounting.

Nothing here draws noise.
"""

from __future__ import annotations

from kerchief.privacy.calibration import (
    gaussian_delta,
    gaussian_epsilon,
    gaussian_noise_multiplier,
    share,
    zcdp_rho,
)
from kerchief.privacy.composition import delta_at, epsilon_at, to_dp_event
from kerchief.privacy.events import (
    Binomial,
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
    event_from_dict,
)
from kerchief.privacy.guarantee import Guarantee, Trust
from kerchief.privacy.ledger import Ledger, MemoryLedger
from kerchief.privacy.receipts import Charge, Cohort, Receipt
from kerchief.privacy.rules import worst_case

__all__ = [
    "Binomial",
    "Charge",
    "Cohort",
    "Composed",
    "DiscreteGaussian",
    "Event",
    "Gaussian",
    "Guarantee",
    "Laplace",
    "Ledger",
    "MemoryLedger",
    "NonPrivate",
    "Nothing",
    "RandomizedResponse",
    "Receipt",
    "Repeated",
    "Trust",
    "Zcdp",
    "delta_at",
    "epsilon_at",
    "event_from_dict",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_noise_multiplier",
    "share",
    "to_dp_event",
    "worst_case",
    "zcdp_rho",
]
