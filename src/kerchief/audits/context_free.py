"""What an onlooker sees of a bandit without contexts: every report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from kerchief.audits.views import TOGETHER
from kerchief.core.contracts import Outlook, Tree
from kerchief.core.problems import ContextFreeProblem
from kerchief.core.queries import Loss
from kerchief.core.random import Stream
from kerchief.core.struct import static, struct
from kerchief.privatizers.sums import CohortSums
from kerchief.simulation.context_free import Scene, advance, begin

__all__ = ["Users", "plain_views"]

Floats = NDArray[np.float64]


@struct
class Users:
    """A world in which nothing is left to chance: every user but the first loses the midpoint.

    The first user's losses are at one end or at the other, question by question in turn.

    Attributes:
        facts: the public facts.
        sign: 1 where the first question of the first user is lost most, else -1.
        half_width: how far from the midpoint the first user's losses are.
    """

    facts: ContextFreeProblem = static()
    sign: Array
    half_width: Array

    @classmethod
    def of(cls, facts: ContextFreeProblem, sign: float) -> Users:
        """The world whose first user has losses at these ends."""
        return cls(facts=facts, sign=jnp.float32(sign), half_width=jnp.float32(facts.width / 2))

    def problem(self, horizon: int) -> ContextFreeProblem:
        """The public facts, which were settled for one horizon."""
        assert horizon == self.facts.horizon
        return self.facts

    def init(self, stream: Stream) -> Tree:
        """There is no hidden truth."""
        return ()

    def losses(self, world: Tree, action: Array, round: Array, stream: Stream) -> Array:
        """One number a question."""
        questions = 1 if self.facts.arms else action.shape[0]
        midpoint = (self.facts.low + self.facts.high) / 2
        ends = self.sign * self.half_width * (-1.0) ** jnp.arange(questions)
        return midpoint + jnp.where(round == 0, ends, 0.0)

    def regret(self, world: Tree, action: Array, round: Array) -> Array:
        """Nothing is lost."""
        return jnp.zeros((), jnp.float32)

    def right(self, world: Tree, action: Array) -> Array:
        """No action is the best."""
        return jnp.zeros((), bool)


@struct
class Notes:
    """The learner's state, and every report that it was given."""

    state: Tree
    pages: Array


@struct
class Spy:
    """A bandit that does as another one does, and writes down the reports that it is given."""

    policy: ContextFreePolicy

    @property
    def problem(self) -> ContextFreeProblem:
        """As the other one."""
        return self.policy.problem

    @property
    def queries(self) -> Mapping[str, Loss]:
        """The same question."""
        return self.policy.queries

    def init(self, outlook: Mapping[str, Outlook]) -> Notes:
        """Empty pages."""
        pages = jnp.zeros((self.problem.horizon, 1))
        return Notes(state=self.policy.init(outlook), pages=pages)

    def propose(self, state: Notes, round: Array, stream: Stream) -> Array:
        """As the other one."""
        return self.policy.propose(state.state, round, stream)

    def answer(self, action: Array, losses: Array) -> Array:
        """As the other one."""
        return self.policy.answer(action, losses)

    def update(self, state: Notes, action: Array, report: Array, round: Array) -> Notes:
        """Write the report down, then hand it on."""
        return Notes(
            state=self.policy.update(state.state, action, report, round),
            pages=state.pages.at[round].set(report),
        )

    def stopped(self, state: Notes) -> Array:
        """As the other one."""
        return self.policy.stopped(state.state)

    def recommend(self, state: Notes) -> Array:
        """As the other one."""
        return self.policy.recommend(state.state)


def plain_views(
    *,
    policy: ContextFreePolicy,
    privatizers: Mapping[str, CohortSums],
    runs: int,
    seed: int,
    worlds: tuple[Users, Users] | None = None,
) -> tuple[Floats, Floats]:
    """Play many runs of two neighbouring worlds: the reports, by run, round and number.

    Args:
        policy: the bandit, from `simulation.context_free.arrange`.
        privatizers: what protects its reports, from there too.
        runs: how often each world is played.
        seed: of the first world; the second has the next one.
        worlds: other ones than those whose first user is at either end.
    """
    ends = worlds or (Users.of(policy.problem, 1.0), Users.of(policy.problem, -1.0))
    one, other = (
        _seen(
            Scene(
                policy=Spy(policy=policy),
                privatizers=dict(privatizers),
                environment=world,
                seed=jnp.uint32(number),
            ),
            runs,
        )
        for number, world in enumerate(ends, start=seed)
    )
    return one, other


def _seen(scene: Scene, runs: int) -> Floats:
    """What these runs showed, some runs after others."""
    chunks = []
    for start in range(0, runs, TOGETHER):
        numbers = jnp.arange(start, min(start + TOGETHER, runs), dtype=jnp.uint32)
        carry: Any = begin(scene, numbers)
        carry = advance(scene, carry, jnp.int32(0), length=scene.policy.problem.horizon)
        chunks.append(np.asarray(carry.state.pages, np.float64))
    return np.concatenate(chunks)
