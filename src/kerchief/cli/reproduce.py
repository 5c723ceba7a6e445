"""`kerchief reproduce`: an experiment of the catalogue, beside what was printed and claimed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import click

from kerchief.cli import options
from kerchief.cli.playing import perform, print_promises
from kerchief.cli.printing import complain, fits, print_table, print_wrapped
from kerchief.experiments.catalogue import EXPERIMENTS
from kerchief.experiments.claims import Outcome, Verdict
from kerchief.experiments.outputs import Outputs
from kerchief.experiments.report import SideBySide, side_by_side

_WORDS: dict[Outcome, str] = {"holds": "hold", "fails": "fail", "not judged": "not judged"}


@click.command()
@click.argument("name", metavar="NAME")
@click.option("--quick", is_flag=True, help="A smoke test: a short run of few replicates.")
@click.option("--replicates", type=int, help="Independent runs.  [default: the experiment's own]")
@options.seed
@options.device
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Folder for the picture, the report and the results.  [default: results/NAME]",
)
@options.json_output
def reproduce(
    *,
    name: str,
    quick: bool,
    replicates: int | None,
    seed: int,
    device: str,
    out: Path | None,
    as_json: bool,
) -> None:
    """Run an experiment of the catalogue, and judge its claims.

    `kerchief list experiments` names them. The exit code is 1 if a claim fails. A claim that was
    made for a larger run than this one is not judged.
    """
    plan = EXPERIMENTS[name].plan(quick=quick, replicates=replicates, seed=seed)
    folder = Path("results", name) if out is None else out
    narrow = "--replicates" if quick else "--quick or --replicates"
    outputs = perform(plan, _print, device=device, out=folder, narrow=narrow, as_json=as_json)
    failed = [one.claim for one in outputs.verdicts() if one.outcome == "fails"]
    if failed:
        complain(
            "failed", f"{len(failed)} of {len(outputs.verdicts())} claims: {'; '.join(failed)}"
        )
        raise SystemExit(1)


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
    click.echo(f"claims: {_count(verdicts)}; {outputs.seconds:.1f} seconds")
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


def _count(verdicts: tuple[Verdict, ...]) -> str:
    counts = Counter(one.outcome for one in verdicts)
    return ", ".join(f"{counts[word]} {words}" for word, words in _WORDS.items() if counts[word])
