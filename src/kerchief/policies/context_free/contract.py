"""The words of a bandit without contexts: it proposes, a user answers one protected number.

This is the locally private reduction: K. Zheng, T. Cai, W. Huang, Z. Li, L. Wang, "Locally
differentially private (contextual) bandits learning" (2020), Algorithm 1. Any learner for losses
is a learner for protected losses, since a report has the loss as its mean. What the learner may
know about the rest of a report's law is in a `Channel`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Protocol, Self

import jax.numpy as jnp
from jax import Array

from kerchief.core.context_free import ContextFreeProblem
from kerchief.core.contracts import Outlook, Tree
from kerchief.core.errors import InvalidValue
from kerchief.core.queries import finite
from kerchief.core.random import Stream
from kerchief.core.struct import static, struct
from kerchief.core.validate import at_least, between, increasing

__all__ = ["LOSS", "Channel", "ContextFreePolicy", "Loss"]

LOSS = "loss"
"""The name of the one query."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Loss:
    """The sum over users of one number in an interval.

    Attributes:
        low: the number is clipped to at least this.
        high: the number is clipped to at most this.
        importance: the part of the privacy budget, relative to the policy's other queries.
        batches: none: there is one report a round.

    >>> Loss(low=0.0, high=1.0).encode(jnp.array(7.0)).tolist()
    [1.0]
    """

    low: float
    high: float
    importance: float = 1.0
    batches: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Check the bounds: privacy rests on them."""
        between("low", self.low, -1e9, 1e9, closed=True)
        between("high", self.high, self.low, 1e9, closed=True)
        at_least("high - low", self.high - self.low, 1e-9)
        between("importance", self.importance, 1e-9, 1e9, closed=True)
        increasing("batches", self.batches)

    @classmethod
    def of(cls, problem: ContextFreeProblem) -> Self:
        """The loss of one action."""
        return cls(low=problem.low, high=problem.high)

    @property
    def size(self) -> int:
        """One number."""
        return 1

    @property
    def sensitivity(self) -> float:
        """The length of the interval, which its two ends attain."""
        return self.high - self.low

    @property
    def center(self) -> float:
        """The middle of the interval."""
        return (self.low + self.high) / 2

    @property
    def radius(self) -> float:
        """Every number lies within this distance of the center."""
        return (self.high - self.low) / 2

    def encode(self, record: Array) -> Array:
        """Clip the number, always."""
        return jnp.clip(finite(jnp.reshape(record, (1,))), self.low, self.high)


@struct
class Channel:
    """What is public about a report before the first: facts of the mechanism, never of data.

    A report has the clipped number as its mean, whatever the channel.

    Attributes:
        low: least report; None where reports have no bounds.
        high: greatest report; None where reports have no bounds.
        spread: s such that a report less its mean has E exp(aZ) ≤ exp(a²s²/2) for every a, over
            all losses within the bounds; only a bound on its standard deviation where `heavy`.
        heavy: whether the tails are heavier than normal ones, so that no such s exists.
    """

    low: float | Array | None
    high: float | Array | None
    spread: float | Array
    heavy: bool = static(default=False)

    @classmethod
    def clear(cls, *, low: float, high: float) -> Self:
        """No noise: a report is the loss itself, and Hoeffding's lemma bounds its spread.

        >>> Channel.clear(low=0.0, high=1.0).spread
        0.5
        """
        between("low", low, -1e9, 1e9, closed=True)
        between("high", high, low, 1e9, closed=True)
        return cls(low=low, high=high, spread=(high - low) / 2)

    @property
    def bounded(self) -> bool:
        """Whether reports have bounds."""
        return self.low is not None

    def unit(self, report: Array) -> Array:
        """A report within bounds as a number in [0, 1].

        For randomized bits this is the bit itself: an honest loss, in which a gap is as much
        smaller as the interval of reports is longer than that of losses.
        """
        assert self.low is not None
        assert self.high is not None
        return (report - self.low) / (self.high - self.low)

    def need_bounds(self, who: str) -> None:
        """Refuse reports without bounds.

        Raises:
            InvalidValue: they have none.
        """
        if not self.bounded:
            raise InvalidValue(
                f"{who} needs reports within bounds, and these have none; let devices send one "
                "randomized bit (randomizer 'one-bit'), or choose ucb or tsallis-iw"
            )

    def need_light(self, who: str) -> None:
        """Refuse tails that are heavier than normal ones.

        Raises:
            InvalidValue: they are.
        """
        if self.heavy:
            raise InvalidValue(
                f"the widths of {who} are proved for sub-Gaussian reports, and these have heavier "
                "tails; choose randomizer 'one-bit' or 'gaussian', or mode 'tuned'"
            )


class ContextFreePolicy(Protocol):
    """A bandit without contexts: frozen parameters and pure functions, for one bandit."""

    @property
    def problem(self) -> ContextFreeProblem:
        """The public facts that it was built from."""

    @property
    def queries(self) -> Mapping[str, Loss]:
        """What it asks: `LOSS`, or nothing."""

    def init(self, outlook: Mapping[str, Outlook]) -> Tree:
        """Learner: the state before the first report."""

    def propose(self, state: Tree, round: Array, stream: Stream) -> Array:
        """Learner: the action of this round: an arm (int32), or points of the domain, a row each.

        Every row is a question of its own to the same user.
        """

    def answer(self, action: Array, losses: Array) -> Array:
        """Device: the one number to report, from the loss of each question."""

    def update(self, state: Tree, action: Array, report: Array, round: Array) -> Tree:
        """Learner: take in the report, an array of length 1. Draws nothing."""

    def stopped(self, state: Tree) -> Array:
        """Learner: whether nothing more is asked."""

    def recommend(self, state: Tree) -> Array:
        """Learner: the arm or the point that it would name now."""
