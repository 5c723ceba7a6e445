"""One specimen of every registered mechanism: how it is built, and its two worst inputs.

Inputs are half the stated sensitivity to either side of the center, in one coordinate or, for a
stream, in its first vector; so nothing depends on units. For a direction with a response and a
weight they are the two that are told of by opposite vectors. Exact mechanisms get the bytes of a
seeded generator in place of the operating system's. Where their coordinates are independent, a call
draws many outputs at once: each coordinate is a mechanism of its own for one number.
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

from kerchief.audits.neighbours import Floats
from kerchief.audits.views import in_parts
from kerchief.core.contracts import Example
from kerchief.core.random import AGGREGATOR, DEVICE, Stream
from kerchief.core.registry import Registry
from kerchief.core.residual_moments import ResidualMoments
from kerchief.mechanisms.binomial import Binomial, ExactBinomial
from kerchief.mechanisms.blt import BLT
from kerchief.mechanisms.compass import Compass, ExactCompass
from kerchief.mechanisms.continual import ContinualNoise
from kerchief.mechanisms.doubling import Doubling
from kerchief.mechanisms.factor import Factor
from kerchief.mechanisms.gaussian import Gaussian
from kerchief.mechanisms.laplace import Laplace
from kerchief.mechanisms.one_bit import OneBit
from kerchief.mechanisms.privunit import PrivUnitG
from kerchief.mechanisms.randomized_bits import Response
from kerchief.mechanisms.shortlist import Shortlist
from kerchief.mechanisms.toeplitz import SqrtToeplitz
from kerchief.mechanisms.tree import Tree
from kerchief.privacy.calibration import gaussian_noise_multiplier
from kerchief.privacy.guarantee import Trust
from kerchief.privacy.randomized_bits import bits_keep

Make: TypeAlias = Callable[[float, float], Any]
Draw: TypeAlias = Callable[[Any, int, int, int], Floats]

_DIRECTED = (Compass, ExactCompass)

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
    """How one mechanism is audited: where it protects, how it is built for an ε and a δ, and drawn.

    `draw` takes the mechanism, the sign of the input, how many outputs, and a seed, and gives them
    by output, place and number.
    """

    trust: Trust
    make: Make
    draw: Draw
    runs: int

    @property
    def trusts(self) -> tuple[str, ...]:
        """Trust models under which the mechanism is audited: a single one."""
        return (str(self.trust),)


def _draw_sum(
    noise: Any, sign: int, runs: int, seed: int, *, users: int = 1, size: int = 1
) -> Floats:
    """Draw noisy sums of vectors that are zero but for the first user's."""
    rows = _build_rows(noise, sign, users, size)
    return in_parts(runs, partial(_draw_sums, noise, rows, jnp.uint32(seed)))[:, None, :]


@jax.jit
def _draw_sums(noise: Any, rows: Array, seed: Array, numbers: Array) -> Array:
    def draw_one(number: Array) -> Array:
        root = Stream.of(seed=seed, replicate=number)

        def send(row: Array, user: Array) -> Array:
            report: Array = noise.prepare(row, root.at(DEVICE, round=user))
            return report

        users = jnp.arange(rows.shape[0])
        noisy: Array = noise.add(jax.vmap(send)(rows, users).sum(0), root.at(AGGREGATOR))
        return noisy

    return jax.vmap(draw_one)(numbers)


def _draw_stream(noise: Any, sign: int, runs: int, seed: int) -> Floats:
    """Draw the noisy prefixes of a stream that is zero after its first vector."""
    prefixes = in_parts(runs, partial(_draw_prefixes, noise, jnp.uint32(seed)))
    return prefixes + float(sign * noise.sensitivity / 2)


@jax.jit
def _draw_prefixes(noise: Any, seed: Array, numbers: Array) -> Array:
    def draw_one(number: Array) -> Array:
        root = Stream.of(seed=seed, replicate=number)

        def step(state: Array, round: Array) -> tuple[Array, Array]:
            noisy, state = noise.step(state, round, root.at(AGGREGATOR, round=round))
            return state, noisy

        rounds = jnp.arange(noise.horizon, dtype=jnp.int32)
        return jax.lax.scan(step, noise.open(1), rounds)[1]

    return jax.vmap(draw_one)(numbers)


def _build_rows(noise: Any, sign: int, users: int, size: int) -> Floats:
    """Build the users' vectors: half the sensitivity in one coordinate, and zeros."""
    rows = np.zeros((users, size))
    rows[0, 0] = sign * noise.sensitivity / 2
    return np.stack([_encode_residual(noise.query, sign)]) if isinstance(noise, _DIRECTED) else rows


def _encode_residual(query: ResidualMoments, sign: int) -> Floats:
    """Encode the greatest response with full weight, or the least with none."""
    x, weight = jnp.zeros(query.dim).at[0].set(query.norm), jnp.asarray((1.0 + sign) / 2)
    record = Example(features=x, reward=jnp.asarray(sign * query.most), weight=weight)
    return np.asarray(query.encode(record), np.float64)


def _draw_exact(
    noise: Any, sign: int, runs: int, seed: int, *, users: int = 1, size: int = 1
) -> Floats:
    """Draw noisy sums of an exact mechanism, one output at a time."""
    source = np.random.default_rng(seed).bytes
    rows = _build_rows(noise, sign, users, size)

    def send(user: int) -> Any:
        if isinstance(noise, ExactBinomial):
            return noise.share(rows[user], place=user, users=users, randomness=source)
        return noise.prepare(rows[user], source)

    outputs = [noise.add(sum(map(send, range(users))), source) for _ in range(runs)]
    return np.stack(outputs)[:, None, :]


