"""What the commands that play share: warnings, progress, interrupts, and the end of the output."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import click

from kerchief.cli.device import use_device
from kerchief.cli.printing import complain, progress_bar
from kerchief.experiments.compare import compare as play
from kerchief.experiments.outputs import Outputs
from kerchief.experiments.plan import Cell, Plan

__all__ = ["played", "prepare", "print_promises"]


def prepare(plan: Plan, *, device: str, out: Path) -> Outputs:
    """Warn, and check the device and the folder, before anything runs.

    Raises:
        KerchiefError: there is no such device, or the folder cannot be written.
    """
    for warning in plan.warnings():
        complain("warning", warning)
    use_device(device)
    return Outputs.at(out, plan)


@contextlib.contextmanager
def played(outputs: Outputs) -> Iterator[None]:
    """Play, and leave with 130 after the body has printed what was finished, if it was stopped."""
    interrupted = _play(outputs)
    outputs.close()
    yield
    if interrupted:
        done, planned = len(outputs.finished), len(outputs.plan.cells())
        kept = f"in {outputs.folder.path}" if done else "so nothing was written"
        complain("interrupted", f"{done} of {planned} cells were finished, {kept}")
        raise SystemExit(130)


def _play(outputs: Outputs) -> bool:
    """Play and keep cell by cell; whether the user stopped it."""
    cells = outputs.plan.cells()
    with progress_bar() as bar:
        task = bar.add_task("starting", total=len(cells))

        def watch(cell: Cell, stage: str, share: float) -> None:
            name = f"{len(outputs.finished) + 1}/{len(cells)} {cell.contexts} {cell.label()}"
            bar.update(
                task, description=f"{name}: {stage}", completed=len(outputs.finished) + share
            )

        try:
            for finished in play(outputs.plan, watch=watch):
                outputs.keep(finished)
        except KeyboardInterrupt:
            return True
    return False


def print_promises(outputs: Outputs) -> None:
    """The promises that were kept, and the files."""
    cells = [one.cell for one in outputs.finished if one.cell.asked is not None]
    for guarantee in dict.fromkeys(cell.guarantee for cell in cells):
        click.echo(guarantee.sentence())
    for name, path in outputs.files.items():
        click.echo(f"{name}: {path}")
