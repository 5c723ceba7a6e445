"""People's own data as a world: tables are read, and their public bounds are declared."""

from __future__ import annotations

from kerchief.data.declaration import Declaration
from kerchief.data.supervised import from_supervised
from kerchief.data.tables import Table, read_table

__all__ = ["Declaration", "Table", "from_supervised", "read_table"]
