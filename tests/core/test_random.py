"""The generator: known answers, distinct addresses, and the laws of what is drawn.

Each statistical test fails by chance with probability at most 1e-6; seeds are fixed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from numpy.typing import NDArray
from scipy import special  # type: ignore[import-untyped]

from kerchief.core.random import (
    AGGREGATOR,
    ARMS,
    DEVICE,
    POLICY,
    REWARD,
    WORLD,
    Stream,
    normal_pair,
    open_unit,
    philox,
)

ERROR = 1e-6
MASK = 2**32 - 1
Floats = NDArray[np.float64]


def plain_philox(key: list[int], counter: list[int], rounds: int) -> list[int]:
    """Philox-4x32 in whole numbers, written from its definition."""
    k0, k1 = key
    a, b, c, d = counter
    for _ in range(rounds):
        left, right = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = (right >> 32) ^ b ^ k0, right & MASK, (left >> 32) ^ d ^ k1, left & MASK
        k0, k1 = (k0 + 0x9E3779B9) & MASK, (k1 + 0xBB67AE85) & MASK
    return [a, b, c, d]


def ours(key: list[int], counter: list[int], rounds: int) -> list[int]:
    k0, k1 = (jnp.uint32(word) for word in key)
    a, b, c, d = (jnp.uint32(word) for word in counter)
    return [int(word) for word in philox((k0, k1), (a, b, c, d), rounds=rounds)]


def assert_law(draws: Array | Floats, cdf: Callable[[Floats], Floats]) -> None:
    """Kolmogorov-Smirnov by Massart's inequality, which is exact for no n but holds for all."""
    sample = np.sort(np.asarray(draws, np.float64))
    n = sample.size
    level = cdf(sample)
    steps = np.arange(n + 1) / n
    distance = max(np.abs(level - steps[1:]).max(), np.abs(level - steps[:-1]).max())
    assert distance < math.sqrt(math.log(2 / ERROR) / (2 * n)) + 2**-24


def assert_uncorrelated(first: Array | Floats, second: Array | Floats, *, tests: int = 1) -> None:
    """The sample correlation of n independent pairs is normal with deviation 1/√n, nearly."""
    r = np.corrcoef(np.asarray(first, np.float64), np.asarray(second, np.float64))[0, 1]
    assert abs(r) * math.sqrt(first.size) < -special.ndtri(ERROR / tests / 2)


