"""Randomized response on bits: a vector as coded ones, noise bit by bit, sums, and back again.

A device writes each coordinate as a number of ones among m bits, right on average, and replaces
each bit by a fair coin with probability 1 − keep. The shuffler sums the bits of a batch; the
analyzer takes the known bias out of the sums. Proof note: `randomized_bits.md`.

After E. Garcelon, K. Chaudhuri, V. Perchet, M. Pirotta, "Privacy amplification via shuffling for
linear contextual bandits", ALT 2022, algorithms 2 and 3.
"""

from __future__ import annotations

import dataclasses
import math
import os
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from kerchief.core.queries import finite
from kerchief.core.random import Stream
from kerchief.core.struct import static, struct
from kerchief.core.validate import between, plain, positive, whole
from kerchief.mechanisms.mechanism import Floats, float64_vector
from kerchief.privacy import events
from kerchief.privacy.randomized_bits import GRID, KEEP_UNIT, RandomizedBits
from kerchief_device.samplers import Randomness, words

MAX_BITS = 2**16

_STEPS = round(1 / GRID)
_UNITS = round(1 / KEEP_UNIT)
# The chance (1 ± keep)/2 of a bit, in units of 2**-32, is this often (units ± keep units).
_WORDS_A_UNIT = 2**32 // (2 * _UNITS)


@struct
class Response:
    """Randomized bits of one batch, simulated.

    With rows of keep parameters and users it stands for several batches; see `batch`.

    Formal guarantees:
        With real numbers, the sums of a batch cost `event`: see `randomized_bits.md`. The draws are
        floating point, so only simulation may use it; `ExactResponse` is the twin for deployment.

    Attributes:
        keep: the probability with which a bit is kept; 1 means no noise but that of rounding.
        tail: the part of δ that pays for rare sums.
        users: number of users in the batch.
        bits: bits per user and coordinate.
        bound: every coordinate is clipped to [−bound, bound].
        sensitivity: how far apart two users' vectors can be, in the Euclidean norm.
    """

    idealized: ClassVar[bool] = True

    keep: float | Array
    tail: float
    users: int | Array
    bits: int = static()
    bound: float = static()
    sensitivity: float = static()
    dimension: int = static()

    @classmethod
    def of(cls, event: RandomizedBits, *, bound: float = 1.0) -> Response:
        """The response that a calibrated description asks for, for vectors in a box.

        >>> event = RandomizedBits(
        ...     users=10, bits=8, keep=0.5, sensitivity=2.0, dimension=3, tail=1e-9
        ... )
        >>> response = Response.of(event, bound=2.0)
        >>> response.sensitivity, response.event() == event
        (4.0, True)
        """
        return cls(
            keep=event.keep,
            tail=event.tail,
            users=event.users,
            bits=event.bits,
            bound=positive("bound", bound),
            sensitivity=event.sensitivity * bound,
            dimension=event.dimension,
        )

    @property
    def std(self) -> float | Array:
        """The standard deviation of a coordinate of `total`, at the worst place for rounding."""
        noise = (1 - self.keep**2) / (self.bits * self.keep**2) + 1 / self.bits**2
        return self.bound * (self.users * noise) ** 0.5

    def batch(self, number: int | Array) -> Response:
        """The response of one of several batches."""
        keep, users = jnp.asarray(self.keep)[number], jnp.asarray(self.users)[number]
        return dataclasses.replace(self, keep=keep, users=users)

    def add(self, vector: Array, stream: Stream) -> Array:
        """The estimate of the sum of a batch's vectors, from its numbers of coded ones."""
        return self.total(self.respond(vector, stream))

    def prepare(self, vector: Array, stream: Stream) -> Array:
        """Device: how many of a coordinate's bits are ones, right on average, before any noise."""
        clipped = jnp.clip(finite(vector.astype(jnp.float64) / self.bound), -1, 1)
        up = 1 - stream.uniform(self.dimension).astype(jnp.float64)
        return jnp.floor(self.bits * (1 + clipped) / 2 + up)

    def respond(self, ones: Array, stream: Stream) -> Array:
        """Shuffler: the sums of all randomized bits of a batch, from its numbers of coded ones.

        The bits that were coded as one are kept or turned alike, so their sum is one binomial
        draw, and so is that of the others.
        """
        bits = jnp.stack([ones, self.users * self.bits - ones])
        chances = jnp.stack([(1 + self.keep) / 2, (1 - self.keep) / 2])
        # Both at once: to compile a binomial draw takes seconds.
        draws = jax.random.binomial(stream.key(), bits, chances[:, None], dtype=jnp.float64)
        return draws.sum(0)

    def total(self, sums: Array) -> Array:
        """Analyzer: the estimate of the sum of the batch's vectors, right on average."""
        return self.bound * (2 * sums - self.users * self.bits) / (self.bits * self.keep)

    def event(self) -> events.Event:
        """What one batch's sums cost; without noise there is no privacy."""
        if float(self.keep) == 1.0:
            return events.NonPrivate()
        return self.exact().event()

    def exact(self, dimension: int | None = None) -> ExactResponse:
        """The twin for deployment."""
        numbers = {"keep": float(self.keep), "users": int(self.users)}
        return ExactResponse(**vars(self) | numbers)


