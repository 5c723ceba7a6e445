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
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from typing import Any, TypeAlias

from kerchief.core.errors import InvalidValue, KerchiefError
from kerchief.core.precision import double_precision
from kerchief.experiments.extras import installing
from kerchief.experiments.parts import Finished, Part

Prepare: TypeAlias = Callable[[], object]
_LOST = (
    "a worker was lost (out of memory, perhaps); what was finished is kept: run the command again"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Done:
    """A part that a worker has played, and the most memory that this process has ever held."""

    played: Finished
    process: tuple[str, int]
    memory: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Workers:
    """Processes that play parts; make them with `local_processes` or `dask_cluster`.

    Attributes:
        executor: takes work.
        prepare: called in a process before it plays.
    """

    executor: Executor
    prepare: Prepare

    def submit(self, part: Part) -> Future[Done]:
        """Let somebody play a part."""
        return self.executor.submit(_play, pickle.dumps(part), self.prepare)


@contextlib.contextmanager
def local_processes(jobs: int, prepare: Prepare) -> Iterator[Workers]:
    """So many processes of this machine; those still playing at the end are stopped."""
    # Fresh ones: a copy of a process that has started JAX hangs.
    pool = ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn"))
    try:
        yield Workers(executor=pool, prepare=prepare)
    finally:
        running = list((pool._processes or {}).values())
        pool.shutdown(wait=False, cancel_futures=True)
        for process in running:
            process.terminate()


@contextlib.contextmanager
def dask_cluster(address: str, prepare: Prepare) -> Iterator[Workers]:
    """The workers of a Dask scheduler; a part whose worker is lost goes to another one."""
    if importlib.util.find_spec("distributed") is None:
        raise KerchiefError(
            f"scheduler is {address!r}, and Dask is not installed: run {installing('cluster')}"
        )
    distributed: Any = importlib.import_module("distributed")
    try:
        client = distributed.Client(address, timeout="10s", set_as_default=False)
    except (OSError, ValueError, TimeoutError) as problem:
        raise InvalidValue(
            f"scheduler is {address!r}; none answers there ({problem}); start one with "
            "`dask scheduler`, and workers with `dask worker`"
        ) from problem
    with client, client.get_executor(pure=False) as executor:
        yield Workers(executor=executor, prepare=prepare)


def finished(futures: dict[Future[Done], Part]) -> Iterator[tuple[Part, Done]]:
    """Every part as soon as it has been played.

    Raises:
        KerchiefError: a process has died.
    """
    for future in concurrent.futures.as_completed(futures):
        try:
            yield futures[future], future.result()
        except concurrent.futures.BrokenExecutor as problem:
            raise KerchiefError(f"{_LOST}, with fewer --jobs") from problem
        except Exception as problem:
            # Dask's own, which is imported only where it is used.
            if type(problem).__name__ == "KilledWorker":
                raise KerchiefError(_LOST) from problem
            raise


@double_precision
def _play(part: bytes, prepare: Prepare) -> Done:
    """In a worker: play a part that was sent as bytes, as its numbers have 64 bits."""
    prepare()
    loaded: Any = pickle.loads(part)
    played = loaded.play()
    # Linux counts in KiB, macOS in bytes.
    unit = 1 if sys.platform == "darwin" else 1024
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return Done(played=played, process=(os.uname().nodename, os.getpid()), memory=memory)
