"""What the commands that play share: warnings, progress, interrupts, and the end of the output."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from kerchief.cli.device import use_device
from kerchief.cli.printing import complain, print_wrapped, progress_bar
from kerchief.experiments.extras import NEEDS, installing, missing
from kerchief.experiments.outputs import Outputs
from kerchief.experiments.plan import Plan
from kerchief.experiments.players import Cell
from kerchief.experiments.runner import compare as play
from kerchief.privacy.guarantee import Guarantee

__all__ = ["played", "prepare", "print_promises"]


def prepare(
    plan: Plan, *, device: str, out: Path, narrow: str = "", as_json: bool = False
) -> Outputs:
    """Warn, check the device and the folder, and say what will be played, before anything runs.

    Where only JSON was asked for, nothing is announced, and what needs a library that is missing is
    left out; else `narrow` names the flags that make it less.
    """
    for warning in plan.warnings():
        complain("warning", warning)
    use_device(device)
    outputs = Outputs.at(out, plan, needed=not as_json)
    lacking = missing(*NEEDS)
    if lacking:
        complain(
            "warning",
            f"{' and '.join(one for one in NEEDS if one not in outputs.wanted)} will not be "
            f"written without {', '.join(lacking)}: run {installing('report')}",
        )
    if not as_json:
        complain("playing", _announcement(plan) + (f"; less with {narrow}" if narrow else ""))
    return outputs


def _announcement(plan: Plan) -> str:
    """How much a plan is: worlds may differ in their rounds."""
    cells = plan.cells()
    rounds = sorted({cell.horizon for cell in cells})
    span = str(rounds[0]) if len(rounds) == 1 else f"{rounds[0]} to {rounds[-1]}"
    return f"{len(cells)} cells of {span} rounds, with {plan.replicates} replicates each"


@contextlib.contextmanager
def played(outputs: Outputs) -> Iterator[None]:
    """Play, and leave with 130 after the body has printed what was finished, if it was stopped."""
    interrupted = _play(outputs)
    outputs.close()
    yield
    if interrupted:
        done, planned = len(outputs.finished), len(outputs.plan.cells())
        kept = f"in {outputs.draft.path}" if done else "so nothing was written"
        if outputs.draft != outputs.folder:
            kept += f"; the finished run in {outputs.folder.path} is as it was"
        complain("interrupted", f"{done} of {planned} cells were finished, {kept}")
        raise SystemExit(130)


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
    for sentence in _sentences(cell.guarantee for cell in cells):
        print_wrapped(sentence)
    for name, path in outputs.files.items():
        click.echo(f"{name}: {path}")


def _sentences(promises: Iterable[Guarantee]) -> Iterator[str]:
    """Promises that differ in their epsilon alone, in one sentence."""
    alike: dict[Guarantee, list[float]] = {}
    for one in dict.fromkeys(promises):
        alike.setdefault(dataclasses.replace(one, epsilon=0.0), []).append(one.epsilon)
    for shared, (first, *others) in alike.items():
        yield dataclasses.replace(shared, epsilon=first).sentence(*others)
