"""Errors of the wire, and the root of every error that kerchief raises on purpose."""

from __future__ import annotations

__all__ = [
    "BudgetExceeded",
    "CapacityExceeded",
    "CodecError",
    "Fenced",
    "InvalidValue",
    "KerchiefError",
    "Refused",
    "StoreFailed",
]


class KerchiefError(Exception):
    """The root: catch this to catch everything that kerchief raises on purpose."""


class InvalidValue(KerchiefError, ValueError):
    """A value lies outside its bound."""


class CodecError(KerchiefError, ValueError):
    """A message does not decode to what it claims to be."""


class BudgetExceeded(KerchiefError):
    """A charge would go over the budget; nothing was charged and nothing drawn."""


class CapacityExceeded(KerchiefError):
    """More was asked for than was paid for; nothing was released."""


class Refused(KerchiefError):
    """A report was not taken; it must be thrown away, never made again.

    Attributes:
        word: why, for programs: malformed, task, epoch, label, length, bounds, question, over.

    >>> Refused("label", "the open cohort wants more coins").word
    'label'
    """

    def __init__(self, word: str, message: str) -> None:
        """Say why, for programs and for people."""
        super().__init__(message)
        self.word = word


class Fenced(KerchiefError):
    """A store is not the one that was last seen: it was rolled back, copied or changed."""


class StoreFailed(KerchiefError):
    """A store could not do what it was asked for; nothing is half written."""
