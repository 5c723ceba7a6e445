"""What every ledger must do: charge first, refuse without a trace, and be readable by others."""

from __future__ import annotations

import importlib
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from kerchief.checks.errors import expect, laws_of
from kerchief.core.errors import (
    BudgetExceededError,
    CapacityExceededError,
    InvalidValueError,
    KerchiefError,
    UnsupportedEventError,
)
from kerchief.privacy import (
    Cohort,
    Composed,
    Event,
    Gaussian,
    Guarantee,
    NonPrivate,
    Nothing,
    RandomizedResponse,
    Receipt,
    Repeated,
    Trust,
    epsilon_at,
    gaussian_noise_multiplier,
    to_dp_event,
)
from kerchief.privacy.receipts import Charge, read_ledger

_BUDGET = Guarantee(epsilon=2.0, delta=1e-5, trust=Trust.CENTRAL)
_ALL, _EARLY, _LATE = (Cohort(first=a, last=b) for a, b in ((0, 100), (0, 50), (50, 100)))
_FULL = Gaussian(noise_multiplier=gaussian_noise_multiplier(2.0, 1e-5))
_PARTS = tuple(Gaussian(noise_multiplier=m) for m in (6.0, 9.0, 14.0))
# Numbers of responses and the epsilon of each: the second bills tempt where different answers came.
_SMALL = Guarantee(epsilon=0.3, delta=1e-6, trust=Trust.CENTRAL)
_FIRST_BILL = (40, 0.006)
_SECOND_BILLS = ((10, 0.006), (121, 0.006), (21, 0.015), (6, 0.03), (3, 0.06), (1, 0.165))


@dataclass(frozen=True, kw_only=True)
class _Unheard(Event):
    """An event that no accountant knows."""

    kind: ClassVar[str] = "unheard"


@dataclass(frozen=True, kw_only=True)
class Ledgers:
    """A way to open ledgers; every law opens its own."""

    open: Callable[[Guarantee], Any]

    def __str__(self) -> str:
        """The maker's name."""
        return getattr(self.open, "__name__", "the ledger")


def nothing_costs_nothing(ledgers: Ledgers) -> None:
    """An empty ledger, and one charged for nothing, has spent 0."""
    ledger = ledgers.open(_BUDGET)
    expect(_get_epsilon(ledger) == 0.0, seen=f"{_get_epsilon(ledger)} when empty", expected=0.0)
    ledger.charge(Nothing(), cohort=_ALL, capacity=1000)
    ledger.charge(Repeated(event=_FULL, count=0), cohort=_ALL)
    expect(_get_epsilon(ledger) == 0.0, seen=f"{_get_epsilon(ledger)} for nothing", expected=0.0)


def no_privacy_costs_everything(ledgers: Ledgers) -> None:
    """NonPrivate is refused by every promise, and costs infinity where nothing is promised."""
    _expect_raises(BudgetExceededError, ledgers.open(_BUDGET), NonPrivate())
    free = ledgers.open(Guarantee(epsilon=math.inf, delta=0.0, trust=Trust.NONE))
    free.charge(NonPrivate(), cohort=_ALL)
    expect(_get_epsilon(free) == math.inf, seen=_get_epsilon(free), expected=math.inf)


def unknown_events_are_refused_at_any_depth(ledgers: Ledgers) -> None:
    """An event that nobody can price is refused wherever it hides, also without a promise."""
    deep = Composed(events=(_FULL, Repeated(event=Composed(events=(_Unheard(),)), count=2)))
    for event in (_Unheard(), Repeated(event=_Unheard(), count=3), deep):
        for budget in (_BUDGET, Guarantee(epsilon=math.inf, delta=0.0, trust=Trust.NONE)):
            _expect_raises(UnsupportedEventError, ledgers.open(budget), event)


def order_of_charges_is_irrelevant(ledgers: Ledgers) -> None:
    """The same charges in any order spend the same."""
    costs = [
        _get_epsilon(_open_charged_ledger(ledgers, order))
        for order in itertools.permutations(_PARTS)
    ]
    alike = max(costs) - min(costs) <= 1e-12 * max(costs)
    expect(alike, seen=f"from {min(costs)} to {max(costs)}", expected="one cost")


def disjoint_cohorts_take_the_worst(ledgers: Ledgers) -> None:
    """Users in one cohort do not pay for those in another."""
    apart = ledgers.open(_BUDGET)
    apart.charge(_PARTS[0], cohort=_EARLY)
    apart.charge(_PARTS[1], cohort=_LATE)
    dearest = epsilon_at(_PARTS[:1], _BUDGET.delta)
    expect(_is_close(_get_epsilon(apart), dearest), seen=_get_epsilon(apart), expected=dearest)


