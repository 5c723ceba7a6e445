"""How a policy must treat people: blind learner, bounded statistics, public times, fair bills."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from kerchief.checks.by_hand import TURNS, kept_turns, other_data
from kerchief.checks.errors import Law, expect, laws_of, same
from kerchief.checks.search import Box, Encode, many, spread, widest, wild_records
from kerchief.checks.stage import DELTA, HORIZON, SEED, SEGMENT, Case, played, promise
from kerchief.core.contracts import Arms, Policy
from kerchief.core.errors import BudgetExceeded
from kerchief.privacy import Cohort, Gaussian, Guarantee, Ledger, Trust, gaussian_noise_multiplier
from kerchief.privacy.rules import ROUNDING

__all__ = ["yield_conduct_checks"]

Floats = NDArray[np.float64]

_LEARNER = ("init", "due", "update", "refreshes", "publish")
# What `mechanisms.discrete` sets aside for arithmetic in float64; float32 serves simulation only.
_ROUNDING = {np.float64: 2.0**-40, np.float32: 1e-6}


def yield_conduct_checks() -> Iterator[tuple[str, Law[Case]]]:
    """Name and function of every law of conduct."""
    return laws_of(
        learner_is_blind,
        due_times_are_public,
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
    """Other data with the same releases ask and post at the same times."""
    first, other = kept_turns(case), other_data(case)
    for round, (now, then) in enumerate(zip(other, first, strict=True)):
        times = (now.wanted, now.refreshes), (then.wanted, then.refreshes)
        expect(times[0] == times[1], seen=f"{times[0]} in round {round}", expected=times[1])


def statistics_obey_their_bound(case: Case) -> None:
    """No two records of the domain are farther apart than the sensitivity, and some nearly are."""
    for name, query in case.policy().queries.items():
        found, _, _ = _widest(case, name)
        seen = f"{name}: {found} from two records of the domain"
        bound = query.sensitivity * (1 + _ROUNDING[np.float64])
        expect(found <= bound, seen=seen, expected=f"at most {query.sensitivity}")
        expect(found >= 0.99 * query.sensitivity, seen=seen, expected=f"near {query.sensitivity}")


def clipping_holds_beyond_the_domain(case: Case) -> None:
    """Features of norm 10 or 1e30, rewards of 1e9, NaN and infinities stay within the bound."""
    wild, rewards = wild_records(_box(case))
    for name, query in case.policy().queries.items():
        _, edge, edge_rewards = _widest(case, name)
        for kind, rounding in _ROUNDING.items():
            encode = _encoder(case, name, kind)
            points = [encode(wild, rewards), encode(edge, edge_rewards)]
            found, bound = spread(np.concatenate(points)), query.sensitivity
            seen = f"{name}: {found} from wild records in {kind.__name__}"
            expect(found <= bound * (1 + rounding), seen=seen, expected=f"at most {bound}")


def each_user_pays_once(case: Case) -> None:
    """After a real run all receipts are settled and each user paid once for each query in use.

    A query is in use once it was released, or, where devices add their own noise, reported.
    """
    done = played(case)
    open_ones = [r.number for r in done.ledger.receipts if r.used is None]
    expect(not open_ones, seen=f"receipts {open_ones} are open", expected="all settled")
    paid = np.zeros(HORIZON, int)
    for receipt in done.ledger.receipts:
        paid[receipt.cohort.first : receipt.cohort.last] += receipt.used or 0
    sums, released = case.privatizers(20.0), done.run.releases
    owed = sum(sums[name].noisy_device or bool(released[name].any()) for name in sums)
    seen = f"users pay {paid.min()} to {paid.max()} times"
    expect((paid == owed).all(), seen=seen, expected=f"{owed}: the queries in use")


def spent_is_what_was_promised(case: Case) -> None:
    """A real run spends its epsilon to a millionth, and never more; without queries, nothing."""
    spent = played(case).run.spent.epsilon
    asked = promise(case.trust, 20.0).epsilon if case.policy().queries else 0.0
    close = spent == asked or asked * (1 - 1e-6) <= spent <= asked * (1 + ROUNDING)
    expect(close, seen=f"epsilon {spent}", expected=f"{asked}, to 1e-6 and not above")


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
    late.charge(full, cohort=Cohort(first=HORIZON - 1, last=HORIZON))
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


def _box(case: Case) -> Box:
    facts = case.environment.problem(HORIZON)
    return Box(dim=facts.dim, norm=facts.norm, low=facts.low, high=facts.high)


@lru_cache(maxsize=64)
def _widest(case: Case, name: str) -> tuple[float, Floats, Floats]:
    return widest(_encoder(case, name, np.float64), _box(case))


def _encoder(case: Case, name: str, kind: type) -> Encode:
    """What the device sends for a record, before noise: many records at once."""
    policy, count = case.policy(), case.environment.problem(HORIZON).arms
    outlook = {key: p.outlook for key, p in case.privatizers(1.0).items()}
    model, query = policy.publish(policy.init(outlook)), policy.queries[name]

    def one(features: jax.Array, reward: jax.Array) -> jax.Array:
        arms = Arms(features=jnp.tile(features, (count, 1)), allowed=jnp.ones(count, bool))
        return query.encode(policy.record(model, arms, jnp.int32(0), reward)[name])

    return many(one, kind)
