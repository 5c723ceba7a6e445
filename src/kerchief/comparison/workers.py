"""Where parts are played: in processes of this machine, or on a Dask cluster."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import functools
import importlib
import importlib.util
import itertools
import multiprocessing
import os
import pickle
import resource
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any, Protocol, TypeAlias

from kerchief.comparison.chunks import Chunk, ChunkResult, play_together, side_by_side
from kerchief.core.errors import InvalidValueError, KerchiefError
from kerchief.core.installing import installing
from kerchief.core.precision import double_precision

Prepare: TypeAlias = Callable[[], object]
Tell: TypeAlias = Callable[[str], object]
PATIENCE = 10
"""How many seconds a scheduler has to answer."""
ALONE = 5
"""After how many seconds without a worker a scheduler is said to have none."""
# Dask sends smaller worlds with each part: parts that wait for one begin some seconds later.
_LARGE = 2**20
_CLOSED_MESSAGE = "the processes were closed before everything was played; play it with new ones"
_LOST_MESSAGE = (
    "a worker was lost (out of memory, perhaps); what was finished is kept: run the command again"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskResult:
    """A part that a worker has played, and the most memory that this process has ever held."""

    played: ChunkResult
    process: tuple[str, int]
    memory: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answer:
    """What became of a group: those that were played by their number, and what failed, if any."""

    done: Mapping[int, TaskResult]
    failed: Exception | None


Group: TypeAlias = "list[Chunk]"
"""Parts that are played side by side."""
Tasks: TypeAlias = "dict[Future[Answer], Group]"


class Workers(Protocol):
    """Processes that play parts: `local_processes` or `dask_cluster`."""

    def submit(self, parts: Iterable[Chunk]) -> Tasks:
        """Let somebody play parts, in about this order; each is done as soon as it was played."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Processes:
    """Processes of this machine, each of which stays with what it has compiled, while there is any.

    Attributes:
        executors: one for each process.
        prepare: called in a process before it plays.
    """

    executors: Sequence[Executor]
    prepare: Prepare
    _open: list[Waiting] = dataclasses.field(default_factory=list, init=False, repr=False)
    _gate: threading.Lock = dataclasses.field(
        default_factory=threading.Lock, init=False, repr=False
    )
    _close_event: threading.Event = dataclasses.field(
        default_factory=threading.Event, init=False, repr=False
    )

    @functools.cached_property
    def _free(self) -> SimpleQueue[tuple[Executor, set[Hashable]]]:
        """Who has nothing to do, and which programs it has played."""
        free: SimpleQueue[tuple[Executor, set[Hashable]]] = SimpleQueue()
        for executor in self.executors:
            free.put((executor, set()))
        return free

    @functools.cached_property
    def _lanes(self) -> ThreadPoolExecutor:
        """A thread for each process, which waits for it."""
        return ThreadPoolExecutor(len(self.executors))

    def submit(self, parts: Iterable[Chunk]) -> Tasks:
        """Everyone plays group after group, until none is left."""
        groups = side_by_side(parts, tasks=2 * len(self.executors))
        tasks: Tasks = {Future(): group for group in groups}
        waiting, free = Waiting.of(tasks), self._free
        self._open.append(waiting)
        for _ in self.executors:
            self._lanes.submit(self._play, waiting, free)
        return tasks

    def _play(self, waiting: Waiting, free: SimpleQueue[tuple[Executor, set[Hashable]]]) -> None:
        executor, programs = free.get()
        while (task := waiting.take(programs)) is not None:
            future, group = task
            try:
                world = pickle.dumps(group[0].environment)
                answer = self._send_group(executor, group, world).result()
            except Exception as problem:
                future.set_exception(problem)
            else:
                waiting.played(group)
                future.set_result(answer)
        free.put((executor, programs))

    def _send_group(self, executor: Executor, group: Group, world: bytes) -> Future[Answer]:
        """Send a group to a process, unless all of them are about to be stopped."""
        with self._gate:
            if self._close_event.is_set():
                raise KerchiefError(_CLOSED_MESSAGE)
            return executor.submit(_play, _pack_group(group), world, self.prepare)

    def close(self) -> None:
        """Give nobody anything more; who waits for what is left hears that it was not played."""
        with self._gate:
            self._close_event.set()
        for waiting in self._open:
            for future in waiting.rest():
                future.set_exception(KerchiefError(_CLOSED_MESSAGE))
        self._lanes.shutdown(wait=False, cancel_futures=True)


