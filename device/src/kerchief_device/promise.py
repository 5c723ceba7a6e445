"""A device's check that the noise of its task keeps the promised privacy guarantee.

Where the device adds the noise (local trust), or its share of it (shuffle trust), the epsilon of
that noise is recomputed here from the task's numbers alone, with sensitivities recomputed from the
program. Bits in a shuffled sum need the library's accountant, and a program that is not made light
has sensitivities that only the library knows: for these a device relies on the name of its task,
which it must have from someone who checked it. Under the other trusts the device adds no noise.

Theorems: `binomial.md`, `discrete_slack.md`, `laplace.md`, `shortlist.md`, `compass.md`,
`one_bit.md`, `queries.md`, `residual_moments.md` of the library. That a cohort's honest part tosses
enough coins is checked by `Task`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from kerchief_device.disjoint_models import own_sensitivity, pool_size
from kerchief_device.record import apart, most_surprising
from kerchief_device.samplers import MAX_SCALE, UNITS
from kerchief_protocol.errors import InvalidValueError
from kerchief_protocol.noise import (
    KEEP_UNITS,
    Bits,
    Coins,
    Compass,
    Noise,
    OneBit,
    Rounded,
    Shortlist,
    Statistic,
)
from kerchief_protocol.programs import Answering, DisjointModels, Library, Optimist, Phased, Program
from kerchief_protocol.task import Task

_GUARD = 2.0**-40
_MAX_BITS = 512
_MAX_CANDIDATES, _MAX_DIM = 2**16, 2**12
# What one device may be asked to toss: for each number of a report, and how many numbers.
_MAX_COINS, _MAX_NUMBERS = 2**30, 2**24
# Windows of the theorems, in scales: what lies beyond is charged as probability.
_COINS_WINDOW, _GAUSSIAN_WINDOW = 10, 14
_BEYOND = math.erfc(_GAUSSIAN_WINDOW / math.sqrt(2)) / 2
# From so many scales of sensitivity on, the second form of `discrete_slack.md` is the better one.
_FAR = 4.0
_MAX_EPSILON, _MAX_EXPONENT = 2000.0, 700.0
# A bound and an offset are added up in a task, and so are rounded.
_NEAR = 1e-6
# Beyond, the normal tail is bounded from below by its series.
_ASYMPTOTIC = 25.0


@dataclass(frozen=True, kw_only=True)
class CheckedGuarantee:
    """Privacy cost that a device computed for its task.

    Attributes:
        recomputed: whether it recomputed epsilon; otherwise it relies on the name of the task.
        epsilon: what the noise keeps at the promised delta, or what was promised; infinite where
            nobody is promised anything.
        delta: of one report or cohort; 0 where the noise is pure.
    """

    recomputed: bool
    epsilon: float
    delta: float


@dataclass(frozen=True, kw_only=True)
class _Cost:
    """Cost of noise: pure epsilon, and a Gaussian's precision with slack for coins."""

    pure: float = 0.0
    precision: float = 0.0
    stretch: float = 0.0
    shift: float = 0.0
    tail: float = 0.0
    outside: float = 0.0


def check(task: Task) -> CheckedGuarantee:
    """Recompute the privacy cost of a task's noise.

    Raises:
        InvalidValueError: the task promises more, adds no noise where it must, or asks for more
            than a device can do.
    """
    for noise in task.noise:
        _check_work(noise)
        if isinstance(noise, Compass):
            _check_compass(noise, task.program)
        if task.trust in ("local", "shuffle") and isinstance(noise, Statistic):
            raise InvalidValueError(
                f"under {task.trust} trust a report without noise would leave the device; use "
                "another noise, or trust a curator and say so"
            )
        if task.trust == "local" and isinstance(noise, Coins | Bits):
            raise InvalidValueError(
                f"{noise.kind} hide a report in the sum of a cohort, and under local trust others "
                "see it alone; use another noise, or trust a mixer and say so"
            )
    promise = task.promise
    if task.trust not in ("local", "shuffle") or any(not _can_price(task, n) for n in task.noise):
        promised = math.inf if task.trust == "none" else promise.epsilon
        return CheckedGuarantee(recomputed=False, epsilon=promised, delta=promise.delta)
    try:
        costs = [_cost(noise, task.program) for noise in task.noise]
        achieved = _epsilon(costs, promise.delta)
    except (ArithmeticError, ValueError):
        # Nothing is kept by noise for numbers that no float holds.
        costs, achieved = [], math.inf
    if not achieved <= promise.epsilon * (1 + 1e-9):
        raise InvalidValueError(
            f"the task promises epsilon {promise.epsilon:g} at delta {promise.delta:g}, but its "
            f"noise keeps {achieved:.6g} only; do not take part in it"
        )
    delta = promise.delta if any(cost.precision for cost in costs) else 0.0
    return CheckedGuarantee(recomputed=True, epsilon=achieved, delta=delta)


