"""The public facts about a problem, one kind for each way in which people meet a bandit.

`Problem` is the contextual kind: every user brings arms, and the choice among them is private. In a
`PopulationProblem` one public action at a time reaches everyone, and a few are asked about it.
In a `ContextFreeProblem` the learner proposes a public action and one user answers with one number.
"""

from __future__ import annotations

import dataclasses
from typing import TypeAlias

from kerchief.core import validate
from kerchief.core.convex import Domain
from kerchief.core.errors import InvalidValueError
from kerchief.core.links import get_link

WHOLE_RECORD = "context, action and reward"
"""What is protected of a user who meets a bandit in private."""
_STEEPEST = 1e100
"""No device takes a task whose link is steeper."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Problem:
    """The public facts about a problem, fixed before the first user arrives.

    Nothing here may be read from private data. What lies beyond a bound is refused by `Bandit`, and
    clipped by devices and in simulations; a bound that is too large costs noise. Neither costs
    privacy.

    Attributes:
        dim: length of an arm's feature vector.
        arms: the most arms a user may meet.
        norm: bound on the Euclidean norm of a feature vector.
        radius: bound on the norm of the unknown parameter.
        low: least reward.
        high: greatest reward.
        horizon: number of rounds.
        constant: the value of the last coordinate where all arms share it (0 for none): with one, a
            constant may be taken off all rewards without changing which arm is best.
        link: how a score ⟨x, θ⟩ becomes an expected reward (`core.links`): a choice of model.
        own: how many of the last coordinates have a parameter of their own for every arm, told
            apart by the number of its row: 0 where all arms share one parameter, `dim` where they
            share none. The radius then bounds each arm's whole parameter.

    >>> Problem(dim=2, arms=3, norm=1.0, radius=1.0, low=0.0, high=1.0, horizon=100).link
    'linear'
    """

    dim: int
    arms: int
    norm: float
    radius: float
    low: float
    high: float
    horizon: int
    constant: float = 0.0
    link: str = "linear"
    own: int = 0

    def __post_init__(self) -> None:
        """Check the facts: noise and clipping rest on them."""
        validate.check_bounds(self)
        validate.whole("arms", self.arms, high=2**24)
        validate.whole("own", self.own, low=0, high=self.dim)
        validate.at_least("high - low", self.high - self.low, 1e-9)
        largest_score = self.norm * self.radius
        steepest = get_link(self.link).steepest(largest_score)
        if steepest > _STEEPEST:
            raise InvalidValueError(
                f"scores reach {largest_score:g}, where {self.link} rewards grow by {steepest:g} "
                f"for one more; that may be at most {_STEEPEST:g}: give a smaller radius or norm"
            )

    @property
    def protected(self) -> str:
        """What a promise is about: what of one user's could be replaced."""
        return WHOLE_RECORD


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
        if self.own:
            raise InvalidValueError(
                f"own is {self.own}; a population's actions share one parameter: 0"
            )
        validate.between("spread", self.spread, 0.0, 1e9, closed=True)

    @property
    def protected(self) -> str:
        """What a promise is about: a client answers once, for all of its rewards."""
        return "rewards (all of them; the actions are public)"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ContextFreeProblem:
    """A problem without contexts, fixed before the first user arrives; see `Problem`.

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
        validate.check_bounds(self)
        validate.at_least("high - low", self.high - self.low, 1e-9)
        validate.whole("arms", self.arms, low=0, high=2**24)
        if (self.arms > 0) == (self.domain is not None):
            raise InvalidValueError(
                f"arms is {self.arms} and domain is {self.domain}; a problem has one of the two"
            )
        least = 0.0 if self.domain is None else 1e-9
        validate.between("lipschitz", self.lipschitz, least, 1e9, closed=True)
        for name in ("smoothness", "convexity"):
            if validate.between(name, getattr(self, name), 0.0, 1e9, closed=True) > 0:
                validate.at_least(name, getattr(self, name), 1e-9)

    @property
    def protected(self) -> str:
        """What a promise is about; see `Problem.protected`."""
        return "answer to a public question"

    @property
    def width(self) -> float:
        """How far apart two losses can be."""
        return self.high - self.low

    @property
    def dim(self) -> int:
        """How many numbers name an action of a domain; 0 for arms."""
        return 0 if self.domain is None else self.domain.dim


AnyProblem: TypeAlias = Problem | ContextFreeProblem
"""A problem of any kind; a `PopulationProblem` is a `Problem` with clients."""
