"""Where arms come from: the sequences of contexts that a world can show."""

from __future__ import annotations

import math
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from kerchief.core.contracts import Clock
from kerchief.core.random import Stream, normal_pair, open_unit
from kerchief.core.registry import Registry
from kerchief.core.struct import static, struct
from kerchief.core.validate import MOST_ROUNDS


def in_ball(stream: Stream, count: int, dim: int) -> Array:
    """Points drawn uniformly from the unit ball, by the cheapest exact recipe.

    A normal vector z divided by the root of |z|² plus twice an exponential is uniform in the ball:
    the exponential stands for the squares of two further normals, and dropping two coordinates of a
    uniform point on a sphere leaves a uniform point in a ball.
    """
    pairs = -(-dim // 2)
    blocks = -(-(2 * pairs + 1) // 4)
    rows = [bits.reshape(blocks, count) for bits in stream.kept_words(blocks * count)]
    z, last = _normals(rows, pairs) if _word_by_word(pairs) else _many_normals(rows, pairs)
    z, rest = z[:, :dim], -2 * jnp.log(open_unit(last))
    # Floats can draw exactly zero; then the point is the center, not a division by zero.
    square = jnp.maximum((z * z).sum(-1) + rest, np.finfo(np.float32).tiny)
    return z * jax.lax.rsqrt(square)[:, None]


def _word_by_word(pairs: int) -> bool:
    """Whether that is faster, as measured; of more it takes too long to compile."""
    return pairs <= 5 if jax.default_backend() != "cpu" else pairs <= 10 and pairs != 4


def _normals(rows: list[Array], pairs: int) -> tuple[Array, Array]:
    """Normal vectors, two coordinates from each pair of words, and a word more.

    Taken word by word, they fuse with the loop around them.
    """
    draws = [row[block] for block in range(len(rows[0])) for row in rows]
    normals = [z for i in range(pairs) for z in normal_pair(draws[2 * i], draws[2 * i + 1])]
    return jnp.stack(normals, axis=-1), draws[2 * pairs]


def _many_normals(rows: list[Array], pairs: int) -> tuple[Array, Array]:
    """Draw normal vectors at once; of many, a pair more to cut off: that fuses better."""
    draws = jnp.stack(rows, axis=1).reshape(-1, rows[0].shape[-1])
    size = 2 * pairs if pairs <= 5 else 2 * pairs + 2
    normals = normal_pair(draws[:size:2].T, draws[1:size:2].T)
    return jnp.stack(normals, axis=-1).reshape(-1, size), draws[2 * pairs]


def on_sphere(stream: Stream, count: int, dim: int) -> Array:
    """Points drawn uniformly from the unit sphere."""
    z = stream.normal(count * dim).reshape(count, dim)
    square = (z * z).sum(-1, keepdims=True)
    # In one dimension about one draw in 10 million is exactly zero: it stands for the first axis.
    return jnp.where(square > 0, z * jax.lax.rsqrt(square), jnp.eye(1, dim, dtype=z.dtype))


@struct
class Contexts:
    """A source of arms of norm at most one, and of parameters to go with them.

    Attributes:
        dim: length of a feature vector.
        count: the most arms in a round.
        constant: the value of a coordinate that all arms share, or 0.
        candidates: sets of arms that an adversary may choose from, who foresees the choice.
    """

    dim: int = static()
    count: int = static()
    constant: ClassVar[float] = 0.0
    candidates: ClassVar[int] = 1

    @property
    def rounds(self) -> int:
        """The most rounds that it lasts: as many as a clock can count."""
        return MOST_ROUNDS

    def least_score(self) -> float:
        """The least inner product of an arm with a parameter of norm one."""
        return -1.0

    def parameter(self, stream: Stream) -> Array:
        """Draw a parameter of norm one."""
        return self.points(stream, 1)[0]

    def init(self, stream: Stream) -> Array:
        """Draw what stays the same for the whole run: nothing."""
        return jnp.zeros((0, self.dim), jnp.float32)

    def features(self, kept: Array, clock: Clock, stream: Stream) -> Array:
        """The features of this round's arms, one per row: fresh points."""
        return self.points(stream, self.count)

    def points(self, stream: Stream, count: int) -> Array:
        """Draw vectors of norm one: uniform on the sphere."""
        return on_sphere(stream, count, self.dim)


CONTEXTS: Registry[type[Contexts]] = Registry("contexts")


@CONTEXTS.entry("ball")
@struct
class Ball(Contexts):
    """Arms redrawn from the unit ball for every user."""

    def features(self, kept: Array, clock: Clock, stream: Stream) -> Array:
        """Fresh points in the ball."""
        return in_ball(stream, self.count, self.dim)


@CONTEXTS.entry("intercept")
@struct
class Intercept(Contexts):
    """Arms (u, 1)/√2 with u redrawn from the unit sphere.

    This is the world of the experiments in "Improved rate for Locally Differentially Private Linear
    Bandits" (TMLR submission), which does not say whether arms are redrawn.

    The parameter has the same form, so scores lie in [0, 1] for a parameter of norm one.
    """

    constant: ClassVar[float] = math.sqrt(0.5)

    def least_score(self) -> float:
        """(1 - 1)/2."""
        return 0.0

    def points(self, stream: Stream, count: int) -> Array:
        """Uniform on the sphere of one dimension less, with the constant appended."""
        points = on_sphere(stream, count, self.dim - 1)
        constant = jnp.ones((count, 1), points.dtype)
        return jnp.concatenate([points, constant], axis=-1) * jnp.sqrt(jnp.float32(0.5))


@CONTEXTS.entry("orthant")
@struct
class Orthant(Contexts):
    """Arms redrawn from the part of the unit sphere where no coordinate is negative.

    Scores lie in [0, 1] without a shared coordinate.
    """

    def least_score(self) -> float:
        """Arm and parameter may be orthogonal."""
        return 0.0

    def points(self, stream: Stream, count: int) -> Array:
        """Uniform on the sphere, every coordinate made positive."""
        return jnp.abs(on_sphere(stream, count, self.dim))


@CONTEXTS.entry("fixed")
@struct
class Fixed(Contexts):
    """One set of arms in the unit ball, drawn once and shown to every user."""

    def init(self, stream: Stream) -> Array:
        """The arm set."""
        return in_ball(stream, self.count, self.dim)

    def features(self, kept: Array, clock: Clock, stream: Stream) -> Array:
        """Return the arm set of the run."""
        return kept


@CONTEXTS.entry("mixed")
@struct
class Mixed(Fixed):
    """Arms in the unit ball: every other one is drawn once, the rest are redrawn for every user."""

    def features(self, kept: Array, clock: Clock, stream: Stream) -> Array:
        """Old and new arms in turn."""
        new = in_ball(stream, self.count, self.dim)
        return jnp.where(jnp.arange(self.count)[:, None] % 2 == 0, kept, new)


@CONTEXTS.entry("starved")
@struct
class Starved(Contexts):
    """An adversary that starves one direction: all arms lie in a hyperplane 63 rounds in 64.

    The first rounds show the hyperplane alone, so a policy that stops exploring once its arms look
    settled meets the rare rounds unprepared.
    """

    def features(self, kept: Array, clock: Clock, stream: Stream) -> Array:
        """Points in the ball, flattened in most rounds."""
        points = in_ball(stream, self.count, self.dim)
        open_round = (clock.round % 64) == 63
        return points.at[:, -1].multiply(jnp.where(open_round, 1.0, 0.0).astype(points.dtype))


@CONTEXTS.entry("hostile")
@struct
class Hostile(Ball):
    """An adversary that foresees the choice, coins and all: of 16 sets the one that costs most.

    Each is drawn from the unit ball. What a bandit knows badly is asked again and again, and what
    it knows well hardly ever.
    """

    candidates: ClassVar[int] = 16


@CONTEXTS.entry("skewed")
@struct
class Skewed(Contexts):
    """Arms redrawn from an ellipsoid: variances fall evenly from 1 to 1/100 across coordinates.

    Features on scales of their own, as data have them that nobody has standardised.
    """

    def features(self, kept: Array, clock: Clock, stream: Stream) -> Array:
        """Fresh points in the ball, each coordinate squeezed."""
        points = in_ball(stream, self.count, self.dim)
        return points * jnp.logspace(0.0, -1.0, self.dim, dtype=points.dtype)
