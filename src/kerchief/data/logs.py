"""Logs of a bandit or an experiment: who came, what was done, how likely it was, what it gave."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kerchief.core import validate
from kerchief.core.errors import InvalidValue
from kerchief.data.tables import digest_of

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

MOST_REWARD = 1e9
"""The largest size of a reward."""
MOST_ROWS = 2**24
MOST_ARMS = 2**16
MOST_CELLS = 2**28
"""How many numbers one array of logs may hold."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Logs:
    """Logged decisions, one row each, checked when they are made; errors count rows from 1.

    Errors follow from rows and are not private: show them to those alone who may see the logs.

    Attributes:
        contexts: features of the user, one row per decision; there may be none.
        actions: the arm that was played, from 0.
        rewards: what it gave, within [low, high].
        propensities: the chance that the logging policy had given this arm; above 0.
        arms: how many arms there are.
        low: the least reward there can be, declared and not read off the rewards.
        high: the greatest.
        allowed: which arms could be played, rows x arms; None where all could.
        arm_features: features of arms, arms x features or rows x arms x features; None for none.
        users: who came, one word or number per row; None where every row is a user of its own.
        names: of the columns of contexts.
        arm_names: of the columns of arm_features.
        norm: a public bound on the norm of contexts, where one is declared.
        constant: the last column of contexts where all rows share it; 0 for none.

    >>> logs = Logs(contexts=[[0.5], [0.1]], actions=[0, 1], rewards=[1, 0],
    ...     propensities=[0.5, 0.5], arms=2, low=0.0, high=1.0)
    >>> logs.rows, logs.names
    (2, ('x0',))
    """

    contexts: Floats
    actions: NDArray[np.int64]
    rewards: Floats
    propensities: Floats
    arms: int
    low: float
    high: float
    allowed: Mask | None = None
    arm_features: Floats | None = None
    users: NDArray[Any] | None = None
    names: tuple[str, ...] = ()
    arm_names: tuple[str, ...] = ()
    norm: float | None = None
    constant: float = 0.0

    def __post_init__(self) -> None:
        """Check every column, and keep copies that nobody can write to."""
        validate.plain(self)
        validate.whole("arms", self.arms, high=MOST_ARMS)
        validate.between("low", self.low, -MOST_REWARD, MOST_REWARD, closed=True)
        validate.between("high", self.high, self.low, MOST_REWARD, closed=True)
        validate.at_least("high - low", self.high - self.low, 1e-9)
        validate.between("constant", self.constant, -1e9, 1e9, closed=True)
        if self.norm is not None:
            validate.between("norm", self.norm, 1e-9, 1e9, closed=True)
        self._set("actions", _actions(self.actions, self.arms))
        self._set("rewards", self._numbers("reward", self.rewards, self.low, self.high))
        self._set("propensities", self._propensities())
        self._set("contexts", _table("contexts", self.contexts, self.rows))
        self._set("users", _users(self.users, self.rows))
        self._set("allowed", self._mask())
        self._set("arm_features", self._of_arms())
        dims = {"names": self.dim, "arm_names": self.arm_dim}
        for (field, dim), letter in zip(dims.items(), "xz", strict=True):
            object.__setattr__(self, field, _names(field, getattr(self, field), dim, letter))

    @property
    def rows(self) -> int:
        """How many decisions were logged."""
        return len(self.actions)

    @property
    def units(self) -> int:
        """How many rows there are, or users where it is said who came."""
        return self.rows if self.users is None else int(self.users.max()) + 1

    @property
    def dim(self) -> int:
        """How many features a user has."""
        return int(self.contexts.shape[1])

    @property
    def arm_dim(self) -> int:
        """How many features an arm has."""
        return 0 if self.arm_features is None else self.arm_features.shape[-1]

    @property
    def digest(self) -> str:
        """SHA-256 of everything but the range of rewards, which is declared beside them."""
        named = {one.name: getattr(self, one.name) for one in dataclasses.fields(self)}
        held = (name for name in named if name not in ("low", "high") and named[name] is not None)
        return digest_of({name: np.asarray(named[name]) for name in held})

    def clipped(self, low: float, high: float) -> Logs:
        """Return the logs with rewards clipped to a declared range.

        No row decides whether this is refused, so a range can be tried without learning anything.

        >>> logs = Logs(contexts=[[0.5], [0.1]], actions=[0, 1], rewards=[0, 5],
        ...     propensities=[0.5, 0.5], arms=2, low=0.0, high=9.0)
        >>> logs.clipped(0.0, 1.0).rewards.tolist()
        [0.0, 1.0]
        """
        rewards = np.clip(self.rewards, low, high)
        return dataclasses.replace(self, rewards=rewards, low=float(low), high=float(high))

    def choices(self) -> Mask:
        """Which arms could be played, rows x arms."""
        everything = np.ones((self.rows, self.arms), bool)
        return everything if self.allowed is None else self.allowed

    def _set(self, name: str, value: NDArray[Any] | None) -> None:
        if value is not None:
            value = value.copy()
            value.flags.writeable = False
        object.__setattr__(self, name, value)

    def _numbers(self, name: str, given: ArrayLike, low: float, high: float) -> Floats:
        found = validate.real_array(f"{name}s", given)
        if found.shape != (self.rows,):
            raise InvalidValue(f"{name}s have shape {found.shape}; give one for each action")
        refuse(name, np.isnan(found), "is missing; fill it in or leave the row out")
        said = f"is outside [{low:g}, {high:g}]; clip it, or declare a wider range"
        refuse(name, ~((found >= low) & (found <= high)), said)
        return found

    def _propensities(self) -> Floats:
        found = self._numbers("propensity", self.propensities, -np.inf, np.inf)
        refuse("propensity", ~(found > 0), "is not above 0; what was played had some chance")
        refuse("propensity", found > 1, "is above 1; give the chance of the action, not its odds")
        return found

    def _mask(self) -> Mask | None:
        if self.allowed is None:
            return None
        given = np.asarray(self.allowed)
        if given.shape != (self.rows, self.arms) or given.dtype != bool:
            raise InvalidValue(
                f"allowed has shape {given.shape} of {given.dtype}; give rows x arms of bool, "
                f"({self.rows}, {self.arms})"
            )
        played = given[np.arange(self.rows), self.actions]
        refuse("action", ~played, "is not among the allowed arms of its row; mend the mask")
        return given

    def _of_arms(self) -> Floats | None:
        if self.arm_features is None:
            return None
        found = validate.real_array("arm_features", self.arm_features)
        if found.shape[:-1] not in ((self.arms,), (self.rows, self.arms)) or not found.shape[-1]:
            raise InvalidValue(
                f"arm_features have shape {found.shape}; give ({self.arms}, features) or "
                f"({self.rows}, {self.arms}, features)"
            )
        _finite("arm_features", found)
        return found


