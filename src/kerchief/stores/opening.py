"""Open a store by its name."""

from __future__ import annotations

from pathlib import Path

from kerchief.stores.memory import MemoryStore
from kerchief.stores.postgres import PostgresStore
from kerchief.stores.sqlite import SQLiteStore
from kerchief.stores.store import Store


def open_store(where: str | Path) -> Store:
    """Open a store: `postgresql://...`, the path of an SQLite file, or `:memory:`.

    Raises:
        StoreError: it cannot be opened, or a newer kerchief made it.

    >>> store = open_store(":memory:")
    >>> with store.read(b"task") as reader:
    ...     print(reader.row())
    None
    >>> store.close()
    """
    if str(where).startswith(("postgresql://", "postgres://")):
        return PostgresStore(str(where))
    return MemoryStore() if str(where) == ":memory:" else SQLiteStore(where)
