"""The lines of a plan's table: numbers for machines, short texts for people."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from kerchief.experiments.compare import Finished
from kerchief.experiments.plan import Cell
from kerchief.privacy.guarantee import Trust

__all__ = ["HEADINGS", "Row", "Spread", "amount", "make_rows"]

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

    def text(self) -> str:
        """Mean and standard error.

        >>> Spread(mean=123.4, se=5.67, uniform_share=None).text()
        '123 ± 5.7'
        """
        return f"{amount(self.mean)} ± {amount(self.se)}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table.

    Attributes:
        cell: what was played.
        private: whether anything at all is promised about the data that were used.
        spent_epsilon: charged to the worst-off user; None where nothing bounds it.
        spent_delta: likewise.
        regret: final regret.
        replicates: independent runs.
        microseconds: time a decision, without compilation.
        releases: for each query, releases of one run, on average.
        communication: what the clients of one run sent, in reals and in bits, on average; for
            populations alone.
        right: the share of replicates that named the best arm; for worlds without contexts alone.
    """

    cell: Cell
    private: bool
    spent_epsilon: float | None
    spent_delta: float | None
    regret: Spread
    replicates: int
    microseconds: float
    releases: Mapping[str, float]
    communication: Mapping[str, float] = dataclasses.field(default_factory=dict)
    right: float | None = None

    @property
    def policy(self) -> str:
        """The bandit."""
        return self.cell.policy

    @property
    def trust(self) -> str:
        """The word of `--trust`."""
        return self.cell.trust

    @property
    def contexts(self) -> str:
        """The name of the world: where arms came from."""
        return self.cell.contexts

    @property
    def epsilon(self) -> float | None:
        """Asked for; None without protection."""
        return None if self.cell.asked is None else self.cell.asked[0]

    @property
    def delta(self) -> float | None:
        """Asked for; None without protection."""
        return None if self.cell.asked is None else self.cell.asked[1]

    def to_dict(self) -> dict[str, object]:
        """The row as JSON: a null epsilon or delta stands for "no bound", and `private` says so."""
        return {
            "policy": self.policy,
            "mode": self.cell.player.mode,
            "numbers": dict(self.cell.player.numbers),
            "trust": self.trust,
            "continual": self.cell.player.word(Trust.JOINT),
            "shuffling": self.cell.player.word(Trust.SHUFFLE),
            "randomizer": self.cell.player.word(Trust.LOCAL),
            "contexts": self.contexts,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "private": self.private,
            "spent": {"epsilon": self.spent_epsilon, "delta": self.spent_delta},
            "regret": dataclasses.asdict(self.regret),
            "replicates": self.replicates,
            "microseconds": self.microseconds,
            "releases": dict(self.releases),
            "communication": dict(self.communication),
            "right": self.right,
        }

    def texts(self) -> tuple[str, ...]:
        """The row under `HEADINGS`."""
        share = self.regret.uniform_share
        return (
            self.cell.player.name,
            self.cell.player.protection,
            _short(self.epsilon),
            _short(self.delta),
            self.spent(),
            self.regret.text(),
            "-" if share is None else f"{100 * share:.1f}",
            f"{self.microseconds:.3g}",
        )

    def spent(self) -> str:
        """What was charged, in a few letters."""
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
    private = math.isfinite(one.spent.epsilon)
    final = one.regret[-1]
    spread = Spread(
        mean=float(final.mean()),
        se=float(final.std(ddof=1) / np.sqrt(final.size)) if final.size > 1 else None,
        uniform_share=float(final.mean()) / uniform if uniform > 0 else None,
    )
    return Row(
        cell=one.cell,
        private=private,
        spent_epsilon=one.spent.epsilon if private else None,
        spent_delta=one.spent.delta if private else None,
        regret=spread,
        replicates=final.size,
        microseconds=one.microseconds,
        releases=one.releases,
        communication=one.communication,
        right=one.right,
    )


def _short(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def amount(value: float | None) -> str:
    """Whole numbers from 100 on, one decimal below."""
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"
