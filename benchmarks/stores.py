"""Microseconds per report of a store: transactions of 64 that look up, remember and keep.

Run it as `python -m benchmarks.stores [URL or path ...]`; without arguments it takes memory and a
file in a temporary folder. It prints wall-clock and CPU time of this process; the difference is
mostly the wait for the disk.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

from kerchief.stores import Row, open_store
from kerchief_protocol.chain import ROOT

BATCH, TRANSACTIONS, BODY = 64, 500, 224


def measure(where: str) -> tuple[float, float]:
    store, task = open_store(where), os.urandom(32)
    row = Row(
        config=b"{}",
        state="running",
        epoch=0,
        cohort=0,
        releases=0,
        length=0,
        head=ROOT,
        witnessed=None,
    )
    with store.transaction(task) as transaction:
        transaction.create(row)
    batches = [[os.urandom(16) for _ in range(BATCH)] for _ in range(TRANSACTIONS)]
    body = os.urandom(BODY)
    wall, cpu = time.perf_counter(), time.process_time()
    for ids in batches:
        with store.transaction(task) as transaction:
            transaction.row()
            known_ids = transaction.find_report_ids(ids)
            new = [id for id in ids if id not in known_ids]
            transaction.add_report_ids([(id, 0) for id in new], epoch=0)
            transaction.keep(0, [(id, body) for id in new])
    reports = BATCH * TRANSACTIONS
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    store.close()
    return 1e6 * wall / reports, 1e6 * cpu / reports


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for where in sys.argv[1:] or [":memory:", str(Path(folder) / "store.db")]:
            wall, cpu = measure(where)
            print(f"{where}: {wall:.1f} us per report, {cpu:.1f} us of CPU")


if __name__ == "__main__":
    main()
