"""Broken ledgers, each of which the very law that it breaks must catch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from kerchief.checks import LEDGER_LAWS, CheckFailedError, Ledgers
from kerchief.core.errors import BudgetExceededError, UnsupportedEventError
from kerchief.privacy import Cohort, Event, Guarantee, MemoryLedger, Nothing, Receipt, worst_case
from kerchief.privacy.receipts import Charge
from kerchief.privacy.rules import admit

LAWS = {law.name: law for law in LEDGER_LAWS}


def _scaled(spent: Guarantee, factor: float) -> Guarantee:
    return replace(spent, epsilon=spent.epsilon * factor)


class Fee(MemoryLedger):
    """Takes a fee for opening."""

    def spent(self) -> Guarantee:
        spent = super().spent()
        return replace(spent, epsilon=spent.epsilon + 0.01)


class Open(MemoryLedger):
    """Writes whatever it is given."""

    def charge(self, event: Event, *, cohort: Cohort, capacity: int = 1) -> Receipt:
        number = len(self._receipts)
        receipt = Receipt(number=number, event=event, cohort=cohort, capacity=capacity)
        self._receipts.append(receipt)
        return receipt


class Polite(MemoryLedger):
    """Takes what it does not know for nothing."""

    def charge(self, event: Event, *, cohort: Cohort, capacity: int = 1) -> Receipt:
        try:
            return super().charge(event, cohort=cohort, capacity=capacity)
        except UnsupportedEventError:
            return super().charge(Nothing(), cohort=cohort, capacity=capacity)


class Moody(MemoryLedger):
    """Lets the last charge weigh more."""

    def spent(self) -> Guarantee:
        last: Any = self.receipts[-1].event if self.receipts else None
        return _scaled(super().spent(), 1 + 0.01 / last.noise_multiplier if last else 1.0)


class Communal(MemoryLedger):
    """Charges everyone for everything."""

    def charge(self, event: Event, *, cohort: Cohort, capacity: int = 1) -> Receipt:
        return super().charge(event, cohort=Cohort(first=0, last=100), capacity=capacity)


class Lenient(MemoryLedger):
    """Takes the dearest charge in place of their sum."""

    def spent(self) -> Guarantee:
        delta = self.budget.delta
        worst = max((worst_case([receipt], delta) for receipt in self.receipts), default=0.0)
        return replace(self.budget, epsilon=worst)


class Discount(MemoryLedger):
    """Gives a discount to good customers."""

    def spent(self) -> Guarantee:
        return _scaled(super().spent(), 1 / max(1, len(self.receipts)) ** 2)


class Tracing(MemoryLedger):
    """Writes what it refuses."""

    def charge(self, event: Event, *, cohort: Cohort, capacity: int = 1) -> Receipt:
        try:
            return super().charge(event, cohort=cohort, capacity=capacity)
        except BudgetExceededError:
            Open.charge(self, event, cohort=cohort, capacity=capacity)  # type: ignore[arg-type]
            raise


class LineByLine(MemoryLedger):
    """Pays the lines of a bill one after another, until one is refused."""

    def charge_all(self, bill: Sequence[Charge]) -> tuple[Receipt, ...]:
        return tuple(super(LineByLine, self).charge_all([line])[0] for line in bill)


class Raising(MemoryLedger):
    """Lets a bill rise again after it was settled."""

    def settle(self, receipt: Receipt, used: int) -> Receipt:
        stored = self._receipts[receipt.number]
        self._receipts[receipt.number] = replace(stored, used=None)
        return super().settle(receipt, used)


class Credulous(MemoryLedger):
    """Settles whatever receipt it is shown."""

    def settle(self, receipt: Receipt, used: int) -> Receipt:
        return super().settle(self._receipts[min(receipt.number, len(self._receipts) - 1)], used)


class Late(MemoryLedger):
    """Hands out receipts and writes them later."""

    @property
    def receipts(self) -> tuple[Receipt, ...]:
        return tuple(self._receipts[:-1])


class Reopening(MemoryLedger):
    """Forgets on the way to disk what was settled."""

    def dumps(self) -> str:
        content = json.loads(super().dumps())
        content["receipts"] = [{**receipt, "used": None} for receipt in content["receipts"]]
        return json.dumps(content)


class Understating(MemoryLedger):
    """Counts a tenth less than it should."""

    def spent(self) -> Guarantee:
        return _scaled(super().spent(), 0.9)


class Foreseeing(MemoryLedger):
    """Prices all charges as if they were fixed before the first answer."""

    def charge_all(self, bill: Sequence[Charge]) -> tuple[Receipt, ...]:
        receipts = list(self._receipts)
        for line in bill:
            receipts.append(admit(self._budget, receipts, line, bill=0))
        paid, self._receipts = tuple(receipts[len(self._receipts) :]), receipts
        return paid


FAULTS = [
    ("nothing costs nothing", Fee),
    ("no privacy costs everything", Open),
    ("unknown events are refused at any depth", Open),
    ("unknown events are refused at any depth", Polite),
    ("order of charges is irrelevant", Moody),
    ("disjoint cohorts take the worst", Communal),
    ("overlapping cohorts add up", Lenient),
    ("more charges never cost less", Discount),
    ("refusal leaves no trace", Tracing),
    ("bills are paid whole or not at all", LineByLine),
    ("settling only lowers and only once", Raising),
    ("charges come first", Credulous),
    ("charges come first", Late),
    ("written ledgers read back", Reopening),
    ("another accountant agrees", Understating),
    ("charges chosen by answers keep the promise", Foreseeing),
]


@pytest.mark.parametrize(("name", "kind"), FAULTS)
def test_the_law_catches_its_fault(name: str, kind: type[MemoryLedger]) -> None:
    with pytest.raises(CheckFailedError) as caught:
        LAWS[name](Ledgers(open=kind))
    assert [failure.law for failure in caught.value.failures] == [name]


def test_every_law_has_a_planted_fault() -> None:
    assert {law for law, _ in FAULTS} == set(LAWS)
