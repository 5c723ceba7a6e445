"""A device's decisions in plain dictionaries, for as long as their object lives."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import closing
from typing import Any

from kerchief_device.file_rows import FileRows
from kerchief_device.rows import Cost, PostedModel, Row, T
from kerchief_protocol.errors import StoreError


class MemoryRows:
    """Rows for as long as the object lives; a step that fails is rolled back."""

    def __init__(self) -> None:
        """Create an empty store."""
        self._lock, self._is_closed = threading.Lock(), False
        self.secret = os.urandom(32)
        self._decisions: dict[tuple[bytes, bytes], Row] = {}
        self._chains: dict[bytes, tuple[int, bytes]] = {}
        self._charges: dict[bytes, tuple[Cost, int]] = {}
        self._undo_entries: list[tuple[dict[Any, Any], Any, Any]] = []

    def step(self, work: Callable[[], T]) -> T:
        """Do some work with exclusive use, all or nothing."""
        with self._lock:
            if self._is_closed:
                raise StoreError("the device's store is closed; make another one")
            try:
                return work()
            except BaseException:
                self._roll_back()
                raise
            finally:
                self._undo_entries.clear()

    def find(self, id: bytes, task: bytes) -> Row | None:
        """Return a decision of a task, or None if it is gone."""
        row = self._decisions.get((task, id))
        return None if row is None or row.state == "gone" else row

    def add(self, id: bytes, task: bytes, row: Row) -> None:
        """Add a decision, unless its id exists in this task."""
        if (task, id) not in self._decisions:
            self._set_entry(self._decisions, (task, id), row)

    def change(self, id: bytes, task: bytes, row: Row) -> None:
        """Replace a decision, which holds its model."""
        self._set_entry(self._decisions, (task, id), row)

    def drop(self, id: bytes, task: bytes) -> None:
        """Remove a decision."""
        self._set_entry(self._decisions, (task, id), None)

    def sweep(self, model: PostedModel | None) -> None:
        """Do nothing: decisions hold their models."""

    def due(self, task: bytes, now: float) -> tuple[bytes, ...]:
        """Return ids of decisions that are due or encoded, ordered by due time."""
        entries = [
            (row.due, id)
            for (owner, id), row in self._decisions.items()
            if owner == task
            and (row.state == "encoded" or (row.state != "gone" and row.due <= now))
        ]
        return tuple(id for _, id in sorted(entries))

    def chain(self, task: bytes) -> tuple[int, bytes] | None:
        """Return length and head of the longest chain that a signed model named."""
        return self._chains.get(task)

    def lengthen(self, task: bytes, length: int, head: bytes) -> None:
        """Remember a chain."""
        self._set_entry(self._chains, task, (length, head))

    def forget_chain(self, task: bytes) -> None:
        """Remember no chain of a task."""
        if task in self._chains:
            self._set_entry(self._chains, task, None)

    def spent(self) -> Cost:
        """Return the privacy cost of all reports."""
        charges = self._charges.values()
        return Cost(
            sum(cost.epsilon * reports for cost, reports in charges),
            sum(cost.delta * reports for cost, reports in charges),
        )

    def charge(self, task: bytes, cost: Cost) -> None:
        """Charge one report."""
        first, reports = self._charges.get(task, (cost, 0))
        self._set_entry(self._charges, task, (first, reports + 1))

    def erase(self, *, only_late: bool = False) -> None:
        """Do nothing: there is no journal."""

    def copy_to(self, path: str | os.PathLike[str]) -> None:
        """Write everything into a new file."""
        with closing(FileRows(path, secret=self.secret)) as file:
            self.step(lambda: file.step(lambda: self._write(file)))

    def close(self) -> None:
        """Forget everything."""
        with self._lock:
            self._is_closed = True
            for table in (self._decisions, self._chains, self._charges):
                table.clear()

    def _write(self, file: FileRows) -> None:
        for (task, id), row in self._decisions.items():
            file.add(id, task, row)
            file.change(id, task, row)
        for task, (length, head) in self._chains.items():
            file.lengthen(task, length, head)
        for task, (cost, reports) in self._charges.items():
            file.charge(task, cost, reports)

    def _set_entry(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        """Write or remove one entry, and note its earlier value for a roll-back."""
        self._undo_entries.append((table, key, table.get(key)))
        if value is None:
            del table[key]
        else:
            table[key] = value

    def _roll_back(self) -> None:
        for table, key, value in reversed(self._undo_entries):
            if value is None:
                table.pop(key, None)
            else:
                table[key] = value
