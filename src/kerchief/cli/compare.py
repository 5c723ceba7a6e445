"""`kerchief compare`: what privacy costs a bandit."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import click

from kerchief.cli import options
from kerchief.cli.device import use_device
from kerchief.cli.printing import complain, print_json, print_table, progress_bar
from kerchief.experiments.compare import compare as play
from kerchief.experiments.declare import Cell, Comparison
from kerchief.experiments.outputs import Outputs
from kerchief.experiments.rows import HEADINGS, make_rows

__all__ = ["compare"]


@click.command()
@options.env
@options.contexts
@options.dim
@options.arms
@options.fewest_arms
@options.radius
@options.reward_noise
@options.horizon
@options.policies
@options.trusts
@options.epsilons
@options.delta
@options.replicates
@options.seed
@options.mode
@options.device
@options.out
@options.json_output
def compare(*, device: str, out: Path, as_json: bool, **declared: Any) -> None:
    """Play policies x trusts x epsilons, and show what privacy costs.

    Uniform play, greedy play and each policy's non-private parent always play along. The folder
    gets a picture, a report and the results; they are rewritten after every finished cell, so an
    interrupted run (Ctrl-C) keeps what was finished.
    """
    comparison = Comparison(**declared)
    for warning in comparison.warnings():
        complain("warning", warning)
    use_device(device)
    outputs = Outputs.at(out, comparison)
    interrupted = _play(comparison, outputs)
    outputs.close()
    if as_json:
        print_json(outputs.document())
    else:
        _print(outputs)
    if interrupted:
        _mourn(outputs)
        raise SystemExit(130)


def _play(comparison: Comparison, outputs: Outputs) -> bool:
    """Play and keep cell by cell; whether the user stopped it."""
    cells = comparison.cells()
    with progress_bar() as bar:
        task = bar.add_task("starting", total=len(cells))

        def watch(cell: Cell, stage: str, share: float) -> None:
            name = f"{len(outputs.finished) + 1}/{len(cells)} {cell.contexts} {cell.label()}"
            bar.update(
                task, description=f"{name}: {stage}", completed=len(outputs.finished) + share
            )

        try:
            for finished in play(comparison, watch=watch):
                outputs.keep(finished)
        except KeyboardInterrupt:
            return True
    return False


def _print(outputs: Outputs) -> None:
    """Tables, promises and files."""
    rows = make_rows(outputs.finished)
    for contexts, group in itertools.groupby(rows, key=lambda row: row.contexts):
        texts = [row.texts() for row in group]
        print_table(HEADINGS, texts, title=f"{contexts} contexts", columns="llrrrrrr")
    played = [one.cell for one in outputs.finished if one.cell.asked is not None]
    for guarantee in dict.fromkeys(cell.guarantee for cell in played):
        click.echo(guarantee.sentence())
    for name, path in outputs.files.items():
        click.echo(f"{name}: {path}")


def _mourn(outputs: Outputs) -> None:
    done, planned = len(outputs.finished), len(outputs.comparison.cells())
    kept = f"in {outputs.folder.path}" if done else "so nothing was written"
    complain("interrupted", f"{done} of {planned} cells were finished, {kept}")
