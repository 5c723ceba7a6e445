"""All that this room uses of scipy and dp_accounting, with types, which neither library ships.

dp_accounting (almost two seconds to import) waits until it is needed.
"""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any, Protocol

import numpy as np

_special: Any = importlib.import_module("scipy.special")


class LossDistribution(Protocol):
    """The part of dp_accounting's privacy loss distribution that we use."""

    def compose(self, other: LossDistribution) -> LossDistribution:
        """Return the distribution of both on the same data."""

    def self_compose(self, num_times: int) -> LossDistribution:
        """Return the distribution of so many runs."""

    def get_epsilon_for_delta(self, delta: float) -> float:
        """Return the least ε at this δ."""

    def get_delta_for_epsilon(self, epsilon: float) -> float:
        """Return the least δ at this ε."""


def erfcx(x: float) -> float:
    """Return exp(x²) erfc(x), which stays exact far in the tail."""
    return float(_special.erfcx(x))


def ndtr(x: float) -> float:
    """Return the standard normal distribution function."""
    return float(_special.ndtr(x))


def beta_tail(heads: Any, coins: Any) -> Any:
    """Return the chance of at least so many heads (1 to coins) among fair coins, for arrays."""
    return _special.betainc(heads, coins - heads + 1, 0.5)


def beta_quantile(share: float, one: float, other: float) -> float:
    """Return where the beta distribution function with these parameters has this value."""
    return float(_special.betaincinv(one, other, share))


def binomial_chances(trials: int, chance: float) -> list[float]:
    """Return the chance of every number of hits, from 0 to all."""
    hits = np.arange(trials + 1)
    with np.errstate(divide="ignore"):
        logs = (
            _special.gammaln(trials + 1)
            - _special.gammaln(hits + 1)
            - _special.gammaln(trials - hits + 1)
            + _special.xlogy(hits, chance)
            + _special.xlog1py(trials - hits, -chance)
        )
    return [float(value) for value in np.exp(logs)]


@cache
def dp_events() -> Any:
    """Return dp_accounting's module of events."""
    return importlib.import_module("dp_accounting.dp_event")


@cache
def loss_distributions() -> Any:
    """Return dp_accounting's module of privacy loss distributions."""
    return importlib.import_module("dp_accounting.pld.privacy_loss_distribution")


def loss_accountant(grid: float, *, special: bool) -> Any:
    """Return dp_accounting's accountant of privacy losses on a grid.

    Where `special`, sensitivities are replacement distances already, as ours are; otherwise a
    Gaussian's is taken to be half of one.
    """
    module = importlib.import_module("dp_accounting.pld.pld_privacy_accountant")
    relations = importlib.import_module("dp_accounting").NeighboringRelation
    relation = relations.REPLACE_SPECIAL if special else relations.REPLACE_ONE
    return module.PLDAccountant(relation, grid)


def divergence_accountant() -> Any:
    """Return dp_accounting's accountant of Rényi divergences, for replacement distances."""
    relations = importlib.import_module("dp_accounting").NeighboringRelation
    return importlib.import_module("dp_accounting.rdp").RdpAccountant(
        neighboring_relation=relations.REPLACE_SPECIAL
    )
