"""The answer of `kerchief plan`: what each trust would earn, what it needs, and what to do."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from kerchief.data.replay import Replay
from kerchief.experiments.declare import Comparison
from kerchief.experiments.forecast import (
    Interval,
    Needed,
    Verdict,
    average,
    epsilon_needed,
    predicted,
    users_needed,
    verdict,
)
from kerchief.experiments.planning import SINGLE, Planning
from kerchief.experiments.played import Played, yardstick
from kerchief.experiments.players import Cell
from kerchief.experiments.results import amount
from kerchief.experiments.wire_size import WireSize, wire_size
from kerchief.privacy.guarantee import Trust

LEAST_TRUST = (Trust.LOCAL, Trust.SHUFFLE, Trust.JOINT, Trust.CENTRAL)
"""Trusts by how much users must trust others, the least first."""

HEADINGS = ("", "trust", "ε", "reward per user", "regret in all", "better than {} in")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """What one candidate would earn.

    Attributes:
        reward: per user, with where it will lie in a new world.
        regret: in all, likewise.
        gain: reward per user above what it is measured against, with where the mean lies; None for
            that itself, as are the next four.
        spread: the same, with where it will lie in a new world.
        better: the share of simulated worlds in which it gained.
        verdict: whether learning so pays.
        users: how many are needed until it pays.
        epsilon: which would be needed; None without privacy.
        wire: what its deployment sends; None where there is none.
    """

    cell: Cell
    replicates: int
    reward: Interval
    regret: Interval
    gain: Interval | None = None
    spread: Interval | None = None
    better: float | None = None
    verdict: Verdict | None = None
    users: Needed | None = None
    epsilon: Needed | None = None
    wire: WireSize | None = None

    def texts(self) -> tuple[str, ...]:
        """The row under the table's headings."""
        asked = self.cell.asked
        return (
            self.cell.player.name,
            str(self.cell.player.trust),
            f"{asked[0]:.4g}" if asked else "-",
            self.reward.text(),
            f"{amount(self.regret.mean)} ({_lost(self.regret.low)} to {_lost(self.regret.high)})",
            "-" if self.better is None else f"{100 * self.better:.0f} % of worlds",
        )

    def to_dict(self) -> dict[str, object]:
        """The row as JSON."""
        player, (epsilon, delta) = self.cell.player, self.cell.asked or (None, None)
        told = {
            name: None if one is None else dataclasses.asdict(one)
            for name, one in (
                ("reward", self.reward),
                ("regret", self.regret),
                ("gain", self.gain),
                ("gain_of_a_world", self.spread),
                ("users_needed", self.users),
                ("epsilon_needed", self.epsilon),
                ("wire", self.wire),
            )
        }
        return {
            "policy": player.policy,
            "trust": str(player.trust),
            "epsilon": epsilon,
            "delta": delta,
            "private": self.cell.asked is not None,
            "replicates": self.replicates,
            **told,
            "better": self.better,
            "verdict": self.verdict,
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Advice:
    """A question, and what was played to answer it."""

    planning: Planning
    played: Played

    @functools.cached_property
    def rows(self) -> tuple[Row, ...]:
        """Uniform play, what is to be beaten, no privacy, then every trust that was asked for."""
        known = self.planning.cells(self.played.users)
        return tuple(self._row(cell) for cell in known if cell in self.played.runs)

    @functools.cached_property
    def plan(self) -> Comparison:
        """The rows as a comparison."""
        return self.planning.comparison(self.played.users)

    @functools.cached_property
    def yardstick(self) -> Cell:
        """What learning must beat."""
        return yardstick(list(self.played.runs))

    @property
    def measure(self) -> str:
        """What that is called."""
        return "the best single arm" if self.yardstick.player.policy == SINGLE else "uniform play"

    @property
    def private(self) -> list[Row]:
        """The rows that keep the promise, those of the least trust first."""
        rows = [row for row in self.rows if row.cell.asked is not None]
        return sorted(rows, key=lambda row: LEAST_TRUST.index(row.cell.player.trust))

    @functools.cached_property
    def best(self) -> Row:
        """What to use: of those that earn the most, or as much as one can tell, the least trust."""
        most = max(self.private, key=lambda row: row.gain.mean if row.gain else 0.0)
        return next(row for row in self.private if row is most or not self._loses(row, most))

    @property
    def verdict(self) -> Verdict:
        """Whether to learn at all."""
        return self.best.verdict or "undecided"

    def sentence(self) -> str:
        """The verdict in plain words, and whether bandits were left out of it."""
        left = [line.partition(" was ")[0] for line in self.played.left]
        if not left:
            return self._verdict_told()
        return f"{self._verdict_told()} Left out for lack of time: {', '.join(left)}."

    def _verdict_told(self) -> str:
        best, gain = self.best, self.best.gain
        assert gain is not None
        who = f"{best.cell.player.policy} under {best.cell.player.trust} trust"
        one = "play one arm" if self.yardstick.player.policy == SINGLE else "choose at random"
        much = (
            f"{gain.mean:+.2g} per user beside {self.measure} (on average over worlds "
            f"{gain.low:+.2g} to {gain.high:+.2g})"
        )
        few = self._few()
        match self.verdict:
            case "personalise":
                return (
                    f"Personalise: {few}{who} at epsilon {self.planning.epsilon:g} earns {much}, "
                    f"and is ahead of it in {100 * (best.better or 0):.0f} % of the simulated "
                    "worlds."
                )
            case "one arm":
                return (
                    f"Do not personalise: {one}, for {few}the best private bandit, {who} at "
                    f"epsilon {self.planning.epsilon:g}, earns {much}."
                )
        return (
            f"Undecided, so do not personalise yet: {one}, for {few}{who} at epsilon "
            f"{self.planning.epsilon:g} earns {much}, which {best.replicates} worlds cannot tell "
            "from nothing; give more --seconds."
        )

    def use(self) -> str:
        """Which bandit, without a full stop; or that it is none to build with."""
        who = f"{self.best.cell.player.policy} under {self.best.cell.player.trust} trust"
        if self.best.wire:
            return f"Use {who}" if self.verdict == "personalise" else f"If you try it, use {who}"
        return f"{who} can be simulated, and not deployed; to build with, choose another --policy"

    def _few(self) -> str:
        """Where not all users were simulated, what is said is said of those who were."""
        if self.played.users >= 0.9 * self.planning.count:
            return ""
        return f"over the first {self.played.users} users "

    def notes(self) -> Iterator[str]:
        """What must be known to read the table."""
        yield self.planning.assumed()
        yield (
            f"Intervals hold 9 of 10 new worlds of this kind ({self.worlds} worlds were simulated; "
            "the fewer, the wider). "
            + (
                "The best single arm is known to nobody beforehand: finding it costs users too."
                if self.yardstick.player.policy == SINGLE
                else "This world knows no best single arm: learning is held to uniform play."
            )
        )
        if self.played.users < self.planning.count:
            yield (
                f"Simulated were the first {self.played.users} of {self.planning.count} users, as "
                "the time did not suffice for more; a longer run earns more per user, so these "
                "figures are cautious. Give more --seconds for all of them."
                if self._few()
                else f"Simulated were {self.played.users} users."
            )
        yield from self.planning.told()
        for line in self.played.left:
            yield f"Left out: {line}; give more --seconds."

    def needs(self) -> Iterator[str]:
        """How many users, and which epsilon, each trust needs."""
        for row in self.private:
            trust, users, epsilon = row.cell.player.trust, row.users, row.epsilon
            if users is not None and epsilon is not None:
                yield f"{trust}: {_users(users)}; {_epsilon(epsilon)}."

    @functools.cached_property
    def ladder(self) -> Mapping[Trust, Mapping[float, NDArray[np.float64]]]:
        """For each trust, the final gains at every epsilon that was played."""
        found: dict[Trust, dict[float, NDArray[np.float64]]] = {}
        for cell in self.played.runs:
            if cell.asked is not None:
                gains = self.played.gains(cell, self.yardstick)[-1] / self.played.users
                found.setdefault(cell.player.trust, {})[cell.player.epsilon] = gains
        return found

    @functools.cached_property
    def worlds(self) -> int:
        """In how many worlds every row was played: the table is of these."""
        known = self.planning.cells(self.played.users)
        return min(len(self.played.rewards(cell)) for cell in known if cell in self.played.runs)

    def _row(self, cell: Cell) -> Row:
        played, worlds = self.played, self.worlds
        # Only on logs is regret beside one arm, which a bandit may beat.
        least = -math.inf if isinstance(self.planning.data, Replay) else 0.0
        plain = Row(
            cell=cell,
            replicates=worlds,
            reward=predicted(played.rewards(cell)[:worlds]),
            regret=predicted(played.curves(cell)[-1, :worlds], least=least),
        )
        if cell == self.yardstick:
            return plain
        curves = played.gains(cell, self.yardstick)[:, :worlds]
        final = curves[-1] / played.users
        judged = dataclasses.replace(
            plain,
            gain=average(final),
            spread=predicted(final),
            better=float((final > 0).mean()),
            verdict=verdict(final),
            users=users_needed(played.rounds(), curves.mean(axis=1)),
        )
        if cell.asked is None:
            return judged
        mine = self.ladder[cell.player.trust]
        # The same worlds for every epsilon, so that a lucky one does not count for one of them.
        common = min(gains.size for gains in mine.values())
        whole = dataclasses.replace(cell, horizon=self.planning.count)
        return dataclasses.replace(
            judged,
            epsilon=epsilon_needed({one: float(all[:common].mean()) for one, all in mine.items()}),
            wire=wire_size(whole, self.planning.problem(self.planning.count)),
        )

    def _loses(self, row: Row, most: Row) -> bool:
        """Whether a row earns less than another one, as far as their common worlds tell."""
        return average(self.played.gains(most.cell, row.cell)[-1]).low > 0

    def to_dict(self) -> dict[str, object]:
        """All of it as JSON."""
        return {
            "verdict": self.verdict,
            "sentence": self.sentence(),
            "measure": self.yardstick.player.policy,
            "rows": [row.to_dict() for row in self.rows],
            "ladder": {
                str(trust): {f"{epsilon:g}": float(all.mean()) for epsilon, all in found.items()}
                for trust, found in self.ladder.items()
            },
            "best": {
                "policy": self.best.cell.player.policy,
                "trust": str(self.best.cell.player.trust),
            },
            "needs": list(self.needs()),
            "notes": list(self.notes()),
            "simulated_users": self.played.users,
            "left_out": list(self.played.left),
            "seconds": self.played.seconds,
        }


def _lost(regret: float) -> str:
    """A regret, which on logs may be below 0."""
    return f"-{amount(-regret)}" if regret < 0 else amount(regret)


def _users(needed: Needed) -> str:
    if needed.value is not None:
        at_most = "at most " if needed.bound else ""
        return f"learning is ahead after {at_most}{_round(needed.value)} users"
    said = f"learning is never ahead up to {_round(needed.most)} users"
    if needed.guess is None:
        return said
    return f"{said} (at the pace of the last fifth, which is a guess, after {_round(needed.guess)})"


def _epsilon(needed: Needed) -> str:
    if needed.value is None:
        return f"no epsilon up to {needed.most:g} makes it pay at this number of users"
    if needed.bound:
        return f"epsilon {needed.least:g} is enough, and less was not simulated"
    return f"epsilon {needed.value:.2g} would do at this number of users"


def _round(users: float) -> str:
    """Two digits.

    >>> _round(123456.7), _round(87.2)
    ('120000', '87')
    """
    return f"{float(f'{users:.2g}'):.0f}"
