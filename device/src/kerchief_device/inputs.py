"""What applications and roles pass to a device, checked against the task."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kerchief_device.record import answer
from kerchief_protocol.canonical import unpack
from kerchief_protocol.errors import CodecError, InvalidValueError, RejectedError
from kerchief_protocol.model import Model, Status
from kerchief_protocol.noise import Floats
from kerchief_protocol.programs import Answering, DisjointModels, Library, Optimist, Phased
from kerchief_protocol.task import Task

Features: TypeAlias = Mapping[str, Sequence[float]] | Sequence[Sequence[float]] | NDArray[Any]
"""Rows of numbers, one for each arm, or such rows by the arms' names."""

# A task begins anew by hand, after a disaster, each time with new users.
_MAX_EPOCHS = 2**10
# Whoever scales features in single precision may be a little outside.
_SLACK = 1 + 1e-6


def check_default(task: Task) -> None:
    """Refuse a default reward outside the bounds of the program."""
    program, default = task.program, task.reward.default
    low, high = (-math.inf, math.inf)
    if isinstance(program, Optimist | DisjointModels | Answering | Phased):
        low, high = program.low, program.high
    if not (math.isfinite(default) and low <= default <= high):
        raise InvalidValueError(
            f"the reward of a decision that gets none is {default}; it must be {low} to {high}: "
            "make the task anew"
        )


def check_chain_length(task: Task, model: Model) -> None:
    """Refuse a chain longer than any of this task, since a device remembers the longest.

    A chain has a first and a last line, and one line for each release, each epoch, each charge and
    each charge that the end settles. A charge is for one query and users of its own.
    """
    charges = (_MAX_EPOCHS + 1) * len(task.queries) * task.horizon
    limit = 2 + task.cohorts + _MAX_EPOCHS + charges
    if not 0 <= model.length <= limit:
        raise InvalidValueError(
            f"the model goes with a chain of {model.length} lines; this task's has at most "
            f"{limit}: read the billboard again"
        )


def check_status(task: Task, status: Status) -> None:
    """Refuse a status whose task is over, or whose label or epoch no report can carry."""
    if status.state != "running":
        raise RejectedError("over", f"the task is {status.state[:20]} and takes no reports")
    label_count = max(1, len(task.needs))
    if not (0 <= status.label < label_count and 0 <= status.epoch < 2**32):
        raise InvalidValueError(
            f"the status wants label {status.label} and epoch {status.epoch}; labels are below "
            f"{label_count}: ask the aggregator again"
        )


def read_id(text: str) -> bytes:
    """Read the id of a decision from its text."""
    try:
        data = bytes.fromhex(text)
    except (TypeError, ValueError):
        data = b""
    if len(data) != 16:
        # Not what it is: whoever confuses the arguments gives a reward here.
        raise InvalidValueError("the id is no text of 32 hexadecimal digits; give one from decide")
    return data


def read_reward(task: Task, value: Any) -> float:
    """Reduce a reward, or losses, to one number within the public bounds."""
    program = task.program
    if isinstance(program, Answering):
        return answer(program, value if isinstance(value, Sequence | np.ndarray) else [value])
    low, high, _ = _bounds(task)
    number = read_number(value)
    if number is None or not low <= number <= high:
        raise InvalidValueError(
            f"the reward is out of range or no number; it must be {low} to {high}: scale or clip it"
        )
    return number


def read_number(value: Any) -> float | None:
    """Convert a finite real number to a float; return None for anything else."""
    if not isinstance(value, int | float | np.integer | np.floating) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def read_rows(features: Features) -> tuple[Floats, list[str] | None]:
    """Return the arms as rows of float64, and their names if they have any."""
    names = list(features) if isinstance(features, Mapping) else None
    raw_rows = list(features.values()) if isinstance(features, Mapping) else features
    try:
        rows = np.asarray(raw_rows)
    except (TypeError, ValueError):
        rows = np.empty(0)
    if rows.ndim != 2 or not rows.size or rows.dtype.kind not in "fiu":
        raise InvalidValueError(
            f"the features have shape {rows.shape} and type {rows.dtype}; give one row of numbers "
            "for each arm, all of one length"
        )
    return rows.astype(np.float64, copy=False), names


def has_numbered_arms(task: Task) -> bool:
    """Whether each arm has a model, which its number identifies."""
    is_declared = isinstance(task.problem, dict) and bool(task.problem.get("own"))
    return is_declared or isinstance(task.program, DisjointModels)


def check_rows(task: Task, rows: Floats) -> None:
    """Refuse rows outside the public bounds: what is learned from them would be wrong."""
    program = task.program
    if isinstance(program, Optimist | DisjointModels):
        dim = program.dim if task.projection is None else task.projection.dim
        if rows.shape[1] != dim or rows.shape[0] > program.arms:
            raise InvalidValueError(
                f"there are {rows.shape[0]} arms of {rows.shape[1]} features; the task takes up to "
                f"{program.arms} arms of {dim}"
            )
    _, _, norm = _bounds(task)
    if norm == math.inf:
        if not np.isfinite(rows).all():
            raise InvalidValueError("a feature is not finite; every one must be")
        return
    longest = math.sqrt(float(np.einsum("ij,ij->i", rows, rows).max()))
    if not longest <= norm * _SLACK:
        # Not how long they are: errors end up in logs, and a context must not.
        raise InvalidValueError(
            f"an arm's features are too long or not finite; their norm must be at most {norm:g}: "
            "scale them"
        )


def _bounds(task: Task) -> tuple[float, float, float]:
    """Least and largest reward, and the bound on the norm of an arm's features.

    A device that needs the whole library takes them from the task's problem.
    """
    program = task.program
    if isinstance(program, Optimist | DisjointModels):
        return program.low, program.high, program.norm
    if isinstance(program, Library) and isinstance(task.problem, dict):
        low, high, norm = map(task.problem.get, ("low", "high", "norm"))
        with contextlib.suppress(CodecError):
            return unpack(float, low), unpack(float, high), unpack(float, norm)
    return -math.inf, math.inf, math.inf


def read_mask(allowed: Any, arms: int) -> NDArray[np.bool_]:
    """Read which arms may be played: all of them where nothing is passed."""
    if allowed is None:
        return np.ones(arms, np.bool_)
    try:
        mask = np.asarray(allowed)
    except (TypeError, ValueError):
        mask = np.empty(0)
    if mask.dtype != np.bool_ or mask.shape != (arms,) or not mask.any():
        raise InvalidValueError(
            f"allowed has shape {mask.shape} and type {mask.dtype}; give {arms} booleans, one of "
            "them true at least"
        )
    return mask
