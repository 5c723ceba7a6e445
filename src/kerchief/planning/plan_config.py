"""What a plan recommends as one file: options of `compare`, and what a deployment is made from."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kerchief.comparison.datasets import declared_facts
from kerchief.comparison.players import FLAGS
from kerchief.core.errors import InvalidValueError
from kerchief.core.problems import Problem
from kerchief.environments.registry import ENVIRONMENTS
from kerchief.privacy.guarantee import Guarantee, Trust

if TYPE_CHECKING:
    from kerchief.planning.advice import Advice

BANDIT = "bandit"
"""The table of what a deployment is made from."""

_GUARANTEE_KEYS = ("epsilon", "delta", "trust")
_BANDIT_KEYS = ("policy", "mode", "mechanism")
_TABLE_KEYS = ("problem", "guarantee")
# Facts that options of a world make, under the same name; those options, and other names of theirs.
_SIZES = ("dim", "arms", "radius")
_WORLD_OPTIONS = (*_SIZES, "fewest-arms", "reward-noise")
_WORLD_NAMES = {"fewest-arms": "fewest", "reward-noise": "noise"}


def settings(advice: Advice) -> str:
    """The file's text: first what `kerchief compare --config` takes, then the table `bandit`."""
    cell, planning = advice.best.cell, advice.planning
    player, problem = cell.player, planning.problem(planning.count)
    again = planning.comparison(planning.count, trusts=(str(player.trust),))
    again = dataclasses.replace(again, policies=(player.policy,), replicates=advice.best.replicates)
    promise = {"epsilon": player.epsilon, "delta": cell.delta, "trust": str(player.trust)}
    facts = {
        name: value for name, value in vars(problem).items() if isinstance(value, int | float | str)
    }
    tables: dict[str, dict[str, object]] = {
        BANDIT: {"policy": player.policy, "mode": player.mode, "mechanism": player.mechanism},
        f"{BANDIT}.problem": {**facts},
        f"{BANDIT}.guarantee": {**promise},
    }
    lines = [f"# {advice.sentence()}", "# kerchief compare --config THIS plays it again;"]
    deploys = "kerchief.Bandit(**kerchief.planned(THIS), window_s=0) deploys it."
    deploys = deploys if advice.best.wire else f"{advice.use()}."
    lines += [f"# {deploys}", *_lines(again.parameters())]
    for name, table in tables.items():
        lines += ["", f"[{name}]", *_lines(table)]
    return "\n".join(lines) + "\n"


def _lines(table: Mapping[str, object]) -> list[str]:
    return [f"{name.replace('_', '-')} = {_value(value)}" for name, value in table.items()]


def _value(value: object) -> str:
    """A value in TOML's words, which for these kinds are JSON's."""
    return json.dumps(value, ensure_ascii=False)


def planned(path: str | Path) -> dict[str, Any]:
    """What a plan recommends, as the arguments of `Bandit` and of `deploy`.

    Args:
        path: of the file that `kerchief plan` wrote.

    Raises:
        InvalidValueError: the file cannot be read, or holds no such table, or its two halves
            differ.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp(), "plan.toml")
    >>> lines = ["[bandit]", "policy = 'own-models'", "mode = 'tuned'", "mechanism = 'best'"]
    >>> lines += ["guarantee = {epsilon = 1.0, delta = 1e-6, trust = 'joint'}"]
    >>> lines += ["[bandit.problem]", "dim = 2", "arms = 3", "norm = 1.0", "radius = 1.0"]
    >>> lines += ["low = 0.0", "high = 1.0", "horizon = 1000", "own = 2"]
    >>> lines += ["constant = 0.0", "link = 'linear'"]
    >>> with file.open("w") as stream:
    ...     print(*lines, sep=chr(10), file=stream)
    >>> planned(file)["guarantee"].trust
    <Trust.JOINT: 'joint'>
    """
    if not isinstance(path, str | Path):
        raise InvalidValueError(f"path is a {type(path).__name__}; give the name of a file")
    read = read_toml(Path(path))
    table = read.get(BANDIT)
    if not isinstance(table, dict) or not {*_TABLE_KEYS, *_BANDIT_KEYS} <= table.keys():
        raise InvalidValueError(
            f"{str(path)!r} has no table {BANDIT!r} with all of its parts; give the file that "
            "`kerchief plan` wrote"
        )
    check_halves(path, read, needed=False)
    _check_words(path, table)
    try:
        problem, guarantee = Problem(**table["problem"]), Guarantee(**table["guarantee"])
    except TypeError as error:
        raise InvalidValueError(f"{str(path)!r} does not describe a bandit: {error}") from error
    fields = {name: table[name] for name in _BANDIT_KEYS}
    return {**fields, "problem": problem, "guarantee": guarantee}


def _check_words(path: str | Path, table: Mapping[str, Any]) -> None:
    """Refuse what cannot be deployed, and what nobody would look at."""
    for name in _BANDIT_KEYS:
        if not isinstance(table[name], str):
            raise InvalidValueError(
                f"{name} is {table[name]!r} in table {BANDIT!r} of {str(path)!r}; give a word in "
                "quotes"
            )
    for name in table.keys() - {*_TABLE_KEYS, *_BANDIT_KEYS}:
        raise InvalidValueError(
            f"{name} stands in table {BANDIT!r} of {str(path)!r}, where it means nothing; leave it "
            "out, or put it among the options above"
        )


