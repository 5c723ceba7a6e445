"""The curator: the aggregator, which adds up reports and releases totals that were paid for."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import numpy as np

from kerchief.core.contracts import BoundedLoss, Clock, Query, Released, Start, Tree
from kerchief.core.errors import CapacityExceeded, InvalidValue
from kerchief.core.precision import double_precision
from kerchief.core.random import AGGREGATOR, Stream
from kerchief.core.validate import real_array, whole
from kerchief.privacy.ledger import Ledger
from kerchief.privatizers.billing import Receipts, pay, settle
from kerchief.privatizers.privatizer import Privatizer
from kerchief.privatizers.schedule import At
from kerchief.roles.device import on_host
from kerchief.roles.messages import Answer, Answers, Ask, Batch, Done, Message, Mixed, Reports
from kerchief.roles.round import place
from kerchief.roles.uncopyable import Guarded

__all__ = ["Curator", "Desk"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Desk:
    """What the curator holds for one query: private under central trust, and more so under joint.

    Attributes:
        memory: what its privatizer keeps: released totals, or under joint trust the exact one.
        tally: the reports of the present cohort, added up.
        used: how many releases there were.
        covered: how many users the last one spoke about.
    """

    memory: Tree = dataclasses.field(repr=False)
    tally: Tree = dataclasses.field(repr=False)
    used: int = 0
    covered: int = 0


@double_precision
class Curator(Guarded):
    """Collects reports and releases totals: when the schedule is ready, within what was paid for.

    Under joint and central trust its users trust it: it holds exact sums and adds the noise. Under
    local trust the same object needs no trust at all, since it only adds up numbers that are safe
    to publish one by one. Either way no receipt means no release, and one too many is refused.

    >>> from kerchief.privacy import Guarantee, MemoryLedger
    >>> curator = Curator(privatizers={}, ledger=MemoryLedger(Guarantee(epsilon=1.0, delta=0.0,
    ...                   trust="local")), horizon=1)
    >>> curator.handle(Reports(ticket="a", answers={}))
    Traceback (most recent call last):
    ...
    kerchief.core.errors.CapacityExceeded: nothing was paid for yet; open the curator first
    >>> curator.open()
    {}
    >>> curator.handle(Reports(ticket="a", answers={})), curator.users
    (Done(), 1)
    """

    def __init__(
        self,
        *,
        privatizers: Mapping[str, Privatizer],
        ledger: Ledger,
        horizon: int,
        stream: Stream | None = None,
    ) -> None:
        """Set up the desks; nothing is charged before `open`.

        Args:
            privatizers: one per query.
            ledger: pays for everything.
            horizon: number of users.
            stream: the root of the run's randomness for simulated noise; exact noise needs none.
        """
        self.horizon = whole("horizon", horizon)
        self.users = 0
        self._privatizers = dict(privatizers)
        self._ledger = ledger
        self._stream = stream
        self._receipts: Receipts | None = None
        self._tickets: set[str] = set()
        self._desks = {name: _opened(privatizer) for name, privatizer in privatizers.items()}

    @property
    def releases(self) -> Mapping[str, int]:
        """How often each query was released."""
        return {name: desk.used for name, desk in self._desks.items()}

    @property
    def desks(self) -> Mapping[str, Desk]:
        """What a restart may have: what was released.

        The present cohort is forgotten: a copy that knew it could release it a second time.

        Raises:
            InvalidValue: a privatizer remembers more than releases.
        """
        kept = [name for name, one in self._privatizers.items() if not one.restorable]
        if kept:
            raise InvalidValue(
                f"a copy could not go on from the memory of {', '.join(kept)}: exact totals would "
                "be released again, and coins of devices would be missing; keep the process alive, "
                "or begin a new run with new users"
            )
        return {
            name: dataclasses.replace(desk, tally=_opened(self._privatizers[name]).tally)
            for name, desk in self._desks.items()
        }

    @property
    def tickets(self) -> frozenset[str]:
        """The reports that were counted."""
        return frozenset(self._tickets)

    def open(self) -> Receipts:
        """Pay for the whole run; before this no noise may be drawn, here or on a device.

        Raises:
            BudgetExceeded: the ledger refuses; the curator stays closed.
        """
        self._receipts = pay(self._privatizers, self._ledger, horizon=self.horizon)
        return self._receipts

    def resume(self, desks: Mapping[str, Desk], *, users: int, tickets: Iterable[str] = ()) -> None:
        """Go on where another process stopped; the ledger holds the receipts of its `open`.

        Args:
            desks: its `desks`.
            users: how many had reported to it.
            tickets: its `tickets`; without them a report that is sent again counts again.
        """
        self._desks = {name: desks[name] for name in self._privatizers}
        self.users = whole("users", users, low=0, high=self.horizon)
        self._tickets = set(tickets)
        self._receipts = {}

    def handle(self, message: Message) -> Message:
        """Take in reports, or answer the learner."""
        match message:
            case Reports():
                if message.ticket not in self._tickets:
                    self.collect(message.answers)
                    self._tickets.add(message.ticket)
                return Done()
            case Batch():
                for answers in message.answers:
                    self._check(answers)
                for answers in message.answers:
                    self.collect(answers)
                return Done()
            case Mixed():
                self.collect(message.answers, users=message.users)
                return Done()
            case Ask():
                return Answer(release=self.release(message.query, message.clock, message.request))
        kind = type(message).__name__
        raise InvalidValue(f"a curator was sent a {kind}; it takes Reports, Batch, Mixed and Ask")

    def collect(self, answers: Answers, *, users: int = 1) -> None:
        """Add one user's reports to the tallies, or the totals of several users' mixed ones.

        Raises:
            CapacityExceeded: nothing was paid for, or the horizon's users have all been here.
            InvalidValue: the reports do not fit the queries; nothing was added.
        """
        self._paid()
        if self.users + whole("users", users) > self.horizon:
            raise CapacityExceeded(f"{self.users} users were here; {self.horizon} were paid for")
        self._check(answers)
        tallies = {
            name: privatizer.collect(self._desks[name].tally, answers[name])
            for name, privatizer in self._privatizers.items()
        }
        for name, tally in tallies.items():
            self._desks[name] = dataclasses.replace(self._desks[name], tally=tally)
        self.users += users

    def release(self, name: str, clock: Clock, request: Start | None = None) -> Released | None:
        """Release a query's total or its fit, or None where its schedule is not ready.

        Raises:
            CapacityExceeded: nothing was paid for, or all that was has been used.
            InvalidValue: the clock does not agree with the number of users who have reported.
        """
        self._paid()
        if name not in self._privatizers:
            raise InvalidValue(f"query is {name!r}; the curator has {sorted(self._privatizers)}")
        privatizer, desk, round = self._privatizers[name], self._desks[name], int(clock.round)
        _check_start(privatizer.query, request)
        if isinstance(privatizer.schedule, At) and round + 1 not in privatizer.schedule.ends:
            return None
        if round + 1 != self.users:
            raise InvalidValue(f"the clock says {round + 1} users; {self.users} have reported")
        capacity = privatizer.schedule.capacity(self.horizon)
        if desk.used >= capacity:
            raise CapacityExceeded(
                f"{name!r} was released {desk.used} times of {capacity} paid for"
            )
        source = self._source(name, privatizer, round)
        release: Released
        release, memory = privatizer.release(desk.memory, desk.tally, request, clock, source)
        tally = _on_host(privatizer.clear(desk.tally))
        self._desks[name] = Desk(
            memory=_on_host(memory), tally=tally, used=desk.used + 1, covered=self.users
        )
        return release

    def settle(self) -> None:
        """Tell the ledger what was really used: a cohort that no release spoke about costs nothing.

        A device's own noise is used as soon as its report is out, released or not.
        """
        covered = {name: desk.covered for name, desk in self._desks.items()}
        settle(
            self._privatizers,
            self._ledger,
            self._paid(),
            users=self.users,
            covered=covered,
            releases=self.releases,
        )
        self._receipts = None

    def _paid(self) -> Receipts:
        if self._receipts is None:
            raise CapacityExceeded("nothing was paid for yet; open the curator first")
        return self._receipts

    def _check(self, answers: Answers) -> None:
        asked = sorted(self._privatizers)
        if sorted(answers) != asked:
            raise InvalidValue(f"the reports are to {sorted(answers)}; they must be to {asked}")
        for name, report in answers.items():
            size = self._privatizers[name].query.size
            if np.shape(report) != (size,) or not np.isfinite(report).all():
                raise InvalidValue(f"the report to {name!r} must be {size} finite numbers")

    def _source(self, name: str, privatizer: Privatizer, round: int) -> Stream | None:
        """Where the aggregator's noise comes from."""
        if on_host(privatizer) or not privatizer.noisy_aggregator:
            return None
        if self._stream is None:
            raise InvalidValue(f"the noise of {name!r} is simulated; give the curator a stream")
        return self._stream.at(AGGREGATOR, round=round, query=place(name, self._privatizers))


def _opened(privatizer: Privatizer) -> Desk:
    memory, tally = privatizer.open()
    return Desk(memory=_on_host(memory), tally=_on_host(tally))


def _check_start(query: Query, request: Start | None) -> None:
    """Refuse a start that no fit can begin with; a sum needs none."""
    if not isinstance(query, BoundedLoss):
        return
    dim = query.dim
    shapes = {"point": (dim,), "metric": (dim, dim), "ridge": ()}
    for name, shape in shapes.items():
        given: Any = getattr(request, name, None)
        part = real_array(f"the numbers of a start's {name}", given)
        if part.shape != shape or not np.isfinite(part).all():
            raise InvalidValue(f"a start's {name} must be finite, of shape {shape}")


def _on_host(tree: Tree) -> Tree:
    """NumPy leaves: small sums are cheapest there, and exact noise needs them there."""
    return jax.tree.map(np.asarray, tree)
