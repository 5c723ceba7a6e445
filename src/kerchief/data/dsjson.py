"""Logs in Vowpal Wabbit's DSJSON: one JSON object per line and decision.

Read are `_label_cost` (reward is its negative), `_labelIndex` (the arm, from 0),
`_label_probability`, `a` and `p` (arms from 1 and their chances, the played one first), `c` with
the user's features and one object per arm in `_multi`, and `pdrop`. Namespaces and features are
joined by a dot; a text is a feature of its own, `namespace.name^text`, that is 1. Names that begin
with `_` are notes, not features, and lines that say `_skipLearn` are left out, as VW does. The note
`_user` in `c` says who came, unless a feature is named that does. What a line does not have is 0,
as in VW.
"""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kerchief.core.errors import CodecError, InvalidValue
from kerchief.core.validate import whole
from kerchief.data.declaration import matching
from kerchief.data.files import write_file
from kerchief.data.logs import MOST_ARMS, MOST_CELLS, MOST_ROWS, Floats, Logs

_MOST_LINE = 2**24
_MOST_NAMES = 2**12
_DEEPEST = 8
_USER = "_user"
"""The note that says who came, in lines that we write."""
# VW writes chances in single precision.
_ROUNDING = 1e-4

Features = dict[str, float]


@dataclass(frozen=True, kw_only=True)
class _Event:
    """One line, read."""

    line: int
    action: int
    reward: float
    propensity: float
    dropped: float
    shared: Features
    arms: tuple[Features, ...]
    user: str | None


def read_dsjson(
    path: Path | str,
    *,
    low: float,
    high: float,
    features: Sequence[str] | None = None,
    arm_features: Sequence[str] | None = None,
    user: str | None = None,
    arms: int | None = None,
    needed: Sequence[str] = (),
) -> Logs:
    """Read a file of decisions.

    Args:
        path: the file.
        low: the least reward, which is the negative of the greatest cost.
        high: the greatest.
        features: names of the users' features; all that are found, in order, where None.
        arm_features: the same of arms.
        user: the name of the shared feature that says who came, such as `User.id`; it is none that
            a bandit sees. Where None, the note `_user` does, if lines have it.
        arms: how many arms there are, where that must not be read off the lines.
        needed: features that every line must have, each by its name or with a `*`; others are 0
            where a line does not have them.
    """
    for name in features or ():
        if _says_who(name, user):
            raise InvalidValue(
                f"feature {name!r} says who came, and is no feature then; leave it out of them"
            )
    events = list(_events(Path(path), user))
    if not events:
        raise CodecError(f"{Path(path).name} holds no decision; give one JSON object per line")
    _check_users(Path(path), events)
    rates = {one.dropped for one in events}
    if len(rates) > 1:
        raise CodecError(
            f"pdrop is {min(rates):g} in some lines and {max(rates):g} in others; thin the lines "
            "that were dropped less often until all have one pdrop"
        )
    shared = _chosen(features, (one.shared for one in events))
    own = _chosen(arm_features, (arm for one in events for arm in one.arms))
    _check_there(Path(path), events, [name for one in needed for name in matching(one, shared)])
    found = max(len(one.arms) for one in events)
    count = found if arms is None else whole("arms", arms, high=MOST_ARMS)
    if found > count:
        raise CodecError(f"some line of {Path(path).name} has more arms than the {count} declared")
    if max(len(shared), len(own) * count) * len(events) > MOST_CELLS:
        raise CodecError(
            f"{len(events)} lines with {len(own)} features by arm do not fit; name few"
        )
    return Logs(
        contexts=np.array([_row(one.shared, shared) for one in events]).reshape(len(events), -1),
        actions=np.array([one.action for one in events], np.int64),
        rewards=np.array([one.reward for one in events]),
        propensities=np.array([one.propensity for one in events]),
        arms=count,
        low=low,
        high=high,
        allowed=_allowed(events, count),
        arm_features=_of_arms(events, own, count) if own else None,
        users=None if events[0].user is None else np.array([one.user for one in events]),
        names=shared,
        arm_names=own,
    )


def write_dsjson(logs: Logs, path: Path | str) -> None:
    """Write logs so that `read_dsjson` finds the same, but for the declared range of rewards.

    Users, where there are any, become the note `_user`. A declared norm and constant have no place
    there, and are to be declared again.
    """
    _check_names(logs.names)
    _check_names(logs.arm_names)
    if logs.allowed is not None and not logs.allowed[:, -1].any():
        raise CodecError(
            f"arm {logs.arms - 1}, the last, is allowed in no row, and DSJSON would not know of "
            "it; leave it out of the logs"
        )
    lines = [json.dumps(_line(logs, row), allow_nan=False) + "\n" for row in range(logs.rows)]
    write_file(path, "".join(lines).encode())


