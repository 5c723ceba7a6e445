"""The middle: adds reports up, and lets a cohort's noisy total out once and for ever.

It is the mixer under shuffle trust, the curator under joint and central trust, and a mere counter
under local trust. What a trust asks of it is in `docs/field.md`; what it keeps is in a store:

========  ======================================  ===========================================
step      in one transaction                      afterwards
========  ======================================  ===========================================
take      ids of reports, their numbers           they are acknowledged
close     the cohort's noisy total, the line of   the witness learns the chain's head; then
          the chain, the state of the noise;      the release is served, the same for ever
          the reports' numbers are deleted
========  ======================================  ===========================================

Nothing is remembered from one transaction to the next, so several processes may work on one store,
and a crash at any moment leaves either all of a step or none of it. Proof notes: `crediting.md`,
`restarts.md`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kerchief.core.errors import CapacityExceeded
from kerchief.privacy.guarantee import Guarantee
from kerchief.roles.books import Books, charged, opened
from kerchief.roles.deployment import Deployment
from kerchief.roles.desks import desks_of, read_secret, write_secret
from kerchief.roles.drawing import Drawing, appended
from kerchief.roles.uncopyable import Guarded
from kerchief.roles.verify import check_releases
from kerchief.stores.store import Reader, Row, Store, Transaction
from kerchief.stores.witness import NoWitness, Witness
from kerchief_device.samplers import Randomness
from kerchief_wire.chain import Line
from kerchief_wire.errors import Fenced, InvalidValue, Refused
from kerchief_wire.model import Status
from kerchief_wire.report import Report


class Middle(Guarded):
    """Takes reports in and lets releases out, for one task.

    >>> from kerchief import Guarantee, Problem, deploy
    >>> facts = Problem(dim=2, arms=3, norm=1.0, radius=1.0, low=0.0, high=1.0, horizon=100)
    >>> promise = Guarantee(epsilon=1.0, delta=1e-6, trust="joint")
    >>> made = deploy(policy="linucb", problem=facts, guarantee=promise)
    >>> from kerchief.stores import open_store
    >>> middle = Middle(made, store=open_store(":memory:"))
    >>> (refused,) = middle.take([b"no report"])
    >>> print(refused)
    the report has 9 bytes; this task's have 100
    >>> middle.status().state, middle.releases()
    ('running', ())
    >>> round(middle.spent().epsilon, 3)
    1.0
    """

    _asks = False

    def __init__(
        self,
        made: Deployment,
        *,
        store: Store,
        witness: Witness | None = None,
        source: Randomness = os.urandom,
        pool: Callable[[Any], Any] | None = None,
        renew: bool = False,
    ) -> None:
        """Open a task in a store, or begin it: then its whole horizon is paid for at once.

        Args:
            made: the task, with its noise.
            store: what survives a crash.
            witness: remembers the chain's head elsewhere.
            source: of randomness; anything but the default is for tests.
            pool: noise that is drawn ahead, for a bandit that lives in one process alone.
            renew: open a store that is fenced, and begin a new epoch at once: see `renew`.

        Raises:
            BudgetExceeded: the promise does not pay for the noise; nothing was begun.
            Fenced: the store is not as it was last seen, or its task is another one.
            InvalidValue: the task is for another role.
        """
        if (made.task.bandit == "context-free") != self._asks:
            raise InvalidValue(
                f"the bandit of this task is {made.task.bandit}; Asker is for bandits without "
                "contexts, and Bandit and Middle are for all others"
            )
        self.made, self.task = made, made.task
        self._desks = desks_of(made, pool)
        self._store, self._witness = store, witness or NoWitness()
        self._source, self._noise = source, source if pool is None else None
        self._lock = threading.Lock()
        with self._lock:
            with store.transaction(self.task.id) as at:
                row = at.row()
                if row is None:
                    row = self._begin(at)
                else:
                    self._check(at, row, renew=renew)
            if not renew:
                self._bear_witness(row)
        if renew:
            self.renew()

    def status(self) -> Status:
        """What anyone may know who is about to report."""
        with self._store.read(self.task.id) as at:
            row = _row(at)
        over = row.cohort >= self.task.cohorts
        return Status(
            task=self.task.id,
            state="closed" if over else row.state,
            epoch=row.epoch,
            label=self.task.label(min(row.cohort, self.task.cohorts - 1)),
        )

    def take(self, reports: Iterable[bytes]) -> tuple[Refused | None, ...]:
        """Take reports in, in one transaction; then release what is complete.

        Args:
            reports: as they came over the wire.

        Returns:
            For each, None if it counts (now, or since it came before), or why it was refused. A
            report that was refused must be thrown away.

        Raises:
            Fenced: the store is not as it was last seen; nothing was released.
        """
        read = Report.read_all(reports, self.task)
        with self._lock:
            with self._store.transaction(self.task.id) as at:
                row = self._running(at)
                self._check_witness(at, row)
                answers, row = self._taken(at, row, read)
            self._bear_witness(row)
        return answers

    def releases(self, first: int = 0, most: int = 1000) -> tuple[bytes, ...]:
        """Releases from a number on: the same bytes for ever."""
        with self._store.read(self.task.id) as at:
            row, found = _row(at), tuple(at.releases(first, most))
        self._bear_witness(row)
        return found

    def chain(self) -> tuple[Line, ...]:
        """All lines of the chain, which are public."""
        with self._store.read(self.task.id) as at:
            row, lines = _row(at), tuple(at.lines())
        self._bear_witness(row)
        return lines

    def spent(self) -> Guarantee:
        """What the worst-off user was charged."""
        return Books.of(self.chain()).spent()

    def close(self) -> Guarantee:
        """End the task: nothing more is taken in, and the bill is for what was really released.

        Raises:
            Fenced: the store is not as it was last seen: another copy may have released more.
        """
        with self._lock:
            with self._store.transaction(self.task.id) as at:
                row = self._running(at)
                self._check_witness(at, row)
                _forget(at)
                at.forget_seen()
                at.hide(write_secret(0, tuple(desk.open() for desk in self._desks)))
                books = Books.of(tuple(at.lines()))
                row = appended(at, row, books.settled(self.made))
                row = appended(at, row, [("end", {"releases": row.releases})])
                at.change(dataclasses.replace(row, state="closed"))
            self._bear_witness(row)
        return self.spent()

    def renew(self) -> None:
        """Begin a new epoch with new users, after the store was rolled back or changed.

        Whoever took part before is done: their reports are refused from now on, so nobody is in
        two sums. New users are charged for noise of their own (`restarts.md`).

        Raises:
            Fenced: this store has drawn what was never shown while another copy went on.
        """
        with self._lock:
            seen = self._witness.read(self.task.id)
            with self._store.transaction(self.task.id) as at:
                row, lines = self._running(at), tuple(at.lines())
                self._nothing_hidden(lines, row, seen)
                books = Books.of(lines)
                _forget(at)
                epoch = _unused(books.epochs, row.head + (seen or b"") + self._source(32))
                said: list[tuple[str, Any]] = [("epoch", {"epoch": epoch})]
                row = appended(at, row, said + charged(self.made, len(books.epochs)))
                at.hide(write_secret(0, tuple(desk.open() for desk in self._desks)))
                row = dataclasses.replace(row, epoch=epoch)
                at.change(row)
            self._bear_witness(dataclasses.replace(row, witnessed=seen))

    def _begin(self, at: Transaction) -> Row:
        # Drawn, so that a store that was begun elsewhere with this task takes other reports.
        epoch = _unused((), self.task.id + self._source(32))
        line = Line(number=0, kind="open", prev=bytes(32), body=opened(self.task, epoch))
        row = Row(
            config=self.task.data,
            state="running",
            epoch=epoch,
            cohort=0,
            releases=0,
            length=1,
            head=line.hash,
            witnessed=None,
        )
        at.create(row)
        at.append([line])
        row = appended(at, row, charged(self.made, 0))
        at.hide(write_secret(0, tuple(desk.open() for desk in self._desks)))
        at.change(row)
        return row

    def _check(self, at: Transaction, row: Row, *, renew: bool) -> None:
        """See that a store is whole, that it is ours, and that its noise was paid for."""
        books = Books.of(at.lines())
        if books.head != row.head or len(books.lines) != row.length:
            raise Fenced("the chain in the store does not end where the store says")
        if row.config != self.task.data or books.task.data != self.task.data:
            raise Fenced("the store holds another task")
        books.check(self.made)
        check_releases(books, at.releases(0, len(books.drawn) + 1))
        _check_row(at, row, books)
        if renew:
            return
        self._check_witness(at, row)
        self._check_noise(at, row, books)

    def _check_noise(self, at: Reader, row: Row, books: Books) -> None:
        """See that correlated noise goes on where the releases of its epoch end."""
        if row.state != "running" or not any([desk.running for desk in self._desks]):
            return
        drawn, _ = read_secret(at.secret() or b"", self._desks)
        shown = sum(one.epoch == row.epoch for one in books.drawn)
        if drawn != shown:
            raise Fenced(
                f"the store's noise stands after {drawn} releases of its epoch, and {shown} were "
                "drawn; it was changed or mixed from copies: renew=True begins a new epoch"
            )

    def _check_witness(self, at: Reader, row: Row) -> None:
        """See that the witness knows no other copy of this store."""
        if isinstance(self._witness, NoWitness):
            if row.witnessed is not None:
                raise Fenced("this store has a witness; give it, or nobody notices a copy")
            return
        seen = self._witness.read(self.task.id)
        if seen is None and row.witnessed is not None:
            raise Fenced("the witness has never seen this store; was it copied?")
        if seen in (None, row.witnessed, row.head):
            return
        if seen not in {line.hash for line in at.lines()}:
            raise Fenced("the witness has seen more than the store holds; it was rolled back")

    def _nothing_hidden(self, lines: Sequence[Line], row: Row, seen: bytes | None) -> None:
        """See that a new epoch would not show draws of users whom another copy released."""
        heads = [line.hash for line in lines]
        if isinstance(self._witness, NoWitness) or seen in heads:
            return
        shown = heads.index(row.witnessed) + 1 if row.witnessed in heads else 0
        if any(line.kind == "draw" for line in lines[shown:]):
            raise Fenced(
                "this store has drawn what nobody may see, since another copy went on; go on with "
                "that one, or begin another task"
            )

    def _bear_witness(self, row: Row) -> None:
        """Tell the witness of the chain's head, before anyone else learns what it stands for."""
        if row.head == row.witnessed or isinstance(self._witness, NoWitness):
            return
        self._witnessed(row)
        with self._store.transaction(self.task.id) as at:
            now = _row(at)
            if now.head == row.head:
                at.change(dataclasses.replace(now, witnessed=row.head))

    def _witnessed(self, row: Row) -> None:
        """Swap what the witness holds for our head, if it is an earlier head of our own chain."""
        expected = row.witnessed
        while True:
            try:
                return self._witness.swap(self.task.id, expected, row.head)
            except Fenced:
                seen = self._witness.read(self.task.id)
                with self._store.read(self.task.id) as at:
                    ours = [line.hash for line in at.lines()]
                # Another process on this store may have been faster, with a head before ours or
                # after it; a head that is not ours at all is that of another copy.
                if seen is None or seen == expected or seen not in ours:
                    raise
                if ours.index(seen) >= ours.index(row.head):
                    return None
                expected = seen

    def _running(self, at: Transaction) -> Row:
        row = _row(at)
        if row.state != "running":
            raise CapacityExceeded(f"the task is {row.state}; begin another one")
        return row

    def _taken(
        self, at: Transaction, row: Row, read: Sequence[Report | Refused]
    ) -> tuple[tuple[Refused | None, ...], Row]:
        """Put each report into the open cohort; release it when it is full, and open the next."""
        known = at.known([one.id for one in read if isinstance(one, Report)])
        counts = at.counts()
        drawing = Drawing(at, row, task=self.task, desks=self._desks, source=self._noise)
        fresh: list[Report] = []
        seen: list[tuple[bytes, int]] = []
        answers: list[Refused | None] = []
        thrown: dict[tuple[bytes, int, int], Refused] = {}
        for one in read:
            cohort = drawing.cohort
            if isinstance(one, Refused):
                answers.append(one)
                continue
            # A copy of one that was refused is refused, though the next cohort might take it.
            same = one.id, one.epoch, one.label
            place = thrown.get(same) or self._place(one, row.epoch, cohort, known, counts)
            answers.append(place if isinstance(place, Refused) else None)
            if isinstance(place, Refused):
                thrown[same] = place
            if not isinstance(place, int):
                continue
            known.add(one.id)
            seen.append((one.id, place))
            if place != cohort:
                _keep(at, place, [one])
                counts[place] = counts.get(place, 0) + 1
                continue
            fresh.append(one)
            if counts.get(cohort, 0) + len(fresh) == self.task.need(cohort):
                drawing.fill([one.numbers for one in fresh])
                fresh = []
        row = drawing.close()
        at.see(seen, epoch=row.epoch)
        if fresh:
            _keep(at, row.cohort, fresh)
        return tuple(answers), row

    def _place(
        self, one: Report, epoch: int, cohort: int, known: set[bytes], counts: Mapping[int, int]
    ) -> int | Refused | None:
        """The cohort that a report enters, or why it enters none; None if it counted before.

        None of it depends on what others reported, but only on how many did.
        """
        if one.epoch != epoch:
            return Refused("epoch", f"the report is of epoch {one.epoch}; it is {epoch} now")
        if one.id in known:
            return None
        if cohort >= self.task.cohorts:
            return Refused("over", "all users that were paid for have reported")
        if self.task.enters(one.label, cohort):
            return cohort
        later = self._later(one.label, cohort, counts)
        if later is not None:
            return later
        return Refused(
            "label",
            f"the report is for cohort {one.label}; the open one needs more noise than it "
            "brings, or asks something else",
        )

    def _later(self, label: int, cohort: int, counts: Mapping[int, int]) -> int | None:
        """Where a late report waits whose coins are too few now: the first cohort they suffice for.

        It leaves a place there, so that every cohort is filled by a report that comes when it is
        open.
        """
        if label > cohort or self.task.bandit != "contextual":
            return None
        for one in range(cohort + 1, self.task.cohorts):
            if counts.get(one, 0) + 1 < self.task.need(one) and self.task.enters(label, one):
                return one
        return None


