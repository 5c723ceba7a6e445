"""Leaderboard of all private bandits at one guarantee, by trust model."""

from __future__ import annotations

import dataclasses
import functools
import shlex
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kerchief.comparison import plugins
from kerchief.comparison.chunks import build_protected_policy
from kerchief.comparison.plan import Layout, Plan
from kerchief.comparison.players import YARDSTICKS, Cell, Player, needs_best_arm, player
from kerchief.comparison.results import Result
from kerchief.comparison.table import Table
from kerchief.core import validate
from kerchief.core.contracts import HasBestArm
from kerchief.core.errors import InvalidValueError
from kerchief.environments.registry import ENVIRONMENTS
from kerchief.papers.leaderboard_entries import (
    ERRORS,
    Found,
    LeaderboardEntry,
    by_world,
    overall,
    parent_of,
    standings,
)
from kerchief.papers.leaderboard_worlds import WORLDS, SizeName
from kerchief.policies import POLICIES
from kerchief.privacy.guarantee import Trust
from kerchief.simulation.run import AnyEnvironment

_PRIVATE = tuple(str(trust) for trust in Trust if trust is not Trust.NONE)
# Nearly all of a quick run is compilation, of each bandit under each trust: few play.
_QUICK = (
    *("linucb", "sampling", "elimination", "glm", "greedy"),
    *("ucb", "kl-ucb", "tsallis", "successive-elimination"),
)
_OVER = "regret over that of the parent, and the rank"
_HORIZONS: Mapping[SizeName, int] = {"quick": 2500, "usual": 5000, "full": 50_000}
_REPLICATES: Mapping[SizeName, int] = {"quick": 12, "usual": 32, "full": 100}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Exclusion:
    """Bandit that does not play in an environment of its division, and why."""

    policy: str
    trust: str
    environment: str
    reason: str


