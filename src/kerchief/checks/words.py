"""The noise that is drawn is the one that was printed: its class, its deviation, its law.

A run says by a word of `MECHANISMS_OF` which noise protects it. Here is what each word means,
written a second time: what is built for it must be that, and so must what a simulation draws.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from kerchief.checks.case import BEST, Case, asks
from kerchief.checks.engines import begun, phase_after, phase_scene, round_scene
from kerchief.checks.errors import expect, law
from kerchief.checks.leakage import charged_multiplier
from kerchief.checks.learning import bare, silenced
from kerchief.checks.privacy_laws import users_of
from kerchief.checks.statistics import (
    ERROR,
    fits_chances,
    fits_deviation,
    fits_scale,
    laplacity,
    normal_bound,
    normality,
)
from kerchief.core.contracts import BoundedLoss, Clock, Outlook, Start, Tree
from kerchief.core.errors import InvalidValue
from kerchief.core.phases import ANSWERS
from kerchief.core.struct import static, struct
from kerchief.mechanisms.binomial import Binomial
from kerchief.mechanisms.blt import BLT
from kerchief.mechanisms.doubling import Doubling
from kerchief.mechanisms.gaussian import Gaussian
from kerchief.mechanisms.laplace import Laplace
from kerchief.mechanisms.one_bit import OneBit
from kerchief.mechanisms.privunit import PrivUnitG
from kerchief.mechanisms.randomized_bits import Response
from kerchief.mechanisms.shortlist import Shortlist
from kerchief.mechanisms.toeplitz import SqrtToeplitz
from kerchief.mechanisms.tree import Tree as BinaryTree
from kerchief.privacy.unit_vectors import unit_noise
from kerchief.privatizers import MECHANISMS_OF, At, Every, OnDemand, Privatizer
from kerchief.privatizers.billing import pay
from kerchief.privatizers.schedule import Schedule
from kerchief.roles.arrange import Arranged
from kerchief.simulation import loop
from kerchief.simulation.machine import compiled
from kerchief.simulation.phases import phases_of

__all__ = ["WORD_LAWS"]

Floats = NDArray[np.float64]

WORDS: dict[str, dict[str, tuple[type, ...]]] = {
    "none": {BEST: ()},
    "local": {
        BEST: (Gaussian, Laplace, PrivUnitG, OneBit),
        "gaussian": (Gaussian,),
        "laplace": (Laplace,),
        "privunit": (PrivUnitG,),
        "shortlist": (Shortlist,),
        "one-bit": (OneBit,),
    },
    "shuffle": {
        BEST: (Binomial,),
        "theorem": (Binomial,),
        "bits": (Response,),
        "byte": (Response,),
        "bit": (Response,),
    },
    "joint": {
        BEST: (BLT, SqrtToeplitz),
        "blt": (BLT,),
        "tree": (BinaryTree,),
        "toeplitz": (SqrtToeplitz,),
        "doubling": (Doubling,),
    },
    "central": {BEST: (Gaussian,)},
}
"""What a word means for sums. Every look at the records of a loss is a Gaussian, or coins."""

_BITS = {"bits": 64, "byte": 8, "bit": 1}
# The noise of bits is searched for, for every size of a batch: here there is one batch.
_SHORT = 60
_NORMAL = (Gaussian, BLT, SqrtToeplitz, BinaryTree, Doubling)
# Copies of a run: single bits tell little each.
_COPIES, _MANY = 2048, 2**14
# What is held against the draws beside the truth: a third too little noise, and too much.
_FACTORS = (1.0, 2 / 3, 3 / 2)
# How much of what a shortlist states, the most in any direction, there is on average at least.
_SHORTLIST = 0.85


@law(when=asks, cheap=True)
def noise_is_of_the_word_printed(case: Case) -> None:
    """For every word of the trust, what is built has that word's noise, or the word is refused.

    Its class is the word's, and its deviation what its event says that was charged; the bill fits
    the promise. Nothing is ever put in a word's place: it is refused with InvalidValue.
    """
    words = MECHANISMS_OF[case.promise().trust]
    expect(set(words) == set(WORDS[case.trust]), seen=list(words), expected=list(WORDS[case.trust]))
    for word in words:
        other = dataclasses.replace(case, mechanism=word)
        try:
            made = other.arranged(horizon=_SHORT if word in _BITS else None)
        except InvalidValue:
            expect(word != case.mechanism, seen=f"{word} is refused", expected="its own noise")
            continue
        ledger = case.make_ledger(other.promise())
        pay(made.privatizers, ledger, horizon=_SHORT if word in _BITS else users_of(other, made))
        for name, privatizer in made.privatizers.items():
            _expect_word(other, name, privatizer)


def _expect_word(case: Case, name: str, privatizer: Privatizer) -> None:
    kinds, word = WORDS[case.trust][case.mechanism], case.mechanism
    if isinstance(privatizer.query, BoundedLoss) and kinds:
        kinds = (Gaussian, Binomial)
    # Of single numbers one bit is the best.
    if case.feedback == "reports" and word == BEST and kinds:
        kinds = (OneBit,)
    seen = f"{name}: {[type(noise).__name__ for noise in privatizer.noises]}"
    wanted = f"{word}: {' or '.join(kind.__name__ for kind in kinds) or 'none'}"
    right = all(type(noise) in kinds for noise in privatizer.noises)
    expect(right and bool(privatizer.noises) == bool(kinds), seen=seen, expected=wanted)
    for noise in privatizer.noises:
        made: Any = noise
        if word in _BITS:
            expect(made.bits == _BITS[word], seen=f"{made.bits} bits", expected=_BITS[word])
        named = _named_deviation(made, privatizer)
        close = named is None or math.isclose(float(made.std), named, rel_tol=1e-6)
        seen = f"{name}: a deviation of {made.std}"
        expect(close, seen=seen, expected=f"{named}, as {word} charges")


def _named_deviation(noise: Any, privatizer: Privatizer) -> float | None:
    """The deviation of a word's noise that costs what was charged; None where no formula has it."""
    if isinstance(noise, Response | Shortlist):
        return None
    query: Any = privatizer.query
    event = noise.event()
    match noise:
        case Gaussian() | BLT() | SqrtToeplitz() | BinaryTree() | Doubling():
            reach = query.sensitivity * getattr(noise, "column_norm", 1.0)
            return charged_multiplier(event) * float(reach)
        case Laplace():
            euclidean = math.sqrt(query.size) * query.sensitivity
            return math.sqrt(2) * float(getattr(query, "taxicab", euclidean)) / _pure(event)
        case OneBit():
            return float(query.radius) / math.tanh(event.epsilon / 2)
        case PrivUnitG():
            return float(query.radius * unit_noise(event.epsilon))
        case Binomial():
            return float(event.scale * noise.step)
    return None


