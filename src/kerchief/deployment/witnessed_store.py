"""The store of one task: its chain is checked, and a witness remembers the chain's head."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Collection
from typing import TypeVar

from kerchief.core.errors import CapacityExceededError
from kerchief.core.validate import whole
from kerchief.deployment.audit_log import ChainReader
from kerchief.deployment.deployed_statistic import DeployedStatistic, read_secret
from kerchief.deployment.deployment import Deployment
from kerchief.deployment.no_copy import NoCopy
from kerchief.deployment.verify import check_payloads
from kerchief.stores.store import EVERYTHING, Reader, Row, Store, Transaction
from kerchief.stores.witness import NoWitness, Witness
from kerchief_protocol.chain import Line
from kerchief_protocol.errors import FencedError

T = TypeVar("T")
PAGE = 1000
"""Lines of the chain that are read together, with the releases that they name."""
# Lines that are read together from the end, where a head is looked for: it is mostly the last one.
_LAST = 64
_MAX_PAGE = 10_000


class WitnessedStore(NoCopy):
    """Store of one task, whose chain is checked and whose head a witness remembers.

    Lines of the chain that were checked are remembered from one transaction to the next; all else
    is read anew, so several processes may work on one store.
    """

    def __init__(
        self,
        deployment: Deployment,
        *,
        store: Store,
        witness: Witness | None,
        deployed_statistics: tuple[DeployedStatistic, ...],
    ) -> None:
        """Take a store, and read nothing yet.

        Args:
            deployment: the task, with its noise.
            store: what survives a crash.
            witness: remembers the chain's head elsewhere.
            deployed_statistics: statistics of the task, in its order.
        """
        self.deployment, self.task = deployment, deployment.task
        self._store, self._witness = store, witness or NoWitness()
        self._statistics = deployed_statistics
        self._lock, self._reading = threading.Lock(), threading.Lock()
        self._chain_reader: ChainReader | None = None

    def chain(self, first: int = 0, limit: int = PAGE) -> tuple[Line, ...]:
        """Lines of the chain from a number on, at most 10000 at once; they are public."""
        first, limit = check_page(first, limit)
        with self._store.read(self.task.id) as reader:
            row, lines = read_row(reader), tuple(reader.lines(first, limit))
        self._bear_witness(row)
        return lines

    def head(self) -> tuple[int, bytes]:
        """How many lines the chain has, and the hash of the last one."""
        with self._store.read(self.task.id) as reader:
            row = read_row(reader)
        self._bear_witness(row)
        return row.length, row.head

    def read_chain(self) -> ChainReader:
        """What the chain says; lines that this object has read before are not read again.

        Raises:
            FencedError: the chain was changed.
        """
        with self._reading:
            chain, self._chain_reader = self._chain_reader or ChainReader(self.deployment), None
            has_more = True
            while has_more:
                with self._store.read(self.task.id) as reader:
                    row = read_row(reader)
                    has_more = self._read_page(reader, row, chain)
            self._chain_reader = chain
            copied = chain.snapshot()
        self._bear_witness(row)
        return copied

    def _after_check(self, step: Callable[[Transaction, Row | None, ChainReader], T]) -> T:
        """Take a step in a transaction, once the whole chain was read and checked.

        It is read in pages, each in a transaction that only reads. The exclusive transaction reads
        one page at most: where more came meanwhile, that is read before another attempt.
        """
        chain, has_more = ChainReader(self.deployment), True
        while True:
            while has_more:
                with self._store.read(self.task.id) as reading:
                    row = reading.row()
                    has_more = row is not None and self._read_page(reading, row, chain)
            with self._store.transaction(self.task.id) as transaction:
                row = transaction.row()
                has_more = row is not None and self._read_page(transaction, row, chain)
                if not has_more:
                    return step(transaction, row, chain)

    def _read_page(self, reader: Reader, row: Row, chain: ChainReader) -> bool:
        """Read the next page of the chain, with its releases; whether there may be another page."""
        if row.config != self.task.data:
            raise FencedError("the store holds another task")
        lines = reader.lines(chain.length, PAGE)
        draws = chain.read(lines)
        if draws:
            check_payloads(draws, reader.releases(draws[0].release, len(draws)))
        if len(lines) < PAGE and chain.head != row.head:
            raise FencedError("the chain in the store does not end where the store says")
        return len(lines) == PAGE

    def _check(
        self, transaction: Transaction, row: Row, chain: ChainReader, *, renew: bool
    ) -> None:
        """See that the store stands where its chain ends, and that no other copy went on."""
        chain.finish()
        _check_row(transaction, row, chain)
        if renew:
            return
        self._check_witness(transaction, row)
        self._check_noise(transaction, row, chain)

    def _check_noise(self, reader: Reader, row: Row, chain: ChainReader) -> None:
        """See that correlated noise goes on where the releases of its epoch end."""
        if row.state != "running" or not any([statistic.running for statistic in self._statistics]):
            return
        noise_count, _ = read_secret(reader.secret() or b"", self._statistics)
        release_count = row.releases - chain.epochs[-1].release
        if noise_count != release_count:
            raise FencedError(
                f"the store's noise stands after {noise_count} releases of its epoch, and "
                f"{release_count} were drawn; it was changed or mixed from copies: renew=True "
                "begins a new epoch"
            )

    def _check_witness(self, reader: Reader, row: Row) -> None:
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
        last = _last_line(reader, row, {witnessed_head, row.witnessed})
        if last is None or last.hash != witnessed_head:
            raise FencedError(
                "the witness has seen another head than this store last had witnessed; one of the "
                "two was rolled back"
            )

    def _check_hidden_draws(self, reader: Reader, row: Row, witnessed_head: bytes | None) -> None:
        """See that a new epoch would not show draws of users whom another copy released."""
        if (
            isinstance(self._witness, NoWitness)
            or _last_line(reader, row, {witnessed_head}) is not None
        ):
            return
        last_public = _last_line(reader, row, {row.witnessed}, until="draw")
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
        with self._store.transaction(self.task.id) as transaction:
            now = read_row(transaction)
            if now.head == row.head:
                transaction.change(dataclasses.replace(now, witnessed=row.head))

    def _swap_witness(self, row: Row) -> None:
        """Swap what the witness holds for our head, if it is an earlier head of our own chain."""
        expected = row.witnessed
        while True:
            try:
                return self._witness.swap(self.task.id, expected, row.head)
            except FencedError:
                witnessed_head = self._witness.read(self.task.id)
                with self._store.read(self.task.id) as reader:
                    last = _last_line(reader, read_row(reader), {witnessed_head, row.witnessed})
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

    def _read_running_row(self, reader: Reader) -> Row:
        row = read_row(reader)
        if row.state != "running":
            raise CapacityExceededError(f"the task is {row.state}; begin another one")
        return row


def check_page(first: int, count: int) -> tuple[int, int]:
    """Check the bounds of a page that a store can read.

    Raises:
        InvalidValueError: it begins before the first row, or is longer than 10000 rows.
    """
    return whole("first", first, low=0, high=EVERYTHING), whole("limit", count, high=_MAX_PAGE)


def _last_line(
    reader: Reader, row: Row, heads: Collection[bytes | None], *, until: str | None = None
) -> Line | None:
    """Find the last line of a chain with one of these hashes, or of a kind."""
    end = row.length
    while end > 0:
        first = max(0, end - _LAST)
        for line in reversed(reader.lines(first, end - first)):
            if line.hash in heads or line.kind == until:
                return line
        end = first
    return None


def _check_row(reader: Reader, row: Row, chain: ChainReader) -> None:
    """See that the task stands where its chain and its releases end."""
    epoch = chain.epochs[-1]
    released = row.releases - epoch.release
    stored = len(reader.releases(max(0, row.releases - 1), 2))
    release_count = chain.draws if chain.names_releases else row.releases
    state = "closed" if chain.ended else "running"
    expected = (state, epoch.epoch, epoch.cohort + released, release_count, min(1, row.releases))
    if (row.state, row.epoch, row.cohort, row.releases, stored) != expected:
        raise FencedError(
            f"the store says {row.state}, epoch {row.epoch}, cohort {row.cohort} and "
            f"{row.releases} releases, which are not those of its chain; it was changed: begin "
            "another task"
        )


def read_row(reader: Reader) -> Row:
    """Read where the task stands.

    Raises:
        FencedError: the store does not hold the task.
    """
    row = reader.row()
    if row is None:
        raise FencedError("the store does not hold this task any more")
    return row
