"""A population that one action reaches at once, and of which a few clients are asked."""

from __future__ import annotations

import dataclasses

from kerchief.core import validate
from kerchief.core.contracts import Problem

__all__ = ["PopulationProblem"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class PopulationProblem(Problem):
    """The public facts about a problem whose actions are public and common to all clients.

    Attributes:
        clients: how many clients there are; each is asked in one phase at most.
        spread: σ, how far a client's own parameter strays from the common one: sub-Gaussian, in
            every direction.

    >>> PopulationProblem(dim=2, arms=5, norm=1.0, radius=1.0, low=-1.0, high=1.0, horizon=100,
    ...       clients=10, spread=0.1).clients
    10
    """

    clients: int
    spread: float

    def __post_init__(self) -> None:
        """Check the facts: noise, clipping and widths rest on them."""
        super().__post_init__()
        validate.whole("clients", self.clients, high=validate.MOST_ROUNDS)
        validate.between("spread", self.spread, 0.0, 1e9, closed=True)
