"""Errors of the wire, and the root of every error that kerchief raises on purpose."""

from __future__ import annotations


class KerchiefError(Exception):
    """The root: catch this to catch everything that kerchief raises on purpose.

    >>> from kerchief_protocol.task import Task
    >>> try:
    ...     Task.read(b"{}")
    ... except KerchiefError as error:
    ...     print(type(error).__name__)
    CodecError
    """


class InvalidValueError(KerchiefError, ValueError):
    """A value lies outside its bound.

    >>> from kerchief_device import Budget
    >>> Budget(epsilon=-1.0)
    Traceback (most recent call last):
    ...
    kerchief_protocol.errors.InvalidValueError: the budget is epsilon -1.0 and delta 0.0; give at \
least 0, and a delta below 1
    """


class CodecError(KerchiefError, ValueError):
    """A message does not decode to what it claims to be.

    >>> from kerchief_protocol.report import Release
    >>> Release.read(b"kcr1")
    Traceback (most recent call last):
    ...
    kerchief_protocol.errors.CodecError: a release has at least 68 bytes; these are 4
    """


class BudgetExceededError(KerchiefError):
    """A charge would go over the budget; nothing was charged and nothing drawn.

    >>> from kerchief_device.pending import Budget, Cost
    >>> Budget(epsilon=1.0).pays(Cost(epsilon=1.5, delta=0.0))
    False
    >>> issubclass(BudgetExceededError, KerchiefError)
    True
    """


class CapacityExceededError(KerchiefError):
    """More was asked for than was paid for; nothing was released.

    >>> issubclass(CapacityExceededError, KerchiefError)
    True
    """


class RejectedError(KerchiefError):
    """A report was not taken; it must be thrown away, never made again.

    Attributes:
        word: why, for programs: malformed, task, epoch, label, length, bounds, question, over,
            client, spent.

    >>> RejectedError("label", "the open cohort wants more coins").word
    'label'
    """

    def __init__(self, word: str, message: str) -> None:
        """Say why, for programs and for people."""
        super().__init__(message)
        self.word = word


class FencedError(KerchiefError):
    """A store is not the one that was last seen: it was rolled back, copied or changed.

    >>> from kerchief_protocol.chain import check_chain
    >>> check_chain([])
    Traceback (most recent call last):
    ...
    kerchief_protocol.errors.FencedError: the chain is empty; it begins with the task
    """


class StoreError(KerchiefError):
    """A store could not do what it was asked for; nothing is half written."""
