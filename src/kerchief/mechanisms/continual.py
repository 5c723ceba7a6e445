"""Noise for every prefix sum of a stream, paid once for the whole stream.

A stream has `horizon` vectors; replacing one user changes one of them, by at most `sensitivity` in
the Euclidean norm. After each vector the sum so far is released, with noise that is correlated over
time: noise on one prefix says something about the noise on the next, and so less of it is needed.
The vectors may depend on what was released before. Theorem and proof: `continual.md`.
"""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

import jax.numpy as jnp
from jax import Array

from kerchief.core.random import Stream
from kerchief.core.validate import at_least, positive
from kerchief.mechanisms.mechanism import Vector
from kerchief.privacy import events

__all__ = ["ContinualNoise", "draw", "seed_std", "stream_event", "until"]


class ContinualNoise(Protocol):
    """Noise for the prefixes of one stream, and its cost, in one object.

    Noise is B Z: row t of the lower-triangular matrix B mixes the seed vectors Z drawn up to time
    t. With A the matrix of prefix sums and C = B⁻¹ A, what is released is B (C x + Z).
    """

    idealized: ClassVar[bool]

    @property
    def std(self) -> float | Array:
        """Standard deviation of each coordinate of the seed vectors."""

    @property
    def sensitivity(self) -> float:
        """How far, in the Euclidean norm, replacing one user moves one vector of the stream."""

    @property
    def horizon(self) -> int:
        """The length of the stream, fixed before it starts."""

    @property
    def column_norm(self) -> float:
        """The largest Euclidean norm of a column of C: how much one user's change is amplified."""

    def prepare(self, vector: Vector) -> Vector:
        """What a user adds to a prefix that gets this noise later."""

    def open(self, size: int) -> Vector:
        """The state before the first vector, for vectors of this length."""

    def step(self, state: Vector, round: Array, stream: Any) -> tuple[Vector, Vector]:
        """The noise on the prefix that ends with this vector, and the next state.

        Call it for every vector, in order. The caller meters the horizon and refuses what lies
        beyond. As a second lock nothing can be read there: floating-point noise is NaN, exact
        noise is refused.

        Args:
            state: what the step before gave, or `open`.
            round: the place of the vector in the stream, from 0.
            stream: randomness already addressed to this round; deployment gives nothing.
        """

    def std_at(self, count: Array) -> Array:
        """Standard deviation of one coordinate of the noise on the sum of the first `count`."""

    def event(self) -> events.Event:
        """What all the prefixes together cost, charged once, when the stream is opened."""


def seed_std(*, noise_multiplier: float, sensitivity: float, column_norm: float) -> float:
    """Standard deviation of the seed vectors that a multiplier asks for; 0 switches noise off.

    Raises:
        InvalidValue: the multiplier is negative, or the sensitivity is not above 0.

    >>> seed_std(noise_multiplier=2.0, sensitivity=3.0, column_norm=1.5)
    9.0
    """
    multiplier = at_least("noise_multiplier", noise_multiplier, 0.0)
    return multiplier * positive("sensitivity", sensitivity) * column_norm


def stream_event(noise: ContinualNoise) -> events.Event:
    """One Gaussian event for the whole stream, read off the noise that is really added."""
    if float(noise.std) == 0.0:
        return events.NonPrivate()
    stream_sensitivity = noise.sensitivity * noise.column_norm
    return events.Gaussian(noise_multiplier=float(noise.std) / stream_sensitivity)


def draw(std: float | Array, size: int, stream: Stream) -> Array:
    """One seed vector, in float64: the prefixes of a long stream add up many of them."""
    return std * stream.normal(size).astype(jnp.float64)


def until(horizon: int, round: Array, noise: Array) -> Array:
    """The noise within the horizon, NaN beyond it.

    >>> until(2, jnp.arange(3), jnp.ones(3)).tolist()
    [1.0, 1.0, nan]
    """
    return jnp.where(round < horizon, noise, jnp.nan)
