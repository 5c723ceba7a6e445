"""A table of texts that a plan adds to its report."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """A table of texts, one per column in each line.

    Attributes:
        columns: one letter per column: l for words, r for numbers.
    """

    caption: str
    headings: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    columns: str