def _pure(event: Any) -> float:
    """The epsilon of pure noise."""
    epsilon = getattr(event, "epsilon", None)
    return float(1 / event.noise_multiplier if epsilon is None else epsilon)


@law(when=asks)
def noise_drawn_is_the_word_printed(case: Case) -> None:
    """What a simulation adds to its first releases has the law of its word, at what was charged.

    The engine plays twice, with the noise and without, until the first release: all that differs is
    the noise. Normal noise: its deviation (chi-square) and shape (Kolmogorov and Smirnov). Laplace
    noise: its scale and shape. One bit: its two reports and their chances. All others: their mean
    squares. Errors of 1e-6 each; a third too little, or too much, is rejected.
    """
    made = case.arranged()
    drawn = _drawn_by_phases if case.feedback == "phases" else _drawn_by_rounds
    for name, draws in drawn(case, made).items():
        privatizer: Any = made.privatizers[name]
        if not privatizer.noises:
            largest = float(np.abs(draws.noise).max())
            expect(
                largest == 0, seen=f"noise of {largest}", expected="none, as nothing is promised"
            )
            continue
        _expect_law(privatizer, privatizer.noises[0], draws)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Draws:
    """What was added to a release: one row per copy, with the total below it.

    Attributes:
        noise: what was added.
        total: what it was added to.
        stated: the deviation that the release states.
        single: whether the noise of one draw alone, not of many reports.
    """

    noise: Floats
    total: Floats
    stated: Floats
    single: bool


def _expect_law(privatizer: Any, noise: Any, draws: _Draws) -> None:
    drawn, stated = draws.noise / draws.stated[:, None], float(draws.stated[0])
    if isinstance(noise, OneBit) and draws.single:
        _expect_bit(noise, draws)
        return
    if isinstance(noise, Laplace) and draws.single:
        verdict = [fits_scale(drawn, f / math.sqrt(2)) for f in _FACTORS]
        chance = laplacity(drawn, 1 / math.sqrt(2))
    elif isinstance(noise, _NORMAL):
        verdict = [fits_deviation(drawn, factor) for factor in _FACTORS]
        chance = normality(drawn, 1.0)
    else:
        # What a shortlist states is the most in any direction.
        least = _SHORTLIST if isinstance(noise, Shortlist) else 1.0
        verdict, chance = [_fits_squares(drawn, factor, least) for factor in _FACTORS], 1.0
    seen = f"{drawn.std():.4g} of the stated {stated:.4g}; accepted at 1, 2/3, 3/2: {verdict}"
    expect(verdict == [True, False, False], seen=seen, expected=f"{type(noise).__name__} at 1")
    seen = f"a p-value of {chance:.2g}"
    expect(chance >= ERROR, seen=seen, expected=f"the shape of {type(noise).__name__}")


def _fits_squares(drawn: Floats, factor: float, least: float = 1.0) -> bool:
    """Whether the mean square may be this one's, up to a tenth: rounding states the most it adds.

    >>> drawn = np.random.default_rng(0).normal(size=(4096, 2))
    >>> _fits_squares(drawn, 1.0), _fits_squares(drawn, 2 / 3)
    (True, False)
    """
    squares = (drawn**2).mean(axis=1)
    room = normal_bound() * squares.std() / math.sqrt(len(squares)) + 0.1 * factor**2
    return bool((least * factor) ** 2 - room <= squares.mean() <= factor**2 + room)


