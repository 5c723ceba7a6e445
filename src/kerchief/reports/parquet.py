"""Long-form results as Parquet: one row per cell, replicate and tick, with all it depends on."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from kerchief.comparison.plan import Plan
from kerchief.comparison.results import SENT, Result
from kerchief.comparison.versions import versions
from kerchief.reports.extras import require

if TYPE_CHECKING:
    import polars as pl

# What of a row as JSON stands in every line of a cell.
_PLAYER = (
    "policy",
    "mode",
    "parameters",
    "trust",
    "continual",
    "shuffling",
    "randomizer",
    "curator",
)
CELL = ("contexts", *_PLAYER, "epsilon", "delta")
"""The columns by which cells are told apart."""


def parquet(plan: Plan, finished: Sequence[Result]) -> bytes:
    """The long form as one Parquet file."""
    stream = io.BytesIO()
    long_form(plan, finished).write_parquet(stream, compression="zstd")
    return stream.getvalue()


def long_form(plan: Plan, finished: Sequence[Result]) -> pl.DataFrame:
    """Every recorded number, one per row.

    Columns: the cell (contexts, policy, mode, parameters replaced, trust, continual, shuffling,
    randomizer, curator, epsilon, delta, and spent_epsilon, spent_delta, private; null stands for
    "no bound"), replicate, round, regret (cumulative), its final median, 95th percentile, maximum
    and share of unconverged runs (`regret_median` and so on), `reward_mean` per round (null where
    none is known), `reals_sent` and `bits_sent` by clients on average (null where there are no
    phases), microseconds, the other parameters in the words of the command line, device, and one
    `version_...` per library.
    """
    require("table")
    import polars as pl

    facts = {name: value for name, value in plan.parameters().items() if name not in CELL}
    facts = {
        name: ", ".join(map(str, value)) if isinstance(value, list) else value
        for name, value in facts.items()
    }
    facts |= {f"version_{name}": version for name, version in versions().items()}
    constants = [pl.lit(value).alias(name) for name, value in facts.items()]
    return pl.concat([_cell(result) for result in finished]).with_columns(constants)


def _cell(result: Result) -> pl.DataFrame:
    """The rows of one cell, replicate by replicate."""
    import polars as pl

    ticks, replicates = result.curves.shape
    numbers = pl.DataFrame(
        {
            "replicate": np.repeat(np.arange(replicates), ticks),
            "round": np.tile(result.rounds, replicates),
            "regret": result.curves.T.ravel(),
        }
    )
    constants = [
        pl.lit(value, dtype=pl.String if isinstance(value, str) else pl.Float64).alias(name)
        for name, value in _build_constants(result).items()
    ]
    private = pl.lit(result.spent is not None).alias("private")
    return numbers.select(*constants, private, "replicate", "round", "regret")


def _build_constants(result: Result) -> dict[str, object]:
    """What all rows of a cell have in common."""
    row, (spent, delta) = result.to_dict(), result.spent or (None, None)
    parameters = ", ".join(f"{name}={value:g}" for name, value in result.cell.player.numbers)
    return {name: row[name] for name in CELL} | {
        "parameters": parameters,
        "spent_epsilon": spent,
        "spent_delta": delta,
        "regret_median": result.regret.median,
        "regret_p95": result.regret.p95,
        "regret_max": result.regret.max,
        "regret_unconverged": result.regret.unconverged,
        "reward_mean": None if result.reward is None else result.reward.mean,
        **{f"{kind}_sent": result.communication.get(kind) for kind in SENT},
        "microseconds": result.microseconds,
        "device": result.device,
    }
