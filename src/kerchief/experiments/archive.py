"""Finished parts on disk, each in a file that is named by what was played.

A file is whole or not there. One that cannot be read, or holds another part than its name says, is
played anew.
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

from kerchief.core.errors import KerchiefError
from kerchief.experiments.folder import Folder
from kerchief.experiments.parts import Finished, Part
from kerchief.experiments.versions import machine, versions
from kerchief.privacy.guarantee import Guarantee
from kerchief.simulation.run import Run

_FACTS = "facts"
_NAME = re.compile(r"[0-9a-f]{64}\.npz")
_BROKEN = (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, KerchiefError)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Archive:
    """A folder of finished parts.

    Attributes:
        mine: entered before a part is written; raises where the folder is somebody else's.
    """

    folder: Folder
    mine: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext

    def find(self, part: Part) -> Finished | None:
        """What was recorded when the part was played, if it was."""
        address = part.address()
        try:
            return _decoded((self.folder.path / f"{address}.npz").read_bytes(), address)
        except _BROKEN:
            return None

    def keep(self, part: Part, played: Finished) -> None:
        """Write down what was recorded; an interrupt leaves the whole file or none."""
        address = part.address()
        content = _encoded(played, address, part)
        with self.mine():
            self.folder.write(f"{address}.npz", content)

    def clear(self) -> None:
        """Remove every part, and nothing else."""
        for file in self.folder.path.iterdir():
            if _NAME.fullmatch(file.name):
                self.folder.remove(file.name)


def _encoded(played: Finished, address: str, part: Part) -> bytes:
    """Arrays as they are; everything else as one JSON text."""
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    facts: dict[str, Any] = {}
    for field in dataclasses.fields(played.run):
        match getattr(played.run, field.name):
            case np.ndarray() as array:
                arrays[field.name] = array
            case Mapping() as named:
                facts[field.name] = list(named)
                arrays |= {f"{field.name}/{name}": array for name, array in named.items()}
            case Guarantee() as spent:
                facts[field.name] = spent.to_dict()
            case other:
                facts[field.name] = other
    about = {"cell": str(part.cell.key), "versions": versions(), "machine": machine()}
    alone = None if played.alone is None else played.alone.to_dict()
    noise = {"noises": dict(played.noises), "alone": alone}
    text = json.dumps({"address": address, "run": facts, **noise, "about": about})
    stream = io.BytesIO()
    np.savez_compressed(stream, allow_pickle=False, **arrays, **{_FACTS: np.array(text)})
    return stream.getvalue()


def _decoded(content: bytes, address: str) -> Finished:
    with np.load(io.BytesIO(content), allow_pickle=False) as stored:
        arrays = dict(stored)
    document = json.loads(str(arrays.pop(_FACTS)))
    if document["address"] != address:
        raise ValueError("another part")
    fields: dict[str, Any] = {name: one for name, one in arrays.items() if "/" not in name}
    for name, value in document["run"].items():
        match name, value:
            case "spent", dict():
                fields[name] = Guarantee.from_dict(value)
            case _, list():
                fields[name] = {one: arrays[f"{name}/{one}"] for one in value}
            case _:
                fields[name] = value
    alone = document["alone"]
    return Finished(
        run=Run(**fields),
        noises=document["noises"],
        alone=None if alone is None else Guarantee.from_dict(alone),
    )
