"""Data as a world: every user's features are given, and what each arm would have brought them."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Self

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike, NDArray

from kerchief.core import validate
from kerchief.core.contracts import Arms, Clock, Tree
from kerchief.core.errors import InvalidValueError
from kerchief.core.precision import double_precision
from kerchief.core.problems import Problem
from kerchief.core.random import WORLD, Stream
from kerchief.core.struct import static, struct

ORDERS = ("permutation", "bootstrap")
"""In which order users come: each once, or drawn anew every round."""

# Features are float32.
_ROUNDING = 1e-6


@dataclasses.dataclass(frozen=True, kw_only=True)
class Origin:
    """Where data come from, for whoever reads about them.

    Attributes:
        name: what the world is called.
        parameters: how they were declared, in the words of the command line.
        clipped: the share of rows that declared bounds cut; not private, as is the next.
        shares: for each feature that was cut, the share of rows in which it was.
    """

    name: str = "data"
    parameters: tuple[tuple[str, Any], ...] = ()
    clipped: float = 0.0
    shares: tuple[tuple[str, float], ...] = ()


@struct
class Supervised:
    """Users whose reward is known for every arm: of the right label, or from a table.

    Every replicate meets the users in an order of its own. Regret is against the best arm of each
    user, so with labels it counts mistakes, and mean reward is one less regret per round.

    Attributes:
        users: one row per user, for which every arm has a parameter of its own; may be empty.
        offers: features that share one parameter, one row per arm, or one per user and arm; may be
            empty.
        outcomes: the right arm of each user, or one row of rewards per user.
        norm: bound on the norm of an arm's features, the user's behind the shared ones.
        constant: the last coordinate, where all rows share it; 0 where they do not.
        low: least reward.
        high: greatest reward.
        count: how many arms there are.
        orders: in which order users come, a word of `ORDERS`.
    """

    users: Array
    offers: Array
    outcomes: Array
    norm: float = static()
    constant: float = static()
    low: float = static()
    high: float = static()
    count: int = static()
    orders: str = static()
    origin: Origin = static()

    # Arrays are neither hashed nor compared: data are equal to themselves alone.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    @classmethod
    @double_precision
    def of(
        cls,
        *,
        users: ArrayLike | None = None,
        offers: ArrayLike | None = None,
        labels: ArrayLike | None = None,
        rewards: ArrayLike | None = None,
        arms: int | None = None,
        norm: float,
        constant: float = 0.0,
        low: float = 0.0,
        high: float = 1.0,
        orders: str = "permutation",
        origin: Origin | None = None,
    ) -> Self:
        """Check the data against their public bounds.

        Args:
            users: features of users, with a model per arm.
            offers: features of arms, or of arms as each user meets them, with one model for all.
            labels: the number of the arm that brings each user reward 1, from 0.
            rewards: one row per user and one column per arm, in place of labels.
            arms: how many arms there are; by default as many as labels, or columns, say.
            norm: bound on the norm of an arm's features.
            constant: the last coordinate, where all rows share it.
            low: least reward.
            high: greatest reward.
            orders: "permutation", each user once, or "bootstrap", drawn with replacement.
            origin: where the data come from.

        >>> data = Supervised.of(users=[[0.6, 0.8], [0.0, 0.8]], labels=[0, 1], norm=1.0,
        ...     constant=0.8)
        >>> data.problem(2).arms
        2
        """
        low, high = (
            validate.between("reward", bound, -1e9, 1e9, closed=True) for bound in (low, high)
        )
        outcomes, count = _outcomes(labels, rewards, arms, low, high)
        shapes = {"users": (len(outcomes), 0), "offers": (count, 0)}
        user_rows = _rows("users", users, shapes["users"])
        arm_rows = _rows("offers", offers, shapes["offers"])
        if user_rows.shape[0] != len(outcomes) or user_rows.ndim != 2:
            raise InvalidValueError(
                f"users have shape {user_rows.shape}, and there are {len(outcomes)} outcomes; give "
                "one row and one outcome per user"
            )
        if arm_rows.shape[:-1] not in ((count,), (len(outcomes), count)):
            raise InvalidValueError(
                f"offers have shape {arm_rows.shape}, and there are {count} arms; give one row per "
                "arm, or one row per user and arm"
            )
        norm, constant = _check_bounds(user_rows, arm_rows, norm, constant)
        has_labels = labels is not None
        return cls(
            users=jnp.asarray(user_rows, jnp.float32),
            offers=jnp.asarray(arm_rows, jnp.float32),
            outcomes=jnp.asarray(outcomes, jnp.int32 if has_labels else jnp.float32),
            norm=norm,
            constant=constant,
            low=low,
            high=high,
            count=count,
            orders=validate.one_of("orders", orders, ORDERS),
            origin=origin or Origin(),
        )

    @property
    def rows(self) -> int:
        """How many users there are."""
        return int(self.outcomes.shape[0])

    def problem(self, horizon: int) -> Problem:
        """The public facts; a run longer than the data is refused, unless users are drawn anew."""
        if self.orders == "permutation" and horizon > self.rows:
            raise InvalidValueError(
                f"horizon is {horizon}, and there are {self.rows} users who come once each; play "
                "at most so many rounds, or draw users anew with orders bootstrap"
            )
        own, offered, reward_range = (
            self.users.shape[-1],
            self.offers.shape[-1],
            self.high - self.low,
        )
        return Problem(
            dim=offered + self.count * own if self.mixed else offered + own,
            arms=self.count,
            norm=self.norm,
            radius=reward_range * math.sqrt(1 + self.count) if self.mixed else reward_range,
            low=self.low,
            high=self.high,
            horizon=horizon,
            constant=0.0 if self.mixed else self.constant,
            own=0 if self.mixed else own,
        )

    @property
    def mixed(self) -> bool:
        """Whether both users and arms have features.

        Then every arm's own parameter is a block of a long one, which all share: an arm's features
        are those that it offers and, in its block, the user's.
        """
        return bool(self.users.shape[-1] and self.offers.shape[-1])

    def init(self, stream: Stream) -> Tree:
        """The order in which users come, or where they are drawn from."""
        if self.orders == "bootstrap":
            return stream
        tickets = jnp.concatenate(stream.words(-(-self.rows // 4)))[: self.rows]
        return jnp.argsort(tickets).astype(jnp.int32)

    def arms(self, world: Tree, clock: Clock, stream: Stream) -> Arms:
        """This round's user: features of arms, or the user's for every arm, or both (`mixed`)."""
        row = self._user(world, clock)
        user = self.users[row]
        block = jnp.eye(self.count) if self.mixed else jnp.ones((self.count, 1))
        own = jnp.kron(block.astype(user.dtype), user)
        offers = self.offers if self.offers.ndim == 2 else self.offers[row]
        features = jnp.concatenate([offers, own], axis=1)
        return Arms(features=features, allowed=jnp.ones(self.count, bool))

    def reward(self, world: Tree, arms: Arms, action: Array, clock: Clock, stream: Stream) -> Array:
        """What this user gets from an arm."""
        return self._rewards(world, clock)[action]

    def regret(self, world: Tree, arms: Arms, action: Array, clock: Clock) -> Array:
        """What this user would have got more from their best arm."""
        rewards = self._rewards(world, clock)
        return rewards.max() - rewards[action]

    def single(self, world: Tree) -> Array:
        """The arm with the greatest mean reward over all users."""
        if self.outcomes.ndim == 1:
            return jnp.argmax(jnp.bincount(self.outcomes, length=self.count))
        return jnp.argmax(self.outcomes.mean(0))

    def _user(self, world: Tree, clock: Clock) -> Array:
        """The number of this round's user."""
        if self.orders == "bootstrap":
            (bits,) = world.at(WORLD, round=clock.round).words(1)[0]
            pick: Array = (bits % jnp.uint32(self.rows)).astype(jnp.int32)
            return pick
        row: Array = world[clock.round]
        return row

    def _rewards(self, world: Tree, clock: Clock) -> Array:
        """What each arm brings this user."""
        outcome: Array = self.outcomes[self._user(world, clock)]
        if self.outcomes.ndim == 1:
            return (jnp.arange(self.count) == outcome).astype(jnp.float32)
        return outcome