def sensitivity(program: Program, stretch: float = 1.0) -> float:
    """Compute how far apart two visits' statistics can be in the Euclidean norm.

    Args:
        program: what the device does.
        stretch: how often the vector counts beside the matrix.

    >>> sensitivity(Answering(low=0.0, high=2.0, questions=1, answer="loss"))
    2.0
    """
    if isinstance(program, Answering):
        return program.high - program.low
    if isinstance(program, Phased):
        return 2.0  # the diameter of the unit ball
    if isinstance(program, DisjointModels):
        return own_sensitivity(program)
    assert isinstance(program, Optimist)
    if apart(program):
        return _surprise_sensitivity(program)
    low, high = program.response_low - program.offset, program.response_high - program.offset
    scale = program.balance * program.norm
    reward = stretch * max(abs(low), abs(high)) / scale
    unit = (2 + reward**2) / math.sqrt(2) if reward**2 <= 2 else 2 * reward
    if program.weighted:
        unit = max(unit, math.sqrt(1 + 4 * reward**2))
    return program.norm * scale * unit


def _surprise_sensitivity(program: Optimist) -> float:
    """Bound the distance of two surprises: direction, response along it, and weight."""
    matrix, response = (length**2 for length in _surprise_lengths(program))
    cosine = min(1.0, response / (2 * matrix)) if program.dim > 1 else 1.0
    square = 2 * matrix * (1 - cosine**2) + 2 * response * (1 + cosine) + matrix / program.dim
    return math.sqrt(square)


def _surprise_lengths(program: Optimist) -> tuple[float, float]:
    """Return the length of a surprise's matrix without its trace, and of its vector."""
    square = program.balance * program.norm * program.norm
    return square, most_surprising(program) * program.norm


