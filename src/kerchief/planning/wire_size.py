"""What a deployment sends: the size of a report and of a model, and how often a model is posted."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from kerchief.comparison.chunks import build_protected_policy
from kerchief.comparison.players import Cell
from kerchief.core.contracts import Clock, Policy
from kerchief.core.errors import InvalidValueError
from kerchief.core.phases import PhasePolicy
from kerchief.core.precision import double_precision
from kerchief.core.problems import AnyProblem
from kerchief.deployment.deployment import deploy
from kerchief.privatizers.privatizer import Privatizer
from kerchief.privatizers.schedule import At
from kerchief_protocol.model import Model, Numbers
from kerchief_protocol.report import Report
from kerchief_protocol.task import Task


@dataclasses.dataclass(frozen=True, kw_only=True)
class WireSize:
    """What crosses the wire in a run.

    Attributes:
        numbers: of a report, which every user sends once.
        report_bytes: its size, always the same.
        model_numbers: of a model, which every device reads.
        model_bytes: its size.
        models: how often it changes.
        first: how many users come before it changes for the first time.
    """

    numbers: int
    report_bytes: int
    model_numbers: int
    model_bytes: int
    models: int
    first: int

    def text(self) -> str:
        """One sentence."""
        return (
            f"every device sends one report of {self.numbers} numbers ({self.report_bytes} bytes) "
            f"and reads a model of {self.model_numbers} numbers ({self.model_bytes} bytes), which "
            f"changes {self.models} times, first after {self.first} users"
        )


@double_precision
def wire_size(cell: Cell, problem: AnyProblem) -> WireSize | None:
    """The sizes of a cell that is deployed; None where it cannot be."""
    try:
        task = deploy(
            policy=cell.player.policy,
            problem=problem,
            guarantee=cell.guarantee,
            mode=cell.player.mode,
            mechanism=cell.player.mechanism,
            numbers=dict(cell.player.numbers),
        ).task
    except InvalidValueError:
        return None
    bandit = build_protected_policy(cell, problem)
    if isinstance(bandit.policy, PhasePolicy):
        return None
    report = Report(label=0, epoch=0, id=bytes(16), numbers=np.zeros(task.size, np.int64))
    model = _model(bandit.policy, bandit.privatizers)
    changes = _changes(bandit.policy, bandit.privatizers, cell.horizon)
    return WireSize(
        numbers=task.size,
        report_bytes=len(report.write(task)),
        model_numbers=sum(int(np.prod(array.shape)) for array in model.values()),
        model_bytes=len(_fill_model(task, model).write()),
        models=len(changes),
        first=int(changes[0]) if len(changes) else cell.horizon,
    )


def _model(policy: Policy, privatizers: Mapping[str, Privatizer]) -> Mapping[str, Any]:
    """The shapes of a model, without computing one."""
    outlook = {name: privatizer.outlook for name, privatizer in privatizers.items()}
    shapes = jax.eval_shape(lambda: policy.publish(policy.init(outlook)))
    leaves = jax.tree_util.tree_leaves_with_path(shapes)
    return {jax.tree_util.keystr(path).strip("."): leaf for path, leaf in leaves}


def _fill_model(task: Task, model: Mapping[str, Any]) -> Model:
    arrays = {name: Numbers.of(np.zeros(array.shape, array.dtype)) for name, array in model.items()}
    return Model(
        task=task.id, version=0, release=0, round=0, length=0, head=bytes(32), arrays=arrays
    )


def _changes(policy: Policy, privatizers: Mapping[str, Privatizer], users: int) -> Any:
    """After how many users a model is posted."""
    (schedule, *_) = [privatizer.schedule for privatizer in privatizers.values()]
    if isinstance(schedule, At):
        return np.asarray([end for end in schedule.ends if end <= users])
    since = dict.fromkeys(privatizers, jnp.int32(1))

    def posts(round: Any) -> Any:
        return jnp.asarray(policy.refreshes(Clock(round=round, since=since)))

    rounds = [
        first + 1 + np.flatnonzero(jax.vmap(posts)(jnp.arange(first, last, dtype=jnp.int32)))
        for first, last in _stretches(users)
    ]
    return np.concatenate(rounds)


def _stretches(users: int, length: int = 2**18) -> list[tuple[int, int]]:
    return [(first, min(users, first + length)) for first in range(0, users, length)]
