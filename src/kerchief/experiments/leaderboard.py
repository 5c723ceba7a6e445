"""All private bandits at one guarantee on common worlds: who loses least under each trust."""

from __future__ import annotations

import dataclasses
import functools
import shlex
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kerchief.core import validate
from kerchief.core.contracts import Singles
from kerchief.core.errors import InvalidValue
from kerchief.environments.registry import ENVIRONMENTS
from kerchief.experiments import plugins
from kerchief.experiments.leaderboard_worlds import WORLDS, SizeName
from kerchief.experiments.parts import arranged
from kerchief.experiments.plan import Layout, Plan
from kerchief.experiments.players import YARDSTICKS, Cell, Player, needs_telling, player
from kerchief.experiments.results import Result
from kerchief.experiments.standings import (
    ERRORS,
    Found,
    Standing,
    by_world,
    overall,
    parent_of,
    standings,
)
from kerchief.experiments.tables import Table
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
class LeftOut:
    """A bandit that does not play in a world of its division, and why."""

    policy: str
    trust: str
    world: str
    reason: str


class Board(NamedTuple):
    """The standings of one division under one trust, over these worlds."""

    division: str
    trust: str
    worlds: tuple[str, ...]
    standings: tuple[Standing, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Leaderboard(Plan):
    """Every private bandit under every trust, at one epsilon and delta; see `Leaderboard.of`.

    Attributes:
        worlds: by name, from `WORLDS`.
        policies: by name; those that are private under no trust are refused.
        trusts: the words under which they play.
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
            if getattr(self, name) != (_listed(name, getattr(self, name)) or None):
                raise InvalidValue(f"{name} is empty, or names something twice; name each once")
        for world in self.worlds:
            WORLDS[world]
        for trust in self.trusts:
            validate.one_of("trust", trust, _PRIVATE)
        for policy in self.policies:
            if len(POLICIES[policy].trusts) == 1:
                raise InvalidValue(f"policy {policy!r} is private under no trust; leave it out")
        if not any(cell.asked for cell in self.cells()):
            raise InvalidValue(
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
        """A leaderboard of a size: by default of all its worlds, of all private bandits.

        >>> board = Leaderboard.of(size="quick", worlds=("chance",), policies=("ucb", "tsallis"))
        >>> [cell.label() for cell in board.cells()][-2:]
        ['ucb local ε=1', 'tsallis local ε=1']
        """
        validate.one_of("size", size, tuple(_HORIZONS))
        usual = [name for name, one in WORLDS.items() if size in one.sizes]
        offered = _QUICK if size == "quick" else _private()
        return cls(
            size=size,
            worlds=_listed("worlds", worlds) or tuple(usual),
            policies=tuple(map(POLICIES.own_name, _listed("policies", policies))) or offered,
            trusts=_listed("trusts", trusts) or _PRIVATE,
            epsilon=epsilon,
            delta=delta,
            horizon=_HORIZONS[size],
            replicates=_REPLICATES[size] if replicates is None else replicates,
            seed=seed,
        )

    def lead(self) -> str:
        """What was asked of all, and how it is counted."""
        return (
            f"Every bandit promises ({self.epsilon:g}, {self.delta:g}) under its trust: "
            f"{len(self.policies)} of {len(_private())} private bandits, {len(self.worlds)} of "
            f"{len(list(WORLDS))} worlds, {self.replicates} replicates of each, seed {self.seed}, "
            f"{self.size} size."
        )

    def caption(self, world: str) -> str:
        """The name, what it is, and how long it was played."""
        return f"{world}: {WORLDS[world].summary}; {self._rounds(world)} rounds"

    def layout(self) -> Layout:
        """No picture: hundreds of lines would show nothing."""
        return Layout(panels=())

    def environment(self, world: str) -> AnyEnvironment:
        """The world of that name."""
        return WORLDS[world].environment

    def parameters(self) -> dict[str, object]:
        """Everything that was chosen."""
        return {
            "size": self.size,
            "world": list(self.worlds),
            "policy": list(self.policies),
            "trust": list(self.trusts),
            **{name: getattr(self, name) for name in ("epsilon", "delta", "replicates", "seed")},
        }

    def command(self) -> str:
        """The command line that plays it again."""
        words = ["kerchief", "leaderboard", *plugins.flags()]
        for name, value in self.parameters().items():
            for one in value if isinstance(value, list) else [value]:
                words += [f"--{one}"] if name == "size" else [f"--{name}", str(one)]
        return shlex.join(word for word in words if word != "--usual")

    def cells(self) -> tuple[Cell, ...]:
        """World by world: yardsticks, parents, and all private bandits that can play there."""
        return self._fitted[0]

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        """Who does not play where others of the division do."""
        return self._fitted[1]

    @functools.cached_property
    def _fitted(self) -> tuple[tuple[Cell, ...], tuple[LeftOut, ...]]:
        cells: list[Cell] = []
        out: list[LeftOut] = []
        for world in self.worlds:
            private = []
            for one in self._candidates(world):
                reason = self._refusal(one, world)
                if reason is None:
                    private.append(one)
                else:
                    out.append(
                        LeftOut(policy=one.policy, trust=str(one.trust), world=world, reason=reason)
                    )
            if not private:
                continue
            lineup = (*self._yardsticks(world), *map(parent_of, private), *private)
            cells += [self._cell(one, world) for one in dict.fromkeys(lineup)]
        return tuple(cells), tuple(out)

    def _candidates(self, world: str) -> list[Player]:
        """The private bandits of a world's division."""
        kind = ENVIRONMENTS[WORLDS[world].env].problem
        return [
            player(name, trust=trust, epsilon=self.epsilon)
            for name in self.policies
            if WORLDS[world].takes(POLICIES[name])
            for trust in self.trusts
            if trust in POLICIES[name].trusts_in(kind)
        ]

    def _refusal(self, one: Player, world: str) -> str | None:
        problem = self.environment(world).problem(self._rounds(world))
        try:
            for each in (one, parent_of(one)):
                arranged(self._cell(each, world), problem)
        except InvalidValue as refusal:
            return str(refusal)
        return None

    def _yardsticks(self, world: str) -> list[Player]:
        told = isinstance(self.environment(world), Singles)
        return [
            player(name)
            for name in YARDSTICKS
            if WORLDS[world].takes(POLICIES[name]) and (told or not needs_telling(name))
        ]

    def _cell(self, one: Player, world: str) -> Cell:
        return Cell(player=one, world=world, delta=self.delta, horizon=self._rounds(world))

    def _rounds(self, world: str) -> int:
        return WORLDS[world].horizon or self.horizon

    def boards(self, finished: Sequence[Result]) -> list[Board]:
        """Standings for each division and trust, over the worlds that are finished."""
        found = _by_player(finished)
        whole = [world for world in self.worlds if self._is_whole(world, found)]
        boards = []
        for division in dict.fromkeys(WORLDS[world].division for world in whole):
            worlds = tuple(world for world in whole if WORLDS[world].division == division)
            for trust in self.trusts:
                made = standings(found, self._players(trust, worlds), worlds)
                boards += [Board(division, trust, worlds, tuple(made))] if made else []
        return boards

    def _is_whole(self, world: str, found: Found) -> bool:
        cells = [cell for cell in self.cells() if cell.world == world]
        rows = [found.get((cell.player, world)) for cell in cells]
        return all(row is not None and row.uniform > 0 for row in rows)

    def _players(self, trust: str, worlds: Sequence[str]) -> list[Player]:
        cells = [cell for cell in self.cells() if cell.world in worlds]
        return list(dict.fromkeys(one.player for one in cells if one.player.trust == trust))

    def tables(self, finished: Sequence[Result]) -> list[Table]:
        """Standings and prices for each division and trust, and who is left out."""
        found, made = _by_player(finished), list[Table]()
        for one in self.boards(finished):
            name = f"{one.division}, {one.trust} trust"
            made.append(overall(name, one.standings, len(one.worlds)))
            made.append(by_world(f"{name}: {_OVER}", one.standings, one.worlds, found))
        lines = tuple(dataclasses.astuple(one) for one in self.left_out)
        headings = ("bandit", "trust", "world", "why it is left out")
        left = Table(caption="left out", headings=headings, lines=lines, columns="llll")
        return made + [left] * bool(lines)

    def preface(self) -> str:
        """What the page is, and how it was made."""
        return f"# {self.title}\n\n{self.lead()} {self.note()}\n\n`{self.command()}`\n\n"

    def note(self) -> str:
        """How to read the standings."""
        return (
            "A rank is one more than the number of bandits that lose less by at least "
            f"{ERRORS:g} standard errors of the difference on the same draws; = marks a rank that "
            "several have. % of uniform is regret over the mean regret of uniform play, averaged "
            "over the worlds of the division, with its standard error; the price is how much of "
            "that the same bandit without privacy does not lose; p95 is in the same unit; µs is "
            "the median time of a decision. Who did not play in all worlds has no rank."
        )

    def findings(self, finished: Sequence[Result]) -> dict[str, object]:
        """The standings and who is left out, as JSON."""
        return {
            "standings": [
                {"division": board.division, **one.to_dict()}
                for board in self.boards(finished)
                for one in board.standings
            ],
            "left_out": [dataclasses.asdict(one) for one in self.left_out],
        }


def _listed(name: str, given: Sequence[str]) -> tuple[str, ...]:
    """Words without those that were said twice."""
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise InvalidValue(f"{name} is a {type(given).__name__}; give a tuple of names")
    if not all(isinstance(one, str) for one in given):
        raise InvalidValue(f"{name} holds what is no name; give a tuple of names")
    return tuple(dict.fromkeys(given))


def _private() -> tuple[str, ...]:
    """The bandits that are private under some trust."""
    return tuple(name for name, one in POLICIES.items() if len(one.trusts) > 1)


def _by_player(finished: Sequence[Result]) -> Found:
    return {(one.cell.player, one.cell.world): one for one in finished}
