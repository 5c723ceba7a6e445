"""Parts of a plan: stored, found again, played by others, and always the same numbers."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import pickle
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, Future
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import polars as pl
import pytest

from kerchief.comparison import chunks, cluster, runner, workers
from kerchief.comparison import fingerprint as prints
from kerchief.comparison.archive import Archive
from kerchief.comparison.chunks import (
    Chunk,
    ChunkResult,
    find_chunk_width,
    group_chunks,
    split_chunks,
)
from kerchief.comparison.cluster import Cluster, dask_cluster
from kerchief.comparison.comparison import Comparison
from kerchief.comparison.fingerprint import fingerprint
from kerchief.comparison.players import Cell
from kerchief.comparison.results import Result
from kerchief.comparison.run_folder import Folder
from kerchief.comparison.runner import RunState, compare, hand_out
from kerchief.comparison.workers import (
    Answer,
    Processes,
    TaskResult,
    Tasks,
    collect_results,
    local_processes,
)
from kerchief.core.errors import InvalidValueError, KerchiefError

TINY = Comparison(
    contexts=("ball",),
    dim=2,
    arms=3,
    horizon=40,
    replicates=6,
    policies=("linucb",),
    trusts=("joint",),
    epsilons=(1.0,),
)
PHASED = Comparison(
    policies=("dpe",), trusts=("central",), epsilons=(1.0,), horizon=2000, replicates=2
)


def _quiet(cell: object, stage: str, share: float) -> None:
    pass


def _never(*given: object) -> None:
    pytest.fail("it was played again")


@pytest.fixture(scope="module")
def played() -> list[Result]:
    return list(compare(TINY, ticks=4, width=3))


def _same(one: list[Result], other: list[Result]) -> None:
    assert len(one) == len(other)
    for mine, theirs in zip(one, other, strict=True):
        assert mine.cell == theirs.cell
        np.testing.assert_array_equal(mine.curves, theirs.curves)
        assert (mine.guarantee, mine.releases) == (theirs.guarantee, theirs.releases)
        assert (mine.uniform, mine.communication) == (theirs.uniform, theirs.communication)


def test_resumed_run_repeats_no_finished_chunk(
    played: list[Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = Archive(folder=Folder.at(tmp_path))
    # With three at once the second half of a run is shared out otherwise than the first.
    monkeypatch.setattr(chunks, "MAX_GROUP_SIZE", 3)
    results = RunState.of(TINY, ticks=4, width=3, archive=archive).results(_quiet)
    next(results)
    # The very first part is played alone, the other half of its cell in company.
    assert len(list(tmp_path.glob("*.npz"))) == 4
    again = RunState.of(TINY, ticks=4, width=3, archive=archive)
    assert again.restored == 4
    _same(list(again.results(_quiet)), played)
    monkeypatch.setattr(runner, "play_together", _never)
    _same(list(compare(TINY, ticks=4, width=3, archive=archive)), played)


@pytest.mark.nightly
def test_populations_are_stored_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = Archive(folder=Folder.at(tmp_path))
    first = list(compare(PHASED, ticks=4, archive=archive))
    assert first[-1].communication["bits"] > 0
    monkeypatch.setattr(runner, "play_together", _never)
    _same(list(compare(PHASED, ticks=4, archive=archive)), first)


@pytest.mark.parametrize("damage", ["cut", "swapped", "pickled"])
def test_a_damaged_file_is_played_anew(tmp_path: Path, damage: str) -> None:
    archive = Archive(folder=Folder.at(tmp_path))
    (one,), (other,) = list(split_chunks(TINY, ticks=4, width=6))[:2]
    runs = {part: part.play() for part in (one, other)}
    for part, run in runs.items():
        archive.keep(part, run)
    assert archive.find(one) is not None
    mine, theirs = (tmp_path / f"{part.address()}.npz" for part in (one, other))
    if damage == "cut":
        mine.write_bytes(mine.read_bytes()[:-30])
    elif damage == "swapped":
        mine.write_bytes(theirs.read_bytes())
    else:
        np.savez(mine, facts=np.array([{"code": "run"}], object))
    assert archive.find(one) is None
    assert archive.find(other) is not None


def test_an_address_tells_apart_whatever_changes_a_number() -> None:
    def address(plan: Comparison, *, ticks: int = 4, width: int = 6) -> str:
        return list(split_chunks(plan, ticks=ticks, width=width))[-1][0].address()

    usual = address(TINY)
    assert address(dataclasses.replace(TINY)) == usual
    # The same noise, said or the bandit's own.
    assert address(dataclasses.replace(TINY, continual="best")) == usual
    changed = [
        dataclasses.replace(TINY, seed=1),
        dataclasses.replace(TINY, horizon=41),
        dataclasses.replace(TINY, delta=1e-6),
        dataclasses.replace(TINY, epsilons=(2.0,)),
        dataclasses.replace(TINY, arms=4),
        dataclasses.replace(TINY, radius=0.5),
        dataclasses.replace(TINY, noise="gaussian"),
        dataclasses.replace(TINY, continual="tree"),
        dataclasses.replace(TINY, numbers=(("exploration", 2.0),)),
        dataclasses.replace(TINY, mode="theory"),
    ]
    found = [*map(address, changed), address(TINY, ticks=5), address(TINY, width=3), usual]
    assert len(set(found)) == len(found)


def test_an_address_changes_with_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    from kerchief.comparison import chunks

    (one,) = next(split_chunks(TINY, ticks=4, width=6))
    usual = one.address()
    monkeypatch.setattr(chunks, "versions", lambda: {"source": "another"})
    assert one.address() != usual
    assert prints.source() == prints.source.__wrapped__()


def test_code_from_outside_counts_with_its_source(tmp_path: Path) -> None:
    def made(text: str) -> str:
        file = tmp_path / "outside.py"
        file.write_text(f"import dataclasses\n@dataclasses.dataclass\nclass Own:\n    {text}\n")
        import importlib.util

        prints._read_bytes.cache_clear()
        spec = importlib.util.spec_from_file_location("outside", file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["outside"] = module
        try:
            spec.loader.exec_module(module)
            return fingerprint(module.Own())
        finally:
            del sys.modules["outside"]

    assert made("a: int = 1") == made("a: int = 1")
    assert made("a: int = 1  # changed") != made("a: int = 1")
    with pytest.raises(InvalidValueError, match="no fingerprint"):
        fingerprint(object())
    with pytest.raises(InvalidValueError, match="no name of its own"):
        fingerprint(lambda: tmp_path)


@pytest.mark.nightly
def test_a_worker_ends_with_its_parent(tmp_path: Path) -> None:
    """However the parent ends, nobody is left behind."""
    program = tmp_path / "parent.py"
    program.write_text(
        "import os, signal\n"
        "from kerchief.comparison.workers import local_processes\n"
        "if __name__ == '__main__':\n"
        "    with local_processes(1, os.getpid) as workers:\n"
        "        print(workers.executors[0].submit(os.getpid).result(), flush=True)\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True)
    worker = int(done.stdout)
    for _ in range(100):
        if not Path(f"/proc/{worker}").exists():
            return
        time.sleep(0.1)
    pytest.fail("the worker is still there")


def test_parts_are_narrow_on_a_processor() -> None:
    many = dataclasses.replace(TINY, replicates=1000)
    assert find_chunk_width(many) == 64
    widths = {part.last - part.first for part in next(split_chunks(many, ticks=4, width=64))}
    assert widths == {50}


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    with local_processes(2, os.getpid) as workers:
        yield workers


def test_an_interrupt_is_the_parents(processes: Processes) -> None:
    """A terminal interrupts all of them, and only the parent has something to say about it."""
    executor = processes.executors[0]
    worker = executor.submit(os.getpid).result()
    os.kill(worker, signal.SIGINT)
    assert executor.submit(os.getpid).result() == worker


def test_other_processes_play_the_same(
    processes: Processes, played: list[Result], tmp_path: Path
) -> None:
    work = RunState.of(TINY, ticks=4, width=3, archive=Archive(folder=Folder.at(tmp_path)))
    hand_out([work], processes)
    _same(list(work.results(_quiet)), played)
    told = work.to_dict()
    assert (told["parts"], told["found"]) == (8, 0)
    assert 1 <= len(work.memory) <= 2
    assert all(memory > 2**26 for memory in work.memory.values())
    assert len(list(tmp_path.glob("*.npz"))) == 8


@pytest.mark.nightly
def test_a_lost_process_is_one_line() -> None:
    (one,) = next(split_chunks(TINY, ticks=4, width=6))
    with local_processes(1, functools.partial(os._exit, 9)) as workers:
        tasks = workers.submit([one])
        with pytest.raises(KerchiefError, match=r"a worker was lost .* fewer --jobs"):
            list(collect_results(tasks))
        with pytest.raises(KerchiefError, match="closed before everything was played"):
            workers.submit([one])


def _all_parts() -> list[Chunk]:
    return [part for cell in split_chunks(TINY, ticks=4, width=3) for part in cell]


def _play_next(executor: _Takes) -> Chunk:
    """Return the chunk that an executor plays, which is the only one that it has, and end it."""
    part, future = executor.sent.get(timeout=10)
    assert executor.sent.empty()
    future.set_result(None)
    return part


def _distinct_parts(monkeypatch: pytest.MonkeyPatch) -> list[Chunk]:
    """Chunks of distinct programs, none of which are played side by side."""
    monkeypatch.setattr(chunks, "MAX_GROUP_SIZE", 1)
    return [cell[0] for cell in split_chunks(TINY, ticks=4, width=6)]


def test_free_worker_prefers_chunks_it_has_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then it takes what no worker has compiled, and last what another one has."""
    first, second, third, _ = _distinct_parts(monkeypatch)
    one, two = _Takes(instant=False), _Takes(instant=False)
    processes = Processes(executors=[one, two], prepare=os.getpid)
    processes.submit([first, second, third, first, first])
    played = [_play_next(worker).cell for worker in (one, two, two, two, one)]
    assert played == [part.cell for part in (first, second, third, first, first)]
    assert one.sent.empty()
    assert two.sent.empty()


