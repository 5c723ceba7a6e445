"""What bandits without contexts share: a public proposal, and one protected number in return.

Algorithm 1 of K. Zheng, T. Cai, W. Huang, Z. Li, L. Wang, "Locally differentially private
(contextual) bandits learning" (2020). What is public about the law of a report is in a
`Channel`. Proof note: `base.md`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from jax import Array

from kerchief.core.contracts import Arms, Clock, Feedback, Policy, Release, Tree
from kerchief.core.problems import ContextFreeProblem
from kerchief.core.queries import Loss
from kerchief.core.random import Stream
from kerchief.core.struct import static, struct

__all__ = ["LOSS", "ContextFree"]

LOSS = "loss"
"""The name of the one query."""


@struct
class ContextFree(Policy):
    """A bandit that proposes, hears one number, and learns from both.

    A member of this family says how it proposes, what it learns and what it recommends; the rest of
    the contract is here. Whatever the learner knows is public, so the model is its state.

    Attributes:
        problem: the public facts.
    """

    problem: ContextFreeProblem = static()

    feedback: ClassVar[Feedback] = "reports"

    @property
    def queries(self) -> Mapping[str, Loss]:
        """The loss of the action that was proposed, unless it is said otherwise."""
        return {LOSS: Loss.of(self.problem)}

    def propose(self, state: Tree, round: Array, stream: Stream) -> Array:
        """Learner: the action of this round: an arm (int32), or points of the domain, one per row.

        Every row is a question of its own to the same user.
        """
        raise NotImplementedError

    def answer(self, action: Array, losses: Array) -> Array:
        """Device: the one number to report, from the loss of each question."""
        return losses[0]

    def learn(self, state: Tree, action: Array, report: Array, round: Array) -> Tree:
        """Learner: take in the report, an array of length 1. Draws nothing."""
        raise NotImplementedError

    def recommend(self, state: Tree) -> Array:
        """Learner: the arm or the point that it would name now."""
        raise NotImplementedError

    def update(self, state: Tree, name: str, release: Release) -> Tree:
        """Learner: the report of the user who came last, and what that user was asked."""
        assert release.action is not None
        return self.learn(state, release.action, release.total, release.count - 1)

    def act(self, model: Tree, arms: Arms, clock: Clock, stream: Stream) -> Array:
        """Learner: propose; users bring no arms."""
        return self.propose(model, clock.round, stream)

    def record(self, model: Tree, arms: Arms, action: Array, reward: Array) -> Mapping[str, Tree]:
        """Device: the answer, where one is asked for."""
        return {name: self.answer(action, reward) for name in self.queries}
