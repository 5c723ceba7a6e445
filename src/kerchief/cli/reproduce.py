"""`kerchief reproduce`: an experiment of the catalogue, with printed numbers and claims."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import click

from kerchief.cli import options
from kerchief.cli.global_options import with_plugins
from kerchief.cli.playing import Playing, perform, playing_options, print_promises
from kerchief.cli.printing import complain, fits, print_json, print_table, print_wrapped
from kerchief.comparison.verdict import Outcome, Source, Verdict
from kerchief.core.errors import InvalidValueError
from kerchief.papers.catalogue import EXPERIMENTS
from kerchief.reports.outputs import Outputs
from kerchief.reports.report import SideBySide, side_by_side

_OUTCOME_LABELS: dict[Outcome, str] = {
    "holds": "hold",
    "fails": "fail",
    "does not hold here": "do not hold here",
    "undecided": "undecided",
    "not judged": "not judged",
}
_SOURCES: dict[Source, str] = {"ours": "our claims", "paper": "the paper's claims"}
_NONE = "none"


@click.command()
@click.argument("name", metavar="NAME", required=False)
@click.option("--all", "every", is_flag=True, help="Run every experiment.")
@click.option("--quick", is_flag=True, help="Run a smoke test: few rounds and few replicates.")
@click.option(
    "--replicates", type=int, help="Number of independent runs.  [default: the experiment's own]"
)
@options.seed
@with_plugins
@playing_options(pictures=True)
def reproduce(
    *, name: str | None, every: bool, playing: Playing, quick: bool, **sizes: int
) -> None:
    """Run an experiment of the catalogue, and judge its claims.

    `kerchief list experiments` names them. Claims of kerchief must hold. The claim of a paper has a
    recorded verdict, "holds" or "does not hold here". The exit code is 1 if a claim of kerchief
    fails, or if a verdict differs from the recorded one. A claim for a larger run than this one is
    not judged. Finished runs are kept: run the same command to continue after an interrupt.
    """
    names = _select_names(name, every, playing)
    plans = [EXPERIMENTS[experiment].plan(quick=quick, **sizes) for experiment in names]
    narrow = "--replicates" if quick else "--quick or --replicates"
    documents = perform(plans, _print_results, playing, narrow=narrow)
    document_by_name = dict(zip(names, documents, strict=True))
    if playing.as_json:
        print_json({"experiments": document_by_name} if every else documents[0])
    elif every:
        _print_all(document_by_name)
    verdicts = [
        (name, verdict) for name in names for verdict in _read_verdicts(document_by_name[name])
    ]
    differences = [
        f"{name}: {verdict.difference()}" if every else verdict.difference()
        for name, verdict in verdicts
        if not verdict.confirmed
    ]
    if differences:
        summary = f"{len(differences)} of {len(verdicts)} claims"
        complain("failed", f"{summary}: {'; '.join(differences)}")
        raise SystemExit(1)


def _select_names(name: str | None, every: bool, playing: Playing) -> list[str]:
    """Return the names of the experiments to run."""
    if (name is None) != every:
        raise InvalidValueError("give the NAME of an experiment, or --all, and not both")
    if every and playing.out is not None:
        raise InvalidValueError(
            f"out is {str(playing.out)!r}, and --all writes a folder for each experiment; leave it "
            "out"
        )
    return list(EXPERIMENTS) if name is None else [name]


def _read_verdicts(document: dict[str, Any]) -> list[Verdict]:
    return [Verdict(**claim) for claim in document["claims"]]


def _print_all(document_by_name: dict[str, dict[str, Any]]) -> None:
    """Print one line for each experiment."""
    lines = [
        (name, *_count_outcomes(_read_verdicts(document)), f"{document['seconds']:.0f}")
        for name, document in document_by_name.items()
    ]
    print_table(("experiment", *_SOURCES.values(), "seconds"), lines, columns="lllr")


def _print_results(outputs: Outputs) -> None:
    """Print tables, claims, guarantees and files."""
    click.echo(outputs.plan.title)
    print_wrapped(outputs.plan.lead())
    for page in _split_pages(side_by_side(outputs.plan, outputs.finished)):
        print_table(page.headings, page.lines, columns=_align_columns(page))
    if outputs.plan.note():
        print_wrapped(outputs.plan.note())
    verdicts = outputs.verdicts()
    for source, heading in _SOURCES.items():
        lines = [_format_verdict(verdict) for verdict in verdicts if verdict.source == source]
        if lines:
            print_table(("verdict", heading, "seen"), lines, columns="lll")
    for heading, summary in zip(_SOURCES.values(), _count_outcomes(verdicts), strict=True):
        if summary != _NONE:
            click.echo(f"{heading}: {summary}")
    click.echo(f"{outputs.seconds:.1f} seconds")
    print_promises(outputs)


def _split_pages(table: SideBySide) -> list[SideBySide]:
    """Split a table into pages with as many environments as the terminal has room for."""
    for worlds in range(len(table.headings), 1, -1):
        pages = table.pages(worlds)
        if all(fits(page.headings, page.lines, columns=_align_columns(page)) for page in pages):
            return pages
    return table.pages(1)


def _align_columns(page: SideBySide) -> str:
    return "lR" + "r" * (len(page.headings) - 2)


def _format_verdict(verdict: Verdict) -> tuple[str, str, str]:
    """Format the verdict, the claim and the figures as cells of a row."""
    if verdict.source == "ours":
        return verdict.outcome, verdict.claim, verdict.seen
    recorded = "" if verdict.confirmed else f" (recorded: {verdict.recorded})"
    return f"{verdict.outcome}{recorded}", f"{verdict.claim} ({verdict.place})", verdict.seen


def _count_outcomes(verdicts: Iterable[Verdict]) -> tuple[str, ...]:
    """Count claims by outcome, those of the project and of the paper apart."""
    counts = Counter((verdict.source, verdict.outcome) for verdict in verdicts)
    return tuple(
        ", ".join(
            f"{counts[source, outcome]} {label}"
            for outcome, label in _OUTCOME_LABELS.items()
            if counts[source, outcome]
        )
        or _NONE
        for source in _SOURCES
    )
