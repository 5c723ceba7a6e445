"""Every error that kerchief raises on purpose; messages name the value, the bound and the remedy.

The tree::

    KerchiefError
    ├── InvalidValue (ValueError)     a value is outside its bound
    ├── UnknownName (LookupError)     a name is not in a registry: names the nearest ones
    ├── BudgetExceeded                the ledger refused a charge; nothing was written
    ├── CapacityExceeded              a mechanism was asked for more releases than it was paid for
    ├── UnsupportedEvent              an accountant does not know an event
    ├── CodecError (ValueError)       a message does not decode to what it claims to be
    ├── Refused                       a report was not taken, and must be thrown away
    ├── Fenced                        a store, chain or task is not the one that was last seen
    ├── StoreFailed                   a store could not keep something; nothing is half written
    └── WriteFailed                   the disk takes no more; what was written before is still there

Those that devices raise too live in `kerchief_wire.errors`. There are two warnings (UserWarning):
`WeakPromise`, a guarantee is allowed, but means little or is easily lost, and
`DelayedLearningWarning`, a bandit learns nothing for a while.
"""

from __future__ import annotations

from kerchief_wire.errors import (
    BudgetExceeded,
    CapacityExceeded,
    CodecError,
    Fenced,
    InvalidValue,
    KerchiefError,
    Refused,
    StoreFailed,
)

__all__ = [
    "BudgetExceeded",
    "CapacityExceeded",
    "CodecError",
    "DelayedLearningWarning",
    "Fenced",
    "InvalidValue",
    "KerchiefError",
    "Refused",
    "StoreFailed",
    "UnknownName",
    "UnsupportedEvent",
    "WeakPromise",
    "WriteFailed",
]


class UnknownName(KerchiefError, LookupError):
    """A name is not registered.

    >>> from kerchief import make_environment
    >>> try:
    ...     make_environment(contexts="bell")
    ... except UnknownName as error:
    ...     print(str(error).partition(" Known")[0])
    no contexts is called 'bell'; did you mean 'ball'?
    """


class UnsupportedEvent(KerchiefError):
    """An accountant met an event that it cannot price.

    >>> from kerchief.privacy import event_from_dict
    >>> try:
    ...     event_from_dict({"kind": "a guess"})
    ... except UnsupportedEvent as error:
    ...     print(str(error).partition(";")[0])
    event kind 'a guess' is not known
    """


class WriteFailed(KerchiefError):
    """A result could not be written; what was written before is still there.

    >>> from kerchief import KerchiefError
    >>> issubclass(WriteFailed, KerchiefError)
    True
    """


class DelayedLearningWarning(UserWarning):
    """A bandit learns nothing before its window is over; says what to change.

    >>> issubclass(DelayedLearningWarning, UserWarning)
    True
    """


class WeakPromise(UserWarning):
    """A guarantee is allowed, but means little or is easily lost; says what to change.

    >>> issubclass(WeakPromise, UserWarning)
    True
    """
