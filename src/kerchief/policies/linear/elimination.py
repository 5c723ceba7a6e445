"""Batched elimination: play a near-optimal design over the arms that may still be the best.

Optimism plays one arm of a fixed arm set for a whole batch, and learns about nothing else in it. So
a bandit that learns a few times only keeps every arm whose upper confidence bound reaches the best
lower one, and draws from a design over them (`core.design`): every direction in which they differ
is measured. The estimate and the confidence set are LinUCB's, from the totals over all batches,
and hold under any such rule of choice. Proof note: `elimination.md`.
"""

from __future__ import annotations

import dataclasses

from jax import Array

from kerchief.core.batches import grow_batches
from kerchief.core.contracts import Arms, Clock
from kerchief.core.design import near_optimal
from kerchief.core.problems import Problem
from kerchief.core.random import Stream
from kerchief.core.struct import struct
from kerchief.policies.ellipsoid import Model, keep_plausible_arms, lengths
from kerchief.policies.linear.linucb import LinUCB
from kerchief.policies.refresh import Batchwise
from kerchief.policies.registry import Mode, register
from kerchief.policies.tuned import TUNED


@struct
class Elimination(Batchwise, LinUCB):
    """LinUCB's confidence set; arms that it rules out are not played, the others by design.

    After phased elimination: T. Lattimore and C. Szepesvari, "Bandit Algorithms", 2020, chapter 22.
    """

    @classmethod
    def of(
        cls, problem: Problem, *, mode: Mode = "tuned", exploration: float | None = None
    ) -> Elimination:
        """Build it from public facts alone; see `LinUCB.of`.

        When tuned, the multiplier of the width is smaller: every arm that is kept is played.
        """
        numbers = TUNED["elimination"]
        narrow = mode == "tuned" and exploration is None
        explored = numbers["exploration"] if narrow else exploration
        base = LinUCB.of(problem, mode=mode, exploration=explored)
        batches = grow_batches(problem.horizon, first=200, growth=2.0)
        query = dataclasses.replace(base.query, batches=batches)
        return cls(**(vars(base) | {"query": query, "damping": numbers["damping"]}))

    def act(self, model: Model, arms: Arms, clock: Clock, stream: Stream) -> Array:
        """One of the arms that may be the best, drawn from a design over them."""
        x = arms.features
        score, width = x @ model.estimate, model.width * lengths(x, model.inverse)
        return near_optimal(x, keep_plausible_arms(arms.allowed, score, width)).draw(stream)


register(
    "elimination",
    Elimination,
    summary="Batches with a near-optimal design over the arms that remain plausible",
    source="ours, after phased elimination; Lattimore, Szepesvari 2020, chapter 22",
    trusts=("none", "local", "shuffle", "central"),
)