def refuse(column: str, wrong: Mask, said: str) -> None:
    """Refuse the first row that is wrong, without showing what it holds."""
    if wrong.any():
        row, more = int(wrong.argmax()) + 1, int(wrong.sum()) - 1
        others = f" (and {more} more row{'s' * (more > 1)})" if more else ""
        raise InvalidValue(f"row {row}{others}: {column} {said}")


def _actions(given: ArrayLike, arms: int) -> NDArray[np.int64]:
    found = validate.real_array("actions", given)
    if found.ndim != 1 or not 0 < len(found) <= MOST_ROWS:
        raise InvalidValue(
            f"actions have shape {found.shape}; give one per row, of 1 to {MOST_ROWS} rows"
        )
    refuse("action", np.isnan(found), "is missing; fill it in or leave the row out")
    said = f"is not one of the arms 0 to {arms - 1}; number them from 0, or declare more arms"
    refuse("action", ~((found >= 0) & (found < arms) & (found == np.floor(found))), said)
    return found.astype(np.int64)


def _table(name: str, given: ArrayLike, rows: int) -> Floats:
    found = validate.real_array(name, given)
    if found.ndim != 2 or len(found) != rows:
        raise InvalidValue(f"{name} have shape {found.shape}; give {rows} rows, one per action")
    _finite(name, found)
    return found


def _finite(name: str, found: Floats) -> None:
    if found.size > MOST_CELLS:
        raise InvalidValue(f"{name} hold {found.size} numbers; at most {MOST_CELLS} fit")
    wrong = ~np.isfinite(found)
    if wrong.any():
        row, column = int(np.argwhere(wrong)[0][0]) + 1, int(np.argwhere(wrong)[0][-1])
        raise InvalidValue(
            f"row {row}: column {column} of {name} is not finite; fill it in or leave the row out"
        )


def _users(given: Any, rows: int) -> NDArray[Any] | None:
    """Who came, as numbers from 0 in order of appearance: names mean nothing here."""
    if given is None:
        return None
    try:
        found = np.asarray(given)
    except ValueError:
        found = np.zeros((), object)
    if found.shape != (rows,) or found.dtype.kind not in "iuUfO":
        raise InvalidValue(f"users have shape {found.shape}; give one word or number per row")
    words = list(map(str, found.tolist()))
    refuse(
        "user", np.array([one in ("", "None", "nan") for one in words]), "is missing; fill it in"
    )
    numbers = {word: number for number, word in enumerate(dict.fromkeys(words))}
    return np.array([numbers[word] for word in words], np.int64)


def _names(field: str, given: object, dim: int, letter: str) -> tuple[str, ...]:
    if not isinstance(given, tuple) or not all(isinstance(one, str) and one for one in given):
        raise InvalidValue(f"{field} is no tuple of words; name every column")
    if not given:
        return tuple(f"{letter}{place}" for place in range(dim))
    if len(given) != dim or len(set(given)) != dim:
        raise InvalidValue(f"{field} has {len(set(given))} words for {dim} columns; give one each")
    return given
