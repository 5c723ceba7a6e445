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
from kerchief.experiments.claims import Outcome
from kerchief.experiments.outputs import Outputs
from kerchief.experiments.report import SideBySide, side_by_side

_WORDS: dict[Outcome, str] = {"holds": "hold", "fails": "fail", "not judged": "not judged"}


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

    `kerchief list experiments` names them. The exit code is 1 if a claim fails. A claim that was
    made for a larger run than this one is not judged. What is finished is kept: after an interrupt
    the same command continues.
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
    failed = [
        f"{name}: {claim['claim']}" if every else str(claim["claim"])
        for name, document in found.items()
        for claim in _claims(document)
        if claim["outcome"] == "fails"
    ]
    if failed:
        judged = sum(len(_claims(document)) for document in documents)
        complain("failed", f"{len(failed)} of {judged} claims: {'; '.join(failed)}")
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


def _claims(document: dict[str, Any]) -> list[dict[str, str]]:
    claims: list[dict[str, str]] = document["claims"]
    return claims


def _print_all(found: dict[str, dict[str, Any]]) -> None:
    """One line for each experiment."""
    lines = [
        (name, _count([one["outcome"] for one in _claims(one)]), f"{one['seconds']:.0f}")
        for name, one in found.items()
    ]
    print_table(("experiment", "claims", "seconds"), lines, columns="llr")


def _print(outputs: Outputs) -> None:
    """Tables, claims, promises and files."""
    click.echo(outputs.plan.title)
    print_wrapped(outputs.plan.lead())
    for page in _pages(side_by_side(outputs.plan, outputs.finished)):
        print_table(page.headings, page.lines, columns=_columns(page))
    if outputs.plan.note():
        print_wrapped(outputs.plan.note())
    verdicts = outputs.verdicts()
    lines = [(one.outcome, one.claim, one.seen) for one in verdicts]
    print_table(("verdict", "claim", "seen"), lines, columns="lll")
    counted = _count([one.outcome for one in verdicts])
    click.echo(f"claims: {counted}; {outputs.seconds:.1f} seconds")
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


def _count(outcomes: Iterable[str]) -> str:
    counts = Counter(outcomes)
    return ", ".join(f"{counts[word]} {words}" for word, words in _WORDS.items() if counts[word])
