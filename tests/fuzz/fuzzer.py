"""The fuzzer: many hostile inputs to everything that strangers can reach, from one seed.

    python -m tests.fuzz.fuzzer --inputs 1000000 --seed 0 --processes 2

Every input has an address: seed, target and number. A finding is printed with its address and with
as few hostile arguments as still bring it about, and the fuzzer leaves with 1.
"""

from __future__ import annotations

import dataclasses
import faulthandler
import multiprocessing
import random
import resource
import time
from collections.abc import Iterator, Sequence
from typing import Any

import click
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from tests.fuzz.logs import files
from tests.fuzz.sessions import BY_HAND, sessions
from tests.fuzz.strangers import strangers
from tests.fuzz.targets import Finding, Target, attempt, draw, shrunk, targets

__all__ = ["Outcome", "all_targets", "fuzz", "shares"]

_LEAST = 20
_SLICE = 500
_MEMORY = 16 << 30


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of some inputs to one target.

    Attributes:
        target: its name.
        inputs: how many there were.
        refused: how many ended with an error of ours.
        seconds: how long they computed.
        findings: for each kind of finding, the number of its first input and what it was.
    """

    target: str
    inputs: int
    refused: int
    seconds: float
    findings: tuple[tuple[int, str], ...] = ()


def all_targets() -> dict[str, Target]:
    """Every target by its name."""
    by_hand = {one.name: one for one in (*strangers(), *sessions(), *files())}
    return by_hand | targets(BY_HAND)


def shares(found: dict[str, Target], inputs: int) -> dict[str, int]:
    """How many inputs each target gets: by its weight, and a few in any case."""
    weight = sum(one.weight for one in found.values())
    return {
        name: max(min(_LEAST, inputs), round(inputs * one.weight / weight))
        for name, one in found.items()
    }


def fuzz(target: Target, seed: int, numbers: Sequence[int]) -> Outcome:
    """Give a target the inputs of these numbers."""
    begin, refused = time.process_time(), 0
    findings: dict[str, tuple[int, str]] = {}
    for number in numbers:
        valid, wrong = draw(target, random.Random(f"{seed}/{target.name}/{number}"))
        try:
            refused += not attempt(target, wrong)
        except Finding as finding:
            kind = str(finding)[:60]
            if kind not in findings:
                least = shrunk(target, valid, wrong)
                findings[kind] = number, f"{finding}\n{_written(least)}"
    return Outcome(
        target=target.name,
        inputs=len(numbers),
        refused=refused,
        seconds=time.process_time() - begin,
        findings=tuple(findings.values()),
    )


def _written(arguments: dict[str, Any]) -> str:
    lines = []
    for name, value in arguments.items():
        text = repr(value)
        lines.append(f"    {name} = {text if len(text) <= 400 else text[:400] + '...'}")
    return "\n".join(lines).encode("utf-8", "backslashreplace").decode()


def _slices(counts: dict[str, int]) -> list[tuple[str, range]]:
    """Pieces of work; a target's pieces are together, so that it is compiled once a process."""
    return [
        (name, range(first, min(first + _SLICE, count)))
        for name, count in counts.items()
        for first in range(0, count, _SLICE)
    ]


def _prepare() -> None:
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))


def _work(job: tuple[int, str, range]) -> Outcome:
    seed, name, numbers = job
    return fuzz(_known()[name], seed, numbers)


_TARGETS: dict[str, Target] = {}


def _known() -> dict[str, Target]:
    if not _TARGETS:
        _TARGETS.update(all_targets())
    return _TARGETS


def _outcomes(jobs: list[tuple[int, str, range]], processes: int) -> Iterator[Outcome]:
    if processes == 1:
        _prepare()
        yield from map(_work, jobs)
        return
    # Not forked: JAX keeps threads.
    context = multiprocessing.get_context("spawn")
    with context.Pool(processes, initializer=_prepare) as pool:
        yield from pool.imap_unordered(_work, jobs, chunksize=1)


@click.command()
@click.option("--inputs", default=1_000_000, show_default=True, help="How many, in all.")
@click.option("--seed", default=0, show_default=True, help="Of all inputs.")
@click.option("--processes", default=1, show_default=True, help="How many work at once.")
@click.option("--target", "only", multiple=True, help="Only targets whose name holds this word.")
@click.option("--number", type=int, help="Only the input of this number, of one target.")
def main(inputs: int, seed: int, processes: int, only: Sequence[str], number: int | None) -> None:
    """Drive every target with hostile inputs, and leave with 1 if one does what it must not."""
    found = {
        name: one
        for name, one in _known().items()
        if not only or any(word in name for word in only)
    }
    counts = shares(found, inputs)
    pieces = (
        _slices(counts) if number is None else [(name, range(number, number + 1)) for name in found]
    )
    jobs = [(seed, name, numbers) for name, numbers in pieces]
    begin, outcomes = time.perf_counter(), []
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("fuzzing", total=sum(len(numbers) for _, numbers in pieces))
        for outcome in _outcomes(jobs, processes):
            outcomes.append(outcome)
            bar.update(task, advance=outcome.inputs, description=outcome.target[:40])
    wall = time.perf_counter() - begin
    _print(outcomes, seed, wall, processes)
    if any(outcome.findings for outcome in outcomes):
        raise SystemExit(1)


def _print(outcomes: list[Outcome], seed: int, wall: float, processes: int) -> None:
    table = Table("target", "inputs", "refused", "answered", "seconds")
    for column in table.columns[1:]:
        column.justify = "right"
    names = list(dict.fromkeys(sorted(outcome.target for outcome in outcomes)))
    for name in names:
        parts = [outcome for outcome in outcomes if outcome.target == name]
        table.add_row(name, *_row(parts))
    table.add_section()
    table.add_row("all", *_row(outcomes))
    Console(width=110).print(table)
    total = sum(outcome.inputs for outcome in outcomes)
    busy = sum(outcome.seconds for outcome in outcomes)
    click.echo(
        f"{total} inputs to {len(names)} targets, seed {seed}: {wall:.0f} seconds with {processes} "
        f"processes, {total / busy:.0f} inputs a second of computing"
    )
    seen = set()
    for outcome in outcomes:
        for number, what in outcome.findings:
            if (outcome.target, what[:60]) not in seen:
                seen.add((outcome.target, what[:60]))
                address = f"--target {outcome.target!r} --seed {seed} --number {number}"
                click.echo(f"finding: {address}\n  {what}")
    if not seen:
        click.echo("no findings")


def _row(outcomes: list[Outcome]) -> tuple[str, ...]:
    inputs = sum(outcome.inputs for outcome in outcomes)
    refused = sum(outcome.refused for outcome in outcomes)
    found = sum(len(outcome.findings) for outcome in outcomes)
    seconds = sum(outcome.seconds for outcome in outcomes)
    right = inputs - refused - found
    return str(inputs), str(refused), str(right), f"{seconds:.1f}"


if __name__ == "__main__":
    main()