def _check_row(at: Reader, row: Row, books: Books) -> None:
    """See that the task stands where its chain and its releases end."""
    found = row.state, row.epoch, row.cohort, len(at.releases(max(0, row.releases - 1), 2))
    state = "closed" if books.ended else "running"
    if found != (state, books.epochs[-1], row.releases, min(1, row.releases)):
        raise Fenced(
            f"the store says {row.state}, epoch {row.epoch}, cohort {row.cohort} and "
            f"{row.releases} releases, which are not those of its chain; it was changed: begin "
            "another task"
        )


def _keep(at: Transaction, cohort: int, reports: Sequence[Report]) -> None:
    """Keep reports until their cohort is full."""
    at.keep(cohort, [(one.id, one.numbers.tobytes()) for one in reports])


def _forget(at: Transaction) -> None:
    """Delete all reports that no release has taken in."""
    for cohort in at.counts():
        at.forget(cohort)


def _unused(epochs: Sequence[int], context: bytes) -> int:
    """A number that no epoch of any copy has: one that was lost must not come again."""
    epoch = int.from_bytes(hashlib.sha256(context).digest()[:4], "little")
    return epoch if epoch not in epochs else _unused(epochs, context + b"\0")


def _row(at: Reader) -> Row:
    row = at.row()
    if row is None:
        raise Fenced("the store does not hold this task any more")
    return row