def check_halves(path: str | Path, read: Mapping[str, Any], *, needed: bool = True) -> None:
    """Refuse a file in which one half was edited and the other one was not.

    What only one half can say is not compared: bounds of rewards, say, or a seed; and the options
    may leave the radius to the world.

    Args:
        path: for the error.
        read: what the file says.
        needed: whether there must be options beside a table.
    """
    if BANDIT not in read:
        return
    table = _table(path, read, BANDIT)
    facts, promise = (_table(path, table, name) for name in _TABLE_KEYS)
    _check_whole(path, table, facts, promise)
    options = {name.replace("_", "-"): value for name, value in read.items() if name != BANDIT}
    if not (options or needed):
        return
    for name, deployed in _list_deployed_options(table, facts, promise).items():
        if name not in options:
            raise _mismatch_error(path, name, "missing", deployed)
        if not _is_same(options[name], deployed):
            raise _mismatch_error(path, name, f"{options[name]!r}", deployed)
    _check_sizes(path, options, facts)


def _check_whole(
    path: str | Path,
    table: Mapping[str, Any],
    facts: Mapping[str, Any],
    promise: Mapping[str, Any],
) -> None:
    """Refuse a table in which a line is missing: a default might stand for it unseen."""
    expected = {
        BANDIT: (table, _BANDIT_KEYS),
        f"{BANDIT}.guarantee": (promise, _GUARANTEE_KEYS),
        f"{BANDIT}.problem": (facts, tuple(field.name for field in dataclasses.fields(Problem))),
    }
    for where, (section, names) in expected.items():
        for name in names:
            if name not in section:
                raise InvalidValueError(
                    f"{name} is missing in table {where!r} of {str(path)!r}; plan again, or put it "
                    "there"
                )


def _check_sizes(path: str | Path, options: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
    """Refuse options of another world, or of none; of data what they declare is looked at."""
    if "data" in options:
        if facts["own"] == facts["dim"]:
            for name, value in declared_facts(options).items():
                if not _is_same(value, facts[name]):
                    raise _mismatch_error(
                        path, name, f"{value!r} (by what they declare)", facts[name]
                    )
        return
    if "env" not in options:
        raise InvalidValueError(
            f"env is missing among the options of {str(path)!r}, and so are data; plan again, or "
            "put the world there"
        )
    world_facts = _derive_facts(options)
    for name in _SIZES:
        if name == "radius" and not world_facts:
            continue  # of a world that is not known here, a radius may make another one
        if name in options:
            value = world_facts.get(name, options[name])
            if not _is_same(value, facts[name]):
                explanation = "" if value == options[name] else f", which makes {value!r},"
                raise _mismatch_error(path, name, f"{options[name]!r}{explanation}", facts[name])
        elif name != "radius":
            raise _mismatch_error(path, name, "missing", facts[name])


def _table(path: str | Path, read: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = read.get(name)
    if not isinstance(section, dict):
        description = repr(section) if name in read else "missing"
        raise InvalidValueError(
            f"{name} is {description} in {str(path)!r}; give a table, as `kerchief plan` writes it"
        )
    return section


def _list_deployed_options(
    table: Mapping[str, Any], facts: Mapping[str, Any], promise: Mapping[str, Any]
) -> dict[str, Any]:
    """What is deployed, by the names of options that say the same."""
    options = {name: table[name] for name in ("policy", "mode")}
    trust = promise["trust"]
    if isinstance(trust, str) and trust in FLAGS:
        options[FLAGS[Trust(trust)]] = table["mechanism"]
    options |= {name: promise[name] for name in _GUARANTEE_KEYS}
    return options | {"horizon": facts["horizon"]}


def _derive_facts(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Derive the facts of the world of these options, if it is known without data."""
    env = options.get("env")
    if not isinstance(env, str) or env not in ENVIRONMENTS:
        return {}
    arguments = {
        _WORLD_NAMES.get(name, name): options[name] for name in _WORLD_OPTIONS if name in options
    }
    further = options.get("option", [])
    pairs = [pair(str(text)) for text in (further if isinstance(further, list) else [further])]
    horizon = options.get("horizon", 1)
    world = ENVIRONMENTS[env].make(
        **arguments | dict(entry for entry in pairs if entry is not None)
    )
    facts: dict[str, Any] = vars(world.problem(horizon))
    return facts


def pair(text: str) -> tuple[str, int | float | str] | None:
    """A name and its value, which is a number if it can be read so; None where it is no such pair.

    >>> pair("gap=0.5"), pair("link=probit"), pair("gap")
    (('gap', 0.5), ('link', 'probit'), None)
    """
    name, _, value = text.partition("=")
    if not (name and value):
        return None
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return name, kind(value)
    return name, value


def _is_same(option: object, deployed: object) -> bool:
    """Whether an option has exactly one value, and that is the deployed one."""
    values = option if isinstance(option, list) else [option]
    return len(values) == 1 and (
        values[0] == deployed and isinstance(values[0], bool) == isinstance(deployed, bool)
    )


def _mismatch_error(
    path: str | Path, name: str, option: str, deployed: object
) -> InvalidValueError:
    return InvalidValueError(
        f"{name} is {option} among the options of {str(path)!r} and {deployed!r} in its table "
        f"{BANDIT!r}; plan again, or change both"
    )


def read_toml(path: Path) -> Mapping[str, Any]:
    """A TOML file, or one line that says why it cannot be read."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise InvalidValueError(
            f"the configuration {str(path)!r} cannot be read: {reason}"
        ) from error