def overlapping_cohorts_add_up(ledgers: Ledgers) -> None:
    """A user in two cohorts pays for both, even if it is one user alone."""
    first = Charge(event=_PARTS[0], cohort=Cohort(first=0, last=51))
    second = Charge(event=_PARTS[1], cohort=_LATE)
    ledger = ledgers.open(_BUDGET)
    ledger.charge_all([first, second])
    total = epsilon_at(_PARTS[:2], _BUDGET.delta)
    expect(_is_close(_get_epsilon(ledger), total), seen=_get_epsilon(ledger), expected=total)


def more_charges_never_cost_less(ledgers: Ledgers) -> None:
    """Each charge raises what is spent and lowers what remains; so does capacity."""
    costs = [
        _get_epsilon(_open_charged_ledger(ledgers, _PARTS[:n])) for n in range(len(_PARTS) + 1)
    ]
    expect(costs == sorted(set(costs)), seen=f"costs {costs}", expected="each above the last")
    ledger = ledgers.open(_BUDGET)
    ledger.charge(_PARTS[2], cohort=_ALL, capacity=3)
    cost, single_cost = (
        _get_epsilon(ledger),
        _get_epsilon(_open_charged_ledger(ledgers, _PARTS[2:])),
    )
    expect(
        cost > single_cost,
        seen=f"{cost} for three, {single_cost} for one",
        expected="more for three",
    )
    remainder = ledger.remaining().epsilon
    expect(
        _is_close(remainder + cost, _BUDGET.epsilon),
        seen=f"{remainder} remain",
        expected="the rest",
    )


def refusal_leaves_no_trace(ledgers: Ledgers) -> None:
    """After BudgetExceededError the ledger is as it was, and still serves what fits."""
    ledger = ledgers.open(_BUDGET)
    ledger.charge(_PARTS[0], cohort=_EARLY)
    _expect_raises(BudgetExceededError, ledger, _FULL)
    _expect_raises(BudgetExceededError, ledger, Repeated(event=_PARTS[0], count=50))
    ledger.charge(_FULL, cohort=_LATE)


def bills_are_paid_whole_or_not_at_all(ledgers: Ledgers) -> None:
    """A bill whose last line does not fit leaves no line; one that fits, one receipt per line."""
    ledger = ledgers.open(_BUDGET)
    lines = [Charge(event=_PARTS[0], cohort=_EARLY), Charge(event=_PARTS[1], cohort=_LATE)]
    for last, kind in ((_FULL, BudgetExceededError), (_Unheard(), UnsupportedEventError)):
        bill = [*lines, Charge(event=last, cohort=_ALL)]
        _expect_raises(kind, ledger, partial(ledger.charge_all, bill))
    receipts = tuple(ledger.charge_all(lines))
    is_complete = receipts == ledger.receipts and [r.event for r in receipts] == [
        c.event for c in lines
    ]
    expect(is_complete, seen=ledger.receipts, expected="one receipt per line")


def settling_only_lowers_and_only_once(ledgers: Ledgers) -> None:
    """What was used replaces the capacity: never above it, and never again."""
    ledger = ledgers.open(_BUDGET)
    receipt = ledger.charge(_PARTS[2], cohort=_ALL, capacity=4)
    dear = _get_epsilon(ledger)
    _expect_raises(CapacityExceededError, ledger, lambda: ledger.settle(receipt, used=5))
    ledger.settle(receipt, used=2)
    cheap = _get_epsilon(ledger)
    expect(cheap < dear, seen=f"{cheap} after settling, {dear} before", expected="less")
    for count in (0, 1, 2, 4):
        _expect_raises(InvalidValueError, ledger, partial(ledger.settle, receipt, used=count))


def charges_come_first(ledgers: Ledgers) -> None:
    """A charge is on the books when it returns, and nothing settles without its own receipt."""
    ledger = ledgers.open(_BUDGET)
    receipt = ledger.charge(_PARTS[0], cohort=_ALL)
    expect(ledger.receipts == (receipt,), seen=ledger.receipts, expected=(receipt,))
    expect(receipt.used is None, seen=f"used {receipt.used}", expected="an open receipt")
    forged = (
        Receipt(number=7, event=_PARTS[0], cohort=_ALL, capacity=1),
        Receipt(number=0, event=_PARTS[1], cohort=_ALL, capacity=1),
        Receipt(number=0, event=_PARTS[0], cohort=_ALL, capacity=9),
    )
    for forgery in forged:
        _expect_raises(InvalidValueError, ledger, partial(ledger.settle, forgery, used=0))


def written_ledgers_read_back(ledgers: Ledgers) -> None:
    """`dumps` and `loads` keep every receipt, open or settled, and what was spent."""
    ledger = _open_charged_ledger(ledgers, _PARTS)
    ledger.settle(ledger.receipts[1], used=0)
    text = ledger.dumps()
    again = type(ledger).loads(text)
    same = (again.budget, again.receipts) == (ledger.budget, ledger.receipts)
    expect(same, seen=again.receipts, expected=ledger.receipts)
    expect(
        _get_epsilon(again) == _get_epsilon(ledger),
        seen=_get_epsilon(again),
        expected=_get_epsilon(ledger),
    )
    expect(again.dumps() == text, seen="another text", expected="the same text")


