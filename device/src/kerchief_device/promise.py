"""What a device checks itself before it adds noise: that its task promises no more than is kept.

Where the device adds the noise (local trust), or its share of it (shuffle trust), the epsilon of
that noise is recomputed here from the task's numbers alone, with sensitivities recomputed from the
program. Bits in a shuffled sum need the library's accountant, and a program that is not made light
has sensitivities that only the library knows: for these a device relies on the name of its task,
which it must have from someone who checked it. Under the other trusts the device adds no noise.

Theorems: `binomial.md`, `discrete_slack.md`, `laplace.md`, `shortlist.md`, `compass.md`,
`one_bit.md`, `queries.md`, `surprises.md` of the library. That a cohort's honest part tosses enough
coins is checked by `Task`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from kerchief_device.own import own_sensitivity, pool_size
from kerchief_device.record import apart, most_surprising
from kerchief_device.samplers import MAX_SCALE, UNITS
from kerchief_wire.errors import InvalidValue
from kerchief_wire.noise import (
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
from kerchief_wire.task import (
    Answering,
    Library,
    Optimist,
    OwnModels,
    Phased,
    Program,
    Task,
)

_GUARD = 2.0**-40
_MOST_BITS = 512
_MOST_CANDIDATES, _MOST_DIM = 2**16, 2**12
# What one device may be asked to toss: for each number of a report, and how many numbers.
_MOST_COINS, _MOST_NUMBERS = 2**30, 2**24
# Windows of the theorems, in scales: what lies beyond is charged as probability.
_COINS_WINDOW, _GAUSSIAN_WINDOW = 10, 14
_BEYOND = math.erfc(_GAUSSIAN_WINDOW / math.sqrt(2)) / 2
# From so many scales of sensitivity on, the second form of `discrete_slack.md` is the better one.
_FAR = 4.0
_MOST_EPSILON, _MOST_EXPONENT = 2000.0, 700.0
# A bound and an offset are added up in a task, and so are rounded.
_NEAR = 1e-6
# Beyond, the normal tail is bounded from below by its series.
_ASYMPTOTIC = 25.0


@dataclass(frozen=True, kw_only=True)
class Checked:
    """What a device knows of the promise of its task.

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
    """What noise costs: pure epsilon, and a Gaussian's precision with the slack of its coins."""

    pure: float = 0.0
    precision: float = 0.0
    stretch: float = 0.0
    shift: float = 0.0
    tail: float = 0.0
    outside: float = 0.0


def check(task: Task) -> Checked:
    """Recompute what a task's noise keeps.

    Raises:
        InvalidValue: the task promises more, adds no noise where it must, or asks for more than a
            device can do.
    """
    for noise in task.noise:
        _check_work(noise)
        if isinstance(noise, Compass):
            _check_compass(noise, task.program)
        if task.trust in ("local", "shuffle") and isinstance(noise, Statistic):
            raise InvalidValue(
                f"under {task.trust} trust a report without noise would leave the device; use "
                "another noise, or trust a curator and say so"
            )
        if task.trust == "local" and isinstance(noise, Coins | Bits):
            raise InvalidValue(
                f"{noise.kind} hide a report in the sum of a cohort, and under local trust others "
                "see it alone; use another noise, or trust a mixer and say so"
            )
    promise = task.promise
    if task.trust not in ("local", "shuffle") or any(not _known(task, n) for n in task.noise):
        said = math.inf if task.trust == "none" else promise.epsilon
        return Checked(recomputed=False, epsilon=said, delta=promise.delta)
    try:
        costs = [_cost(noise, task.program) for noise in task.noise]
        kept = _epsilon(costs, promise.delta)
    except (ArithmeticError, ValueError):
        # Nothing is kept by noise for numbers that no float holds.
        costs, kept = [], math.inf
    if not kept <= promise.epsilon * (1 + 1e-9):
        raise InvalidValue(
            f"the task promises epsilon {promise.epsilon:g} at delta {promise.delta:g}, but its "
            f"noise keeps {kept:.6g} only; do not take part in it"
        )
    delta = promise.delta if any(cost.precision for cost in costs) else 0.0
    return Checked(recomputed=True, epsilon=kept, delta=delta)


