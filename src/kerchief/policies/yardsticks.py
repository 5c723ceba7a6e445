"""Uniform and greedy play: what every comparison is measured against, in problems of every kind."""

from __future__ import annotations

from collections.abc import Mapping

import jax.numpy as jnp
from jax import Array

from kerchief.core.channel import Channel
from kerchief.core.contracts import Arms, BoundedSum, Clock, Outlook, Policy, Release, Tree
from kerchief.core.problems import AnyProblem, ContextFreeProblem, PopulationProblem, Problem
from kerchief.core.random import Stream
from kerchief.core.struct import struct
from kerchief.policies.context_free.domain import Anywhere, BestSeen
from kerchief.policies.context_free.ucb import UCB
from kerchief.policies.context_free.uniform import UniformArms
from kerchief.policies.linear.linucb import LinUCB
from kerchief.policies.phased.elimination import Elimination
from kerchief.policies.phased.uniform import UniformPopulation
from kerchief.policies.registry import AnyPolicy, Mode, Terms, register

__all__ = ["Uniform"]


@struct
class Uniform(Policy):
    """Choose among the allowed arms with equal chances.

    >>> Uniform().queries
    {}
    """

    @property
    def queries(self) -> Mapping[str, BoundedSum]:
        """None: it needs no private data."""
        return {}

    def init(self, outlook: Mapping[str, Outlook]) -> Tree:
        """Nothing to remember."""
        return ()

    def update(self, state: Tree, name: str, release: Release) -> Tree:
        """Never called, as there are no queries."""
        return state

    def refreshes(self, clock: Clock) -> Array | bool:
        """Nothing changes."""
        return False

    def act(self, model: Tree, arms: Arms, clock: Clock, stream: Stream) -> Array:
        """The allowed arm with the highest ticket."""
        tickets = stream.uniform(arms.allowed.shape[0])
        return jnp.argmax(jnp.where(arms.allowed, tickets, 0))

    def record(self, model: Tree, arms: Arms, action: Array, reward: Array) -> Mapping[str, Tree]:
        """Nothing is asked."""
        return {}


def _uniform(problem: AnyProblem, mode: Mode) -> AnyPolicy:
    match problem:
        case PopulationProblem():
            return UniformPopulation(problem=problem)
        case ContextFreeProblem():
            return UniformArms(problem=problem) if problem.arms else Anywhere(problem=problem)
    return Uniform()


def _greedy(problem: AnyProblem, mode: Mode, terms: Terms | None = None) -> AnyPolicy:
    match problem:
        case PopulationProblem():
            return Elimination.of(problem, mode=mode, width=0.0)
        case ContextFreeProblem(arms=0):
            return BestSeen(problem=problem)
        case ContextFreeProblem():
            clear = Channel.clear(low=problem.low, high=problem.high)
            channel = None if terms is None else terms.channel
            return UCB.of(problem, mode=mode, channel=channel or clear, width=0.0)
    return LinUCB.of(problem, mode=mode, exploration=0.0)


register(
    "uniform",
    _uniform,
    (Uniform, UniformPopulation, UniformArms, Anywhere),
    summary="choose among all actions with equal chances, and ask nobody",
    source="the yardstick of every comparison",
    problem=(Problem, PopulationProblem, ContextFreeProblem),
    actions=("arms", "domain"),
    trusts=("none",),
    home=None,
)
register(
    "greedy",
    _greedy,
    (LinUCB, Elimination, UCB, BestSeen),
    summary="choose what looks best so far, and never explore",
    source="the yardstick of every comparison",
    problem=(Problem, PopulationProblem, ContextFreeProblem),
    actions=("arms", "domain"),
    promised=_greedy,
)
