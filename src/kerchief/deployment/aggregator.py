"""The aggregator: adds reports up, and lets a cohort's noisy total out once and for ever.

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

Only lines of the chain that were checked are remembered from one transaction to the next. So
several processes may work on one store, and a crash at any moment leaves either all of a step or
none of it. Proof notes: `crediting.md`, `restarts.md`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from kerchief.core.errors import CapacityExceededError
from kerchief.core.validate import whole
from kerchief.deployment.admission import (
    Admission,
    AdmitEveryone,
    Client,
    Places,
    describe_honest_part,
    read_clients,
)
from kerchief.deployment.audit_log import ChainReader, Epoch, charged, describe_visits, opened
from kerchief.deployment.deployed_statistic import build_statistics, read_secret, write_secret
from kerchief.deployment.deployment import Deployment
from kerchief.deployment.no_copy import NoCopy
from kerchief.deployment.record_check import RecordCheck
from kerchief.deployment.release_batch import ReleaseBatch, appended
from kerchief.deployment.verify import check_payloads
from kerchief.privacy.guarantee import Guarantee, Trust
from kerchief.stores.store import EVERYTHING, Reader, Row, Store, Transaction
from kerchief.stores.witness import NoWitness, Witness
from kerchief_device.samplers import Randomness
from kerchief_protocol import canonical
from kerchief_protocol.chain import Line
from kerchief_protocol.errors import FencedError, InvalidValueError, RejectedError
from kerchief_protocol.model import Status
from kerchief_protocol.report import Report

T = TypeVar("T")
# Lines of the chain that are read together, with the releases that they name.
_PAGE = 1000
# Lines that are read together from the end, where a head is looked for: it is mostly the last one.
_LAST = 64
_MOST_PAGE = 10_000
# Cohorts that are looked at for a late report, under the exclusive lock.
_MOST_LATER = 64


class Aggregator(NoCopy):
    """Takes reports in and lets releases out, for one task.

    >>> from kerchief import Guarantee, Problem, deploy
    >>> problem = Problem(dim=2, arms=3, norm=1.0, radius=1.0, low=0.0, high=1.0, horizon=100)
    >>> guarantee = Guarantee(epsilon=1.0, delta=1e-6, trust="joint")
    >>> deployment = deploy(policy="linucb", problem=problem, guarantee=guarantee)
    >>> from kerchief.stores import open_store
    >>> aggregator = Aggregator(deployment, store=open_store(":memory:"))
    >>> (refused,) = aggregator.take([b"no report"])
    >>> print(refused)
    the report has 9 bytes; this task's have 100
    >>> aggregator.status().state, aggregator.releases()
    ('running', ())
    >>> round(aggregator.spent().epsilon, 3)
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
        admission: Admission | None = None,
        renew: bool = False,
        restart: bool = False,
    ) -> None:
        """Open a task in a store, or begin it: then its whole horizon is paid for at once.

        Args:
            made: the task, with its noise.
            store: what survives a crash.
            witness: remembers the chain's head elsewhere, such as a `FileWitness` on another disk.
                Without it a store that was restored or copied is not noticed, which voids the
                guarantee under trusts with draws.
            source: of randomness; anything but the default is for tests.
            pool: noise that is drawn ahead, for a bandit that lives in one process alone.
            admission: decides how many reports a client may send; by default everyone may send
                any number.
            renew: open a store that is fenced, and begin a new epoch at once: see `renew`.
            restart: the same, and begin again at the first cohort.

        Raises:
            BudgetExceededError: the promise does not pay for the noise; nothing was begun.
            FencedError: the store is not as it was last seen, or its task is another one.
            InvalidValueError: the task is for another role.
        """
        if (made.task.bandit == "context-free") != self._asks:
            raise InvalidValueError(
                f"the bandit of this task is {made.task.bandit}; Asker is for bandits without "
                "contexts, and Bandit and Aggregator are for all others"
            )
        self.made, self.task = made, made.task
        self._desks = build_statistics(made, pool)
        # A bandit in one process makes all reports itself.
        self._record_check = RecordCheck(made.task) if pool is None else None
        self._store, self._witness = store, witness or NoWitness()
        self._source, self._noise = source, source if pool is None else None
        self._admission = admission or AdmitEveryone()
        self._lock, self._reading = threading.Lock(), threading.Lock()
        self._reader: ChainReader | None = None

        def start(at: Transaction, row: Row | None, reader: ChainReader) -> Row:
            if row is None:
                return self._begin(at)
            self._check(at, row, reader, renew=renew or restart)
            self._reader = reader
            return row

        with self._lock:
            row = self._after_check(start)
            if not (renew or restart):
                self._bear_witness(row)
        if renew or restart:
            self.renew(restart=restart)

    def status(self) -> Status:
        """Return the public status for devices that are about to report."""
        with self._store.read(self.task.id) as at:
            row = _row(at)
        over = row.cohort >= self.task.cohorts
        return Status(
            task=self.task.id,
            state="closed" if over else row.state,
            epoch=row.epoch,
            label=self.task.label(min(row.cohort, self.task.cohorts - 1)),
        )

    def take(
        self, reports: Iterable[bytes], clients: Sequence[Client] | None = None
    ) -> tuple[RejectedError | None, ...]:
        """Take reports in, in one transaction; then release what is complete.

        A call that takes no report writes nothing.

        Args:
            reports: as they came over the wire.
            clients: who sent each of them, as the operator's own login established: bytes or a
                text, and None for a client that nobody knows; None where nobody knows any.

        Returns:
            For each, None if it counts (now, or since it came before), or why it was refused. A
            report that was refused must be thrown away.

        Raises:
            FencedError: the store is not as it was last seen; nothing was released.
            InvalidValueError: reports are no list, or clients are not one for each report.
        """
        if isinstance(reports, str | bytes | bytearray) or not isinstance(reports, Iterable):
            raise InvalidValueError(
                "reports are no list of messages; give one, also for one report"
            )
        read = Report.read_all(reports, self.task)
        if self._record_check:
            read = self._record_check.refuse_forgeries(read)
        senders = read_clients(clients, len(read))
        with self._lock:
            if not any(isinstance(report, Report) for report in read):
                with self._store.read(self.task.id) as at:
                    self._running(at)
                return tuple(report for report in read if isinstance(report, RejectedError))
            with self._store.transaction(self.task.id) as at:
                row = self._running(at)
                self._check_witness(at, row)
                answers, row = self._taken(at, row, read, senders)
            self._bear_witness(row)
        return answers

    def releases(self, first: int = 0, most: int = _PAGE) -> tuple[bytes, ...]:
        """Releases from a number on, at most 10000 at once: the same bytes for ever."""
        first, most = _check_page(first, most)
        with self._store.read(self.task.id) as at:
            row, payloads = _row(at), tuple(at.releases(first, most))
        self._bear_witness(row)
        return payloads

    def chain(self, first: int = 0, most: int = _PAGE) -> tuple[Line, ...]:
        """Lines of the chain from a number on, at most 10000 at once; they are public."""
        first, most = _check_page(first, most)
        with self._store.read(self.task.id) as at:
            row, lines = _row(at), tuple(at.lines(first, most))
        self._bear_witness(row)
        return lines

    def head(self) -> tuple[int, bytes]:
        """How many lines the chain has, and the hash of the last one."""
        with self._store.read(self.task.id) as at:
            row = _row(at)
        self._bear_witness(row)
        return row.length, row.head

    def read_chain(self) -> ChainReader:
        """What the chain says; lines that this object has read before are not read again.

        Raises:
            FencedError: the chain was changed.
        """
        with self._reading:
            reader, self._reader = self._reader or ChainReader(self.made), None
            has_more = True
            while has_more:
                with self._store.read(self.task.id) as at:
                    row = _row(at)
                    has_more = self._read_page(at, row, reader)
            self._reader = reader
            copied = reader.snapshot()
        self._bear_witness(row)
        return copied

    def spent(self) -> Guarantee:
        """Return what the worst-off user was charged."""
        return self.read_chain().spent()

    def statement(self) -> str:
        """What is promised to whom, what it relies on, and who is admitted."""
        guarantee, reader = self.made.guarantee, self.read_chain()
        lines = [guarantee.statement(protected=self.made.problem.protected)]
        if guarantee.trust is not Trust.NONE:
            cost_intro = "Spent by" if reader.ended else "Paid in advance, before anyone comes, for"
            lines.append(f"{cost_intro} the worst-off user: epsilon {reader.spent().epsilon:.6g}.")
            lines.append(describe_visits(reader))
            lines.append(
                "The guarantee holds if applications ask their devices for due reports at times "
                "that do not depend on rewards."
            )
        if guarantee.trust not in (Trust.NONE, Trust.LOCAL):
            lines.append(self._describe_restores())
        if guarantee.trust is Trust.SHUFFLE:
            lines.append(describe_honest_part(guarantee.honest))
        lines.append(self._admission.sentence())
        lines.append(f"Task {self.task.id.hex()}, chain {reader.head.hex()}.")
        return "\n".join(lines)

    def _describe_restores(self) -> str:
        if isinstance(self._witness, NoWitness):
            return (
                "The store has no witness: a copy of it, or a backup that is restored, goes "
                "unnoticed, may release totals of the same users again with new noise, and then "
                "voids the guarantee."
            )
        return (
            "Restoring a backup of the store is noticed if anything was released since. Restoring "
            "the witness with it may go unnoticed, and voids the guarantee."
        )

    def close(self) -> Guarantee:
        """End the task: nothing more is taken in, and the bill is for what was really released.

        Raises:
            FencedError: the store is not as it was last seen: another copy may have released more.
        """

        def end(at: Transaction, _: Row | None, reader: ChainReader) -> Row:
            row = self._running(at)
            self._check_witness(at, row)
            _delete_reports(at)
            at.forget_seen()
            at.forget_clients()
            at.hide(write_secret(0, tuple(desk.open() for desk in self._desks)))
            row = appended(at, row, reader.settled(self.made))
            row = appended(at, row, [("end", {"releases": row.releases})])
            row = dataclasses.replace(row, state="closed")
            at.change(row)
            return row

        with self._lock:
            self._bear_witness(self._after_check(end))
        return self.spent()

    def renew(self, *, restart: bool = False) -> None:
        """Begin a new epoch with new users, after the store was rolled back or changed.

        Whoever took part before is done: their reports are refused from now on, so nobody is in
        two sums. New users are charged for noise of their own (`restarts.md`).

        Args:
            restart: begin again at the first cohort, and learn from the new epoch alone. Learners
                throw away what earlier releases told them when they read the first new one, or
                when `restart` is called. For an epoch that strangers used up or spoiled.

        Raises:
            CapacityExceededError: every cohort is released, and the task does not begin again.
            FencedError: this store has drawn what was never shown while another copy went on.
        """
        with self._lock:
            witnessed_head = self._witness.read(self.task.id)

            def begin(at: Transaction, _: Row | None, reader: ChainReader) -> Row:
                row = self._running(at)
                cohort = 0 if restart else row.cohort
                if cohort >= self.task.cohorts:
                    raise CapacityExceededError(
                        "all cohorts are released; renew(restart=True) begins again at the first "
                        "one, and learners forget what they have learned"
                    )
                self._check_hidden_draws(at, row, witnessed_head)
                _delete_reports(at)
                if restart:
                    self._restart(at)
                numbers = [earlier.epoch for earlier in reader.epochs]
                epoch = _choose_epoch(
                    numbers, row.head + (witnessed_head or b"") + self._source(32)
                )
                epoch_start = Epoch(epoch=epoch, cohort=cohort, release=row.releases)
                content = [
                    ("epoch", canonical.pack(epoch_start)),
                    *charged(self.made, len(numbers)),
                ]
                row = appended(at, row, content)
                at.hide(write_secret(0, tuple(desk.open() for desk in self._desks)))
                row = dataclasses.replace(row, epoch=epoch, cohort=cohort)
                at.change(row)
                return row

            row = self._after_check(begin)
            self._bear_witness(dataclasses.replace(row, witnessed=witnessed_head))

    def _restart(self, at: Transaction) -> None:
        """Forget what belongs to discarded releases; only subclasses have anything to forget."""

    def _after_check(self, step: Callable[[Transaction, Row | None, ChainReader], T]) -> T:
        """Take a step in a transaction, once the whole chain was read and checked.

        It is read in pages, each in a transaction that only reads. The exclusive transaction reads
        one page at most: where more came meanwhile, that is read before another attempt.
        """
        reader, has_more = ChainReader(self.made), True
        while True:
            while has_more:
                with self._store.read(self.task.id) as reading:
                    row = reading.row()
                    has_more = row is not None and self._read_page(reading, row, reader)
            with self._store.transaction(self.task.id) as at:
                row = at.row()
                has_more = row is not None and self._read_page(at, row, reader)
                if not has_more:
                    return step(at, row, reader)

    def _read_page(self, at: Reader, row: Row, reader: ChainReader) -> bool:
        """Read the next page of the chain, with its releases; whether there may be another page."""
        if row.config != self.task.data:
            raise FencedError("the store holds another task")
        lines = at.lines(reader.length, _PAGE)
        draws = reader.read(lines)
        if draws:
            check_payloads(draws, at.releases(draws[0].release, len(draws)))
        if len(lines) < _PAGE and reader.head != row.head:
            raise FencedError("the chain in the store does not end where the store says")
        return len(lines) == _PAGE

    def _begin(self, at: Transaction) -> Row:
        # Drawn, so that a store that was begun elsewhere with this task takes other reports.
        epoch = _choose_epoch((), self.task.id + self._source(32))
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
        at.hide_client_key(self._source(32))
        at.change(row)
        return row

    def _check(self, at: Transaction, row: Row, reader: ChainReader, *, renew: bool) -> None:
        """See that the store stands where its chain ends, and that no other copy went on."""
        reader.finish()
        _check_row(at, row, reader)
        if renew:
            return
        self._check_witness(at, row)
        self._check_noise(at, row, reader)

    def _check_noise(self, at: Reader, row: Row, reader: ChainReader) -> None:
        """See that correlated noise goes on where the releases of its epoch end."""
        if row.state != "running" or not any([desk.running for desk in self._desks]):
            return
        noise_count, _ = read_secret(at.secret() or b"", self._desks)
        release_count = row.releases - reader.epochs[-1].release
        if noise_count != release_count:
            raise FencedError(
                f"the store's noise stands after {noise_count} releases of its epoch, and "
                f"{release_count} were drawn; it was changed or mixed from copies: renew=True "
                "begins a new epoch"
            )

    def _check_witness(self, at: Reader, row: Row) -> None:
        """See that the witness knows no other copy of this store."""
        if isinstance(self._witness, NoWitness):
            if row.witnessed is not None:
                raise FencedError("this store has a witness; give it, or nobody notices a copy")
            return
        witnessed_head = self._witness.read(self.task.id)
        if witnessed_head is None and row.witnessed is not None:
            raise FencedError("the witness has never seen this store; was it copied?")
        if witnessed_head in (None, row.witnessed, row.head):
            return
        # Another process may have told the witness of a later head, and not yet noted it here.
        last = _last_line(at, row, {witnessed_head, row.witnessed})
        if last is None or last.hash != witnessed_head:
            raise FencedError(
                "the witness has seen another head than this store last had witnessed; one of the "
                "two was rolled back"
            )

    def _check_hidden_draws(self, at: Reader, row: Row, witnessed_head: bytes | None) -> None:
        """See that a new epoch would not show draws of users whom another copy released."""
        if (
            isinstance(self._witness, NoWitness)
            or _last_line(at, row, {witnessed_head}) is not None
        ):
            return
        last_public = _last_line(at, row, {row.witnessed}, until="draw")
        if last_public is not None and last_public.hash != row.witnessed:
            raise FencedError(
                "this store has drawn what nobody may see, since another copy went on; go on with "
                "that one, or begin another task"
            )

    def _bear_witness(self, row: Row) -> None:
        """Tell the witness of the chain's head, before anyone else learns what it stands for."""
        if row.head == row.witnessed or isinstance(self._witness, NoWitness):
            return
        self._swap_witness(row)
        with self._store.transaction(self.task.id) as at:
            now = _row(at)
            if now.head == row.head:
                at.change(dataclasses.replace(now, witnessed=row.head))

    def _swap_witness(self, row: Row) -> None:
        """Swap what the witness holds for our head, if it is an earlier head of our own chain."""
        expected = row.witnessed
        while True:
            try:
                return self._witness.swap(self.task.id, expected, row.head)
            except FencedError:
                witnessed_head = self._witness.read(self.task.id)
                with self._store.read(self.task.id) as at:
                    last = _last_line(at, _row(at), {witnessed_head, row.witnessed})
                # Another process on this store may have been faster, with a head before ours or
                # after it; a head that is not ours at all is that of another copy.
                if (
                    witnessed_head is None
                    or witnessed_head == expected
                    or last is None
                    or last.hash != witnessed_head
                ):
                    raise
                if last.number >= row.length - 1:
                    return None
                expected = witnessed_head

    def _running(self, at: Reader) -> Row:
        row = _row(at)
        if row.state != "running":
            raise CapacityExceededError(f"the task is {row.state}; begin another one")
        return row

    def _taken(
        self,
        at: Transaction,
        row: Row,
        read: Sequence[Report | RejectedError],
        clients: Sequence[bytes | None],
    ) -> tuple[tuple[RejectedError | None, ...], Row]:
        """Put each report into the open cohort; release it when it is full, and open the next."""
        counted_ids = at.known([report.id for report in read if isinstance(report, Report)])
        counts, places = at.counts(), Places(at, self._admission, clients)
        drawing = ReleaseBatch(at, row, task=self.task, desks=self._desks, source=self._noise)
        # Reports of this call that no release has taken in yet, by their cohorts.
        waiting: dict[int, list[Report]] = {}
        new_ids: list[tuple[bytes, int]] = []
        answers: list[RejectedError | None] = []
        refusals: dict[tuple[bytes, int, int], RejectedError] = {}
        for report, client in zip(read, clients, strict=True):
            cohort = drawing.cohort
            if isinstance(report, RejectedError):
                answers.append(report)
                continue
            # A copy of one that was refused is refused, though the next cohort might take it; but
            # not where its client was refused, which may have copied another client's report.
            place: int | RejectedError | None = None
            if refusals:
                place = refusals.get((report.id, report.epoch, report.label))
            if place is None:
                place = self._choose_cohort(report, row.epoch, cohort, counted_ids, counts)
                if isinstance(place, RejectedError):
                    refusals[report.id, report.epoch, report.label] = place
                elif place is not None:
                    place = places.refusal(client) or place
            if not isinstance(place, int):
                answers.append(place)
                continue
            answers.append(None)
            counted_ids.add(report.id)
            new_ids.append((report.id, place))
            places.take(client)
            waiting.setdefault(place, []).append(report)
            counts[place] = counts.get(place, 0) + 1
            if place == cohort and counts[cohort] == self.task.need(cohort):
                drawing.fill([report.numbers for report in waiting.pop(cohort, [])])
        if not new_ids:
            return tuple(answers), row
        row = drawing.close()
        at.see(new_ids, epoch=row.epoch)
        places.close()
        for cohort, reports in waiting.items():
            _store_reports(at, cohort, reports)
        return tuple(answers), row

    def _choose_cohort(
        self,
        report: Report,
        epoch: int,
        cohort: int,
        counted_ids: set[bytes],
        counts: Mapping[int, int],
    ) -> int | RejectedError | None:
        """Choose the cohort that a report enters, or refuse it; None if it counted before.

        None of it depends on what others reported, but only on how many did.
        """
        if report.epoch != epoch:
            return RejectedError(
                "epoch", f"the report is of epoch {report.epoch}; it is {epoch} now"
            )
        if report.id in counted_ids:
            return None
        if cohort >= self.task.cohorts:
            return RejectedError("over", "all users that were paid for have reported")
        if self.task.enters(report.label, cohort):
            return cohort
        later = self._choose_later_cohort(report.label, cohort, counts)
        if later is not None:
            return later
        return RejectedError(
            "label",
            f"the report is for cohort {report.label}; the open one needs more noise than it "
            "brings, or asks something else",
        )

    def _choose_later_cohort(
        self, label: int, cohort: int, counts: Mapping[int, int]
    ) -> int | None:
        """Choose the first later cohort for which the coins of a late report suffice.

        It leaves a place there, so that every cohort is filled by a report that comes when it is
        open. Only the next 64 cohorts are looked at: strangers may send many such reports.
        """
        if label > cohort or self.task.bandit != "contextual":
            return None
        for candidate in range(cohort + 1, min(cohort + 1 + _MOST_LATER, self.task.cohorts)):
            if counts.get(candidate, 0) + 1 < self.task.need(candidate) and self.task.enters(
                label, candidate
            ):
                return candidate
        return None


