"""Every error that kerchief raises on purpose; messages name the value, the bound and the remedy.

All derive from `KerchiefError`, but for one warning: `WeakPromise`.
"""

from __future__ import annotations

__all__ = [
    "BudgetExceeded",
    "CapacityExceeded",
    "CodecError",
    "InvalidValue",
    "KerchiefError",
    "UnknownName",
    "UnsupportedEvent",
    "WeakPromise",
    "WriteFailed",
]


class KerchiefError(Exception):
    """The root: catch this to catch everything that kerchief raises on purpose.

    >>> from kerchief import Guarantee
    >>> try:
    ...     Guarantee(epsilon=-1.0, delta=0.0, trust="local")
    ... except KerchiefError as error:
    ...     print(error)
    epsilon is -1.0; it must be finite and at least 0.0
    """


class InvalidValue(KerchiefError, ValueError):
    """A value lies outside its bound.

    >>> from kerchief import make_environment
    >>> make_environment(dim=0)
    Traceback (most recent call last):
    ...
    kerchief.core.errors.InvalidValue: dim is 0; it must be at least 1 and at most 64
    """


class UnknownName(KerchiefError, LookupError):
    """A name is not registered.

    >>> from kerchief import make_environment
    >>> try:
    ...     make_environment(contexts="bell")
    ... except UnknownName as error:
    ...     print(str(error).partition(" Known")[0])
    no contexts is called 'bell'; did you mean 'ball'?
    """


class BudgetExceeded(KerchiefError):
    """A charge would go over the budget; the ledger is as it was before.

    >>> from kerchief import Guarantee, MemoryLedger
    >>> from kerchief.privacy import Cohort, Gaussian
    >>> ledger = MemoryLedger(Guarantee(epsilon=1.0, delta=1e-6, trust="local"))
    >>> try:
    ...     ledger.charge(Gaussian(noise_multiplier=0.1), cohort=Cohort(first=0, last=1))
    ... except BudgetExceeded:
    ...     ledger.receipts
    ()
    """


class CapacityExceeded(KerchiefError):
    """One more release than was paid for; nothing was released.

    >>> from kerchief import Curator, Guarantee, MemoryLedger
    >>> ledger = MemoryLedger(Guarantee(epsilon=1.0, delta=1e-6, trust="local"))
    >>> Curator(privatizers={}, ledger=ledger, horizon=1).collect({})
    Traceback (most recent call last):
    ...
    kerchief.core.errors.CapacityExceeded: nothing was paid for yet; open the curator first
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


class CodecError(KerchiefError, ValueError):
    """A message does not decode.

    >>> from kerchief import Bandit
    >>> Bandit.load("{}")
    Traceback (most recent call last):
    ...
    kerchief.core.errors.CodecError: the text holds a dict, not a saved bandit
    """


class WriteFailed(KerchiefError):
    """A result could not be written; what was written before is still there.

    >>> from kerchief import KerchiefError
    >>> issubclass(WriteFailed, KerchiefError)
    True
    """


class WeakPromise(UserWarning):
    """A guarantee is allowed, but means little; says what to change.

    >>> issubclass(WeakPromise, UserWarning)
    True
    """
