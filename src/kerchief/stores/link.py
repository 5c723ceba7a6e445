"""One connection while it is lent to one transaction: everything or nothing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from kerchief_protocol.errors import KerchiefError, StoreError

Values: TypeAlias = Sequence[Any]


class Link(ABC):
    """One connection to a database while it is lent to one transaction.

    Attributes:
        broken: whether nothing more can be done in the transaction.
        erased: whether something was deleted that must not be found any more.
    """

    broken = True
    erased = False

    @abstractmethod
    def begin(self, task: bytes | None) -> None:
        """Begin: exclusively for a task, or for reading if there is none."""

    @abstractmethod
    def commit(self) -> None:
        """Keep everything."""

    @abstractmethod
    def rollback(self) -> None:
        """Keep nothing; never fails."""

    @abstractmethod
    def run(self, statement: str, values: Values) -> list[Any]:
        """Run a statement with a question mark for each value, and fetch what it returns."""

    @abstractmethod
    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Values]) -> None:
        """Insert many rows at once, one after the other."""

    @abstractmethod
    def find(
        self, table: str, columns: Sequence[str], key: int, names: Sequence[bytes]
    ) -> Iterable[Any]:
        """Find the rows of a task whose first column is one of these names."""

    @abstractmethod
    def fault(self, error: Exception) -> KerchiefError | None:
        """Translate an error of the driver to one of kerchief; None for any other."""

    def guard(self) -> _Guard:
        """Break the transaction on the first failure: whatever came before was rolled back."""
        if self.broken:
            raise StoreError("the transaction is over; begin another one with `transaction`")
        return _Guard(self)

    @abstractmethod
    def end(self) -> None:
        """Let go of the connection, with no transaction open, whatever came before."""


class _Guard:
    """Context manager that breaks the transaction if its statement fails."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def __enter__(self) -> None:
        self._link.broken = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        if error is None:
            self._link.broken = False
        elif isinstance(error, Exception):
            store_error = self._link.fault(error)
            if store_error is not None:
                # The driver's own text may quote the row.
                raise store_error from None