@dataclasses.dataclass(kw_only=True)
class Waiting:
    """Groups that nobody plays yet, for several threads to take.

    Attributes:
        left: by the programs that play them.
        begun: the programs of which somebody has taken a group.
        cached: the programs of which somebody has played one, so that others find its code.
    """

    left: dict[Hashable, Tasks]
    begun: set[Hashable] = dataclasses.field(default_factory=set)
    cached: set[Hashable] = dataclasses.field(default_factory=set)
    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)

    @classmethod
    def of(cls, tasks: Tasks) -> Waiting:
        """All of them, in their order."""
        tasks_by_program: dict[Hashable, Tasks] = {}
        for future, group in tasks.items():
            tasks_by_program.setdefault(_programs(group), {})[future] = group
        return cls(left=tasks_by_program)

    def take(self, known: set[Hashable]) -> tuple[Future[Answer], Group] | None:
        """The first that is left of a known program, or else of a new one, or else of any.

        Of those that others have begun, those come last that may still be compiled somewhere.
        """
        with self.lock:
            programs = self.left.keys()
            choice = programs & known or programs - self.begun or programs & self.cached or programs
            program = next((candidate for candidate in self.left if candidate in choice), None)
            if program is None:
                return None
            known.add(program)
            self.begun.add(program)
            tasks = self.left[program]
            future = next(iter(tasks))
            group = tasks.pop(future)
            if not tasks:
                del self.left[program]
            return future, group

    def played(self, group: Group) -> None:
        """Somebody has played this group: whoever plays its like finds the code."""
        with self.lock:
            self.cached.add(_programs(group))

    def rest(self) -> list[Future[Answer]]:
        """All that nobody has taken, and nobody will."""
        with self.lock:
            futures = [future for tasks in self.left.values() for future in tasks]
            self.left.clear()
        return futures


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cluster:
    """A Dask cluster, which shares parts out as its workers come and go.

    Attributes:
        executor: to it.
        hold: gives bytes to the cluster, once for all that need them; what comes back stands for
            them in a call.
        prepare: called in a process before it plays.
        large: worlds of so many bytes are held; others come with each part.
    """

    executor: Executor
    hold: Callable[[bytes], Any]
    prepare: Prepare
    large: int = _LARGE

    def submit(self, parts: Iterable[Chunk]) -> Tasks:
        """First one part of each program: its code is in the cache when the others come.

        A large world, such as a data set, is sent once for all parts that are played in it.
        """
        alike: dict[Hashable, Group] = {}
        for part in parts:
            alike.setdefault(_program(part), []).append(part)
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
                _play, _pack_group([part]), references[id(part.environment)], self.prepare
            ): [part]
            for part in turns
        }


def _programs(group: Group) -> Hashable:
    return tuple(map(_program, group))


def _program(part: Chunk) -> Hashable:
    """Equal for parts that are likely to be played by the same compiled code."""
    player = part.cell.player
    shape = (part.cell.horizon, part.last - part.first, type(part.environment))
    return (player.policy, player.mode, player.trust, player.mechanism, *shape)


