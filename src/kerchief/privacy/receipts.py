"""Proof that something was paid for: who took part, in what, and how often at most."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from kerchief.core.errors import CodecError, InvalidValueError, KerchiefError
from kerchief.core.validate import MOST_ROUNDS, plain, whole
from kerchief.privacy.events import Event, Repeated, event_from_dict
from kerchief.privacy.guarantee import Guarantee

FORMAT = "kerchief-ledger/1"
# A task that begins anew has places of its own for each horizon; every reader of JSON knows these.
_MOST_PLACES = 2**53 - 1


@dataclass(frozen=True, kw_only=True)
class Cohort:
    """The users of rounds first, first + 1, ..., last − 1."""

    first: int
    last: int

    def __post_init__(self) -> None:
        """Check the values."""
        plain(self)
        whole("first", self.first, low=0, high=_MOST_PLACES - 1)
        whole("last", self.last, low=self.first + 1, high=_MOST_PLACES)

    def meets(self, other: Cohort) -> bool:
        """Return whether some user is in both.

        >>> Cohort(first=0, last=5).meets(Cohort(first=5, last=9))
        False
        """
        return self.first < other.last and other.first < self.last


@dataclass(frozen=True, kw_only=True)
class Charge:
    """One line of a bill.

    Attributes:
        event: what one participation is.
        cohort: who may take part.
        capacity: the largest number of times that any one user of the cohort takes part.
    """

    event: Event
    cohort: Cohort
    capacity: int = 1


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """A `Charge` that was paid.

    Attributes:
        number: its place in the ledger, from 0.
        used: how often any one user really took part, once settled; None while open.
        bill: the number of the bill in its ledger, from 0. What stands on one bill was fixed
            before any of it was released.
    """

    number: int
    event: Event
    cohort: Cohort
    capacity: int
    used: int | None = None
    bill: int = 0

    def __post_init__(self) -> None:
        """Check the values."""
        plain(self)
        whole("number", self.number, low=0)
        if not isinstance(self.event, Event):
            raise InvalidValueError(f"event is {self.event!r}; it must be an event")
        if not isinstance(self.cohort, Cohort):
            raise InvalidValueError(f"cohort is {self.cohort!r}; it must be a Cohort")
        whole("capacity", self.capacity, high=MOST_ROUNDS)
        if self.used is not None:
            whole("used", self.used, low=0, high=self.capacity)
        whole("bill", self.bill, low=0)

    @property
    def cost(self) -> Event:
        """Return what each user of the cohort is charged: `used` if settled, else capacity."""
        return Repeated(event=self.event, count=self.capacity if self.used is None else self.used)

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-able dictionary."""
        return {
            "number": self.number,
            "event": self.event.to_dict(),
            "first": self.cohort.first,
            "last": self.cohort.last,
            "capacity": self.capacity,
            "used": self.used,
            "bill": self.bill,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> Receipt:
        """Read back what `to_dict` wrote."""
        match data:
            case {
                "number": int() as number,
                "event": dict() as event,
                "first": int() as first,
                "last": int() as last,
                "capacity": int() as capacity,
                "used": int() | None as used,
                "bill": int() as bill,
                **rest,
            } if not rest:
                return cls(
                    number=number,
                    event=event_from_dict(event),
                    cohort=Cohort(first=first, last=last),
                    capacity=capacity,
                    used=used,
                    bill=bill,
                )
        fields = "number, event, first, last, capacity, used and bill"
        raise CodecError(f"a receipt has the fields {fields}; one of them is missing or odd")


def write_ledger(budget: Guarantee, receipts: Sequence[Receipt]) -> str:
    """Return a whole ledger as JSON text; every float reads back to the same bits."""
    content = {
        "format": FORMAT,
        "budget": budget.to_dict(),
        "receipts": [receipt.to_dict() for receipt in receipts],
    }
    return json.dumps(content, indent=1, allow_nan=False)


def read_ledger(text: str) -> tuple[Guarantee, tuple[Receipt, ...]]:
    """Read back what `write_ledger` wrote.

    Raises:
        CodecError: the text is not a ledger of this format.
        UnsupportedEventError: a receipt holds an event that this version does not know.
    """
    try:
        return _read_ledger(json.loads(text, object_pairs_hook=_build_object))
    except KerchiefError:
        raise
    except (TypeError, ValueError, RecursionError) as error:
        raise CodecError(f"the text is not JSON of a ledger: {error}") from error


def _build_object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Build an object from its pairs, and refuse one in which a key stands twice."""
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        raise CodecError("a key stands twice in the ledger; which of the two would count?")
    return mapping


def _read_ledger(content: object) -> tuple[Guarantee, tuple[Receipt, ...]]:
    match content:
        case {"format": str() as version, "budget": dict() as budget, "receipts": list() as rows}:
            if version != FORMAT:
                raise CodecError(
                    f"the ledger's format is {version!r}; this version reads {FORMAT!r}"
                )
            receipts = tuple(_read(row) for row in rows)
            if [receipt.number for receipt in receipts] != list(range(len(receipts))):
                raise CodecError("the receipts are not numbered 0, 1, 2, ...: one is missing")
            bills = [receipt.bill for receipt in receipts]
            if any(later - bill not in (0, 1) for bill, later in pairwise([0, *bills])):
                raise CodecError("the bills are not numbered 0, 0, ..., 1, ...: one is missing")
            return Guarantee.from_dict(budget), receipts
    raise CodecError("the text is JSON but not a ledger")


def _read(row: object) -> Receipt:
    if not isinstance(row, dict):
        raise CodecError(f"a receipt is a {type(row).__name__}; it must be an object")
    return Receipt.from_dict(row)
