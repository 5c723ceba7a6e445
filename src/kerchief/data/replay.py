"""Environment that replays logs: a bandit meets logged users and logged rewards."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from kerchief.core import validate
from kerchief.core.contracts import Arms, Clock
from kerchief.core.errors import InvalidValueError
from kerchief.core.precision import double_precision
from kerchief.core.problems import Problem
from kerchief.core.random import WORLD, Stream, open_unit
from kerchief.core.struct import static, struct
from kerchief.data.logs import Logs, refuse
from kerchief.environments.supervised import Origin

# Features are float32.
_ROUNDING = 1e-6
# Users who are looked at together, and the chance that nobody of all of them counts.
_BLOCK, _LOST_ROUND_CHANCE = 16, 1e-6
_MOST_TRIES = 2**16


@struct
class LoggedArms(Arms):
    """A logged user's arms, and the row of the logs: the reward is in it. -1 is no row."""

    row: Array = dataclasses.field(default_factory=lambda: jnp.int32(-1))


@struct
class Replay:
    """A world that replays logs, without bias whatever the logging policy did.

    A round draws logged users, one after the other, until one counts: the bandit's choice is what
    was logged, and a coin of chance c/p falls right, where p is the logged propensity and c the
    least one. Then every user counts with the same chance c, and both users and rewards have the
    law that they would have if the bandit had really played. Four assumptions are in this: rows are
    independent, propensities are right, every allowed arm had a chance above 0 for every user, and
    what was done to one user changed nothing for others.

    - A replicate draws a bootstrap sample of the logs, as large as they are, and its rounds draw
      from it, with replacement: the spread of replicates includes that logs are finite.
    - Users who do not count leave no trace. On average 1/c are looked at. After `tries` of them,
      which happens with chance 1e-6 or less where the assumptions hold, the round is lost: the
      bandit plays for a user without features and gets the least reward. So a bandit gains
      nothing from arms that were not logged.
    - With a `least` above some propensities, their coins always fall right: faster, and biased
      towards the logging policy for these rows.
    - Regret is against the best single arm, whose mean reward is estimated from all logs by
      inverse propensity with normalized weights. In a round it is that mean less the logged
      reward: it may be negative, and a bandit that learns who likes what can end below 0.

    Only a simulation plays here: what is released about users is `off_policy_value`'s matter.

    Attributes:
        rounds: how many rounds the logs would last if nobody were met twice: c times the rows.
        counted: where arms were counted that nobody had declared, in words.
        known: whether the logs say who came.
    """

    contexts: Array
    of_arms: Array
    allowed: Array
    actions: Array
    rewards: Array
    chances: Array
    means: Array
    low: float = static()
    high: float = static()
    norm: float = static()
    constant: float = static()
    own: int = static()
    tries: int = static()
    rounds: int = static()
    origin: Origin = static()
    counted: str | None = static(default=None)
    known: bool = static(default=False)

    # Arrays are neither hashed nor compared: data are equal to themselves alone.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    @classmethod
    @double_precision
    def of(
        cls,
        logs: Logs,
        *,
        norm: float | None = None,
        arm_norm: float | None = None,
        least: float | None = None,
        origin: Origin | None = None,
        counted: str | None = None,
    ) -> Self:
        """Make a world of logs.

        Args:
            logs: users' features have a parameter of each arm's own. Features of arms share one,
                and so do their products with users' features, where there are both.
            norm: public bound on the norm of a user's features; None where the logs declare it.
            arm_norm: public bound on the norm of an arm's features.
            least: c, the propensity from which on coins always fall right.
            origin: where the logs come from.
            counted: where arms were counted that nobody had declared.

        >>> logs = Logs(contexts=np.array([[0.5], [0.1]]), actions=np.array([0, 1]), arms=2,
        ...     rewards=np.array([1, 0]), propensities=np.array([0.5, 0.5]), low=0.0, high=1.0)
        >>> Replay.of(logs, norm=1.0).problem(2).own
        1
        """
        if not isinstance(counted, str | None):
            raise InvalidValueError(
                f"counted is {str(counted)[:80]}; say in words where arms were found"
            )
        bound = _compute_bound(logs, norm, arm_norm)
        least = float(logs.propensities.min()) if least is None else least
        least = validate.between("least_propensity", least, 0.0, 1.0 + _ROUNDING)
        unplayed = np.setdiff1d(np.arange(logs.arms), logs.actions)
        if unplayed.size:
            suffix = f", nor were {unplayed.size - 1} others" if unplayed.size > 1 else ""
            raise InvalidValueError(
                f"arm {unplayed[0]}, counted from 0, was never logged{suffix}: what it would have "
                "given is not known; declare only arms that were played"
            )
        of_arms = np.zeros((logs.arms, 0)) if logs.arm_features is None else logs.arm_features
        return cls(
            contexts=jnp.asarray(logs.contexts, jnp.float32),
            of_arms=jnp.asarray(of_arms, jnp.float32),
            allowed=jnp.asarray(
                np.ones((1, logs.arms), bool) if logs.allowed is None else logs.allowed
            ),
            actions=jnp.asarray(logs.actions, jnp.int32),
            rewards=jnp.asarray(logs.rewards, jnp.float32),
            chances=jnp.asarray(np.minimum(1.0, least / logs.propensities), jnp.float32),
            means=jnp.asarray(_estimate_means(logs), jnp.float32),
            low=logs.low,
            high=logs.high,
            norm=bound,
            constant=logs.constant if logs.arm_features is None else 0.0,
            own=logs.dim if logs.arm_features is None else 0,
            tries=_count_tries(least),
            rounds=max(1, int(least * logs.rows)),
            origin=Origin(name="logs") if origin is None else origin,
            counted=counted,
            known=logs.users is not None,
        )

    def problem(self, horizon: int) -> Problem:
        """The public facts; a run longer than the logs is refused."""
        return Problem(
            dim=self.own or self.of_arms.shape[-1] * (1 + self.contexts.shape[1]),
            arms=self.count,
            norm=self.norm,
            radius=max(abs(self.low), abs(self.high)),
            low=self.low,
            high=self.high,
            horizon=validate.whole("horizon", horizon, high=self.rows),
            constant=self.constant,
            own=self.own,
        )

    @property
    def rows(self) -> int:
        """How many decisions were logged."""
        return self.actions.shape[0]

    @property
    def count(self) -> int:
        """How many arms there are."""
        return self.means.shape[0]

    def init(self, stream: Stream) -> Stream:
        """The address of this replicate's bootstrap sample, which is never written out."""
        return stream

    def arms(self, world: Stream, clock: Clock, stream: Stream) -> LoggedArms:
        """Draw a logged user, whether or not the bandit would agree with the logs."""
        return self._build_arms(self._sample_rows(world, stream.words(1)[0])[0])

    def opposed(
        self, world: Stream, clock: Clock, stream: Stream, choose: Callable[[Arms], Array]
    ) -> LoggedArms:
        """The first user who counts, of those that are drawn."""

        def look(state: tuple[Array, Array]) -> tuple[Array, Array]:
            block, _ = state
            bits, coins, _, _ = stream.split(block + 1).words(_BLOCK)
            rows = self._sample_rows(world, bits)
            agree = jax.vmap(lambda row: choose(self._build_arms(row)))(rows) == self.actions[rows]
            counts = agree & (open_unit(coins) <= self.chances[rows])
            return block + 1, jnp.where(counts.any(), rows[jnp.argmax(counts)], -1)

        def go_on(state: tuple[Array, Array]) -> Array:
            block, row = state
            return (row < 0) & (block < self.tries // _BLOCK)

        start = (jnp.uint32(0), jnp.int32(-1))
        return self._build_arms(jax.lax.while_loop(go_on, look, start)[1])

    def reward(
        self, world: Stream, arms: Arms, action: Array, clock: Clock, stream: Stream
    ) -> Array:
        """Logged reward where the logged arm was chosen; else the least reward."""
        row = _get_row(arms)
        is_logged = (row >= 0) & (self.actions[row] == action)
        return jnp.where(is_logged, self.rewards[row], jnp.float32(self.low))

    def regret(self, world: Stream, arms: Arms, action: Array, clock: Clock) -> Array:
        """The best single arm's mean reward, less the reward."""
        return self.means.max() - self.reward(world, arms, action, clock, world)

    def single(self, world: Stream) -> Array:
        """The arm whose estimated mean reward is the greatest."""
        return jnp.argmax(self.means)

    def _sample_rows(self, world: Stream, bits: Array) -> Array:
        """Draw rows of the logs from the bootstrap sample of this replicate.

        What stands at a place follows from its address, so a sample needs no memory.
        """
        rows = self.rows

        def stands_at(place: Array) -> Array:
            return _scale_to_range(world.at(WORLD, round=place).split(1).words(1)[0][0], rows)

        return jax.vmap(stands_at)(_scale_to_range(bits, rows))

    def _build_arms(self, row: Array) -> LoggedArms:
        """Build the arms of a row; the features of no row are zeros."""
        is_row = (row >= 0).astype(jnp.float32)
        of_arms = self.of_arms if self.of_arms.ndim == 2 else self.of_arms[row]
        features = _combine_features(self.contexts[row], of_arms) * is_row
        allowed = self.allowed[row if self.allowed.shape[0] > 1 else 0]
        return LoggedArms(features=features, allowed=allowed, row=row)


def _combine_features(user: Array, of_arms: Array) -> Array:
    """Repeat user features per arm, or join arm features and products with them."""
    if not of_arms.shape[-1]:
        return jnp.tile(user, (of_arms.shape[0], 1))
    products = of_arms[:, :, None] * user
    return jnp.concatenate([of_arms, products.reshape(of_arms.shape[0], -1)], axis=-1)


def _get_row(arms: Arms) -> Array:
    assert isinstance(arms, LoggedArms)
    return arms.row


def _scale_to_range(bits: Array, count: int) -> Array:
    """Scale 32 random bits to a whole number below the count."""
    wide = bits.astype(jnp.uint64) * np.uint64(count)
    return (wide >> 32).astype(jnp.int32)


def _count_tries(least: float) -> int:
    """Count users to draw so that none counts with chance 1e-6, in whole blocks."""
    tries = math.log(_LOST_ROUND_CHANCE) / math.log1p(-min(least, 0.99))
    if tries > _MOST_TRIES:
        raise InvalidValueError(
            f"the least propensity is {least:g}, so that some {1 / least:.3g} users must be drawn "
            "per round; give least, such as 0.01, and accept the bias for rows below it"
        )
    return _BLOCK * math.ceil(tries / _BLOCK)


def _estimate_means(logs: Logs) -> NDArray[np.float64]:
    """Estimate mean rewards of arms by inverse propensity with normalized weights."""
    weights = 1 / logs.propensities
    total = np.bincount(logs.actions, weights * logs.rewards, minlength=logs.arms)
    means: NDArray[np.float64] = total / np.bincount(logs.actions, weights, minlength=logs.arms)
    return means


def _compute_bound(logs: Logs, norm: float | None, arm_norm: float | None) -> float:
    """Compute the public bound on the features of an arm, and check it on the logs."""
    if not logs.dim and not logs.arm_dim:
        raise InvalidValueError("the logs have no features; name some, of users or of arms")
    for name, value, owner, dim in (
        ("norm", norm, "users", logs.dim),
        ("arm_norm", arm_norm, "arms", logs.arm_dim),
    ):
        if value is not None and not dim:
            bound = validate.positive(name, value)
            raise InvalidValueError(
                f"{name} is {bound}, and no features of {owner} are read from these logs; leave "
                "it out"
            )
    user = _check_bound(
        "norm", "a user's features", logs.norm if norm is None else norm, logs.contexts
    )
    arm = _check_bound("arm_norm", "an arm's features", arm_norm, logs.arm_features)
    return arm * math.hypot(1.0, user) if arm else user


def _check_bound(name: str, owner: str, bound: float | None, features: Any) -> float:
    if features is None or not features.shape[-1]:
        return 0.0
    if bound is None:
        raise InvalidValueError(
            f"{name} is not given; declare a public bound on the norm of {owner}"
        )
    bound = validate.between(name, bound, 1e-9, 1e9, closed=True)
    with np.errstate(over="ignore"):
        lengths = np.linalg.norm(features, axis=-1).reshape(len(features), -1).max(axis=1)
    refuse(
        name, ~(lengths <= bound * (1 + _ROUNDING)), f"{bound:g} is exceeded; scale the features"
    )
    return bound
