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

from kerchief.core.errors import CodecError, InvalidValueError
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
    """One decision, as read from a line."""

    line: int
    action: int
    reward: float
    propensity: float
    dropped: float
    user_features: Features
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
        arm_features: names of the features of arms; all that are found, in order, where None.
        user: the name of the shared feature that says who came, such as `User.id`; it is none that
            a bandit sees. Where None, the note `_user` does, if lines have it.
        arms: how many arms there are, where that must not be read off the lines.
        needed: features that every line must have, each by its name or with a `*`; others are 0
            where a line does not have them.
    """
    for name in features or ():
        if _names_user(name, user):
            raise InvalidValueError(
                f"feature {name!r} says who came, and is no feature then; leave it out of them"
            )
    events = list(_read_events(Path(path), user))
    if not events:
        raise CodecError(f"{Path(path).name} holds no decision; give one JSON object per line")
    _check_users(Path(path), events)
    rates = {event.dropped for event in events}
    if len(rates) > 1:
        raise CodecError(
            f"pdrop is {min(rates):g} in some lines and {max(rates):g} in others; thin the lines "
            "that were dropped less often until all have one pdrop"
        )
    user_names = _select_names(features, (event.user_features for event in events))
    arm_names = _select_names(arm_features, (arm for event in events for arm in event.arms))
    _check_required(
        Path(path), events, [name for pattern in needed for name in matching(pattern, user_names)]
    )
    largest_count = max(len(event.arms) for event in events)
    count = largest_count if arms is None else whole("arms", arms, high=MOST_ARMS)
    if largest_count > count:
        raise CodecError(f"some line of {Path(path).name} has more arms than the {count} declared")
    if max(len(user_names), len(arm_names) * count) * len(events) > MOST_CELLS:
        raise CodecError(
            f"{len(events)} lines with {len(arm_names)} features by arm do not fit; name few"
        )
    return Logs(
        contexts=np.array(
            [_build_row(event.user_features, user_names) for event in events]
        ).reshape(len(events), -1),
        actions=np.array([event.action for event in events], np.int64),
        rewards=np.array([event.reward for event in events]),
        propensities=np.array([event.propensity for event in events]),
        arms=count,
        low=low,
        high=high,
        allowed=_build_mask(events, count),
        arm_features=_build_arm_features(events, arm_names, count) if arm_names else None,
        users=None if events[0].user is None else np.array([event.user for event in events]),
        names=user_names,
        arm_names=arm_names,
    )


def write_dsjson(logs: Logs, path: Path | str) -> None:
    """Write logs to a file that `read_dsjson` reads back.

    Users, where there are any, become the note `_user`. A declared norm and constant have no place
    there, and are to be declared again.
    """
    _check_feature_names(logs.names)
    _check_feature_names(logs.arm_names)
    if logs.allowed is not None and not logs.allowed[:, -1].any():
        raise CodecError(
            f"arm {logs.arms - 1}, the last, is allowed in no row, and DSJSON would not know of "
            "it; leave it out of the logs"
        )
    lines = [json.dumps(_build_line(logs, row), allow_nan=False) + "\n" for row in range(logs.rows)]
    write_file(path, "".join(lines).encode())


def _check_feature_names(names: Sequence[str]) -> None:
    """Refuse names, or an order of names, that DSJSON would not give back."""
    unique = set(names)
    for name in names:
        space, dot, _ = name.partition(".")
        if (dot and space in unique) or list(_flatten(_nest({name: 1.0}))) != [name]:
            raise CodecError(
                f"a feature is called {name!r}, which DSJSON takes for a note, or for part of "
                "another feature; rename it"
            )
    stored = list(_flatten(_nest(dict.fromkeys(names, 1.0))))
    for name, stored_name in zip(names, stored, strict=True):
        if name != stored_name:
            raise CodecError(
                f"feature {name!r} stands apart from others of its namespace, and DSJSON would "
                "move it; put them side by side"
            )


def _build_line(logs: Logs, row: int) -> dict[str, Any]:
    allowed = np.flatnonzero(logs.choices()[row])
    if not np.array_equal(allowed, np.arange(len(allowed))):
        raise CodecError(
            f"row {row + 1} allows some arms and not those before; DSJSON cannot say it"
        )
    action, chance = int(logs.actions[row]), float(logs.propensities[row])
    other_arms = [int(arm) for arm in allowed if arm != action]
    rest = (1 - chance) / len(other_arms) if other_arms else 0.0
    user = {} if logs.users is None else {_USER: str(logs.users[row])}
    user_features = dict(zip(logs.names, logs.contexts[row].tolist(), strict=True))
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
        "a": [action + 1, *(arm + 1 for arm in other_arms)],
        "c": {
            **user,
            **_nest(user_features),
            "_multi": _build_arm_objects(logs, row, len(allowed)),
        },
        "p": [chance, *(rest for _ in other_arms)],
    }


def _build_arm_objects(logs: Logs, row: int, count: int) -> list[dict[str, Any]]:
    if logs.arm_features is None:
        return [{} for _ in range(count)]
    of_arms = logs.arm_features if logs.arm_features.ndim == 2 else logs.arm_features[row]
    return [
        _nest(dict(zip(logs.arm_names, features, strict=True)))
        for features in of_arms[:count].tolist()
    ]


def _nest(flat: Mapping[str, float]) -> dict[str, Any]:
    """Turn names with a dot into namespaces."""
    nested: dict[str, Any] = {}
    for name, value in flat.items():
        space, dot, rest = name.partition(".")
        if dot:
            nested.setdefault(space, {})[rest] = value
        else:
            nested[name] = value
    return nested


def _read_events(path: Path, user: str | None) -> Iterator[_Event]:
    try:
        with path.open("rb") as file:
            number = 0
            while line := file.readline(_MOST_LINE + 1):
                number += 1
                if len(line) > _MOST_LINE or number > MOST_ROWS:
                    raise CodecError(f"line {number} of {path.name} is beyond what may be read")
                if line.strip() and (event := _parse_event(path, number, line, user)) is not None:
                    yield event
    except OSError as error:
        raise CodecError(f"{path} cannot be read ({error.strerror}); give a file") from error
    except ValueError as error:
        if isinstance(error, CodecError):
            raise
        raise CodecError(f"{str(path)[:80]!r} is no path; give a file") from None


def _parse_event(path: Path, number: int, line: bytes, user: str | None) -> _Event | None:
    try:
        content = json.loads(line, parse_constant=_reject_constant)
    except (ValueError, RecursionError):
        ending = "" if line.endswith(b"\n") else "; the file is cut off here"
        raise CodecError(
            f"line {number} of {path.name} is no JSON{ending}: write it anew"
        ) from None
    try:
        return _build_event(content, user, number)
    except CodecError as error:
        raise CodecError(f"line {number} of {path.name}: {error}") from None


def _reject_constant(constant: str) -> float:
    raise ValueError(f"{constant} is no number of JSON")


def _build_event(content: Any, user: str | None, number: int) -> _Event | None:
    """Build the event of one JSON object; None for a line that is to be skipped."""
    match content:
        case {"_skipLearn": True}:
            return None
        case {
            "_label_cost": int() | float() as cost,
            "_label_probability": int() | float() as chance,
            "_labelIndex": int() as action,
            "c": {"_multi": list() as multi, **context},
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
    _check_agreement(rest, action, _read_number(chance), len(multi))
    return _Event(
        line=number,
        action=action,
        reward=-_read_number(cost) or 0.0,
        propensity=_read_number(chance),
        dropped=_read_drop_rate(rest.get("pdrop", 0.0)),
        user_features={
            key: value for key, value in _flatten(context).items() if not _names_user(key, user)
        },
        arms=tuple(map(_flatten, multi)),
        user=_read_noted_user(context) if user is None else _read_user(context, user),
    )


def _check_agreement(rest: Mapping[Any, Any], action: int, chance: float, arms: int) -> None:
    """Refuse arms and chances that contradict the labels."""
    match rest.get("a", [action + 1]), rest.get("p", [chance]):
        case [[int() as first_arm, *other_arms], [int() | float() as first_chance, *other_chances]]:
            if first_arm != action + 1 or abs(_read_number(first_chance) - chance) > _ROUNDING:
                raise CodecError(
                    "a and p begin with another arm or chance than _labelIndex and "
                    "_label_probability say"
                )
            if (
                "a" in rest
                and "p" in rest
                and not len(other_arms) == len(other_chances) == arms - 1
            ):
                raise CodecError(
                    f"a and p have {len(other_arms) + 1} and {len(other_chances) + 1} of {arms} "
                    "arms"
                )
        case _:
            raise CodecError("a must be a list of whole numbers, and p one of chances")


def _read_drop_rate(rate: object) -> float:
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate < 1:
        raise CodecError("pdrop must be a chance below 1")
    return float(rate)


def _names_user(name: str, user: str | None) -> bool:
    """Whether a feature names the user: the named one, or one of its texts."""
    return user is not None and name.partition("^")[0] == user


def _read_user(context: Mapping[Any, Any], name: str) -> str:
    value: Any = context
    for part in (name,) if name in context else name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    if not _is_user_id(value):
        hint = (
            f"; it has {_USER!r}, so name that, or none" if _is_user_id(context.get(_USER)) else ""
        )
        raise CodecError(f"c has no word or whole number {name!r} that says who came{hint}")
    return str(value)


def _read_noted_user(context: Mapping[Any, Any]) -> str | None:
    """Read the user from the note `_user`; None without one, or where it is an object."""
    value = context.get(_USER, {})
    if not _is_user_id(value) and not isinstance(value, Mapping):
        raise CodecError(f"{_USER!r} in c is neither a word nor a whole number that says who came")
    return str(value) if _is_user_id(value) else None


def _is_user_id(value: object) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


def _check_users(path: Path, events: Sequence[_Event]) -> None:
    """Refuse logs in which only some lines name a user."""
    has_user = [event.user is not None for event in events]
    if any(has_user) and not all(has_user):
        line = events[has_user.index(False)].line
        raise CodecError(
            f"line {line} of {path.name} does not say who came, and others do by {_USER!r}; say it "
            "in every line, or name the feature that does"
        )


def _flatten(nested: object, *, space: str = "", depth: int = 0) -> Features:
    """Flatten nested objects to features by their full names."""
    if depth > _DEEPEST:
        raise CodecError(f"features are nested deeper than {_DEEPEST} levels")
    features: Features = {}
    for name, value in _split_object(nested, space):
        full = f"{space}.{name}" if space and not name.startswith("[") else f"{space}{name}"
        match value:
            case bool() | int() | float():
                features[full] = _read_number(value)
            case str():
                features[f"{full}^{value}"] = 1.0
            case None:
                pass
            case _:
                inner = space if name.startswith("[") and isinstance(value, Mapping) else full
                features |= _flatten(value, space=inner, depth=depth + 1)
    return features


def _split_object(nested: object, space: str) -> Iterable[tuple[str, Any]]:
    if isinstance(nested, Mapping):
        return ((name, value) for name, value in nested.items() if not name.startswith("_"))
    if isinstance(nested, list):
        return ((f"[{place}]", value) for place, value in enumerate(nested))
    raise CodecError("features are neither an object nor a list")


def _read_number(value: float) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if isinstance(value, bool) or math.isfinite(number):
        return number
    raise CodecError("a number is beyond all floats")


def _select_names(names: Sequence[str] | None, rows: Iterable[Features]) -> tuple[str, ...]:
    """Return the requested names, or all names in their order of appearance."""
    if names is not None:
        missing = set(names)
        for features in rows:
            missing -= features.keys()
        if missing:
            raise CodecError(f"no line has a feature {min(missing)!r}; name those that are there")
        return tuple(names)
    unique: dict[str, None] = {}
    for features in rows:
        unique.update(dict.fromkeys(features))
        if len(unique) > _MOST_NAMES:
            raise CodecError(
                f"there are more than {_MOST_NAMES} features; name those that you want"
            )
    return tuple(unique)


def _check_required(path: Path, events: Sequence[_Event], names: Sequence[str]) -> None:
    for event in events:
        for name in names:
            if name not in event.user_features:
                raise CodecError(
                    f"line {event.line} of {path.name} has no feature {name!r}, which stands for "
                    "0, and 0 is beyond its declared range; declare a range with 0 in it, or leave "
                    "the line out"
                )


def _build_row(features: Features, names: Sequence[str]) -> list[float]:
    return [features.get(name, 0.0) for name in names]


def _build_mask(events: Sequence[_Event], count: int) -> np.ndarray[Any, np.dtype[np.bool_]] | None:
    lengths = np.array([len(event.arms) for event in events])
    if (lengths == count).all():
        return None
    mask: np.ndarray[Any, np.dtype[np.bool_]] = np.arange(count) < lengths[:, None]
    return mask


def _build_arm_features(events: Sequence[_Event], names: Sequence[str], count: int) -> Floats:
    """Rows x arms x features; arms that a row does not have are zeros."""
    array = np.zeros((len(events), count, len(names)))
    for place, event in enumerate(events):
        for arm, features in enumerate(event.arms):
            array[place, arm] = _build_row(features, names)
    return array
