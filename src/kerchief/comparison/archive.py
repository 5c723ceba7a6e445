"""Finished parts on disk, each in a file named by a digest of its inputs.

A file is complete or absent. A part whose file cannot be read, or holds another part, is played
again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import re
import zipfile
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from kerchief.comparison.chunks import Chunk, ChunkResult
from kerchief.comparison.run_folder import Folder
from kerchief.comparison.versions import machine, versions
from kerchief.core.errors import KerchiefError
from kerchief.privacy.guarantee import Guarantee
from kerchief.simulation.run import Run

_FACTS_KEY = "facts"
_FILE_NAME = re.compile(r"[0-9a-f]{64}\.npz")
_READ_ERRORS = (
    OSError,
    ValueError,
    KeyError,
    TypeError,
    EOFError,
    zipfile.BadZipFile,
    KerchiefError,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Archive:
    """Folder of finished parts.

    Attributes:
        mine: context that is entered before a part is written; it raises if the folder belongs to
            another run.
    """

    folder: Folder
    mine: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext

    def find(self, part: Chunk) -> ChunkResult | None:
        """Read the result of a part, or return None if there is no valid file."""
        address = part.address()
        try:
            return _decode((self.folder.path / f"{address}.npz").read_bytes(), address)
        except _READ_ERRORS:
            return None

    def keep(self, part: Chunk, played: ChunkResult) -> None:
        """Write the result of a part; an interrupt leaves a complete file or none."""
        address = part.address()
        content = _encode(played, address, part)
        with self.mine():
            self.folder.write(f"{address}.npz", content)

    def clear(self) -> None:
        """Remove every part, and nothing else."""
        for file in self.folder.path.iterdir():
            if _FILE_NAME.fullmatch(file.name):
                self.folder.remove(file.name)


def _encode(result: ChunkResult, address: str, part: Chunk) -> bytes:
    """Encode a result: arrays as they are, everything else as one JSON text."""
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    facts: dict[str, Any] = {}
    for field in dataclasses.fields(result.run):
        match getattr(result.run, field.name):
            case np.ndarray() as array:
                arrays[field.name] = array
            case Mapping() as arrays_by_name:
                facts[field.name] = list(arrays_by_name)
                arrays |= {f"{field.name}/{name}": array for name, array in arrays_by_name.items()}
            case Guarantee() as spent:
                facts[field.name] = spent.to_dict()
            case fact:
                facts[field.name] = fact
    about = {"cell": str(part.cell.key), "versions": versions(), "machine": machine()}
    per_report = None if result.alone is None else result.alone.to_dict()
    noise = {"noises": dict(result.noises), "per_report": per_report}
    text = json.dumps({"address": address, "run": facts, **noise, "about": about})
    stream = io.BytesIO()
    np.savez_compressed(stream, allow_pickle=False, **arrays, **{_FACTS_KEY: np.array(text)})
    return stream.getvalue()


def _decode(content: bytes, address: str) -> ChunkResult:
    with np.load(io.BytesIO(content), allow_pickle=False) as stored:
        arrays = dict(stored)
    document = json.loads(str(arrays.pop(_FACTS_KEY)))
    if document["address"] != address:
        raise ValueError("another part")
    fields: dict[str, Any] = {name: array for name, array in arrays.items() if "/" not in name}
    for name, value in document["run"].items():
        match name, value:
            case "spent", dict():
                fields[name] = Guarantee.from_dict(value)
            case _, list():
                fields[name] = {key: arrays[f"{name}/{key}"] for key in value}
            case _:
                fields[name] = value
    per_report = document["per_report"]
    return ChunkResult(
        run=Run(**fields),
        noises=document["noises"],
        alone=None if per_report is None else Guarantee.from_dict(per_report),
    )