def test_cached_code_is_scheduled_before_code_to_be_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second, third, _ = _distinct_parts(monkeypatch)
    compiling, playing, free = executors = [_Takes(instant=False) for _ in range(3)]
    processes = Processes(executors=executors, prepare=os.getpid)
    processes.submit([first, second, third, first, second, second])
    assert [_play_next(playing).cell, _play_next(free).cell] == [second.cell, third.cell]
    assert [_play_next(free).cell, _play_next(free).cell] == [second.cell, first.cell]
    assert _play_next(compiling).cell == first.cell


def test_processes_play_every_group_once(processes: Processes) -> None:
    """Two processes: those who meet the same arms make four groups of two."""
    tasks = processes.submit(_all_parts())
    assert [len(group) for group in tasks.values()] == [2, 2, 2, 2]
    played = [part for part, _ in collect_results(tasks)]
    assert len(played) == len(set(played)) == 8


def test_chunk_wanted_by_two_comparisons_runs_once(
    processes: Processes, played: list[Result], tmp_path: Path
) -> None:
    """And kept for both before anybody goes on."""
    folders = [tmp_path / "first", tmp_path / "second"]
    works = [
        RunState.of(TINY, ticks=4, width=3, archive=Archive(folder=Folder.at(path)))
        for path in folders
    ]
    given: list[Chunk] = []

    class _Remembers:
        def submit(self, parts: Iterable[Chunk]) -> Tasks:
            given.extend(parts)
            return processes.submit(given)

    hand_out(works, _Remembers())
    assert len(given) == 8
    assert works[0].arriving is not None
    assert next(works[0].arriving) in works[0].runs
    assert [len(list(path.glob("*.npz"))) for path in folders] == [1, 1]
    for work in works:
        _same(list(work.results(_quiet)), played)
        assert work.restored == 0


