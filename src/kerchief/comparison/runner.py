"""Play a plan part by part, here or elsewhere; what was finished before is not played again."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kerchief.comparison.archive import Archive
from kerchief.comparison.chunks import (
    Chunk,
    ChunkResult,
    find_chunk_width,
    group_chunks,
    play_together,
    split_chunks,
)
from kerchief.comparison.plan import Plan
from kerchief.comparison.players import Cell
from kerchief.comparison.results import Result
from kerchief.comparison.workers import TaskResult, Workers, collect_results
from kerchief.core import validate
from kerchief.core.errors import KerchiefError
from kerchief.simulation.recorder import Progress

TICKS = 100
_ENDED = "what was played with this has failed before it was finished; run it again to continue"

Watch: TypeAlias = Callable[[Cell, str, float], None]


def compare(
    plan: Plan,
    *,
    ticks: int = TICKS,
    width: int | None = None,
    watch: Watch | None = None,
    archive: Archive | None = None,
    workers: Workers | None = None,
) -> Iterator[Result]:
    """Play every cell, and give each as soon as it and those before it are finished.

    All cells meet the same worlds: the seed and the replicate's number decide what is drawn.

    Args:
        plan: what to play.
        ticks: how often regret is read.
        width: the most replicates that play at once; by default what memory allows. Results do not
            depend on it, up to rounding.
        watch: called with a cell, "compiling" or "playing", and how much is finished of all parts
            that are being played side by side, up to their number.
        archive: where finished parts are found and kept.
        workers: who plays them; by default this process does.

    Yields:
        The results, in the order of `Plan.cells`.

    >>> from kerchief.comparison.comparison import Comparison
    >>> small = Comparison(
    ...     policies=("uniform",), contexts=("ball",), dim=2, arms=3, horizon=40, replicates=2
    ... )
    >>> [result.cell.label() for result in compare(small, ticks=4)]
    ['uniform', 'greedy not private']
    """
    work = RunState.of(plan, ticks=ticks, width=width, archive=archive)
    if workers is not None:
        hand_out([work], workers)
    return work.results(watch or (lambda cell, stage, share: None))


@dataclasses.dataclass(kw_only=True)
class RunState:
    """A plan on its way: what was found, what is being played elsewhere, and what is left.

    Attributes:
        cells: the parts of each cell.
        runs: the parts that are finished.
        restored: how many of them were finished already, and not played.
        arriving: waits for workers, keeps what they have played and names it, part by part; None
            where all is played here.
        memory: the most that each process has held, in bytes.
    """

    plan: Plan
    cells: Sequence[list[Chunk]]
    archive: Archive | None
    runs: dict[Chunk, ChunkResult]
    restored: int
    arriving: Iterator[Chunk] | None = None
    memory: dict[tuple[str, int], int] = dataclasses.field(default_factory=dict)
    _uniform: dict[str, float] = dataclasses.field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of(
        cls,
        plan: Plan,
        *,
        ticks: int = TICKS,
        width: int | None = None,
        archive: Archive | None = None,
    ) -> RunState:
        """Look up what is finished; `hand_out` gives the rest to workers, if there are any."""
        limit = find_chunk_width(plan) if width is None else validate.whole("width", width)
        cells = list(split_chunks(plan, ticks=ticks, width=limit))
        parts = [part for cell in cells for part in cell]
        archived_runs = {part: archive.find(part) for part in parts} if archive else {}
        runs = {part: run for part, run in archived_runs.items() if run is not None}
        return cls(plan=plan, cells=cells, archive=archive, runs=runs, restored=len(runs))

    @property
    def missing(self) -> list[Chunk]:
        """What is not finished."""
        return [part for cell in self.cells for part in cell if part not in self.runs]

    @property
    def parts(self) -> int:
        """How many there are."""
        return sum(map(len, self.cells))

    def to_dict(self) -> dict[str, object]:
        """How it was played: parts in all and found finished, workers, the most memory of each."""
        peak = max(self.memory.values(), default=None)
        workers = {"workers": len(self.memory), "most_memory": peak}
        return {"parts": self.parts, "found": self.restored, **workers}

    def results(self, watch: Watch) -> Iterator[Result]:
        """Every cell in its order, as soon as it is finished."""
        groups = self._groups() if self.arriving is None else {}
        for parts in self.cells:
            while self.arriving and any(part not in self.runs for part in parts):
                part = next(self.arriving, None)
                if part is None:
                    raise KerchiefError(_ENDED)
                if part in self.runs:
                    watch(part.cell, "playing", 0.0)
            for part in parts:
                if part not in self.runs:
                    self._play(groups[part], watch)
            yield self._result(parts)

    def finished_results(self) -> Iterator[Result]:
        """Yield the results of the cells before the first that is not finished."""
        for parts in self.cells:
            if any(part not in self.runs for part in parts):
                return
            yield self._result(parts)

    def _result(self, parts: list[Chunk]) -> Result:
        result = _join_parts(parts[0].cell, [self.runs[part] for part in parts])
        # Uniform play comes first in each world.
        usual = self._uniform.setdefault(parts[0].cell.world, float(result.curves[-1].mean()))
        return dataclasses.replace(result, uniform=usual)

    def _groups(self) -> dict[Chunk, list[Chunk]]:
        """For each part that is left, all that are played side by side with it."""
        missing = self.missing
        # The first one by itself, so that there is soon something to see and to keep.
        groups = [missing[:1], *group_chunks(missing[1:])]
        return {part: group for group in groups for part in group}

    def _play(self, group: Sequence[Chunk], watch: Watch) -> None:
        """Play parts side by side, and tell how many parts' worth of it is done."""
        shares = dict.fromkeys(group, 0.0)

        def progress(part: Chunk) -> Progress:
            def tell(stage: str, rounds: int) -> None:
                shares[part] = rounds / part.cell.horizon
                watch(part.cell, stage, sum(shares.values()))

            return tell

        for part, result in play_together(group, [progress(part) for part in group]):
            self._keep(part, result)

    def restore(self, part: Chunk, played: ChunkResult) -> None:
        """Keep what another plan has found."""
        self.restored += 1
        self._keep(part, played)

    def store_result(self, part: Chunk, done: TaskResult) -> OSError | None:
        """Keep what a worker has played, and say what went wrong with that."""
        self.memory[done.process] = done.memory
        try:
            self._keep(part, done.result)
        except OSError as problem:
            return problem
        return None

    def _keep(self, part: Chunk, result: ChunkResult) -> None:
        self.runs[part] = result
        if self.archive is not None:
            self.archive.keep(part, result)