class Board(NamedTuple):
    """Standings of one division under one trust model."""

    division: str
    trust: str
    worlds: tuple[str, ...]
    standings: tuple[LeaderboardEntry, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Leaderboard(Plan):
    """Every private bandit under every trust model; see `Leaderboard.of`.

    Attributes:
        worlds: by name, from `WORLDS`.
        policies: by name; those that are private under no trust are refused.
        trusts: the trust models under which they play.
    """

    size: SizeName
    worlds: tuple[str, ...]
    policies: tuple[str, ...]
    trusts: tuple[str, ...]
    epsilon: float
    delta: float

    name = page = tables_name = "leaderboard"
    title = "Private bandits at one guarantee, on common worlds"

    def __post_init__(self) -> None:
        """Check every value."""
        validate.plain(self)
        validate.one_of("size", self.size, tuple(_HORIZONS))
        validate.whole("replicates", self.replicates, low=2, high=10**6)
        validate.whole("seed", self.seed, low=0, high=2**32 - 1)
        validate.positive("epsilon", self.epsilon)
        validate.between("delta", self.delta, 0.0, 1.0)
        for name in ("worlds", "policies", "trusts"):
            if getattr(self, name) != (_deduplicate_names(name, getattr(self, name)) or None):
                raise InvalidValueError(
                    f"{name} is empty, or names something twice; name each once"
                )
        for world in self.worlds:
            WORLDS[world]
        for trust in self.trusts:
            validate.one_of("trust", trust, _PRIVATE)
        for policy in self.policies:
            if len(POLICIES[policy].trusts) == 1:
                raise InvalidValueError(
                    f"policy {policy!r} is private under no trust; leave it out"
                )
        if not any(cell.asked for cell in self.cells()):
            raise InvalidValueError(
                "none of these bandits plays in these worlds under these trusts; name others"
            )

    @classmethod
    def of(
        cls,
        *,
        size: SizeName = "usual",
        worlds: Sequence[str] = (),
        policies: Sequence[str] = (),
        trusts: Sequence[str] = (),
        epsilon: float = 1.0,
        delta: float = 1e-7,
        replicates: int | None = None,
        seed: int = 0,
    ) -> Leaderboard:
        """Build a leaderboard, by default of all environments and private bandits.

        >>> board = Leaderboard.of(size="quick", worlds=("chance",), policies=("ucb", "tsallis"))
        >>> [cell.label() for cell in board.cells()][-2:]
        ['ucb local ε=1', 'tsallis local ε=1']
        """
        validate.one_of("size", size, tuple(_HORIZONS))
        usual = [name for name, world in WORLDS.items() if size in world.sizes]
        offered = _QUICK if size == "quick" else _list_private_policies()
        return cls(
            size=size,
            worlds=_deduplicate_names("worlds", worlds) or tuple(usual),
            policies=tuple(map(POLICIES.resolve_alias, _deduplicate_names("policies", policies)))
            or offered,
            trusts=_deduplicate_names("trusts", trusts) or _PRIVATE,
            epsilon=epsilon,
            delta=delta,
            horizon=_HORIZONS[size],
            replicates=_REPLICATES[size] if replicates is None else replicates,
            seed=seed,
        )

    def lead(self) -> str:
        """Describe the guarantee and the size of the leaderboard."""
        return (
            f"Every bandit promises ({self.epsilon:g}, {self.delta:g}) under its trust: "
            f"{len(self.policies)} of {len(_list_private_policies())} private bandits, "
            f"{len(self.worlds)} of {len(list(WORLDS))} worlds, {self.replicates} replicates of "
            f"each, seed {self.seed}, {self.size} size."
        )

    def caption(self, world: str) -> str:
        """Describe an environment by its name, its summary and its rounds."""
        return f"{world}: {WORLDS[world].summary}; {self._count_rounds(world)} rounds"

    def layout(self) -> Layout:
        """Return an empty layout, since hundreds of lines would show nothing."""
        return Layout(panels=())

    def environment(self, world: str) -> AnyEnvironment:
        """Return the environment of this name."""
        return WORLDS[world].environment

    def parameters(self) -> dict[str, object]:
        """Return every choice, by option."""
        return {
            "size": self.size,
            "env": list(self.worlds),
            "policy": list(self.policies),
            "trust": list(self.trusts),
            **{name: getattr(self, name) for name in ("epsilon", "delta", "replicates", "seed")},
        }

    def command(self) -> str:
        """Return the command line that runs the leaderboard again."""
        arguments = ["kerchief", *plugins.flags(), "leaderboard"]
        for name, value in self.parameters().items():
            for argument in value if isinstance(value, list) else [value]:
                arguments += [f"--{name}", str(argument)]
        return shlex.join(arguments)

    def cells(self) -> tuple[Cell, ...]:
        """Return baselines, counterparts and private bandits by environment."""
        return self._cells_and_exclusions[0]

    @property
    def left_out(self) -> tuple[Exclusion, ...]:
        """Bandits that do not play where others of their division do."""
        return self._cells_and_exclusions[1]

    @functools.cached_property
    def _cells_and_exclusions(self) -> tuple[tuple[Cell, ...], tuple[Exclusion, ...]]:
        cells: list[Cell] = []
        exclusions: list[Exclusion] = []
        for world in self.worlds:
            private = []
            for configuration in self._list_candidates(world):
                reason = self._explain_refusal(configuration, world)
                if reason is None:
                    private.append(configuration)
                else:
                    exclusions.append(
                        Exclusion(
                            policy=configuration.policy,
                            trust=str(configuration.trust),
                            environment=world,
                            reason=reason,
                        )
                    )
            if not private:
                continue
            lineup = (*self._list_yardsticks(world), *map(parent_of, private), *private)
            cells += [
                self._build_cell(configuration, world) for configuration in dict.fromkeys(lineup)
            ]
        return tuple(cells), tuple(exclusions)

    def _list_candidates(self, world: str) -> list[Player]:
        """List the private bandits of an environment's division."""
        kind = ENVIRONMENTS[WORLDS[world].env].problem
        return [
            player(name, trust=trust, epsilon=self.epsilon)
            for name in self.policies
            if WORLDS[world].takes(POLICIES[name])
            for trust in self.trusts
            if trust in POLICIES[name].trusts_in(kind)
        ]

    def _explain_refusal(self, configuration: Player, world: str) -> str | None:
        problem = self.environment(world).problem(self._count_rounds(world))
        try:
            for candidate in (configuration, parent_of(configuration)):
                build_protected_policy(self._build_cell(candidate, world), problem)
        except InvalidValueError as refusal:
            return str(refusal)
        return None

    def _list_yardsticks(self, world: str) -> list[Player]:
        has_best_arm = isinstance(self.environment(world), HasBestArm)
        return [
            player(name)
            for name in YARDSTICKS
            if WORLDS[world].takes(POLICIES[name]) and (has_best_arm or not needs_best_arm(name))
        ]

    def _build_cell(self, configuration: Player, world: str) -> Cell:
        return Cell(
            player=configuration, world=world, delta=self.delta, horizon=self._count_rounds(world)
        )

    def _count_rounds(self, world: str) -> int:
        return WORLDS[world].horizon or self.horizon

    def boards(self, finished: Sequence[Result]) -> list[Board]:
        """Return standings by division and trust model, over complete worlds."""
        results = _index_results(finished)
        complete_worlds = [world for world in self.worlds if self._is_complete(world, results)]
        boards = []
        for division in dict.fromkeys(WORLDS[world].division for world in complete_worlds):
            worlds = tuple(world for world in complete_worlds if WORLDS[world].division == division)
            for trust in self.trusts:
                ranking = standings(results, self._list_players(trust, worlds), worlds)
                boards += [Board(division, trust, worlds, tuple(ranking))] if ranking else []
        return boards

    def _is_complete(self, world: str, results: Found) -> bool:
        cells = [cell for cell in self.cells() if cell.world == world]
        rows = [results.get((cell.player, world)) for cell in cells]
        return all(row is not None and row.uniform > 0 for row in rows)

    def _list_players(self, trust: str, worlds: Sequence[str]) -> list[Player]:
        cells = [cell for cell in self.cells() if cell.world in worlds]
        return list(dict.fromkeys(cell.player for cell in cells if cell.player.trust == trust))

    def tables(self, finished: Sequence[Result]) -> list[Table]:
        """Return standings and prices of each board, and the bandits left out."""
        results, tables = _index_results(finished), list[Table]()
        for board in self.boards(finished):
            name = f"{board.division}, {board.trust} trust"
            tables.append(overall(name, board.standings, len(board.worlds)))
            tables.append(by_world(f"{name}: {_OVER}", board.standings, board.worlds, results))
        lines = tuple(dataclasses.astuple(exclusion) for exclusion in self.left_out)
        headings = ("bandit", "trust", "environment", "why it is left out")
        exclusions = Table(caption="left out", headings=headings, lines=lines, columns="llll")
        return tables + [exclusions] * bool(lines)

    def preface(self) -> str:
        """Describe the page and the command that made it, in Markdown."""
        return f"# {self.title}\n\n{self.lead()} {self.note()}\n\n`{self.command()}`\n\n"

    def note(self) -> str:
        """Explain how to read the standings."""
        return (
            "A rank is one more than the number of bandits that lose less by at least "
            f"{ERRORS:g} standard errors of the difference on the same draws; = marks a rank that "
            "several have. % of uniform is regret over the mean regret of uniform play, averaged "
            "over the worlds of the division, with its standard error; the price is how much of "
            "that the same bandit without privacy does not lose; p95 is in the same unit; µs is "
            "the median time of a decision. Who did not play in all worlds has no rank."
        )

    def findings(self, finished: Sequence[Result]) -> dict[str, object]:
        """Return the standings and the bandits left out, as JSON."""
        return {
            "standings": [
                {"division": board.division, **standing.to_dict()}
                for board in self.boards(finished)
                for standing in board.standings
            ],
            "left_out": [dataclasses.asdict(exclusion) for exclusion in self.left_out],
        }


def _deduplicate_names(name: str, values: Sequence[str]) -> tuple[str, ...]:
    """Drop repeated names, and refuse what is no sequence of names."""
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise InvalidValueError(f"{name} is a {type(values).__name__}; give a tuple of names")
    if not all(isinstance(value, str) for value in values):
        raise InvalidValueError(f"{name} holds what is no name; give a tuple of names")
    return tuple(dict.fromkeys(values))


def _list_private_policies() -> tuple[str, ...]:
    """List the policies that are private under some trust model."""
    return tuple(name for name, entry in POLICIES.items() if len(entry.trusts) > 1)


def _index_results(results: Sequence[Result]) -> Found:
    return {(result.cell.player, result.cell.world): result for result in results}