def taxicab(program: Program) -> float:
    """Bound how far apart two visits' statistics can be in the 1-norm."""
    if isinstance(program, DisjointModels):
        # Of two arms' blocks, and of the pool.
        return math.sqrt(4 * program.dim + pool_size(program)) * sensitivity(program)
    if not isinstance(program, Optimist):
        size = program.size if isinstance(program, Phased) else 1
        return math.sqrt(size) * sensitivity(program)
    if apart(program):
        return math.sqrt(program.dim * (program.dim + 3) // 2) * sensitivity(program)
    size = program.dim * (program.dim + 1) // 2
    return min(
        math.sqrt(size + program.dim / stretch**2) * sensitivity(program, stretch)
        for stretch in (2 ** (power / 8) for power in range(-32, 33))
    )


def _can_price(task: Task, noise: Noise) -> bool:
    """Whether the device can price a noise by itself."""
    if isinstance(noise, Rounded | Coins):
        return isinstance(task.program, Optimist | DisjointModels | Answering | Phased)
    return not isinstance(noise, Bits)


def _cost(noise: Noise, program: Program) -> _Cost:
    match noise:
        case Coins():
            return _coins(noise, sensitivity(program))
        case Rounded(law="gaussian"):
            return _gaussian(noise, sensitivity(program))
        case Rounded():
            steps = math.ldexp(taxicab(program), noise.grid_bits) + noise.size
            return _Cost(pure=steps * (1 + _GUARD) / noise.scale * (1 + _GUARD / 16))
        case Shortlist() | Compass():
            odds = noise.units / (UNITS - noise.units) * (noise.candidates / noise.listed - 1)
            return _Cost(pure=abs(math.log(odds)) + _GUARD / 16)
        case OneBit():
            return _Cost(pure=2 * math.atanh(2 * noise.bias / UNITS) * (1 + _GUARD / 16))
    raise AssertionError(f"{noise.kind} has no price here")


def _coins(noise: Coins, distance: float) -> _Cost:
    """Bound the cost of coins by a Gaussian's; infinite where there are too few coins."""
    n, half = noise.size, 2 * noise.scale**2
    steps = (math.ldexp(distance, noise.step_bits) + math.sqrt(n)) * (1 + _GUARD)
    window = _COINS_WINDOW * noise.scale + math.floor(steps)
    if window >= half:
        return _Cost(precision=math.inf)
    place = (2 * window - 1) / (2 * half + 1)
    up = (2 * window - 1) / (half * (2 * half + 1))
    steepest = max(up, 2 / 3 * place**3 / (1 - place**2))
    discrete = _discrete(noise.scale, n, max(_GAUSSIAN_WINDOW, window / noise.scale))
    return _Cost(
        precision=(steps / noise.scale) ** 2,
        stretch=n * window**2 / (half * (2 * half + 1)) + discrete.stretch,
        shift=math.sqrt(n) * steps * steepest + discrete.shift,
        outside=n * 4.0 * math.exp(-(_COINS_WINDOW**2) / 2),
    )


def _gaussian(noise: Rounded, distance: float) -> _Cost:
    steps = math.ldexp(distance * (1 + _GUARD), noise.grid_bits) + math.sqrt(noise.size)
    reach, beyond = steps * (1 + 2.0**-50) / noise.scale, 2.0 * noise.size * _BEYOND
    far = reach >= _FAR
    window = _GAUSSIAN_WINDOW + reach if far else _GAUSSIAN_WINDOW
    discrete = _discrete(noise.scale, noise.size, window)
    return _Cost(
        precision=reach**2,
        stretch=discrete.stretch,
        shift=discrete.shift,
        tail=0.0 if far else beyond,
        outside=math.exp(1 / (24.0 * noise.scale**2)) * beyond if far else 0.0,
    )


def _discrete(scale: int, n: int, window: float) -> _Cost:
    """Compute the cost of a discrete Gaussian beyond that of a continuous one."""
    unit = n / (24.0 * scale**2)
    normalizer = 3.0 * math.exp(-2.0 * (math.pi * scale) ** 2)
    return _Cost(stretch=unit, shift=(window**2 + 1) * unit + n * normalizer)


def _epsilon(costs: list[_Cost], delta: float) -> float:
    """Find by bisection the least epsilon of all costs together at a delta."""
    pure = math.fsum(cost.pure for cost in costs)
    if not any(cost.precision for cost in costs):
        return pure
    # The bound falls and, far out, rises again with its tail: so it is searched from below.
    low, high = 0.0, 2.0**-30
    while not _delta(costs, high) <= delta:
        low, high = high, 1.25 * high
        if high > _MAX_EPSILON:
            return math.inf
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if _delta(costs, middle) <= delta else (middle, high)
    return pure + high


def _delta(costs: list[_Cost], epsilon: float) -> float:
    """Bound delta for the part of the costs that is not pure, by the theorems."""
    mu = math.sqrt(math.fsum(cost.precision for cost in costs))
    if not math.isfinite(mu):
        return 1.0
    stretch = math.exp(min(math.fsum(cost.stretch for cost in costs), _MAX_EXPONENT))
    excess = epsilon - math.fsum(cost.shift for cost in costs)
    body = _phi(mu / 2 - excess / mu) - _weighted_tail(mu, excess)
    rare = math.exp(min(epsilon, _MAX_EXPONENT)) * math.fsum(cost.tail for cost in costs)
    return stretch * (body + rare) + math.fsum(cost.outside for cost in costs)


def _weighted_tail(mu: float, excess: float) -> float:
    """Compute e^excess Φ(-x), x = mu/2 + excess/mu; a lower bound if x is large."""
    x, near = mu / 2 + excess / mu, mu / 2 - excess / mu
    if x <= _ASYMPTOTIC:
        return math.exp(excess) * _phi(-x)
    density = math.exp(-(near**2) / 2) / math.sqrt(2 * math.pi)
    return density * (1 / x - 1 / x**3 + 3 / x**5 - 15 / x**7)


def _phi(score: float) -> float:
    return math.erfc(-score / math.sqrt(2)) / 2


def _check_work(noise: Noise) -> None:
    """Refuse noise with parameters that no device should accept from a stranger."""
    match noise:
        case Rounded():
            _check_integer("scale", noise.scale, 1, MAX_SCALE)
            _check_integer("grid_bits", noise.grid_bits, -_MAX_BITS, _MAX_BITS)
        case Statistic():
            _check_integer("grid_bits", noise.grid_bits, -_MAX_BITS, _MAX_BITS)
        case Coins():
            _check_integer("scale", noise.scale, 1, MAX_SCALE)
            _check_integer("step_bits", noise.step_bits, -_MAX_BITS, _MAX_BITS)
            _check_integer("coins", max(noise.coins), 0, _MAX_COINS)
            _check_integer("size", noise.size, 1, _MAX_NUMBERS)
        case Bits():
            _check_integer("bits", noise.bits * noise.size, 1, _MAX_NUMBERS)
            _check_integer("keep", min(noise.keep), 0, KEEP_UNITS - 1)
            _check_integer("keep", max(noise.keep), 0, KEEP_UNITS - 1)
            _check_positive("bound", noise.bound)
        case Shortlist():
            _check_integer("candidates", noise.candidates, 2, _MAX_CANDIDATES)
            _check_integer("listed", noise.listed, 1, noise.candidates - 1)
            _check_integer("units", noise.units, 1, UNITS - 1)
            _check_integer("grid_bits", noise.grid_bits, -_MAX_BITS, _MAX_BITS)
            _check_positive("radius", noise.radius)
            _check_positive("factor", noise.factor)
        case Compass():
            _check_integer("dim", noise.dim, 1, _MAX_DIM)
            _check_integer("candidates", noise.candidates, 2, _MAX_CANDIDATES)
            _check_integer("listed", noise.listed, 1, noise.candidates - 1)
            _check_integer("units", noise.units, 1, UNITS - 1)
            _check_integer("grid_bits", noise.grid_bits, -_MAX_BITS, _MAX_BITS)
            for name in ("square", "pull", "vector", "matrix", "weight"):
                _check_positive(name, getattr(noise, name))
            if not 0 < noise.lean < 1:
                raise InvalidValueError(
                    f"lean of the task's noise is {noise.lean:g}; a device takes 0 to 1, ends "
                    "excluded: make the task anew"
                )
        case OneBit():
            _check_integer("bias", noise.bias, 1, UNITS // 2 - 1)
            _check_positive("radius", noise.radius)


def _check_compass(noise: Compass, program: Program) -> None:
    """Refuse a compass that does not fit the program: its reports would be wrong.

    Its price is the same for every statistic. The program of a bandit that was not made light is
    not known here.
    """
    if isinstance(program, Library):
        return
    if not isinstance(program, Optimist) or not apart(program):
        raise InvalidValueError(
            "compass is for surprises that tell of directions and weights apart, and the program "
            f"{program.kind!r} of this task reports none: use another noise"
        )
    stated, required = (noise.square, noise.pull), _surprise_lengths(program)
    near = all(math.isclose(*pair, rel_tol=_NEAR) for pair in zip(stated, required, strict=True))
    if noise.dim != program.dim or not near:
        raise InvalidValueError(
            f"the compass is for {noise.dim} dimensions, a matrix of {noise.square:g} and a vector "
            f"of {noise.pull:g}; the task's program makes {program.dim}, {required[0]:g} and "
            f"{required[1]:g}: make the task anew"
        )


def _check_integer(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise InvalidValueError(
            f"{name} of the task's noise is {value}; a device takes {low} to {high}: make the "
            "task anew"
        )


def _check_positive(name: str, value: float) -> None:
    if not 1e-100 <= value <= 1e100:
        raise InvalidValueError(
            f"{name} of the task's noise is {value:g}; a device takes 1e-100 to 1e100: make the "
            "task anew"
        )
