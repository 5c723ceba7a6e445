"""A problem without contexts: the server proposes an action, a user answers with one number."""

from __future__ import annotations

import dataclasses
from typing import Protocol, runtime_checkable

from jax import Array

from kerchief.core import validate
from kerchief.core.contracts import Tree
from kerchief.core.convex import Domain
from kerchief.core.errors import InvalidValue
from kerchief.core.random import Stream

__all__ = ["ContextFreeEnvironment", "ContextFreeProblem"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ContextFreeProblem:
    """The public facts about a problem, fixed before the first user arrives.

    Nothing here may be read from private data: losses beyond a bound are clipped on the device, a
    bound that is too large costs noise, and neither costs privacy.

    Attributes:
        horizon: number of rounds, and so of users.
        low: least loss of an action.
        high: greatest loss of an action.
        arms: how many actions there are; 0 where they are the points of a domain.
        domain: a convex set of actions; None where they are arms.
        lipschitz: bound on |f(x) - f(y)| / |x - y| for a user's loss f on a domain; 0 on arms.
        smoothness: bound on how fast the gradient of f changes; 0 says that there is none.
        convexity: f less half this times |x|² is convex; 0 promises no more than convexity.

    >>> ContextFreeProblem(horizon=100, low=0.0, high=1.0, arms=10).width
    1.0
    """

    horizon: int
    low: float
    high: float
    arms: int = 0
    domain: Domain | None = None
    lipschitz: float = 0.0
    smoothness: float = 0.0
    convexity: float = 0.0

    def __post_init__(self) -> None:
        """Check the facts: noise and clipping rest on them."""
        validate.plain(self)
        validate.whole("horizon", self.horizon, high=validate.MOST_ROUNDS)
        validate.between("low", self.low, -1e9, 1e9, closed=True)
        validate.between("high", self.high, self.low, 1e9, closed=True)
        validate.at_least("high - low", self.high - self.low, 1e-9)
        validate.whole("arms", self.arms, low=0, high=2**24)
        if (self.arms > 0) == (self.domain is not None):
            raise InvalidValue(
                f"arms is {self.arms} and domain is {self.domain}; a problem has one of the two"
            )
        least = 0.0 if self.domain is None else 1e-9
        validate.between("lipschitz", self.lipschitz, least, 1e9, closed=True)
        for name in ("smoothness", "convexity"):
            if validate.between(name, getattr(self, name), 0.0, 1e9, closed=True) > 0:
                validate.at_least(name, getattr(self, name), 1e-9)

    @property
    def width(self) -> float:
        """How far apart two losses can be."""
        return self.high - self.low

    @property
    def dim(self) -> int:
        """How many numbers name an action of a domain; 0 for arms."""
        return 0 if self.domain is None else self.domain.dim


@runtime_checkable
class ContextFreeEnvironment(Protocol):
    """A simulated world without contexts: the only thing that knows the truth.

    An action is an arm (a whole number), or points of a domain, one a row: one question each.
    """

    def problem(self, horizon: int) -> ContextFreeProblem:
        """The public facts that a policy may be built from."""

    def init(self, stream: Stream) -> Tree:
        """Draw what stays the same for the whole run, such as which arm is best."""

    def losses(self, world: Tree, action: Array, round: Array, stream: Stream) -> Array:
        """What this round's user loses by an action: one number a question."""

    def regret(self, world: Tree, action: Array, round: Array) -> Array:
        """Expected loss above that of the best fixed action, as a mean over the questions.

        For the recorder only.
        """

    def right(self, world: Tree, action: Array) -> Array:
        """Whether an arm is the best; no point of a domain ever is, exactly."""
