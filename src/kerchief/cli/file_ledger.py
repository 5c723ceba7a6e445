"""Ledger in a file, written before any noise that it pays for is drawn."""

from __future__ import annotations

import contextlib
import fcntl
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from kerchief.comparison.run_folder import Folder
from kerchief.core.errors import CodecError, InvalidValueError
from kerchief.privacy.guarantee import Guarantee
from kerchief.privacy.ledger import MemoryLedger
from kerchief.privacy.receipts import Charge, Receipt


class _FileLedger(MemoryLedger):
    """Ledger whose receipts are in a file when a charge returns."""

    def __init__(self, budget: Guarantee, path: Path) -> None:
        """Create an empty ledger for this file."""
        super().__init__(budget)
        self._path = path
        self._write_lock = threading.Lock()

    def charge_all(self, bill: Sequence[Charge]) -> tuple[Receipt, ...]:
        """Charge every line of a bill or none, and write the file."""
        with self._write_lock:
            receipts = super().charge_all(bill)
            self._write_file()
        return receipts

    def settle(self, receipt: Receipt, used: int) -> Receipt:
        """Record the actual use of a charge, and write the file."""
        with self._write_lock:
            final_receipt = super().settle(receipt, used)
            self._write_file()
        return final_receipt

    def _write_file(self) -> None:
        folder = Folder(path=self._path.parent)
        folder.write(self._path.name, self.dumps().encode())


def budget_in(path: Path) -> Guarantee | None:
    """Return the budget of the ledger in a file, or None without a file.

    Raises:
        InvalidValueError: the file holds no ledger.
    """
    return _read_ledger(path).budget if path.exists() else None


@contextlib.contextmanager
def kept(path: Path, budget: Guarantee) -> Iterator[MemoryLedger]:
    """Open the ledger in a file, or begin one with this budget, under a lock.

    Raises:
        InvalidValueError: the file holds no ledger, or one with another budget.
    """
    Folder.at(path.parent)
    with path.with_name(f"{path.name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ledger = _FileLedger(budget, path)
        if path.exists():
            ledger._receipts = list(_read_receipts(path, budget))
        yield ledger


def _read_receipts(path: Path, budget: Guarantee) -> tuple[Receipt, ...]:
    ledger = _read_ledger(path)
    if ledger.budget != budget:
        raise InvalidValueError(
            f"{path} has the budget {ledger.budget.sentence()}, and {budget.sentence()} is asked "
            "for; ask for the same, or give another file"
        )
    return ledger.receipts


def _read_ledger(path: Path) -> MemoryLedger:
    if path.is_dir():
        raise InvalidValueError(f"the ledger {str(path)!r} is a folder; give the name of a file")
    try:
        if path.is_symlink() or path.stat().st_nlink > 1:
            raise InvalidValueError(
                f"the ledger {path} has another name, under which it would be paid from again; "
                "remove links to it and give the file itself"
            )
        text = path.read_text(encoding="utf-8")
        if not text.strip():
            raise InvalidValueError(
                f"the ledger {path} is empty, as none is that ever paid: remove it to begin a new "
                "one, or restore it from a copy if something was paid with it"
            )
        return MemoryLedger.loads(text)
    except (OSError, UnicodeDecodeError, CodecError) as error:
        raise InvalidValueError(
            f"the ledger {path} cannot be read ({error}): restore it from a copy, as what it paid "
            "for was spent, or give another file"
        ) from error