def sensitivity(program: Program, stretch: float = 1.0) -> float:
    """How far apart two visits' statistics can be, exactly, in the Euclidean norm.

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
    if isinstance(program, OwnModels):
        return own_sensitivity(program)
    assert isinstance(program, Optimist)
    if apart(program):
        return _surprises(program)
    low, high = program.response_low - program.offset, program.response_high - program.offset
    scale = program.balance * program.norm
    reward = stretch * max(abs(low), abs(high)) / scale
    unit = (2 + reward**2) / math.sqrt(2) if reward**2 <= 2 else 2 * reward
    if program.weighted:
        unit = max(unit, math.sqrt(1 + 4 * reward**2))
    return program.norm * scale * unit


def _surprises(program: Optimist) -> float:
    """Of directions, a response along them, and a weight."""
    matrix, response = (one**2 for one in _reach(program))
    cosine = min(1.0, response / (2 * matrix)) if program.dim > 1 else 1.0
    square = 2 * matrix * (1 - cosine**2) + 2 * response * (1 + cosine) + matrix / program.dim
    return math.sqrt(square)


def _reach(program: Optimist) -> tuple[float, float]:
    """How long the matrix of a surprise is, but for its trace, and how long its vector may be."""
    square = program.balance * program.norm * program.norm
    return square, most_surprising(program) * program.norm


def taxicab(program: Program) -> float:
    """A bound on the same in the sum of absolute values."""
    if isinstance(program, OwnModels):
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


def _known(task: Task, noise: Noise) -> bool:
    """Whether the device can price a noise by itself."""
    if isinstance(noise, Rounded | Coins):
        return isinstance(task.program, Optimist | OwnModels | Answering | Phased)
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
    """Coins beside a Gaussian of the same deviation; infinite where they are too few to compare."""
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
    """What a discrete Gaussian costs beyond the continuous one that it stands for."""
    unit = n / (24.0 * scale**2)
    normalizer = 3.0 * math.exp(-2.0 * (math.pi * scale) ** 2)
    return _Cost(stretch=unit, shift=(window**2 + 1) * unit + n * normalizer)


def _epsilon(costs: list[_Cost], delta: float) -> float:
    """The least epsilon that all costs together keep at a delta, by bisection."""
    pure = math.fsum(cost.pure for cost in costs)
    if not any(cost.precision for cost in costs):
        return pure
    # The bound falls and, far out, rises again with its tail: so it is searched from below.
    low, high = 0.0, 2.0**-30
    while not _delta(costs, high) <= delta:
        low, high = high, 1.25 * high
        if high > _MOST_EPSILON:
            return math.inf
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if _delta(costs, middle) <= delta else (middle, high)
    return pure + high


def _delta(costs: list[_Cost], epsilon: float) -> float:
    """The theorems' bound on delta, for the part of the costs that is not pure."""
    spread = math.sqrt(math.fsum(cost.precision for cost in costs))
    if not math.isfinite(spread):
        return 1.0
    stretch = math.exp(min(math.fsum(cost.stretch for cost in costs), _MOST_EXPONENT))
    rest = epsilon - math.fsum(cost.shift for cost in costs)
    body = _phi(spread / 2 - rest / spread) - _other(spread, rest)
    rare = math.exp(min(epsilon, _MOST_EXPONENT)) * math.fsum(cost.tail for cost in costs)
    return stretch * (body + rare) + math.fsum(cost.outside for cost in costs)


def _other(spread: float, rest: float) -> float:
    """e^rest Φ(-x) with x = spread/2 + rest/spread, from below where e^rest may be too large."""
    x, near = spread / 2 + rest / spread, spread / 2 - rest / spread
    if x <= _ASYMPTOTIC:
        return math.exp(rest) * _phi(-x)
    density = math.exp(-(near**2) / 2) / math.sqrt(2 * math.pi)
    return density * (1 / x - 1 / x**3 + 3 / x**5 - 15 / x**7)


