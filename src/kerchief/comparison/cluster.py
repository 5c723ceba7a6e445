"""A Dask cluster that plays chunks."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import importlib.util
import itertools
import pickle
import warnings
from collections.abc import Callable, Hashable, Iterable, Iterator
from concurrent.futures import Executor
from typing import Any, TypeAlias

from kerchief.comparison.chunks import Chunk
from kerchief.comparison.workers import (
    Group,
    Prepare,
    Tasks,
    find_program,
    pack_group,
    play_group,
)
from kerchief.core.errors import InvalidValueError, KerchiefError
from kerchief.core.installing import format_install_command

Tell: TypeAlias = Callable[[str], object]
SCHEDULER_TIMEOUT_S = 10
"""How many seconds a scheduler has to answer."""
WORKER_TIMEOUT_S = 5
"""After how many seconds without a worker `tell` is called."""
# Dask sends smaller worlds with each part: parts that wait for one begin some seconds later.
_LARGE_BYTES = 2**20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cluster:
    """A Dask cluster, which shares chunks out as its workers come and go.

    Attributes:
        executor: of the cluster.
        hold: stores bytes in the cluster once, and returns a reference for calls.
        prepare: called in a process before it plays.
        large: environments from this number of bytes on are held; others come with each chunk.
    """

    executor: Executor
    hold: Callable[[bytes], Any]
    prepare: Prepare
    large: int = _LARGE_BYTES

    def submit(self, parts: Iterable[Chunk]) -> Tasks:
        """Submit first one chunk of each program, so that all others find its code in the cache.

        A large environment, such as a data set, is sent once for all chunks that need it.
        """
        alike: dict[Hashable, Group] = {}
        for part in parts:
            alike.setdefault(find_program(part), []).append(part)
        rounds = itertools.zip_longest(*alike.values())
        turns = [part for part in itertools.chain(*rounds) if part is not None]
        worlds = {id(part.environment): part.environment for part in turns}
        contents = {place: pickle.dumps(world) for place, world in worlds.items()}
        references = {
            place: self.hold(content) if len(content) >= self.large else content
            for place, content in contents.items()
        }
        return {
            self.executor.submit(
                play_group, pack_group([part]), references[id(part.environment)], self.prepare
            ): [part]
            for part in turns
        }


@contextlib.contextmanager
def dask_cluster(address: str, prepare: Prepare, tell: Tell | None = None) -> Iterator[Cluster]:
    """Connect to a Dask scheduler, which gives a chunk of a lost worker to another worker.

    Args:
        address: of the scheduler.
        prepare: called in a process before it plays.
        tell: called with a notice where the scheduler has no workers yet.

    Raises:
        InvalidValueError: no scheduler answers there.
        KerchiefError: Dask is not installed.
    """
    if importlib.util.find_spec("distributed") is None:
        raise KerchiefError(
            f"scheduler is {address!r}, and Dask is not installed: "
            f"run {format_install_command('cluster')}"
        )
    distributed: Any = importlib.import_module("distributed")
    client = _connect(distributed, address)

    def hold(content: bytes) -> Any:
        # As a task, which the scheduler can give to another worker if one is lost. Dask warns that
        # it is large, and recommends a file, which workers may not have.
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sending large graph")
            return client.submit(_return_unchanged, content, pure=False)

    with client:
        executor = client.get_executor(pure=False)
        if tell is not None and not _has_workers(client):
            tell(
                f"the scheduler {address} has no workers yet, and nothing is played until some "
                f"come: start them with `dask worker {address}`, or stop with Ctrl-C"
            )
        try:
            yield Cluster(executor=executor, hold=hold, prepare=prepare)
        finally:
            # Without workers the wait would never end.
            executor.shutdown(wait=False)


def _connect(distributed: Any, address: str) -> Any:
    """Return a client of the scheduler, and close one that does not get through.

    Closed only when it is collected, such a client ends in a traceback.
    """
    client = distributed.Client.__new__(distributed.Client)
    try:
        client.__init__(address, timeout=SCHEDULER_TIMEOUT_S, set_as_default=False)
    except (OSError, ValueError, TypeError, TimeoutError) as problem:
        client.close()
        raise InvalidValueError(
            f"scheduler is {address!r}; none answers there ({problem}); start one with "
            "`dask scheduler`, and workers with `dask worker`"
        ) from problem
    return client


def _has_workers(client: Any) -> bool:
    """Whether a cluster has a worker, or gets one within a few seconds."""
    try:
        client.wait_for_workers(1, timeout=WORKER_TIMEOUT_S)
    except TimeoutError:
        return False
    return True


def _return_unchanged(content: bytes) -> bytes:
    return content
