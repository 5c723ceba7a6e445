"""Who is ahead on a leaderboard: scores over common worlds, and ranks that show ties as ties."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from kerchief.comparison.players import Player, player
from kerchief.comparison.results import Result, mean_error
from kerchief.comparison.table import Table
from kerchief.policies import POLICIES

ERRORS = 2.0
"""By how many standard errors of their difference one bandit must be ahead of another."""

Found: TypeAlias = Mapping[tuple[Player, str], Result]


@dataclasses.dataclass(frozen=True, kw_only=True)
class LeaderboardEntry:
    """One bandit under one trust.

    Regret in a world is divided by the mean regret of uniform play there, and shares are averaged
    over worlds.

    Attributes:
        rank: one more than the number of bandits that are ahead of it by `ERRORS` standard errors
            of the difference on the same draws; None where it did not play in all worlds.
        tied: whether others have the same rank.
        score: its share, with its standard error.
        price: how much of that its non-private parent does not lose, with its standard error.
        p95: the 95th percentile of the share, averaged over worlds.
        unconverged: the share of unconverged replicates, averaged over worlds where it is known.
        microseconds: time per decision, the median over worlds.
        worlds: how many it played in.
    """

    player: Player
    rank: int | None
    tied: bool
    score: tuple[float, float]
    price: tuple[float, float]
    p95: float
    unconverged: float | None
    microseconds: float
    worlds: int

    def to_dict(self) -> dict[str, object]:
        """As JSON."""
        (score, score_se), (price, price_se) = self.score, self.price
        return {
            "policy": self.player.policy,
            "trust": str(self.player.trust),
            "parent": POLICIES[self.player.policy].parent,
            "rank": self.rank,
            "tied": self.tied,
            **{"score": score, "score_se": score_se, "price": price, "price_se": price_se},
            **{"p95": self.p95, "unconverged": self.unconverged, "microseconds": self.microseconds},
            "environments": self.worlds,
        }

    def place(self) -> str:
        """The rank, with a sign where others have it too."""
        return "-" if self.rank is None else f"{self.rank}{'=' if self.tied else ''}"


def standings(
    found: Found, players: Sequence[Player], worlds: Sequence[str]
) -> list[LeaderboardEntry]:
    """Bandits of one trust over the worlds of one division, the best first."""
    worlds_played = {
        bandit: [world for world in worlds if (bandit, world) in found] for bandit in players
    }
    everywhere = [bandit for bandit in players if len(worlds_played[bandit]) == len(worlds)]
    ranks = _compute_ranks(
        {bandit: _compute_shares(found, bandit, worlds) for bandit in everywhere}
    )
    entries = [
        _build_standing(found, bandit, worlds_played[bandit], ranks)
        for bandit in players
        if worlds_played[bandit]
    ]
    return sorted(
        entries, key=lambda standing: (standing.rank or len(players) + 1, standing.score[0])
    )


def _build_standing(
    results: Found, bandit: Player, worlds: Sequence[str], ranks: Mapping[Player, int]
) -> LeaderboardEntry:
    rows = [results[bandit, world] for world in worlds]
    shares, parent = (
        _compute_shares(results, bandit, worlds),
        _compute_shares(results, parent_of(bandit), worlds),
    )
    unconverged = [row.regret.unconverged for row in rows if row.regret.unconverged is not None]
    return LeaderboardEntry(
        player=bandit,
        rank=ranks.get(bandit),
        tied=list(ranks.values()).count(ranks.get(bandit, 0)) > 1,
        score=_mean(shares),
        price=_mean(shares - parent),
        p95=statistics.fmean(row.regret.p95 / row.uniform for row in rows),
        unconverged=statistics.fmean(unconverged) if unconverged else None,
        microseconds=statistics.median(row.microseconds for row in rows),
        worlds=len(worlds),
    )


def parent_of(private: Player) -> Player:
    """Return the tuned non-private counterpart of a player."""
    return player(POLICIES[private.policy].parent)


def _compute_shares(results: Found, bandit: Player, worlds: Sequence[str]) -> NDArray[np.float64]:
    """Regret as a share of uniform play's, averaged over worlds, for each replicate."""
    rows = [results[bandit, world] for world in worlds]
    return np.asarray(np.mean([row.curves[-1] / row.uniform for row in rows], axis=0))


def _compute_ranks(shares: Mapping[Player, NDArray[np.float64]]) -> dict[Player, int]:
    """Rank bandits by regret. All meet the same draws, so pairs are compared by draw."""
    return {
        bandit: 1 + sum(_is_ahead(rival, own) for rival in shares.values())
        for bandit, own in shares.items()
    }


def _is_ahead(regret: NDArray[np.float64], reference: NDArray[np.float64]) -> bool:
    mean, error = _mean(reference - regret)
    return mean > ERRORS * error and mean > 0


def _mean(values: NDArray[np.float64]) -> tuple[float, float]:
    return float(values.mean()), mean_error(values) or 0.0


def overall(caption: str, standings: Sequence[LeaderboardEntry], worlds: int) -> Table:
    """The standings of one division and trust."""
    return Table(
        caption=caption,
        headings=(
            "rank",
            "bandit",
            "% of uniform",
            "price",
            "p95",
            "% unconverged",
            "µs",
            "environments",
        ),
        lines=tuple(
            (
                standing.place(),
                standing.player.name,
                _percents(*standing.score),
                _percents(*standing.price),
                f"{100 * standing.p95:.1f}",
                "-" if standing.unconverged is None else f"{100 * standing.unconverged:.1f}",
                f"{standing.microseconds:.3g}",
                f"{standing.worlds} of {worlds}",
            )
            for standing in standings
        ),
        columns="rlrrrrrr",
    )


def by_world(
    caption: str, standings: Sequence[LeaderboardEntry], worlds: Sequence[str], found: Found
) -> Table:
    """In each world the regret over that of the parent, and the rank there."""
    players = [standing.player for standing in standings]
    ranks = {
        world: _compute_ranks(
            {
                bandit: found[bandit, world].curves[-1]
                for bandit in players
                if (bandit, world) in found
            }
        )
        for world in worlds
    }
    lines = [
        (bandit.name, *(_over_parent(found, bandit, world, ranks[world]) for world in worlds))
        for bandit in players
    ]
    return Table(
        caption=caption,
        headings=("bandit", *worlds),
        lines=tuple(lines),
        columns="l" + "r" * len(worlds),
    )


def _over_parent(results: Found, bandit: Player, world: str, ranks: Mapping[Player, int]) -> str:
    if bandit not in ranks:
        return "-"
    regret, parent = results[bandit, world].curves[-1], results[parent_of(bandit), world].curves[-1]
    usual = float(parent.mean())
    if usual <= 0:
        return f"- ({ranks[bandit]})"
    ratio = float(regret.mean()) / usual
    error = mean_error(regret - ratio * parent) or 0.0
    return f"{ratio:.3g} ± {error / usual:.2g} ({ranks[bandit]})"


def _percents(mean: float, error: float) -> str:
    return f"{100 * mean:.1f} ± {100 * error:.1f}"
