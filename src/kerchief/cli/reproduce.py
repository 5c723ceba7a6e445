"""`kerchief reproduce`: an experiment of the catalogue, beside what was printed and claimed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import click

from kerchief.cli import options
from kerchief.cli.playing import Playing, perform, playing_options, print_promises
from kerchief.cli.plugins import plugin_option
from kerchief.cli.printing import complain, fits, print_json, print_table, print_wrapped
from kerchief.core.errors import InvalidValue
from kerchief.experiments.catalogue import EXPERIMENTS
from kerchief.experiments.claims import Outcome, Source, Verdict
from kerchief.experiments.outputs import Outputs
from kerchief.experiments.report import SideBySide, side_by_side

_WORDS: dict[Outcome, str] = {
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
@click.option("--all", "every", is_flag=True, help="Every experiment.")
@click.option("--quick", is_flag=True, help="A smoke test: a short run of few replicates.")
@click.option("--replicates", type=int, help="Independent runs.  [default: the experiment's own]")
@options.seed
@plugin_option
@playing_options(pictures=True)
def reproduce(
    *, name: str | None, every: bool, playing: Playing, quick: bool, **sizes: int
) -> None:
    """Run an experiment of the catalogue, and judge its claims.

    `kerchief list experiments` names them. Claims of ours must hold. A paper's claim has a recorded
    verdict, "holds" or "does not hold here". The exit code is 1 if a claim of ours fails, or if a
    verdict differs from the recorded one. A claim that was made for a larger run than this one is
    not judged. What is finished is kept: after an interrupt the same command continues.
    """
    names = _names(name, every, playing)
    plans = [EXPERIMENTS[one].plan(quick=quick, **sizes) for one in names]
    narrow = "--replicates" if quick else "--quick or --replicates"
    documents = perform(plans, _print, playing, narrow=narrow)
    found = dict(zip(names, documents, strict=True))
    if playing.as_json:
        print_json({"experiments": found} if every else documents[0])
    elif every:
        _print_all(found)
    verdicts = [(name, verdict) for name in names for verdict in _verdicts(found[name])]
    differences = [
        f"{name}: {verdict.difference()}" if every else verdict.difference()
        for name, verdict in verdicts
        if not verdict.confirmed
    ]
    if differences:
        counted = f"{len(differences)} of {len(verdicts)} claims"
        complain("failed", f"{counted}: {'; '.join(differences)}")
        raise SystemExit(1)


def _names(name: str | None, every: bool, playing: Playing) -> list[str]:
    """The experiments that are meant."""
    if (name is None) != every:
        raise InvalidValue("give the NAME of an experiment, or --all, and not both")
    if every and playing.out is not None:
        raise InvalidValue(
            f"out is {str(playing.out)!r}, and --all writes a folder for each experiment; leave it "
            "out"
        )
    return list(EXPERIMENTS) if name is None else [name]


def _verdicts(document: dict[str, Any]) -> list[Verdict]:
    return [Verdict(**claim) for claim in document["claims"]]


def _print_all(found: dict[str, dict[str, Any]]) -> None:
    """One line for each experiment."""
    lines = [
        (name, *_counts(_verdicts(document)), f"{document['seconds']:.0f}")
        for name, document in found.items()
    ]
    print_table(("experiment", *_SOURCES.values(), "seconds"), lines, columns="lllr")


def _print(outputs: Outputs) -> None:
    """Tables, claims, promises and files."""
    click.echo(outputs.plan.title)
    print_wrapped(outputs.plan.lead())
    for page in _pages(side_by_side(outputs.plan, outputs.finished)):
        print_table(page.headings, page.lines, columns=_columns(page))
    if outputs.plan.note():
        print_wrapped(outputs.plan.note())
    verdicts = outputs.verdicts()
    for source, words in _SOURCES.items():
        lines = [_line(verdict) for verdict in verdicts if verdict.source == source]
        if lines:
            print_table(("verdict", words, "seen"), lines, columns="lll")
    for words, counted in zip(_SOURCES.values(), _counts(verdicts), strict=True):
        if counted != _NONE:
            click.echo(f"{words}: {counted}")
    click.echo(f"{outputs.seconds:.1f} seconds")
    print_promises(outputs)


def _pages(table: SideBySide) -> list[SideBySide]:
    """Tables that the terminal can show, of as many worlds each as it has room for."""
    for worlds in range(len(table.headings), 1, -1):
        pages = table.pages(worlds)
        if all(fits(page.headings, page.lines, columns=_columns(page)) for page in pages):
            return pages
    return table.pages(1)


def _columns(page: SideBySide) -> str:
    return "lR" + "r" * (len(page.headings) - 2)


def _line(verdict: Verdict) -> tuple[str, str, str]:
    """The verdict, beside the recorded one where a paper's differs, the claim, and the figures."""
    if verdict.source == "ours":
        return verdict.outcome, verdict.claim, verdict.seen
    recorded = "" if verdict.confirmed else f" (recorded: {verdict.recorded})"
    return f"{verdict.outcome}{recorded}", f"{verdict.claim} ({verdict.place})", verdict.seen


def _counts(verdicts: Iterable[Verdict]) -> tuple[str, ...]:
    """How many claims have each outcome, of ours and of the paper."""
    counts = Counter((verdict.source, verdict.outcome) for verdict in verdicts)
    return tuple(
        ", ".join(
            f"{counts[source, outcome]} {words}"
            for outcome, words in _WORDS.items()
            if counts[source, outcome]
        )
        or _NONE
        for source in _SOURCES
    )
