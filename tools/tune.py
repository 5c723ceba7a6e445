"""`python -m tools.tune`: how the numbers that bandits play with by default were chosen."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping
from pathlib import Path

import click
from tools.tuning.halving import check
from tools.tuning.halving import tune as search_for
from tools.tuning.outcome import Outcome
from tools.tuning.recorded import SEARCHES, Recorded
from tools.tuning.search import Search

from kerchief.cli.device import use_device
from kerchief.cli.exit_codes import CommandWithExitCodes
from kerchief.cli.global_options import device_option, plugin_files, with_plugins
from kerchief.cli.playing import Playing
from kerchief.cli.printing import (
    complain,
    json_output,
    print_json,
    print_table,
    print_wrapped,
    progress_bar,
)
from kerchief.comparison.archive import Archive
from kerchief.comparison.run_folder import Folder
from kerchief.comparison.versions import versions
from kerchief.core.errors import InvalidValueError

_USUAL = Path("results", "tune")
_PARTS = "parts"


@click.command(cls=CommandWithExitCodes)
@click.argument("name", required=False, metavar="[NAME]")
@click.option("--budget", type=int, help="Candidates that begin.  [default: as declared]")
@click.option(
    "--seed",
    "seeds",
    type=int,
    multiple=True,
    help="Twice: where to search, and where to confirm.  [default: as declared]",
)
@click.option("--check", "checked", is_flag=True, help="Say whether the code plays what was found.")
@click.option(
    "--show", is_flag=True, help="Print the declaration, to change it for a world of yours."
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="File for the outcome; finished parts lie beside it.  [default: results/tune/NAME.json]",
)
@click.option("--force", is_flag=True, help="Replace an outcome of something else.")
@click.option("--jobs", type=int, default=1, show_default=True, help="Processes that play at once.")
@click.option("--scheduler", metavar="ADDRESS", help="A Dask cluster that plays instead.")
@device_option
@plugin_files
@with_plugins
@json_output
def tune(
    *,
    name: str | None,
    budget: int | None,
    seeds: tuple[int, ...],
    checked: bool,
    show: bool,
    out: Path | None,
    force: bool,
    jobs: int,
    scheduler: str | None,
    device: str,
    as_json: bool,
    **_: object,
) -> None:
    """Search for the numbers that a bandit plays with by default.

    NAME is a recorded search, or a TOML file that declares one of your own; without it the recorded
    ones are listed. Candidates meet the same draws, and rung by rung fewer of them play more often;
    the best one must then beat the incumbent on another seed. What is finished is kept: after an
    interrupt the same command continues.
    """
    playing = Playing(
        device=device,
        out=out,
        force=force,
        resume=False,
        jobs=jobs,
        scheduler=scheduler,
        formats=(),
        tables=(),
        as_json=as_json,
    )
    if name is None or checked or show:
        options_of_runs = {
            "jobs": jobs if jobs > 1 else None,
            "scheduler": scheduler,
            "force": force or None,
        }
        _check_unused_options(name, budget=budget, seed=seeds or None, out=out, **options_of_runs)
    if show and checked:
        raise InvalidValueError("--check looks at a search, and --show prints it; give one of them")
    if show and (name is None or as_json):
        raise InvalidValueError(
            "--show prints the TOML file of a search; give its NAME, and no --json"
        )
    if checked and name is not None and name.endswith(".toml"):
        raise InvalidValueError(
            f"--check looks at what the code plays of a recorded search, and {name!r} is a file of "
            "your own; leave --check out to play it"
        )
    if name is None or checked:
        use_device(device)
        _list_searches(
            [SEARCHES[name]] if name else [search for _, search in SEARCHES.items()],
            checked,
            as_json,
        )
    elif show:
        Search.read(_find_declaration(name))
        click.echo(_find_declaration(name).read_text(encoding="utf-8"), nl=False)
    else:
        search = _read_search(_find_declaration(name), budget, seeds)
        use_device(device)
        check(search)
        path = out or _USUAL / f"{_find_declaration(name).stem}.json"
        outcome = _run_search(search, path, playing)
        _print_outcome(outcome, path, as_json)


def _check_unused_options(name: str | None, **settings: object) -> None:
    """Refuse options that only matter when a search runs."""
    for option, value in settings.items():
        if value is not None:
            remedy = "give the NAME of a search" if name is None else f"leave --{option} out"
            raise InvalidValueError(f"--{option} is given, and no search is played; {remedy}")


def _find_declaration(name: str) -> Path:
    """Find the file of a recorded search, or take a path to a file of the user."""
    return Path(name) if name.endswith(".toml") else SEARCHES[name].declaration


def _read_search(path: Path, budget: int | None, seeds: tuple[int, ...]) -> Search:
    """Read a declared search, and apply the options of the command line."""
    search = Search.read(path)
    if budget is not None:
        search = dataclasses.replace(search, budget=search.budget.narrowed(budget))
    return dataclasses.replace(search, seeds=seeds) if seeds else search


def _run_search(search: Search, path: Path, playing: Playing) -> Outcome:
    """Run the search, and store its outcome."""
    folder = Folder.at(path.parent)
    folder.check(path.name)
    if path.exists() and not playing.force:
        _refuse_other_outcome(path, search)
    before = folder.stamp(path.name)
    archive = Archive(folder=folder.inner(_PARTS))
    with playing.workers() as workers, progress_bar() as bar:
        task = bar.add_task("starting", total=1.0)
        try:
            outcome = search_for(
                search,
                archive=archive,
                workers=workers,
                watch=lambda stage, share: bar.update(task, description=stage, completed=share),
            )
        except KeyboardInterrupt:
            complain("interrupted", f"finished parts are in {archive.folder.path}; run it again")
            raise SystemExit(130) from None
    with folder.alone():
        if path.exists() and folder.stamp(path.name) != before:
            # Another search has ended here meanwhile, and nobody has asked to replace that one.
            _refuse_other_outcome(path, search)
        folder.write(path.name, outcome.text().encode())
    return outcome


def _refuse_other_outcome(path: Path, search: Search) -> None:
    """Refuse to replace the outcome of another search or of another version."""
    remedy = "choose another --out, or replace it with --force"
    try:
        stored = Outcome.read(path)
    except InvalidValueError as error:
        raise InvalidValueError(f"{str(path)!r} holds no outcome of a search; {remedy}") from error
    if stored.search != search or stored.versions != versions():
        difference = "another search" if stored.search != search else "other versions"
        raise InvalidValueError(f"{str(path)!r} holds the outcome of {difference}; {remedy}")


def _list_searches(recorded: list[Recorded], checked: bool, as_json: bool) -> None:
    """List searches with outcomes, or check them and exit with 1 if one is stale."""
    if not checked and not as_json:
        rows = [
            (search.name, _format_numbers(search.chosen), _format_verdict(search))
            for search in recorded
        ]
        print_table(("search", "numbers", "outcome"), rows, columns="lll")
        return
    complaints_by_name = {search.name: search.complaints() for search in recorded}
    if as_json:
        print_json(
            {
                "searches": [
                    _describe_search(search, complaints_by_name[search.name]) for search in recorded
                ]
            }
        )
    else:
        for name, complaints in complaints_by_name.items():
            click.echo(f"{name}: {'; '.join(complaints) or 'the code plays what was found'}")
    if checked and any(complaints_by_name.values()):
        raise SystemExit(1)


def _describe_search(search: Recorded, complaints: list[str]) -> dict[str, object]:
    numbers = {
        "chosen": dict(search.chosen),
        "played": [dict(played_numbers) for played_numbers in search.played()],
    }
    return {
        "name": search.name,
        **numbers,
        "verdict": _format_verdict(search),
        "complaints": complaints,
    }


def _format_verdict(search: Recorded) -> str:
    return search.outcome.verdict() if search.outcome else "never played"


def _print_outcome(outcome: Outcome, path: Path, as_json: bool) -> None:
    if as_json:
        print_json(outcome.to_dict() | {"file": str(path)})
        return
    last = max(evaluation.rung for evaluation in outcome.evaluations)
    ranked = sorted(
        outcome.evaluations, key=lambda evaluation: (-evaluation.rung, evaluation.score)
    )
    rows = [
        (
            *(
                str(evaluation.rung),
                _format_numbers(evaluation.numbers),
                f"{evaluation.score:.3f} ± {evaluation.se:.3f}",
            ),
            *(f"{evaluation.p95:.3g}", str(evaluation.replicates)),
        )
        for evaluation in ranked
        if evaluation.rung == last or dict(evaluation.numbers) == dict(outcome.search.incumbent)
    ]
    print_table(("rung", "numbers", "score", "p95", "replicates"), rows, columns="rlrrR")
    matches = [
        (
            *(comparison.cell, f"{comparison.best:.4g}", f"{comparison.incumbent:.4g}"),
            *(
                f"{comparison.gain:+.3f} ± {comparison.se:.3f}",
                f"{comparison.best_p95:.3g}, {comparison.incumbent_p95:.3g}",
            ),
        )
        for comparison in (*outcome.cells, outcome.overall)
    ]
    title = f"{_format_numbers(outcome.best)} beside the incumbent, seed {outcome.search.seeds[1]}"
    print_table(("cell", "best", "incumbent", "gain", "p95"), matches, title=title, columns="lrrrR")
    print_wrapped(f"{outcome.verdict()}.")
    flags = [
        argument
        for name, number in outcome.chosen.items()
        for argument in ("--param", f"{name}={number:g}")
    ]
    click.echo(shlex.join(["kerchief", "compare", "--policy", outcome.search.policy, *flags]))
    click.echo(f"outcome: {path}")


def _format_numbers(numbers: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {number:g}" for name, number in sorted(numbers.items()))


if __name__ == "__main__":
    tune()