@contextlib.contextmanager
def local_processes(jobs: int, prepare: Prepare) -> Iterator[Processes]:
    """So many processes of this machine; those still playing at the end are stopped."""
    pools = [
        ProcessPoolExecutor(
            1,
            # Fresh ones: a copy of a process that has started JAX hangs.
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
            # Nobody is left to wait for but the pool's own thread, which would complain at exit.
            pool.shutdown(wait=True, cancel_futures=True)


@contextlib.contextmanager
def dask_cluster(address: str, prepare: Prepare, tell: Tell | None = None) -> Iterator[Cluster]:
    """The workers of a Dask scheduler; a part whose worker is lost goes to another one.

    Args:
        address: of the scheduler.
        prepare: called in a process before it plays.
        tell: told where there are no workers yet: they may come later, and are waited for.

    Raises:
        InvalidValueError: no scheduler answers there.
        KerchiefError: Dask is not installed.
    """
    if importlib.util.find_spec("distributed") is None:
        raise KerchiefError(
            f"scheduler is {address!r}, and Dask is not installed: run {installing('cluster')}"
        )
    distributed: Any = importlib.import_module("distributed")
    client = _client(distributed, address)

    def hold(content: bytes) -> Any:
        # As a task, which the scheduler can give to another worker if one is lost. Dask warns that
        # it is large, and would rather have workers read a file, which they may not have.
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
            # Whoever stops does not wait for what nobody may ever play.
            executor.shutdown(wait=False)


def _client(distributed: Any, address: str) -> Any:
    """What talks to the scheduler; one that cannot is closed at once.

    Else it would be closed when it is thrown away, too late: that ends in a traceback.
    """
    client = distributed.Client.__new__(distributed.Client)
    try:
        client.__init__(address, timeout=PATIENCE, set_as_default=False)
    except (OSError, ValueError, TypeError, TimeoutError) as problem:
        client.close()
        raise InvalidValueError(
            f"scheduler is {address!r}; none answers there ({problem}); start one with "
            "`dask scheduler`, and workers with `dask worker`"
        ) from problem
    return client


def _has_workers(client: Any) -> bool:
    """Whether a cluster has a worker, or gets one soon."""
    try:
        client.wait_for_workers(1, timeout=ALONE)
    except TimeoutError:
        return False
    return True


def finished(tasks: Tasks) -> Iterator[tuple[Chunk, TaskResult]]:
    """Every part as soon as it is done.

    Raises:
        KerchiefError: a process has died.
        Exception: whatever a part has raised, after all that were played with it.
    """
    for future in concurrent.futures.as_completed(tasks):
        try:
            answer = future.result()
            yield from ((tasks[future][number], result) for number, result in answer.done.items())
            if answer.failed is not None:
                raise answer.failed
        except concurrent.futures.BrokenExecutor as problem:
            raise KerchiefError(f"{_LOST_MESSAGE}, with fewer --jobs") from problem
        except Exception as problem:
            # Dask's own, which is imported only where it is used.
            if type(problem).__name__ == "KilledWorker":
                raise KerchiefError(_LOST_MESSAGE) from problem
            raise


def _end_with(parent: int) -> None:
    """In a worker: end when the parent does, however it does; an interrupt is the parent's."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _pack_group(group: Group) -> bytes:
    """All of the parts but their world."""
    return pickle.dumps(
        [
            {name: value for name, value in vars(part).items() if name != "environment"}
            for part in group
        ]
    )


def _return_unchanged(content: bytes) -> bytes:
    return content


@double_precision
def _play(packed: bytes, world: bytes, prepare: Prepare) -> Answer:
    """In a worker: play parts that were sent as bytes, as their numbers have 64 bits."""
    prepare()
    environment = pickle.loads(world)
    group = [Chunk(**fields, environment=environment) for fields in pickle.loads(packed)]
    process, results = (os.uname().nodename, os.getpid()), dict[int, TaskResult]()
    failed: Exception | None = None
    try:
        for part, result in play_together(group, [None] * len(group)):
            results[group.index(part)] = TaskResult(played=result, process=process, memory=_peak())
    except Exception as problem:
        if not results:
            raise
        failed = problem
    return Answer(done=results, failed=failed)


def _peak() -> int:
    """The most memory that this process has held, in bytes: Linux counts in KiB, macOS does not."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