def _outcomes(
    labels: ArrayLike | None, rewards: ArrayLike | None, arms: int | None, low: float, high: float
) -> tuple[NDArray[Any], int]:
    """Labels or rewards, and how many arms there are."""
    if (labels is None) == (rewards is None):
        raise InvalidValueError(
            "labels and rewards are both given, or neither is; give one of them"
        )
    validate.at_least("high - low", high - low, 1e-9)
    outcomes = _labels(labels) if labels is not None else _rewards_in(rewards, low, high)
    if labels is not None and (low, high) != (0.0, 1.0):
        raise InvalidValueError(f"rewards of labels lie in [0, 1], not in [{low}, {high}]")
    least = int(outcomes.max()) + 1 if labels is not None else outcomes.shape[1]
    count = validate.whole("arms", least if arms is None else arms, low=least, high=2**24)
    if labels is None and count != least:
        raise InvalidValueError(
            f"arms is {arms}, and rewards have {least} columns; give one per arm"
        )
    return outcomes, count


def _labels(labels: ArrayLike) -> NDArray[Any]:
    try:
        array = np.asarray(labels)
    except (TypeError, ValueError, OverflowError):
        array = np.asarray(None)
    if array.ndim != 1 or not array.size or array.dtype.kind not in "iu" or array.min() < 0:
        raise InvalidValueError("labels are not one whole number from 0 for each of some users")
    return array


