"""A bandit over bandits: which of several learners the next user follows.

After the Private Bandits Combiner, Algorithm 2 of "Improved rate for Locally Differentially Private
Linear Bandits" (TMLR submission), itself after Cutkosky, Das and Purohit 2020 (Cutkosky et al.
2020, "Upper confidence bounds for combining stochastic bandits"). All learners pose the same query,
so a user sends one report whoever was followed. As printed the constants never let it look at a
second learner (`combiner@paper`; proof in `combiner.md`).

The working one balances instead (Pacchiano, Dann, Gentile and Bartlett 2020, Pacchiano et al. 2020,
"Regret bound balancing and elimination for model selection"): it follows the learner that has been
followed least, and drops one whose rewards show that it is worse.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Self

import jax
import jax.numpy as jnp
from jax import Array

from kerchief.core.contracts import Arms, Clock, NoiseInfo, Policy, Release, Tree
from kerchief.core.pairs import Pair
from kerchief.core.problems import Problem
from kerchief.core.random import Stream
from kerchief.core.struct import struct
from kerchief.core.validate import between
from kerchief.policies.linear.online import OnlineLinUCB
from kerchief.policies.linear.online_paper import PrintedAnytime, PrintedLinUCB
from kerchief.policies.linear.pairs import PairLinUCB, ReleasedTotal
from kerchief.policies.refresh import Patient
from kerchief.policies.registry import Mode, register

_FAILURE = 0.01


@struct
class State:
    """The memory of a bandit over bandits; rows are learners.

    Whom users follow now, how many followed each, the sum of their reported rewards, how far these
    fell below the mean of those before, in all, and who may still be followed.
    """

    seen: ReleasedTotal
    learners: tuple[Tree, ...]
    posted: Array
    plays: Array
    rewards: Array
    shortfall: Array
    active: Array


@struct
class Model:
    """The billboard: every learner's model, and whom to follow."""

    learners: tuple[Tree, ...]
    posted: Array


