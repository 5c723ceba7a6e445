"""How a policy must treat people: blind learner, bounded statistics, public times, fair bills."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from kerchief.checks.errors import Law, expect, laws_of, same
from kerchief.checks.fixture import DELTA, HORIZON, SEED, SEGMENT, Case, played, promise
from kerchief.checks.reference_player import (
    TURNS,
    expect_same_public,
    expect_same_times,
    kept_turns,
    other_data,
    with_one_other,
)
from kerchief.checks.search import (
    NOWHERE,
    Box,
    Encode,
    far_points,
    many,
    spread,
    widest,
    wild_points,
    wild_records,
)
from kerchief.checks.worst import worst_user_moves_releases_by_the_sensitivity_at_most
from kerchief.core.contracts import Arms, BoundedLoss, Policy, Query
from kerchief.core.errors import BudgetExceeded
from kerchief.privacy import Cohort, Gaussian, Guarantee, Ledger, Trust, gaussian_noise_multiplier
from kerchief.privacy.rules import ROUNDING
from kerchief.privatizers import At, Privatizer
from kerchief.privatizers.billing import pay

__all__ = ["yield_conduct_checks"]

# How near to what was asked a charge comes: in general, and where it is counted in coins.
_MILLIONTH, _COINS = 1e-6, 0.02

Floats = NDArray[np.float64]

_LEARNER = ("init", "due", "request", "update", "refreshes", "publish")
# What `mechanisms.exact_gaussian` sets aside for arithmetic in float64; float32 serves
# simulation only.
_ROUNDING = {np.float64: 2.0**-40, np.float32: 1e-6}


def yield_conduct_checks() -> Iterator[tuple[str, Law[Case]]]:
    """Name and function of every law of conduct."""
    return laws_of(
        learner_is_blind,
        due_times_are_public,
        one_user_shows_in_releases_alone,
        worst_user_moves_releases_by_the_sensitivity_at_most,
        statistics_obey_their_bound,
        clipping_holds_beyond_the_domain,
        each_user_pays_once,
        spent_is_what_was_promised,
        refusal_leaves_no_trace,
    )


def learner_is_blind(case: Case) -> None:
    """The learner takes what the contract says: same releases from other data, same models."""
    for name in _LEARNER:
        taken = list(inspect.signature(getattr(case.entry.kind, name)).parameters)
        allowed = list(inspect.signature(getattr(Policy, name)).parameters)
        expect(taken == allowed, seen=f"{name}({', '.join(taken)})", expected=", ".join(allowed))
    first, other = kept_turns(case), other_data(case)
    differ = [i for i in range(TURNS) if not same(first[i].model, other[i].model)]
    expect(
        not differ, seen=f"other models in rounds {differ}", expected="those of the same releases"
    )


def due_times_are_public(case: Case) -> None:
    """Other data with the same releases ask, and ask for the same, and post at the same times."""
    expect_same_times(other_data(case), kept_turns(case))


def one_user_shows_in_releases_alone(case: Case) -> None:
    """One user who sees other arms changes nothing public but the values of noisy releases.

    The user meets no arms to speak of, the longest ones, or each turned round: where a policy
    explores for some users, one of them explores and another does not. All else, noise included, is
    the same. What carries noise is given to the learner as the other run had it; what carries none
    stays as it is, since nothing hides it. Then due times, requests, models and everyone else's
    actions must be the same, and so must times, counts and noise levels of what is released.
    """
    if case.trust == Trust.NONE:
        return
    usual = kept_turns(case)
    for show in (_none_to_speak_of, _longest, _turned):
        seen = with_one_other(case, show=show)
        for round, name, release in seen.told:
            wanted, noisy = usual[round].releases[name], seen.privatizers[name].outlook.noisy
            facts = [(int(one.count), float(one.noise)) for one in (release, wanted)]
            alike = not noisy or facts[0] == facts[1]
            expect(alike, seen=f"{name}: users and noise {facts[0]}", expected=facts[1])
        expect_same_public(seen.turns, usual, f"one user's arms {show.__name__.strip('_')}")


def _none_to_speak_of(arms: Arms) -> Arms:
    return Arms(features=0 * arms.features, allowed=arms.allowed)


def _longest(arms: Arms) -> Arms:
    count, dim = arms.features.shape
    unit = jnp.eye(dim, dtype=arms.features.dtype)
    return Arms(features=unit[jnp.arange(count) % dim], allowed=arms.allowed)


def _turned(arms: Arms) -> Arms:
    return Arms(features=-arms.features[:, ::-1], allowed=arms.allowed)


def statistics_obey_their_bound(case: Case) -> None:
    """No two records of the domain are farther apart than the sensitivity, and some nearly are.

    For a loss it is their gradients that are held apart, at points near and far.
    """
    for name, query in case.policy().queries.items():
        found, _ = _widest(case, name)
        seen = f"{name}: {found} from two records of the domain"
        bound = query.sensitivity * (1 + _ROUNDING[np.float64])
        expect(found <= bound, seen=seen, expected=f"at most {query.sensitivity}")
        expect(found >= 0.99 * query.sensitivity, seen=seen, expected=f"near {query.sensitivity}")


def clipping_holds_beyond_the_domain(case: Case) -> None:
    """Features of norm 10 or 1e30, rewards of 1e9, NaN and infinities stay within the bound.

    So do weights and, for a loss, the points at which gradients are taken.
    """
    for name, query in case.policy().queries.items():
        records = np.concatenate([wild_records(_box(case, name)), _widest(case, name)[1]])
        for kind, rounding in _ROUNDING.items():
            encode = _encoder(case, name, kind)
            found = max(spread(encode(records, point)) for point in _points(query, wild_points))
            seen = f"{name}: {found} from wild records in {kind.__name__}"
            bound = query.sensitivity
            expect(found <= bound * (1 + rounding), seen=seen, expected=f"at most {bound}")


def each_user_pays_once(case: Case) -> None:
    """After a real run all receipts are settled and each user paid once for each query in use.

    A query is in use once it was released, or, where devices add their own noise, reported. For a
    fit with noise each user pays once for every gradient sum that might have been asked for.
    """
    done = played(case)
    open_ones = [r.number for r in done.ledger.receipts if r.used is None]
    expect(not open_ones, seen=f"receipts {open_ones} are open", expected="all settled")
    paid = np.zeros(HORIZON, int)
    for receipt in done.ledger.receipts:
        paid[receipt.cohort.first : receipt.cohort.last] += receipt.used or 0
    paid = paid[: _reached(case)]
    answers = case.privatizers(20.0).items()
    owed = sum(_owed(p, int(done.run.releases[name].max())) for name, p in answers)
    seen = f"users pay {paid.min()} to {paid.max()} times"
    expect((paid == owed).all(), seen=seen, expected=f"{owed}: what was in use")


def _reached(case: Case) -> int:
    """How many users a run may speak about: a last cohort that is too short is left out."""
    schedules = [p.schedule for p in case.privatizers(1.0).values()]
    return max((s.ends[-1] if isinstance(s, At) else HORIZON for s in schedules), default=HORIZON)


def _owed(privatizer: Privatizer, releases: int) -> int:
    if isinstance(privatizer.query, BoundedLoss) and privatizer.outlook.noisy:
        fits = 1 if isinstance(privatizer.schedule, At) else privatizer.query.fits
        return fits * privatizer.query.minimizer.steps
    return int(privatizer.noisy_device or releases > 0)


def spent_is_what_was_promised(case: Case) -> None:
    """A run is charged its epsilon to a millionth, never more, and spends no more than that.

    To a fiftieth where the noise is a whole number of coins. Without queries that is nothing. What
    was paid for and used up is spent so nearly too.
    """
    ledger = case.make_ledger(promise(case.trust, 20.0))
    pay(case.privatizers(20.0), ledger, horizon=HORIZON)
    asked = promise(case.trust, 20.0).epsilon if case.policy().queries else 0.0
    done = played(case)
    near = _COINS if case.trust == Trust.SHUFFLE else _MILLIONTH
    _expect_close(ledger.spent().epsilon, asked, "charged", near)
    spent = done.run.spent.epsilon
    if all(receipt.used == receipt.capacity for receipt in done.ledger.receipts):
        _expect_close(spent, asked, "spent", near)
    expect(spent <= asked * (1 + ROUNDING), seen=f"epsilon {spent}", expected=f"at most {asked}")


def _expect_close(epsilon: float, asked: float, word: str, near: float) -> None:
    close = epsilon == asked or asked * (1 - near) <= epsilon <= asked * (1 + ROUNDING)
    seen = f"epsilon {epsilon} was {word}"
    expect(close, seen=seen, expected=f"{asked}, to {near} and not above")


def refusal_leaves_no_trace(case: Case) -> None:
    """What the budget cannot pay is refused before anything is played, and nothing is charged.

    Once with a budget a third too small, once with one that only the last user has spent.
    """
    if not case.policy().queries:
        return
    short = Trust.CENTRAL if case.trust == Trust.NONE else Trust(case.trust)
    _expect_refusal(case, case.make_ledger(Guarantee(epsilon=2 / 3, delta=DELTA, trust=short)))
    late = case.make_ledger(Guarantee(epsilon=1.0, delta=DELTA, trust=short))
    full = Gaussian(noise_multiplier=gaussian_noise_multiplier(1.0, DELTA))
    last = _reached(case)
    late.charge(full, cohort=Cohort(first=last - 1, last=last))
    _expect_refusal(case, late)


def _expect_refusal(case: Case, ledger: Ledger) -> None:
    before, stages, refused = ledger.receipts, list[str](), False
    try:
        case.simulate(
            policy=case.policy(),
            privatizers=case.privatizers(1.0),
            environment=case.environment,
            ledger=ledger,
            horizon=HORIZON,
            replicates=1,
            seed=SEED,
            ticks=HORIZON // SEGMENT,
            progress=lambda stage, done: stages.append(stage),
        )
    except BudgetExceeded:
        refused = True
    expect(refused and not stages, seen=f"refused: {refused}; played: {stages}", expected="refusal")
    left = len(ledger.receipts) - len(before)
    expect(ledger.receipts == before, seen=f"{left} receipts were left", expected="no trace")


@lru_cache(maxsize=64)
def _box(case: Case, name: str) -> Box:
    """The domain of the records that a policy sends in answer to a query."""
    facts, policy = case.environment.problem(HORIZON), case.policy()
    outlook = {key: p.outlook for key, p in case.privatizers(1.0).items()}
    model = policy.publish(policy.init(outlook))
    arms = Arms(features=jnp.ones((facts.arms, facts.dim)), allowed=jnp.ones(facts.arms, bool))
    weight = policy.record(model, arms, jnp.int32(0), jnp.float64(facts.high))[name].weight
    return Box(
        dim=facts.dim,
        norm=facts.norm,
        low=facts.low,
        high=facts.high,
        weight=None if isinstance(weight, float) else np.shape(weight),
    )


def _points(query: Query, points: Callable[[int], list[Floats]]) -> list[Floats]:
    """Where to look at what records add to a sum: for a loss at these points, else anywhere."""
    return points(query.dim) if isinstance(query, BoundedLoss) else [NOWHERE]


@lru_cache(maxsize=64)
def _widest(case: Case, name: str) -> tuple[float, Floats]:
    encode, box = _encoder(case, name, np.float64), _box(case, name)
    points = _points(case.policy().queries[name], far_points)
    return max((widest(encode, box, point) for point in points), key=lambda found: found[0])


def _encoder(case: Case, name: str, kind: type) -> Encode:
    """What a record adds to a sum: its statistic, or its gradient at a point."""
    query, box = case.policy().queries[name], _box(case, name)

    def one(row: jax.Array, point: jax.Array) -> jax.Array:
        encoded = query.encode(box.record(row))
        if not isinstance(query, BoundedLoss):
            return encoded
        return query.gradients(encoded[None, :], point)[0]

    return many(one, kind)
