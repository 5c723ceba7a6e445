"""What is kept of a simulation while it is played, and how long it takes."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeAlias

import jax
import numpy as np
from numpy.typing import NDArray

from kerchief.simulation.machine import compiled

Progress: TypeAlias = Callable[[str, int], None]
# Of a process's simulations: two programs at once would share JAX's threads, and where both factor
# many matrices, wait for each other for ever.
_ONE_AT_A_TIME = threading.Lock()


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunRecord:
    """What is read off a simulation.

    Attributes:
        regret: cumulative regret, one row per tick and one column per replicate.
        releases: for each query, how often it was released in each replicate.
        communication: for "reals" and "bits", how many of them clients sent in each replicate; for
            populations alone.
        earned: total reward in each replicate; None where users answer with losses, and for
            populations.
        right: 1 where the action that was named at the end is the best, else 0, in each replicate;
            None where none is named.
    """

    regret: NDArray[np.float64]
    releases: Mapping[str, NDArray[np.int64]]
    communication: Mapping[str, NDArray[np.float64]] = dataclasses.field(default_factory=dict)
    right: NDArray[np.float64] | None = None
    earned: NDArray[np.float64] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnsettledRun(RunRecord):
    """What was played, before it is settled.

    Attributes:
        users: how many users have reported, in the replicate with most of them.
        covered: for each query, how many users its last release spoke about, likewise.
    """

    users: int
    covered: Mapping[str, int]


@dataclasses.dataclass(kw_only=True)
class Recorder:
    """Runs compiled code, times it apart from compilation, and tells how far it is.

    Attributes:
        shared_seconds: what was done once for all who are sharing it.
    """

    progress: Progress
    done: int = 0
    seconds: float = 0.0
    shared_seconds: float = 0.0
    sharing: int = 1
    compile_seconds: float = 0.0
    _codes: dict[Hashable, Callable[..., Any]] = dataclasses.field(default_factory=dict)

    def run(self, function: Any, *arguments: Any, once: bool = False, **static: Hashable) -> Any:
        """Call a jitted function and wait for what it returns; if `once`, it is not optimized.

        Within one run its arguments always have the same structure, so it is looked up once.
        """
        key = (function, once, *static.items())
        if key not in self._codes:
            self._codes[key], seconds = compiled(
                function,
                *arguments,
                about=lambda: self.progress("compiling", self.done),
                once=once,
                **static,
            )
            self.compile_seconds += seconds
        with _ONE_AT_A_TIME:
            start = time.perf_counter()
            result = self._codes[key](*arguments)
            for leaf in jax.tree.leaves(result):
                leaf.block_until_ready()
            self.seconds += time.perf_counter() - start
        return result

    def tick(self, done: int) -> None:
        """Note how many rounds are done."""
        self.done = done
        self.progress("playing", done)


def ticks_of(horizon: int, ticks: int) -> NDArray[np.int64]:
    """The rounds after which regret is read: equal segments, and a shorter last one.

    >>> ticks_of(7, 3).tolist()
    [2, 4, 6, 7]
    """
    length = max(1, horizon // ticks)
    return np.append(np.arange(length, horizon, length), horizon).astype(np.int64)
