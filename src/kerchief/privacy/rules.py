"""The arithmetic of a ledger as pure functions, so that a store only has to keep receipts.

A ledger, whatever keeps it, does three things under its own lock: read the receipts, call one
of these functions, write the one receipt that it returns (before anyone acts on it).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from kerchief.core.errors import BudgetExceededError, CapacityExceededError, InvalidValueError
from kerchief.core.validate import whole
from kerchief.privacy.composition import FilterSums, leaves
from kerchief.privacy.events import DiscreteGaussian, Gaussian, Zcdp
from kerchief.privacy.guarantee import Guarantee, Trust
from kerchief.privacy.histories import histories
from kerchief.privacy.receipts import Charge, Cohort, Receipt
from kerchief.privacy.search import least

ROUNDING = 1e-9
"""A charge is accepted up to ε (1 + 1e-9): the only allowance, for rounding alone. What is
reported as spent is never rounded down to the budget."""

_CLOSED_FORM = (Gaussian, DiscreteGaussian, Zcdp)


def worst_case(receipts: Iterable[Receipt], delta: float) -> float:
    """Return the ε of the user who pays most, at this δ: the least budget that admits all.

    Receipts whose cohorts share a user add up; receipts on disjoint cohorts do not, since
    replacing one user touches one of them only (parallel composition). A user's first bill is
    priced as a whole, and what is added to it goes through a privacy filter (`composition.md`).
    """
    return max((history.price(delta) for history in histories(receipts)), default=0.0)


def filter_sums(receipts: Iterable[Receipt]) -> FilterSums:
    """Return the largest sums of pure ε and of ρ that any user has."""
    sums = [FilterSums.of(history.events) for history in histories(receipts)]
    return FilterSums(
        epsilon=max((totals.epsilon for totals in sums), default=0.0),
        rho=max((totals.rho for totals in sums), default=0.0),
    )


def total(budget: Guarantee, receipts: Iterable[Receipt]) -> Guarantee:
    """Return what the worst-off user has been charged, in the words of the budget.

    The promise is the budget: this price is one only if nothing was chosen by what it said.
    """
    return replace(budget, epsilon=worst_case(receipts, budget.delta))


def headroom(budget: Guarantee, receipts: Iterable[Receipt]) -> Guarantee:
    """Return the difference of the budget's ε and the worst-off user's, at the same δ.

    It tells how near the end is. It is no promise that a mechanism of this ε still fits, since
    privacy costs do not add in ε; `admit` decides that.
    """
    if math.isinf(budget.epsilon):
        return budget
    spent = worst_case(receipts, budget.delta)
    return replace(budget, epsilon=max(0.0, budget.epsilon - spent))


def admit(budget: Guarantee, receipts: Sequence[Receipt], charge: Charge, *, bill: int) -> Receipt:
    """Return the receipt for a charge that fits the budget, for the caller to store.

    Of all earlier receipts, open ones count at capacity and settled ones at what was used.

    Args:
        budget: what may be spent on each user.
        receipts: all that was paid, earlier lines of the same bill included.
        charge: a line of the bill.
        bill: its number. A bill is fixed before any of it is released, and is priced as a
            whole; whatever may be chosen by earlier releases is a bill of its own.

    Raises:
        BudgetExceededError: some user of the cohort would pay more than the budget.
    """
    cohort = charge.cohort
    new = Receipt(
        number=len(receipts),
        event=charge.event,
        cohort=cohort,
        capacity=charge.capacity,
        bill=bill,
    )
    earlier = [receipt for receipt in receipts if receipt.cohort.meets(cohort)]
    epsilon = worst_case(_restrict_receipts(cohort, [*earlier, new]), budget.delta)
    if budget.trust is Trust.NONE or epsilon <= budget.epsilon * (1.0 + ROUNDING):
        return new
    raise BudgetExceededError(_describe_refusal(budget, earlier, new, epsilon))


def settle(receipts: Sequence[Receipt], receipt: Receipt, used: int) -> Receipt:
    """Return the receipt with what was really used, for the caller to store in its place.

    Raises:
        CapacityExceededError: more was used than paid for.
        InvalidValueError: the receipt is not of this ledger, or is settled already.
    """
    used = whole("used", used, low=0)
    if not 0 <= receipt.number < len(receipts):
        raise InvalidValueError(f"receipt {receipt.number} is not in this ledger")
    stored = receipts[receipt.number]
    if replace(receipt, used=stored.used) != stored:
        raise InvalidValueError(f"receipt {receipt.number} differs from the one in this ledger")
    if stored.used is not None:
        raise InvalidValueError(f"receipt {receipt.number} is settled already, at {stored.used}")
    if used > stored.capacity:
        raise CapacityExceededError(
            f"receipt {receipt.number} was paid for {stored.capacity} participations per user and "
            f"{used} were used; the promise is broken for those users: charge the difference"
        )
    return replace(stored, used=used)


def _restrict_receipts(cohort: Cohort, receipts: Iterable[Receipt]) -> list[Receipt]:
    """Cut every receipt to the cohort, since a new charge changes nobody else's bill."""

    def intersect(interval: Cohort) -> Cohort:
        return Cohort(first=max(cohort.first, interval.first), last=min(cohort.last, interval.last))

    return [replace(receipt, cohort=intersect(receipt.cohort)) for receipt in receipts]


def _describe_refusal(
    budget: Guarantee, earlier: Sequence[Receipt], new: Receipt, epsilon: float
) -> str:
    cohort = new.cohort
    spent = worst_case(_restrict_receipts(cohort, earlier), budget.delta)
    return (
        f"{new.event} at most {new.capacity} times per user, for the users of rounds "
        f"{cohort.first} to {cohort.last - 1}, would bring them to epsilon {epsilon:.6g} at delta "
        f"{budget.delta:.6g}; the budget is {budget.epsilon:.6g}, of which {spent:.6g} is spent "
        f"and {max(0.0, budget.epsilon - spent):.6g} is left; nothing was charged. "
        f"{_describe_remedy(budget, earlier, new)}"
    )


def _describe_remedy(budget: Guarantee, earlier: Sequence[Receipt], new: Receipt) -> str:
    costs = [receipt.cost for receipt in earlier]
    is_closed_form = all(isinstance(leaf, _CLOSED_FORM) for leaf in leaves(costs))
    if isinstance(new.event, Gaussian) and budget.delta > 0 and is_closed_form:

        def fits(m: float) -> bool:
            candidate = replace(new, event=Gaussian(noise_multiplier=m))
            return (
                worst_case(_restrict_receipts(new.cohort, [*earlier, candidate]), budget.delta)
                <= budget.epsilon
            )

        if fits(1e4):
            return f"A noise multiplier of {least(fits) * 1.00001:.6g} or more would fit."
    advice = (
        "Use more noise, fewer participations per user, or other users, or ask for a larger budget."
    )
    if all(receipt.bill == new.bill for receipt in earlier):
        return advice
    return (
        "What is charged after a user's first bill must add up to the budget in pure epsilon or in "
        "rho of zCDP; coins and randomized bits have neither (privacy/composition.md). "
        f"{advice}"
    )
