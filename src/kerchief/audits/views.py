"""What an onlooker sees of a bandit that goes by rounds: all that leaves devices or is released."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from kerchief.audits.neighbours import Floats, neighbours
from kerchief.core.contracts import BoundedLoss, Clock, Policy, Start, Tree
from kerchief.core.problems import AnyProblem
from kerchief.core.random import Stream
from kerchief.core.struct import static, struct
from kerchief.privatizers.privatizer import Privatizer
from kerchief.simulation.loop import Scene, advance, begin

__all__ = ["Tapped", "in_parts", "round_views"]

# How many runs are mapped over at once: bounds memory, and stays where arithmetic is trusted.
_TOGETHER = 8000


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
    """

    inner: Any
    horizon: int = static()

    def __getattr__(self, word: str) -> Any:
        """As the other one."""
        return getattr(self.inner, word)

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

    Queries stand side by side, and one that is seen more rarely has zeros at the end. As many users
    take part as the facts have rounds; the second population has the next seed. Other populations
    than those whose first users can move most may be given as `worlds`.
    """
    model = policy.publish(policy.init({name: p.outlook for name, p in privatizers.items()}))
    tapped: Any = {
        name: Tapped(inner=one, horizon=facts.horizon) for name, one in privatizers.items()
    }
    scene = partial(Scene, policy=policy, privatizers=tapped)
    one, other = (
        in_parts(runs, partial(_seen, scene(environment=world, seed=jnp.uint32(number))))
        for number, world in enumerate(worlds or neighbours(policy, facts, model), start=seed)
    )
    return one, other


def in_parts(runs: int, play: Callable[[Array], Floats]) -> Floats:
    """What so many runs show, by their numbers, some after others."""
    parts = [
        play(jnp.arange(first, min(first + _TOGETHER, runs), dtype=jnp.uint32))
        for first in range(0, runs, _TOGETHER)
    ]
    return np.concatenate(parts).astype(np.float64)


def _seen(scene: Scene, numbers: Array) -> Floats:
    """What these runs showed."""
    world: Any = scene.environment
    carry = advance(scene, begin(scene, numbers), jnp.int32(0), length=world.facts.horizon)
    return _side_by_side([_pages(carry, name) for name in scene.privatizers])


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
