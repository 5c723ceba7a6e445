"""What the commands that play share: warnings, progress, interrupts, and the end of the output."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from kerchief.cli.device import use_device
from kerchief.cli.printing import complain, print_json, print_wrapped, progress_bar
from kerchief.experiments.extras import NEEDS, installing, missing
from kerchief.experiments.outputs import Outputs
from kerchief.experiments.plan import Plan
from kerchief.experiments.players import Cell
from kerchief.experiments.report import of_one_report, sentences
from kerchief.experiments.runner import compare as play


def perform(
    plan: Plan,
    show: Callable[[Outputs], None],
    *,
    device: str,
    out: Path,
    narrow: str,
    as_json: bool,
) -> Outputs:
    """Play a plan and show what was finished, or print it as JSON; leave with 130 if stopped.

    Everything is checked before anything runs. Where only JSON was asked for, nothing is announced,
    and what needs a library that is missing is left out; else `narrow` names the flags that make it
    less.
    """
    for warning in plan.warnings():
        complain("warning", warning)
    use_device(device)
    outputs = Outputs.at(out, plan, needed=not as_json)
    _announce(outputs, "" if as_json else narrow)
    interrupted = _play(outputs)
    outputs.close()
    if as_json:
        print_json(outputs.document())
    else:
        show(outputs)
    if interrupted:
        complain("interrupted", _kept(outputs))
        raise SystemExit(130)
    return outputs


def _announce(outputs: Outputs, narrow: str) -> None:
    """What cannot be written, and how much a plan is: worlds may differ in their rounds."""
    lacking = missing(*NEEDS)
    if lacking:
        complain(
            "warning",
            f"{' and '.join(one for one in NEEDS if one not in outputs.wanted)} will not be "
            f"written without {', '.join(lacking)}: run {installing('report')}",
        )
    if narrow:
        cells, each = outputs.plan.cells(), outputs.plan.replicates
        rounds = sorted({cell.horizon for cell in cells})
        span = str(rounds[0]) if len(rounds) == 1 else f"{rounds[0]} to {rounds[-1]}"
        much = f"{len(cells)} cells of {span} rounds, with {each} replicates each"
        complain("playing", f"{much}; less with {narrow}")


def _kept(outputs: Outputs) -> str:
    """What an interrupted run leaves."""
    done, planned = len(outputs.finished), len(outputs.plan.cells())
    kept = f"in {outputs.draft.path}" if done else "so nothing was written"
    if outputs.draft != outputs.folder:
        kept += f"; the finished run in {outputs.folder.path} is as it was"
    return f"{done} of {planned} cells were finished, {kept}"


def _play(outputs: Outputs) -> bool:
    """Play and keep cell by cell; whether the user stopped it."""
    cells = outputs.plan.cells()
    with progress_bar() as bar:
        task = bar.add_task("starting", total=len(cells))

        def watch(cell: Cell, stage: str, share: float) -> None:
            name = f"{len(outputs.finished) + 1}/{len(cells)} {cell.world} {cell.label()}"
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
    """The promises that were kept, one sentence per trust, and the files."""
    cells = [one.cell for one in outputs.finished if one.cell.asked is not None]
    for sentence in sentences(cell.guarantee for cell in cells):
        print_wrapped(sentence)
    for sentence in of_one_report(outputs.finished):
        print_wrapped(sentence)
    for name, path in outputs.files.items():
        click.echo(f"{name}: {path}")
