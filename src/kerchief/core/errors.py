"""Every error that kerchief raises on purpose; messages name the value, the bound and the remedy.

The tree::

    KerchiefError
    ├── InvalidValueError (ValueError)  a value is outside its bound
    ├── UnknownNameError (LookupError)  a name is not in a registry: names the nearest ones
    ├── BudgetExceededError             the ledger refused a charge; nothing was written
    ├── CapacityExceededError           more releases were asked for than were paid for
    ├── UnsupportedEventError           an accountant does not know an event
    ├── CodecError (ValueError)         a message does not decode to what it claims to be
    ├── RejectedError                   a report was not taken, and must be thrown away
    ├── FencedError                     a store, chain or task is not the one that was last seen
    ├── StoreError                      a store could not keep something; nothing is half written
    └── WriteError                      the disk takes no more; earlier files are still there

Those that devices raise too live in `kerchief_protocol.errors`. Two are warnings (UserWarning):
`WeakGuaranteeWarning`, a guarantee is allowed, but means little or is easily lost, and
`DelayedLearningWarning`, a bandit learns nothing for a while.
"""

from __future__ import annotations

from kerchief_protocol.errors import (
    BudgetExceededError,
    CapacityExceededError,
    CodecError,
    FencedError,
    InvalidValueError,
    KerchiefError,
    RejectedError,
    StoreError,
)

__all__ = [
    "BudgetExceededError",
    "CapacityExceededError",
    "CodecError",
    "DelayedLearningWarning",
    "FencedError",
    "InvalidValueError",
    "KerchiefError",
    "RejectedError",
    "StoreError",
    "UnknownNameError",
    "UnsupportedEventError",
    "WeakGuaranteeWarning",
    "WriteError",
]


class UnknownNameError(KerchiefError, LookupError):
    """A name is not registered.

    >>> from kerchief import make_environment
    >>> try:
    ...     make_environment(contexts="bell")
    ... except UnknownNameError as error:
    ...     print(str(error).partition(" Known")[0])
    no contexts is called 'bell'; did you mean 'ball'?
    """


class UnsupportedEventError(KerchiefError):
    """An accountant met an event that it cannot price.

    >>> from kerchief.privacy import event_from_dict
    >>> try:
    ...     event_from_dict({"kind": "a guess"})
    ... except UnsupportedEventError as error:
    ...     print(str(error).partition(";")[0])
    event kind 'a guess' is not known
    """


class WriteError(KerchiefError):
    """A result could not be written; what was written before is still there.

    >>> from kerchief import KerchiefError
    >>> issubclass(WriteError, KerchiefError)
    True
    """


class DelayedLearningWarning(UserWarning):
    """A bandit learns nothing before its window is over; says what to change.

    >>> issubclass(DelayedLearningWarning, UserWarning)
    True
    """


class WeakGuaranteeWarning(UserWarning):
    """A guarantee is allowed, but means little or is easily lost; says what to change.

    >>> issubclass(WeakGuaranteeWarning, UserWarning)
    True
    """
