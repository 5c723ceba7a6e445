"""`kerchief audit`: look at a private bandit from outside, and see how much can be proved."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from kerchief.audits import Audit, OneRun, one_run
from kerchief.audits import audit as look_at
from kerchief.audits.picture import picture
from kerchief.cli import options
from kerchief.cli.device import use_device
from kerchief.cli.printing import complain, print_json, print_table
from kerchief.experiments.folder import Folder

__all__ = ["audit"]


@click.command()
@click.argument("policy")
@click.option(
    "--trust",
    default="joint",
    show_default=True,
    metavar="local|shuffle|joint|central",
    help="Whom users must trust.",
)
@options.epsilon
@options.delta
@click.option(
    "--replicates", default=20_000, show_default=True, help="Runs of each of two populations."
)
@click.option(
    "--canaries",
    type=int,
    help="Audit the bandit's fits from a single run with so many canaries instead.",
)
@options.seed
@options.device
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Folder for the picture of what can be told apart.  [default: none is drawn]",
)
@options.json_output
def audit(
    *,
    policy: str,
    trust: str,
    epsilon: float,
    delta: float,
    replicates: int,
    canaries: int | None,
    seed: int,
    device: str,
    out: Path | None,
    as_json: bool,
) -> int:
    """Bound the epsilon of POLICY from below, by telling two populations apart.

    Leaves with 1 if that is more than was claimed: then the claim is false.
    """
    use_device(device)
    folder = None if out is None or canaries is not None else Folder.at(out)
    found: Audit | OneRun
    files: list[Path] = []
    if canaries is None:
        found = look_at(
            policy, trust=trust, epsilon=epsilon, delta=delta, runs=replicates, seed=seed
        )
        if folder is not None:
            drawn = picture(found)
            files = [folder.write("audit.png", partial(_fill, drawn))]
    else:
        found = one_run(policy, epsilon=epsilon, delta=delta, canaries=canaries, seed=seed)
    if as_json:
        print_json(found.to_dict())
    else:
        facts = [(name.replace("_", " "), _text(value)) for name, value in found.to_dict().items()]
        print_table(("the audit", ""), facts, columns="lr")
        for path in files:
            click.echo(f"picture: {path}")
        click.echo(
            f"epsilon is at least {found.epsilon_lower:.3g} (confidence {1 - found.failure:g}), "
            f"claimed is {epsilon:g}; an audit is an alarm, not a proof"
        )
    if not found.kept:
        complain("warning", "the claim is false: more can be told than it allows")
    return int(not found.kept)


def _fill(content: bytes, path: Path) -> None:
    path.write_bytes(content)


def _text(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
