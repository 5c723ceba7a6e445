"""The server and the device of a bandit that hears reports: what is deployed is what was simulated.

What is deployed of other bandits is looked at in `checks.twins` and by `roles.drive`.
"""

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

from kerchief.checks.case import SEED, Case, by_reports
from kerchief.checks.domains import first_action
from kerchief.checks.errors import expect, law, same
from kerchief.checks.leakage import charged_multiplier
from kerchief.checks.statistics import fits_chances, fits_deviation, fits_scale
from kerchief.checks.words import pure_epsilon
from kerchief.core.contracts import Clock, Stops
from kerchief.core.struct import struct
from kerchief.mechanisms.one_bit import ExactOneBit
from kerchief.policies.context_free.base import LOSS
from kerchief.privacy import Event, RandomizedResponse, Trust
from kerchief.privatizers import CohortSums
from kerchief.privatizers.channels import channel_of
from kerchief.roles.arrange import Arranged

__all__ = ["DEPLOYED_LAWS"]

Floats = NDArray[np.float64]

_ASKED, _EXACT = 12, 1600
# What is held against the reports beside the truth: a third too little noise, and too much.
_FACTORS = (1.0, 3 / 2, 2 / 3)
_CAUGHT = [True, False, False]


@law(when=by_reports)
def deployed_parties_agree_with_the_simulation(case: Case) -> None:
    """A server learns as the simulated one; a device's exact reports have the law charged for them.

    The server is given the same reports as the bare functions of the policy, and names and stops as
    they do. The exact twin's reports, 1600 for each of three numbers from a seeded source of bytes,
    have the law that the twin charges for, which fits the same budget. A device sends what its twin
    makes of its clipped answer, repeats itself when it is asked again, and pays once a question.
    """
    made = case.arranged()
    _expect_same_learner(case, made)
    if case.trust != Trust.LOCAL:
        return
    twin = _seeded(made.privatizers[LOSS]).exact()
    charge = twin.charges(case.size.horizon)[0]
    case.make_ledger(case.promise()).charge(charge.event, cohort=charge.cohort)
    _expect_law(twin, charge.event)
    _expect_same_device(case, made)
    _expect_one_charge(case, made)


def _expect_same_learner(case: Case, made: Arranged) -> None:
    policy: Any = made.policy
    server = case.asker(made, ledger=case.make_ledger(case.promise()))
    state = policy.init({name: one.outlook for name, one in made.privatizers.items()})
    query: Any = made.privatizers[LOSS].query
    spread = float(channel_of(made.privatizers[LOSS]).spread)
    rng = np.random.default_rng(SEED)
    for round in range(_ASKED):
        if server.stopped:
            break
        report = float(np.asarray(query.center)) + spread * rng.choice([-1.0, 1.0], 1)
        action = server.ask()
        server.learn(report)
        state, named, over = _learned(policy, state, jnp.asarray(action), report, jnp.int32(round))
        close = np.allclose(server.recommendation, named, rtol=1e-9, atol=1e-9)
        seen = f"{server.recommendation} and {server.stopped} after round {round}"
        expect(close and server.stopped == bool(over), seen=seen, expected=f"{named} and {over}")


@jax.jit
def _learned(policy: Any, state: Any, *given: Any) -> tuple[Any, Array, Array]:
    """The state after a report, and what it would name, and whether it stops."""
    after = policy.learn(state, *given)
    over = policy.stopped(after) if isinstance(policy, Stops) else jnp.asarray(False)
    return after, policy.recommend(after), over


def _expect_law(twin: CohortSums, event: Event) -> None:
    """Hold the reports of the least number, the center and the greatest against the charge."""
    query: Any = twin.query
    center = float(np.asarray(query.center))
    for place in (-1, 0, 1):
        value = center + place * query.radius
        reports = _told(twin, np.array([value]), _EXACT)
        verdict = [_fits(twin, event, place, reports - value, factor) for factor in _FACTORS]
        # The center's coin is fair whatever epsilon is.
        fair = _coin(twin) and place == 0
        wanted = [True] * 3 if fair else _CAUGHT
        seen = f"reports of deviation {reports.std():.4g} at {value}: {verdict}"
        expect(verdict == wanted, seen=seen, expected=f"what {event} charges for, alone")


def _coin(twin: CohortSums) -> bool:
    device: Any = twin.device
    return isinstance(device.noise, ExactOneBit)


def _fits(twin: CohortSums, event: Any, place: int, errors: Floats, factor: float) -> bool:
    """Whether errors have the law of an event, at so many times its epsilon."""
    query: Any = twin.query
    if _coin(twin):
        chance = 1 / (1 + math.exp(-place * event.epsilon * factor))
        high = errors + place * query.radius > 0
        return fits_chances(high, np.full(len(errors), chance))
    if isinstance(event, RandomizedResponse):
        return fits_scale(errors, query.sensitivity / pure_epsilon(event) / factor)
    return fits_deviation(errors, charged_multiplier(event) * query.sensitivity / factor)


def _expect_same_device(case: Case, made: Arranged) -> None:
    policy: Any = made.policy
    seeded = {LOSS: _seeded(made.privatizers[LOSS])}
    device = case.answerer(Arranged(policy=policy, privatizers=seeded))
    twin, action = _seeded(made.privatizers[LOSS]).exact(), first_action(policy)
    for round, losses in enumerate(_wild_losses(action)):
        number = policy.answer(jnp.asarray(action), jnp.asarray(losses))
        wanted = _told(twin, np.asarray(twin.query.encode(number), np.float64), 1)
        found = [device.answer(round, action, losses) for _ in range(2)]
        expect(same(found[0], wanted), seen=f"{found[0]} for {losses}", expected=wanted)
        again = same(found[0], found[1])
        expect(again, seen=f"{found[1]}, asked again", expected=f"{found[0]}, as before")


def _expect_one_charge(case: Case, made: Arranged) -> None:
    own = case.make_ledger(case.promise(2.1 * case.size.epsilon))
    device, action = case.answerer(made, ledger=own), first_action(made.policy)
    for round, bills in ((0, 1), (0, 1), (1, 2)):
        device.answer(round, action, np.zeros(len(np.atleast_1d(action))))
        seen = f"{len(own.receipts)} charges"
        expect(len(own.receipts) == bills, seen=seen, expected=f"{bills}, one for each question")


def _wild_losses(action: Any) -> Iterator[Floats]:
    """Losses far beyond any range, endless and undefined, one for each question."""
    signs = np.where(np.arange(len(action) if np.ndim(action) else 1) % 2, -1.0, 1.0)
    for size in (0.0, 0.5, 10.0, 1e9, 1e30, 1e300, np.inf, np.nan):
        for side in (1, -1):
            yield side * size * signs


def _told(twin: CohortSums, statistic: Floats, count: int) -> Floats:
    now = Clock(round=jnp.int32(0), since={})
    return np.concatenate([np.asarray(twin.report(statistic, now, None)) for _ in range(count)])


def _seeded(privatizer: Any) -> _Seeded:
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


DEPLOYED_LAWS = (deployed_parties_agree_with_the_simulation,)
