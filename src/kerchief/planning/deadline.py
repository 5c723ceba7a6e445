"""In a process of a planning: play a part, and give it up early where that would take too long."""

from __future__ import annotations

import collections
import dataclasses
import pickle
import time

from kerchief.comparison.chunks import Chunk, ChunkResult
from kerchief.comparison.workers import Prepare
from kerchief.core.precision import double_precision

# How many ticks tell a pace.
_RECENT = 6


@dataclasses.dataclass(frozen=True, kw_only=True)
class SlowRun:
    """A run that was given up: how long it would have taken to play, in seconds."""

    seconds: float


@double_precision
def pack_chunk(part: Chunk) -> bytes:
    """A part as bytes, for another process: its numbers have 64 bits."""
    return pickle.dumps(part)


class _Pace:
    """Watches a run, and gives it up when it will not be finished in time.

    Bandits learn most often in the beginning, so it is the latest ticks that tell the pace.
    """

    def __init__(self, horizon: int, seconds: float) -> None:
        self.horizon, self.end = horizon, time.monotonic() + seconds
        self.ticks: collections.deque[tuple[float, int]] = collections.deque(maxlen=_RECENT)

    def __call__(self, stage: str, finished_rounds: int) -> None:
        """After a tick."""
        if stage != "playing":
            return
        now = time.monotonic()
        self.ticks.append((now, finished_rounds))
        since, rounds = self.ticks[0]
        pace = (now - since) / max(1, finished_rounds - rounds)
        late = now + pace * (self.horizon - finished_rounds) > self.end
        if len(self.ticks) == _RECENT and late:
            raise _DeadlineError(pace * self.horizon)


class _DeadlineError(Exception):
    """A run would take too long."""


@double_precision
def play_within(part: bytes, prepare: Prepare, seconds: float) -> ChunkResult | SlowRun:
    """In a worker: play a part, unless that takes too long."""
    start = time.monotonic()
    prepare()
    loaded: Chunk = pickle.loads(part)
    try:
        return loaded.play(_Pace(loaded.cell.horizon, seconds - (time.monotonic() - start)))
    except _DeadlineError as problem:
        return SlowRun(seconds=float(problem.args[0]))
