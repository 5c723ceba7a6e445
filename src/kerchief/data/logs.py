"""Logged decisions: contexts, actions, propensities and rewards."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kerchief.core import validate
from kerchief.core.errors import InvalidValueError
from kerchief.data.tables import digest_of

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

MOST_REWARD = 1e9
"""Largest absolute value of a reward."""
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
        self._set_array("actions", _check_actions(self.actions, self.arms))
        self._set_array("rewards", self._check_column("reward", self.rewards, self.low, self.high))
        self._set_array("propensities", self._check_propensities())
        self._set_array("contexts", _check_table("contexts", self.contexts, self.rows))
        self._set_array("users", _number_users(self.users, self.rows))
        self._set_array("allowed", self._check_mask())
        self._set_array("arm_features", self._check_arm_features())
        dims = {"names": self.dim, "arm_names": self.arm_dim}
        for (field, dim), letter in zip(dims.items(), "xz", strict=True):
            object.__setattr__(
                self, field, _check_column_names(field, getattr(self, field), dim, letter)
            )

    @property
    def rows(self) -> int:
        """How many decisions were logged."""
        return len(self.actions)

    @property
    def units(self) -> int:
        """Number of rows, or of users where the logs name users."""
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
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        names = (
            name for name in values if name not in ("low", "high") and values[name] is not None
        )
        return digest_of({name: np.asarray(values[name]) for name in names})

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

    def _set_array(self, name: str, value: NDArray[Any] | None) -> None:
        if value is not None:
            value = value.copy()
            value.flags.writeable = False
        object.__setattr__(self, name, value)

    def _check_column(self, name: str, values: ArrayLike, low: float, high: float) -> Floats:
        array = validate.real_array(f"{name}s", values)
        if array.shape != (self.rows,):
            raise InvalidValueError(f"{name}s have shape {array.shape}; give one for each action")
        refuse(name, np.isnan(array), "is missing; fill it in or leave the row out")
        complaint = f"is outside [{low:g}, {high:g}]; clip it, or declare a wider range"
        refuse(name, ~((array >= low) & (array <= high)), complaint)
        return array

    def _check_propensities(self) -> Floats:
        propensities = self._check_column("propensity", self.propensities, -np.inf, np.inf)
        refuse("propensity", ~(propensities > 0), "is not above 0; what was played had some chance")
        refuse(
            "propensity",
            propensities > 1,
            "is above 1; give the chance of the action, not its odds",
        )
        return propensities

    def _check_mask(self) -> Mask | None:
        if self.allowed is None:
            return None
        mask = np.asarray(self.allowed)
        if mask.shape != (self.rows, self.arms) or mask.dtype != bool:
            raise InvalidValueError(
                f"allowed has shape {mask.shape} of {mask.dtype}; give rows x arms of bool, "
                f"({self.rows}, {self.arms})"
            )
        is_allowed = mask[np.arange(self.rows), self.actions]
        refuse("action", ~is_allowed, "is not among the allowed arms of its row; mend the mask")
        return mask

    def _check_arm_features(self) -> Floats | None:
        if self.arm_features is None:
            return None
        features = validate.real_array("arm_features", self.arm_features)
        if (
            features.shape[:-1] not in ((self.arms,), (self.rows, self.arms))
            or not features.shape[-1]
        ):
            raise InvalidValueError(
                f"arm_features have shape {features.shape}; give ({self.arms}, features) or "
                f"({self.rows}, {self.arms}, features)"
            )
        _check_finite("arm_features", features)
        return features


def refuse(column: str, wrong: Mask, said: str) -> None:
    """Refuse the first row that is wrong, without showing what it holds."""
    if wrong.any():
        row, rest = int(wrong.argmax()) + 1, int(wrong.sum()) - 1
        suffix = f" (and {rest} more row{'s' * (rest > 1)})" if rest else ""
        raise InvalidValueError(f"row {row}{suffix}: {column} {said}")


def _check_actions(values: ArrayLike, arms: int) -> NDArray[np.int64]:
    actions = validate.real_array("actions", values)
    if actions.ndim != 1 or not 0 < len(actions) <= MOST_ROWS:
        raise InvalidValueError(
            f"actions have shape {actions.shape}; give one per row, of 1 to {MOST_ROWS} rows"
        )
    refuse("action", np.isnan(actions), "is missing; fill it in or leave the row out")
    complaint = f"is not one of the arms 0 to {arms - 1}; number them from 0, or declare more arms"
    refuse(
        "action", ~((actions >= 0) & (actions < arms) & (actions == np.floor(actions))), complaint
    )
    return actions.astype(np.int64)


def _check_table(name: str, values: ArrayLike, rows: int) -> Floats:
    array = validate.real_array(name, values)
    if array.ndim != 2 or len(array) != rows:
        raise InvalidValueError(
            f"{name} have shape {array.shape}; give {rows} rows, one per action"
        )
    _check_finite(name, array)
    return array


def _check_finite(name: str, array: Floats) -> None:
    if array.size > MOST_CELLS:
        raise InvalidValueError(f"{name} hold {array.size} numbers; at most {MOST_CELLS} fit")
    wrong = ~np.isfinite(array)
    if wrong.any():
        row, column = int(np.argwhere(wrong)[0][0]) + 1, int(np.argwhere(wrong)[0][-1])
        raise InvalidValueError(
            f"row {row}: column {column} of {name} is not finite; fill it in or leave the row out"
        )


def _number_users(users: Any, rows: int) -> NDArray[Any] | None:
    """Number users from 0 in order of appearance; their names mean nothing here."""
    if users is None:
        return None
    try:
        array = np.asarray(users)
    except ValueError:
        array = np.zeros((), object)
    if array.shape != (rows,) or array.dtype.kind not in "iuUfO":
        raise InvalidValueError(f"users have shape {array.shape}; give one word or number per row")
    names = list(map(str, array.tolist()))
    refuse(
        "user", np.array([name in ("", "None", "nan") for name in names]), "is missing; fill it in"
    )
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return np.array([numbers[name] for name in names], np.int64)


def _check_column_names(field: str, names: object, dim: int, letter: str) -> tuple[str, ...]:
    if not isinstance(names, tuple) or not all(isinstance(name, str) and name for name in names):
        raise InvalidValueError(f"{field} is no tuple of words; name every column")
    if not names:
        return tuple(f"{letter}{place}" for place in range(dim))
    if len(names) != dim or len(set(names)) != dim:
        raise InvalidValueError(
            f"{field} has {len(set(names))} words for {dim} columns; give one each"
        )
    return names
