"""Every error that kerchief raises on purpose; messages name the value, the bound and the remedy.

The tree::

    KerchiefError
    ├── InvalidValue (ValueError)     a value is outside its bound
    ├── UnknownName (LookupError)     a name is not in a registry: names the nearest ones
    ├── BudgetExceeded                the ledger refused a charge; nothing was written
    ├── CapacityExceeded              a mechanism was asked for more releases than it was paid for
    ├── UnsupportedEvent              an accountant does not know an event
    ├── CodecError (ValueError)       a message does not decode to what it claims to be
    └── WriteFailed                   the disk takes no more; what was written before is still there

and one warning, `WeakPromise` (UserWarning): a guarantee is allowed, but means little.
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
    """The root: catch this to catch everything that kerchief raises on purpose."""


class InvalidValue(KerchiefError, ValueError):
    """A value lies outside its bound."""


class UnknownName(KerchiefError, LookupError):
    """A name is not registered."""


class BudgetExceeded(KerchiefError):
    """A charge would go over the budget; the ledger is as it was before."""


class CapacityExceeded(KerchiefError):
    """One more release than was paid for; nothing was released."""


class UnsupportedEvent(KerchiefError):
    """An accountant met an event that it cannot price."""


class CodecError(KerchiefError, ValueError):
    """A message does not decode."""


class WriteFailed(KerchiefError):
    """A result could not be written; what was written before is still there."""


class WeakPromise(UserWarning):
    """A guarantee is allowed, but means little; says what to change."""
