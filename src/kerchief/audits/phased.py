"""What an onlooker sees of a bandit that goes by phases: the release of every phase."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from kerchief.audits.neighbours import Floats
from kerchief.audits.views import in_parts
from kerchief.core.phases import ANSWERS, Phase, PhasePolicy
from kerchief.core.problems import PopulationProblem
from kerchief.core.random import Stream
from kerchief.core.struct import struct
from kerchief.environments.population import Population, PopulationTruth
from kerchief.privatizers.privatizer import Privatizer
from kerchief.simulation.phases import PhaseScene, begin, phases_of, play

__all__ = ["Clients", "phased_views", "phases_seen"]


@struct
class Clients(Population):
    """A population in which every client but the first saw an average of 0, and nothing is chance.

    The first one saw `seen`, on each of the actions that it was shown.
    """

    seen: Array

    @classmethod
    def around(cls, problem: PopulationProblem, seen: float | Floats) -> Clients:
        """The population whose first client saw this, on actions that are always the same."""
        words = ("dim", "arms", "clients", "radius", "spread")
        usual = Population.of(**{word: getattr(problem, word) for word in words}, fixed=0)
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

    The second population has the next seed. Others may be given than those whose first client's
    answers are farthest apart.
    """
    ends = populations or _farthest(policy, privatizers)
    phases = phases_seen(policy, privatizers)
    scenes = [
        PhaseScene.of(policy, privatizers, population, number)
        for number, population in enumerate(ends, start=seed)
    ]
    one, other = (in_parts(runs, partial(_seen, scene, phases)) for scene in scenes)
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

    low, high = problem.low, problem.high
    corners = map(np.array, itertools.product((low, high), repeat=asked.pulls.shape[1]))
    pairs = [(corner, low + high - corner) for corner in corners]
    one, other = max(pairs, key=lambda pair: jnp.linalg.norm(told(pair[0]) - told(pair[1])))
    return Clients.around(problem, one), Clients.around(problem, other)


def _seen(scene: PhaseScene, phases: tuple[Phase, ...], numbers: Array) -> Floats:
    """What these runs showed."""
    carry, pages = begin(scene, numbers), []
    for phase in phases:
        carry = play(scene, carry, jax.tree.map(jnp.int32, phase))
        pages.append(np.asarray(carry.last.total).reshape(len(numbers), -1))
    return np.stack(pages, axis=1)