class _Takes(Executor):
    """Writes down which part was sent; it is played when somebody says so, or at once."""

    def __init__(self, *, instant: bool) -> None:
        self.instant = instant
        self.sent: SimpleQueue[tuple[Chunk, Future[Any]]] = SimpleQueue()

    def submit(self, function: Any, /, *given: Any, **options: Any) -> Future[Any]:
        (told,), world, future = pickle.loads(given[0]), pickle.loads(given[1]), Future[Any]()
        self.sent.put((Chunk(**told | {"environment": world}), future))
        if self.instant:
            future.set_result(None)
        return future


def test_chunks_with_the_same_arms_run_side_by_side() -> None:
    """A few at a time, in the same replicates, and fewer where there are more to play them."""
    groups = group_chunks(_all_parts())
    assert [len(group) for group in groups] == [4, 4]
    for group in groups:
        assert len({(part.first, part.last) for part in group}) == 1
    assert [len(group) for group in group_chunks(_all_parts(), tasks=4)] == [2] * 4
    many = dataclasses.replace(TINY, epsilons=tuple(map(float, range(1, 14))))
    wide = [part for cell in split_chunks(many, ticks=4, width=6) for part in cell]
    assert [len(group) for group in group_chunks(wide)] == [8, 8]
    assert [len(group) for group in group_chunks(wide, tasks=4)] == [4, 4, 4, 4]
    one = wide[0]
    for other in (
        dataclasses.replace(one, seed=1),
        dataclasses.replace(one, ticks=5),
        dataclasses.replace(one, first=1),
        dataclasses.replace(one, last=5),
        dataclasses.replace(one, cell=dataclasses.replace(one.cell, horizon=50)),
    ):
        assert group_chunks([one, other]) == [[one], [other]]
    alone = [part for cell in split_chunks(PHASED, ticks=4, width=6) for part in cell]
    assert [len(group) for group in group_chunks(alone)] == [1] * len(alone)


