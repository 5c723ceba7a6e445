"""Warnings, progress, interrupts and final output of the commands that play."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

import click

from kerchief.cli.device import use_device
from kerchief.cli.global_options import chosen_device
from kerchief.cli.options import words
from kerchief.cli.printing import complain, json_output, print_json, print_wrapped, progress_bar
from kerchief.comparison.cluster import dask_cluster
from kerchief.comparison.plan import Plan
from kerchief.comparison.players import Cell
from kerchief.comparison.plugins import Plugin, list_loaded, load_installed
from kerchief.comparison.runner import RunState, hand_out
from kerchief.comparison.workers import Workers, local_processes
from kerchief.core import validate
from kerchief.core.errors import InvalidValueError
from kerchief.reports.extras import NEEDS, format_install_command, missing
from kerchief.reports.figures import FORMATS
from kerchief.reports.outputs import Outputs, free_folder, own_folder
from kerchief.reports.report import kept_promises, of_one_report
from kerchief.reports.tables import WRITERS


@dataclasses.dataclass(frozen=True, kw_only=True)
class Playing:
    """How a plan is played, whatever it is: the options that `playing_options` adds."""

    device: str
    out: Path | None
    force: bool
    resume: bool
    jobs: int
    scheduler: str | None
    tables: tuple[str, ...]
    as_json: bool
    formats: tuple[str, ...] = FORMATS[:1]

    def __post_init__(self) -> None:
        """Check the numbers and the words."""
        validate.whole("jobs", self.jobs, high=1024)
        if self.resume and self.force:
            raise InvalidValueError(
                "--resume continues what is in the folder, and --force throws it away; give one of "
                "them"
            )
        if self.jobs > 1 and self.scheduler is not None:
            raise InvalidValueError(
                f"jobs is {self.jobs}, and the cluster at {self.scheduler} plays with as many "
                "workers as it has; give one of jobs and scheduler"
            )
        for picture_format in self.formats:
            validate.one_of("format", picture_format, FORMATS)
        for table in self.tables:
            validate.one_of("table", table, tuple(WRITERS))

    def folder(self, plan: Plan) -> Path:
        """The folder asked for; else the usual one, or the first after it that is free.

        What is resumed or played anew is first looked for there.
        """
        if self.out is not None:
            return self.out
        usual = Path("results", plan.name)
        if self.force or self.resume:
            return own_folder(usual, plan) or usual
        return free_folder(usual, plan)

    @contextlib.contextmanager
    def workers(self) -> Iterator[Workers | None]:
        """Start the requested workers; None plays in this process."""
        prepare = functools.partial(prepared, self.device, list_loaded())
        if self.scheduler is not None:
            tell = functools.partial(complain, "waiting")
            with dask_cluster(self.scheduler, prepare, tell) as workers:
                yield workers
        elif self.jobs > 1:
            with local_processes(self.jobs, prepare) as workers:
                yield workers
        else:
            yield None


def prepared(device: str, plugins: tuple[Plugin, ...]) -> None:
    """In a worker: take the device, and load the plugins that are loaded here."""
    use_device(device, alone=False)
    load_installed()
    for plugin in plugins:
        plugin.load()


def playing_options(*, pictures: bool) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the options of `Playing` to a command, which gets them as one value.

    One that draws no pictures is not asked how.
    """

    def add_options(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def call_command(**arguments: Any) -> None:
            arguments |= _split_formats(arguments.pop("formats"), pictures=pictures)
            names = [field.name for field in dataclasses.fields(Playing)]
            fields = {name: arguments.pop(name) for name in names if name in arguments}
            playing = Playing(device=chosen_device(), **_split_jobs(fields.pop("jobs")), **fields)
            command(playing=playing, **arguments)

        options = _build_options(pictures=pictures)
        return functools.reduce(
            lambda wrapped, option: option(wrapped), reversed(options), call_command
        )

    return add_options


def _build_options(*, pictures: bool) -> list[Callable[..., Any]]:
    choices = (*FORMATS, *WRITERS) if pictures else tuple(WRITERS)
    return [
        click.option(
            "--out",
            type=click.Path(path_type=Path),
            help=f"Folder for {'the picture, ' if pictures else ''}the report and the results.  "
            "[default: results/NAME, or NAME-2 and so on if that holds another run]",
        ),
        click.option(
            "--resume", is_flag=True, help="Require an earlier run in the folder, and continue it."
        ),
        click.option(
            "--force", is_flag=True, help="Run again, and replace the results in the folder."
        ),
        click.option(
            "--jobs",
            default="1",
            show_default=True,
            metavar="N|ADDRESS",
            help="Number of processes on this machine, or address of a Dask cluster.",
        ),
        click.option(
            "--format",
            "formats",
            multiple=True,
            callback=lambda _, parameter, texts: tuple(
                dict.fromkeys(value.strip() for text in texts for value in text.split(","))
            ),
            metavar=words(choices),
            help=f"Formats of {'the picture and of ' if pictures else ''}tables. Repeatable."
            f"{'  [default: png]' if pictures else ''}",
        ),
        json_output,
    ]


def _split_jobs(jobs: str) -> dict[str, Any]:
    """Return the fields of `Playing` for a number of processes, or for an address."""
    if ":" in jobs:
        return {"jobs": 1, "scheduler": jobs}
    try:
        return {"jobs": int(jobs), "scheduler": None}
    except ValueError:
        raise InvalidValueError(
            f"--jobs is {jobs!r}; give a number of processes, or the address of a Dask cluster, "
            "such as tcp://HOST:8786"
        ) from None


def _split_formats(formats: tuple[str, ...], *, pictures: bool) -> dict[str, tuple[str, ...]]:
    """Return the fields of `Playing` for formats of pictures and of tables."""
    choices = (*FORMATS, *WRITERS) if pictures else tuple(WRITERS)
    for name in formats:
        validate.one_of("format", name, choices)
    return {
        "formats": tuple(name for name in formats if name in FORMATS) or FORMATS[:1],
        "tables": tuple(name for name in formats if name in WRITERS),
    }


Show: TypeAlias = Callable[[Outputs], None]


def perform(
    plans: Iterable[Plan], show: Show, playing: Playing, *, narrow: str
) -> list[dict[str, object]]:
    """Play plans and show finished results; leave with 130 when interrupted.

    Each is checked before it runs, and all of them before workers get anything. Where only JSON was
    asked for, nothing is announced, and what needs a library that is missing is left out; else
    `narrow` names the flags that make it less.

    Returns:
        What became of each, as JSON.
    """
    use_device(playing.device)
    plan_list, started_plans = list(plans), list[tuple[Outputs, RunState]]()

    def begin(plan: Plan) -> tuple[Outputs, RunState]:
        started_plans.append(_begin(plan, playing, narrow))
        return started_plans[-1]

    try:
        with playing.workers() as workers:
            if workers is None:
                return [_finish(*begin(plan), show, playing) for plan in plan_list]
            works = [begin(plan)[1] for plan in plan_list]
            hand_out(works, workers)
            documents = dict(_finish_all(started_plans, show, playing))
            return [documents[number] for number in range(len(started_plans))]
    except KeyboardInterrupt:
        if not started_plans:
            raise
        _leave(started_plans, playing, several=len(plan_list) > 1)


def _begin(plan: Plan, playing: Playing, narrow: str) -> tuple[Outputs, RunState]:
    """Take a folder for the plan, and announce what is left to play."""
    for warning in plan.warnings():
        complain("warning", warning)
    outputs = Outputs.at(
        playing.folder(plan),
        plan,
        needed=not playing.as_json,
        force=playing.force,
        resume=playing.resume,
        formats=playing.formats,
        tables=playing.tables,
    )
    outputs.begin()
    work = RunState.of(plan, archive=outputs.archive)
    _announce(outputs, work, "" if playing.as_json else narrow)
    return outputs, work


def _finish_all(
    started_plans: Sequence[tuple[Outputs, RunState]], show: Show, playing: Playing
) -> Iterator[tuple[int, dict[str, object]]]:
    """Show each plan as soon as all of it has arrived, with its number."""
    waiting = dict(enumerate(started_plans))
    while waiting:
        works = {number: work for number, (_, work) in waiting.items()}
        if len(waiting) > 1:
            _wait(list(works.values()))
        first = next(iter(waiting))
        number = next(
            (finished_number for finished_number, work in works.items() if not work.missing), first
        )
        yield number, _finish(*waiting.pop(number), show, playing)


def _wait(works: Sequence[RunState]) -> None:
    """Wait until all of one plan has arrived, or nothing more comes."""
    arriving = works[0].arriving or iter(())
    with progress_bar() as bar:
        total = sum(work.parts for work in works)
        task = bar.add_task(f"playing {len(works)} plans", total=total)
        while all(work.missing for work in works):
            bar.update(task, completed=sum(len(work.runs) for work in works))
            if next(arriving, None) is None:
                break


def _finish(outputs: Outputs, work: RunState, show: Show, playing: Playing) -> dict[str, object]:
    """Play the rest of a plan, and show all results that are finished."""
    interrupted = _play(outputs, work)
    outputs.close()
    if not playing.as_json:
        show(outputs)
    if interrupted:
        raise KeyboardInterrupt
    return outputs.document()


def _leave(
    started_plans: Sequence[tuple[Outputs, RunState]], playing: Playing, *, several: bool
) -> NoReturn:
    """Say what is kept, and leave with 130."""
    if several:
        for outputs, work in started_plans:
            outputs.work = work.to_dict()
            for result in itertools.islice(work.finished_results(), len(outputs.finished), None):
                outputs.keep(result)
    documents = {outputs.plan.name: outputs.document() for outputs, _ in started_plans}
    if playing.as_json:
        print_json({"experiments": documents} if several else next(iter(documents.values())))
    complain("interrupted", _describe_progress(started_plans, several=several))
    raise SystemExit(130)


def _announce(outputs: Outputs, work: RunState, narrow: str) -> None:
    """Announce missing libraries, the size of a plan and what is finished of it."""
    lacking = missing(*NEEDS)
    if lacking:
        complain(
            "warning",
            f"{' and '.join(need for need in NEEDS if need not in outputs.wanted)} will not be "
            f"written without {', '.join(lacking)}: run {format_install_command('report')}",
        )
    if narrow:
        cells, replicates = outputs.plan.cells(), outputs.plan.replicates
        rounds = sorted({cell.horizon for cell in cells})
        span = str(rounds[0]) if len(rounds) == 1 else f"{rounds[0]} to {rounds[-1]}"
        size = (
            f"{len(cells)} cells of {span} rounds, with {replicates} "
            f"replicate{'s' * (replicates > 1)} each"
        )
        progress = f"{work.restored} of {work.parts} parts are in {outputs.folder.path}; " * bool(
            work.restored
        )
        complain("playing", f"{size}; {progress}less with {narrow}")


def _describe_progress(started_plans: Sequence[tuple[Outputs, RunState]], *, several: bool) -> str:
    """Describe what an interrupted run leaves."""
    if several:
        stored = sum(len(work.runs) for _, work in started_plans)
        parts = sum(work.parts for _, work in started_plans)
        return f"{stored} of {parts} parts of what was begun are kept; run it again to continue"
    ((outputs, _),) = started_plans
    cell_count, total = len(outputs.finished), len(outputs.plan.cells())
    where = outputs.folder.path
    return f"{cell_count} of {total} cells were finished, in {where}; run it again to continue"


def _play(outputs: Outputs, work: RunState) -> bool:
    """Play and keep cell by cell; whether the user stopped it."""
    with progress_bar() as bar:
        task = bar.add_task("starting", total=work.parts)

        def watch(cell: Cell, stage: str, share: float) -> None:
            name, run_count = f"{cell.world} {cell.label()}: {stage}", len(work.runs)
            text = f"{min(run_count + 1, work.parts)}/{work.parts} {name}"
            bar.update(task, description=text, completed=run_count + share)

        try:
            for result in work.results(watch):
                outputs.work = work.to_dict()
                outputs.keep(result)
        except KeyboardInterrupt:
            return True
    return False


def print_promises(outputs: Outputs) -> None:
    """Print the guarantees that hold, one sentence per trust, and the files."""
    plan, results = outputs.plan, outputs.finished
    promised = kept_promises(plan, (result.cell for result in results))
    for sentence in (*promised, *of_one_report(plan, results)):
        print_wrapped(sentence)
    for name, path in outputs.files.items():
        click.echo(f"{name}: {path}")
