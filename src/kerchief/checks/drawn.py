"""The noise that a simulation draws is the one that was printed, at what was charged for it."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from kerchief.checks.case import Case, asks
from kerchief.checks.engines import begun, phase_after, phase_scene, round_scene
from kerchief.checks.errors import expect, law
from kerchief.checks.learning import bare, silenced
from kerchief.checks.statistics import (
    ERROR,
    fits_chances,
    fits_deviation,
    fits_scale,
    laplacity,
    normal_bound,
    normality,
)
from kerchief.checks.words import pure_epsilon
from kerchief.core.contracts import BoundedLoss, Clock, Outlook, Start, Tree
from kerchief.core.phases import ANSWERS
from kerchief.core.struct import static, struct
from kerchief.mechanisms.continual import ContinualNoise
from kerchief.mechanisms.gaussian import Gaussian
from kerchief.mechanisms.laplace import Laplace
from kerchief.mechanisms.one_bit import OneBit
from kerchief.mechanisms.randomized_bits import Response
from kerchief.mechanisms.shortlist import Shortlist
from kerchief.privatizers import At, Every, OnDemand
from kerchief.privatizers.schedule import Schedule
from kerchief.roles.arrange import Arranged
from kerchief.simulation import loop
from kerchief.simulation.machine import compiled
from kerchief.simulation.phases import phases_of

__all__ = ["DRAWN_LAWS", "noise_drawn_is_the_word_printed"]

Floats = NDArray[np.float64]

_NORMAL = (Gaussian, ContinualNoise)
# Copies of a run: single bits tell little each.
_COPIES, _MANY = 2048, 2**14
# What is held against the draws beside the truth: a third too little noise, and too much.
_FACTORS = (1.0, 2 / 3, 3 / 2)
# How much of what a shortlist states, the most in any direction, there is on average at least.
_SHORTLIST = 0.85


@law(when=asks)
def noise_drawn_is_the_word_printed(case: Case) -> None:
    """What a simulation adds to its first releases has the law of its word, at what was charged.

    The engine plays twice, with the noise and without, until the first release: all that differs is
    the noise. Normal noise: its deviation (chi-square) and shape (Kolmogorov and Smirnov). Laplace
    noise: its scale and shape. One bit: its two reports and their chances. All others: their mean
    squares. Errors of 1e-6 each; a third too little, or too much, is rejected.
    """
    # At a large epsilon a shortlist has far less noise than it states, which is the most it may.
    made = case.arranged(4.0 if case.feedback == "totals" else None)
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
    if isinstance(noise, OneBit | Shortlist) and privatizer.query.size == 1:
        # The deviation of such a report is another one for each number: the audits look at it.
        return
    if isinstance(noise, Laplace) and draws.single:
        verdict = [fits_scale(drawn, f / math.sqrt(2)) for f in _FACTORS]
        chance = laplacity(drawn, 1 / math.sqrt(2))
    elif isinstance(noise, _NORMAL):
        verdict = [fits_deviation(drawn, factor) for factor in _FACTORS]
        chance = normality(drawn, 1.0)
    else:
        # A shortlist states the most in any direction, randomized bits the most for any statistic.
        least = _SHORTLIST if isinstance(noise, Shortlist | Response) else 1.0
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
    epsilon: float = pure_epsilon(noise.event())
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
        (_, total, stated), (_, exact, _) = (_numbers(end.memory[name]) for end in ends)
        if (np.asarray(ends[0].used[name]) > 0).all():
            single = isinstance(sums[name].schedule, Every)
            found[name] = _Draws(noise=total - exact, total=exact, stated=stated, single=single)
    return found


def _numbers(parts: tuple[Any, Any, Any]) -> tuple[Any, Floats, Floats]:
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


DRAWN_LAWS = (noise_drawn_is_the_word_printed,)
