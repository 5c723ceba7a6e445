"""Play a search: rung by rung fewer candidates, and more replicates of each.

All candidates of a rung meet the same draws. The incumbent plays in every rung, and at last it and
the best candidate meet draws of another seed, which nothing was chosen on.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from tools.tuning.outcome import Evaluation, Match, Outcome
from tools.tuning.scores import Shares, gain, score, shares, tail_of
from tools.tuning.search import Search
from tools.tuning.space import Candidate, edges

from kerchief.comparison.archive import Archive
from kerchief.comparison.chunks import build_protected_policy, find_chunk_width
from kerchief.comparison.plan import Plan
from kerchief.comparison.players import Cell, player
from kerchief.comparison.runner import RunState, hand_out
from kerchief.comparison.versions import versions
from kerchief.comparison.workers import Workers
from kerchief.simulation.run import AnyEnvironment

Watch: TypeAlias = Callable[[str, float], None]

_TICKS = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trial(Plan):
    """Some candidates of a search in all of its worlds, on one seed."""

    search: Search
    candidates: tuple[Candidate, ...]

    name = "tune"

    @property
    def title(self) -> str:
        """Whose numbers are tried."""
        return f"Numbers of {self.search.policy}"

    def lead(self) -> str:
        """How many, how often."""
        return f"{len(self.candidates)} candidates, {self.replicates} replicates, seed {self.seed}."

    def cells(self) -> tuple[Cell, ...]:
        """World by world: uniform play, and all candidates under each trust."""
        cells: list[Cell] = []
        for world in self.search.worlds:
            rows = [world.cells(self.search.policy, candidate) for candidate in self.candidates]
            # Candidates of one trust side by side: they share a program.
            together = [cell for column in zip(*rows, strict=True) for cell in column]
            cells += [world.cell(player("uniform")), *together]
        return tuple(cells)

    def environment(self, world: str) -> AnyEnvironment:
        """The world of that name."""
        return self._environments[world]

    @functools.cached_property
    def _environments(self) -> Mapping[str, AnyEnvironment]:
        return {world.name: world.environment() for world in self.search.worlds}

    def parameters(self) -> dict[str, object]:
        """The search, and who plays."""
        candidates = [dict(candidate) for candidate in self.candidates]
        return {"search": self.search.to_dict(), "candidates": candidates, "seed": self.seed}

    def command(self) -> str:
        """The command that plays the whole search."""
        return shlex.join(["python", "-m", "tools.tune", self.search.policy])

    def warnings(self) -> tuple[str, ...]:
        """None: nothing of it is reported."""
        return ()


def check(search: Search) -> None:
    """Build the bandit with the incumbent and at both edges of the space, in every cell.

    Raises:
        KerchiefError: a number is unknown or beyond its bounds, or no such bandit can be had.
    """
    for numbers in (search.incumbent, *edges(search.space)):
        for world in search.worlds:
            problem = world.environment().problem(world.horizon)
            for cell in world.cells(search.policy, numbers):
                build_protected_policy(cell, problem)


def tune(
    search: Search,
    *,
    archive: Archive | None = None,
    workers: Workers | None = None,
    watch: Watch | None = None,
) -> Outcome:
    """Find the best candidate, and see whether it beats the incumbent on other draws.

    Args:
        search: what is declared.
        archive: where finished parts are found and kept; a later rung takes those of the former.
        workers: who plays; by default this process does.
        watch: called with what is being played, and with the share of all rungs that is done.
    """
    check(search)
    return _Halving(
        search=search,
        archive=archive,
        workers=workers,
        watch=watch or (lambda label, share: None),
    ).outcome()


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Halving:
    """A search on its way; its fields are the arguments of `tune`."""

    search: Search
    archive: Archive | None
    workers: Workers | None
    watch: Watch

    def outcome(self) -> Outcome:
        """All rungs, and then the best candidate beside the incumbent."""
        search, budget = self.search, self.search.budget
        ranking, evaluations = search.candidates(), list[Evaluation]()
        rungs = list(zip(budget.candidates, budget.replicates, strict=True))
        for rung, (count, times) in enumerate(rungs, start=1):
            regret_shares = self._play_stage(rung, ranking[:count], times)
            evaluations += [
                _evaluation(rung, numbers, candidate_shares)
                for numbers, candidate_shares in regret_shares.items()
            ]
            ranking = self._rank_candidates(regret_shares, tails=rung == len(rungs))
        regret_shares = self._play_stage(len(rungs) + 1, ranking[:1], budget.confirm)
        best, own = regret_shares[ranking[0]], regret_shares[search.incumbent]
        cells = enumerate(search.cells(search.incumbent))
        return Outcome(
            search=search,
            evaluations=tuple(evaluations),
            best=dict(ranking[0]),
            overall=_match("all", best, own),
            cells=tuple(
                _match(_describe_cell(cell), best[[row]], own[[row]]) for row, cell in cells
            ),
            versions=versions(),
        )

    def _rank_candidates(
        self, regret_shares: Mapping[Candidate, Shares], *, tails: bool
    ) -> tuple[Candidate, ...]:
        """The candidates, the best first; those with heavier tails than the incumbent's last."""
        limit = tail_of(regret_shares[self.search.incumbent]) if tails else math.inf
        order = {
            candidate: (tail_of(candidate_shares) > limit, score(candidate_shares).mean)
            for candidate, candidate_shares in regret_shares.items()
        }
        return tuple(
            candidate
            for candidate in sorted(order, key=order.__getitem__)
            if candidate != self.search.incumbent
        )

    def _play_stage(
        self, stage: int, candidates: Sequence[Candidate], replicates: int
    ) -> dict[Candidate, Shares]:
        """What these candidates and the incumbent lose in a rung or, after the last, at the end."""
        search, rungs = self.search, len(self.search.budget.candidates)
        trial = Trial(
            horizon=max(world.horizon for world in search.worlds),
            replicates=replicates,
            seed=search.seeds[stage > rungs],
            search=search,
            candidates=(search.incumbent, *candidates),
        )
        # As wide as in the first rung: what was played there is found again.
        width = min(search.budget.replicates[0], find_chunk_width(trial))
        work = RunState.of(trial, ticks=_TICKS, width=width, archive=self.archive)
        if self.workers is not None:
            hand_out([work], self.workers)
        name = f"rung {stage} of {rungs}" if stage <= rungs else "confirming"

        def report_progress(cell: Cell, doing: str, share: float) -> None:
            finished_stages = stage - 1 + min(1.0, (len(work.runs) + share) / work.parts)
            self.watch(
                f"{name}: {cell.world} {cell.label()}, {doing}", finished_stages / (rungs + 1)
            )

        return shares(list(work.results(report_progress)))


