"""Decisions whose reports have not arrived yet, in memory or in a file.

Each step is one transaction.

A row goes from `decided` to `rewarded` to `encoded` and is then removed. The step to `encoded`
writes the report's bytes, erases the record that they were made from and charges the user's own
ledger, all at once: so a report is made once, whatever crashes, and no second one of the same
record can be.

Raw records leave no trace in the files once they are erased: freed space is overwritten, and the
journal is emptied with every report that is made. That a disk forgets is not promised.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from kerchief_device.file_rows import FileRows
from kerchief_device.memory_rows import MemoryRows
from kerchief_device.rows import Cost, PostedModel, Row, Rows, T
from kerchief_protocol.errors import (
    BudgetExceededError,
    FencedError,
    InvalidValueError,
    KerchiefError,
    StoreError,
)

__all__ = ["Bill", "Budget", "Cost", "Pending", "PostedModel", "Row"]


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Privacy budget of one user for all reports; epsilons add up, and so do deltas.

    Attributes:
        epsilon: the most in all.
        delta: the most in all.
    """

    epsilon: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        """Check the bounds."""
        if not (self.epsilon >= 0 and 0 <= self.delta < 1):
            raise InvalidValueError(
                f"the budget is epsilon {self.epsilon} and delta {self.delta}; give at least 0, "
                "and a delta below 1"
            )

    def pays(self, cost: Cost) -> bool:
        """Whether the budget covers a cost, up to rounding of the sum."""
        return cost.epsilon <= self.epsilon * (1 + 1e-12) and cost.delta <= self.delta * (1 + 1e-12)


Bill: TypeAlias = tuple[Cost, Budget | None]
"""What a report costs, and what may be spent."""


