"""The one number that leaves a device: its law in simulation and in deployment, as charged."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from kerchief.checks.context_free_fixture import HORIZON, PlainCase, promised
from kerchief.checks.errors import expect, same
from kerchief.checks.fixture import SEED
from kerchief.checks.leakage import charged_multiplier
from kerchief.checks.statistics import (
    ERROR,
    fits_chance,
    fits_deviation,
    fits_scale,
    normal_bound,
    normality,
)
from kerchief.core.contracts import Clock
from kerchief.core.random import DEVICE, Stream
from kerchief.core.struct import struct
from kerchief.policies.context_free import LOSS
from kerchief.privacy import Event, NonPrivate, Trust
from kerchief.privatizers import CohortSums
from kerchief.simulation.context_free import channel_of

__all__ = [
    "deployed_parties_agree_with_the_simulation",
    "first_action",
    "noise_is_what_was_charged",
    "wild_losses",
]

Floats = NDArray[np.float64]

_DRAWS, _EXACT = 30_000, 1600
# What is held against the reports beside the truth: a third too little noise, and too much.
_FACTORS = (1.0, 3 / 2, 2 / 3)
_CAUGHT = [True, False, False]


def noise_is_what_was_charged(case: PlainCase) -> None:
    """At both ends of the interval and in the center, reports have the law that was charged.

    One bit: its chances, against the epsilon of the event (exact binomial tests). Normal noise: its
    deviation (chi-square) and shape (Kolmogorov-Smirnov). Laplace noise: its scale (chi-square).
    30000 reports a place, errors of 1e-6; a third too little, or too much, is rejected.
    """
    for privatizer in case.arranged()[1].values():
        event = privatizer.charges(HORIZON)[0].event
        places = _places(privatizer)
        drawn = [_simulated(privatizer, value) for value in places]
        _expect_law(case, event, privatizer, places, drawn)


def _places(privatizer: CohortSums) -> list[float]:
    """The least number, the center and the greatest."""
    center, radius = float(np.asarray(privatizer.query.center)), privatizer.query.radius
    return [center - radius, center, center + radius]


def _simulated(privatizer: CohortSums, value: float) -> Floats:
    copies = jnp.arange(_DRAWS, dtype=jnp.uint32)
    return np.asarray(_reports(privatizer, jnp.float64(value), copies), np.float64)[:, 0]


@jax.jit
def _reports(privatizer: CohortSums, value: Array, copies: Array) -> Array:
    def one(copy: Array) -> Array:
        at = Stream.of(seed=SEED, replicate=copy).at(DEVICE)
        report: Array = privatizer.randomize(value, Clock(round=jnp.int32(0), since={}), at)
        return report

    return jax.vmap(one)(copies)


def _expect_law(
    case: PlainCase,
    event: Event,
    privatizer: CohortSums,
    places: list[float],
    drawn: list[Floats],
) -> None:
    """Hold reports of each place against what was charged for them."""
    if case.trust == Trust.NONE:
        exact = event == NonPrivate() and all(
            (reports == value).all() for value, reports in zip(places, drawn, strict=True)
        )
        expect(exact, seen=f"{event}, or a report that is not the loss", expected="no protection")
        return
    laws = {"one-bit": _expect_bit, "gaussian": _expect_normal, "laplace": _expect_laplace}
    for place, value, reports in zip((-1, 0, 1), places, drawn, strict=True):
        room = normal_bound() * reports.std() / math.sqrt(reports.size) + 1e-6 * abs(reports).max()
        mean = float(reports.mean())
        expect(abs(mean - value) <= room, seen=f"a mean of {mean} at {value}", expected=value)
        laws[case.randomizer](event, privatizer, place, value, reports)


def _expect_bit(
    event: Any, privatizer: CohortSums, place: int, value: float, reports: Floats
) -> None:
    """Two reports, whose odds at the ends are exp(±epsilon)."""
    two = np.unique(reports)
    sides = f"reports {two[:3]} at {value}"
    expect(len(two) == 2, seen=sides, expected="two of them")
    ups, count = int((reports == two.max()).sum()), reports.size
    chances = [1 / (1 + math.exp(-place * event.epsilon * factor)) for factor in _FACTORS]
    seen = f"a chance of {ups / count:.4f} at {value}"
    verdict = [fits_chance(ups, count, chance) for chance in chances]
    wanted = _CAUGHT if place else [True] * 3
    expected = f"{chances[0]:.4f}, as {event} charges, and not that of epsilon times 3/2 or 2/3"
    expect(verdict == wanted, seen=seen, expected=expected)


def _expect_normal(
    event: Any, privatizer: CohortSums, place: int, value: float, reports: Floats
) -> None:
    charged = charged_multiplier(event) * privatizer.query.sensitivity
    verdict = [fits_deviation(reports - value, charged / factor) for factor in _FACTORS]
    seen = f"a deviation of {reports.std():.4g} at {value}"
    expect(verdict == _CAUGHT, seen=seen, expected=f"{charged:.4g}, as charged")
    chance = normality(reports - value, charged)
    expect(chance >= ERROR, seen=f"a p-value of {chance}", expected="normal noise")


def _expect_laplace(
    event: Any, privatizer: CohortSums, place: int, value: float, reports: Floats
) -> None:
    epsilon = getattr(event, "epsilon", None) or 1 / event.noise_multiplier
    charged = privatizer.query.sensitivity / epsilon
    verdict = [fits_scale(reports - value, charged / factor) for factor in _FACTORS]
    seen = f"a scale of {np.abs(reports - value).mean():.4g} at {value}"
    expect(verdict == _CAUGHT, seen=seen, expected=f"{charged:.4g}, as charged")


def wild_losses(action: Any) -> Iterator[Floats]:
    """Losses far beyond any range, endless and undefined ones: one a question, with their signs."""
    signs = _signs(action)
    for size in (0.0, 0.5, 10.0, 1e9, 1e30, 1e300, np.inf, np.nan):
        for side in (1, -1):
            yield side * size * signs


def _signs(action: Any) -> Floats:
    """One a question, in turns: an arm is one question, and so is every point."""
    questions = len(action) if np.ndim(action) else 1
    return np.where(np.arange(questions) % 2, -1.0, 1.0)


def deployed_parties_agree_with_the_simulation(case: PlainCase) -> None:
    """A server learns as the simulated one; a device's exact reports have the law charged for them.

    The server is given the same reports as the bare functions of the policy, and names and stops as
    they do. The exact twin's reports, 1600 a place from a seeded source of bytes, pass the tests of
    `noise_is_what_was_charged` for what the twin charges, which fits the same budget. A device
    sends what its twin makes of its clipped answer, and repeats itself when it is asked again.
    """
    policy, privatizers = case.arranged()
    if not privatizers:
        return
    _expect_same_learner(case, policy, privatizers)
    twin = _seeded(privatizers[LOSS]).exact()
    charge, places = twin.charges(HORIZON)[0], _places(twin)
    case.make_ledger(promised(case)).charge(charge.event, cohort=charge.cohort)
    drawn = [_told(twin, np.array([value]), _EXACT) for value in places]
    _expect_law(case, charge.event, twin, places, drawn)
    _expect_same_device(case, policy, privatizers[LOSS])


def _expect_same_device(case: PlainCase, policy: Any, privatizer: CohortSums) -> None:
    device = case.answerer(policy=policy, privatizer=_seeded(privatizer))
    twin, action = _seeded(privatizer).exact(), first_action(policy)
    for round, losses in enumerate([*wild_losses(action), *_ends(policy)]):
        number = policy.answer(jnp.asarray(action), jnp.asarray(losses))
        wanted = _told(twin, np.asarray(twin.query.encode(number), np.float64), 1)
        found = [device.answer(round, action, losses) for _ in range(2)]
        expect(same(found[0], wanted), seen=f"{found[0]} for {losses}", expected=wanted)
        again = same(found[0], found[1])
        expect(again, seen=f"{found[1]}, asked again", expected=f"{found[0]}, as before")


def _told(twin: CohortSums, statistic: Floats, count: int) -> Floats:
    now = Clock(round=jnp.int32(0), since={})
    return np.concatenate([np.asarray(twin.report(statistic, now, None)) for _ in range(count)])


def _expect_same_learner(case: PlainCase, policy: Any, privatizers: Any) -> None:
    ledger = case.make_ledger(promised(case))
    server = case.asker(policy=policy, privatizers=privatizers, ledger=ledger)
    state = policy.init({name: one.outlook for name, one in privatizers.items()})
    channel = channel_of(privatizers[LOSS])
    center = float(np.asarray(privatizers[LOSS].query.center))
    rng = np.random.default_rng(SEED)
    for round in range(HORIZON // 4):
        if server.stopped:
            break
        action, report = server.ask(), center + float(channel.spread) * rng.choice([-1.0, 1.0], 1)
        server.learn(report)
        given = jnp.asarray(action), report, jnp.int32(round)
        state, named, over = _learned(policy, state, *given)
        found = server.recommendation, np.asarray(server.stopped)
        wanted = np.asarray(named), np.asarray(over)
        close = np.allclose(found[0], wanted[0], rtol=1e-9, atol=1e-9) and same(found[1], wanted[1])
        expect(close, seen=f"{found} after round {round}", expected=wanted)


@jax.jit
def _learned(policy: Any, state: Any, *given: Any) -> tuple[Any, Array, Array]:
    """The state after a report, and what it would name, and whether it stops."""
    after = policy.update(state, *given)
    return after, policy.recommend(after), policy.stopped(after)


@jax.jit
def _first(policy: Any) -> Array:
    proposed: Array = policy.propose(
        policy.init({}), jnp.int32(0), Stream.of(seed=SEED, replicate=0)
    )
    return proposed


def first_action(policy: Any) -> Any:
    """What is proposed before any report."""
    return np.asarray(_first(policy))


def _ends(policy: Any) -> list[Floats]:
    """Losses of each question that lead to the least number, the center one and the greatest."""
    signs, center = _signs(first_action(policy)), policy.queries[LOSS].center
    return [-1e12 * signs, np.full(len(signs), center), 1e12 * signs]


def _seeded(privatizer: CohortSums) -> _Seeded:
    return _Seeded(**vars(privatizer), source=np.random.default_rng(SEED).bytes)


@dataclasses.dataclass(frozen=True)
class _FromBytes:
    """Exact noise from a given source of bytes."""

    noise: Any
    source: Callable[[int], bytes]

    idealized = False

    @property
    def std(self) -> Any:
        return self.noise.std

    @property
    def sensitivity(self) -> float:
        return float(self.noise.sensitivity)

    def add(self, vector: Any, stream: object) -> Any:
        return self.noise.add(vector, self.source)

    def event(self) -> Event:
        event: Event = self.noise.event()
        return event


@struct
class _Seeded(CohortSums):
    """Its exact twin draws from a given source of bytes."""

    source: Any

    def exact(self) -> CohortSums:
        twin = CohortSums(**{k: v for k, v in vars(self).items() if k != "source"}).exact()
        return twin.with_noise(lambda noise: _FromBytes(noise, self.source))
