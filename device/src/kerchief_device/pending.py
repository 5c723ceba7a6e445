"""Decisions whose reports have not arrived yet, in memory or in a file, one transaction per step.

A row goes from `decided` to `rewarded` to `encoded` and is then removed. The step to `encoded`
writes the report's bytes, erases the record that they were made from and charges the user's own
ledger, all at once: so a report is made once, whatever crashes, and no second one of the same
record can be.

Raw records leave no trace in the files once they are erased: freed space is overwritten, and the
journal is emptied with every report that is made. That a disk forgets is not promised.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from kerchief_wire.errors import BudgetExceeded, Fenced, InvalidValue, KerchiefError, StoreFailed

__all__ = ["Bill", "Budget", "Cost", "Pending", "Row"]

_SCHEMA = """
CREATE TABLE IF NOT EXISTS models (name BLOB PRIMARY KEY, data BLOB NOT NULL)
    STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS decisions (id BLOB PRIMARY KEY, task BLOB NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('decided', 'rewarded', 'encoded', 'gone')),
    version INTEGER, model BLOB, features BLOB, due REAL NOT NULL, reward REAL, report BLOB)
    STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS decisions_by_model ON decisions (model);
CREATE INDEX IF NOT EXISTS decisions_by_due ON decisions (task, due);
CREATE TABLE IF NOT EXISTS chains (task BLOB PRIMARY KEY, length INTEGER NOT NULL,
    head BLOB NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS charges (task BLOB PRIMARY KEY, epsilon REAL NOT NULL,
    delta REAL NOT NULL, reports INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS client (only INTEGER PRIMARY KEY CHECK (only = 0),
    secret BLOB NOT NULL) STRICT;
"""
_SETTINGS = ("secure_delete=ON", "synchronous=FULL", "temp_store=MEMORY", "journal_mode=WAL")
_PATIENCE = 10.0
_EMPTY = "PRAGMA wal_checkpoint(TRUNCATE)"
_ERASE = "UPDATE decisions SET version = NULL, model = NULL, features = NULL, reward = NULL, "
_ENCODE = _ERASE + "state = 'encoded', report = ? WHERE id = ?"
_FORGET = _ERASE + "state = 'gone', report = NULL WHERE id = ?"
_COLUMNS = "state, version, model, features, due, reward, report, data"


class Cost(NamedTuple):
    """What one report costs its user."""

    epsilon: float
    delta: float


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What all reports of one user may cost together: epsilons add up, and so do deltas.

    Attributes:
        epsilon: the most in all.
        delta: the most in all.
    """

    epsilon: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        """Check the bounds."""
        if not (self.epsilon >= 0 and 0 <= self.delta < 1):
            raise InvalidValue(
                f"the budget is epsilon {self.epsilon} and delta {self.delta}; give at least 0, "
                "and a delta below 1"
            )

    def pays(self, cost: Cost) -> bool:
        """Whether it suffices, but for rounding of the sum."""
        return cost.epsilon <= self.epsilon * (1 + 1e-12) and cost.delta <= self.delta * (1 + 1e-12)


Bill: TypeAlias = tuple[Cost, Budget | None]
"""What a report costs, and what may be spent."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One decision.

    Attributes:
        state: decided, rewarded, encoded, or gone where only the id is remembered.
        version: of the model that chose.
        model: its name in the store.
        data: the model itself.
        features: of the chosen arm, as bytes; erased once the report is made.
        due: when the report is to be made.
        reward: that came; erased likewise.
        report: the bytes to send.
    """

    state: str
    version: int | None
    model: bytes | None = field(repr=False)
    features: bytes | None = field(repr=False)
    due: float
    reward: float | None = field(repr=False)
    report: bytes | None = field(repr=False)
    data: bytes | None = field(repr=False)


class Pending:
    """A store, safe for threads, and for several processes that each open the same file.

    Keep the file out of backups: a copy from before a report could make another one.

    Attributes:
        secret: 32 random bytes that the store was begun with, and that all its copies have.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        """Open or create it.

        Args:
            path: of a file that nobody but its owner can read; None keeps everything in memory,
                for as long as the object lives.

        Raises:
            StoreFailed: there can be no such file, or it is something else.
        """
        self._lock, self._process = threading.Lock(), os.getpid()
        self._lasting, self._stale = path is not None, False
        with _failing():
            if path is not None:
                os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
            name = ":memory:" if path is None else os.fspath(path)
            self._base = sqlite3.connect(
                name, timeout=_PATIENCE, isolation_level=None, check_same_thread=False
            )
            _set_up(self._base)
        with self._step() as base:
            for statement in _SCHEMA.split(";")[:-1]:
                base.execute(statement)
            base.execute("INSERT OR IGNORE INTO client VALUES (0, ?)", (os.urandom(32),))
            self.secret: bytes = base.execute("SELECT secret FROM client").fetchone()[0]
        self._empty()

    def copy_to(self, path: str | os.PathLike[str]) -> None:
        """Write everything into a new file, for a store that moves there."""
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        with self._lock:
            target = sqlite3.connect(path)
            self._base.backup(target)
            target.close()

    def close(self) -> None:
        """Close the store; nothing is lost but what was kept in memory."""
        with self._lock:
            self._base.close()

    def decided(
        self,
        id: bytes,
        task: bytes,
        *,
        due: float,
        version: int | None = None,
        model: tuple[bytes, bytes] | None = None,
        chain: tuple[int, bytes] | None = None,
        features: bytes | None = None,
    ) -> None:
        """Begin a decision; one that is known already stays as it is.

        Args:
            id: of the decision.
            task: whose decision it is.
            due: when its report is to be made.
            version: of the model that chose.
            model: its name and its bytes.
            chain: length and head of the chain that the model goes with.
            features: of the chosen arm.

        Raises:
            Fenced: the device has seen a longer chain, or another one of this length.
        """
        with self._step() as base:
            if chain is not None:
                _follow(base, task, *chain)
            begun = base.execute(
                "INSERT OR IGNORE INTO decisions VALUES (?, ?, 'decided', ?, ?, ?, ?, NULL, NULL)",
                (id, task, version, model and model[0], features, due),
            )
            if model is not None and begun.rowcount:
                base.execute("INSERT OR IGNORE INTO models VALUES (?, ?)", model)

    def rewarded(self, id: bytes, task: bytes, reward: float, more: bytes = b"") -> bool:
        """Note a reward; whether it counts: the first does, if it comes before the report is made.

        Args:
            id: of the decision.
            task: whose decision it is.
            reward: that came.
            more: what is added to the features, where a reward is more than one number.

        Raises:
            InvalidValue: there is no such decision.
        """
        with self._step() as base:
            row = _row(base, id, task)
            if row.state == "decided":
                features = row.features if not more else (row.features or b"") + more
                base.execute(
                    "UPDATE decisions SET state = 'rewarded', reward = ?, features = ? "
                    "WHERE id = ?",
                    (reward, features, id),
                )
            return row.state == "decided"

    def row(self, id: bytes, task: bytes) -> Row:
        """One decision.

        Raises:
            InvalidValue: there is no such decision.
        """
        with self._step() as base:
            return _row(base, id, task)

    def due(self, task: bytes, now: float) -> tuple[bytes, ...]:
        """Decisions whose reports are to be made, or were made and have not arrived."""
        with self._step() as base:
            found = base.execute(
                "SELECT id FROM decisions WHERE task = ? AND state <> 'gone' "
                "AND (due <= ? OR state = 'encoded') ORDER BY due, id",
                (task, now),
            )
            return tuple(one for (one,) in found)

    def encoded(
        self,
        id: bytes,
        task: bytes,
        make: Callable[[Row], bytes],
        *,
        bill: Bill | None = None,
    ) -> bytes:
        """The report of a decision: made and paid for at the first call, and then the same.

        Args:
            id: of the decision.
            task: whose decision it is.
            make: makes the report from the row; called once, unless it raises.
            bill: what the report costs its user, and what their budget is, if they have one.

        Raises:
            InvalidValue: there is no such decision.
            BudgetExceeded: the budget does not pay for it; the record is erased unreported.
        """
        with self._step() as base:
            row = _row(base, id, task)
            if row.report is not None:
                return row.report
            refusal = bill and _charge(base, task, *bill)
            if refusal is None:
                report = make(row)
                base.execute(_ENCODE, (report, id))
            else:
                base.execute("DELETE FROM decisions WHERE id = ?", (id,))
            _sweep(base, row.model)
        self._empty()
        if refusal is not None:
            raise refusal
        return report

    def gone(
        self, id: bytes, task: bytes, *, remember: bool = False, if_made: bool = False
    ) -> None:
        """Remove a decision; one that is not there stays away.

        Args:
            id: of the decision.
            task: whose decision it is.
            remember: keep the id.
            if_made: only if a report was made.
        """
        with self._step() as base:
            found = base.execute(
                "SELECT model, features, report FROM decisions WHERE id = ? AND task = ? "
                "AND state <> 'gone'",
                (id, task),
            ).fetchone()
            if found is None:
                return
            if remember and not (if_made and found[2] is None):
                base.execute(_FORGET, (id,))
            else:
                base.execute("DELETE FROM decisions WHERE id = ?", (id,))
            _sweep(base, found[0])
        if found[1] is not None:
            self._empty()

    def spent(self) -> Cost:
        """What all reports of this store have cost its user."""
        with self._step() as base:
            return _spent(base)

    def _empty(self) -> None:
        """Empty the journal, where erased records would stay; if someone reads it, soon after."""
        if not self._lasting:
            return
        with self._lock, _failing():
            self._base.execute("PRAGMA busy_timeout = 0")
            ((busy, *_),) = self._base.execute(_EMPTY).fetchall()
            self._base.execute(f"PRAGMA busy_timeout = {_PATIENCE * 1000:.0f}")
            self._stale = bool(busy)

    @contextmanager
    def _step(self) -> Iterator[sqlite3.Connection]:
        """One transaction, alone: in this process by the lock, among processes by the file's."""
        if os.getpid() != self._process:
            raise InvalidValue("the store was opened by another process; open it in this one")
        if self._stale:
            self._empty()
        with self._lock, _failing():
            self._base.execute("BEGIN IMMEDIATE")
            try:
                yield self._base
                self._base.execute("COMMIT")
            finally:
                if self._base.in_transaction:
                    self._base.execute("ROLLBACK")


@contextmanager
def _failing() -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError, ValueError) as fault:
        if isinstance(fault, KerchiefError):
            raise
        raise StoreFailed(f"the device's store failed: {fault}; nothing is half written") from fault


def _set_up(base: sqlite3.Connection) -> None:
    """Set everything; others who open the file at the same time may make it wait."""
    end = time.monotonic() + _PATIENCE
    for setting in _SETTINGS:
        while True:
            try:
                base.execute(f"PRAGMA {setting}").fetchall()
                break
            except sqlite3.OperationalError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.01)


