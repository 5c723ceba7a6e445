"""All schedules of a small field, on the real aggregator.

Two devices with two reports each and a colluder, two cohorts of two users, a store that may be
copied once so that both copies go on, and a witness. Any report may arrive at any copy at any
moment, again and again, alone or with others; a process may die after any commit and after any
swap of the witness, and is opened again; whoever is fenced may begin a new epoch. Kills, copies and
new epochs are bounded, and then there are finitely many worlds: the search, breadth-first, ends
when it has seen all of them, and what it finds is a shortest schedule.

A report holds its own digit, and noise is shifted out of the digits' way: so a release tells who
is in it.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import sqlite3
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from tests.deployment.field import build_deployment

from kerchief.core.errors import CapacityExceededError
from kerchief.deployment.aggregator import Aggregator
from kerchief.deployment.audit_log import AuditLog
from kerchief.deployment.deployed_statistic import DeployedStatistic
from kerchief.deployment.deployment import Deployment
from kerchief.privatizers.schedule import At
from kerchief.stores.sqlite import SQLiteStore
from kerchief_protocol.chain import Line, check_chain
from kerchief_protocol.errors import FencedError
from kerchief_protocol.report import Release, Report

__all__ = ["Bound", "Broken", "Marked", "Search", "Slot", "World", "tiny"]

COLLUDER = 4
REPORTS = 5
_SHIFT = 2**20

Key: TypeAlias = bytes
Op: TypeAlias = tuple[Any, ...]


class Broken(AssertionError):
    """Something that must always hold does not."""


class Killed(BaseException):
    """The process is gone."""


def holds(truth: bool, what: str) -> None:
    if not truth:
        raise Broken(what)


def tiny(trust: str) -> Deployment:
    """Two cohorts of two users; under joint trust four releases.

    And `late`: under shuffle trust cohorts of one, one and two users, the second of which needs
    more coins than users of the first have tossed.
    """
    shuffle = trust in ("shuffle", "late")
    word = "gaussian" if trust == "central" else "best"
    one = build_deployment(
        "shuffle" if shuffle else trust, horizon=500 if shuffle else 4, mechanism=word
    )
    if trust == "joint":
        return one
    noise: Any = one.task.noise[0]
    needs = (1, 1, 2) if trust == "late" else (2, 2)
    if shuffle:
        enough = 4 * noise.scale**2
        coins = (enough, enough + 2, enough) if trust == "late" else (enough // 2,) * 2
        noise = dataclasses.replace(noise, coins=coins)
    task = dataclasses.replace(one.task, needs=needs, horizon=4, noise=(noise,))
    ends = At(ends=tuple(itertools.accumulate(needs)))
    whole: dict[str, Any] = dict(one.privatizers)
    parts = {name: dataclasses.replace(each, schedule=ends) for name, each in whole.items()}
    return dataclasses.replace(one, task=task, privatizers=parts)


class Marked(DeployedStatistic):
    """A statistic whose noise leaves the last digits alone."""

    def draw(self, cohorts: Any, kept: Any, number: int, source: Any) -> Any:
        noisy, after = super().draw(cohorts, kept, number, source)
        exact = kept.total + np.cumsum(cohorts, axis=0) if self.running else cohorts
        return exact + (noisy - exact) * _SHIFT, after


def digits(total: Any) -> Counter[int]:
    """Whose reports a total holds, and how often."""
    rest, found = int(total[0]) % _SHIFT // 2, Counter[int]()
    for number in range(REPORTS):
        rest, found[number] = divmod(rest, 8)
    return +found


class Slot(NamedTuple):
    """One copy of the store, and the process on it."""

    store: Key
    up: bool
    opened: int


class World(NamedTuple):
    """Everything that the future depends on."""

    slots: tuple[Slot, ...]
    witness: bytes | None
    accepted: frozenset[bytes]
    made: tuple[tuple[int, int], ...]
    shown: frozenset[bytes]
    kills: int
    renewals: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bound:
    """How much may happen; within it, all schedules of any length are looked at."""

    kills: int = 0
    copies: int = 0
    renewals: int = 0
    reports: int = REPORTS


class Done(NamedTuple):
    """What one step of one process came to."""

    store: Key
    witness: bytes | None
    alive: bool
    swapped: tuple[bytes, ...]
    shown: tuple[bytes, ...]
    heads: frozenset[bytes]


class _Witness:
    def __init__(self, head: bytes | None, event: Callable[[], None]) -> None:
        self.head, self._event = head, event
        self.swapped: list[bytes] = []

    def read(self, task: bytes) -> bytes | None:
        return self.head

    def swap(self, task: bytes, expected: bytes | None, new: bytes) -> None:
        if self.head not in (expected, new):
            raise FencedError("another head")
        self.head = new
        self.swapped.append(new)
        self._event()


class _Store:
    """A store whose process may die after every commit."""

    def __init__(self, inner: SQLiteStore, event: Callable[[], None], plant: Any) -> None:
        self._inner, self._event, self._plant = inner, event, plant
        self.read = inner.read

    @contextmanager
    def transaction(self, task: bytes) -> Iterator[Any]:
        with self._inner.transaction(task) as at:
            yield self._plant(at)
        self._event()


class Search:
    """Explores worlds; steps of one process on one store are looked up if they were taken before.

    Attributes:
        states: how many worlds were seen.
        steps: how many steps of the real aggregator were run.
    """

    def __init__(
        self, trust: str, *, aggregator: type[Aggregator] = Aggregator, plant: Any = lambda at: at
    ) -> None:
        self._made, self._aggregator, self._plant = tiny(trust), aggregator, plant
        self._running = trust == "joint"
        self._task = self._made.task
        self._base = SQLiteStore.memory()
        self._stores: dict[Key, bytes] = {}
        self._known: dict[Op, Done | None] = {}
        self.states, self.steps = 0, 0

    def run(self, bound: Bound) -> None:
        """Look at every schedule within a bound.

        Raises:
            Broken: an invariant does not hold; the message tells the schedule.
        """
        first = self._first()
        queue, before = deque([first]), {first: (first, "begin")}
        while queue:
            world = queue.popleft()
            for what, step in self._steps(world, bound):
                try:
                    after = step()
                    if after is not None and after not in before:
                        self._shown(after.shown)
                except Broken as broken:
                    raise Broken(f"{broken}: {_told(before, world)} > {what}") from None
                if after is not None and after not in before:
                    before[after] = world, what
                    queue.append(after)
        self.states = len(before)

    def _first(self) -> World:
        empty = SQLiteStore.memory()
        key = self._keep(empty)
        empty.close()
        done = self._step(key, None, ("open", None), 0)
        assert done is not None
        return World(
            slots=(Slot(done.store, True, 1),),
            witness=done.witness,
            accepted=frozenset(done.swapped),
            made=(),
            shown=frozenset(),
            kills=0,
            renewals=0,
        )

    def _steps(
        self, world: World, bound: Bound
    ) -> Iterator[tuple[str, Callable[[], World | None]]]:
        if len(world.slots) <= bound.copies:
            for slot in world.slots[:1]:
                copy = slot._replace(opened=slot.opened + 8)
                yield "copy", functools.partial(world._replace, slots=(*world.slots, copy))
        for at, slot in enumerate(world.slots):
            for kind, more in self._kinds(world, slot, bound):
                for kill in (None, *range(8 if world.kills < bound.kills else 0)):
                    op = (kind, kill, *more)
                    after = self._apply(world, at, op)
                    if isinstance(after, str):
                        break
                    yield f"{op} at {at}", functools.partial(_given, after)

    def _kinds(self, world: World, slot: Slot, bound: Bound) -> Iterator[tuple[str, Any]]:
        if not slot.up:
            yield "open", ()
        else:
            new = len(world.made)
            for number in range(min(new + 1, bound.reports)):
                yield "take", ((number,),)
            yield "take", (tuple(range(min(new + 2, bound.reports))),)
            yield "serve", ()
        if world.renewals < bound.renewals:
            for kind in ("renew", "restart") if slot.up else ("reopen",):
                yield kind, ()

    def _apply(self, world: World, at: int, op: Op) -> World | Broken | str | None:
        """The world after a step; a word if the process cannot die so late in it."""
        slot, reports = world.slots[at], world.made
        kind, kill, *more = op
        if kind == "take":
            epoch = self._row(slot.store).epoch
            while len(reports) <= max(more[0]):
                label = min(self._row(slot.store).cohort, self._task.cohorts - 1)
                reports = (*reports, (epoch, self._task.label(label)))
            sent = tuple(
                (n, epoch if n == COLLUDER else reports[n][0], reports[n][1]) for n in more[0]
            )
            op = (kind, kill, sent)
        opening = kind in ("open", "reopen")
        opened = slot.opened + opening
        try:
            done = self._step(slot.store, world.witness, op, opened)
        except Broken as broken:
            return broken
        if done is None:
            return "late"
        alive = done.alive if opening else slot.up and done.alive
        slots = list(world.slots)
        # A start that was fenced is none: otherwise there would be worlds without end.
        fenced = opening and kill is None and not alive
        slots[at] = Slot(done.store, alive, slot.opened if fenced else opened)
        accepted = world.accepted.union(done.swapped)
        if done.shown and not accepted & done.heads:
            return Broken("nothing is served that the witness has not seen")
        return world._replace(
            slots=tuple(slots),
            witness=done.witness,
            accepted=accepted,
            made=reports,
            shown=world.shown.union(done.shown),
            kills=world.kills + (kill is not None),
            renewals=world.renewals + (kind in ("renew", "restart", "reopen")),
        )

    def _step(self, store: Key, witness: bytes | None, op: Op, seed: int) -> Done | None:
        known = (store, witness, op, seed)
        if known not in self._known:
            self._known[known] = self._real(store, witness, op, seed)
        return self._known[known]

    def _real(self, key: Key, head: bytes | None, op: Op, seed: int) -> Done | None:
        """One step of the real aggregator; None if it is over before it could be killed."""
        self.steps += 1
        kind, kill, *more = op
        events = 0

        def event() -> None:
            nonlocal events
            if armed and kill == events:
                raise Killed
            events += 1

        armed = kind in ("open", "reopen")
        self._load(key)
        store: Any = _Store(self._base, event, self._plant)
        witness = _Witness(head, event)
        alive, shown = True, tuple[bytes, ...]()
        try:
            if armed:
                self._open(store, witness, seed, renew=kind == "reopen")
                event()
            else:
                one = self._open(_Store(self._base, _nothing, self._plant), None, seed, bare=True)
                one._store, one._witness = store, witness
                armed = True
                if kill == events:
                    raise Killed
                events += 1
                shown = self._act(one, kind, more)
        except Killed:
            alive = False
        except FencedError:
            alive = kind not in ("open", "reopen")
            if kill is not None:
                return None
        else:
            if kill is not None:
                return None
        after = self._keep(self._base)
        heads = self._since(shown[-1]) if shown else frozenset[bytes]()
        return Done(after, witness.head, alive, tuple(witness.swapped), shown, heads)

    def _open(
        self, store: Any, witness: Any, seed: int, *, renew: bool = False, bare: bool = False
    ) -> Aggregator:
        def source(count: int) -> bytes:
            return hashlib.shake_256(b"%d" % seed).digest(count)

        cls = self._aggregator
        if bare:
            # A process that has been up for long: it looks at nothing again.
            one = cls.__new__(cls)
            fresh = self._process
            vars(one).update(vars(fresh))
        else:
            one = cls(self._made, store=store, witness=witness, source=source, renew=renew)
        one._statistics = tuple(
            Marked(privatizer=d.privatizer, wire=d.wire) for d in one._statistics
        )
        one._source = source
        return one

    @functools.cached_property
    def _process(self) -> Aggregator:
        return self._aggregator(self._made, store=SQLiteStore.memory())

    def _act(self, one: Aggregator, kind: str, more: list[Any]) -> tuple[bytes, ...]:
        if kind == "serve":
            return one.releases()
        if kind in ("renew", "restart"):
            with suppress(CapacityExceededError):
                one.renew(restart=kind == "restart")
            return ()
        reports = [self._report(*each) for each in more[0]]
        before = self._ids()
        answers = one.take(reports)
        now = self._ids()
        for (number, epoch, _), refused in zip(more[0], answers, strict=True):
            seen = (_id(number), epoch)
            if refused is None:
                holds(seen in now or _id(number) in dict(now), "what is acknowledged is kept")
            else:
                holds((seen in now) == (seen in before), "what is refused is not counted")
        return ()

    def _report(self, number: int, epoch: int, label: int) -> bytes:
        numbers = np.zeros(self._task.size, np.int64)
        numbers[0] = 2 * 8**number
        one = Report(label=label, epoch=epoch, id=_id(number), numbers=numbers)
        return one.write(self._task)

    def _load(self, key: Key) -> None:
        source = sqlite3.connect(":memory:")
        source.deserialize(self._stores[key])
        source.backup(self._base._writer)
        source.close()

    def _keep(self, store: SQLiteStore) -> Key:
        """Remember a store by what it says, after looking whether that may be."""
        text = repr([list(store._writer.execute(sql)) for sql in _SAYS]).encode()
        key = hashlib.sha256(text).digest()
        if key not in self._stores:
            self._stores[key] = store._writer.serialize()
            if store.tasks():
                self._whole(store)
        return key

    def _row(self, key: Key) -> Any:
        return self._rows[key]

    @functools.cached_property
    def _rows(self) -> dict[Key, Any]:
        return _Rows(self)

    def _ids(self) -> set[tuple[bytes, int]]:
        return set(self._base._writer.execute("SELECT id, epoch FROM seen"))

    def _whole(self, store: SQLiteStore) -> None:
        """What must hold of every store that was ever committed."""
        with store.read(self._task.id) as at:
            row, lines, releases = at.row(), at.lines(), at.releases(0, 100)
            bodies = [body for cohort in at.counts() for body in at.bodies(cohort)]
        assert row is not None
        holds(check_chain(lines) == row.head and len(lines) == row.length, "the chain is whole")
        try:
            AuditLog.of(lines).check(self._made)
        except FencedError as fence:
            raise Broken(f"charges are on the chain: {fence}") from None
        self._paid(lines)
        drawn = [line.content for line in lines if line.kind == "draw"]
        holds(
            [one["payload"] for one in drawn] == [hashlib.sha256(p).hexdigest() for p in releases],
            "each release has its line",
        )
        counted = Counter[int]()
        for release in map(Release.read, releases):
            if release.epoch == row.epoch:
                found = digits(release.total)
                counted = found if self._running else counted + found
        for body in bodies:
            counted += digits(np.frombuffer(body, "<i8"))
        seen = {id for id, epoch in self._ids_of(store) if epoch == row.epoch}
        holds(max(counted.values(), default=1) == 1, "each report counts once")
        holds({_id(n) for n in counted} == seen, "what was seen is released or waits")

    @staticmethod
    def _ids_of(store: SQLiteStore) -> list[tuple[bytes, int]]:
        return list(store._writer.execute("SELECT id, epoch FROM seen"))

    def _paid(self, lines: list[Line]) -> None:
        """A draw comes after the charges of its epoch."""
        epochs, paid = [lines[0].content["epoch"]], 0
        bills = sum(len(list(p.charges(4))) for p in self._made.privatizers.values())
        for line in lines:
            paid += line.kind == "charge"
            if line.kind == "epoch":
                epochs.append(line.content["epoch"])
            if line.kind == "draw":
                holds(line.content["epoch"] == epochs[-1], "a draw is of the epoch that runs")
                holds(paid == bills * len(epochs), "a draw is paid for before")

    def _since(self, payload: bytes) -> frozenset[bytes]:
        """Heads that say that a release was drawn."""
        with self._base.read(self._task.id) as at:
            lines = at.lines()
        name = hashlib.sha256(payload).hexdigest()
        drawn = [x.kind == "draw" and x.content["payload"] == name for x in lines]
        holds(any(drawn), "what is served is what the chain names")
        return frozenset(line.hash for line in lines[drawn.index(True) :])

    @functools.cache  # noqa: B019
    def _shown(self, shown: frozenset[bytes]) -> None:
        """What must hold of all that anyone was ever shown."""
        releases = sorted(map(Release.read, shown), key=lambda one: (one.epoch, one.number))
        numbers = Counter((one.epoch, one.number) for one in releases)
        holds(max(numbers.values(), default=1) == 1, "one payload for each number")
        life: dict[int, set[tuple[int, int]]] = {}
        ranks = Counter[int]()
        for release in releases:
            found = digits(release.total)
            ranks[release.epoch] += 1
            users = ranks[release.epoch] if self._running else self._task.need(release.cohort)
            full = release.users == self._task.need(release.cohort)
            holds(full and sum(found.values()) == users, "a release is of a full cohort")
            holds(max(found.values()) == 1, "nobody is twice in a release")
            for number in found:
                of = (release.epoch, 0 if self._running else release.number)
                life.setdefault(number, set()).add(of)
        life.pop(COLLUDER, None)
        holds(all(len(one) == 1 for one in life.values()), "a report is in one release in its life")


class _Rows(dict[Key, Any]):
    """Rows of stores, read when they are needed."""

    def __init__(self, search: Search) -> None:
        super().__init__()
        self._search = search

    def __missing__(self, key: Key) -> Any:
        self._search._load(key)
        with self._search._base.read(self._search._task.id) as at:
            self[key] = at.row()
        return self[key]


_SAYS = (
    "SELECT * FROM tasks ORDER BY key",
    "SELECT number, prev, body FROM chain ORDER BY number",
    "SELECT * FROM releases ORDER BY number",
    "SELECT * FROM seen ORDER BY id",
    "SELECT * FROM cohorts ORDER BY cohort",
    "SELECT * FROM bodies ORDER BY id",
    "SELECT * FROM secrets",
)


def _id(number: int) -> bytes:
    return bytes([number]) * 16


def _nothing() -> None:
    pass


def _given(after: World | Broken | None) -> World | None:
    if isinstance(after, Broken):
        raise after
    return after


def _told(before: dict[World, tuple[World, str]], world: World) -> str:
    words = []
    while before[world][0] is not world:
        words.append(before[world][1])
        world = before[world][0]
    return " > ".join(reversed(words))