def _draw_exact_many(
    noise: Any, sign: int, runs: int, seed: int, *, stream: bool = False
) -> Floats:
    """Draw outputs of an exact mechanism, many independent coordinates at once."""
    source = np.random.default_rng(seed).bytes
    vector: Floats = noise.prepare(np.full(_AT_ONCE, sign * noise.sensitivity / 2))

    def draw_once() -> list[Floats]:
        if not stream:
            return [noise.add(vector, source)]
        state, prefixes = noise.open(_AT_ONCE), []
        for round in range(noise.horizon):
            noisy, state = noise.step(state, round, source)
            prefixes.append(vector + noisy)
        return prefixes

    calls = -(-runs // _AT_ONCE)
    return np.concatenate([np.stack(draw_once(), axis=1) for _ in range(calls)])[:runs, :, None]


def _normal(make: Callable[..., Any], **facts: Any) -> Make:
    """A mechanism that is built from a noise multiplier."""

    def build(epsilon: float, delta: float) -> Any:
        multiplier = gaussian_noise_multiplier(epsilon, delta)
        return make(noise_multiplier=multiplier, sensitivity=_SENSITIVITY, **facts)

    return build


def _pure(make: Callable[..., Any], **facts: Any) -> Make:
    """A mechanism that is built from ε alone."""
    return lambda epsilon, delta: make(epsilon=epsilon, **facts)


def _twin(make: Make, *, dimension: int | None = None) -> Make:
    """Build the exact twin of a mechanism, for deployment."""
    return lambda epsilon, delta: make(epsilon, delta).exact(dimension)


def _response(epsilon: float, delta: float) -> Response:
    event = bits_keep(epsilon, delta, users=_USERS, bits=_BITS, sensitivity=2.0, dimension=1)
    return Response.of(event, bound=_SENSITIVITY / 2)


_coins = _normal(Binomial.of, dimension=1, users=_USERS)
_number = {"center": 0.0, "radius": _SENSITIVITY / 2}
_ball = {**_number, "size": _SIZE}
_compass = _pure(Compass.of, query=ResidualMoments(dim=2, norm=1.0, most=_SENSITIVITY / 2))
_bit = _pure(OneBit.of, **_number)
_shortlist = _pure(Shortlist.of, **_ball)
_ball_sum = partial(_draw_sum, size=_SIZE)
_cohort_sum = partial(_draw_sum, users=_USERS)
_exact_cohort_sum = partial(_draw_exact, users=_USERS)
_laplace = {"taxicab": _SENSITIVITY}

SPECIMENS: Registry[Specimen] = Registry("audited mechanism", listed=("mechanisms",))
"""How each registered mechanism is audited, by its name."""


def _enter(name: str, trust: Trust, make: Make, draw: Draw, runs: int = 40_000) -> None:
    SPECIMENS.add(name, Specimen(trust=trust, make=make, draw=draw, runs=runs))


def _enter_prefix_noise(name: str, exact: str, factor: Factor) -> None:
    """Enter noise on prefixes and its exact twin."""
    make = _normal(partial(ContinualNoise.of, factor))
    _enter(name, Trust.JOINT, make, _draw_stream)
    _enter(
        exact, Trust.JOINT, _twin(make, dimension=_AT_ONCE), partial(_draw_exact_many, stream=True)
    )


_enter("gaussian", Trust.CENTRAL, _normal(Gaussian.of), _draw_sum)
_enter(
    "discrete-gaussian",
    Trust.CENTRAL,
    _twin(_normal(Gaussian.of), dimension=_AT_ONCE),
    _draw_exact_many,
)
_enter("binomial", Trust.SHUFFLE, _coins, _cohort_sum)
_enter("coins", Trust.SHUFFLE, _twin(_coins), _exact_cohort_sum, runs=4000)
_enter("randomized-bits", Trust.SHUFFLE, _response, _cohort_sum)
_enter("exact-randomized-bits", Trust.SHUFFLE, _twin(_response), _exact_cohort_sum, runs=8000)
_enter_prefix_noise("tree", "discrete-tree", Tree(horizon=_LENGTH))
_enter_prefix_noise("sqrt-toeplitz", "exact-sqrt-toeplitz", SqrtToeplitz(horizon=_LENGTH))
_enter_prefix_noise("blt", "discrete-blt", BLT.of(horizon=_LENGTH))
_enter_prefix_noise("doubling", "discrete-doubling", Doubling(horizon=_LENGTH, first=_FIRST))
_enter("laplace", Trust.LOCAL, _pure(Laplace.of, **_laplace, dimension=1), _draw_sum)
_enter(
    "discrete-laplace",
    Trust.LOCAL,
    _twin(_pure(Laplace.of, **_laplace, dimension=_AT_ONCE)),
    _draw_exact_many,
)
_enter("one-bit", Trust.LOCAL, _bit, _draw_sum)
_enter("exact-one-bit", Trust.LOCAL, _twin(_bit), _draw_exact)
_enter("privunit", Trust.LOCAL, _pure(PrivUnitG.of, **_ball), _ball_sum)
_enter("shortlist", Trust.LOCAL, _shortlist, _ball_sum)
_enter(
    "exact-shortlist", Trust.LOCAL, _twin(_shortlist), partial(_draw_exact, size=_SIZE), runs=20_000
)
_enter("compass", Trust.LOCAL, _compass, _draw_sum)
_enter("exact-compass", Trust.LOCAL, _twin(_compass), _draw_exact, runs=20_000)
