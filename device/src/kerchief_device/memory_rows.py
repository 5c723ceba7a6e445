"""A device's decisions in plain dictionaries, for as long as their object lives."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import closing
from typing import Any

from kerchief_device.file_rows import FileRows
from kerchief_device.rows import Cost, Posted, Row, T
from kerchief_wire.errors import StoreFailed


class MemoryRows:
    """Rows for as long as the object lives; a step that fails is taken back, write by write."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._lock, self._closed = threading.Lock(), False
        self.secret = os.urandom(32)
        self._decisions: dict[tuple[bytes, bytes], Row] = {}
        self._chains: dict[bytes, tuple[int, bytes]] = {}
        self._charges: dict[bytes, tuple[Cost, int]] = {}
        self._before: list[tuple[dict[Any, Any], Any, Any]] = []

    def step(self, work: Callable[[], T]) -> T:
        """Do some work with exclusive use, all or nothing."""
        with self._lock:
            if self._closed:
                raise StoreFailed("the device's store is closed; make another one")
            try:
                return work()
            except BaseException:
                self._take_back()
                raise
            finally:
                self._before.clear()

    def find(self, id: bytes, task: bytes) -> Row | None:
        """A decision of a task that is not gone."""
        row = self._decisions.get((task, id))
        return None if row is None or row.state == "gone" else row

    def add(self, id: bytes, task: bytes, row: Row) -> None:
        """Begin a decision, unless its id is known in this task."""
        if (task, id) not in self._decisions:
            self._put(self._decisions, (task, id), row)

    def change(self, id: bytes, task: bytes, row: Row) -> None:
        """Replace a decision, which holds its model."""
        self._put(self._decisions, (task, id), row)

    def drop(self, id: bytes, task: bytes) -> None:
        """Remove a decision."""
        self._put(self._decisions, (task, id), None)

    def sweep(self, model: Posted | None) -> None:
        """Nothing is left to do: decisions hold their models."""

    def due(self, task: bytes, now: float) -> tuple[bytes, ...]:
        """Decisions that are due or encoded, in the order in which they are due."""
        found = [
            (row.due, id)
            for (owner, id), row in self._decisions.items()
            if owner == task
            and (row.state == "encoded" or (row.state != "gone" and row.due <= now))
        ]
        return tuple(id for _, id in sorted(found))

    def chain(self, task: bytes) -> tuple[int, bytes] | None:
        """Length and head of the longest chain that a signed model named."""
        return self._chains.get(task)

    def lengthen(self, task: bytes, length: int, head: bytes) -> None:
        """Remember a chain."""
        self._put(self._chains, task, (length, head))

    def forget_chain(self, task: bytes) -> None:
        """Remember no chain of a task."""
        if task in self._chains:
            self._put(self._chains, task, None)

    def spent(self) -> Cost:
        """What all reports have cost."""
        paid = self._charges.values()
        return Cost(
            sum(cost.epsilon * reports for cost, reports in paid),
            sum(cost.delta * reports for cost, reports in paid),
        )

    def charge(self, task: bytes, cost: Cost) -> None:
        """Charge one report."""
        first, reports = self._charges.get(task, (cost, 0))
        self._put(self._charges, task, (first, reports + 1))

    def erase(self, *, only_late: bool = False) -> None:
        """There is no journal."""

    def copy_to(self, path: str | os.PathLike[str]) -> None:
        """Write everything into a new file."""
        with closing(FileRows(path, secret=self.secret)) as file:
            self.step(lambda: file.step(lambda: self._write(file)))

    def close(self) -> None:
        """Forget everything."""
        with self._lock:
            self._closed = True
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

    def _put(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        """Write one entry, or remove it, and note what was there."""
        self._before.append((table, key, table.get(key)))
        if value is None:
            del table[key]
        else:
            table[key] = value

    def _take_back(self) -> None:
        for table, key, value in reversed(self._before):
            if value is None:
                table.pop(key, None)
            else:
                table[key] = value
