"""The meaning of a privacy promise and its cost: guarantees, events, ledgers, accounting.

A `Guarantee` says what is promised; an event says what a mechanism did; calibration turns a
promise into an amount of noise; composition turns events back into a promise; a ledger is
charged before anything is released. Nothing here draws noise.
"""

from __future__ import annotations

from kerchief.privacy.calibration import (
    bun_steinke_epsilon,
    bun_steinke_rho,
    classical_gaussian_noise_multiplier,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_noise_multiplier,
    pure_rho,
    share,
    zcdp_delta,
    zcdp_epsilon,
    zcdp_rho,
)
from kerchief.privacy.composition import (
    delta_at,
    discrete_gaussian_noise_multiplier,
    epsilon_at,
    to_dp_event,
)
from kerchief.privacy.discrete_slack import Slack, slack
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
    "Slack",
    "Trust",
    "Zcdp",
    "bun_steinke_epsilon",
    "bun_steinke_rho",
    "classical_gaussian_noise_multiplier",
    "delta_at",
    "discrete_gaussian_noise_multiplier",
    "epsilon_at",
    "event_from_dict",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_noise_multiplier",
    "pure_rho",
    "share",
    "slack",
    "to_dp_event",
    "worst_case",
    "zcdp_delta",
    "zcdp_epsilon",
    "zcdp_rho",
]
