"""What became of a cell: the one result, from which tables, pictures, files and claims are made."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from kerchief.comparison.players import FLAGS, Cell
from kerchief.privacy.guarantee import Guarantee, Trust
from kerchief.privatizers.registry import BEST

HEADINGS = (
    *("policy", "trust", "ε", "δ", "spent ε, δ", "regret ± s.e."),
    *("p95", "% unconverged", "% uniform", "µs"),
)
# How many of them are about what was asked for and lost: what clients sent comes next.
_REGRET = 6
SENT = {"reals": "numbers sent", "bits": "bits sent"}
"""Further headings for populations: what clients sent in all."""

REWARD = "reward ± s.e."
"""A further heading for worlds of data: the mean reward per round."""

# The share of uniform play's losses above which a run is unconverged.
_UNCONVERGED = 0.1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Spread:
    """Final regret over replicates.

    Attributes:
        se: standard error of the mean, or None for a single replicate.
        uniform_share: the mean over that of uniform play on the same worlds; None if that is 0.
        unconverged: the share of replicates that, in the second half of the run, still lose more
            than a tenth of what uniform play loses; None where nothing was lost, or regret was read
            once.
    """

    mean: float
    se: float | None
    uniform_share: float | None
    median: float
    p95: float
    max: float
    unconverged: float | None

    def text(self) -> str:
        """Mean and standard error.

        >>> tail = {"median": 120.0, "p95": 150.0, "max": 160.0, "unconverged": None}
        >>> Spread(mean=123.4, se=5.67, uniform_share=None, **tail).text()
        '123 ± 5.7'
        """
        return f"{amount(self.mean)} ± {amount(self.se)}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reward:
    """Mean reward per round over replicates, and its standard error: None for a single one."""

    mean: float
    se: float | None

    def text(self) -> str:
        """Mean and standard error.

        >>> Reward(mean=0.61, se=0.0021).text()
        '0.610 ± 0.0021'
        """
        mean = f"{self.mean:#.3g}".rstrip(".")
        return f"{mean} ± {'-' if self.se is None else format(self.se, '.2g')}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """A cell that was played to the end.

    Attributes:
        rounds: the ticks: after how many rounds regret was read.
        curves: cumulative regret, one row per tick and one column per replicate.
        uniform: the mean final regret of uniform play on the same worlds.
        releases: for each query, how often it was released, on average over replicates.
        guarantee: what the worst-off user was really charged.
        seconds: time played, without compilation; arms that others met, too, count in part.
        seconds_alone: the time that it would have taken alone.
        device: the kind of device it ran on.
        communication: what clients sent, in "reals" and in "bits", on average over replicates; for
            populations alone.
        right: the share of replicates that named the best action at the end; None where none did.
        noises: for each query, the class of the noise that was drawn; none without protection.
        alone: what one report promises by itself, on its way to the shuffler; None where nothing.
        earned: total reward in each replicate; None where users answer with losses, and for
            populations.
    """

    cell: Cell
    rounds: NDArray[np.int64]
    curves: NDArray[np.float64]
    uniform: float
    releases: Mapping[str, float]
    guarantee: Guarantee
    seconds: float
    seconds_alone: float
    compile_seconds: float
    device: str
    communication: Mapping[str, float] = dataclasses.field(default_factory=dict)
    right: float | None = None
    noises: Mapping[str, str] = dataclasses.field(default_factory=dict)
    alone: Guarantee | None = None
    earned: NDArray[np.float64] | None = None

    @functools.cached_property
    def regret(self) -> Spread:
        """The final regret."""
        final = self.curves[-1]
        return Spread(
            mean=float(final.mean()),
            se=mean_error(final),
            uniform_share=float(final.mean()) / self.uniform if self.uniform > 0 else None,
            median=float(np.median(final)),
            p95=self.percentile(95.0),
            max=float(final.max()),
            unconverged=self._measure_unconverged(),
        )

    @functools.cached_property
    def reward(self) -> Reward | None:
        """The reward per round."""
        if self.earned is None:
            return None
        per_round = self.earned / int(self.rounds[-1])
        return Reward(mean=float(per_round.mean()), se=mean_error(per_round))

    def percentile(self, percent: float) -> float:
        """Of the final regret over replicates."""
        return float(np.percentile(self.curves[-1], percent))

    def _measure_unconverged(self) -> float | None:
        half = int(np.searchsorted(self.rounds, self.rounds[-1] / 2))
        if self.uniform <= 0 or half == len(self.rounds) - 1:
            return None
        later = self.curves[-1] - self.curves[half]
        usual = self.uniform * (1 - self.rounds[half] / self.rounds[-1])
        return float((later > _UNCONVERGED * usual).mean())

    @property
    def replicates(self) -> int:
        """Independent runs."""
        return int(self.curves.shape[1])

    @property
    def microseconds(self) -> float:
        """Time per decision alone, in microseconds."""
        return 1e6 * self.seconds_alone / (int(self.rounds[-1]) * self.replicates)

    @property
    def wall_seconds(self) -> float:
        """All the time it took, compilation included."""
        return self.seconds + self.compile_seconds

    @property
    def world(self) -> str:
        """The name of the world."""
        return self.cell.world

    @property
    def epsilon(self) -> float | None:
        """Asked for; None without protection."""
        return None if self.cell.asked is None else self.cell.asked[0]

    @property
    def spent(self) -> tuple[float, float] | None:
        """Epsilon and delta charged to the worst-off user, or None where nothing bounds them."""
        guarantee = self.guarantee
        return (guarantee.epsilon, guarantee.delta) if math.isfinite(guarantee.epsilon) else None

    def to_dict(self) -> dict[str, object]:
        """The row as JSON: a null epsilon or delta stands for "no bound", and `private` says so."""
        player, (epsilon, delta) = self.cell.player, self.cell.asked or (None, None)
        spent, spent_delta = self.spent or (None, None)
        return {
            "policy": player.policy,
            "mode": player.mode,
            "parameters": dict(player.numbers),
            "trust": str(player.trust),
            **{flag: player.word(trust) for trust, flag in FLAGS.items()},
            "contexts": self.world,
            "environment": self.world,
            "epsilon": epsilon,
            "delta": delta,
            "private": self.spent is not None,
            "spent": {"epsilon": spent, "delta": spent_delta},
            "regret": dataclasses.asdict(self.regret),
            "reward": None if self.reward is None else dataclasses.asdict(self.reward),
            "replicates": self.replicates,
            "microseconds": self.microseconds,
            "releases": dict(self.releases),
            "communication": dict(self.communication),
            "found_best": self.right,
            "noises": dict(self.noises),
            "report_epsilon": None if self.alone is None else self.alone.epsilon,
        }

    def texts(self, *, rewarded: bool = False) -> tuple[str, ...]:
        """The row under `headings_of` the table, with its mean reward if that is wanted."""
        budget = self.cell.asked or ()
        return (
            self.cell.player.name,
            self.protection,
            *([f"{value:.4g}" for value in budget] or ("-", "-")),
            self.bill(),
            *([self.reward.text() if self.reward else "-"] if rewarded else []),
            self.regret.text(),
            *self.sent(),
            amount(self.regret.p95),
            _percent(self.regret.unconverged),
            _percent(self.regret.uniform_share),
            f"{self.microseconds:.3g}",
        )

    @property
    def protection(self) -> str:
        """The trust and its noise: under central trust, what the default chose by its numbers."""
        player = self.cell.player
        if player.trust is not Trust.CENTRAL or player.mechanism != BEST:
            return player.protection
        return ", ".join([player.protection, *dict.fromkeys(map(str.lower, self.noises.values()))])

    def sent(self) -> tuple[str, ...]:
        """What clients sent, under `SENT`; nothing where users meet the bandit one by one."""
        return tuple(f"{self.communication[kind]:.4g}" for kind in SENT if self.communication)

    def bill(self) -> str:
        """What was charged, in a few letters."""
        return "not private" if self.spent is None else "{:.4g}, {:.2g}".format(*self.spent)


def headings_of(rows: Sequence[Result], *, rewarded: bool = False) -> tuple[str, ...]:
    """What stands above the texts of these rows, which are of one world."""
    communication = SENT.values() if any(row.communication for row in rows) else ()
    earned = (REWARD,) if rewarded else ()
    return (
        *HEADINGS[: _REGRET - 1],
        *earned,
        HEADINGS[_REGRET - 1],
        *communication,
        *HEADINGS[_REGRET:],
    )


def mean_error(values: NDArray[np.float64]) -> float | None:
    """The standard error of the mean of values, if there are several."""
    return float(values.std(ddof=1) / np.sqrt(values.size)) if values.size > 1 else None


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}"


def amount(value: float | None) -> str:
    """Whole numbers from 100 on, one decimal below."""
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"