class Pending:
    """Store of decisions, safe for threads and for processes that share its file.

    Keep the file out of backups: a copy from before a report could make another one.

    Attributes:
        secret: 32 random bytes that the store was begun with, and that all its copies have.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        """Open or create a store.

        Args:
            path: of a file that nobody but its owner can read; None keeps everything in memory,
                for as long as the object lives.

        Raises:
            StoreError: there can be no such file, or it is something else.
        """
        self._process = os.getpid()
        with _STORE_FAILURES:
            self._rows: Rows = MemoryRows() if path is None else FileRows(path)
            self.secret = self._rows.secret

    def copy_to(self, path: str | os.PathLike[str]) -> None:
        """Write everything into a new file, for a store that moves there."""
        with _STORE_FAILURES:
            self._rows.copy_to(path)

    def close(self) -> None:
        """Close the store; nothing is lost but what was kept in memory."""
        self._rows.close()

    def decided(
        self,
        id: bytes,
        task: bytes,
        *,
        due: float,
        version: int | None = None,
        model: PostedModel | None = None,
        chain: tuple[int, bytes] | None = None,
        features: bytes | None = None,
    ) -> None:
        """Add a decision, unless its id exists already.

        Args:
            id: of the decision.
            task: whose decision it is.
            due: when its report is to be made.
            version: of the model that chose.
            model: that model.
            chain: length and head of the chain that a signed model goes with; None where the model
                is not signed.
            features: of the chosen arm.

        Raises:
            FencedError: the device has seen a longer chain, or another one of this length.
        """
        row = Row(state="decided", due=due, version=version, posted=model, features=features)

        def begin() -> None:
            if chain is not None:
                _follow_chain(self._rows, task, *chain)
            self._rows.add(id, task, row)

        self._step(begin)

    def rewarded(self, id: bytes, task: bytes, reward: float, more: bytes = b"") -> bool:
        """Record a reward; return whether it is the first, and precedes the report.

        Args:
            id: of the decision.
            task: whose decision it is.
            reward: that came.
            more: what takes the place of the last features, where a reward is more than one
                number: a row is as long with a reward as without.

        Raises:
            InvalidValueError: there is no such decision.
        """

        def note() -> bool:
            row = _find_row(self._rows, id, task)
            if row.state != "decided":
                return False
            changed = Row(
                state="rewarded",
                due=row.due,
                version=row.version,
                posted=row.posted,
                features=row.features if not more else (row.features or b"")[: -len(more)] + more,
                reward=reward,
            )
            self._rows.change(id, task, changed)
            return True

        return self._step(note)

    def row(self, id: bytes, task: bytes) -> Row:
        """Return one decision.

        Raises:
            InvalidValueError: there is no such decision.
        """
        return self._step(lambda: _find_row(self._rows, id, task))

    def due(self, task: bytes, now: float) -> tuple[bytes, ...]:
        """Return ids of decisions whose report is due, or has not arrived."""
        return self._step(lambda: self._rows.due(task, now))

    def encoded(
        self,
        id: bytes,
        task: bytes,
        make: Callable[[Row], bytes],
        *,
        check: Callable[[Row], None] = lambda row: None,
        bill: Bill | None = None,
    ) -> bytes:
        """Return the report of a decision, made and charged at the first call.

        Args:
            id: of the decision.
            task: whose decision it is.
            make: makes the report from the row; called once, unless it raises.
            check: raises where no report may be made of the row; called before anything is charged.
            bill: what the report costs its user, and what their budget is, if they have one.

        Raises:
            InvalidValueError: there is no such decision.
            BudgetExceededError: the budget does not pay for it; the record is erased unreported.
        """

        def encode() -> tuple[bytes | BudgetExceededError, bool]:
            rows = self._rows
            row = _find_row(rows, id, task)
            if row.report is not None:
                return row.report, False
            check(row)
            outcome = (bill and _charge(rows, task, *bill)) or make(row)
            if isinstance(outcome, BudgetExceededError):
                rows.drop(id, task)
            else:
                rows.change(id, task, Row(state="encoded", due=row.due, report=outcome))
            rows.sweep(row.posted)
            return outcome, True

        report, new = self._step(encode)
        if new:
            self._erase()
        if isinstance(report, BudgetExceededError):
            raise report
        return report

    def gone(
        self, id: bytes, task: bytes, *, remember: bool = False, if_made: bool = False
    ) -> None:
        """Remove a decision, if it exists.

        Args:
            id: of the decision.
            task: whose decision it is.
            remember: keep the id.
            if_made: only if a report was made.
        """

        def remove() -> bool:
            rows = self._rows
            row = rows.find(id, task)
            if row is None:
                return False
            if remember and not (if_made and row.report is None):
                rows.change(id, task, Row(state="gone", due=row.due))
            else:
                rows.drop(id, task)
            rows.sweep(row.posted)
            return row.features is not None

        if self._step(remove):
            self._erase()

    def forget_chain(self, task: bytes) -> None:
        """Forget the longest chain of a task, and nothing else."""
        self._step(lambda: self._rows.forget_chain(task))

    def spent(self) -> Cost:
        """Return the privacy cost of all reports of this store."""
        return self._step(self._rows.spent)

    def _erase(self) -> None:
        with _STORE_FAILURES:
            self._rows.erase()

    def _step(self, work: Callable[[], T]) -> T:
        """Erase what an earlier transaction left, then run one exclusive transaction."""
        if os.getpid() != self._process:
            raise InvalidValueError("the store was opened by another process; open it in this one")
        with _STORE_FAILURES:
            self._rows.erase(only_late=True)
            return self._rows.step(work)


class _StoreFailureContext:
    """Context that raises `StoreError` where reading or writing the store fails."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, fault: BaseException | None, trace: object) -> None:
        is_own = isinstance(fault, KerchiefError)
        if isinstance(fault, sqlite3.Error | OSError | ValueError) and not is_own:
            raise StoreError(
                f"the device's store failed: {fault}; nothing is half written"
            ) from fault


_STORE_FAILURES = _StoreFailureContext()


def _find_row(rows: Rows, id: bytes, task: bytes) -> Row:
    row = rows.find(id, task)
    if row is None:
        raise InvalidValueError(
            f"no decision {id.hex()} is pending here; it was never made, or has been reported"
        )
    return row


def _follow_chain(rows: Rows, task: bytes, length: int, head: bytes) -> None:
    """Remember the longest chain of signed models, and refuse any other chain."""
    longest = rows.chain(task)
    if longest is not None and (
        length < longest[0] or (length == longest[0] and head != longest[1])
    ):
        raise FencedError(
            f"the signed model names a chain of {length} lines, and an earlier one named another "
            f"chain of {longest[0]}; the aggregator was rolled back, or the learner signed a false "
            "chain: ask the operator, and call Device.forget_chain to go on"
        )
    if longest is None or length > longest[0]:
        rows.lengthen(task, length, head)


def _charge(
    rows: Rows, task: bytes, cost: Cost, budget: Budget | None
) -> BudgetExceededError | None:
    """Charge one report, or return the error that says why it is not paid for."""
    spent = rows.spent()
    if budget is not None and not budget.pays(
        Cost(spent.epsilon + cost.epsilon, spent.delta + cost.delta)
    ):
        return BudgetExceededError(
            f"epsilon {spent.epsilon:g} and delta {spent.delta:g} are spent, and a report costs "
            f"{cost.epsilon:g} and {cost.delta:g}: more than the budget of {budget.epsilon:g} and "
            f"{budget.delta:g}; no report was made"
        )
    rows.charge(task, cost)
    return None
