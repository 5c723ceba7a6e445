"""Randomness for simulation: one counter-based generator, addressed rather than split.

Every number is a pure function of its address (seed, replicate, stream, round, part). The generator
is Philox-4x32 with seven rounds (Salmon, Moraes, Dror and Shaw 2011, the fewest that pass their
whole battery), because deriving JAX keys inside the loop costs more than a bandit's arithmetic. It
is *not* cryptographic: deployment draws its noise from the operating system.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from kerchief.core.precision import double_precision
from kerchief.core.struct import struct

WORLD, ARMS, REWARD, POLICY, DEVICE, AGGREGATOR = range(6)

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (np.uint32(0x9E3779B9), np.uint32(0xBB67AE85))
_ROUNDS = 7
_LOW = np.uint64(2**32 - 1)


def _product(multiplier: np.uint64, bits: Array) -> tuple[Array, Array]:
    """High and low halves of a 32 by 32 bit product."""
    wide = multiplier * bits
    return wide >> 32, wide & _LOW


# Jitted, as are all functions below it and the normals: so they are traced once for each shape, and
# not for every round and every draw.
@jax.jit
def _mixed(
    key: tuple[Array, Array], counter: tuple[Array, Array, Array, Array]
) -> tuple[tuple[Array, Array], tuple[Array, Array, Array, Array]]:
    """One round: the next key, and counters that are mixed with this one."""
    (k0, k1), (c0, c1, c2, c3) = key, counter
    (high0, low0), (high1, low1) = _product(_MULTIPLIERS[0], c0), _product(_MULTIPLIERS[1], c2)
    mixed = high1 ^ c1 ^ k0.astype(jnp.uint64), low1, high0 ^ c3 ^ k1.astype(jnp.uint64), low0
    return (k0 + _WEYL[0], k1 + _WEYL[1]), mixed


@double_precision
@partial(jax.jit, static_argnames="rounds")
def philox(
    key: tuple[Array, Array], counter: tuple[Array, Array, Array, Array], *, rounds: int = _ROUNDS
) -> tuple[Array, Array, Array, Array]:
    """Four words of 32 random bits for each counter.

    Until the end each is kept in 64 bits, of which a compiler for a CPU makes faster loops.
    """
    c0, c1, c2, c3 = (bits.astype(jnp.uint64) for bits in counter)
    wide = c0, c1, c2, c3
    for _ in range(rounds):
        key, wide = _mixed(key, wide)
    a, b, c, d = (bits.astype(jnp.uint32) for bits in wide)
    return a, b, c, d


def _packed(low: Array, high: Array) -> Array:
    """Two words of 32 bits in one of 64."""
    return low.astype(jnp.uint64) | high.astype(jnp.uint64) << 32


def _as_float(wide: Array) -> Array:
    return jax.lax.bitcast_convert_type(wide, jnp.float64)


def _as_whole(number: Array) -> Array:
    return jax.lax.bitcast_convert_type(number, jnp.uint64)


def _unpacked(wide: Array) -> tuple[Array, Array]:
    return wide.astype(jnp.uint32), (wide >> 32).astype(jnp.uint32)


def open_unit(word: Array) -> Array:
    """A float32 in (0, 1], symmetric about one half up to rounding."""
    return (word >> 8).astype(jnp.float32) * np.float32(2**-24) + np.float32(2**-25)


def _as_word(number: Array) -> Array:
    return number.view(jnp.uint32)


def _flip(value: Array, bit: Array) -> Array:
    """Negate where the top bit of `bit` is set."""
    return (value.view(jnp.uint32) ^ (bit & np.uint32(1 << 31))).view(jnp.float32)


@jax.jit
def normal_pair(first: Array, second: Array) -> tuple[Array, Array]:
    """Two standard normals from two words (Box-Muller).

    The angle is drawn within a quarter turn, where a short Taylor polynomial is good to 4e-7; three
    spare bits swap and flip. That is three times faster than the inverse error function.
    """
    radius = jnp.sqrt(-2.0 * jnp.log(open_unit(first)))
    angle = (open_unit(second) * 2 - 1) * np.float32(math.pi / 4)
    w = angle * angle
    sine = angle * (
        1 + w * (np.float32(-1 / 6) + w * (np.float32(1 / 120) - w * np.float32(1 / 5040)))
    )
    cosine = 1 + w * (
        np.float32(-1 / 2)
        + w * (np.float32(1 / 24) + w * (np.float32(-1 / 720) + w * np.float32(1 / 40320)))
    )
    swap = (second & 1) != 0
    across, along = jnp.where(swap, cosine, sine), jnp.where(swap, sine, cosine)
    return radius * _flip(across, second << 30), radius * _flip(along, second << 29)


@struct
class Stream:
    """One address in the tree of randomness; draws are methods of it and change nothing.

    >>> stream = Stream.of(seed=0, replicate=3).at(ARMS, round=7)
    >>> bool((stream.uniform(2) == stream.uniform(2)).all())
    True
    """

    seed: Array
    replicate: Array
    stream: Array
    round: Array
    part: Array

    @classmethod
    def of(cls, *, seed: int | Array, replicate: int | Array) -> Self:
        """The root of one replicate's randomness."""
        zero = jnp.uint32(0)
        return cls(
            seed=jnp.asarray(seed, jnp.uint32),
            replicate=jnp.asarray(replicate, jnp.uint32),
            stream=zero,
            round=zero,
            part=zero,
        )

    def at(self, stream: int, *, round: int | Array = 0, query: int = 0) -> Self:
        """The address of one stream in one round, for one query."""
        number, at = jnp.uint32(stream + 256 * query), jnp.asarray(round, jnp.uint32)
        return dataclasses.replace(self, stream=number, round=at, part=jnp.uint32(0))

    def split(self, part: int | Array) -> Self:
        """A further independent address, for a second draw at the same place.

        Parts do not nest: this sets the part, whatever it was, and part 0 is where `at` begins.
        """
        return dataclasses.replace(self, part=jnp.uint32(part))

    def words(self, blocks: int) -> tuple[Array, Array, Array, Array]:
        """Four arrays of `blocks` random 32-bit words."""
        index = jnp.arange(blocks, dtype=jnp.uint32)
        zero = jnp.zeros(blocks, jnp.uint32)
        counter = (index, zero + self.round, zero + self.stream, zero + self.part)
        a, b, c, d = philox((self.seed, self.replicate), counter)
        return a, b, c, d

    def kept_words(self, blocks: int) -> tuple[Array, Array, Array, Array]:
        """Draw random 32-bit words; a CPU draws them once for everything made of them."""
        if jax.default_backend() != "cpu":
            return self.words(blocks)
        a, b, c, d = _kept_words(self, blocks)
        return a, b, c, d

    def uniform(self, size: int) -> Array:
        """Float32 uniforms in (0, 1]."""
        draw_words = self.words if size <= 4 else self.kept_words
        return open_unit(jnp.concatenate(draw_words(-(-size // 4)))[:size])

    def exponential(self, size: int) -> Array:
        """Float32 exponentials of mean one."""
        return -jnp.log(self.uniform(size))

    def normal(self, size: int) -> Array:
        """Float32 standard normals; none lies beyond 5.9."""
        if jax.default_backend() != "cpu":
            a, b, c, d = self.words(-(-size // 4))
            return jnp.concatenate(normal_pair(a, b) + normal_pair(c, d))[:size]
        normals: Array = _kept_normals(self, size)
        return normals

    def key(self) -> Array:
        """A JAX key for this address, for code that wants `jax.random`."""
        a, b, _, _ = self.words(1)
        key: Array = jax.random.wrap_key_data(jnp.concatenate([a, b]), impl="threefry2x32")
        return key


@double_precision
@partial(jax.jit, static_argnames="blocks")
def _kept_words(stream: Stream, blocks: int) -> tuple[Array, Array, Array, Array]:
    def draw() -> Array:
        a, b, c, d = stream.words(blocks)
        return jax.lax.complex(_as_float(_packed(a, b)), _as_float(_packed(c, d)))

    # Four words in one number, as the compiler makes a loop of its own for each array.
    four = _draw_once(stream, draw)
    return *_unpacked(_as_whole(four.real)), *_unpacked(_as_whole(four.imag))


@double_precision
@partial(jax.jit, static_argnames="size")
def _kept_normals(stream: Stream, size: int) -> Array:
    a, b, c, d = _kept_words(stream, -(-size // 4))

    def make() -> tuple[Array, Array]:
        first, second = normal_pair(a, b), normal_pair(c, d)
        return _packed(*map(_as_word, first)), _packed(*map(_as_word, second))

    first, second = _draw_once(stream, make)
    bits = jnp.concatenate(_unpacked(first) + _unpacked(second))[:size]
    return bits.view(jnp.float32)


def _draw_once(stream: Stream, draw: Callable[[], Any]) -> Any:
    """Draw once for everything made of it, where all replicates have one seed.

    The compiler copies what it can into those who use it. Out of a branch it cannot, and that this
    one is always taken it does not see.
    """

    def nothing() -> Any:
        return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(draw))

    return jax.lax.cond((stream.seed | 1) != 0, draw, nothing)