def _check_page(first: int, count: int) -> tuple[int, int]:
    """Check the bounds of a page that a store can read.

    Raises:
        InvalidValueError: it begins before the first row, or is longer than 10000 rows.
    """
    return whole("first", first, low=0, high=EVERYTHING), whole("most", count, high=_MOST_PAGE)


def _last_line(
    at: Reader, row: Row, heads: Collection[bytes | None], *, until: str | None = None
) -> Line | None:
    """Find the last line of a chain with one of these hashes, or of a kind."""
    end = row.length
    while end > 0:
        first = max(0, end - _LAST)
        for line in reversed(at.lines(first, end - first)):
            if line.hash in heads or line.kind == until:
                return line
        end = first
    return None


def _check_row(at: Reader, row: Row, reader: ChainReader) -> None:
    """See that the task stands where its chain and its releases end."""
    epoch = reader.epochs[-1]
    released = row.releases - epoch.release
    stored = len(at.releases(max(0, row.releases - 1), 2))
    release_count = reader.draws if reader.names_releases else row.releases
    state = "closed" if reader.ended else "running"
    expected = (state, epoch.epoch, epoch.cohort + released, release_count, min(1, row.releases))
    if (row.state, row.epoch, row.cohort, row.releases, stored) != expected:
        raise FencedError(
            f"the store says {row.state}, epoch {row.epoch}, cohort {row.cohort} and "
            f"{row.releases} releases, which are not those of its chain; it was changed: begin "
            "another task"
        )


def _store_reports(at: Transaction, cohort: int, reports: Sequence[Report]) -> None:
    """Keep reports until their cohort is full."""
    at.keep(cohort, [(report.id, report.numbers.tobytes()) for report in reports])


def _delete_reports(at: Transaction) -> None:
    """Delete all reports that no release has taken in."""
    for cohort in at.counts():
        at.forget(cohort)


def _choose_epoch(epochs: Sequence[int], context: bytes) -> int:
    """Choose an epoch number that no other copy has, since a lost one must not come again."""
    epoch = int.from_bytes(hashlib.sha256(context).digest()[:4], "little")
    return epoch if epoch not in epochs else _choose_epoch(epochs, context + b"\0")


def _row(at: Reader) -> Row:
    row = at.row()
    if row is None:
        raise FencedError("the store does not hold this task any more")
    return row