def _phi(score: float) -> float:
    return math.erfc(-score / math.sqrt(2)) / 2


def _check_work(noise: Noise) -> None:
    """Refuse what no device should be asked to do: others wrote the task."""
    match noise:
        case Rounded():
            _whole("scale", noise.scale, 1, MAX_SCALE)
            _whole("grid_bits", noise.grid_bits, -_MOST_BITS, _MOST_BITS)
        case Statistic():
            _whole("grid_bits", noise.grid_bits, -_MOST_BITS, _MOST_BITS)
        case Coins():
            _whole("scale", noise.scale, 1, MAX_SCALE)
            _whole("step_bits", noise.step_bits, -_MOST_BITS, _MOST_BITS)
            _whole("coins", max(noise.coins), 0, _MOST_COINS)
            _whole("size", noise.size, 1, _MOST_NUMBERS)
        case Bits():
            _whole("bits", noise.bits * noise.size, 1, _MOST_NUMBERS)
            _whole("keep", min(noise.keep), 0, KEEP_UNITS - 1)
            _whole("keep", max(noise.keep), 0, KEEP_UNITS - 1)
            _positive("bound", noise.bound)
        case Shortlist():
            _whole("candidates", noise.candidates, 2, _MOST_CANDIDATES)
            _whole("listed", noise.listed, 1, noise.candidates - 1)
            _whole("units", noise.units, 1, UNITS - 1)
            _whole("grid_bits", noise.grid_bits, -_MOST_BITS, _MOST_BITS)
            _positive("radius", noise.radius)
            _positive("factor", noise.factor)
        case Compass():
            _whole("dim", noise.dim, 1, _MOST_DIM)
            _whole("candidates", noise.candidates, 2, _MOST_CANDIDATES)
            _whole("listed", noise.listed, 1, noise.candidates - 1)
            _whole("units", noise.units, 1, UNITS - 1)
            _whole("grid_bits", noise.grid_bits, -_MOST_BITS, _MOST_BITS)
            for name in ("square", "pull", "vector", "matrix", "weight"):
                _positive(name, getattr(noise, name))
            if not 0 < noise.lean < 1:
                raise InvalidValue(
                    f"lean of the task's noise is {noise.lean:g}; a device takes 0 to 1, ends "
                    "excluded: make the task anew"
                )
        case OneBit():
            _whole("bias", noise.bias, 1, UNITS // 2 - 1)
            _positive("radius", noise.radius)


def _check_compass(noise: Compass, program: Program) -> None:
    """Refuse one that is not made for the program's surprises: what it reports would be wrong.

    Its price is the same for every statistic. The program of a bandit that was not made light is
    not known here.
    """
    if isinstance(program, Library):
        return
    if not isinstance(program, Optimist) or not apart(program):
        raise InvalidValue(
            "compass is for surprises that tell of directions and weights apart, and the program "
            f"{program.kind!r} of this task reports none: use another noise"
        )
    given, wanted = (noise.square, noise.pull), _reach(program)
    near = all(math.isclose(*pair, rel_tol=_NEAR) for pair in zip(given, wanted, strict=True))
    if noise.dim != program.dim or not near:
        raise InvalidValue(
            f"the compass is for {noise.dim} dimensions, a matrix of {noise.square:g} and a vector "
            f"of {noise.pull:g}; the task's program makes {program.dim}, {wanted[0]:g} and "
            f"{wanted[1]:g}: make the task anew"
        )


def _whole(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise InvalidValue(
            f"{name} of the task's noise is {value}; a device takes {low} to {high}: make the "
            "task anew"
        )


def _positive(name: str, value: float) -> None:
    if not 1e-100 <= value <= 1e100:
        raise InvalidValue(
            f"{name} of the task's noise is {value:g}; a device takes 1e-100 to 1e100: make the "
            "task anew"
        )
