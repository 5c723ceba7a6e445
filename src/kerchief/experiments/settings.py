"""What a plan recommends as one file: options of `compare`, and what a deployment is made from."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kerchief.core.errors import InvalidValue
from kerchief.core.problems import Problem
from kerchief.privacy.guarantee import Guarantee

if TYPE_CHECKING:
    from kerchief.experiments.advice import Advice

BANDIT = "bandit"
"""The table of what a deployment is made from."""

_ASKED = ("epsilon", "delta", "trust")
_WORDS = ("policy", "mode", "mechanism")


def settings(advice: Advice) -> str:
    """The file's text: first what `kerchief compare --config` takes, then the table `bandit`."""
    cell, planning = advice.best.cell, advice.planning
    player, problem = cell.player, planning.problem(planning.count)
    again = planning.comparison(planning.count, trusts=(str(player.trust),))
    again = dataclasses.replace(again, policies=(player.policy,), replicates=advice.best.replicates)
    promise = {"epsilon": player.epsilon, "delta": cell.delta, "trust": str(player.trust)}
    facts = {name: one for name, one in vars(problem).items() if isinstance(one, int | float | str)}
    tables: dict[str, dict[str, object]] = {
        BANDIT: {"policy": player.policy, "mode": player.mode, "mechanism": player.mechanism},
        f"{BANDIT}.problem": {**facts},
        f"{BANDIT}.guarantee": {**promise},
    }
    lines = [f"# {advice.sentence()}", "# kerchief compare --config THIS plays it again;"]
    lines += [
        "# kerchief.Bandit(**kerchief.planned(THIS)) deploys it.",
        *_lines(again.parameters()),
    ]
    for name, table in tables.items():
        lines += ["", f"[{name}]", *_lines(table)]
    return "\n".join(lines) + "\n"


def _lines(table: Mapping[str, object]) -> list[str]:
    return [f"{name.replace('_', '-')} = {_value(one)}" for name, one in table.items()]


def _value(value: object) -> str:
    """A value in TOML's words, which for these kinds are JSON's."""
    return json.dumps(value, ensure_ascii=False)


def planned(path: str | Path) -> dict[str, Any]:
    """What a plan recommends, as the arguments of `Bandit` and of `deploy`.

    Args:
        path: of the file that `kerchief plan` wrote.

    Raises:
        InvalidValue: the file cannot be read, or holds no such table, or its two halves differ.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp(), "plan.toml")
    >>> lines = ["[bandit]", "policy = 'own-models'", "mode = 'tuned'", "mechanism = 'best'"]
    >>> lines += ["guarantee = {epsilon = 1.0, delta = 1e-6, trust = 'joint'}"]
    >>> lines += ["[bandit.problem]", "dim = 2", "arms = 3", "norm = 1.0", "radius = 1.0"]
    >>> lines += ["low = 0.0", "high = 1.0", "horizon = 1000", "own = 2"]
    >>> with file.open("w") as stream:
    ...     print(*lines, sep=chr(10), file=stream)
    >>> planned(file)["guarantee"].trust
    <Trust.JOINT: 'joint'>
    """
    if not isinstance(path, str | Path):
        raise InvalidValue(f"path is a {type(path).__name__}; give the name of a file")
    read = read_toml(Path(path))
    table = read.get(BANDIT)
    if not isinstance(table, dict) or not {"problem", "guarantee", *_WORDS} <= table.keys():
        raise InvalidValue(
            f"{str(path)!r} has no table {BANDIT!r} with all of its parts; give the file that "
            "`kerchief plan` wrote"
        )
    facts, promise = table["problem"], table["guarantee"]
    _check_halves(path, read, promise, facts)
    try:
        problem, guarantee = Problem(**facts), Guarantee(**promise)
    except TypeError as error:
        raise InvalidValue(f"{str(path)!r} does not describe a bandit: {error}") from error
    words = {name: table[name] for name in _WORDS}
    return {**words, "problem": problem, "guarantee": guarantee}


def _check_halves(
    path: str | Path, read: Mapping[str, Any], promise: Mapping[str, Any], facts: Mapping[str, Any]
) -> None:
    """Refuse a file in which one half was edited and the other one was not."""
    deployed = {name: promise.get(name) for name in _ASKED} | {"horizon": facts.get("horizon")}
    for name, value in deployed.items():
        given = read.get(name, value)
        if (given[0] if isinstance(given, list) and given else given) != value:
            raise InvalidValue(
                f"{name} is {given} among the options of {str(path)!r} and {value} in its table "
                f"{BANDIT!r}; plan again, or change both"
            )


def read_toml(path: Path) -> Mapping[str, Any]:
    """A TOML file, or one line that says why it cannot be read."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise InvalidValue(f"the configuration {str(path)!r} cannot be read: {reason}") from error
