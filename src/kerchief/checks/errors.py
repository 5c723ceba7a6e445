"""Laws and their failures: what was broken, what was seen, what was expected.

`CheckFailed` joins the tree of `core.errors` below `KerchiefError`, and is an AssertionError too,
so that test runners show it as a failed test rather than as a crash.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

import jax
import numpy as np

from kerchief.core.errors import KerchiefError
from kerchief.core.precision import double_precision

__all__ = ["Broken", "CheckFailed", "Failure", "Law", "expect", "law", "laws_of", "same"]

S = TypeVar("S")


class Broken(Exception):
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


class CheckFailed(KerchiefError, AssertionError):
    """Laws are broken; `failures` holds each of them.

    >>> fault = Failure(law="masked arms are never chosen", seen="arm 2", expected="arm 0")
    >>> print(CheckFailed("linucb under local", [fault]))
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
    """A named check of one kind of subject; calling it returns nothing or raises CheckFailed.

    Its body raises `Broken`; `when` says which subjects it is about. A cheap one looks without
    playing, so that it is for every subject every day.
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
        """What it says, in one line."""
        return (self.body.__doc__ or self.name).splitlines()[0]

    @double_precision
    def __call__(self, subject: S) -> None:
        """Hold the subject to this law, if the law is about it."""
        try:
            if self.when(subject):
                self.body(subject)
        # The subject is foreign code: whatever it raises breaks the law that it was held to.
        except Exception as error:
            seen, expected = f"{type(error).__name__}: {error}", "no error"
            if isinstance(error, Broken):
                seen, expected = error.seen, error.expected
            fault = Failure(law=self.name, seen=seen, expected=expected)
            raise CheckFailed(str(subject), [fault]) from error


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
        raise Broken(seen=seen, expected=expected)


def same(first: Any, second: Any) -> bool:
    """Whether two trees have the same form and the same bits in every leaf.

    >>> same({"a": np.float32(1)}, {"a": np.float64(1)})
    False
    """
    forms: list[Any] = [jax.tree.structure(tree) for tree in (first, second)]
    if forms[0] != forms[1]:
        return False
    pairs = zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True)
    return all(_same_leaf(np.asarray(a), np.asarray(b)) for a, b in pairs)


def _same_leaf(a: Any, b: Any) -> bool:
    return bool(a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes())
