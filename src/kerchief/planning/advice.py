"""Answer of `kerchief plan`: rewards, requirements and advice per trust model."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from kerchief.comparison.comparison import Comparison
from kerchief.comparison.players import Cell
from kerchief.comparison.results import amount
from kerchief.data.replay import Replay
from kerchief.planning.forecast import (
    Interval,
    Requirement,
    Verdict,
    average,
    epsilon_needed,
    predict_interval,
    users_needed,
    verdict,
)
from kerchief.planning.pilot_runs import SimulatedRuns, yardstick
from kerchief.planning.planning import SINGLE, Planning
from kerchief.planning.wire_size import WireSize, wire_size
from kerchief.privacy.guarantee import Trust

LEAST_TRUST = (Trust.LOCAL, Trust.SHUFFLE, Trust.JOINT, Trust.CENTRAL)
"""Trusts by how much users must trust others, the least first."""

HEADINGS = ("", "trust", "ε", "reward per user", "regret in all", "better than {} in")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """Expected outcome of one configuration in a new environment.

    Attributes:
        reward: mean reward per user, with the interval of a new environment.
        regret: total regret, with the interval of a new environment.
        gain: reward per user above the baseline's, with the interval of its mean; None for the
            baseline itself, as are the next four.
        spread: reward per user above the baseline's, with the interval of a new environment.
        better: share of simulated environments in which the configuration gained.
        verdict: whether learning with this configuration pays.
        users: number of users from which it pays.
        epsilon: least epsilon with which it pays; None without privacy.
        wire: size of the messages of its deployment; None if it cannot be deployed.
    """

    cell: Cell
    replicates: int
    reward: Interval
    regret: Interval
    gain: Interval | None = None
    spread: Interval | None = None
    better: float | None = None
    verdict: Verdict | None = None
    users: Requirement | None = None
    epsilon: Requirement | None = None
    wire: WireSize | None = None

    def texts(self) -> tuple[str, ...]:
        """Return the row's cells, in the order of `HEADINGS`."""
        budget = self.cell.asked
        return (
            self.cell.player.name,
            str(self.cell.player.trust),
            f"{budget[0]:.4g}" if budget else "-",
            self.reward.text(),
            f"{amount(self.regret.mean)} ({_format_regret(self.regret.low)} to "
            f"{_format_regret(self.regret.high)})",
            "-" if self.better is None else f"{100 * self.better:.0f} % of worlds",
        )

    def to_dict(self) -> dict[str, object]:
        """Return the row as JSON."""
        player, (epsilon, delta) = self.cell.player, self.cell.asked or (None, None)
        estimates = {
            name: None if estimate is None else dataclasses.asdict(estimate)
            for name, estimate in (
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
            **estimates,
            "better": self.better,
            "verdict": self.verdict,
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Advice:
    """Question of `kerchief plan` with the simulation that answers it."""

    planning: Planning
    played: SimulatedRuns

    @functools.cached_property
    def rows(self) -> tuple[Row, ...]:
        """Rows of uniform play, the baseline, no privacy, then each trust model."""
        cells = self.planning.cells(self.played.users)
        return tuple(self._build_row(cell) for cell in cells if cell in self.played.runs)

    @functools.cached_property
    def plan(self) -> Comparison:
        """Comparison with the same configurations as the rows."""
        return self.planning.comparison(self.played.users)

    @functools.cached_property
    def yardstick(self) -> Cell:
        """Baseline that learning must beat."""
        return yardstick(list(self.played.runs))

    @property
    def measure(self) -> str:
        """Name of the baseline in plain words."""
        return "the best single arm" if self.yardstick.player.policy == SINGLE else "uniform play"

    @property
    def private(self) -> list[Row]:
        """Rows with a privacy guarantee, those that need the least trust first."""
        rows = [row for row in self.rows if row.cell.asked is not None]
        return sorted(rows, key=lambda row: LEAST_TRUST.index(row.cell.player.trust))

    @functools.cached_property
    def best(self) -> Row:
        """Row with the least trust among those that earn about the most."""
        leader = max(self.private, key=lambda row: row.gain.mean if row.gain else 0.0)
        return next(
            row for row in self.private if row is leader or not self._earns_less(row, leader)
        )

    @property
    def verdict(self) -> Verdict:
        """Whether learning pays."""
        return self.best.verdict or "undecided"

    def sentence(self) -> str:
        """State the verdict in plain words, and which bandits were left out."""
        left_out = [line.partition(" was ")[0] for line in self.played.left]
        if not left_out:
            return self._explain_verdict()
        return f"{self._explain_verdict()} Left out for lack of time: {', '.join(left_out)}."

    def _explain_verdict(self) -> str:
        best, gain = self.best, self.best.gain
        assert gain is not None
        label = f"{best.cell.player.policy} under {best.cell.player.trust} trust"
        fallback = "play one arm" if self.yardstick.player.policy == SINGLE else "choose at random"
        advantage = (
            f"{gain.mean:+.2g} per user beside {self.measure} (on average over worlds "
            f"{gain.low:+.2g} to {gain.high:+.2g})"
        )
        scope = self._describe_limit()
        match self.verdict:
            case "personalise":
                return (
                    f"Personalise: {scope}{label} at epsilon {self.planning.epsilon:g} earns "
                    f"{advantage}, and is ahead of it in {100 * (best.better or 0):.0f} % of the "
                    "simulated worlds."
                )
            case "one arm":
                return (
                    f"Do not personalise: {fallback}, for {scope}the best private bandit, {label} "
                    f"at epsilon {self.planning.epsilon:g}, earns {advantage}."
                )
        return (
            f"Undecided, so do not personalise yet: {fallback}, for {scope}{label} at epsilon "
            f"{self.planning.epsilon:g} earns {advantage}, which {best.replicates} worlds cannot "
            "tell from nothing; give more --seconds."
        )

    def use(self) -> str:
        """Recommend a bandit, without a full stop, or say that it cannot be deployed."""
        label = f"{self.best.cell.player.policy} under {self.best.cell.player.trust} trust"
        if self.best.wire:
            return (
                f"Use {label}" if self.verdict == "personalise" else f"If you try it, use {label}"
            )
        return f"{label} can be simulated, and not deployed; to build with, choose another --policy"

    def _describe_limit(self) -> str:
        """Say for how many users the figures hold, where not all were simulated."""
        if self.played.users >= 0.9 * self.planning.count:
            return ""
        return f"over the first {self.played.users} users "

    def notes(self) -> Iterator[str]:
        """Yield the notes that explain the table."""
        yield self.planning.describe_assumptions()
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
                if self._describe_limit()
                else f"Simulated were {self.played.users} users."
            )
        yield from self.planning.data_notes()
        for line in self.played.left:
            yield f"Left out: {line}; give more --seconds."

    def needs(self) -> Iterator[str]:
        """Yield how many users, and which epsilon, each trust model needs."""
        for row in self.private:
            trust, users, epsilon = row.cell.player.trust, row.users, row.epsilon
            if users is not None and epsilon is not None:
                yield f"{trust}: {_describe_users(users)}; {_describe_epsilon(epsilon)}."

    @functools.cached_property
    def ladder(self) -> Mapping[Trust, Mapping[float, NDArray[np.float64]]]:
        """Final gains per user, by trust model and by epsilon."""
        gains_by_trust: dict[Trust, dict[float, NDArray[np.float64]]] = {}
        for cell in self.played.runs:
            if cell.asked is not None:
                gains = self.played.gains(cell, self.yardstick)[-1] / self.played.users
                gains_by_trust.setdefault(cell.player.trust, {})[cell.player.epsilon] = gains
        return gains_by_trust

    @functools.cached_property
    def worlds(self) -> int:
        """Number of environments in which every row was simulated."""
        cells = self.planning.cells(self.played.users)
        return min(len(self.played.rewards(cell)) for cell in cells if cell in self.played.runs)

    def _build_row(self, cell: Cell) -> Row:
        simulation, worlds = self.played, self.worlds
        # Only on logs is regret beside one arm, which a bandit may beat.
        least = -math.inf if isinstance(self.planning.data, Replay) else 0.0
        base_row = Row(
            cell=cell,
            replicates=worlds,
            reward=predict_interval(simulation.rewards(cell)[:worlds]),
            regret=predict_interval(simulation.curves(cell)[-1, :worlds], least=least),
        )
        if cell == self.yardstick:
            return base_row
        curves = simulation.gains(cell, self.yardstick)[:, :worlds]
        final = curves[-1] / simulation.users
        row = dataclasses.replace(
            base_row,
            gain=average(final),
            spread=predict_interval(final),
            better=float((final > 0).mean()),
            verdict=verdict(final),
            users=users_needed(simulation.rounds(), curves.mean(axis=1)),
        )
        if cell.asked is None:
            return row
        gains_by_epsilon = self.ladder[cell.player.trust]
        # The same worlds for every epsilon, so that a lucky one does not count for one of them.
        common = min(gains.size for gains in gains_by_epsilon.values())
        full_cell = dataclasses.replace(cell, horizon=self.planning.count)
        return dataclasses.replace(
            row,
            epsilon=epsilon_needed(
                {
                    epsilon: float(gains[:common].mean())
                    for epsilon, gains in gains_by_epsilon.items()
                }
            ),
            wire=wire_size(full_cell, self.planning.problem(self.planning.count)),
        )

    def _earns_less(self, row: Row, rival: Row) -> bool:
        """Whether a row earns less than a rival in the environments of both."""
        return average(self.played.gains(rival.cell, row.cell)[-1]).low > 0

    def to_dict(self) -> dict[str, object]:
        """Return the advice as JSON."""
        return {
            "verdict": self.verdict,
            "sentence": self.sentence(),
            "measure": self.yardstick.player.policy,
            "rows": [row.to_dict() for row in self.rows],
            "ladder": {
                str(trust): {
                    f"{epsilon:g}": float(gains.mean())
                    for epsilon, gains in gains_by_epsilon.items()
                }
                for trust, gains_by_epsilon in self.ladder.items()
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


def _format_regret(regret: float) -> str:
    """Format a regret, which on logs may be negative."""
    return f"-{amount(-regret)}" if regret < 0 else amount(regret)


def _describe_users(requirement: Requirement) -> str:
    if requirement.value is not None:
        at_most = "at most " if requirement.bound else ""
        return f"learning is ahead after {at_most}{_round_users(requirement.value)} users"
    sentence = f"learning is never ahead up to {_round_users(requirement.most)} users"
    if requirement.guess is None:
        return sentence
    return (
        f"{sentence} (at the pace of the last fifth, which is a guess, after "
        f"{_round_users(requirement.guess)})"
    )


def _describe_epsilon(requirement: Requirement) -> str:
    if requirement.value is None:
        return f"no epsilon up to {requirement.most:g} makes it pay at this number of users"
    if requirement.bound:
        return f"epsilon {requirement.least:g} is enough, and less was not simulated"
    return f"epsilon {requirement.value:.2g} would do at this number of users"


def _round_users(users: float) -> str:
    """Round a number of users to two digits.

    >>> _round_users(123456.7), _round_users(87.2)
    ('120000', '87')
    """
    return f"{float(f'{users:.2g}'):.0f}"
