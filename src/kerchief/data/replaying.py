"""From logs to a world that replays them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from kerchief.core.errors import InvalidValueError
from kerchief.data.declaration import Declared
from kerchief.data.feature_selection import ReadLogs, nothing
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
    options: dict[str, Any] = {"action": action, "reward": reward, "propensity": propensity}
    options |= {"arms": arms, "arm_features": arm_features, "user": user}
    columns = {name: value for name, value in options.items() if value is not None}
    replay_options: dict[str, Any] = {"arm_norm": arm_norm, "least": least_propensity}
    if isinstance(source, Logs):
        bounded = reward_range is not None or intercept is not None
        if columns or not nothing(features) or bounded:
            raise InvalidValueError(
                "columns are named, and these logs were read already; name none"
            )
        return _build_replay(source, {"norm": norm, **replay_options}, sha256)
    bounds = {"features": features, "norm": norm, "intercept": intercept}
    read = read_with_origin(source, reward_range, columns, bounds)
    parameters = _describe_logs(source, read, {**columns, **bounds, **replay_options})
    check_digest(parameters["data_sha256"], sha256)
    origin = Origin(
        name=Path(parameters["data"]).name,
        parameters=tuple(parameters.items()),
        clipped=float(read.encoded.clipped.mean()),
        shares=read.encoded.shares,
    )
    bound = norm if read.logs.norm is None else None
    return Replay.of(read.logs, norm=bound, origin=origin, counted=read.counted, **replay_options)


def _build_replay(logs: Logs, replay_options: Mapping[str, Any], sha256: str | None) -> Replay:
    """Build an environment of logs that were read already."""
    check_digest(logs.digest, sha256)
    options = {"norm": replay_options["norm"], "arm_norm": replay_options["arm_norm"]}
    options |= {"least_propensity": replay_options["least"], "reward_range": _format_range(logs)}
    parameters = {name: value for name, value in options.items() if value is not None}
    parameters = {"data": "logs", "data_sha256": logs.digest, **parameters}
    return Replay.of(
        logs, origin=Origin(name="logs", parameters=tuple(parameters.items())), **replay_options
    )


def _describe_logs(source: Any, read: ReadLogs, options: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the declaration of the logs by names of command-line options."""
    logs, values = read.logs, {**options, "least_propensity": options["least"]}
    values["features"] = () if nothing(options["features"]) else logs.names
    if (declaration := read.declaration) is not None:
        values |= {"features": declaration.texts(), "norm": declaration.vector_norm}
        values |= {"intercept": declaration.intercept}
    values |= {} if nothing(options.get("arms")) else {"action": _describe_action(options)}
    names = ("features", "norm", "action", "reward", "propensity", "user", "arm_norm", "intercept")
    return {
        "data": str(source) if isinstance(source, str | Path) else "logs",
        "data_sha256": _compute_digest(source, read),
        **{n: values[n] for n in (*names, "least_propensity") if not nothing(values.get(n))},
        "reward_range": _format_range(logs),
    }


def _format_range(logs: Logs) -> str:
    return f"{logs.low:.17g}:{logs.high:.17g}"


def _describe_action(options: Mapping[str, Any]) -> str:
    """Describe the column of actions; with its arms where `arms` declares their order."""
    action, arms = str(options.get("action", "action")), options["arms"]
    if "=" in action or isinstance(arms, int | np.integer):
        return action
    return Category(name=action, values=tuple(arms)).texts()[0]


def _compute_digest(source: Any, read: ReadLogs) -> str:
    """Compute the digest of the file, or of the table and the features of arms."""
    table = isinstance(read.source, Table)
    if isinstance(source, str | Path) and not table:
        return hashlib.sha256(Path(source).read_bytes()).hexdigest()
    if not table or read.logs.arm_features is None:
        return read.source.digest
    arms = digest_of({"arm_features": read.logs.arm_features})
    return hashlib.sha256(f"{read.source.digest} {arms}".encode()).hexdigest()