def _check_names(names: Sequence[str]) -> None:
    """Refuse names, or an order of them, that would not be found again."""
    known = set(names)
    for name in names:
        space, dot, _ = name.partition(".")
        if (dot and space in known) or list(_flat(_nested({name: 1.0}))) != [name]:
            raise CodecError(
                f"a feature is called {name!r}, which DSJSON takes for a note, or for part of "
                "another feature; rename it"
            )
    found = list(_flat(_nested(dict.fromkeys(names, 1.0))))
    for name, again in zip(names, found, strict=True):
        if name != again:
            raise CodecError(
                f"feature {name!r} stands apart from others of its namespace, and DSJSON would "
                "move it; put them side by side"
            )


def _line(logs: Logs, row: int) -> dict[str, Any]:
    allowed = np.flatnonzero(logs.choices()[row])
    if not np.array_equal(allowed, np.arange(len(allowed))):
        raise CodecError(
            f"row {row + 1} allows some arms and not those before; DSJSON cannot say it"
        )
    action, chance = int(logs.actions[row]), float(logs.propensities[row])
    others = [int(arm) for arm in allowed if arm != action]
    rest = (1 - chance) / len(others) if others else 0.0
    user = {} if logs.users is None else {_USER: str(logs.users[row])}
    shared = dict(zip(logs.names, logs.contexts[row].tolist(), strict=True))
    seconds = datetime.timedelta(seconds=row)
    came = datetime.datetime(1970, 1, 1) + seconds
    return {
        "_label_cost": -float(logs.rewards[row]),
        "_label_probability": chance,
        "_label_Action": action + 1,
        "_labelIndex": action,
        "Timestamp": came.isoformat(timespec="milliseconds") + "Z",
        "Version": "1",
        "EventId": f"{row:032x}",
        "a": [action + 1, *(arm + 1 for arm in others)],
        "c": {**user, **_nested(shared), "_multi": _multi(logs, row, len(allowed))},
        "p": [chance, *(rest for _ in others)],
    }


def _multi(logs: Logs, row: int, count: int) -> list[dict[str, Any]]:
    if logs.arm_features is None:
        return [{} for _ in range(count)]
    of_arms = logs.arm_features if logs.arm_features.ndim == 2 else logs.arm_features[row]
    return [
        _nested(dict(zip(logs.arm_names, one, strict=True))) for one in of_arms[:count].tolist()
    ]


def _nested(flat: Mapping[str, float]) -> dict[str, Any]:
    """Names with a dot as namespaces."""
    found: dict[str, Any] = {}
    for name, value in flat.items():
        space, dot, rest = name.partition(".")
        if dot:
            found.setdefault(space, {})[rest] = value
        else:
            found[name] = value
    return found


def _events(path: Path, user: str | None) -> Iterator[_Event]:
    try:
        with path.open("rb") as file:
            number = 0
            while line := file.readline(_MOST_LINE + 1):
                number += 1
                if len(line) > _MOST_LINE or number > MOST_ROWS:
                    raise CodecError(f"line {number} of {path.name} is beyond what may be read")
                if line.strip() and (found := _event(path, number, line, user)) is not None:
                    yield found
    except OSError as error:
        raise CodecError(f"{path} cannot be read ({error.strerror}); give a file") from error
    except ValueError as error:
        if isinstance(error, CodecError):
            raise
        raise CodecError(f"{str(path)[:80]!r} is no path; give a file") from None


def _event(path: Path, number: int, line: bytes, user: str | None) -> _Event | None:
    try:
        content = json.loads(line, parse_constant=_no_number)
    except (ValueError, RecursionError):
        cut = "" if line.endswith(b"\n") else "; the file is cut off here"
        raise CodecError(f"line {number} of {path.name} is no JSON{cut}: write it anew") from None
    try:
        return _read(content, user, number)
    except CodecError as error:
        raise CodecError(f"line {number} of {path.name}: {error}") from None


def _no_number(word: str) -> float:
    raise ValueError(f"{word} is no number of JSON")


def _read(content: Any, user: str | None, number: int) -> _Event | None:
    match content:
        case {"_skipLearn": True}:
            return None
        case {
            "_label_cost": int() | float() as cost,
            "_label_probability": int() | float() as chance,
            "_labelIndex": int() as action,
            "c": {"_multi": list() as multi, **shared},
            **rest,
        }:
            pass
        case _:
            raise CodecError(
                "a decision has the numbers _label_cost, _label_probability and _labelIndex, and "
                "its arms in c._multi; one of them is missing or odd"
            )
    if not 0 < len(multi) <= MOST_ARMS or not 0 <= action < len(multi):
        raise CodecError(f"_labelIndex is {str(action)[:20]} of {len(multi)} arms in _multi")
    _agree(rest, action, _number(chance), len(multi))
    return _Event(
        line=number,
        action=action,
        reward=-_number(cost) or 0.0,
        propensity=_number(chance),
        dropped=_dropped(rest.get("pdrop", 0.0)),
        shared={key: one for key, one in _flat(shared).items() if not _says_who(key, user)},
        arms=tuple(map(_flat, multi)),
        user=_noted(shared) if user is None else _user(shared, user),
    )


