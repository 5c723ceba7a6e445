"""Where roles keep what must survive a crash: memory, SQLite or PostgreSQL, and a witness."""

from __future__ import annotations

from kerchief.stores.opening import open_store
from kerchief.stores.store import Question, Reader, Row, Store, Transaction
from kerchief.stores.witness import FileWitness, NoWitness, StoreWitness, Witness

__all__ = [
    "FileWitness",
    "NoWitness",
    "Question",
    "Reader",
    "Row",
    "Store",
    "StoreWitness",
    "Transaction",
    "Witness",
    "open_store",
]
