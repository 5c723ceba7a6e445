"""A witness: it remembers the head of a chain elsewhere, and so knows a store that went back.

Whatever an aggregator answers was witnessed first. A store that was restored from a copy, or two
copies that both went on, then meet a witness that knows better. Nobody notices where store and
witness went back together.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from kerchief.stores.store import Store
from kerchief_protocol.canonical import read, write
from kerchief_protocol.errors import CodecError, FencedError, StoreError


class Witness(Protocol):
    """Remembers one head for each task."""

    def read(self, task: bytes) -> bytes | None:
        """The head that was last witnessed; None if there was none."""

    def swap(self, task: bytes, expected: bytes | None, new: bytes) -> None:
        """Witness a new head in the place of the one that the store last had witnessed.

        Raises:
            FencedError: the witness holds neither that nor the new one already.
        """


class NoWitness:
    """Remembers nothing: a store that went back is not noticed."""

    def read(self, task: bytes) -> bytes | None:
        """Return None: no head is remembered."""
        return None

    def swap(self, task: bytes, expected: bytes | None, new: bytes) -> None:
        """Agree to everything."""


class StoreWitness:
    """Remembers in another store, which must not be copied or restored together with the first."""

    def __init__(self, store: Store) -> None:
        """Remember in this store."""
        self._store = store

    def read(self, task: bytes) -> bytes | None:
        """The head that was last witnessed; None if there was none."""
        with self._store.read(task) as reader:
            return reader.witness()

    def swap(self, task: bytes, expected: bytes | None, new: bytes) -> None:
        """Witness a new head in the place of the expected one."""
        with self._store.transaction(task) as transaction:
            if _changes(transaction.witness(), expected, new):
                transaction.attest(new)


class FileWitness:
    """Remembers in a file, which must not be copied or restored together with the store.

    A new head replaces the file as a whole and is on disk before `swap` returns. Any number of
    processes may share the file; a file beside it is their lock.
    """

    def __init__(self, path: str | Path) -> None:
        """Remember in this file; it is made when the first head is witnessed."""
        self._path = Path(path)

    def read(self, task: bytes) -> bytes | None:
        """The head that was last witnessed; None if there was none."""
        with self._failing():
            return self._heads().get(task)

    def swap(self, task: bytes, expected: bytes | None, new: bytes) -> None:
        """Witness a new head in the place of the expected one."""
        # The file itself: a generator that an interrupt leaves open would keep the lock.
        with self._failing(), self._with_ending(".lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            heads = self._heads()
            if _changes(heads.get(task), expected, new):
                self._replace({**heads, task: new})

    def _heads(self) -> dict[bytes, bytes]:
        try:
            tree = read(self._path.read_bytes())
        except FileNotFoundError:
            return {}
        if not isinstance(tree, dict):
            raise CodecError("the heads are no table")
        return {bytes.fromhex(task): bytes.fromhex(head) for task, head in tree.items()}

    def _replace(self, heads: dict[bytes, bytes]) -> None:
        draft = self._with_ending(".new")
        with draft.open("wb") as file:
            file.write(write({task.hex(): head.hex() for task, head in heads.items()}))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self._path)
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _with_ending(self, ending: str) -> Path:
        return self._path.with_name(self._path.name + ending)

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError, TypeError) as error:
            raise StoreError(f"the witness {self._path} failed: {error}") from error


def _changes(current: bytes | None, expected: bytes | None, new: bytes) -> bool:
    """Whether there is something to write.

    Raises:
        FencedError: neither the expected head nor the new one is held.
    """
    if current == new:
        return False
    if current != expected:
        raise FencedError(
            "the witness holds another head than this store last had witnessed: the store was "
            "rolled back or copied, or another copy has gone on; begin a new epoch"
        )
    return True
