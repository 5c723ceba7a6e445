"""Processes that are killed, stopped and copied: what was committed is there, and nothing else."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from tests.stores.cluster import Cluster
from tests.stores.traffic import audit, begin, names, start

from kerchief.stores import open_store
from kerchief.stores.sqlite import SQLiteStore


def _told(process: subprocess.Popen[bytes], *, wait: bool) -> int:
    """How many batches a process has told so far; at least one if one waits."""
    assert process.stdout is not None
    text = process.stdout.readline() if wait else b""
    os.set_blocking(process.stdout.fileno(), False)
    text += process.stdout.read() or b""
    return text.count(b"\n")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdout, process.stderr):
        assert pipe is not None
        pipe.close()


def _check(where: str, before: set[bytes], run: int, told: int) -> set[bytes]:
    """All that was told is there, and at most one batch more, as a whole."""
    store = open_store(where)
    found = audit(store)
    store.close()
    sure = before.union(*(names(run, batch) for batch in range(told)))
    assert found in (sure, sure | set(names(run, told)))
    return found


def _kill(where: str, times: int) -> None:
    moments, found = random.Random(times), set[bytes]()
    for run in range(times):
        process = start("stream", where, run)
        told = _told(process, wait=True)
        time.sleep(moments.uniform(0.0, 0.1))
        process.kill()
        process.wait()
        told += _told(process, wait=False)
        _end(process)
        assert told > 0
        found = _check(where, found, run, told)


def test_killed_at_random_moments(shared: str) -> None:
    _kill(shared, 8)


@pytest.mark.nightly
def test_killed_at_many_random_moments(shared: str) -> None:
    _kill(shared, 200)


@pytest.mark.parametrize(
    "times", [5, pytest.param(100, marks=pytest.mark.nightly)], ids=["day", "night"]
)
def test_a_copy_of_an_sqlite_store_with_its_log_is_whole(tmp_path: Path, times: int) -> None:
    where, moments = tmp_path / "store.db", random.Random(times)
    store = SQLiteStore(where)
    begin(store)
    store.close()
    process = start("stream", str(where), 0)
    told = _told(process, wait=True)
    for time_ in range(times):
        time.sleep(moments.uniform(0.0, 0.05))
        os.kill(process.pid, signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        folder = tmp_path / f"copy{time_}"
        folder.mkdir()
        for file in tmp_path.glob("store.db*"):
            if not file.name.endswith("-shm"):
                shutil.copy(file, folder)
        told += _told(process, wait=False)
        os.kill(process.pid, signal.SIGCONT)
        _check(str(folder / "store.db"), set(), 0, told)
    _end(process)


def test_four_processes_count_each_report_once(shared: str) -> None:
    processes = [start("ingest", shared, seed, 20) for seed in range(4)]
    for process in processes:
        _, text = process.communicate()
        assert process.returncode == 0, text.decode()
    store = open_store(shared)
    assert audit(store) == {id for batch in range(20) for id in names(0, batch)}
    store.close()


def test_four_processes_make_one_store(lasting: str) -> None:
    processes = [start("open", lasting) for _ in range(4)]
    for process in processes:
        _, text = process.communicate()
        assert process.returncode == 0, text.decode()


def test_a_server_that_restarts_is_found_again(cluster: Cluster) -> None:
    store = cluster.store()
    begin(store)
    cluster.stop("fast")
    cluster.start()
    assert audit(store) == set()
    store.close()


@pytest.mark.nightly
def test_a_server_that_stops_at_once_has_kept_everything(cluster: Cluster) -> None:
    where, moments, found = cluster.database(), random.Random(0), set[bytes]()
    store = open_store(where)
    begin(store)
    store.close()
    for run in range(20):
        process = start("stream", where, run)
        told = _told(process, wait=True)
        time.sleep(moments.uniform(0.0, 0.5))
        cluster.stop("immediate")
        assert process.wait() == 3
        told += _told(process, wait=False)
        _end(process)
        cluster.start()
        found = _check(where, found, run, told)