def test_groups_are_smaller_where_runs_keep_histories(monkeypatch: pytest.MonkeyPatch) -> None:
    fits = dataclasses.replace(
        TINY, env="logistic", policies=("glm-rare",), epsilons=(1.0, 2.0, 3.0, 4.0)
    )
    every = [part for cell in split_chunks(fits, ticks=4, width=6) for part in cell]
    keep = [part for part in every if part.cell.player.policy == "glm-rare"]
    assert [len(group) for group in group_chunks(keep)] == [len(keep)]
    kept = 6 * chunks._count_kept_numbers(keep[0].cell, keep[0].environment.problem(40))
    assert kept > 0
    monkeypatch.setattr(chunks, "MAX_HISTORY_NUMBERS", 2 * (kept + 6 * chunks._MATRICES * 2**2))
    assert max(len(group) for group in group_chunks(keep)) == 2


def test_groups_are_smaller_where_matrices_are_large() -> None:
    many = dataclasses.replace(TINY, dim=512, replicates=64, epsilons=(1.0, 2.0, 3.0))
    wide = [part for cell in split_chunks(many, ticks=4, width=64) for part in cell]
    assert [len(group) for group in group_chunks(wide)] == [1] * len(wide)


@dataclasses.dataclass(frozen=True)
class _Fails:
    """A stand-in for playing, in which one bandit fails, alone or in company."""

    cell: Cell
    asked: list[int] = dataclasses.field(default_factory=list)

    def __call__(self, group: list[Chunk], progress: object) -> list[ChunkResult]:
        self.asked.append(len(group))
        if any(part.cell == self.cell for part in group):
            raise ValueError("it cannot be played")
        return [ChunkResult(run=part, noises={}, alone=None) for part in group]  # type: ignore[arg-type]


def test_failed_chunk_loses_no_other_result_of_its_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """And whoever does is named."""
    (group, _) = group_chunks(_all_parts())
    fails = _Fails(group[1].cell)
    monkeypatch.setattr(chunks, "play_side_by_side", fails)
    played = chunks.play_together(group, [None] * 4)
    assert [next(played)[0] for _ in range(3)] == [group[0], *group[2:]]
    with pytest.raises(ValueError, match="cannot be played") as caught:
        next(played)
    assert caught.value.__notes__ == [f"{group[1].cell.key}, replicates 0 and on"]
    assert fails.asked == [4, 1, 1, 1, 1]


def test_worker_returns_results_beside_a_failed_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    (group, _) = group_chunks(_all_parts())
    monkeypatch.setattr(chunks, "play_side_by_side", _Fails(group[1].cell))
    told, world = workers.pack_group(group), pickle.dumps(group[0].environment)
    answer = workers.play_group(told, world, os.getpid)
    assert sorted(answer.results) == [0, 2, 3]
    future: Future[Answer] = Future()
    future.set_result(answer)
    arriving = collect_results({future: group})
    assert [next(arriving)[0] for _ in range(3)] == [group[0], *group[2:]]
    with pytest.raises(ValueError, match="cannot be played"):
        next(arriving)


def test_arriving_chunks_are_stored_for_every_comparison(
    processes: Processes, played: list[Result], tmp_path: Path
) -> None:
    """Whoever is stopped while the first plan is shown keeps what was finished of the second."""
    later = dataclasses.replace(TINY, seed=5)
    folders = [tmp_path / "first", tmp_path / "second"]
    works = [
        RunState.of(plan, ticks=4, width=3, archive=Archive(folder=Folder.at(path)))
        for plan, path in zip((TINY, later), folders, strict=True)
    ]
    hand_out(works, processes)
    assert works[0].arriving is not None
    for _ in works[0].arriving:
        pass
    assert [len(list(path.glob("*.npz"))) for path in folders] == [8, 8]
    _same(list(works[0].results(_quiet)), played)
    assert [len(one.runs) for one in works] == [8, 8]


