"""What an onlooker sees of a bandit that goes by rounds: all that leaves devices or is released."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from kerchief.audits.neighbours import neighbours
from kerchief.core.contracts import BoundedLoss, Clock, Outlook, Policy, Start, Tree
from kerchief.core.problems import AnyProblem
from kerchief.core.random import Stream
from kerchief.core.struct import static, struct
from kerchief.privatizers.privatizer import Privatizer
from kerchief.simulation.loop import Scene, advance, begin

__all__ = ["TOGETHER", "Tapped", "round_views"]

Floats = NDArray[np.float64]

TOGETHER = 8000
"""How many runs are mapped over at once: bounds memory, and stays where arithmetic is trusted."""


@struct
class Noted:
    """A memory or a tally, and beside it what was seen so far."""

    inner: Tree
    pages: Array
    count: Array

    def noting(self, inner: Tree, seen: Array) -> Noted:
        """One page more."""
        pages = self.pages.at[self.count].set(seen, mode="drop")
        return Noted(inner=inner, pages=pages, count=self.count + 1)


@struct
class Tapped:
    """A privatizer that does as another one does, and writes down what can be seen of it.

    Where devices add the noise, nobody is trusted, and every report is seen; else every release.

    Attributes:
        inner: the other one.
        horizon: number of rounds.
    """

    inner: Privatizer
    horizon: int = static()

    @property
    def schedule(self) -> Any:
        """As the other one."""
        return self.inner.schedule

    @property
    def outlook(self) -> Outlook:
        """As the other one."""
        return self.inner.outlook

    def open(self) -> tuple[Noted, Noted]:
        """Empty pages."""
        memory, tally = self.inner.open()
        query, device = self.inner.query, self.inner.noisy_device
        size = query.dim if isinstance(query, BoundedLoss) else query.size
        releases = 0 if device else self.schedule.capacity(self.horizon)
        zero = jnp.int32(0)
        return (
            Noted(inner=memory, pages=jnp.zeros((releases, size)), count=zero),
            Noted(inner=tally, pages=jnp.zeros((self.horizon * device, size)), count=zero),
        )

    def randomize(self, record: Tree, clock: Clock, stream: Stream) -> Array:
        """As the other one."""
        report: Array = self.inner.randomize(record, clock, stream)
        return report

    def collect(self, tally: Noted, report: Array) -> Noted:
        """Write the report down where it may be seen, then hand it on."""
        inner = self.inner.collect(tally.inner, report)
        if self.inner.noisy_device:
            return tally.noting(inner, report)
        return dataclasses.replace(tally, inner=inner)

    def release(
        self, memory: Noted, tally: Noted, request: Start | None, clock: Clock, stream: Stream
    ) -> tuple[Any, Noted]:
        """Write the release down, then hand it on."""
        told: Any
        told, inner = self.inner.release(memory.inner, tally.inner, request, clock, stream)
        if self.inner.noisy_device:
            return told, dataclasses.replace(memory, inner=inner)
        loss = isinstance(self.inner.query, BoundedLoss)
        return told, memory.noting(inner, told.point if loss else told.total)

    def clear(self, tally: Noted) -> Noted:
        """As the other one."""
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

    Queries stand side by side, and one that is seen more rarely has zeros at the end.

    Args:
        policy: the bandit.
        privatizers: one for each query.
        facts: the public facts that the bandit was built from; as many users take part.
        runs: how often each population is played.
        seed: of the first population; the second has the next one.
        worlds: other populations than those whose first users can move most.
    """
    model = policy.publish(policy.init({name: p.outlook for name, p in privatizers.items()}))
    tapped: Any = {
        name: Tapped(inner=one, horizon=facts.horizon) for name, one in privatizers.items()
    }
    one, other = (
        _seen(
            Scene(policy=policy, privatizers=tapped, environment=world, seed=jnp.uint32(number)),
            runs,
        )
        for number, world in enumerate(worlds or neighbours(policy, facts, model), start=seed)
    )
    return one, other


def _seen(scene: Scene, runs: int) -> Floats:
    """What these runs showed, some runs after others."""
    world: Any = scene.environment
    chunks = []
    for start in range(0, runs, TOGETHER):
        numbers = jnp.arange(start, min(start + TOGETHER, runs), dtype=jnp.uint32)
        carry = begin(scene, numbers)
        carry = advance(scene, carry, jnp.int32(0), length=world.facts.horizon)
        chunks.append(_side_by_side([_pages(carry, name) for name in scene.privatizers]))
    return np.concatenate(chunks)


def _pages(carry: Any, name: str) -> Floats:
    """One query's reports; or its releases, each but the first as its difference to the last.

    That is no more and no less than the releases themselves, and kinder to arithmetic.
    """
    reports = np.asarray(carry.tally[name].pages, np.float64)
    if reports.shape[1]:
        return reports
    return np.diff(np.asarray(carry.memory[name].pages, np.float64), axis=1, prepend=0.0)


def _side_by_side(pages: list[Floats]) -> Floats:
    most = max(page.shape[1] for page in pages)
    padded = [np.pad(page, ((0, 0), (0, most - page.shape[1]), (0, 0))) for page in pages]
    return np.concatenate(padded, axis=2)
