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

Several processes may work on one store (`witnessed_store.py`), and a crash at any moment leaves
either all of a step or none of it. Proof notes: `crediting.md`, `restarts.md`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kerchief.core.errors import CapacityExceededError
from kerchief.deployment.admission import (
    Admission,
    AdmitEveryone,
    Client,
    Places,
    describe_honest_part,
    read_clients,
)
from kerchief.deployment.audit_log import ChainReader, Epoch, charge_epoch, encode_opening
from kerchief.deployment.deployed_statistic import build_statistics, write_secret
from kerchief.deployment.deployment import Deployment
from kerchief.deployment.record_check import RecordCheck
from kerchief.deployment.release_batch import ReleaseBatch, append_lines
from kerchief.deployment.statements import (
    TIMED_REQUESTS,
    UNNOTICED_COPIES,
    build_statement,
    describe_restores,
)
from kerchief.deployment.witnessed_store import PAGE, WitnessedStore, check_page, read_row
from kerchief.privacy.guarantee import Guarantee, Trust
from kerchief.stores.store import Row, Store, Transaction
from kerchief.stores.witness import NoWitness, Witness
from kerchief_device.samplers import Randomness
from kerchief_protocol import canonical
from kerchief_protocol.chain import Line
from kerchief_protocol.errors import InvalidValueError, RejectedError
from kerchief_protocol.model import Status
from kerchief_protocol.report import Report

# Cohorts that are looked at for a late report, under the exclusive lock.
_MOST_LATER = 64


