"""`kerchief tune`: how the numbers that bandits play with by default were chosen."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping
from pathlib import Path

import click

from kerchief.cli import options
from kerchief.cli.device import use_device
from kerchief.cli.playing import Playing
from kerchief.cli.plugins import plugin_option
from kerchief.cli.printing import (
    complain,
    json_output,
    print_json,
    print_table,
    print_wrapped,
    progress_bar,
)
from kerchief.core.errors import InvalidValue
from kerchief.experiments.archive import Archive
from kerchief.experiments.folder import Folder
from kerchief.experiments.tuning.halving import check
from kerchief.experiments.tuning.halving import tune as search_for
from kerchief.experiments.tuning.outcome import Outcome
from kerchief.experiments.tuning.recorded import SEARCHES, Recorded
from kerchief.experiments.tuning.search import Search
from kerchief.experiments.versions import versions

_USUAL = Path("results", "tune")
_PARTS = "parts"


@click.command()
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
@options.device
@plugin_option
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
        whose = {"jobs": jobs if jobs > 1 else None, "scheduler": scheduler, "force": force or None}
        _check_unheard(name, budget=budget, seed=seeds or None, out=out, **whose)
    if show and checked:
        raise InvalidValue("--check looks at a search, and --show prints it; give one of them")
    if show and (name is None or as_json):
        raise InvalidValue("--show prints the TOML file of a search; give its NAME, and no --json")
    if checked and name is not None and name.endswith(".toml"):
        raise InvalidValue(
            f"--check looks at what the code plays of a recorded search, and {name!r} is a file of "
            "your own; leave --check out to play it"
        )
    if name is None or checked:
        use_device(device)
        _list([SEARCHES[name]] if name else [one for _, one in SEARCHES.items()], checked, as_json)
    elif show:
        Search.read(_declaration(name))
        click.echo(_declaration(name).read_text(encoding="utf-8"), nl=False)
    else:
        search = _asked(_declaration(name), budget, seeds)
        use_device(device)
        check(search)
        path = out or _USUAL / f"{_declaration(name).stem}.json"
        outcome = _found(search, path, playing)
        _print(outcome, path, as_json)


def _check_unheard(name: str | None, **given: object) -> None:
    """Refuse what only a search that is played would hear."""
    for option, value in given.items():
        if value is not None:
            remedy = "give the NAME of a search" if name is None else f"leave --{option} out"
            raise InvalidValue(f"--{option} is given, and no search is played; {remedy}")


def _declaration(name: str) -> Path:
    """The file of a recorded search, or one of the user's own."""
    return Path(name) if name.endswith(".toml") else SEARCHES[name].declaration


def _asked(path: Path, budget: int | None, seeds: tuple[int, ...]) -> Search:
    """The search as it is declared, with what the command line says instead."""
    search = Search.read(path)
    if budget is not None:
        search = dataclasses.replace(search, budget=search.budget.narrowed(budget))
    return dataclasses.replace(search, seeds=seeds) if seeds else search


def _found(search: Search, path: Path, playing: Playing) -> Outcome:
    """Play the search, and store what it finds."""
    folder = Folder.at(path.parent)
    folder.check(path.name)
    if path.exists() and not playing.force:
        _refuse_other(path, search)
    before = folder.stamp(path.name)
    archive = Archive(folder=folder.inner(_PARTS))
    with playing.workers() as workers, progress_bar() as bar:
        task = bar.add_task("starting", total=1.0)
        try:
            outcome = search_for(
                search,
                archive=archive,
                workers=workers,
                watch=lambda what, share: bar.update(task, description=what, completed=share),
            )
        except KeyboardInterrupt:
            complain("interrupted", f"finished parts are in {archive.folder.path}; run it again")
            raise SystemExit(130) from None
    with folder.alone():
        if path.exists() and folder.stamp(path.name) != before:
            # Another search has ended here meanwhile, and nobody has asked to replace that one.
            _refuse_other(path, search)
        folder.write(path.name, outcome.text().encode())
    return outcome


def _refuse_other(path: Path, search: Search) -> None:
    """Only the outcome of the same search by the same code may be replaced unasked."""
    remedy = "choose another --out, or replace it with --force"
    try:
        there = Outcome.read(path)
    except InvalidValue as error:
        raise InvalidValue(f"{str(path)!r} holds no outcome of a search; {remedy}") from error
    if there.search != search or there.versions != versions():
        what = "another search" if there.search != search else "other versions"
        raise InvalidValue(f"{str(path)!r} holds the outcome of {what}; {remedy}")


def _list(recorded: list[Recorded], checked: bool, as_json: bool) -> None:
    """Every search with what became of it; in a check, what is stale, and exit code 1."""
    if not checked and not as_json:
        rows = [(one.name, _text(one.chosen), _verdict(one)) for one in recorded]
        print_table(("search", "numbers", "outcome"), rows, columns="lll")
        return
    found = {one.name: one.complaints() for one in recorded}
    if as_json:
        print_json({"searches": [_line(one, found[one.name]) for one in recorded]})
    else:
        for name, complaints in found.items():
            click.echo(f"{name}: {'; '.join(complaints) or 'the code plays what was found'}")
    if checked and any(found.values()):
        raise SystemExit(1)


def _line(one: Recorded, complaints: list[str]) -> dict[str, object]:
    numbers = {"chosen": dict(one.chosen), "played": [dict(each) for each in one.played()]}
    return {"name": one.name, **numbers, "verdict": _verdict(one), "complaints": complaints}


def _verdict(one: Recorded) -> str:
    return one.outcome.verdict() if one.outcome else "never played"


def _print(outcome: Outcome, path: Path, as_json: bool) -> None:
    if as_json:
        print_json(outcome.to_dict() | {"file": str(path)})
        return
    last = max(one.rung for one in outcome.evaluations)
    ranked = sorted(outcome.evaluations, key=lambda one: (-one.rung, one.score))
    rows = [
        (
            *(str(one.rung), _text(one.numbers), f"{one.score:.3f} ± {one.se:.3f}"),
            *(f"{one.p95:.3g}", str(one.replicates)),
        )
        for one in ranked
        if one.rung == last or dict(one.numbers) == dict(outcome.search.incumbent)
    ]
    print_table(("rung", "numbers", "score", "p95", "replicates"), rows, columns="rlrrR")
    matches = [
        (
            *(one.cell, f"{one.best:.4g}", f"{one.incumbent:.4g}"),
            *(f"{one.gain:+.3f} ± {one.se:.3f}", f"{one.best_p95:.3g}, {one.incumbent_p95:.3g}"),
        )
        for one in (*outcome.cells, outcome.overall)
    ]
    title = f"{_text(outcome.best)} beside the incumbent, seed {outcome.search.seeds[1]}"
    print_table(("cell", "best", "incumbent", "gain", "p95"), matches, title=title, columns="lrrrR")
    print_wrapped(f"{outcome.verdict()}.")
    flags = [
        word for name, one in outcome.chosen.items() for word in ("--number", f"{name}={one:g}")
    ]
    click.echo(shlex.join(["kerchief", "compare", "--policy", outcome.search.policy, *flags]))
    click.echo(f"outcome: {path}")


def _text(numbers: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {one:g}" for name, one in sorted(numbers.items()))
