"""What a bandit must cost: what was promised, once for each user; nothing where it is refused."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from kerchief.checks.errors import expect, law, refused
from kerchief.checks.policy_fixture import DELTA, PolicyFixture, asks, play, played
from kerchief.core.contracts import BoundedLoss, Oracle
from kerchief.core.errors import BudgetExceededError
from kerchief.deployment.protected_policy import ProtectedPolicy
from kerchief.privacy import (
    Cohort,
    Event,
    Gaussian,
    Guarantee,
    Ledger,
    Trust,
    Zcdp,
    gaussian_noise_multiplier,
    zcdp_rho,
)
from kerchief.privacy.rules import ROUNDING, worst_case
from kerchief.privatizers import At, Privatizer
from kerchief.privatizers.billing import pay

# How near to what was asked a charge comes: in general, and where it is counted in coins.
_MILLIONTH, _COINS = 1e-6, 0.03


@law(when=asks)
def each_user_pays_once(case: PolicyFixture) -> None:
    """After a real run all receipts are settled and each user paid once for each query in use.

    A query is in use once it was released, or, where devices add their own noise, reported. For a
    fit with noise each user pays once for every gradient sum that might have been asked for.
    """
    result, bandit = played(case), case.arranged()
    open_ones = [r.number for r in result.ledger.receipts if r.used is None]
    expect(not open_ones, seen=f"receipts {open_ones} are open", expected="all settled")
    release_counts = {name: int(count.max()) for name, count in result.run.releases.items()}
    payments = np.zeros(users_of(case, bandit), int)
    for receipt in result.ledger.receipts:
        payments[receipt.cohort.first : receipt.cohort.last] += receipt.used or 0
    payments = payments[: _count_covered_users(case, bandit, release_counts)]
    charges = sum(_count_charges(p, release_counts[name]) for name, p in bandit.privatizers.items())
    observed = f"users pay {payments.min()} to {payments.max()} times"
    expect((payments == charges).all(), seen=observed, expected=f"{charges}: what was in use")


def users_of(case: PolicyFixture, made: ProtectedPolicy) -> int:
    """How many users may report: one each round, or the clients of all phases."""
    if case.feedback != "phases":
        return case.size.horizon
    return max((_get_ends(p)[-1] for p in made.privatizers.values()), default=1)


def _get_ends(privatizer: Privatizer) -> tuple[int, ...]:
    return privatizer.schedule.ends if isinstance(privatizer.schedule, At) else ()


def _count_covered_users(
    case: PolicyFixture, bandit: ProtectedPolicy, release_counts: dict[str, int]
) -> int:
    """How many users a run spoke about: a last cohort that is too short is left out."""
    if case.feedback == "reports":
        return max(release_counts.values())
    if case.feedback == "phases":
        return max(_get_ends(p)[release_counts[name] - 1] for name, p in bandit.privatizers.items())
    return _count_reachable_users(case, bandit)


def _count_reachable_users(case: PolicyFixture, bandit: ProtectedPolicy) -> int:
    """How many users a run may speak about."""
    last = [
        _get_ends(p)[-1] if _get_ends(p) else case.size.horizon for p in bandit.privatizers.values()
    ]
    return max(last, default=case.size.horizon)


def _count_charges(privatizer: Privatizer, releases: int) -> int:
    if isinstance(privatizer.query, BoundedLoss) and privatizer.outlook.noisy:
        fits = 1 if isinstance(privatizer.schedule, At) else privatizer.query.fits
        return fits * privatizer.query.minimizer.steps
    return int(privatizer.noisy_device or releases > 0)


@law(cheap=True)
def charged_is_what_was_promised(case: PolicyFixture) -> None:
    """A run is charged its epsilon to a millionth, and never more.

    To a few hundredths where the noise is a whole number of coins, and less what a delta is worth
    that pure noise does not need. Without queries that is nothing.
    """
    bandit, ledger = case.arranged(), case.make_ledger(case.promise())
    pay(bandit.privatizers, ledger, horizon=users_of(case, bandit))
    _expect_close(case, ledger, ledger.spent().epsilon, "charged")


@law()
def spent_is_no_more_than_promised(case: PolicyFixture) -> None:
    """A run spends no more than its epsilon; what was paid for and used up is spent."""
    result = played(case)
    spent, target = result.run.spent.epsilon, _get_target_epsilon(case)
    if isinstance(case.policy(), Oracle):
        # What it was told may be everybody's data.
        expect(spent == math.inf, seen=f"epsilon {spent}", expected="no bound at all")
        return
    if all(receipt.used == receipt.capacity for receipt in result.ledger.receipts):
        _expect_close(case, result.ledger, spent, "spent")
    expect(spent <= target * (1 + ROUNDING), seen=f"epsilon {spent}", expected=f"at most {target}")


def _get_target_epsilon(case: PolicyFixture) -> float:
    return case.promise().epsilon if asks(case) else 0.0


def _expect_close(case: PolicyFixture, ledger: Ledger, epsilon: float, verb: str) -> None:
    target, near = _get_target_epsilon(case), _COINS if case.trust == Trust.SHUFFLE else _MILLIONTH
    # Pure noise leaves delta unused, which is worth no more than this.
    pure = math.isfinite(worst_case(ledger.receipts, 0.0))
    unused = -2 * math.log1p(-case.promise().delta) if pure else 0.0
    close = epsilon == target or target * (1 - near) - unused <= epsilon <= target * (1 + ROUNDING)
    observed = f"epsilon {epsilon} was {verb}"
    expect(close, seen=observed, expected=f"{target}, to {near} and not above")


@law(when=asks, cheap=True)
def refusal_leaves_no_trace(case: PolicyFixture) -> None:
    """What the budget cannot pay is refused before anything is played, and nothing is charged.

    Once with a budget a third too small, once with one that only the last user has spent.
    """
    bandit, epsilon = case.arranged(), case.size.epsilon
    free = case.trust == Trust.NONE
    trust, delta = (Trust.CENTRAL, DELTA) if free else (Trust(case.trust), case.promise().delta)
    short = Guarantee(epsilon=epsilon * 2 / 3, delta=delta, trust=trust)
    _expect_refusal(case, bandit, case.make_ledger(short))
    if delta:
        late = case.make_ledger(Guarantee(epsilon=epsilon, delta=delta, trust=trust))
        last = _count_reachable_users(case, bandit)
        late.charge(_build_full_charge(late.budget), cohort=Cohort(first=last - 1, last=last))
        _expect_refusal(case, bandit, late)


def _build_full_charge(budget: Guarantee) -> Event:
    """Build an event that takes up a whole budget.

    It adds up with the noise of the trust model by a formula.
    """
    if budget.trust is Trust.SHUFFLE:
        return Gaussian(noise_multiplier=gaussian_noise_multiplier(budget.epsilon, budget.delta))
    return Zcdp(rho=zcdp_rho(budget.epsilon, budget.delta))


def _expect_refusal(case: PolicyFixture, bandit: ProtectedPolicy, ledger: Ledger) -> None:
    before, stages = ledger.receipts, list[str]()

    def note_stage(stage: str, rounds: int) -> None:
        stages.append(stage)

    playing = partial(play, case, bandit, ledger=ledger, replicates=1, progress=note_stage)
    right = refused(BudgetExceededError, playing)
    expect(right and not stages, seen=f"refused: {right}; played: {stages}", expected="refusal")
    excess = len(ledger.receipts) - len(before)
    expect(ledger.receipts == before, seen=f"{excess} receipts were left", expected="no trace")
