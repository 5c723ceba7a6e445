"""Laws, and what came of holding a subject to them: law by law what was seen, and what expected.

`CheckFailedError` joins the tree of `core.errors` below `KerchiefError`, and is an AssertionError
too, so that test runners show it as a failed test rather than as a crash.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, Literal, TypeVar

import jax
import numpy as np

from kerchief.core.errors import KerchiefError
from kerchief.core.precision import double_precision

S = TypeVar("S")


class BrokenLawError(Exception):
    """Raised inside a law: what was seen, and what was expected."""

    def __init__(self, *, seen: object, expected: object) -> None:
        """Keep both for the report."""
        super().__init__(f"seen: {seen}; expected: {expected}")
        self.seen, self.expected = str(seen), str(expected)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Failure:
    """What was seen of one law, and what was expected."""

    law: str
    seen: str = ""
    expected: str = ""

    def __str__(self) -> str:
        """One line of the report."""
        return f"[{self.law}] seen: {self.seen}; expected: {self.expected}"


class CheckFailedError(KerchiefError, AssertionError):
    """Laws are broken; `failures` holds each of them.

    >>> fault = Failure(law="masked arms are never chosen", seen="arm 2", expected="arm 0")
    >>> print(CheckFailedError("linucb under local", [fault]))
    linucb under local breaks 1 law:
      [masked arms are never chosen] seen: arm 2; expected: arm 0
    """

    def __init__(self, subject: str, failures: Iterable[Failure]) -> None:
        """Name the subject and list what it breaks."""
        self.subject, self.failures = subject, tuple(failures)
        count = len(self.failures)
        head = f"{subject} breaks {count} law{'' if count == 1 else 's'}:"
        super().__init__("\n  ".join([head, *map(str, self.failures)]))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Law(Generic[S]):
    """A named check of one kind of subject; calling it returns nothing or raises CheckFailedError.

    Its body raises `BrokenLawError`; `when` says which subjects it is about. A cheap one looks
    without playing, so that it is for every subject every day.
    """

    name: str
    body: Callable[[S], None]
    when: Callable[[Any], bool] = lambda subject: True
    cheap: bool = False

    def __str__(self) -> str:
        """The name."""
        return self.name

    @property
    def words(self) -> str:
        """First line of the law's docstring."""
        return (self.body.__doc__ or self.name).splitlines()[0]

    @double_precision
    def __call__(self, subject: S) -> None:
        """Hold the subject to this law, if the law is about it."""
        try:
            if self.when(subject):
                self.body(subject)
        # The subject is foreign code: whatever it raises breaks the law that it was held to.
        except Exception as error:
            observed, expected = f"{type(error).__name__}: {error}", "no error"
            if isinstance(error, BrokenLawError):
                observed, expected = error.seen, error.expected
            fault = Failure(law=self.name, seen=observed, expected=expected)
            raise CheckFailedError(str(subject), [fault]) from error


def law(
    *, when: Callable[[Any], bool] = lambda subject: True, cheap: bool = False
) -> Callable[[Callable[[S], None]], Law[S]]:
    """Make a function a law, named after it."""
    return lambda body: Law(name=body.__name__.replace("_", " "), body=body, when=when, cheap=cheap)


def laws_of(*bodies: Callable[[S], None], cheap: bool = False) -> tuple[Law[S], ...]:
    """Name each law after its function."""
    return tuple(law(cheap=cheap)(body) for body in bodies)


def expect(holds: object, *, seen: object, expected: object) -> None:
    """Raise Broken unless `holds`."""
    if not bool(holds):
        raise BrokenLawError(seen=seen, expected=expected)


def refused(kind: type[KerchiefError], act: Callable[[], object]) -> bool:
    """Whether an act raises this error."""
    try:
        act()
    except kind:
        return True
    return False


def expect_frozen(kind: Any) -> None:
    """Expect a class to be a frozen dataclass."""
    frozen = getattr(getattr(kind, "__dataclass_params__", None), "frozen", False)
    expect(frozen, seen=f"{kind.__name__} can be changed", expected="a frozen dataclass")


def same(first: Any, second: Any) -> bool:
    """Whether two trees have the same form and the same bits in every leaf.

    >>> same({"a": np.float32(1)}, {"a": np.float64(1)})
    False
    """
    forms: list[Any] = [jax.tree.structure(tree) for tree in (first, second)]
    bits = [[*map(_read_bits, jax.tree.leaves(tree))] for tree in (first, second)]
    return bool(forms[0] == forms[1]) and bits[0] == bits[1]


def _read_bits(leaf: Any) -> tuple[Any, ...]:
    array = np.asarray(leaf)
    return array.dtype, array.shape, array.tobytes()


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
        return tuple(outcome for outcome in self.outcomes if outcome.result == "broken")

    @property
    def kept(self) -> bool:
        """Whether nothing is broken."""
        return not self.failures

    def __add__(self, other: Report) -> Report:
        """Join the outcomes of two reports."""
        return Report(outcomes=(*self.outcomes, *other.outcomes))

    def __str__(self) -> str:
        """Format one line per law, grouped by subject."""
        lines: list[str] = []
        for subject in dict.fromkeys(outcome.subject for outcome in self.outcomes):
            lines.append(subject)
            lines += [
                _format_outcome(outcome) for outcome in self.outcomes if outcome.subject == subject
            ]
        return "\n".join(lines)

    def require(self) -> Report:
        """The report itself, if nothing is broken; else CheckFailedError with every failure."""
        if self.kept:
            return self
        names = dict.fromkeys(outcome.subject for outcome in self.failures)
        raise CheckFailedError(", ".join(names), self.failures)


def _format_outcome(outcome: Outcome) -> str:
    details = (
        f"; seen: {outcome.seen}; expected: {outcome.expected}"
        if outcome.result == "broken"
        else ""
    )
    return f"  {outcome.result:<12}{outcome.seconds:>7.1f} s  {outcome.law}{details}"


def examine(
    subject: Any, laws: Iterable[Law[Any]], *, expected_failures: Mapping[str, str]
) -> Report:
    """Hold a subject to laws; an expected failure (law: reason) must fail, or is reported."""
    excused = expected_failures
    return Report(outcomes=tuple(_examine_law(subject, law, excused.get(law.name)) for law in laws))


def _examine_law(subject: Any, law: Law[Any], excuse: str | None) -> Outcome:
    start = time.perf_counter()
    result, observed, expected = _judge(subject, law, excuse)
    return Outcome(
        subject=str(subject),
        law=law.name,
        result=result,
        seconds=time.perf_counter() - start,
        seen=observed,
        expected=expected,
    )


def _judge(subject: Any, law: Law[Any], excuse: str | None) -> tuple[Any, str, str]:
    """Return the result of a law, what was observed and what was expected."""
    try:
        law(subject)
    except CheckFailedError as failed:
        (fault,) = failed.failures
        if excuse is not None:
            return "excused", excuse, ""
        return "broken", fault.seen, fault.expected
    if excuse is not None:
        return "broken", f"it holds, though it was expected to fail: {excuse}", "a failure"
    return "kept" if law.when(subject) else "not about it", "", ""