def test_comparison_sees_progress_of_its_own_chunks_alone(
    processes: Processes, tmp_path: Path
) -> None:
    later = dataclasses.replace(TINY, seed=5, epsilons=(2.0,))
    works = [RunState.of(plan, ticks=4, width=3) for plan in (TINY, later)]
    hand_out(works, processes)
    heard: list[Cell] = []
    list(works[1].results(lambda cell, stage, share: heard.append(cell)))
    assert set(heard) <= set(later.cells())


def test_the_longest_part_comes_first() -> None:
    cells = [cell[0] for cell in split_chunks(TINY, ticks=4, width=6)]
    parts = [dataclasses.replace(one, last=n) for n, one in enumerate(cells, start=1)]
    work = RunState.of(TINY, ticks=4, width=6)
    work.cells = [[part] for part in parts]
    takes = _Takes(instant=True)
    hand_out([work], Processes(executors=[takes], prepare=os.getpid))
    sent = [takes.sent.get(timeout=10)[0].last for _ in parts]
    assert sent == list(range(len(cells), 0, -1))


def test_a_part_is_done_before_the_rest_of_its_task_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was finished can be kept, whatever becomes of those that come after it."""
    monkeypatch.setattr(chunks, "MAX_GROUP_SIZE", 1)
    takes, one = _Takes(instant=False), next(split_chunks(TINY, ticks=4, width=6))[0]
    tasks = Processes(executors=[takes], prepare=os.getpid).submit([one] * 4)
    for future in tasks:
        _, played = takes.sent.get(timeout=10)
        assert not future.done()
        assert takes.sent.empty()
        played.set_result(None)
        future.result(timeout=10)


def test_closed_processes_submit_no_further_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Worlds may be large, and many groups may be left at an interrupt."""
    monkeypatch.setattr(chunks, "MAX_GROUP_SIZE", 1)
    takes, one = _Takes(instant=False), next(split_chunks(TINY, ticks=4, width=6))[0]
    processes = Processes(executors=[takes], prepare=os.getpid)
    processes.submit([one] * 4)
    _, played = takes.sent.get(timeout=10)
    processes.close()
    played.set_result(None)
    assert takes.sent.empty()
    with pytest.raises(KerchiefError, match="closed before everything was played"):
        processes.submit([one])
    assert takes.sent.empty()


def test_waiting_on_closed_processes_raises_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "MAX_GROUP_SIZE", 1)
    processes = Processes(executors=[_Takes(instant=False)], prepare=os.getpid)
    results = compare(TINY, ticks=4, width=3, workers=processes)
    processes.close()
    with pytest.raises(KerchiefError, match="closed before everything was played"):
        list(results)


