"""Play the cells of a planning within a bounded time: what matters most first, then what fits.

Every lane is one process, which keeps what it has compiled. Cells are played in chunks of a few
replicates: first one chunk of every cell, then other epsilons, then further chunks, each only if it
will be finished in time, judged by how long its like has taken. A run that turns out to be too long
is given up early; if that is the quickest of the private ones, all are begun again with fewer
users.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from typing import TypeAlias

from kerchief.comparison.chunks import Chunk, ChunkResult
from kerchief.comparison.players import Cell
from kerchief.comparison.workers import Prepare, local_processes
from kerchief.core.errors import KerchiefError
from kerchief.core.problems import AnyProblem
from kerchief.planning.deadline import SlowRun, pack_chunk, play_within
from kerchief.planning.pilot_runs import SimulatedRuns, yardstick
from kerchief.planning.planning import SINGLE, UNIFORM, Planning, segments, shorter
from kerchief.privacy.guarantee import Trust

Watch: TypeAlias = Callable[[str, float], None]
"""Told what is played, and the seconds that have passed."""

# Seconds that starting a process and compiling one program take, and microseconds of a round: a
# guess for the beginning, which what is measured replaces.
_START_S, _COMPILE_S = 4.0, 6.5
_ROUND_US, _NUMBER_US = 2.0, 0.0025
_SLOWER = {Trust.NONE: 2.2, Trust.LOCAL: 4.0, Trust.SHUFFLE: 1.6, Trust.JOINT: 1.7}
# How many replicates a chunk has, and what share of the time the first chunks may take to play.
_FEWEST_REPLICATES, _MOST_REPLICATES, _FIRST_SHARE = 5, 8, 0.45
# How many chunks a cell gets at most.
_CHUNKS = 12
# Steps between epsilons, and the least and the greatest of them.
_STEP, _BOUNDS = 4.0, (1e-3, 1000.0)
# How often is looked, and how much longer things may take than before.
_TICK_S, _SLACK = 0.1, 1.15


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """Some replicates of a cell."""

    cell: Cell
    chunk: int


@dataclasses.dataclass(kw_only=True)
class Lane:
    """One process, what it plays now, and what it has compiled."""

    executor: Executor
    prepare: Prepare
    compiled: set[Cell] = dataclasses.field(default_factory=set)
    job: Job | None = None
    future: Future[ChunkResult | SlowRun] | None = None
    since: float = 0.0


def play(
    planning: Planning, *, seconds: float, jobs: int, prepare: Prepare, watch: Watch
) -> SimulatedRuns:
    """Play as much as the time allows.

    Args:
        planning: what is asked.
        seconds: how long it may take.
        jobs: on how many processes.
        prepare: called in each process before it plays.
        watch: told what is being played.

    Raises:
        KerchiefError: not even the yardsticks and one private bandit were finished.
    """
    start, users = time.monotonic(), planning.count
    while True:
        # What one attempt plays in vain is ended before the next one.
        with local_processes(jobs, prepare) as processes:
            run = _Run.of(
                planning,
                users,
                lanes=[
                    Lane(executor=executor, prepare=prepare) for executor in processes.executors
                ],
                start=start,
                seconds=seconds,
                watch=watch,
            )
            share = run.finish()
        if share is None:
            run.outcome.seconds = time.monotonic() - start
            return run.outcome
        users = shorter(run.outcome.users, share)


@dataclasses.dataclass(kw_only=True)
class _Run:
    """One attempt, with so many users."""

    planning: Planning
    lanes: Sequence[Lane]
    start: float
    deadline: float
    watch: Watch
    width: int
    ticks: int
    base: tuple[Cell, ...]
    outcome: SimulatedRuns
    started_jobs: set[Job] = dataclasses.field(default_factory=set)
    play_seconds: dict[Cell, float] = dataclasses.field(default_factory=dict)
    wall_seconds: dict[Cell, float] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(
        cls,
        planning: Planning,
        users: int,
        *,
        lanes: Sequence[Lane],
        start: float,
        seconds: float,
        watch: Watch,
    ) -> _Run:
        deadline, remaining = start + seconds, start + seconds - time.monotonic()
        cells, problem = planning.cells(users), planning.problem(users)
        room = max(0.0, len(lanes) * (remaining - _START_S) - _COMPILE_S * len(cells))
        room = max(room, 0.1 * len(lanes) * remaining)
        cost = sum(_guess(cell, problem) for cell in cells)
        if cost * _FEWEST_REPLICATES > room:
            users = shorter(users, room / cost / _FEWEST_REPLICATES)
        users, ticks = segments(users)
        cells, cost = planning.cells(users), cost * users / cells[0].horizon
        return cls(
            planning=planning,
            lanes=lanes,
            start=start,
            deadline=deadline,
            watch=watch,
            width=int(min(_MOST_REPLICATES, max(_FEWEST_REPLICATES, _FIRST_SHARE * room / cost))),
            ticks=ticks,
            base=_order_cells(cells, problem),
            outcome=SimulatedRuns(users=users),
        )

    def finish(self) -> float | None:
        """Play until nothing more fits; or the share of users that would fit, where none did."""
        while True:
            for lane in self.lanes:
                if lane.future is None:
                    self._begin(lane)
            waiting = [lane.future for lane in self.lanes if lane.future is not None]
            now = time.monotonic()
            if not waiting or now >= self.deadline:
                break
            concurrent.futures.wait(waiting, timeout=_TICK_S, return_when="FIRST_COMPLETED")
            for lane in self.lanes:
                share = self._collect(lane)
                if share is not None:
                    return share
            self._tell()
        self._note()
        return None

    def _begin(self, lane: Lane) -> None:
        job = next(
            (candidate for candidate in self._list_candidates(lane) if self._fits(candidate, lane)),
            None,
        )
        if job is None:
            return
        self.started_jobs.add(job)
        lane.compiled.add(job.cell)
        part = Chunk(
            cell=job.cell,
            environment=self.planning.environment,
            seed=self.planning.seed,
            first=job.chunk * self.width,
            last=(job.chunk + 1) * self.width,
            ticks=self.ticks,
        )
        remaining = self.deadline - time.monotonic()
        lane.job, lane.since = job, time.monotonic()
        lane.future = lane.executor.submit(play_within, pack_chunk(part), lane.prepare, remaining)

    def _collect(self, lane: Lane) -> float | None:
        """Keep what a lane has finished; if it was too slow, the share of users that would fit."""
        if lane.future is None or lane.job is None or not lane.future.done():
            return None
        try:
            result = lane.future.result()
        except BrokenExecutor as problem:
            raise KerchiefError(
                "a process of the planning was lost (out of memory, perhaps); run it again with "
                "--jobs 1"
            ) from problem
        job, lane.job, lane.future = lane.job, None, None
        if isinstance(result, SlowRun):
            return self._handle_slow_run(job, result)
        self.outcome.runs.setdefault(job.cell, {})[job.chunk] = result
        self.play_seconds[job.cell] = result.run.seconds
        self.wall_seconds.setdefault(job.cell, time.monotonic() - lane.since)
        return None

    def _handle_slow_run(self, job: Job, slow: SlowRun) -> float | None:
        """Begin again with fewer users if the quickest private bandit was too slow."""
        if job.chunk or job.cell != next(cell for cell in self.base if cell.asked is not None):
            return None
        remaining = self.deadline - time.monotonic() - _COMPILE_S
        return min(0.5, max(0.02, remaining / len(self.base) * len(self.lanes) / slow.seconds))

    def _list_candidates(self, lane: Lane) -> Iterator[Job]:
        """What a lane might play next, the most useful first."""
        yield from self._skip_started(Job(cell=cell, chunk=0) for cell in self.base)
        yield from self._skip_started(Job(cell=cell, chunk=0) for cell in self._ladder(1))
        yield from self._skip_started(self._extend_chunks(lane, self.base, 2))
        yield from self._skip_started(Job(cell=cell, chunk=0) for cell in self._ladder(2))
        yield from self._skip_started(self._extend_chunks(lane, self.base, _CHUNKS))

    def _extend_chunks(self, lane: Lane, cells: Sequence[Cell], limit: int) -> Iterator[Job]:
        """The next chunk of what this lane has compiled, if no other cell is behind.

        Rows of a table are of the same worlds, so one cell alone gains nothing.
        """
        runs = self.outcome.runs
        counts = [len(runs[cell]) for cell in cells if cell in runs]
        for cell in cells:
            if cell in lane.compiled and cell in runs and len(runs[cell]) == min(counts) < limit:
                yield Job(cell=cell, chunk=len(runs[cell]))

    def _skip_started(self, jobs: Iterator[Job]) -> Iterator[Job]:
        return (job for job in jobs if job not in self.started_jobs)

    def _ladder(self, steps: int) -> Iterator[Cell]:
        """Other epsilons: less where learning pays at the one asked for, more where it does not."""
        baseline = yardstick(self.base)
        for cell in self.base:
            if cell.asked is None or not {cell, baseline} <= self.outcome.runs.keys():
                continue
            pays = self.outcome.gains(cell, baseline)[-1].mean() > 0
            epsilon = cell.player.epsilon * _STEP ** (-steps if pays else steps)
            before = self.planning.cell_at(cell, cell.player.epsilon * _STEP ** (-1 if pays else 1))
            if not _BOUNDS[0] <= epsilon <= _BOUNDS[1]:
                continue
            if steps > 1:
                # A further step only where the first did not cross.
                if before not in self.outcome.runs:
                    continue
                crossed = (self.outcome.gains(before, baseline)[-1].mean() > 0) != pays
                if crossed:
                    continue
            yield self.planning.cell_at(cell, epsilon)

    def _fits(self, job: Job, lane: Lane) -> bool:
        """Whether it will be finished in time, by how long its like has taken."""
        remaining = self.deadline - time.monotonic()
        if job.cell in self.base and job.chunk == 0:
            return remaining > 0
        if job.chunk:
            return _SLACK * self.play_seconds[job.cell] + 0.5 < remaining
        alike = next(cell for cell in self.base if cell.player.trust is job.cell.player.trust)
        return _SLACK * self.wall_seconds[alike] < remaining

    def _tell(self) -> None:
        labels = [lane.job.cell.label() for lane in self.lanes if lane.job is not None]
        self.watch(" | ".join(labels), time.monotonic() - self.start)

    def _note(self) -> None:
        """What was not finished."""
        for cell in self.base:
            if cell not in self.outcome.runs:
                self.outcome.left.append(f"{cell.label()} was not finished in time")
        if yardstick(self.base) not in self.outcome.runs or not any(
            cell.asked is not None for cell in self.outcome.runs
        ):
            raise KerchiefError(
                "the time did not suffice for one private bandit and what it is measured against; "
                "give more --seconds, or fewer --trust"
            )


def _order_cells(cells: Sequence[Cell], problem: AnyProblem) -> tuple[Cell, ...]:
    """First one private bandit and what it is held to; then the longest ones first."""
    private = [cell for cell in cells if cell.asked is not None]
    first = {min(private, key=lambda cell: _guess(cell, problem)), yardstick(cells)}
    return tuple(
        sorted(
            cells, key=lambda cell: (cell not in first, cell.asked is None, -_guess(cell, problem))
        )
    )


def _guess(cell: Cell, problem: AnyProblem) -> float:
    """Seconds that one replicate takes."""
    if cell.player.policy in (SINGLE, UNIFORM):
        return 1e-6 * cell.horizon
    slower = _SLOWER.get(cell.player.trust, 1.0)
    microseconds = (_ROUND_US + _NUMBER_US * problem.arms * problem.dim**2) * slower
    return 1e-6 * microseconds * cell.horizon
