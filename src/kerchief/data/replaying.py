"""From logs to a world that replays them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from kerchief.core.errors import InvalidValue
from kerchief.data.asked_features import ReadLogs, nothing
from kerchief.data.declaration import Declared
from kerchief.data.features import Category
from kerchief.data.logs import Logs
from kerchief.data.replay import Replay
from kerchief.data.sources import read_with_origin
from kerchief.data.tables import Table, Tabular, check_digest, digest_of
from kerchief.environments.supervised import Origin


def from_logs(
    source: Logs | Tabular | Mapping[str, Any],
    *,
    reward_range: tuple[float, float] | None = None,
    action: str | None = None,
    reward: str | None = None,
    propensity: str | float | None = None,
    features: Declared = (),
    norm: float | None = None,
    intercept: float | None = None,
    arms: int | tuple[str, ...] | None = None,
    arm_features: ArrayLike | None = None,
    arm_norm: float | None = None,
    user: str | None = None,
    least_propensity: float | None = None,
    sha256: str | None = None,
) -> Replay:
    """A world that replays logs, without bias whatever the logging policy was: see `Replay`.

    Args:
        source: `Logs`, or whatever `read_logs` reads; what follows is for it, unless said.
        reward_range: the least and the greatest reward.
        action: the column of what was done, as "item" or "item=red|blue".
        reward: the column of what it gave.
        propensity: the column of the chance that it had, or one chance for all rows.
        features: of users, each arm with a model of its own, with their public bounds.
        norm: public bound on the norm of features without bounds of their own.
        intercept: the constant behind features with bounds; 0.5 where nothing is said.
        arms: how many arms there are, or their names.
        arm_features: one row per arm, with one model for all.
        arm_norm: public bound on the norm of an arm's features, of `Logs` too.
        user: the column that says who came; a simulation takes no note of it.
        least_propensity: rows with less count as if they had it: faster, with some bias.
        sha256: the digest that the data must have, if they are to be the same as before.

    >>> table = {"a": [0, 1, 1], "r": [1, 0, 1], "p": [0.5, 0.5, 0.5], "age": [20, 70, 40]}
    >>> world = from_logs(table, reward_range=(0, 1), action="a", reward="r", propensity="p",
    ...     features="age=18:90")
    >>> world.problem(3).arms, world.rounds
    (2, 1)
    """
    named: dict[str, Any] = {"action": action, "reward": reward, "propensity": propensity}
    named |= {"arms": arms, "arm_features": arm_features, "user": user}
    columns = {name: one for name, one in named.items() if one is not None}
    played: dict[str, Any] = {"arm_norm": arm_norm, "least": least_propensity}
    if isinstance(source, Logs):
        bounded = reward_range is not None or intercept is not None
        if columns or not nothing(features) or bounded:
            raise InvalidValue("columns are named, and these logs were read already; name none")
        return _replayed(source, {"norm": norm, **played}, sha256)
    bounds = {"features": features, "norm": norm, "intercept": intercept}
    read = read_with_origin(source, reward_range, columns, bounds)
    said = _described(source, read, {**columns, **bounds, **played})
    check_digest(said["data_sha256"], sha256)
    origin = Origin(
        name=Path(said["data"]).name,
        parameters=tuple(said.items()),
        clipped=float(read.encoded.clipped.mean()),
        shares=read.encoded.shares,
    )
    bound = norm if read.logs.norm is None else None
    return Replay.of(read.logs, norm=bound, origin=origin, counted=read.counted, **played)


def _replayed(logs: Logs, played: Mapping[str, Any], sha256: str | None) -> Replay:
    """A world of logs that were read already."""
    check_digest(logs.digest, sha256)
    words = {"norm": played["norm"], "arm_norm": played["arm_norm"]}
    words |= {"least_propensity": played["least"], "reward_range": _range(logs)}
    said = {name: one for name, one in words.items() if one is not None}
    said = {"data": "logs", "data_sha256": logs.digest, **said}
    return Replay.of(logs, origin=Origin(name="logs", parameters=tuple(said.items())), **played)


def _described(source: Any, read: ReadLogs, asked: Mapping[str, Any]) -> dict[str, Any]:
    """How the logs were declared, in the words of the command line."""
    logs, words = read.logs, {**asked, "least_propensity": asked["least"]}
    words["features"] = () if nothing(asked["features"]) else logs.names
    if (declared := read.declaration) is not None:
        words |= {"features": declared.texts(), "norm": declared.vector_norm}
        words |= {"intercept": declared.intercept}
    words |= {} if nothing(asked.get("arms")) else {"action": _named(asked)}
    known = ("features", "norm", "action", "reward", "propensity", "user", "arm_norm", "intercept")
    return {
        "data": str(source) if isinstance(source, str | Path) else "logs",
        "data_sha256": _digest(source, read),
        **{n: words[n] for n in (*known, "least_propensity") if not nothing(words.get(n))},
        "reward_range": _range(logs),
    }


def _range(logs: Logs) -> str:
    return f"{logs.low:.17g}:{logs.high:.17g}"


def _named(asked: Mapping[str, Any]) -> str:
    """The column of what was done; with its arms, where words beside it declare their order."""
    action, arms = str(asked.get("action", "action")), asked["arms"]
    if "=" in action or isinstance(arms, int | np.integer):
        return action
    return Category(name=action, values=tuple(arms)).texts()[0]


def _digest(source: Any, read: ReadLogs) -> str:
    """That of the file, or of all that was read; features of arms beside a table have their own."""
    table = isinstance(read.source, Table)
    if isinstance(source, str | Path) and not table:
        return hashlib.sha256(Path(source).read_bytes()).hexdigest()
    if not table or read.logs.arm_features is None:
        return read.source.digest
    arms = digest_of({"arm_features": read.logs.arm_features})
    return hashlib.sha256(f"{read.source.digest} {arms}".encode()).hexdigest()