def _row(base: sqlite3.Connection, id: bytes, task: bytes) -> Row:
    found = base.execute(
        f"SELECT {_COLUMNS} FROM decisions LEFT JOIN models ON name = model "
        "WHERE id = ? AND task = ? AND state <> 'gone'",
        (id, task),
    ).fetchone()
    if found is None:
        raise InvalidValue(
            f"no decision {id.hex()} is pending here; it was never made, or has been reported"
        )
    return Row(**dict(zip(_COLUMNS.split(", "), found, strict=True)))


def _sweep(base: sqlite3.Connection, name: bytes | None) -> None:
    """Drop a model that no decision needs any more."""
    base.execute(
        "DELETE FROM models WHERE name = ? "
        "AND NOT EXISTS (SELECT 1 FROM decisions WHERE model = ?)",
        (name, name),
    )


def _follow(base: sqlite3.Connection, task: bytes, length: int, head: bytes) -> None:
    """Remember the longest chain, and refuse a shorter or another one."""
    known = base.execute("SELECT length, head FROM chains WHERE task = ?", (task,)).fetchone()
    if known is not None and (length < known[0] or (length == known[0] and head != known[1])):
        raise Fenced(
            f"the model goes with a chain of {length} lines and the device has seen {known[0]}; "
            "the middle was rolled back, or tells devices different things"
        )
    if known is None or length > known[0]:
        base.execute("INSERT OR REPLACE INTO chains VALUES (?, ?, ?)", (task, length, head))


def _spent(base: sqlite3.Connection) -> Cost:
    rows = base.execute("SELECT epsilon * reports, delta * reports FROM charges").fetchall()
    return Cost(sum(row[0] for row in rows), sum(row[1] for row in rows))


def _charge(
    base: sqlite3.Connection, task: bytes, cost: Cost, budget: Budget | None
) -> BudgetExceeded | None:
    """Charge one report, or say why not; it is charged where nobody set a budget too."""
    spent = _spent(base)
    if budget is not None and not budget.pays(
        Cost(spent.epsilon + cost.epsilon, spent.delta + cost.delta)
    ):
        return BudgetExceeded(
            f"epsilon {spent.epsilon:g} and delta {spent.delta:g} are spent, and a report costs "
            f"{cost.epsilon:g} and {cost.delta:g}: more than the budget of {budget.epsilon:g} and "
            f"{budget.delta:g}; no report was made"
        )
    base.execute(
        "INSERT INTO charges VALUES (?, ?, ?, 1) "
        "ON CONFLICT (task) DO UPDATE SET reports = reports + 1",
        (task, *cost),
    )
    return None
