"""`python -m tools.bench`: how long a decision takes."""

from __future__ import annotations

import click
from tools.benchmark import INTERACTIVE_ARMS, Benchmark, one_core
from tools.benchmark import bench as measure

from kerchief.cli import options
from kerchief.cli.device import use_device
from kerchief.cli.exit_codes import CommandWithExitCodes
from kerchief.cli.global_options import device_option
from kerchief.cli.printing import print_json, print_table, progress_bar


@click.command(cls=CommandWithExitCodes)
@options.option("--arms", "The most arms in a round.", default=(20, 100), type=int)
@options.option("--replicates", "Independent runs at once.", default=(1, 64, 1000), type=int)
@device_option
@options.json_output
def bench(
    *, arms: tuple[int, ...], replicates: tuple[int, ...], device: str, as_json: bool
) -> None:
    """Time a decision, beside a plain NumPy LinUCB.

    Everything runs on one processor core, and drawing the arms is included.
    """
    with one_core() as core, progress_bar() as bar:
        use_device(device)
        task = bar.add_task("starting", total=1.0)
        result = measure(
            arms=arms,
            replicates=replicates,
            pinned=core,
            watch=lambda stage, share: bar.update(task, description=stage, completed=share),
        )
    if as_json:
        print_json(result.to_dict())
    else:
        _print(result)


def _print(result: Benchmark) -> None:
    headings = ("policy", "trust", "arms", "replicates", "µs", "of NumPy's")
    rows = [
        _line(case.policy, case.trust, case.arms, str(case.replicates), value, result)
        for case, value in result.cases.items()
    ]
    rows += [
        _line("linucb", trust, INTERACTIVE_ARMS, "one, exact", value, result)
        for trust, value in result.interactive.items()
    ]
    print_table(headings, rows, title="microseconds per decision", columns="llrrrr")
    for arms, value in result.yardstick.items():
        click.echo(f"NumPy LinUCB, {arms} arms: {value:.1f} µs per decision")
    where = "on all cores" if result.pinned is None else f"pinned to core {result.pinned}"
    click.echo(f"best of several turns, without compilation, {where}")


def _line(
    policy: str, trust: str, arms: int, replicates: str, value: float, result: Benchmark
) -> tuple[str, ...]:
    ratio = value / result.yardstick[arms]
    return policy, trust, str(arms), replicates, f"{value:.2f}", f"{ratio:.2f}"


if __name__ == "__main__":
    bench()
