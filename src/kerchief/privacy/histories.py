"""Histories of charges: the bills of each user, and their price (`composition.md`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from kerchief.privacy.composition import epsilon_at, filter_epsilon, leaves
from kerchief.privacy.events import Event, Repeated
from kerchief.privacy.receipts import Receipt


@dataclass(frozen=True, kw_only=True)
class History:
    """Charges of a user, bill by bill.

    Attributes:
        bills: the events of every bill that is open or of which something was used, in order.
        reserved: the events of the first of these bills at their capacities.
    """

    bills: tuple[tuple[Event, ...], ...]
    reserved: tuple[Event, ...]

    @property
    def events(self) -> list[Event]:
        """Events of all bills of the user."""
        return [event for bill in self.bills for event in bill]

    def price(self, delta: float) -> float:
        """Return the least ε of a budget that admits this history, at this δ.

        A single bill was fixed in advance and is priced as a whole. Further bills may depend on
        earlier releases: then the privacy filter must hold for all events. It must also hold for
        all that the first bill reserved, since its releases may decide how much of it is used.
        """
        if len(self.bills) < 2:
            return epsilon_at(self.events, delta)
        return max(filter_epsilon(part, delta) for part in (self.reserved, self.events))

    def map(self, change: Callable[[Event], Event]) -> History:
        """Return the history with each event changed."""
        bills = tuple(tuple(map(change, bill)) for bill in self.bills)
        return replace(self, bills=bills, reserved=tuple(map(change, self.reserved)))


class _Line(NamedTuple):
    """An event of a bill, as reserved or as charged, which a sweep over users counts."""

    bill: int
    reserved: bool
    event: Event


def histories(receipts: Iterable[Receipt]) -> list[History]:
    """List the distinct histories of users, by a sweep over rounds where they change."""
    changes: dict[int, Counter[_Line]] = {}
    for receipt in receipts:
        lines = _lines(receipt)
        changes.setdefault(receipt.cohort.first, Counter()).update(lines)
        changes.setdefault(receipt.cohort.last, Counter()).subtract(lines)
    counts: Counter[_Line] = Counter()
    distinct: set[frozenset[tuple[_Line, int]]] = set()
    for place in sorted(changes):
        counts.update(changes[place])
        distinct.add(frozenset((line, count) for line, count in counts.items() if count))
    return [_history(entries) for entries in distinct]


def _lines(receipt: Receipt) -> Counter[_Line]:
    charged_count = receipt.capacity if receipt.used is None else receipt.used
    parts = leaves([receipt.event]).items()
    return Counter(
        {
            _Line(receipt.bill, reserved, event): count * times
            for reserved, times in ((True, receipt.capacity), (False, charged_count))
            for event, count in parts
        }
    )


def _history(entries: Iterable[tuple[_Line, int]]) -> History:
    charged_events: dict[int, list[Event]] = {}
    reserved_events: dict[int, list[Event]] = {}
    for line, count in entries:
        part = reserved_events if line.reserved else charged_events
        part.setdefault(line.bill, []).append(Repeated(event=line.event, count=count))
    return History(
        bills=tuple(tuple(charged_events[bill]) for bill in sorted(charged_events)),
        reserved=tuple(reserved_events[min(charged_events)]) if charged_events else (),
    )
