"""What every privatizer offers: the roles, the bills and the checks know no more of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol, Self, TypeAlias

from kerchief.core.contracts import Clock, NoiseInfo, Released, Start, Tree
from kerchief.core.random import Stream
from kerchief.mechanisms.continual import PrefixNoise
from kerchief.mechanisms.mechanism import Mechanism, Vector
from kerchief.privacy.receipts import Charge, Cohort
from kerchief.privatizers.schedule import Schedule

Noise: TypeAlias = Mechanism | PrefixNoise


class Privatizer(Protocol):
    """Answers one query: where noise is added, when answers are released, what they cost.

    Device functions see one user, the aggregator sees reports, and only a release goes on to the
    learner. A tally holds reports that were not released yet; a memory holds what the aggregator
    needs from one release to the next. Either may be private: see the privatizer's own words.
    """

    query: Any
    """What it answers: a `Query`."""
    schedule: Schedule
    """When it may release."""

    @property
    def outlook(self) -> NoiseInfo:
        """What the learner may know beforehand: whether there is noise."""
        return NoiseInfo(noisy=bool(self.noises))

    @property
    def noises(self) -> tuple[Noise, ...]:
        """Every source of noise in it."""

    @property
    def noisy_device(self) -> bool:
        """Whether a device adds noise, so that its user has taken part by reporting."""
        return False

    @property
    def noisy_aggregator(self) -> bool:
        """Whether the aggregator adds noise, and so needs a source of it."""
        return bool(self.noises)

    @property
    def idealized(self) -> bool:
        """Whether any of its noise is floating point, and so for simulation only."""
        return any(noise.idealized for noise in self.noises)

    def exact(self) -> Privatizer:
        """The twin for deployment: the same protocol and promise, with exact noise."""

    def with_noise(self, change: Callable[[Any], Any]) -> Self:
        """Replace every source of noise of this protocol."""

    def with_schedule(self, schedule: Schedule) -> Self:
        """Replace the times at which this protocol releases."""
        privatizer: Any = self
        changed: Self = dataclasses.replace(privatizer, schedule=schedule)
        return changed

    def charges(self, horizon: int) -> tuple[Charge, ...]:
        """What a run of this length costs, before it begins (host only)."""

    def took_part(self, cohort: Cohort, *, users: int, covered: int, releases: int) -> int:
        """How often a cohort's users really took part, for settling (host only).

        Args:
            cohort: whom a charge was for.
            users: how many users have reported.
            covered: how many users the last release spoke about.
            releases: how many releases there were.
        """

    def open(self) -> tuple[Tree, Tree]:
        """The memory and the tally before the first user."""

    def randomize(self, record: Tree, clock: Clock, stream: Stream | None) -> Vector:
        """Device: clip and encode, always; then `report`."""
        return self.report(self.query.encode(record), clock, stream)

    def report(self, statistic: Vector, clock: Clock, stream: Stream | None) -> Vector:
        """Device: what leaves it, for a statistic that is clipped and encoded."""

    def collect(self, tally: Tree, report: Vector) -> Tree:
        """Aggregator: add one report to the tally."""

    def release(
        self, memory: Tree, tally: Tree, request: Start | None, clock: Clock, stream: Stream | None
    ) -> tuple[Released, Tree]:
        """Aggregator: the noisy total or fit, and the memory for the next one."""

    def clear(self, tally: Tree) -> Tree:
        """Aggregator: the tally after a release."""