def hand_out(works: Sequence[RunState], workers: Workers) -> None:
    """Let workers play what is missing of several plans, and once what several of them miss.

    Whoever waits for a part keeps all that arrive, whichever plan they belong to.
    """
    finished_runs = {part.address(): run for work in works for part, run in work.runs.items()}
    requests: dict[str, list[tuple[RunState, Chunk]]] = {}
    for work in works:
        # The longest of each plan first, as nobody should wait for one at the end.
        for part in sorted(work.missing, key=_decisions, reverse=True):
            if (address := part.address()) in finished_runs:
                work.restore(part, finished_runs[address])
            else:
                requests.setdefault(address, []).append((work, part))
    owners = {owned[0][1]: owned for owned in requests.values()}
    tasks = workers.submit(owners)

    def arrive() -> Iterator[Chunk]:
        for shared_part, task_result in collect_results(tasks):
            problems = [work.store_result(part, task_result) for work, part in owners[shared_part]]
            for problem in filter(None, problems):
                raise problem
            yield from (part for _, part in owners[shared_part])

    arriving = arrive()
    for work in works:
        work.arriving = arriving


def _decisions(part: Chunk) -> int:
    return part.cell.horizon * (part.last - part.first)


def _join_parts(cell: Cell, parts: list[ChunkResult]) -> Result:
    """Parts side by side; what was spent is what the worst-off user of any was charged."""
    runs = [part.run for part in parts]
    right = [run.right for run in runs if run.right is not None]
    earned = [run.earned for run in runs if run.earned is not None]
    return Result(
        cell=cell,
        rounds=runs[0].rounds,
        curves=np.concatenate([run.regret for run in runs], axis=1),
        releases=_means([run.releases for run in runs]),
        uniform=0.0,
        guarantee=max((run.spent for run in runs), key=lambda spent: spent.epsilon),
        seconds=sum(run.seconds for run in runs),
        seconds_alone=sum(run.seconds_alone for run in runs),
        compile_seconds=sum(run.compile_seconds for run in runs),
        device=runs[0].device,
        communication=_means([run.communication for run in runs]),
        right=float(np.concatenate(right).mean()) if right else None,
        earned=np.concatenate(earned) if earned else None,
        noises=parts[0].noises,
        alone=parts[0].alone,
    )


def _means(counts: Sequence[Mapping[str, NDArray[Any]]]) -> dict[str, float]:
    """The average over the replicates of all parts, name by name."""
    return {
        name: float(np.concatenate([part_count[name] for part_count in counts]).mean())
        for name in counts[0]
    }
