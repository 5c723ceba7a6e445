"""Cache of factors of continual noise that earlier commands have searched for."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import os
from itertools import pairwise
from pathlib import Path

from kerchief.mechanisms import blt_fit


class KeptFactors(dict[tuple[int, int], tuple[float, ...]]):
    """Gaps of each factor, by horizon and buffers, in a file.

    No promise rests on the file: whatever gaps it holds, what they cost is computed from them. What
    is no factor is left out, and searched for again.
    """

    def __init__(self, file: Path) -> None:
        """Read the factors that the file holds."""
        super().__init__(_read_factors(file))
        self._file = file

    def __setitem__(self, key: tuple[int, int], gaps: tuple[float, ...]) -> None:
        """Store one more factor, together with those that other processes stored."""
        super().__setitem__(key, gaps)
        everything = _read_factors(self._file) | self
        lines = [[*place, list(factor)] for place, factor in sorted(everything.items())]
        # A cache is a convenience: a full disk must not stop anyone.
        with contextlib.suppress(OSError):
            draft = self._file.with_suffix(f".{os.getpid()}")
            draft.write_text(json.dumps(lines))
            draft.replace(self._file)


def keep_factors(folder: Path) -> None:
    """Keep factors in a folder, with one file per search code and library version."""
    search = Path(blt_fit.__file__).read_bytes() + importlib.metadata.version("scipy").encode()
    name = f"factors-{hashlib.sha256(search).hexdigest()[:16]}.json"
    blt_fit.found = KeptFactors(folder / name)


def _read_factors(file: Path) -> dict[tuple[int, int], tuple[float, ...]]:
    try:
        lines = json.loads(file.read_text())
        factors = {(int(horizon), int(buffers)): tuple(gaps) for horizon, buffers, gaps in lines}
        return {place: gaps for place, gaps in factors.items() if _is_factor(place[1], gaps)}
    except (OSError, ValueError, TypeError):
        return {}


def _is_factor(buffers: int, gaps: tuple[float, ...]) -> bool:
    inside = all(isinstance(gap, float) and 0 < gap < 1 for gap in gaps)
    return inside and len(gaps) == 2 * buffers and all(a < b for a, b in pairwise(gaps))