def _expect_bit(noise: OneBit, draws: _Draws) -> None:
    """Two reports, whose chances are those of the epsilon that is charged for."""
    reports = (draws.noise + draws.total)[:, 0]
    high = reports > noise.center
    sides = np.where(high, *noise.reports[::-1])
    expect(np.allclose(reports, sides), seen=f"{reports[:4]}", expected=f"one of {noise.reports}")
    place = np.clip((draws.total[:, 0] - noise.center) / noise.radius, -1, 1)
    epsilon: float = _pure(noise.event())
    chances = [0.5 + 0.5 * place * math.tanh(epsilon * f / 2) for f in (1.0, 3 / 2, 2 / 3)]
    verdict = [fits_chances(high, chance) for chance in chances]
    # Numbers near the center say little about epsilon.
    telling = [True, False, False] if float(np.abs(place).mean()) > 0.9 else [True, *verdict[1:]]
    expect(verdict == telling, seen=f"chances {high.mean():.4g}: {verdict}", expected=telling)


@struct
class _Telling:
    """A privatizer that remembers what it released last, with the outlook that it is given."""

    privatizer: Any
    outlook: Outlook = static()

    @property
    def query(self) -> Any:
        return self.privatizer.query

    @property
    def schedule(self) -> Schedule:
        schedule: Schedule = self.privatizer.schedule
        return schedule

    def open(self) -> tuple[Tree, Tree]:
        memory, tally = self.privatizer.open()
        zero = jnp.float64(0)
        return (memory, jnp.zeros(self.query.size, jnp.float64), zero), tally

    def randomize(self, record: Tree, clock: Clock, stream: Any) -> Any:
        return self.privatizer.randomize(record, clock, stream)

    def collect(self, tally: Tree, report: Any) -> Tree:
        return self.privatizer.collect(tally, report)

    def clear(self, tally: Tree) -> Tree:
        return self.privatizer.clear(tally)

    def release(
        self, memory: Tree, tally: Tree, request: Start | None, clock: Clock, stream: Any
    ) -> tuple[Any, Tree]:
        release, now = self.privatizer.release(memory[0], tally, request, clock, stream)
        return release, (now, release.total, jnp.asarray(release.noise, jnp.float64))


def _drawn_by_rounds(case: Case, made: Arranged) -> dict[str, _Draws]:
    """What the engine adds to the first release of every sum that comes first."""
    sums = {
        name: p
        for name, p in made.privatizers.items()
        if not isinstance(p.query, BoundedLoss) and not isinstance(p.schedule, OnDemand)
    }
    if not sums:
        return {}
    length = min(_first(p.schedule) for p in sums.values())
    copies = _MANY if case.feedback == "reports" else _COPIES
    loud, quiet = {}, {}
    for name, one in made.privatizers.items():
        told = name in sums
        loud[name] = _Telling(privatizer=one, outlook=one.outlook) if told else one
        quiet[name] = _Telling(privatizer=bare(one), outlook=one.outlook) if told else one
    ends = [_after(case, made, one, length, copies) for one in (loud, quiet)]
    found = {}
    for name in sums:
        (_, total, stated), (_, exact, _) = (np_tree(end.memory[name]) for end in ends)
        if (np.asarray(ends[0].used[name]) > 0).all():
            single = isinstance(sums[name].schedule, Every)
            found[name] = _Draws(noise=total - exact, total=exact, stated=stated, single=single)
    return found


def np_tree(parts: tuple[Any, Any, Any]) -> tuple[Any, Floats, Floats]:
    """The last two parts in NumPy."""
    return parts[0], np.asarray(parts[1], np.float64), np.asarray(parts[2], np.float64)


def _first(schedule: Any) -> int:
    return int(schedule.ends[0]) if isinstance(schedule, At) else 1


def _after(case: Case, made: Arranged, privatizers: Any, length: int, copies: int) -> Any:
    scene = round_scene(case, made.policy, privatizers)
    carry = loop.begin(scene, jnp.arange(copies, dtype=jnp.uint32))
    step, _ = compiled(case.advance, scene, carry, jnp.int32(0), length=length)
    return step(scene, carry, jnp.int32(0))


def _drawn_by_phases(case: Case, made: Arranged) -> dict[str, _Draws]:
    """What the engine adds to the release of the first phase."""
    policy: Any = made.policy
    first = phases_of(policy, made.privatizers)[0]
    quiet = {name: silenced(p) for name, p in made.privatizers.items()}
    ends = []
    for privatizers in (made.privatizers, quiet):
        scene = phase_scene(case, Arranged(policy=policy, privatizers=privatizers))
        ends.append(phase_after(case, scene, begun(case, scene), first).last)
    asked = np.asarray(ends[0].count) > 0
    totals = [np.asarray(end.total, np.float64)[asked] for end in ends]
    stated = np.asarray(ends[0].noise, np.float64)[asked]
    single = not made.privatizers[ANSWERS].noisy_device
    noise = totals[0] - totals[1]
    return {ANSWERS: _Draws(noise=noise, total=totals[1], stated=stated, single=single)}


WORD_LAWS = (noise_is_of_the_word_printed, noise_drawn_is_the_word_printed)
