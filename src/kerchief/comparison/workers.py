"""Processes of this machine that play chunks, and what all workers have in common."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import functools
import itertools
import multiprocessing
import os
import pickle
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from typing import Protocol, TypeAlias

from kerchief.comparison.chunks import Chunk, ChunkResult, group_chunks, play_together
from kerchief.core.errors import KerchiefError
from kerchief.core.precision import double_precision

Prepare: TypeAlias = Callable[[], object]
_CLOSED_MESSAGE = "the processes were closed before everything was played; play it with new ones"
_LOST_MESSAGE = (
    "a worker was lost (out of memory, perhaps); what was finished is kept: run the command again"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskResult:
    """Result of a chunk from a worker, with the peak memory of its process in bytes."""

    result: ChunkResult
    process: tuple[str, int]
    memory: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answer:
    """Results of a group by the number of the chunk, and the error of a chunk that failed."""

    results: Mapping[int, TaskResult]
    error: Exception | None


Group: TypeAlias = "list[Chunk]"
"""Chunks that are played side by side."""
Tasks: TypeAlias = "dict[Future[Answer], Group]"


class Workers(Protocol):
    """Processes that play chunks: `local_processes` or `dask_cluster`."""

    def submit(self, parts: Iterable[Chunk]) -> Tasks:
        """Start to play chunks in about this order."""


class Processes:
    """Processes of this machine, each of which prefers programs that it has compiled."""

    def __init__(self, *, executors: Sequence[Executor], prepare: Prepare) -> None:
        """Let executors of one process each call ``prepare`` before they play."""
        self.executors, self.prepare = executors, prepare
        self._idle = list(executors)
        self._compiled = {executor: set[Hashable]() for executor in executors}
        self._cached = set[Hashable]()
        self._waiting: dict[Hashable, list[tuple[Future[Answer], Group]]] = {}
        self._is_closed = False
        # A future that is done at once calls back in the thread that holds the lock.
        self._lock = threading.RLock()

    def submit(self, parts: Iterable[Chunk]) -> Tasks:
        """Queue chunks in groups; each process plays one group after the other."""
        groups = group_chunks(parts, tasks=2 * len(self.executors))
        tasks: Tasks = {Future(): group for group in groups}
        with self._lock:
            if self._is_closed:
                raise KerchiefError(_CLOSED_MESSAGE)
            for future, group in tasks.items():
                self._waiting.setdefault(list_programs(group), []).append((future, group))
            idle, self._idle = self._idle, []
            for executor in idle:
                self._start_next(executor)
        return tasks

    def close(self, problem: Exception | None = None) -> None:
        """Start no further group; a caller that waits for one gets an error."""
        with self._lock:
            self._is_closed = True
            tasks = list(itertools.chain(*self._waiting.values()))
            self._waiting.clear()
        for future, _ in tasks:
            future.set_exception(problem or KerchiefError(_CLOSED_MESSAGE))

    def _start_next(self, executor: Executor) -> None:
        """Send the next group to a process, if any waits."""
        with self._lock:
            while self._waiting:
                future, group = self._take(self._compiled[executor])
                try:
                    world = pickle.dumps(group[0].environment)
                    sent = executor.submit(play_group, pack_group(group), world, self.prepare)
                except Exception as problem:
                    future.set_exception(problem)
                else:
                    sent.add_done_callback(functools.partial(self._finish, executor, future, group))
                    return
            self._idle.append(executor)

    def _take(self, compiled: set[Hashable]) -> tuple[Future[Answer], Group]:
        """Remove the best waiting group for a process that has compiled these programs.

        First a group of a compiled program, then of a new one, then of one whose code is cached,
        and last of one that another process may still be compiling.
        """
        started = set().union(*self._compiled.values())
        programs = min(
            self._waiting,
            key=lambda key: (key not in compiled, key in started, key not in self._cached),
        )
        compiled.add(programs)
        task = self._waiting[programs].pop(0)
        if not self._waiting[programs]:
            del self._waiting[programs]
        return task

    def _finish(
        self, executor: Executor, future: Future[Answer], group: Group, sent: Future[Answer]
    ) -> None:
        """Pass on what became of a group, and start the next one."""
        try:
            answer = sent.result()
        except Exception as problem:
            future.set_exception(problem)
            if isinstance(problem, BrokenExecutor):
                # The executor of the lost process may hold its lock here: send nothing to it.
                self.close(problem)
                return
        else:
            self._cached.add(list_programs(group))
            future.set_result(answer)
        self._start_next(executor)


def list_programs(group: Group) -> Hashable:
    """Return the compiled programs that play a group."""
    return tuple(map(find_program, group))


def find_program(part: Chunk) -> Hashable:
    """Return a key that is equal for chunks that the same compiled code probably plays."""
    player = part.cell.player
    shape = (part.cell.horizon, part.last - part.first, type(part.environment))
    return (player.policy, player.mode, player.trust, player.mechanism, *shape)


@contextlib.contextmanager
def local_processes(jobs: int, prepare: Prepare) -> Iterator[Processes]:
    """Start processes of this machine, and stop those that still play at the end."""
    pools = [
        ProcessPoolExecutor(
            1,
            # A forked copy of a process that has started JAX hangs.
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_end_with,
            initargs=(os.getpid(),),
        )
        for _ in range(jobs)
    ]
    processes = Processes(executors=pools, prepare=prepare)
    try:
        yield processes
    finally:
        processes.close()
        for pool in pools:
            for process in list((pool._processes or {}).values()):
                process.terminate()
        for pool in pools:
            # Waits for the pool's own thread only, which would complain at exit.
            pool.shutdown(wait=True, cancel_futures=True)


def collect_results(tasks: Tasks) -> Iterator[tuple[Chunk, TaskResult]]:
    """Yield the result of each chunk as soon as its group is done.

    Raises:
        KerchiefError: a process has died.
        Exception: the error of a chunk, after the results of its group.
    """
    for future in concurrent.futures.as_completed(tasks):
        try:
            answer = future.result()
            yield from ((tasks[future][i], result) for i, result in answer.results.items())
            if answer.error is not None:
                raise answer.error
        except BrokenExecutor as problem:
            raise KerchiefError(f"{_LOST_MESSAGE}, with fewer --jobs") from problem
        except Exception as problem:
            # Dask's own, which is imported only where it is used.
            if type(problem).__name__ == "KilledWorker":
                raise KerchiefError(_LOST_MESSAGE) from problem
            raise


def _end_with(parent: int) -> None:
    """In a worker, ignore interrupts, which the parent handles, and end when the parent does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def pack_group(group: Group) -> bytes:
    """Pickle chunks without their environment."""
    return pickle.dumps([vars(part) | {"environment": None} for part in group])


@double_precision
def play_group(packed: bytes, world: bytes, prepare: Prepare) -> Answer:
    """In a worker, play chunks that were sent as bytes, as their numbers have 64 bits."""
    prepare()
    environment = pickle.loads(world)
    group = [Chunk(**fields | {"environment": environment}) for fields in pickle.loads(packed)]
    process, results = (os.uname().nodename, os.getpid()), dict[int, TaskResult]()
    error: Exception | None = None
    try:
        for part, result in play_together(group, [None] * len(group)):
            results[group.index(part)] = TaskResult(
                result=result, process=process, memory=_measure_peak_memory()
            )
    except Exception as problem:
        if not results:
            raise
        error = problem
    return Answer(results=results, error=error)


def _measure_peak_memory() -> int:
    """Return the peak memory of this process in bytes: Linux counts in KiB, macOS in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