def _agree(rest: Mapping[Any, Any], action: int, chance: float, arms: int) -> None:
    """Refuse arms and chances that say something else than the labels do."""
    match rest.get("a", [action + 1]), rest.get("p", [chance]):
        case [[int() as first, *others], [int() | float() as top, *more]]:
            if first != action + 1 or abs(_number(top) - chance) > _ROUNDING:
                raise CodecError(
                    "a and p begin with another arm or chance than _labelIndex and "
                    "_label_probability say"
                )
            if "a" in rest and "p" in rest and not len(others) == len(more) == arms - 1:
                raise CodecError(
                    f"a and p have {len(others) + 1} and {len(more) + 1} of {arms} arms"
                )
        case _:
            raise CodecError("a must be a list of whole numbers, and p one of chances")


def _dropped(given: object) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given < 1:
        raise CodecError("pdrop must be a chance below 1")
    return float(given)


def _says_who(name: str, user: str | None) -> bool:
    """Whether a feature is the one that says who came, or one of its words."""
    return user is not None and name.partition("^")[0] == user


def _user(shared: Mapping[Any, Any], name: str) -> str:
    found: Any = shared
    for part in (name,) if name in shared else name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    if not _is_who(found):
        noted = f"; it has {_USER!r}, so name that, or none" if _is_who(shared.get(_USER)) else ""
        raise CodecError(f"c has no word or whole number {name!r} that says who came{noted}")
    return str(found)


def _noted(shared: Mapping[Any, Any]) -> str | None:
    """Who came, where a line has a note of it; an object of somebody's own is none."""
    found = shared.get(_USER, {})
    if not _is_who(found) and not isinstance(found, Mapping):
        raise CodecError(f"{_USER!r} in c is neither a word nor a whole number that says who came")
    return str(found) if _is_who(found) else None


def _is_who(given: object) -> bool:
    return isinstance(given, str | int) and not isinstance(given, bool)


def _check_users(path: Path, events: Sequence[_Event]) -> None:
    """Refuse lines of which some say who came: all rows or all users are protected."""
    known = [one.user is not None for one in events]
    if any(known) and not all(known):
        line = events[known.index(False)].line
        raise CodecError(
            f"line {line} of {path.name} does not say who came, and others do by {_USER!r}; say it "
            "in every line, or name the feature that does"
        )


def _flat(given: object, *, space: str = "", depth: int = 0) -> Features:
    """Features by their full names."""
    if depth > _DEEPEST:
        raise CodecError(f"features are nested deeper than {_DEEPEST} levels")
    found: Features = {}
    for name, value in _pairs(given, space):
        full = f"{space}.{name}" if space and not name.startswith("[") else f"{space}{name}"
        match value:
            case bool() | int() | float():
                found[full] = _number(value)
            case str():
                found[f"{full}^{value}"] = 1.0
            case None:
                pass
            case _:
                inner = space if name.startswith("[") and isinstance(value, Mapping) else full
                found |= _flat(value, space=inner, depth=depth + 1)
    return found


def _pairs(given: object, space: str) -> Iterable[tuple[str, Any]]:
    if isinstance(given, Mapping):
        return ((name, value) for name, value in given.items() if not name.startswith("_"))
    if isinstance(given, list):
        return ((f"[{place}]", value) for place, value in enumerate(given))
    raise CodecError("features are neither an object nor a list")


def _number(value: float) -> float:
    try:
        found = float(value)
    except OverflowError:
        found = math.inf
    if isinstance(value, bool) or math.isfinite(found):
        return found
    raise CodecError("a number is beyond all floats")


def _chosen(names: Sequence[str] | None, found: Iterable[Features]) -> tuple[str, ...]:
    """The names that were asked for, or all that there are, in their order of appearance."""
    if names is not None:
        missing = set(names)
        for one in found:
            missing -= one.keys()
        if missing:
            raise CodecError(f"no line has a feature {min(missing)!r}; name those that are there")
        return tuple(names)
    seen: dict[str, None] = {}
    for one in found:
        seen.update(dict.fromkeys(one))
        if len(seen) > _MOST_NAMES:
            raise CodecError(
                f"there are more than {_MOST_NAMES} features; name those that you want"
            )
    return tuple(seen)


def _check_there(path: Path, events: Sequence[_Event], names: Sequence[str]) -> None:
    for event in events:
        for name in names:
            if name not in event.shared:
                raise CodecError(
                    f"line {event.line} of {path.name} has no feature {name!r}, which stands for "
                    "0, and 0 is beyond its declared range; declare a range with 0 in it, or leave "
                    "the line out"
                )


def _row(found: Features, names: Sequence[str]) -> list[float]:
    return [found.get(name, 0.0) for name in names]


def _allowed(events: Sequence[_Event], count: int) -> np.ndarray[Any, np.dtype[np.bool_]] | None:
    lengths = np.array([len(one.arms) for one in events])
    if (lengths == count).all():
        return None
    mask: np.ndarray[Any, np.dtype[np.bool_]] = np.arange(count) < lengths[:, None]
    return mask


def _of_arms(events: Sequence[_Event], names: Sequence[str], count: int) -> Floats:
    """Rows x arms x features; arms that a row does not have are zeros."""
    found = np.zeros((len(events), count, len(names)))
    for place, event in enumerate(events):
        for arm, one in enumerate(event.arms):
            found[place, arm] = _row(one, names)
    return found
