"""What is public about the single reports that a learner hears."""

from __future__ import annotations

from typing import Self

from jax import Array

from kerchief.core.errors import InvalidValueError
from kerchief.core.struct import static, struct
from kerchief.core.validate import between


@struct
class ReportDistribution:
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

        >>> ReportDistribution.clear(low=0.0, high=1.0).spread
        0.5
        """
        low = between("low", low, -1e9, 1e9, closed=True)
        high = between("high", high, low, 1e9, closed=True)
        return cls(low=low, high=high, spread=(high - low) / 2)

    @property
    def bounded(self) -> bool:
        """Whether reports have bounds."""
        return self.low is not None

    def unit(self, report: Array) -> Array:
        """A report within bounds as a number in [0, 1].

        For randomized bits this is the bit itself: a loss in [0, 1], in which a gap is as much
        smaller as the interval of reports is longer than that of losses.
        """
        assert self.low is not None
        assert self.high is not None
        return (report - self.low) / (self.high - self.low)

    def need_bounds(self, who: str) -> None:
        """Refuse reports without bounds."""
        if not self.bounded:
            raise InvalidValueError(
                f"{who} needs reports within bounds, and these have none; let devices send one "
                "randomized bit (randomizer 'one-bit'), or choose ucb or tsallis-iw"
            )

    def need_light(self, who: str) -> None:
        """Refuse tails that are heavier than normal ones."""
        if self.heavy:
            raise InvalidValueError(
                f"the widths of {who} are proved for sub-Gaussian reports, and these have heavier "
                "tails; choose randomizer 'one-bit' or 'gaussian', or mode 'tuned'"
            )