@pytest.mark.parametrize(
    ("rounds", "word", "answer"),
    [
        (10, 0, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        (10, MASK, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (7, 0, "5f6fb709 0d893f64 4f121f81 4f730a48"),
    ],
)
def test_known_answers(rounds: int, word: int, answer: str) -> None:
    key, counter = [word] * 2, [word] * 4
    expected = [int(part, 16) for part in answer.split()]
    assert plain_philox(key, counter, rounds) == expected
    assert ours(key, counter, rounds) == expected


@pytest.mark.parametrize("rounds", [7, 10])
def test_equals_the_plain_definition(rounds: int) -> None:
    rng = np.random.default_rng(5)
    for _ in range(20):
        words = [int(word) for word in rng.integers(0, 2**32, 6)]
        assert ours(words[:2], words[2:], rounds) == plain_philox(words[:2], words[2:], rounds)


def test_a_stream_is_the_cipher_at_its_address() -> None:
    stream = Stream.of(seed=7, replicate=8).at(REWARD, round=9, query=3).split(2)
    words = np.stack([np.asarray(word) for word in stream.words(3)])
    for index in range(3):
        expected = plain_philox([7, 8], [index, 9, REWARD + 256 * 3, 2], 7)
        assert words[:, index].tolist() == expected


@pytest.mark.parametrize("round", [0, 7, 2**32 - 1])
def test_kept_words_equal_freshly_drawn_words(round: int) -> None:
    """Four travel in two floats: also those that are none, of which one in 2000 is."""
    at = Stream.of(seed=3, replicate=5).at(ARMS, round=jnp.uint32(round))
    kept, again = jax.jit(lambda: (at.kept_words(100_000), at.words(100_000)))()
    np.testing.assert_array_equal(kept, again)


@pytest.mark.parametrize("seed", [0, 1, 2, MASK])
@pytest.mark.parametrize("size", [1, 5, 20, 4001])
def test_cpu_draw_branch_is_taken_for_every_seed(seed: int, size: int) -> None:
    """A CPU draws in a branch, which is to be taken for every seed."""

    def draw(seed: Array, replicate: Array) -> tuple[Array, Array, tuple[Array, ...]]:
        at = Stream.of(seed=seed, replicate=replicate).at(DEVICE, round=replicate)
        return at.normal(size), at.uniform(size), at.words(-(-size // 4))

    replicates = jnp.arange(3, dtype=jnp.uint32)
    normals, uniforms, (a, b, c, d) = jax.jit(jax.vmap(draw, in_axes=(None, 0)))(
        jnp.uint32(seed), replicates
    )
    np.testing.assert_array_equal(uniforms, open_unit(jnp.hstack([a, b, c, d]))[:, :size])
    plain = jnp.hstack([*normal_pair(a, b), *normal_pair(c, d)])[:, :size]
    np.testing.assert_allclose(normals, plain, rtol=2e-6, atol=1e-7)


def test_eager_draws_compile_once_per_size(
    caplog: pytest.LogCaptureFixture,
) -> None:
    root = Stream.of(seed=2, replicate=1)
    draws: list[Callable[[Stream], Array]] = [lambda at: at.normal(6), lambda at: at.uniform(9)]
    for draw in draws:
        draw(root.at(ARMS, round=0))
        with jax.log_compiles(True), jax.debug_nans(True), caplog.at_level("WARNING"):
            drawn = [draw(root.at(ARMS, round=round)) for round in range(1, 4)]
        assert not [one for one in caplog.messages if "_kept" in one or "cond" in one]
        assert len({float(one[0]) for one in drawn}) == 3


def test_distinct_addresses_give_distinct_words() -> None:
    values = ((0, 1, MASK), (0, 1, 2), (ARMS, AGGREGATOR, ARMS + 256), (0, 1, 63), (0, 1))
    places = np.array(list(itertools.product(*values)), np.uint32)

    @jax.vmap
    def first(place: Array) -> Array:
        seed, replicate, stream, round, part = place
        address = Stream(seed=seed, replicate=replicate, stream=stream, round=round, part=part)
        return jnp.concatenate(address.words(1))

    words = np.asarray(jax.jit(first)(jnp.asarray(places)))
    assert len(np.unique(words, axis=0)) == len(places) == 162


def test_streams_have_different_names() -> None:
    assert len({WORLD, ARMS, REWARD, POLICY, DEVICE, AGGREGATOR}) == 6
    assert max(WORLD, ARMS, REWARD, POLICY, DEVICE, AGGREGATOR) < 256


def test_parts_do_not_nest() -> None:
    stream = Stream.of(seed=1, replicate=1).at(ARMS)
    assert stream.split(1).split(2) == stream.split(2)
    assert (stream.split(0).uniform(4) == stream.uniform(4)).all()


def test_sizes_that_are_no_multiple_of_a_block() -> None:
    stream = Stream.of(seed=0, replicate=0)
    for draws in (stream.uniform(5), stream.normal(5), stream.exponential(5)):
        assert draws.shape == (5,)
        assert draws.dtype == jnp.float32
        assert len(set(draws.tolist())) == 5


def test_jit_and_vmap_change_nothing() -> None:
    def draw(replicate: Array) -> Array:
        return Stream.of(seed=3, replicate=replicate).at(ARMS, round=5).uniform(7)

    numbers = jnp.arange(4, dtype=jnp.uint32)
    together = jax.jit(jax.vmap(draw))(numbers)
    assert (together == jnp.stack([draw(number) for number in numbers])).all()


def test_uniforms_are_never_zero() -> None:
    ends = open_unit(jnp.array([0, MASK], jnp.uint32))
    assert ends.tolist() == [2**-25, 1.0]


def test_normals_stay_on_their_circle_and_within_their_bound() -> None:
    second = jnp.linspace(0, MASK, 100_001).astype(jnp.uint32)
    for word in (0, 1 << 8, 1 << 31, MASK - (1 << 9)):
        first = jnp.full(second.shape, word, jnp.uint32)
        x, y = (np.asarray(z, np.float64) for z in normal_pair(first, second))
        radius = math.sqrt(-2 * math.log(float(open_unit(first[:1])[0])))
        np.testing.assert_allclose(np.hypot(x, y), radius, rtol=1e-6)
        assert max(np.abs(x).max(), np.abs(y).max()) < 5.9


def test_uniforms_exponentials_and_normals_have_their_laws() -> None:
    root = Stream.of(seed=11, replicate=2)

    @jax.jit
    def draw() -> tuple[Array, Array, Array]:
        n = 1_000_000
        uniforms, exponentials = root.at(ARMS).uniform(n), root.at(REWARD).exponential(n)
        return uniforms, exponentials, root.at(POLICY).normal(n)

    uniforms, exponentials, normals = draw()
    assert_law(uniforms, lambda u: u)
    assert_law(exponentials, lambda e: -np.expm1(-e))
    assert_law(normals, special.ndtr)


@pytest.mark.parametrize("axis", ["round", "replicate"])
def test_first_draws_along_an_axis_of_addresses_have_their_law(axis: str) -> None:
    def draw(i: Array) -> Array:
        zero = jnp.uint32(0)
        names = ("seed", "replicate", "stream", "round", "part")
        return Stream(**{name: i if name == axis else zero for name in names}).normal(2)

    draws = jax.jit(jax.vmap(draw))(jnp.arange(200_000, dtype=jnp.uint32))
    assert_law(draws[:, 0], special.ndtr)
    assert_law(draws[:, 1], special.ndtr)
    assert_uncorrelated(draws[1:, 0], draws[:-1, 0])


def test_the_two_normals_of_a_pair_are_independent() -> None:
    a, b, _, _ = Stream.of(seed=4, replicate=0).at(DEVICE).words(1_000_000)
    x, y = (np.asarray(z, np.float64) for z in normal_pair(a, b))
    for f in (np.positive, np.square, np.abs, np.sign):
        assert_uncorrelated(f(x), f(y), tests=4)
    assert_law(x * x + y * y, lambda s: -np.expm1(-s / 2))
    assert_law(np.arctan2(y, x) / (2 * math.pi) + 0.5, lambda u: u)


def test_neighbouring_addresses_are_uncorrelated() -> None:
    root = Stream.of(seed=20, replicate=5)
    here = root.at(ARMS, round=7)
    others = [
        Stream.of(seed=21, replicate=5).at(ARMS, round=7),
        Stream.of(seed=20, replicate=6).at(ARMS, round=7),
        root.at(REWARD, round=7),
        root.at(ARMS, round=8),
        root.at(ARMS, round=7, query=1),
        here.split(1),
    ]
    n = 200_000
    base, *rest = jax.jit(lambda: [stream.normal(n) for stream in (here, *others)])()
    for draws in rest:
        assert_uncorrelated(base, draws, tests=12)
        assert_uncorrelated(base * base, draws * draws, tests=12)


def test_keys_for_jax_follow_the_address() -> None:
    stream = Stream.of(seed=0, replicate=0).at(POLICY)
    same, other = stream.key(), stream.split(1).key()
    assert (jax.random.key_data(same) == jax.random.key_data(stream.key())).all()
    assert (jax.random.key_data(same) != jax.random.key_data(other)).any()
    assert jax.random.uniform(same).shape == ()