@struct
class Combiner(Patient):
    """Regret balancing over learners with the same query.

    A learner is dropped when its mean reward, plus c √(v/n) on either side and plus what its regret
    may be by now, r/√n, is below that of another; v is the variance of a reported reward.

    Attributes:
        spread: deviation of a reward, at most.
        caution: c.
        slowness: r, the same for all learners.
        patience: how rarely the index and the models are posted, see `is_refresh_due`.

    >>> problem = Problem(dim=2, arms=3, norm=1.0, radius=1.0, low=-1.0, high=1.0, horizon=100)
    >>> policy = Combiner.of(problem)
    >>> model = policy.publish(policy.init({"pair": NoiseInfo(noisy=False)}))
    >>> int(model.posted)
    0
    """

    learners: tuple[Policy, ...]
    spread: float | Array
    caution: float | Array
    slowness: float | Array
    patience: float | Array

    @classmethod
    def of(cls, problem: Problem, *, mode: Mode = "tuned") -> Self:
        """Build it over errors in the variables and gradient descent."""
        return cls(
            learners=(PairLinUCB.of(problem, mode=mode), OnlineLinUCB.of(problem, mode=mode)),
            spread=(problem.high - problem.low) / 2,
            caution=2.0,
            slowness=1.0,
            patience=0.01,
        )

    @property
    def queries(self) -> Mapping[str, Pair]:
        """The query that all learners share."""
        queries: Mapping[str, Pair] = self.learners[0].queries  # type: ignore[assignment]
        return queries

    def init(self, outlook: Mapping[str, NoiseInfo]) -> State:
        """Return the state before any user; the first learner will be followed."""
        nobody = jnp.zeros(len(self.learners), jnp.float64)
        return State(
            seen=ReleasedTotal.nothing(self.queries["pair"]),
            learners=tuple(learner.init(outlook) for learner in self.learners),
            posted=jnp.int32(0),
            plays=nobody,
            rewards=nobody,
            shortfall=nobody,
            active=jnp.ones(len(self.learners), bool),
        )

    def update(self, state: State, name: str, release: Release) -> State:
        """Update learners, count the reward for the followed one, and choose anew."""
        latest, total = state.seen.next(self.queries["pair"], release)
        followed = jnp.arange(len(self.learners)) == state.posted
        mean = state.rewards / jnp.maximum(1.0, state.plays)
        counted_state = dataclasses.replace(
            state,
            seen=total,
            learners=self._update_learners(state, name, release),
            plays=state.plays + followed,
            rewards=state.rewards + followed * latest.reward,
            shortfall=state.shortfall + followed * (mean - latest.reward),
        )
        tested_state = dataclasses.replace(counted_state, active=self._active(counted_state))
        # The index that is posted now is for the users until the next posting, and so is this one.
        due = self.refreshes(Clock(round=release.count - 1, since={}))
        score = jnp.where(tested_state.active, self._score(tested_state), -jnp.inf)
        leader = jnp.argmax(score).astype(jnp.int32)
        return dataclasses.replace(tested_state, posted=jnp.where(due, leader, state.posted))

    def publish(self, state: State) -> Model:
        """Publish all models, and the learner to follow."""
        pairs = zip(self.learners, state.learners, strict=True)
        return Model(
            learners=tuple(learner.publish(memory) for learner, memory in pairs),
            posted=state.posted,
        )

    def act(self, model: Model, arms: Arms, clock: Clock, stream: Stream) -> Array:
        """Play the choice of the followed learner."""
        pairs = zip(self.learners, model.learners, strict=True)
        return jnp.stack([learner.act(part, arms, clock, stream) for learner, part in pairs])[
            model.posted
        ]

    def record(self, model: Model, arms: Arms, action: Array, reward: Array) -> Mapping[str, Tree]:
        """Report features and reward, in one report whichever learner was followed."""
        return self.learners[0].record(model.learners[0], arms, action, reward)

    def _update_learners(self, state: State, name: str, release: Release) -> tuple[Tree, ...]:
        """Update every learner with the report."""
        pairs = zip(self.learners, state.learners, strict=True)
        return tuple(learner.update(memory, name, release) for learner, memory in pairs)

    def _variance(self, state: State) -> Array:
        """Variance of a reported reward: that of the reward and that of the noise."""
        noise = state.seen.variance / jnp.maximum(1, state.seen.count)
        return self.spread**2 + noise / self.queries["pair"].balance ** 2

    def _active(self, state: State) -> Array:
        """Drop learners that are surely worse than another; unplayed ones stay."""
        plays = jnp.maximum(1.0, state.plays)
        mean, doubt = state.rewards / plays, self.caution * jnp.sqrt(self._variance(state) / plays)
        floor = jnp.where(state.plays > 0, mean - doubt, -jnp.inf).max()
        hope = mean + doubt + self.slowness / jnp.sqrt(plays)
        return state.active & ((hope >= floor) | (state.plays == 0))

    def _score(self, state: State) -> Array:
        """Score learners so that the one that was followed least comes first."""
        return -state.plays


@dataclasses.dataclass(frozen=True, kw_only=True)
class Constants:
    """What Theorem 4.1 asks for, one number per learner.

    The guesses λ_i of the least eigenvalue, L_i, α_i, and R_i/T, which the scores are reduced by.
    """

    eigenvalues: tuple[float, ...]
    regrets: tuple[float, ...]
    powers: tuple[float, ...]
    offsets: tuple[float, ...]


def printed_constants(horizon: int, dim: int, epsilon: float) -> Constants:
    """The constants of Algorithm 2 and Theorem 4.1, with P = P' = 1 and α = 0.01.

    >>> constants = printed_constants(20000, 5, 1.0)
    >>> [round(offset, 1) for offset in constants.offsets]
    [37.0, 6.2, 3.3]
    """
    count, root = math.ceil(math.log2(horizon) / 8) + 1, horizon**0.125
    log, size = math.log(horizon) ** 1.5, math.sqrt(dim)
    eigenvalues = tuple(2.0**i / root for i in range(count))
    regrets = (
        log * size * (1 + 1 / (epsilon * root)),
        *(log * size / (epsilon * eigenvalue) for eigenvalue in eigenvalues[1:]),
    )
    powers = (0.75, *(0.5 for _ in eigenvalues[1:]))
    pull = size * math.sqrt(horizon)
    rates = (
        epsilon * root / (pull * (log * epsilon * root + 1)),
        *(epsilon / (log * pull) for _ in eigenvalues[1:]),
    )
    tail = 288 * math.log(horizon**3 * count / _FAILURE)
    inverse_rates = sum(1 / rate for rate in rates)
    offsets = tuple(
        bound * horizon ** (power - 1)
        + _factor(power) * bound ** (1 / power) * rate ** ((1 - power) / power)
        + tail * rate
        + (inverse_rates - 1 / rate) / horizon
        for bound, power, rate in zip(regrets, powers, rates, strict=True)
    )
    return Constants(eigenvalues=eigenvalues, regrets=regrets, powers=powers, offsets=offsets)