@dataclass(frozen=True, kw_only=True)
class ExactResponse:
    """Randomized bits for deployment: whole numbers, coins of the operating system.

    A device sends, for each coordinate, how many of its randomized bits are ones: less than the
    bits themselves tell, and enough for the sums. The fields are those of `Response`; `keep` is a
    multiple of `KEEP_UNIT` below 1, and there are at most `MAX_BITS` bits.

    Formal guarantees:
        With the default source, reports have exactly the law that `event` describes
        (`randomized_bits.md`).

    >>> noise = ExactResponse(
    ...     keep=0.5, tail=1e-9, users=2, bits=8, bound=1.0, sensitivity=2.0, dimension=3
    ... )
    >>> report = noise.report(np.array([0.5, -1.0, 0.0]))
    >>> report.dtype, bool(((report >= 0) & (report <= 8)).all())
    (dtype('int64'), True)
    """

    keep: float
    tail: float
    users: int
    bits: int
    bound: float
    sensitivity: float
    dimension: int

    idealized: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Check every field."""
        plain(self)
        whole("bits", self.bits, high=MAX_BITS)
        between("bound", self.bound, 1e-100, 1e100)
        positive("sensitivity", self.sensitivity)
        self.event()

    @property
    def std(self) -> float:
        """Standard deviation of the estimate, by the simulated response's formula."""
        noise = (1 - self.keep**2) / (self.bits * self.keep**2) + 1 / self.bits**2
        return self.bound * math.sqrt(self.users * noise)

    def prepare(self, vector: Floats, stream: object = None) -> Floats:
        """What a user adds to the batch: its report, as floating-point numbers."""
        source = stream if callable(stream) else os.urandom
        return self.report(vector, randomness=source).astype(np.float64)

    def add(self, vector: Floats, stream: object = None) -> Floats:
        """The estimate of the sum of a batch's vectors, from its reports added up."""
        return self.total(np.rint(vector).astype(np.int64))

    def report(self, vector: Floats, *, randomness: Randomness = os.urandom) -> NDArray[np.int64]:
        """Device: how many randomized bits of each coordinate are ones."""
        counts = self.code(vector, randomness=randomness)
        units = round(self.keep * _UNITS)
        coded = np.arange(self.bits) < counts[:, None]
        chances = np.where(coded, _UNITS + units, _UNITS - units) * _WORDS_A_UNIT
        draws = words(self.dimension * self.bits, randomness).reshape(coded.shape)
        report: NDArray[np.int64] = (draws < chances).sum(1, dtype=np.int64)
        return report

    def code(self, vector: Floats, *, randomness: Randomness = os.urandom) -> NDArray[np.int64]:
        """Device: how many bits of each coordinate are ones before noise: it stays there.

        The average number is written in steps of 2**-32, and the fraction of a one is a coin of
        exactly that chance.
        """
        array = float64_vector(vector, self.dimension)
        clipped = np.clip(np.where(np.isfinite(array), array, 0.0) / self.bound, -1, 1)
        steps = np.rint(self.bits * (1 + clipped) / 2 * _STEPS).astype(np.int64)
        counts, fraction = np.divmod(steps, _STEPS)
        return counts + (words(self.dimension, randomness) < fraction)

    def total(self, sums: NDArray[np.int64]) -> Floats:
        """Estimate the sum of a batch's vectors from the sums of its randomized bits."""
        above = (2 * sums - self.users * self.bits).astype(np.float64)
        return self.bound * above / (self.bits * self.keep)

    def event(self) -> RandomizedBits:
        """What the sums of one batch of reports cost."""
        return RandomizedBits(
            users=self.users,
            bits=self.bits,
            keep=self.keep,
            sensitivity=self.sensitivity / self.bound,
            dimension=self.dimension,
            tail=self.tail,
        )
