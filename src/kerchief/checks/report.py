"""What came of holding a subject to laws: law by law, with what was seen and how long it took."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from kerchief.checks.errors import CheckFailed, Failure, Law

__all__ = ["Outcome", "Report", "examine"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome(Failure):
    """What came of one law: where it is broken, what was seen; where that was expected, why."""

    subject: str
    result: Literal["kept", "broken", "excused", "not about it"]
    seconds: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """All outcomes, in the order in which the laws were looked at.

    >>> kept = Outcome(subject="mine", law="documented", result="kept", seconds=0.25)
    >>> print(Report(outcomes=(kept,)))
    mine
      kept            0.2 s  documented
    """

    outcomes: tuple[Outcome, ...]

    @property
    def failures(self) -> tuple[Outcome, ...]:
        """What is broken."""
        return tuple(one for one in self.outcomes if one.result == "broken")

    @property
    def kept(self) -> bool:
        """Whether nothing is broken."""
        return not self.failures

    def __add__(self, other: Report) -> Report:
        """Both, one after the other."""
        return Report(outcomes=(*self.outcomes, *other.outcomes))

    def __str__(self) -> str:
        """One line per law, below whom it was held to."""
        lines: list[str] = []
        for subject in dict.fromkeys(one.subject for one in self.outcomes):
            lines.append(subject)
            lines += [_line(one) for one in self.outcomes if one.subject == subject]
        return "\n".join(lines)

    def require(self) -> Report:
        """The report itself, if nothing is broken; else CheckFailed with every failure."""
        if self.kept:
            return self
        names = dict.fromkeys(one.subject for one in self.failures)
        raise CheckFailed(", ".join(names), self.failures)


def _line(one: Outcome) -> str:
    told = f"; seen: {one.seen}; expected: {one.expected}" if one.result == "broken" else ""
    return f"  {one.result:<12}{one.seconds:>7.1f} s  {one.law}{told}"


def examine(
    subject: Any, laws: Iterable[Law[Any]], *, expected_failures: Mapping[str, str]
) -> Report:
    """Hold a subject to laws; an expected failure (law: reason) must fail, or is reported."""
    excused = expected_failures
    return Report(outcomes=tuple(_outcome(subject, one, excused.get(one.name)) for one in laws))


def _outcome(subject: Any, law: Law[Any], excuse: str | None) -> Outcome:
    begun = time.perf_counter()
    result, seen, expected = _held(subject, law, excuse)
    return Outcome(
        subject=str(subject),
        law=law.name,
        result=result,
        seconds=time.perf_counter() - begun,
        seen=seen,
        expected=expected,
    )


def _held(subject: Any, law: Law[Any], excuse: str | None) -> tuple[Any, str, str]:
    """The result, what was seen, and what was expected."""
    try:
        law(subject)
    except CheckFailed as failed:
        (fault,) = failed.failures
        return ("excused", excuse, "") if excuse else ("broken", fault.seen, fault.expected)
    if excuse:
        return "broken", f"it holds, though it was expected to fail: {excuse}", "a failure"
    return "kept" if law.when(subject) else "not about it", "", ""
