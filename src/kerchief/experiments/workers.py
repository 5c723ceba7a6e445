"""Where parts are played: in processes of this machine, or on a Dask cluster."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import importlib
import importlib.util
import multiprocessing
import os
import pickle
import resource
import sys
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from typing import Any, TypeAlias

from kerchief.core.errors import InvalidValue, KerchiefError
from kerchief.core.precision import double_precision
from kerchief.experiments.extras import installing
from kerchief.experiments.parts import Finished, Part

Prepare: TypeAlias = Callable[[], object]
PATIENCE = 10
"""How many seconds a scheduler has to answer."""
_MOST_IN_A_TASK = 6
_LOST = (
    "a worker was lost (out of memory, perhaps); what was finished is kept: run the command again"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Done:
    """A part that a worker has played, and the most memory that this process has ever held."""

    played: Finished
    process: tuple[str, int]
    memory: int


Tasks: TypeAlias = "dict[Future[list[Done]], tuple[Part, ...]]"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Workers:
    """Processes that play parts; make them with `local_processes` or `dask_cluster`.

    Attributes:
        executor: takes work.
        count: how many processes there are.
        prepare: called in a process before it plays.
    """

    executor: Executor
    count: int
    prepare: Prepare

    def submit(self, parts: Iterable[Part]) -> Tasks:
        """Let somebody play parts; those of one program go together, as it is compiled once."""
        alike: dict[Hashable, list[Part]] = {}
        for part in parts:
            alike.setdefault(_program(part), []).append(part)
        total = sum(map(len, alike.values()))
        most = max(1, min(_MOST_IN_A_TASK, total // (2 * self.count)))
        tasks = [task for group in alike.values() for task in _batched(group, most)]
        # The longest first, so that nobody waits for one at the end.
        tasks.sort(key=_length, reverse=True)
        return {self.executor.submit(_play, pickle.dumps(one), self.prepare): one for one in tasks}


def _length(task: tuple[Part, ...]) -> int:
    """How many decisions there are in a task."""
    return sum(part.cell.horizon * (part.last - part.first) for part in task)


def _batched(parts: list[Part], most: int) -> Iterator[tuple[Part, ...]]:
    for first in range(0, len(parts), most):
        yield tuple(parts[first : first + most])


def _program(part: Part) -> Hashable:
    """Equal for parts that are likely to be played by the same compiled code."""
    player = part.cell.player
    shape = (part.cell.horizon, part.last - part.first, type(part.environment))
    return (player.policy, player.mode, player.trust, player.mechanism, *shape)


@contextlib.contextmanager
def local_processes(jobs: int, prepare: Prepare) -> Iterator[Workers]:
    """So many processes of this machine; those still playing at the end are stopped."""
    # Fresh ones: a copy of a process that has started JAX hangs.
    pool = ProcessPoolExecutor(
        jobs,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_end_with,
        initargs=(os.getpid(),),
    )
    try:
        yield Workers(executor=pool, count=jobs, prepare=prepare)
    finally:
        for process in list((pool._processes or {}).values()):
            process.terminate()
        # Nobody is left to wait for but the pool's own thread, which would complain at exit.
        pool.shutdown(wait=True, cancel_futures=True)


@contextlib.contextmanager
def dask_cluster(address: str, prepare: Prepare) -> Iterator[Workers]:
    """The workers of a Dask scheduler; a part whose worker is lost goes to another one."""
    if importlib.util.find_spec("distributed") is None:
        raise KerchiefError(
            f"scheduler is {address!r}, and Dask is not installed: run {installing('cluster')}"
        )
    distributed: Any = importlib.import_module("distributed")
    try:
        client = distributed.Client(address, timeout=PATIENCE, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as problem:
        raise InvalidValue(
            f"scheduler is {address!r}; none answers there ({problem}); start one with "
            "`dask scheduler`, and workers with `dask worker`"
        ) from problem
    with client, client.get_executor(pure=False) as executor:
        yield Workers(executor=executor, count=max(1, len(client.nthreads())), prepare=prepare)


def finished(tasks: Tasks) -> Iterator[tuple[Part, Done]]:
    """Every part as soon as its task is done.

    Raises:
        KerchiefError: a process has died.
    """
    for future in concurrent.futures.as_completed(tasks):
        try:
            yield from zip(tasks[future], future.result(), strict=True)
        except concurrent.futures.BrokenExecutor as problem:
            raise KerchiefError(f"{_LOST}, with fewer --jobs") from problem
        except Exception as problem:
            # Dask's own, which is imported only where it is used.
            if type(problem).__name__ == "KilledWorker":
                raise KerchiefError(_LOST) from problem
            raise


def _end_with(parent: int) -> None:
    """In a worker: end when the parent does, however it does."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@double_precision
def _play(parts: bytes, prepare: Prepare) -> list[Done]:
    """In a worker: play parts that were sent as bytes, as their numbers have 64 bits."""
    prepare()
    loaded: tuple[Part, ...] = pickle.loads(parts)
    process = (os.uname().nodename, os.getpid())
    return [Done(played=one.play(), process=process, memory=_peak()) for one in loaded]


def _peak() -> int:
    """The most memory that this process has held, in bytes: Linux counts in KiB, macOS does not."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
