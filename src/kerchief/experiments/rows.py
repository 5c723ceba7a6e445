"""The lines of a comparison's table: numbers for machines, short texts for people."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from kerchief.experiments.compare import Finished

__all__ = ["HEADINGS", "Row", "Spread", "make_rows"]

HEADINGS = ("policy", "trust", "ε", "δ", "spent ε, δ", "regret ± s.e.", "% uniform", "µs")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Spread:
    """Final regret over replicates.

    Attributes:
        mean: the mean.
        se: its standard error, or None for a single replicate.
        uniform_share: the mean over that of uniform play on the same worlds; None if that is 0.
    """

    mean: float
    se: float | None
    uniform_share: float | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table.

    Attributes:
        policy: the bandit.
        trust: the word of `--trust`.
        contexts: where arms came from.
        epsilon: asked for; None without protection.
        delta: asked for; None without protection.
        private: whether anything at all is promised about the data that were used.
        spent_epsilon: charged to the worst-off user; None where nothing bounds it.
        spent_delta: likewise.
        regret: final regret.
        replicates: independent runs.
        microseconds: time a decision, without compilation.
        releases: for each query, releases of one run, on average.
    """

    policy: str
    trust: str
    contexts: str
    epsilon: float | None
    delta: float | None
    private: bool
    spent_epsilon: float | None
    spent_delta: float | None
    regret: Spread
    replicates: int
    microseconds: float
    releases: Mapping[str, float]

    def to_dict(self) -> dict[str, object]:
        """The row as JSON: a null epsilon or delta stands for "no bound", and `private` says so."""
        return {
            "policy": self.policy,
            "trust": self.trust,
            "contexts": self.contexts,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "private": self.private,
            "spent": {"epsilon": self.spent_epsilon, "delta": self.spent_delta},
            "regret": dataclasses.asdict(self.regret),
            "replicates": self.replicates,
            "microseconds": self.microseconds,
            "releases": dict(self.releases),
        }

    def texts(self) -> tuple[str, ...]:
        """The row under `HEADINGS`."""
        share = self.regret.uniform_share
        return (
            self.policy,
            self.trust,
            _short(self.epsilon),
            _short(self.delta),
            self._spent(),
            f"{_amount(self.regret.mean)} ± {_amount(self.regret.se)}",
            "-" if share is None else f"{100 * share:.1f}",
            f"{self.microseconds:.3g}",
        )

    def _spent(self) -> str:
        if self.spent_epsilon is None:
            return "not private"
        return f"{self.spent_epsilon:.4g}, {self.spent_delta:.2g}"


def make_rows(finished: Sequence[Finished]) -> list[Row]:
    """The table of all finished cells; uniform play comes first on each contexts."""
    uniform = {
        one.cell.contexts: float(one.regret[-1].mean())
        for one in finished
        if one.cell.policy == "uniform"
    }
    return [_row(one, uniform[one.cell.contexts]) for one in finished]


def _row(one: Finished, uniform: float) -> Row:
    epsilon, delta = one.cell.asked or (None, None)
    private = math.isfinite(one.spent.epsilon)
    final = one.regret[-1]
    spread = Spread(
        mean=float(final.mean()),
        se=float(final.std(ddof=1) / np.sqrt(final.size)) if final.size > 1 else None,
        uniform_share=float(final.mean()) / uniform if uniform > 0 else None,
    )
    return Row(
        policy=one.cell.policy,
        trust=one.cell.trust,
        contexts=one.cell.contexts,
        epsilon=epsilon,
        delta=delta,
        private=private,
        spent_epsilon=one.spent.epsilon if private else None,
        spent_delta=one.spent.delta if private else None,
        regret=spread,
        replicates=final.size,
        microseconds=one.microseconds,
        releases=one.releases,
    )


def _short(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _amount(value: float | None) -> str:
    """Whole numbers from 100 on, one decimal below."""
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"