class Aggregator(WitnessedStore):
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
        deployment: Deployment,
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
            deployment: the task, with its noise.
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
        if (deployment.task.bandit == "context-free") != self._asks:
            raise InvalidValueError(
                f"the bandit of this task is {deployment.task.bandit}; Asker is for bandits "
                "without contexts, and Bandit and Aggregator are for all others"
            )
        super().__init__(
            deployment,
            store=store,
            witness=witness,
            deployed_statistics=build_statistics(deployment, pool),
        )
        # A bandit in one process makes all reports itself.
        self._record_check = RecordCheck(deployment.task) if pool is None else None
        self._source, self._noise = source, source if pool is None else None
        self._admission = admission or AdmitEveryone()

        def start(transaction: Transaction, row: Row | None, chain: ChainReader) -> Row:
            if row is None:
                return self._begin(transaction)
            self._check(transaction, row, chain, renew=renew or restart)
            self._chain_reader = chain
            return row

        with self._lock:
            row = self._after_check(start)
            if not (renew or restart):
                self._bear_witness(row)
        if renew or restart:
            self.renew(restart=restart)

    def status(self) -> Status:
        """Return the public status for devices that are about to report."""
        with self._store.read(self.task.id) as reader:
            row = read_row(reader)
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
                with self._store.read(self.task.id) as reader:
                    self._read_running_row(reader)
                return tuple(report for report in read if isinstance(report, RejectedError))
            with self._store.transaction(self.task.id) as transaction:
                row = self._read_running_row(transaction)
                self._check_witness(transaction, row)
                answers, row = self._take_reports(transaction, row, read, senders)
            self._bear_witness(row)
        return answers

    def releases(self, first: int = 0, limit: int = PAGE) -> tuple[bytes, ...]:
        """Releases from a number on, at most 10000 at once: the same bytes for ever."""
        first, limit = check_page(first, limit)
        with self._store.read(self.task.id) as reader:
            row, payloads = read_row(reader), tuple(reader.releases(first, limit))
        self._bear_witness(row)
        return payloads

    def spent(self) -> Guarantee:
        """Return what the worst-off user was charged."""
        return self.read_chain().spent()

    def statement(self) -> str:
        """What is promised to whom, what it relies on, and who is admitted."""
        guarantee = self.deployment.guarantee
        conditions = [] if guarantee.trust is Trust.NONE else [TIMED_REQUESTS]
        if guarantee.trust not in (Trust.NONE, Trust.LOCAL):
            has_witness = not isinstance(self._witness, NoWitness)
            conditions.append(describe_restores("store") if has_witness else UNNOTICED_COPIES)
        if guarantee.trust is Trust.SHUFFLE:
            conditions.append(describe_honest_part(guarantee.honest))
        conditions.append(self._admission.sentence())
        return build_statement(self.deployment, self.read_chain(), conditions)

    def close(self) -> Guarantee:
        """End the task: nothing more is taken in, and the bill is for what was really released.

        Raises:
            FencedError: the store is not as it was last seen: another copy may have released more.
        """

        def end(transaction: Transaction, _: Row | None, chain: ChainReader) -> Row:
            row = self._read_running_row(transaction)
            self._check_witness(transaction, row)
            _delete_reports(transaction)
            transaction.forget_report_ids()
            transaction.forget_clients()
            transaction.hide(
                write_secret(0, tuple(statistic.open() for statistic in self._statistics))
            )
            row = append_lines(transaction, row, chain.list_settlements(self.deployment))
            row = append_lines(transaction, row, [("end", {"releases": row.releases})])
            row = dataclasses.replace(row, state="closed")
            transaction.change(row)
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

            def begin(transaction: Transaction, _: Row | None, chain: ChainReader) -> Row:
                row = self._read_running_row(transaction)
                cohort = 0 if restart else row.cohort
                if cohort >= self.task.cohorts:
                    raise CapacityExceededError(
                        "all cohorts are released; renew(restart=True) begins again at the first "
                        "one, and learners forget what they have learned"
                    )
                self._check_hidden_draws(transaction, row, witnessed_head)
                _delete_reports(transaction)
                if restart:
                    self._restart(transaction)
                numbers = [earlier.epoch for earlier in chain.epochs]
                epoch = _choose_epoch(
                    numbers, row.head + (witnessed_head or b"") + self._source(32)
                )
                epoch_start = Epoch(epoch=epoch, cohort=cohort, release=row.releases)
                content = [
                    ("epoch", canonical.pack(epoch_start)),
                    *charge_epoch(self.deployment, len(numbers)),
                ]
                row = append_lines(transaction, row, content)
                transaction.hide(
                    write_secret(0, tuple(statistic.open() for statistic in self._statistics))
                )
                row = dataclasses.replace(row, epoch=epoch, cohort=cohort)
                transaction.change(row)
                return row

            row = self._after_check(begin)
            self._bear_witness(dataclasses.replace(row, witnessed=witnessed_head))

    def _restart(self, transaction: Transaction) -> None:
        """Forget what belongs to discarded releases; only subclasses have anything to forget."""

    def _begin(self, transaction: Transaction) -> Row:
        # Drawn, so that a store that was begun elsewhere with this task takes other reports.
        epoch = _choose_epoch((), self.task.id + self._source(32))
        line = Line(number=0, kind="open", prev=bytes(32), body=encode_opening(self.task, epoch))
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
        transaction.create(row)
        transaction.append([line])
        row = append_lines(transaction, row, charge_epoch(self.deployment, 0))
        transaction.hide(write_secret(0, tuple(statistic.open() for statistic in self._statistics)))
        transaction.hide_client_key(self._source(32))
        transaction.change(row)
        return row

    def _take_reports(
        self,
        transaction: Transaction,
        row: Row,
        read: Sequence[Report | RejectedError],
        clients: Sequence[bytes | None],
    ) -> tuple[tuple[RejectedError | None, ...], Row]:
        """Put each report into the open cohort; release it when it is full, and open the next."""
        counted_ids = transaction.find_report_ids(
            [report.id for report in read if isinstance(report, Report)]
        )
        counts, places = transaction.counts(), Places(transaction, self._admission, clients)
        drawing = ReleaseBatch(
            transaction,
            row,
            task=self.task,
            deployed_statistics=self._statistics,
            source=self._noise,
        )
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
        transaction.add_report_ids(new_ids, epoch=row.epoch)
        places.close()
        for cohort, reports in waiting.items():
            _store_reports(transaction, cohort, reports)
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


def _store_reports(transaction: Transaction, cohort: int, reports: Sequence[Report]) -> None:
    """Keep reports until their cohort is full."""
    transaction.keep(cohort, [(report.id, report.numbers.tobytes()) for report in reports])


def _delete_reports(transaction: Transaction) -> None:
    """Delete all reports that no release has taken in."""
    for cohort in transaction.counts():
        transaction.forget(cohort)


def _choose_epoch(epochs: Sequence[int], context: bytes) -> int:
    """Choose an epoch number that no other copy has, since a lost one must not come again."""
    epoch = int.from_bytes(hashlib.sha256(context).digest()[:4], "little")
    return epoch if epoch not in epochs else _choose_epoch(epochs, context + b"\0")
