"""One specimen of every registered mechanism: how it is built, and its two worst inputs.

Inputs are half the stated sensitivity to either side of the center, in one coordinate or, for a
stream, in its first vector; so nothing depends on units. Exact mechanisms get the bytes of a seeded
generator in place of the operating system's. Where their coordinates are independent, a call draws
many outputs at once: each coordinate is a mechanism of its own for one number.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from kerchief.audits.views import TOGETHER
from kerchief.core.random import AGGREGATOR, DEVICE, Stream
from kerchief.core.registry import Registry
from kerchief.mechanisms.binomial import Binomial, ExactBinomial
from kerchief.mechanisms.blt import BLT
from kerchief.mechanisms.discrete_blt import DiscreteBLT
from kerchief.mechanisms.discrete_doubling import DiscreteDoubling
from kerchief.mechanisms.discrete_tree import DiscreteTree
from kerchief.mechanisms.doubling import Doubling
from kerchief.mechanisms.exact_gaussian import ExactGaussian
from kerchief.mechanisms.gaussian import Gaussian
from kerchief.mechanisms.laplace import ExactLaplace, Laplace
from kerchief.mechanisms.one_bit import OneBit
from kerchief.mechanisms.privunit import PrivUnitG
from kerchief.mechanisms.randomized_bits import Response
from kerchief.mechanisms.shortlist import Shortlist
from kerchief.mechanisms.toeplitz import SqrtToeplitz
from kerchief.mechanisms.tree import Tree
from kerchief.privacy.calibration import gaussian_noise_multiplier
from kerchief.privacy.guarantee import Trust
from kerchief.privacy.randomized_bits import bits_keep

__all__ = ["SPECIMENS", "Specimen"]

Floats = NDArray[np.float64]
Make: TypeAlias = Callable[[float, float], Any]

# A length that is no power of two, so that nothing is right by chance.
_SENSITIVITY = 1.7
# The length of a stream, and of the first of its epochs where there are some.
_LENGTH, _FIRST = 12, 4
# How many users share what they add to a sum, and how many bits each of them codes a number with.
_USERS, _BITS = 8, 16
# How many coordinates a vector of the ball has.
_SIZE = 3
# How many outputs one call of an exact sampler draws, where coordinates are independent.
_AT_ONCE = 500


@dataclasses.dataclass(frozen=True, kw_only=True)
class Specimen:
    """How one mechanism is audited.

    Attributes:
        trust: where it protects, for the claim.
        make: builds it for an ε and a δ.
        draw: its outputs on one of the two inputs: the mechanism, the sign of the input, how many
            outputs, and a seed. By output, place and number.
        runs: how many outputs are drawn on each input, if nothing is said.
    """

    trust: Trust
    make: Make
    draw: Callable[[Any, int, int, int], Floats]
    runs: int = 40_000

    @property
    def trusts(self) -> tuple[str, ...]:
        """As of a bandit: the one trust."""
        return (str(self.trust),)


def _sum(noise: Any, sign: int, runs: int, seed: int, *, users: int = 1, size: int = 1) -> Floats:
    """A noisy sum of some users' vectors, simulated: all are zero but for the first user's."""
    drawn = _in_parts(partial(_sums, noise, _rows(noise, sign, users, size)), runs, seed)
    return drawn[:, None, :]


@jax.jit
def _sums(noise: Any, rows: Array, numbers: Array, seed: Array) -> Array:
    def one(number: Array) -> Array:
        root = Stream.of(seed=seed, replicate=number)

        def send(row: Array, user: Array) -> Array:
            sent: Array = noise.prepare(row, root.at(DEVICE, round=user))
            return sent

        users = jnp.arange(rows.shape[0])
        noisy: Array = noise.add(jax.vmap(send)(rows, users).sum(0), root.at(AGGREGATOR))
        return noisy

    return jax.vmap(one)(numbers)


def _stream(noise: Any, sign: int, runs: int, seed: int) -> Floats:
    """Every noisy prefix of a stream, simulated: all vectors are zero but for the first."""
    drawn: Floats = _in_parts(partial(_prefixes, noise), runs, seed)
    drawn += sign * noise.sensitivity / 2
    return drawn


@jax.jit
def _prefixes(noise: Any, numbers: Array, seed: Array) -> Array:
    def one(number: Array) -> Array:
        root = Stream.of(seed=seed, replicate=number)

        def step(state: Array, round: Array) -> tuple[Array, Array]:
            drawn, state = noise.step(state, round, root.at(AGGREGATOR, round=round))
            return state, drawn

        rounds = jnp.arange(noise.horizon, dtype=jnp.int32)
        return jax.lax.scan(step, noise.open(1), rounds)[1]

    return jax.vmap(one)(numbers)


def _in_parts(draw: Callable[[Array, Array], Array], runs: int, seed: int) -> Floats:
    """Simulated outputs, by their numbers, some after others."""
    parts = [
        np.asarray(draw(jnp.arange(first, min(first + TOGETHER, runs)), jnp.uint32(seed)))
        for first in range(0, runs, TOGETHER)
    ]
    return np.concatenate(parts).astype(np.float64)


def _rows(noise: Any, sign: int, users: int, size: int) -> Floats:
    """What some users hold: half the sensitivity in one coordinate, and zeros."""
    rows = np.zeros((users, size))
    rows[0, 0] = sign * noise.sensitivity / 2
    return rows


def _exact(noise: Any, sign: int, runs: int, seed: int, *, users: int = 1, size: int = 1) -> Floats:
    """As `_sum`, for a mechanism that draws no more than one output at a time."""
    source = np.random.default_rng(seed).bytes
    rows = _rows(noise, sign, users, size)

    def send(user: int) -> Floats:
        sent: Floats = (
            noise.share(rows[user], place=user, users=users, randomness=source)
            if isinstance(noise, ExactBinomial)
            else noise.prepare(rows[user], source)
        )
        return sent

    drawn = [noise.add(sum(map(send, range(users))), source) for _ in range(runs)]
    return np.stack(drawn)[:, None, :]


def _exact_many(noise: Any, sign: int, runs: int, seed: int) -> Floats:
    """As `_sum`, for a mechanism that treats every coordinate alike and apart."""
    source = np.random.default_rng(seed).bytes
    vector = noise.prepare(np.full(_AT_ONCE, sign * noise.sensitivity / 2), source)
    calls = -(-runs // _AT_ONCE)
    drawn = np.concatenate([noise.add(vector, source) for _ in range(calls)])
    return drawn[:runs, None, None]


def _exact_stream(noise: Any, sign: int, runs: int, seed: int) -> Floats:
    """As `_stream`, for a mechanism that treats every coordinate alike and apart."""
    source = np.random.default_rng(seed).bytes
    first = noise.prepare(np.full(_AT_ONCE, sign * noise.sensitivity / 2))

    def prefixes() -> Floats:
        state, drawn = noise.open(_AT_ONCE), []
        for round in range(noise.horizon):
            noisy, state = noise.step(state, round, source)
            drawn.append(first + noisy)
        return np.stack(drawn, axis=1)

    calls = -(-runs // _AT_ONCE)
    return np.concatenate([prefixes() for _ in range(calls)])[:runs, :, None]


def _normal(make: Callable[..., Any], **facts: Any) -> Make:
    """A mechanism that is built from a noise multiplier."""

    def made(epsilon: float, delta: float) -> Any:
        multiplier = gaussian_noise_multiplier(epsilon, delta)
        return make(noise_multiplier=multiplier, sensitivity=_SENSITIVITY, **facts)

    return made


def _pure(make: Callable[..., Any], **facts: Any) -> Make:
    """A mechanism that is built from ε alone."""
    return lambda epsilon, delta: make(epsilon=epsilon, **facts)


def _twin(make: Make) -> Make:
    """The twin for deployment."""
    return lambda epsilon, delta: make(epsilon, delta).exact()


def _response(epsilon: float, delta: float) -> Response:
    event = bits_keep(epsilon, delta, users=_USERS, bits=_BITS, sensitivity=2.0, dimension=1)
    return Response.of(event, bound=_SENSITIVITY / 2)


def _discrete(*, noise_multiplier: float, sensitivity: float) -> ExactGaussian:
    return ExactGaussian.matching(noise_multiplier, sensitivity, _AT_ONCE)


_coins = _normal(Binomial.of, dimension=1, users=_USERS)
_number = {"center": 0.0, "radius": _SENSITIVITY / 2}
_ball = {**_number, "size": _SIZE}
_in_ball = partial(_sum, size=_SIZE)
_shared = partial(_sum, users=_USERS)
_epochs = {"horizon": _LENGTH, "first": _FIRST}

SPECIMENS: Registry[Specimen] = Registry("audited mechanism")
"""How each registered mechanism is audited, by its name."""
SPECIMENS.add("gaussian", Specimen(trust=Trust.CENTRAL, make=_normal(Gaussian.of), draw=_sum))
SPECIMENS.add(
    "discrete-gaussian", Specimen(trust=Trust.CENTRAL, make=_normal(_discrete), draw=_exact_many)
)
SPECIMENS.add("binomial", Specimen(trust=Trust.SHUFFLE, make=_coins, draw=_shared))
SPECIMENS.add(
    "coins",
    Specimen(
        trust=Trust.SHUFFLE, make=_twin(_coins), draw=partial(_exact, users=_USERS), runs=4000
    ),
)
SPECIMENS.add("randomized-bits", Specimen(trust=Trust.SHUFFLE, make=_response, draw=_shared))
SPECIMENS.add(
    "exact-randomized-bits",
    Specimen(
        trust=Trust.SHUFFLE, make=_twin(_response), draw=partial(_exact, users=_USERS), runs=8000
    ),
)
SPECIMENS.add(
    "tree", Specimen(trust=Trust.JOINT, make=_normal(Tree.of, horizon=_LENGTH), draw=_stream)
)
SPECIMENS.add(
    "sqrt-toeplitz",
    Specimen(trust=Trust.JOINT, make=_normal(SqrtToeplitz.of, horizon=_LENGTH), draw=_stream),
)
SPECIMENS.add(
    "blt", Specimen(trust=Trust.JOINT, make=_normal(BLT.of, horizon=_LENGTH), draw=_stream)
)
SPECIMENS.add(
    "discrete-blt",
    Specimen(
        trust=Trust.JOINT,
        make=_normal(DiscreteBLT.matching, horizon=_LENGTH, buffers=2, dimension=_AT_ONCE),
        draw=_exact_stream,
    ),
)
SPECIMENS.add(
    "discrete-tree",
    Specimen(
        trust=Trust.JOINT,
        make=_normal(DiscreteTree.matching, horizon=_LENGTH, dimension=_AT_ONCE),
        draw=_exact_stream,
    ),
)
SPECIMENS.add(
    "doubling", Specimen(trust=Trust.JOINT, make=_normal(Doubling.of, **_epochs), draw=_stream)
)
SPECIMENS.add(
    "discrete-doubling",
    Specimen(
        trust=Trust.JOINT,
        make=_normal(DiscreteDoubling.matching, **_epochs, dimension=_AT_ONCE),
        draw=_exact_stream,
    ),
)
SPECIMENS.add(
    "laplace",
    Specimen(
        trust=Trust.LOCAL, make=_pure(Laplace.of, taxicab=_SENSITIVITY, dimension=1), draw=_sum
    ),
)
SPECIMENS.add(
    "discrete-laplace",
    Specimen(
        trust=Trust.LOCAL,
        make=_pure(ExactLaplace.of, taxicab=_SENSITIVITY, dimension=_AT_ONCE),
        draw=_exact_many,
    ),
)
SPECIMENS.add("one-bit", Specimen(trust=Trust.LOCAL, make=_pure(OneBit.of, **_number), draw=_sum))
SPECIMENS.add(
    "exact-one-bit",
    Specimen(trust=Trust.LOCAL, make=_twin(_pure(OneBit.of, **_number)), draw=_exact),
)
SPECIMENS.add(
    "privunit", Specimen(trust=Trust.LOCAL, make=_pure(PrivUnitG.of, **_ball), draw=_in_ball)
)
SPECIMENS.add(
    "shortlist", Specimen(trust=Trust.LOCAL, make=_pure(Shortlist.of, **_ball), draw=_in_ball)
)
SPECIMENS.add(
    "exact-shortlist",
    Specimen(
        trust=Trust.LOCAL,
        make=_twin(_pure(Shortlist.of, **_ball)),
        draw=partial(_exact, size=_SIZE),
        runs=20_000,
    ),
)
