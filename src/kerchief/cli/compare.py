"""`kerchief compare`: what privacy costs a bandit."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import click

from kerchief.cli import options
from kerchief.cli.playing import played, prepare, print_promises
from kerchief.cli.printing import print_json, print_table
from kerchief.experiments.declare import Comparison
from kerchief.experiments.outputs import Outputs
from kerchief.experiments.results import HEADINGS

__all__ = ["compare"]


@click.command()
@options.env
@options.contexts
@options.dim
@options.arms
@options.fewest_arms
@options.radius
@options.reward_noise
@options.option
@options.horizon
@options.policies
@options.trusts
@options.continual
@options.shuffling
@options.randomizer
@options.number
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
    gets a picture, a report and the results, which grow with every finished cell: an interrupted
    run (Ctrl-C) keeps what was finished, and never replaces a finished run in the same folder.
    """
    plan, narrow = (
        Comparison(**declared),
        "--contexts, --trust, --epsilon, --horizon or --replicates",
    )
    outputs = prepare(plan, device=device, out=out, narrow=narrow, as_json=as_json)
    with played(outputs):
        if as_json:
            print_json(outputs.document())
        else:
            _print(outputs)


def _print(outputs: Outputs) -> None:
    """Tables, promises and files."""
    for world, group in itertools.groupby(outputs.finished, key=lambda row: row.world):
        texts = [row.texts() for row in group]
        caption = outputs.plan.caption(world)
        print_table(HEADINGS, texts, title=caption, columns="llrRrrRR")
    print_promises(outputs)