def _evaluation(rung: int, numbers: Candidate, regret_shares: Shares) -> Evaluation:
    mean, se = (_round_digits(value) for value in score(regret_shares))
    return Evaluation(
        rung=rung,
        numbers=dict(numbers),
        replicates=regret_shares.shape[1],
        score=mean,
        se=se,
        p95=_round_digits(tail_of(regret_shares)),
    )


def _match(cell: str, best: Shares, own: Shares) -> Match:
    ahead, se = (_round_digits(value) for value in gain(best, own))
    best_score, incumbent_score = (
        _round_digits(math.exp(score(regret_shares).mean)) for regret_shares in (best, own)
    )
    tail, usual = (_round_digits(tail_of(regret_shares)) for regret_shares in (best, own))
    return Match(
        cell=cell,
        best=best_score,
        incumbent=incumbent_score,
        gain=ahead,
        se=se,
        best_p95=tail,
        incumbent_p95=usual,
    )


def _describe_cell(cell: Cell) -> str:
    """A cell without its numbers."""
    bandit = cell.player
    suffix = "" if cell.asked is None else f" ε={bandit.epsilon:g}"
    return f"{cell.world}, {bandit.trust}{suffix}"


def _round_digits(value: float) -> float:
    """Digits that say something, and that rounding in the last bits does not change."""
    return float(f"{value:.5g}")
