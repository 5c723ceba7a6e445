"""Files of logs and of models that strangers wrote, in every format that we read."""

from __future__ import annotations

import functools
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from tests.fuzz.samples import LOGS
from tests.fuzz.targets import Target

from kerchief.cli.file_ledger import kept
from kerchief.core.errors import InvalidValueError
from kerchief.data import (
    Logs,
    OneArm,
    off_policy_value,
    read_dsjson,
    read_feedback,
    read_logs,
    read_model,
    write_dsjson,
    write_feedback,
    write_log_table,
)
from kerchief.privacy import Cohort, Gaussian, Guarantee, Trust

__all__ = ["BY_FILE", "files", "written"]

_RANGE: dict[str, Any] = {"low": 0.0, "high": 1.0}
_MODEL = b'{"by_arm": [[1, 0], [0, 1]], "intercepts": [0, 0.5]}'
_BUDGET = Guarantee(epsilon=9.0, delta=1e-5, trust=Trust.CENTRAL)


@functools.cache
def _folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="kerchief-logs-"))


@functools.cache
def written(ending: str) -> bytes:
    """The logs as a file of this kind."""
    path = _folder() / f"sample{ending}"
    match ending:
        case ".json":
            write_dsjson(LOGS, path)
        case ".npz":
            write_feedback(LOGS, path)
        case _:
            write_log_table(LOGS, path)
    return path.read_bytes()


def _placed(data: bytes, ending: str) -> Path:
    path = _folder() / f"{os.getpid()}{ending}"
    path.write_bytes(data)
    return path


def _dsjson(*, data: bytes) -> None:
    _sound(read_dsjson(_placed(data, ".json"), **_RANGE))


def _feedback(*, data: bytes) -> None:
    _sound(read_feedback(_placed(data, ".npz"), **_RANGE))


def _table(ending: str, *, data: bytes) -> None:
    _sound(read_logs(_placed(data, ending), reward_range=(0.0, 1.0), features="x0,x1"))


def _sound(logs: Logs) -> None:
    """What was read is within its bounds, and has a value."""
    assert ((logs.actions >= 0) & (logs.actions < logs.arms)).all()
    assert np.isfinite(logs.contexts).all()
    if logs.rows * logs.arms > 10**6:
        raise InvalidValueError("too large for here")
    found = off_policy_value(logs, OneArm(arm=0))
    assert logs.low <= found.low <= found.value <= found.high <= logs.high, "no interval"


def _model(*, data: bytes) -> None:
    scores = read_model(_placed(data, ".model.json")).scores(LOGS)
    assert np.isfinite(scores).all(), "an endless score"


def _kept(*, data: bytes) -> None:
    """A ledger's file that a stranger wrote: a refused one stays as it was."""
    path = _placed(data, ".ledger.json")
    with kept(path, _BUDGET) as ledger:
        before = len(ledger.receipts)
        ledger.charge(Gaussian(noise_multiplier=50.0), cohort=Cohort(first=0, last=9))
        assert len(ledger.receipts) == before + 1


@functools.cache
def _ledger() -> bytes:
    path = _folder() / "sample.ledger.json"
    with kept(path, _BUDGET) as ledger:
        ledger.charge(Gaussian(noise_multiplier=8.0), cohort=Cohort(first=0, last=9))
    return json.dumps(json.loads(path.read_bytes())).encode()


def _of_file(name: str, call: Callable[..., None], data: bytes) -> Target:
    return Target(
        name=name, call=call, samples={"data": (data,)}, held=frozenset({"data"}), weight=0.3
    )


def files() -> list[Target]:
    """All targets of this file."""
    return [
        _of_file("data.dsjson:read_dsjson", _dsjson, written(".json")),
        _of_file("data.open_bandit:read_feedback", _feedback, written(".npz")),
        *(
            _of_file(f"data.sources:logs in {end}", functools.partial(_table, end), written(end))
            for end in (".csv", ".parquet")
        ),
        _of_file("data.fixed_policies:read_model", _model, _MODEL),
        _of_file("cli.file_ledger:kept", _kept, _ledger()),
    ]


BY_FILE = {
    "data.dsjson:read_dsjson": "data.dsjson:read_dsjson",
    "data.dsjson:write_dsjson": "data.dsjson:read_dsjson",
    "data.fixed_policies:read_model": "data.fixed_policies:read_model",
    "data.open_bandit:read_feedback": "data.open_bandit:read_feedback",
    "data.open_bandit:to_feedback": "data.open_bandit:read_feedback",
    "data.open_bandit:write_feedback": "data.open_bandit:read_feedback",
    "data.sources:write_log_table": "data.sources:logs in .csv",
}
"""Constructors that read or write files, each with the target that calls it."""
