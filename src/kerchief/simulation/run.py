"""Run a simulation: charge the ledger, play, record regret at ticks, settle."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from kerchief.core import validate
from kerchief.core.contracts import Environment, Policy
from kerchief.privacy.guarantee import Guarantee
from kerchief.privacy.ledger import Ledger
from kerchief.privatizers.sums import CohortSums
from kerchief.simulation.loop import Carry, Scene, advance, begin

__all__ = ["Progress", "Run", "simulate"]

Progress = Callable[[str, int], None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """What a simulation recorded.

    Attributes:
        rounds: the ticks: after how many rounds regret was read.
        regret: cumulative regret, a row a tick and a column a replicate.
        releases: for each query, how often it was released in each replicate.
        spent: the guarantee that was really spent, from the ledger.
        seconds: time played, without compilation.
        compile_seconds: time spent compiling.
        device: the kind of device it ran on.
    """

    rounds: NDArray[np.int64]
    regret: NDArray[np.float64]
    releases: Mapping[str, NDArray[np.int64]]
    spent: Guarantee
    seconds: float
    compile_seconds: float
    device: str

    @property
    def microseconds(self) -> float:
        """Time a decision, in microseconds."""
        return 1e6 * self.seconds / (int(self.rounds[-1]) * self.regret.shape[1])
