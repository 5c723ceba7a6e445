"""What an onlooker sees of a bandit that goes by phases: the release of every phase."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from kerchief.audits.views import TOGETHER
from kerchief.core.phases import ANSWERS, Phase, PhasePolicy
from kerchief.core.problems import PopulationProblem
from kerchief.core.random import Stream
from kerchief.core.struct import struct
from kerchief.environments.population import Population, PopulationTruth
from kerchief.privatizers.privatizer import Privatizer
from kerchief.simulation.phases import PhaseScene, begin, phases_of, play

__all__ = ["Clients", "phased_views", "phases_seen"]

Floats = NDArray[np.float64]


@struct
class Clients(Population):
    """A population in which every client but the first saw an average of 0, and nothing is chance.

    Attributes:
        seen: what the first client saw, on each of the actions that it was shown.
    """

    seen: Array

    @classmethod
    def around(cls, problem: PopulationProblem, seen: float | Floats) -> Clients:
        """The population whose first client saw this, on actions that are always the same."""
        usual = Population.of(
            dim=problem.dim,
            arms=problem.arms,
            clients=problem.clients,
            radius=problem.radius,
            spread=problem.spread,
            fixed=0,
        )
        return cls(**vars(usual), seen=jnp.asarray(seen, jnp.float32))

    def averages(
        self, world: PopulationTruth, features: Array, pulls: Array, stream: Stream
    ) -> Array:
        """What one client saw."""
        return jnp.where((stream.round == 0) & (pulls > 0), self.seen, jnp.float32(0))


# How many phases are played: the first client is asked in the first of them.
_PHASES = 3


def phases_seen(policy: PhasePolicy, privatizers: Mapping[str, Privatizer]) -> tuple[Phase, ...]:
    """The first phases of a bandit, so that releases are what an onlooker sees.

    Where devices add the noise, nobody is trusted, and every report is seen. So the first phase
    then asks one client, or one for each action: its releases are reports.
    """
    first, *rest = phases_of(policy, privatizers)[:_PHASES]
    if privatizers[ANSWERS].noisy_device:
        first = dataclasses.replace(first, clients=1, pulls=1)
    return (first, *rest)


def phased_views(
    *,
    policy: PhasePolicy,
    privatizers: Mapping[str, Privatizer],
    runs: int,
    seed: int,
    populations: tuple[Clients, Clients] | None = None,
) -> tuple[Floats, Floats]:
    """Play many runs of two neighbouring populations: what was seen, by run, phase and number.

    Args:
        policy: the bandit.
        privatizers: what protects its answers.
        runs: how often each population is played.
        seed: of the first population; the second has the next one.
        populations: other ones than those whose first client's answers are farthest apart.
    """
    ends = populations or _farthest(policy, privatizers)
    phases = phases_seen(policy, privatizers)
    one, other = (
        _seen(PhaseScene.of(policy, privatizers, population, number), phases, runs)
        for number, population in enumerate(ends, start=seed)
    )
    return one, other


def _farthest(
    policy: PhasePolicy, privatizers: Mapping[str, Privatizer]
) -> tuple[Clients, Clients]:
    """The two populations, with rewards at their bounds, whose first clients' answers differ most.

    One client saw the best where the other one saw the worst.
    """
    problem, privatizer = policy.problem, privatizers[ANSWERS]
    world = Clients.around(problem, 0.0).init(Stream.of(seed=0, replicate=0))
    phase = jax.tree.map(jnp.int32, phases_seen(policy, privatizers)[0])
    state = policy.init({ANSWERS: privatizer.outlook})
    asked = policy.ask(world.features, state, phase, noisy=True)

    def told(averages: Floats) -> Array:
        encoded: Array = privatizer.query.encode(policy.answer(asked, 0, jnp.asarray(averages)))
        return encoded

    def apart(pair: tuple[Floats, Floats]) -> float:
        return float(jnp.linalg.norm(told(pair[0]) - told(pair[1])))

    sides = np.array(list(itertools.product((False, True), repeat=asked.pulls.shape[1])))
    ends = [
        (np.where(side, problem.high, problem.low), np.where(side, problem.low, problem.high))
        for side in sides
    ]
    one, other = max(ends, key=apart)
    return Clients.around(problem, one), Clients.around(problem, other)


def _seen(scene: PhaseScene, phases: tuple[Phase, ...], runs: int) -> Floats:
    """What these runs showed, some runs after others."""
    chunks = []
    for start in range(0, runs, TOGETHER):
        carry = begin(scene, jnp.arange(start, min(start + TOGETHER, runs), dtype=jnp.uint32))
        pages = []
        for phase in phases:
            carry = play(scene, carry, jax.tree.map(jnp.int32, phase))
            pages.append(np.asarray(carry.last.total, np.float64).reshape(len(carry.regret), -1))
        chunks.append(np.stack(pages, axis=1))
    return np.concatenate(chunks)
