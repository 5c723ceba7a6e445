"""Fixed arms with a coordinate that all share."""

from __future__ import annotations

from jax import Array

from kerchief.core.contracts import Clock
from kerchief.core.random import Stream
from kerchief.core.struct import struct
from kerchief.environments.contexts import CONTEXTS, Intercept


@CONTEXTS.entry("fixed-intercept")
@struct
class FixedIntercept(Intercept):
    """One set of arms (u, 1)/√2, drawn once and shown to every user.

    The published code of Chowdhury and Zhou (2022), whose experiment the TMLR submission repeats,
    draws its arms like this.
    """

    def init(self, stream: Stream) -> Array:
        """The arm set."""
        return self.points(stream, self.count)

    def features(self, kept: Array, clock: Clock, stream: Stream) -> Array:
        """Return the arm set of the run."""
        return kept