def _factor(power: float) -> float:
    """The factor (1 - α)^((1 - α)/α) (1 + α)^(1/α) / α^((1 - α)/α)."""
    over = (1 - power) / power
    return float((1 - power) ** over * (1 + power) ** (1 / power) / power**over)


@struct
class PrintedCombiner(Combiner):
    """Algorithm 2 with the constants of its theorem; only the learner that was followed learns.

    The numbers are L_i, α_i, R_i/T (`Constants`) and T.
    """

    regrets: tuple[float | Array, ...]
    powers: tuple[float | Array, ...]
    offsets: tuple[float | Array, ...]
    horizon: float | Array

    @classmethod
    def build_with_budget(
        cls, problem: Problem, epsilon: float = 1.0, delta: float = 0.1, *, mode: Mode = "theory"
    ) -> PrintedCombiner:
        """Build Algorithm 9 and several of Algorithm 1 for a privacy guarantee."""
        between("epsilon", epsilon, 1e-9, 1e9, closed=True)
        constants = printed_constants(problem.horizon, problem.dim, epsilon)
        bar, *guesses = constants.eigenvalues
        first = PrintedAnytime.build_with_budget(problem, epsilon, delta, least=bar, power=0.125)
        fixed_horizon = (
            PrintedLinUCB.build_with_budget(problem, epsilon, delta, least=guess, power=0.125)
            for guess in guesses
        )
        return cls(
            learners=(first, *fixed_horizon),
            spread=1.0,
            caution=1.7,
            slowness=0.0,
            patience=0.0,
            regrets=constants.regrets,
            powers=constants.powers,
            offsets=constants.offsets,
            horizon=float(problem.horizon),
        )

    def refreshes(self, clock: Clock) -> bool:
        """Publish after every user."""
        return True

    def _update_learners(self, state: State, name: str, release: Release) -> tuple[Tree, ...]:
        """Update the learner that was followed; the others only note the release."""
        new = super()._update_learners(state, name, release)
        return tuple(
            jax.tree.map(
                lambda learned, idle, i=i: jnp.where(state.posted == i, learned, idle),
                after,
                dataclasses.replace(before, seen=after.seen),
            )
            for i, (before, after) in enumerate(zip(state.learners, new, strict=True))
        )

    def _regret_bound(self, state: State) -> Array:
        """L n^α + p √(n (1 + σ²) ln(T³ M ln(n (1 + σ²))/α)), where n is at least 1."""
        plays = jnp.maximum(1.0, state.plays)
        total = plays * self._variance(state)
        inner = self.horizon**3 * len(self.learners) / _FAILURE
        # Below e the printed logarithm of a logarithm is no number.
        log = jnp.log(inner * jnp.log(jnp.maximum(math.e, total)))
        powers, regrets = jnp.array(self.powers), jnp.array(self.regrets)
        return regrets * plays**powers + self.caution * jnp.sqrt(total * log)

    def _active(self, state: State) -> Array:
        """Drop the followed learner if its rewards fell too far below their mean."""
        followed = jnp.arange(len(self.learners)) == state.posted
        return state.active & ~(followed & (state.shortfall >= self._regret_bound(state)))

    def _score(self, state: State) -> Array:
        """The upper bound on a learner's rewards, less its offset."""
        plays = jnp.maximum(1.0, state.plays)
        bonus = jnp.minimum(1.0, self._regret_bound(state) / plays)
        return state.rewards / plays + bonus - jnp.array(self.offsets)


register(
    "combiner",
    Combiner,
    summary="Follow the best of several learners on noisy pairs",
    source="Improved rate for Locally Differentially Private Linear Bandits, Algorithm 2, "
    "repaired; Pacchiano et al. 2020",
    trusts=("none", "local"),
)
register(
    "combiner@paper",
    PrintedCombiner,
    summary="The paper's combiner of learners, with its printed constants",
    source="Improved rate for Locally Differentially Private Linear Bandits, Algorithm 2; "
    "Cutkosky et al. 2020",
    trusts=("none", "local"),
    default_environment=None,
    build_with_budget=PrintedCombiner.build_with_budget,
    noises={"local": "gaussian"},
)
