"""Detection of results whose keys are those of an earlier version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_ROW_KEYS = {"world": "environment", "numbers": "parameters", "right": "found_best"}
_REGRET_KEYS = {"stuck": "unconverged"}


def describe_earlier_keys(rows: Sequence[Mapping[str, Any]]) -> str | None:
    """Describe the keys that rows have from an earlier version, or return None.

    >>> describe_earlier_keys([{"world": "ball", "regret": {"stuck": 0.0}}])
    "an earlier version wrote it: 'world' is 'environment' now, 'stuck' is 'unconverged' now"
    >>> describe_earlier_keys([{"environment": "ball", "regret": {"unconverged": 0.0}}])
    """
    row = rows[0] if rows else {}
    renamed = [
        f"{key!r} is {name!r} now"
        for section, names in ((row, _ROW_KEYS), (row.get("regret", {}), _REGRET_KEYS))
        for key, name in names.items()
        if key in section
    ]
    return f"an earlier version wrote it: {', '.join(renamed)}" if renamed else None
