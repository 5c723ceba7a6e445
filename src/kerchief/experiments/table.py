"""Long-form results as Parquet: one row per cell, replicate and tick, with all it depends on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kerchief.experiments.extras import require
from kerchief.experiments.plan import Plan
from kerchief.experiments.results import Result
from kerchief.experiments.versions import versions
from kerchief.privacy.guarantee import Trust

if TYPE_CHECKING:
    import polars as pl

__all__ = ["long_form", "write_table"]

_CELL = (
    "contexts",
    "policy",
    "mode",
    "trust",
    "continual",
    "shuffling",
    "randomizer",
    "epsilon",
    "delta",
)


def write_table(plan: Plan, finished: Sequence[Result], path: Path) -> None:
    """Write the long form as one Parquet file."""
    long_form(plan, finished).write_parquet(path, compression="zstd")


def long_form(plan: Plan, finished: Sequence[Result]) -> pl.DataFrame:
    """Every recorded number, one per row.

    Columns: the cell (contexts, policy, mode, numbers replaced, trust, continual, shuffling,
    randomizer, epsilon, delta, and spent_epsilon, spent_delta, private; null stands for "no
    bound"), replicate, round, regret (cumulative), microseconds, the other parameters in the words
    of the command line, device, and one `version_...` per library.

    Raises:
        KerchiefError: polars is not installed.
    """
    require("table")
    import polars as pl

    shared = {name: value for name, value in plan.parameters().items() if name not in _CELL}
    shared = {name: value for name, value in shared.items() if not isinstance(value, list)}
    shared |= {f"version_{name}": version for name, version in versions().items()}
    constants = [pl.lit(value).alias(name) for name, value in shared.items()]
    return pl.concat([_cell(one) for one in finished]).with_columns(constants)


def _cell(one: Result) -> pl.DataFrame:
    """The rows of one cell, replicate by replicate."""
    import polars as pl

    ticks, replicates = one.curves.shape
    numbers = pl.DataFrame(
        {
            "replicate": np.repeat(np.arange(replicates), ticks),
            "round": np.tile(one.rounds, replicates),
            "regret": one.curves.T.ravel(),
        }
    )
    constants = [
        pl.lit(value, dtype=pl.String if isinstance(value, str) else pl.Float64).alias(name)
        for name, value in _facts(one).items()
    ]
    private = pl.lit(one.private).alias("private")
    return numbers.select(*constants, private, "replicate", "round", "regret")


def _facts(one: Result) -> dict[str, str | float | None]:
    """What all rows of a cell have in common."""
    epsilon, delta = one.cell.asked or (None, None)
    return {
        "contexts": one.cell.world,
        "policy": one.cell.policy,
        "mode": one.cell.player.mode,
        "numbers": ", ".join(f"{name}={value:g}" for name, value in one.cell.player.numbers),
        "trust": one.cell.trust,
        "continual": one.cell.player.word(Trust.JOINT),
        "shuffling": one.cell.player.word(Trust.SHUFFLE),
        "randomizer": one.cell.player.word(Trust.LOCAL),
        "epsilon": epsilon,
        "delta": delta,
        "spent_epsilon": one.spent_epsilon,
        "spent_delta": one.spent_delta,
        "microseconds": one.microseconds,
        "device": one.device,
    }
