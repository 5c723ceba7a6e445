"""The ledger: charged before any noise is drawn, it refuses what the budget cannot pay."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Protocol

from kerchief.privacy import rules
from kerchief.privacy.events import Event
from kerchief.privacy.guarantee import Guarantee
from kerchief.privacy.receipts import Charge, Cohort, Receipt, read_ledger, write_ledger


class Ledger(Protocol):
    """All receipts of one run, against one budget that holds for each user.

    Formal guarantees:
        Each user's interaction with all that is charged is (ε, δ)-private, the numbers of the
        budget, also if every bill, and the number really used that `settle` is told, are chosen
        by what was released before, and by nothing else about the data (`composition.md`). What
        stands on one bill must be fixed before any of it is released: it is priced as a whole.
        A user's later bills pass a privacy filter: either the pure ε of all events add up to at
        most ε, or their ρ to at most the ρ that (ε, δ) fixes. Events that are neither pure nor
        zCDP (sums of coins, randomized bits) can only stand on a user's first bill, alone.

    >>> ledger: Ledger = MemoryLedger(Guarantee(epsilon=1.0, delta=1e-6, trust="local"))
    >>> ledger.spent().epsilon, ledger.remaining().epsilon
    (0.0, 1.0)
    """

    @property
    def budget(self) -> Guarantee:
        """Return what may be spent on each user."""

    @property
    def receipts(self) -> tuple[Receipt, ...]:
        """Return every charge so far, in order."""

    def charge(self, event: Event, *, cohort: Cohort, capacity: int = 1) -> Receipt:
        """Pay for an event before it happens, or raise BudgetExceededError and leave no trace."""

    def charge_all(self, bill: Sequence[Charge]) -> tuple[Receipt, ...]:
        """Pay for every line of a bill, or for none of them."""

    def settle(self, receipt: Receipt, used: int) -> Receipt:
        """Record what was really used; it can only lower the bill, and only once."""

    def spent(self) -> Guarantee:
        """Return the least budget that admits what the worst-off user was charged.

        The promise is the budget; this is a price.
        """

    def remaining(self) -> Guarantee:
        """Return how far the worst-off user is from the budget."""


class MemoryLedger:
    """A ledger in memory, safe to share between threads.

    >>> from kerchief.privacy.events import Gaussian
    >>> from kerchief.privacy.guarantee import Trust
    >>> ledger = MemoryLedger(Guarantee(epsilon=1.0, delta=1e-5, trust=Trust.JOINT))
    >>> users = Cohort(first=0, last=100)
    >>> receipt = ledger.charge(Gaussian(noise_multiplier=20.0), cohort=users, capacity=16)
    >>> round(ledger.spent().epsilon, 3)
    0.726
    >>> settled = ledger.settle(receipt, used=4)
    >>> round(ledger.spent().epsilon, 3)
    0.341

    A later bill is added by the privacy filter, which costs a little more:

    >>> more = ledger.charge(Gaussian(noise_multiplier=20.0), cohort=users, capacity=12)
    >>> round(ledger.spent().epsilon, 3)
    0.794
    """

    def __init__(self, budget: Guarantee) -> None:
        """Open an empty ledger on what may be spent on each user."""
        self._budget = budget
        self._receipts: list[Receipt] = []
        self._lock = threading.Lock()

    @property
    def budget(self) -> Guarantee:
        """Return what may be spent on each user."""
        return self._budget

    @property
    def receipts(self) -> tuple[Receipt, ...]:
        """Return every charge so far, in order."""
        with self._lock:
            return tuple(self._receipts)

    def charge(self, event: Event, *, cohort: Cohort, capacity: int = 1) -> Receipt:
        """Pay for an event before it happens: a bill of one `Charge`."""
        return self.charge_all([Charge(event=event, cohort=cohort, capacity=capacity)])[0]

    def charge_all(self, bill: Sequence[Charge]) -> tuple[Receipt, ...]:
        """Pay for every line of a bill, or for none of them; receipts are still open.

        Raises:
            BudgetExceededError: a user would pay more than the budget; nothing was written.
            UnsupportedEventError: an event cannot be priced; nothing was written.
        """
        with self._lock:
            receipts = list(self._receipts)
            number = receipts[-1].bill + 1 if receipts else 0
            for line in bill:
                receipts.append(rules.admit(self._budget, receipts, line, bill=number))
            granted = tuple(receipts[len(self._receipts) :])
            self._receipts = receipts
            return granted

    def settle(self, receipt: Receipt, used: int) -> Receipt:
        """Record the largest number of times that any one user really took part.

        Raises:
            CapacityExceededError: more was used than paid for.
            InvalidValueError: the receipt is unknown, or settled already.
        """
        with self._lock:
            closed_receipt = rules.settle(self._receipts, receipt, used)
            self._receipts[closed_receipt.number] = closed_receipt
            return closed_receipt

    def spent(self) -> Guarantee:
        """Return the least ε that admits what the worst-off user was charged, at the budget's δ."""
        return rules.total(self._budget, self.receipts)

    def remaining(self) -> Guarantee:
        """Return how far the worst-off user is from the budget, at the budget's δ."""
        return rules.headroom(self._budget, self.receipts)

    def dumps(self) -> str:
        """Return the whole ledger as JSON text, which another accountant can read."""
        return write_ledger(self._budget, self.receipts)

    @classmethod
    def loads(cls, text: str) -> MemoryLedger:
        """Read back what `dumps` wrote."""
        budget, receipts = read_ledger(text)
        ledger = cls(budget)
        ledger._receipts = list(receipts)
        return ledger