def _rewards_in(rewards: ArrayLike | None, low: float, high: float) -> NDArray[np.float64]:
    array = validate.real_array("rewards", [] if rewards is None else rewards)
    if array.ndim != 2 or not array.size:
        raise InvalidValueError(
            f"rewards have shape {array.shape}; give one row per user and one column per arm"
        )
    if not ((array >= low) & (array <= high)).all():
        raise InvalidValueError(f"rewards do not all lie in [{low}, {high}]; declare a wider range")
    return array


def _rows(name: str, features: ArrayLike | None, empty: tuple[int, ...]) -> NDArray[np.float64]:
    if features is None:
        return np.zeros(empty)
    rows = validate.real_array(name, features)
    if rows.ndim < 2:
        raise InvalidValueError(f"{name} have shape {rows.shape}; give one row of features each")
    return rows


def _check_bounds(
    users: NDArray[np.float64], offers: NDArray[np.float64], norm: float, constant: float
) -> tuple[float, float]:
    """Refuse rows longer than the norm, and a constant that is none."""
    if not users.shape[-1] + offers.shape[-1]:
        raise InvalidValueError("there are no features; give those of users, of arms, or both")
    with np.errstate(over="ignore"):
        lengths = [np.linalg.norm(rows, axis=-1).max(initial=0.0) for rows in (users, offers)]
    longest = math.hypot(*lengths)
    norm = validate.between("norm", norm, 1e-9, 1e9, closed=True)
    if not longest <= norm * (1 + _ROUNDING):
        raise InvalidValueError(f"the longest row has norm {longest}; it must be at most {norm}")
    constant = validate.between("constant", constant, -norm, norm, closed=True)
    last = (users if users.shape[-1] else offers)[..., -1]
    if constant and not np.allclose(last, constant):
        raise InvalidValueError(
            f"constant is {constant}; the last coordinate of all rows must be it"
        )
    return norm, constant
