"""What an onlooker sees of a bandit: all that leaves devices or is released."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from kerchief.audits.neighbours import Floats, neighbours
from kerchief.core.contracts import BoundedLoss, Clock, Policy, Start, Tree
from kerchief.core.phases import ANSWERS, Phase, PhasePolicy
from kerchief.core.problems import AnyProblem, PopulationProblem
from kerchief.core.random import Stream
from kerchief.core.struct import static, struct
from kerchief.environments.population import Population, PopulationTruth
from kerchief.privatizers.privatizer import Privatizer
from kerchief.simulation import loop, phases

# How many runs are mapped over at once: bounds memory, and stays where arithmetic is trusted.
_RUNS_AT_ONCE = 8000


@struct
class RecordedState:
    """Memory or tally of a privatizer, with pages of what was seen so far."""

    inner: Tree
    pages: Array
    count: Array

    def noting(self, inner: Tree, seen: Array) -> RecordedState:
        """Add one page."""
        pages = self.pages.at[self.count].set(seen, mode="drop")
        return RecordedState(inner=inner, pages=pages, count=self.count + 1)


@struct
class RecordingPrivatizer:
    """Privatizer that wraps another one and records what an onlooker sees of it.

    Where devices add the noise, nobody is trusted, and every report is seen; else every release.
    """

    inner: Any
    horizon: int = static()

    def __getattr__(self, name: str) -> Any:
        """Look an attribute up on the inner privatizer."""
        return getattr(self.inner, name)

    def open(self) -> tuple[RecordedState, RecordedState]:
        """Open the inner privatizer with empty pages."""
        memory, tally = self.inner.open()
        query, device = self.inner.query, self.inner.noisy_device
        size = query.dim if isinstance(query, BoundedLoss) else query.size
        releases = 0 if device else self.schedule.capacity(self.horizon)
        zero = jnp.int32(0)
        return (
            RecordedState(inner=memory, pages=jnp.zeros((releases, size)), count=zero),
            RecordedState(inner=tally, pages=jnp.zeros((self.horizon * device, size)), count=zero),
        )

    def collect(self, tally: RecordedState, report: Array) -> RecordedState:
        """Write the report down where it may be seen, then hand it on."""
        inner = self.inner.collect(tally.inner, report)
        if self.inner.noisy_device:
            return tally.noting(inner, report)
        return dataclasses.replace(tally, inner=inner)

    def release(
        self,
        memory: RecordedState,
        tally: RecordedState,
        request: Start | None,
        clock: Clock,
        stream: Stream,
    ) -> tuple[Any, RecordedState]:
        """Write the release down, then hand it on."""
        release: Any
        release, inner = self.inner.release(memory.inner, tally.inner, request, clock, stream)
        if self.inner.noisy_device:
            return release, dataclasses.replace(memory, inner=inner)
        loss = isinstance(self.inner.query, BoundedLoss)
        return release, memory.noting(inner, release.point if loss else release.total)

    def clear(self, tally: RecordedState) -> RecordedState:
        """Clear the inner tally and keep its pages."""
        return dataclasses.replace(tally, inner=self.inner.clear(tally.inner))


def round_views(
    *,
    policy: Policy,
    privatizers: Mapping[str, Privatizer],
    facts: AnyProblem,
    runs: int,
    seed: int,
    worlds: tuple[Any, Any] | None = None,
) -> tuple[Floats, Floats]:
    """Play many runs of two neighbouring populations: what was seen, by run, place and number.

    Queries stand side by side, and one that is seen more rarely has zeros at the end. As many users
    take part as the facts have rounds; the second population has the next seed. Other populations
    than those whose first users can move most may be given as `worlds`.
    """
    model = policy.publish(policy.init({name: p.outlook for name, p in privatizers.items()}))
    tapped: Any = {
        name: RecordingPrivatizer(inner=privatizer, horizon=facts.horizon)
        for name, privatizer in privatizers.items()
    }
    scene = partial(loop.Scene, policy=policy, privatizers=tapped)
    first, second = (
        in_parts(runs, partial(_view_rounds, scene(environment=world, seed=jnp.uint32(number))))
        for number, world in enumerate(worlds or neighbours(policy, facts, model), start=seed)
    )
    return first, second


def in_parts(runs: int, play: Callable[[Array], Floats]) -> Floats:
    """Play runs in batches and stack what they show, ordered by run."""
    parts = [
        play(jnp.arange(first, min(first + _RUNS_AT_ONCE, runs), dtype=jnp.uint32))
        for first in range(0, runs, _RUNS_AT_ONCE)
    ]
    return np.concatenate(parts).astype(np.float64)


def _view_rounds(scene: loop.Scene, numbers: Array) -> Floats:
    """Play runs round by round and return what an onlooker sees."""
    world: Any = scene.environment
    carry = loop.advance(
        scene, loop.begin(scene, numbers), jnp.int32(0), length=world.facts.horizon
    )
    return _join_pages([_read_pages(carry, name) for name in scene.privatizers])


def _read_pages(carry: Any, name: str) -> Floats:
    """Read a query's reports, or the differences of its successive releases.

    That is no more and no less than the releases themselves, and kinder to arithmetic.
    """
    reports = np.asarray(carry.tally[name].pages, np.float64)
    if reports.shape[1]:
        return reports
    return np.diff(np.asarray(carry.memory[name].pages, np.float64), axis=1, prepend=0.0)


def _join_pages(pages: list[Floats]) -> Floats:
    place_count = max(page.shape[1] for page in pages)
    padded = [np.pad(page, ((0, 0), (0, place_count - page.shape[1]), (0, 0))) for page in pages]
    return np.concatenate(padded, axis=2)


@struct
class Clients(Population):
    """A population in which every client but the first saw an average of 0, and nothing is chance.

    The first one saw `seen`, on each of the actions that it was shown.
    """

    seen: Array

    @classmethod
    def around(cls, problem: PopulationProblem, seen: float | Floats) -> Clients:
        """The population whose first client saw this, on actions that are always the same."""
        names = ("dim", "arms", "clients", "radius", "spread")
        usual = Population.of(**{name: getattr(problem, name) for name in names}, fixed=0)
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
    first, *rest = phases.phases_of(policy, privatizers)[:_PHASES]
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
    ends = populations or _find_farthest_clients(policy, privatizers)
    order = phases_seen(policy, privatizers)
    scenes = [
        phases.PhaseScene.of(policy, privatizers, population, number)
        for number, population in enumerate(ends, start=seed)
    ]
    first, second = (in_parts(runs, partial(_view_phases, scene, order)) for scene in scenes)
    return first, second


def _find_farthest_clients(
    policy: PhasePolicy, privatizers: Mapping[str, Privatizer]
) -> tuple[Clients, Clients]:
    """Find two populations whose first clients' answers differ most.

    Rewards are at their bounds. One client saw the best where the other one saw the worst.
    """
    problem, privatizer = policy.problem, privatizers[ANSWERS]
    world = Clients.around(problem, 0.0).init(Stream.of(seed=0, replicate=0))
    phase = jax.tree.map(jnp.int32, phases_seen(policy, privatizers)[0])
    state = policy.init({ANSWERS: privatizer.outlook})
    design = policy.ask(world.features, state, phase, noisy=True)

    def encode_answer(averages: Floats) -> Array:
        encoded: Array = privatizer.query.encode(policy.answer(design, 0, jnp.asarray(averages)))
        return encoded

    low, high = problem.low, problem.high
    corners = map(np.array, itertools.product((low, high), repeat=design.pulls.shape[1]))
    pairs = [(corner, low + high - corner) for corner in corners]
    first, second = max(
        pairs, key=lambda pair: jnp.linalg.norm(encode_answer(pair[0]) - encode_answer(pair[1]))
    )
    return Clients.around(problem, first), Clients.around(problem, second)


def _view_phases(scene: phases.PhaseScene, order: tuple[Phase, ...], numbers: Array) -> Floats:
    """Play runs phase by phase and return what an onlooker sees."""
    carry, pages = phases.begin(scene, numbers), []
    for phase in order:
        carry = phases.play(scene, carry, jax.tree.map(jnp.int32, phase))
        pages.append(np.asarray(carry.last.total).reshape(len(numbers), -1))
    return np.stack(pages, axis=1)
