"""The arithmetic of a ledger as pure functions, so that a store only has to keep receipts.

A ledger, whatever keeps it, does three things under its own lock: read the receipts, call one
of these functions, write the one receipt that it returns (before anyone acts on it).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from kerchief.core.errors import BudgetExceeded, CapacityExceeded, InvalidValue
from kerchief.core.validate import whole
from kerchief.privacy.composition import epsilon_at, leaves
from kerchief.privacy.events import DiscreteGaussian, Event, Gaussian, Repeated, Zcdp
from kerchief.privacy.guarantee import Guarantee, Trust
from kerchief.privacy.receipts import Charge, Cohort, Receipt
from kerchief.privacy.search import least

ROUNDING = 1e-9
"""A charge is accepted up to ε (1 + 1e-9): the only allowance, for rounding alone. What is
reported as spent is never rounded down to the budget."""

_CLOSED_FORM = (Gaussian, DiscreteGaussian, Zcdp)


def worst_case(receipts: Iterable[Receipt], delta: float) -> float:
    """Return the ε of the user who pays most, at this δ.

    Receipts whose cohorts share a user add up (adaptive composition); receipts on disjoint
    cohorts do not, since replacing one user touches one of them only (parallel composition).
    """
    return max((epsilon_at(bill, delta) for bill in bills(receipts)), default=0.0)


def total(budget: Guarantee, receipts: Iterable[Receipt]) -> Guarantee:
    """Return what the worst-off user has been charged, in the words of the budget."""
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


def admit(budget: Guarantee, receipts: Sequence[Receipt], charge: Charge) -> Receipt:
    """Return the receipt for a charge that fits the budget, for the caller to store.

    Of all earlier receipts, open ones count at capacity and settled ones at what was used.

    Raises:
        BudgetExceeded: some user of the cohort would pay more than the budget.
    """
    cohort = charge.cohort
    new = Receipt(number=len(receipts), event=charge.event, cohort=cohort, capacity=charge.capacity)
    known = [receipt for receipt in receipts if receipt.cohort.meets(cohort)]
    asked = worst_case(_within(cohort, [*known, new]), budget.delta)
    if budget.trust is Trust.NONE or asked <= budget.epsilon * (1.0 + ROUNDING):
        return new
    raise BudgetExceeded(_refusal(budget, known, new, asked))


def settle(receipts: Sequence[Receipt], receipt: Receipt, used: int) -> Receipt:
    """Return the receipt with what was really used, for the caller to store in its place.

    Raises:
        CapacityExceeded: more was used than paid for.
        InvalidValue: the receipt is not of this ledger, or is settled already.
    """
    used = whole("used", used, low=0)
    if not 0 <= receipt.number < len(receipts):
        raise InvalidValue(f"receipt {receipt.number} is not in this ledger")
    stored = receipts[receipt.number]
    if replace(receipt, used=stored.used) != stored:
        raise InvalidValue(f"receipt {receipt.number} differs from the one in this ledger")
    if stored.used is not None:
        raise InvalidValue(f"receipt {receipt.number} is settled already, at {stored.used}")
    if used > stored.capacity:
        raise CapacityExceeded(
            f"receipt {receipt.number} was paid for {stored.capacity} participations per user and "
            f"{used} were used; the promise is broken for those users: charge the difference"
        )
    return replace(stored, used=used)


def _within(cohort: Cohort, receipts: Iterable[Receipt]) -> list[Receipt]:
    """Cut every receipt to the cohort: a new charge changes nobody else's bill."""

    def cut(own: Cohort) -> Cohort:
        return Cohort(first=max(cohort.first, own.first), last=min(cohort.last, own.last))

    return [replace(receipt, cohort=cut(receipt.cohort)) for receipt in receipts]


def bills(receipts: Iterable[Receipt]) -> list[list[Event]]:
    """List the different bills that users have, by sweeping the rounds where they change."""
    changes: dict[int, Counter[Event]] = {}
    for receipt in receipts:
        cost = leaves([receipt.cost])
        changes.setdefault(receipt.cohort.first, Counter()).update(cost)
        changes.setdefault(receipt.cohort.last, Counter()).subtract(cost)
    bill: Counter[Event] = Counter()
    seen: set[frozenset[tuple[Event, int]]] = set()
    for at in sorted(changes):
        bill.update(changes[at])
        seen.add(frozenset((event, n) for event, n in bill.items() if n))
    return [[Repeated(event=event, count=n) for event, n in items] for items in seen]


def _refusal(budget: Guarantee, known: Sequence[Receipt], new: Receipt, asked: float) -> str:
    cohort = new.cohort
    spent = worst_case(_within(cohort, known), budget.delta)
    return (
        f"{new.event} at most {new.capacity} times per user, for the users of rounds "
        f"{cohort.first} to {cohort.last - 1}, would bring them to epsilon {asked:.6g} at delta "
        f"{budget.delta:.6g}; the budget is {budget.epsilon:.6g}, of which {spent:.6g} is spent "
        f"and {max(0.0, budget.epsilon - spent):.6g} is left; nothing was charged. "
        f"{_remedy(budget, known, new)}"
    )


def _remedy(budget: Guarantee, known: Sequence[Receipt], new: Receipt) -> str:
    kept = [receipt.cost for receipt in known]
    closed = all(isinstance(leaf, _CLOSED_FORM) for leaf in leaves(kept))
    if isinstance(new.event, Gaussian) and budget.delta > 0 and closed:

        def fits(m: float) -> bool:
            more = replace(new, event=Gaussian(noise_multiplier=m))
            return worst_case(_within(new.cohort, [*known, more]), budget.delta) <= budget.epsilon

        if fits(1e4):
            return f"A noise multiplier of {least(fits) * 1.00001:.6g} or more would fit."
    return (
        "Use more noise, fewer participations per user, or other users, or ask for a larger budget."
    )