def test_process_remembers_compiled_programs_across_submits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rungs of a search play the same programs."""
    first, second, *_ = _distinct_parts(monkeypatch)
    one, two = executors = [_Takes(instant=False), _Takes(instant=False)]
    processes = Processes(executors=executors, prepare=os.getpid)
    processes.submit([first, second])
    assert [_play_next(one).cell, _play_next(two).cell] == [first.cell, second.cell]
    processes.submit([second, first])
    assert [_play_next(one).cell, _play_next(two).cell] == [first.cell, second.cell]


class _Fulfils:
    """Workers that play at once, in this process."""

    def __init__(self, failing: Chunk | None = None) -> None:
        self.given: list[Chunk] = []
        self.failing = failing

    def submit(self, parts: Iterable[Chunk]) -> Tasks:
        self.given = list(parts)
        return {self._played(part): [part] for part in self.given}

    def _played(self, part: Chunk) -> Future[Answer]:
        future: Future[Answer] = Future()
        if part is self.failing:
            future.set_exception(ValueError("cannot be played"))
        else:
            done = TaskResult(result=part.play(), process=("here", 1), memory=1)
            future.set_result(Answer(results={0: done}, error=None))
        return future


def _twins(tmp_path: Path) -> list[RunState]:
    folders = [tmp_path / "first", tmp_path / "second"]
    return [
        RunState.of(TINY, ticks=4, width=6, archive=Archive(folder=Folder.at(path)))
        for path in folders
    ]


def test_chunk_stored_by_one_comparison_serves_another(tmp_path: Path) -> None:
    first, _ = _twins(tmp_path)
    hand_out([first], _Fulfils())
    list(first.results(_quiet))
    works, nobody = _twins(tmp_path), _Fulfils()
    hand_out(works, nobody)
    assert nobody.given == []
    assert [work.restored for work in works] == [4, 4]
    assert len(list((tmp_path / "second").glob("*.npz"))) == 4


def test_unwritable_folder_costs_other_comparisons_no_chunk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    works = _twins(tmp_path)
    keep, first = Archive.keep, works[0].archive

    def kept(archive: Archive, part: Chunk, played: ChunkResult) -> None:
        if archive is first:
            raise OSError("no space left")
        keep(archive, part, played)

    monkeypatch.setattr(Archive, "keep", kept)
    hand_out(works, _Fulfils())
    with pytest.raises(OSError, match="no space left"):
        list(works[0].results(_quiet))
    assert len(list((tmp_path / "second").glob("*.npz"))) == 1
    with pytest.raises(KerchiefError, match="has failed before it was finished"):
        list(works[1].results(_quiet))


def test_shared_chunk_is_reported_to_both_comparisons(tmp_path: Path) -> None:
    works = _twins(tmp_path)
    hand_out(works, _Fulfils())
    assert works[0].arriving is not None
    named = list(works[0].arriving)
    assert [sum(part in work.runs for part in named) for work in works] == [4, 4]


def test_a_cluster_gets_every_program_before_it_gets_one_twice() -> None:
    tasks = _handed_over([])
    cells = [part.cell for (part,) in tasks.values()]
    assert len(cells) == 8
    assert len(set(cells[:4])) == len(set(cells[4:])) == 4


def _handed_over(held: list[bytes], *, large: int = 0) -> Tasks:
    def hold(content: bytes) -> bytes:
        held.append(content)
        return content

    takes = _Takes(instant=True)
    cluster = Cluster(executor=takes, hold=hold, prepare=os.getpid, large=large)
    return cluster.submit(_all_parts())


def test_a_cluster_gets_a_world_once_for_all_parts_in_it() -> None:
    """It may be a large data set, and there may be thousands of parts."""
    held: list[bytes] = []
    tasks = _handed_over(held)
    assert len({part.cell.world for (part,) in tasks.values()}) == len(held) < len(tasks)
    small: list[bytes] = []
    _handed_over(small, large=2**20)
    assert not small


def test_a_part_travels_with_all_its_bits() -> None:
    (one,) = next(split_chunks(TINY, ticks=4, width=6))
    assert pickle.loads(pickle.dumps(one)).address() == one.address()


def test_missing_dask_error_names_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with (
        pytest.raises(KerchiefError, match=r"Dask is not installed: run pip install .*cluster"),
        dask_cluster("tcp://127.0.0.1:1", os.getpid),
    ):
        pass


@pytest.mark.parametrize(
    "address", ["blah", "", "http://127.0.0.1:1", "tls://127.0.0.1:1", "tcp://127.0.0.1:1"]
)
def test_unreachable_scheduler_raises_error_and_closes_client(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import distributed

    made: list[Any] = []

    class Seen(distributed.Client):  # type: ignore[misc, unused-ignore]
        def __init__(self, *given: Any, **named: Any) -> None:
            made.append(self)
            super().__init__(*given, **named)  # type: ignore[no-untyped-call]

    monkeypatch.setattr(distributed, "Client", Seen)
    monkeypatch.setattr(cluster, "SCHEDULER_TIMEOUT_S", 0.2)
    with (
        pytest.raises(InvalidValueError, match=f"scheduler is {address!r}; none answers there"),
        dask_cluster(address, os.getpid),
    ):
        pass
    # One that is left open is closed at exit, which ends in a traceback.
    assert [one.status for one in made] == ["closed"]


@pytest.mark.parametrize("count", [0, 1])
def test_scheduler_without_workers_prints_a_notice(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    import distributed

    monkeypatch.setattr(cluster, "WORKER_TIMEOUT_S", 30 if count else 0.2)
    told: list[str] = []
    options = {"n_workers": count, "processes": False, "dashboard_address": None}
    with (
        distributed.LocalCluster(**options) as made,  # type: ignore[no-untyped-call]
        dask_cluster(made.scheduler_address, os.getpid, told.append) as workers,
    ):
        assert len(told) == 1 - count
        if not count:  # what nobody will ever play is not waited for at the end
            workers.submit(next(split_chunks(TINY, ticks=4, width=6)))
    assert all("has no workers yet, and nothing is played until some come" in one for one in told)


FLAGS = [
    *("--contexts", "ball", "--dim", "2", "--arms", "3", "--horizon", "300", "--replicates"),
    *("128", "--policy", "linucb", "--trust", "joint", "--trust", "local", "--epsilon", "1"),
]


def _command(out: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "kerchief.cli", "compare", *FLAGS, "--out", str(out), *more]


def _numbers(out: Path) -> pl.DataFrame:
    table = pl.read_parquet(out / "results.parquet")
    return table.drop("microseconds")


@pytest.mark.nightly
def test_repeatedly_killed_run_ends_with_the_same_numbers(tmp_path: Path) -> None:
    """Kill -9 at twenty random moments of a run; each of them leaves what can be continued."""
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    began = time.monotonic()
    subprocess.run(_command(whole), check=True, capture_output=True)
    length = time.monotonic() - began
    dice, killed = random.Random(7), 0
    while killed < 20:
        with subprocess.Popen(
            _command(broken), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as run:
            try:
                run.wait(timeout=dice.uniform(0.3, 1.0) * length)
            except subprocess.TimeoutExpired:
                run.kill()
            killed += 1
        if (broken / "results.json").exists() and killed % 7 == 0:
            # Sometimes begin anew, so that early moments are met too.
            subprocess.run(["rm", "-r", str(broken)], check=True)
    last = subprocess.run(_command(broken, "--jobs", "2"), check=True, capture_output=True)
    assert b"kerchief: error" not in last.stderr
    assert _numbers(broken).equals(_numbers(whole))


@pytest.mark.nightly
def test_one_process_and_two_play_the_same(tmp_path: Path) -> None:
    """A process that is not alone has one core, and must not round otherwise for that."""
    mine = [sys.executable, "-m", "kerchief.cli", "compare", "--policy", "best", "--trust", "local"]
    mine += ["--epsilon", "1", "--contexts", "ball", "--horizon", "2000", "--out"]
    usual = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    for jobs in ("1", "2"):
        line = [*mine, str(tmp_path / jobs), "--jobs", jobs]
        subprocess.run(line, check=True, capture_output=True, env=usual)
    assert _numbers(tmp_path / "1").equals(_numbers(tmp_path / "2"))


@pytest.mark.nightly
def test_a_large_world_reaches_the_workers_of_a_cluster(played: list[Result]) -> None:
    import distributed

    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with (
        distributed.LocalCluster(**options) as made,  # type: ignore[no-untyped-call]
        dask_cluster(made.scheduler_address, os.getpid) as workers,
    ):
        large = dataclasses.replace(workers, large=0)
        _same(list(compare(TINY, ticks=4, width=3, workers=large)), played)


@pytest.mark.nightly
def test_a_cluster_that_loses_a_worker_loses_nothing(tmp_path: Path) -> None:
    """A real scheduler and two workers on loopback; one is killed while parts are played."""
    whole, shared = tmp_path / "whole", tmp_path / "shared"
    subprocess.run(_command(whole), check=True, capture_output=True)
    bin = Path(sys.executable).parent
    address = "tcp://127.0.0.1:18786"
    scheduler = [str(bin / "dask"), "scheduler", "--host", "127.0.0.1", "--port", "18786"]
    worker = [str(bin / "dask"), "worker", address, "--nthreads", "1", "--no-nanny"]
    with contextlib.ExitStack() as stack:

        def start(*words: str) -> subprocess.Popen[bytes]:
            made = subprocess.Popen([*words, "--no-dashboard"], stderr=subprocess.DEVNULL)
            stack.callback(made.wait)
            stack.callback(made.kill)
            return made

        start(*scheduler)
        doomed, _ = start(*worker), start(*worker)
        run = subprocess.Popen(_command(shared, "--jobs", address))
        parts = shared / "parts"
        while run.poll() is None and (not parts.exists() or len(list(parts.glob("*.npz"))) < 3):
            time.sleep(0.1)
        doomed.kill()
        assert run.wait(timeout=600) == 0
    work = json.loads((shared / "results.json").read_text())["work"]
    assert work["parts"] == len(list((shared / "parts").glob("*.npz")))
    assert _numbers(shared).equals(_numbers(whole))
