"""What a bandit must cost: what was promised, once for each user; nothing where it is refused."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from kerchief.checks.case import DELTA, Case, asks, play, played
from kerchief.checks.errors import expect, law, refused
from kerchief.core.contracts import BoundedLoss, Knows
from kerchief.core.errors import BudgetExceeded
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
from kerchief.roles.arrange import Arranged

# How near to what was asked a charge comes: in general, and where it is counted in coins.
_MILLIONTH, _COINS = 1e-6, 0.03


@law(when=asks)
def each_user_pays_once(case: Case) -> None:
    """After a real run all receipts are settled and each user paid once for each query in use.

    A query is in use once it was released, or, where devices add their own noise, reported. For a
    fit with noise each user pays once for every gradient sum that might have been asked for.
    """
    done, made = played(case), case.arranged()
    open_ones = [r.number for r in done.ledger.receipts if r.used is None]
    expect(not open_ones, seen=f"receipts {open_ones} are open", expected="all settled")
    most = {name: int(count.max()) for name, count in done.run.releases.items()}
    paid = np.zeros(users_of(case, made), int)
    for receipt in done.ledger.receipts:
        paid[receipt.cohort.first : receipt.cohort.last] += receipt.used or 0
    paid = paid[: _covered(case, made, most)]
    owed = sum(_owed(p, most[name]) for name, p in made.privatizers.items())
    seen = f"users pay {paid.min()} to {paid.max()} times"
    expect((paid == owed).all(), seen=seen, expected=f"{owed}: what was in use")


def users_of(case: Case, made: Arranged) -> int:
    """How many users may report: one each round, or the clients of all phases."""
    if case.feedback != "phases":
        return case.size.horizon
    return max((_ends(p)[-1] for p in made.privatizers.values()), default=1)


def _ends(privatizer: Privatizer) -> tuple[int, ...]:
    return privatizer.schedule.ends if isinstance(privatizer.schedule, At) else ()


def _covered(case: Case, made: Arranged, most: dict[str, int]) -> int:
    """How many users a run spoke about: a last cohort that is too short is left out."""
    if case.feedback == "reports":
        return max(most.values())
    if case.feedback == "phases":
        return max(_ends(p)[most[name] - 1] for name, p in made.privatizers.items())
    return _reached(case, made)


def _reached(case: Case, made: Arranged) -> int:
    """How many users a run may speak about."""
    last = [_ends(p)[-1] if _ends(p) else case.size.horizon for p in made.privatizers.values()]
    return max(last, default=case.size.horizon)


def _owed(privatizer: Privatizer, releases: int) -> int:
    if isinstance(privatizer.query, BoundedLoss) and privatizer.outlook.noisy:
        fits = 1 if isinstance(privatizer.schedule, At) else privatizer.query.fits
        return fits * privatizer.query.minimizer.steps
    return int(privatizer.noisy_device or releases > 0)


@law(cheap=True)
def charged_is_what_was_promised(case: Case) -> None:
    """A run is charged its epsilon to a millionth, and never more.

    To a few hundredths where the noise is a whole number of coins, and less what a delta is worth
    that pure noise does not need. Without queries that is nothing.
    """
    made, ledger = case.arranged(), case.make_ledger(case.promise())
    pay(made.privatizers, ledger, horizon=users_of(case, made))
    _expect_close(case, ledger, ledger.spent().epsilon, "charged")


@law()
def spent_is_no_more_than_promised(case: Case) -> None:
    """A run spends no more than its epsilon; what was paid for and used up is spent."""
    done = played(case)
    spent, asked = done.run.spent.epsilon, _asked(case)
    if isinstance(case.policy(), Knows):
        # What it was told may be everybody's data.
        expect(spent == math.inf, seen=f"epsilon {spent}", expected="no bound at all")
        return
    if all(receipt.used == receipt.capacity for receipt in done.ledger.receipts):
        _expect_close(case, done.ledger, spent, "spent")
    expect(spent <= asked * (1 + ROUNDING), seen=f"epsilon {spent}", expected=f"at most {asked}")


def _asked(case: Case) -> float:
    return case.promise().epsilon if asks(case) else 0.0


def _expect_close(case: Case, ledger: Ledger, epsilon: float, word: str) -> None:
    asked, near = _asked(case), _COINS if case.trust == Trust.SHUFFLE else _MILLIONTH
    # Pure noise leaves delta unused, which is worth no more than this.
    pure = math.isfinite(worst_case(ledger.receipts, 0.0))
    unused = -2 * math.log1p(-case.promise().delta) if pure else 0.0
    close = epsilon == asked or asked * (1 - near) - unused <= epsilon <= asked * (1 + ROUNDING)
    seen = f"epsilon {epsilon} was {word}"
    expect(close, seen=seen, expected=f"{asked}, to {near} and not above")


@law(when=asks, cheap=True)
def refusal_leaves_no_trace(case: Case) -> None:
    """What the budget cannot pay is refused before anything is played, and nothing is charged.

    Once with a budget a third too small, once with one that only the last user has spent.
    """
    made, epsilon = case.arranged(), case.size.epsilon
    free = case.trust == Trust.NONE
    trust, delta = (Trust.CENTRAL, DELTA) if free else (Trust(case.trust), case.promise().delta)
    short = Guarantee(epsilon=epsilon * 2 / 3, delta=delta, trust=trust)
    _expect_refusal(case, made, case.make_ledger(short))
    if delta:
        late = case.make_ledger(Guarantee(epsilon=epsilon, delta=delta, trust=trust))
        last = _reached(case, made)
        late.charge(_all_of(late.budget), cohort=Cohort(first=last - 1, last=last))
        _expect_refusal(case, made, late)


def _all_of(budget: Guarantee) -> Event:
    """What takes up a budget, of a kind that adds up with the noise of this trust by a formula."""
    if budget.trust is Trust.SHUFFLE:
        return Gaussian(noise_multiplier=gaussian_noise_multiplier(budget.epsilon, budget.delta))
    return Zcdp(rho=zcdp_rho(budget.epsilon, budget.delta))


def _expect_refusal(case: Case, made: Arranged, ledger: Ledger) -> None:
    before, stages = ledger.receipts, list[str]()

    def told(stage: str, done: int) -> None:
        stages.append(stage)

    playing = partial(play, case, made, ledger=ledger, replicates=1, progress=told)
    right = refused(BudgetExceeded, playing)
    expect(right and not stages, seen=f"refused: {right}; played: {stages}", expected="refusal")
    left = len(ledger.receipts) - len(before)
    expect(ledger.receipts == before, seen=f"{left} receipts were left", expected="no trace")
