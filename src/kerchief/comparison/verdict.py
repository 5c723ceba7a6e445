"""What became of a claim about the results of a plan."""

from __future__ import annotations

import dataclasses
from typing import Literal, TypeAlias

Source: TypeAlias = Literal["ours", "paper"]
Recorded: TypeAlias = Literal["holds", "does not hold here"]
Outcome: TypeAlias = Literal["holds", "fails", "does not hold here", "undecided", "not judged"]

RECORDED: tuple[Recorded, ...] = ("holds", "does not hold here")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verdict:
    """Outcome of a claim, with the observed figures or why it was not judged.

    Attributes:
        recorded: the verdict that the catalogue records, which is "holds" for a claim of ours.
        confirmed: False where a claim of ours fails, or a paper's claim has another verdict than
            the recorded one; an undecided one differs at full size alone.
    """

    claim: str
    source: Source
    place: str
    outcome: Outcome
    recorded: Recorded
    confirmed: bool
    seen: str

    def difference(self) -> str:
        """Name the claim and what differs from its record.

        >>> verdict = Verdict(
        ...     claim="privacy is free", source="paper", place="Remark 3", outcome="holds",
        ...     recorded="does not hold here", confirmed=False, seen="5 against 5",
        ... )
        >>> verdict.difference()
        'privacy is free (paper, Remark 3): recorded as does not hold here, and holds'
        """
        if self.source == "ours":
            return self.claim
        return (
            f"{self.claim} (paper, {self.place}): recorded as {self.recorded}, and "
            f"{self._describe_outcome()}"
        )

    def _describe_outcome(self) -> str:
        return "is undecided" if self.outcome == "undecided" else self.outcome
