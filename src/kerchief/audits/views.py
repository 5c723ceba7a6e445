"""What an onlooker sees: everything that was released, from many runs at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from kerchief.audits.neighbours import Population
from kerchief.core.contracts import Arms, Clock, Outlook, Policy, Query, Released, Start, Tree
from kerchief.core.contracts import BoundedLoss as Loss
from kerchief.core.random import Stream
from kerchief.core.struct import static, struct
from kerchief.privatizers.privatizer import Privatizer
from kerchief.simulation.loop import Scene, advance, begin

__all__ = ["Spy", "releases"]

Floats = NDArray[np.float64]

# How many runs are mapped over at once: bounds memory, and stays where arithmetic is trusted.
_TOGETHER = 8000


@struct
class Notes:
    """The learner's state, and every release that it was given."""

    state: Tree
    seen: Mapping[str, Array]
    count: Mapping[str, Array]


@struct
class Spy:
    """A policy that does as another one does, and writes down what it is given.

    Attributes:
        policy: the other one.
        pages: for each query, how many releases there can be.
    """

    policy: Policy
    pages: tuple[tuple[str, int], ...] = static()

    @property
    def queries(self) -> Mapping[str, Query]:
        """The same questions."""
        return self.policy.queries

    def init(self, outlook: Mapping[str, Outlook]) -> Notes:
        """Empty pages."""
        return Notes(
            state=self.policy.init(outlook),
            seen={name: jnp.zeros((pages, self._length(name))) for name, pages in self.pages},
            count={name: jnp.int32(0) for name, _ in self.pages},
        )

    def due(self, state: Notes, clock: Clock) -> Mapping[str, Array | bool]:
        """As the other one."""
        return self.policy.due(state.state, clock)

    def request(self, state: Notes, name: str) -> Start | None:
        """As the other one."""
        return self.policy.request(state.state, name)

    def update(self, state: Notes, name: str, release: Released) -> Notes:
        """Write the release down, then hand it on."""
        loss = isinstance(self.queries[name], Loss)
        told = release.point if loss else release.total
        page = state.seen[name].at[state.count[name]].set(told, mode="drop")
        return Notes(
            state=self.policy.update(state.state, name, release),
            seen={**state.seen, name: page},
            count={**state.count, name: state.count[name] + 1},
        )

    def refreshes(self, clock: Clock) -> Array | bool:
        """As the other one."""
        return self.policy.refreshes(clock)

    def publish(self, state: Notes) -> Tree:
        """As the other one."""
        return self.policy.publish(state.state)

    def act(self, model: Tree, arms: Arms, clock: Clock, stream: Stream) -> Array:
        """As the other one."""
        return self.policy.act(model, arms, clock, stream)

    def record(self, model: Tree, arms: Arms, action: Array, reward: Array) -> Mapping[str, Tree]:
        """As the other one."""
        return self.policy.record(model, arms, action, reward)

    def _length(self, name: str) -> int:
        query = self.queries[name]
        return query.dim if isinstance(query, Loss) else query.size


def releases(
    *,
    policy: Policy,
    privatizers: Mapping[str, Privatizer],
    population: Population,
    runs: int,
    seed: int,
) -> Floats:
    """Play many runs of one population: what each released, by run, release and number.

    Queries stand side by side, and one that is released more rarely has zeros at the end.
    """
    horizon = population.facts.horizon
    pages = tuple((name, one.schedule.capacity(horizon)) for name, one in privatizers.items())
    scene = Scene(
        policy=Spy(policy=policy, pages=pages),
        privatizers=dict(privatizers),
        environment=population,
        seed=jnp.uint32(seed),
    )
    chunks = [
        _seen(scene, np.arange(start, min(start + _TOGETHER, runs)), pages)
        for start in range(0, runs, _TOGETHER)
    ]
    return np.concatenate(chunks)


def _seen(scene: Any, runs: NDArray[np.int64], pages: tuple[tuple[str, int], ...]) -> Floats:
    """What these runs released."""
    carry = begin(scene, jnp.asarray(runs, jnp.uint32))
    carry = advance(scene, carry, jnp.int32(0), length=scene.environment.facts.horizon)
    most = max(count for _, count in pages)
    padded = [
        np.pad(np.asarray(page, np.float64), ((0, 0), (0, most - page.shape[1]), (0, 0)))
        for page in _pages(carry.state)
    ]
    return np.concatenate(padded, axis=2)


def _pages(notes: Notes) -> list[Array]:
    """Each query's releases, every one but the first as its difference to the one before.

    That is no more and no less than the releases themselves, and kinder to arithmetic.
    """
    return [
        jnp.diff(page, axis=1, prepend=jnp.zeros_like(page[:, :1]))
        for page in jax.tree.leaves(notes.seen)
    ]