def another_accountant_agrees(ledgers: Ledgers) -> None:
    """From the text alone dp_accounting finds the same epsilon for Gaussians, to 1e-3."""
    ledger = ledgers.open(_BUDGET)
    ledger.charge_all([Charge(event=event, cohort=_ALL) for event in _PARTS])
    budget, receipts = read_ledger(ledger.dumps())
    library: Any = importlib.import_module("dp_accounting")
    relation = library.NeighboringRelation.REPLACE_SPECIAL
    accountant = library.pld.PLDAccountant(neighboring_relation=relation)
    for receipt in receipts:
        accountant.compose(to_dp_event(receipt.cost))
    library_epsilon, ledger_epsilon = (
        float(accountant.get_epsilon(budget.delta)),
        _get_epsilon(ledger),
    )
    expect(
        math.isclose(library_epsilon, ledger_epsilon, rel_tol=1e-3),
        seen=ledger_epsilon,
        expected=f"{library_epsilon}, by another",
    )


def charges_chosen_by_answers_keep_the_promise(ledgers: Ledgers) -> None:
    """An analyst who chooses a second bill by the answers to the first gains no delta.

    All answers are randomized response, so the true delta at the budget's epsilon is a finite sum.
    """
    bills = [bill for bill in _SECOND_BILLS if _admits(ledgers, _FIRST_BILL, bill)]
    delta = math.fsum(
        chance * max(_compute_delta(bill, _SMALL.epsilon - loss) for bill in [(0, 1.0), *bills])
        for loss, chance in _list_losses(*_FIRST_BILL)
    )
    expect(delta <= _SMALL.delta, seen=f"delta {delta:.3g}", expected=f"at most {_SMALL.delta}")


def _admits(ledgers: Ledgers, *bills: tuple[int, float]) -> bool:
    """Whether a ledger admits so many responses of an epsilon, one bill after another."""
    ledger = ledgers.open(_SMALL)
    try:
        for count, epsilon in bills:
            ledger.charge(RandomizedResponse(epsilon=epsilon), cohort=_ALL, capacity=count)
    except BudgetExceededError:
        return False
    return True


def _list_losses(count: int, epsilon: float) -> list[tuple[float, float]]:
    """The privacy losses of so many responses, with their chances."""
    truth = 1 / (1 + math.exp(-epsilon))
    return [
        (
            (2 * k - count) * epsilon,
            math.comb(count, k) * truth**k * (1 - truth) ** (count - k),
        )
        for k in range(count + 1)
    ]


def _compute_delta(bill: tuple[int, float], epsilon: float) -> float:
    losses = _list_losses(*bill)
    return math.fsum(p * -math.expm1(epsilon - loss) for loss, p in losses if loss > epsilon)


def _get_epsilon(ledger: Any) -> float:
    return float(ledger.spent().epsilon)


def _is_close(value: float, expected: float) -> bool:
    return math.isclose(value, expected, rel_tol=1e-9)


def _open_charged_ledger(ledgers: Ledgers, events: tuple[Event, ...]) -> Any:
    ledger = ledgers.open(_BUDGET)
    for event in events:
        ledger.charge(event, cohort=_ALL)
    return ledger


def _expect_raises(
    kind: type[KerchiefError], ledger: Any, act: Event | Callable[[], object]
) -> None:
    """Charging the event (or the act itself) raises this error and leaves no trace."""
    before = ledger.receipts, ledger.spent(), ledger.remaining()
    raised: BaseException | None = None
    try:
        ledger.charge(act, cohort=_ALL) if isinstance(act, Event) else act()
    except KerchiefError as error:
        raised = error
    expect(isinstance(raised, kind), seen=repr(raised), expected=f"{kind.__name__} for {act}")
    after = ledger.receipts, ledger.spent(), ledger.remaining()
    expect(before == after, seen=f"{len(after[0])} receipts, {after[1]}", expected="no trace")


LEDGER_LAWS = laws_of(
    nothing_costs_nothing,
    no_privacy_costs_everything,
    unknown_events_are_refused_at_any_depth,
    order_of_charges_is_irrelevant,
    disjoint_cohorts_take_the_worst,
    overlapping_cohorts_add_up,
    more_charges_never_cost_less,
    refusal_leaves_no_trace,
    bills_are_paid_whole_or_not_at_all,
    settling_only_lowers_and_only_once,
    charges_come_first,
    written_ledgers_read_back,
    another_accountant_agrees,
    charges_chosen_by_answers_keep_the_promise,
    cheap=True,
)
"""Every law of a ledger."""
