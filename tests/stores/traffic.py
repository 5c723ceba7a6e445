"""Traffic for stores, in threads and in processes of its own, and what must hold after it.

A body holds the id of its report, and a release holds the ids of its cohort: so it can be seen
whether each report went into exactly one of them.
"""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from kerchief.stores import Row, Store, Transaction, open_store
from kerchief_protocol.canonical import write
from kerchief_protocol.chain import ROOT, Line, check_chain
from kerchief_protocol.errors import StoreError

TASK = bytes(range(32))
BATCH, NEED = 8, 40
_FILL = b"\0" * 200
_ROOT = Path(__file__).parents[2]


def fresh() -> Row:
    """A task that has just begun."""
    return Row(
        config=b"{}",
        state="running",
        epoch=0,
        cohort=0,
        releases=0,
        length=0,
        head=ROOT,
        witnessed=None,
    )


def begin(store: Store, task: bytes = TASK) -> None:
    """Create a task with the first line of its chain."""
    line = Line(number=0, kind="open", prev=ROOT, body=write({}))
    with store.transaction(task) as transaction:
        transaction.create(fresh())
        transaction.append([line])
        transaction.hide(b"0")
        transaction.change(replace(fresh(), length=1, head=line.hash))


def names(run: int, batch: int) -> list[bytes]:
    """The ids of a batch."""
    return [hashlib.sha256(b"%d/%d/%d" % (run, batch, n)).digest()[:16] for n in range(BATCH)]


def take(transaction: Transaction, ids: list[bytes]) -> None:
    """Take in what is new, and close cohorts as they fill."""
    row = transaction.row()
    assert row is not None
    known = transaction.find_report_ids(ids)
    for id in (one for one in dict.fromkeys(ids) if one not in known):
        transaction.add_report_ids([(id, row.cohort)], epoch=row.epoch)
        transaction.keep(row.cohort, [(id, id + _FILL)])
        if transaction.counts()[row.cohort] == NEED:
            row = _close(transaction, row)


def _close(transaction: Transaction, row: Row) -> Row:
    payload = b"".join(body[:16] for body in transaction.bodies(row.cohort))
    (last,) = transaction.lines(row.length - 1)
    line = last.next("draw", {"number": row.releases})
    transaction.publish(row.releases, [payload])
    transaction.append([line])
    transaction.hide(b"%d" % (row.releases + 1))
    transaction.forget(row.cohort)
    after = replace(
        row,
        cohort=row.cohort + 1,
        releases=row.releases + 1,
        length=row.length + 1,
        head=line.hash,
    )
    transaction.change(after)
    return after


def audit(store: Store) -> set[bytes]:
    """All reports of a store, after checking that each is where it must be."""
    with store.read(TASK) as reader:
        row = reader.row()
        assert row is not None
        lines, releases = reader.lines(), reader.releases(0, 10**9)
        bodies = reader.bodies(row.cohort)
        assert check_chain(lines) == row.head
        assert len(lines) == row.length == row.releases + 1
        assert len(releases) == row.releases == row.cohort
        assert reader.secret() == b"%d" % row.releases
        assert reader.counts() == ({row.cohort: len(bodies)} if bodies else {})
        cohorts = {n: len(release) // 16 for n, release in enumerate(releases)}
        cohorts |= {row.cohort: len(bodies)} if bodies else {}
        assert reader.count_report_ids() == {(0, cohort): many for cohort, many in cohorts.items()}
        assert all(many == NEED for cohort, many in cohorts.items() if cohort < row.cohort)
        ids = [body[:16] for body in bodies]
        for release in releases:
            ids += [release[at : at + 16] for at in range(0, len(release), 16)]
        assert max(Counter(ids).values(), default=1) == 1
        assert reader.find_report_ids(ids) == set(ids)
    return set(ids)


def ingest(store: Store, ids: list[bytes], seed: int) -> None:
    """Send reports in an order of one's own, some of them twice."""
    order = ids + ids[::3]
    random.Random(seed).shuffle(order)
    for at in range(0, len(order), BATCH):
        with store.transaction(TASK) as transaction:
            take(transaction, order[at : at + BATCH])


def start(job: str, where: str, *words: int) -> subprocess.Popen[bytes]:
    """Run a job of this module in a process of its own."""
    command = [sys.executable, "-m", "tests.stores.traffic", job, where, *map(str, words)]
    return subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def _stream(where: str, run: int) -> None:
    """Batch after batch until killed; each is told when it is committed."""
    store, batch = open_store(where), 0
    while True:
        try:
            with store.transaction(TASK) as transaction:
                take(transaction, names(run, batch))
        except StoreError:
            os._exit(3)
        os.write(1, b"%d\n" % batch)
        batch += 1


def _ingest(where: str, seed: int, batches: int) -> None:
    store = open_store(where)
    ingest(store, [id for batch in range(batches) for id in names(0, batch)], seed)
    store.close()


def _open(where: str) -> None:
    open_store(where).close()


_JOBS: dict[str, Callable[..., None]] = {"stream": _stream, "ingest": _ingest, "open": _open}

if __name__ == "__main__":
    _JOBS[sys.argv[1]](sys.argv[2], *map(int, sys.argv[3:]))
