"""A declared search: which numbers of a bandit, among which values, in which worlds, how long."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from tools.tuning.space import Candidate, Values, candidate, drawn, values_of

from kerchief.comparison.players import Cell, Player, player
from kerchief.comparison.seeds import tuning_seed
from kerchief.core import validate
from kerchief.core.errors import InvalidValueError
from kerchief.environments.registry import ENVIRONMENTS
from kerchief.planning.plan_config import read_toml
from kerchief.policies import POLICIES
from kerchief.privacy.guarantee import Trust
from kerchief.simulation.run import AnyEnvironment


@dataclasses.dataclass(frozen=True, kw_only=True)
class TuningWorld:
    """A world that candidates play in, under each of the trusts and at each of the epsilons."""

    name: str
    env: str
    horizon: int
    delta: float
    trusts: tuple[str, ...]
    epsilons: tuple[float, ...]
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check every value but the options, which the world itself checks."""
        validate.plain(self)
        _text("name", self.name)
        ENVIRONMENTS[self.env]
        validate.whole("horizon", self.horizon, low=2, high=validate.MOST_ROUNDS)
        validate.between("delta", self.delta, 0.0, 1.0)
        for trust in _several("trusts", self.trusts):
            validate.one_of("trust", trust, tuple(Trust))
        for epsilon in _several("epsilons", self.epsilons):
            validate.positive("epsilon", epsilon)
        _table("options", self.options)

    def environment(self) -> AnyEnvironment:
        """The world itself."""
        environment: AnyEnvironment = ENVIRONMENTS[self.env].make(**self.options)
        return environment

    def cells(self, policy: str, numbers: Candidate) -> list[Cell]:
        """A candidate under each trust, without protection once."""
        lines = [
            (trust, epsilon)
            for trust in self.trusts
            for epsilon in (self.epsilons if trust != "none" else (float("inf"),))
        ]
        players = [player(policy, trust=trust, epsilon=epsilon) for trust, epsilon in lines]
        return [self.cell(dataclasses.replace(bandit, numbers=numbers)) for bandit in players]

    def cell(self, one: Player) -> Cell:
        """A player in this world."""
        return Cell(player=one, world=self.name, delta=self.delta, horizon=self.horizon)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Budget:
    """How much is played.

    Attributes:
        candidates: how many play in each rung, the incumbent not counted.
        replicates: how often each of them plays there in every world.
        confirm: how often the best one and the incumbent play at last.
    """

    candidates: tuple[int, ...]
    replicates: tuple[int, ...]
    confirm: int

    def __post_init__(self) -> None:
        """Check that rungs narrow, and that each adds replicates to those of the one before."""
        validate.plain(self)
        for name in ("candidates", "replicates"):
            for count in _several(name, getattr(self, name)):
                validate.whole(name, count, high=10**6)
        validate.whole("confirm", self.confirm, low=2, high=10**6)
        falling = all(later <= first for first, later in itertools.pairwise(self.candidates))
        if not falling:
            raise InvalidValueError(
                f"candidates are {self.candidates}; give whole numbers that fall"
            )
        first = self.replicates[0]
        is_multiple = first > 1 and all(
            count % first == 0 for count in (*self.replicates, self.confirm)
        )
        rising = all(later > earlier for earlier, later in itertools.pairwise(self.replicates))
        if len(self.replicates) != len(self.candidates) or not is_multiple or not rising:
            raise InvalidValueError(
                f"replicates are {self.replicates} and confirm is {self.confirm}; give one number "
                "for each rung, from 2 on and rising, and all of them multiples of the first"
            )

    def narrowed(self, most: int) -> Budget:
        """Return a budget with so many candidates at first, and no more later."""
        validate.whole("budget", most, high=10**6)
        later = (min(count, most) for count in self.candidates[1:])
        return dataclasses.replace(self, candidates=(most, *later))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Search:
    """A search for the numbers that a bandit plays with by default.

    Attributes:
        policy: the bandit.
        space: for each number its values.
        incumbent: the numbers that stay unless they are beaten.
        seeds: on the first candidates are compared, on the second the best one is confirmed.
        held: why the incumbent stays whatever is found; empty where nothing holds it.
    """

    policy: str
    space: Mapping[str, Values]
    incumbent: Candidate
    budget: Budget
    seeds: tuple[int, ...]
    worlds: tuple[TuningWorld, ...]
    held: str = ""

    def __post_init__(self) -> None:
        """Check all but whether a bandit can play with these numbers; see `halving.check`."""
        POLICIES[self.policy]
        _text("held", self.held)
        for name, values in _table("space", self.space).items():
            values_of(name, values)
        if not self.space or {name for name, _ in self.incumbent} != self.space.keys():
            raise InvalidValueError(
                f"the space has {', '.join(self.space) or 'no number'} and the incumbent "
                f"{', '.join(name for name, _ in self.incumbent)}; give each number in both"
            )
        for seed in _several("seeds", self.seeds):
            tuning_seed(seed)
        if len(self.seeds) != 2 or self.seeds[0] == self.seeds[1]:
            raise InvalidValueError(
                f"seeds are {self.seeds}; give two, one to search on and another to confirm on"
            )
        if not self.candidates():
            raise InvalidValueError("the space holds the incumbent alone; give more values")
        names = [world.name for world in self.worlds]
        if not names or len(set(names)) < len(names):
            raise InvalidValueError(
                f"worlds are {names}; give at least one, each a name of its own"
            )

    @classmethod
    def read(cls, path: Path) -> Self:
        """A search as a TOML file declares it."""
        return cls.of(read_toml(path))

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> Self:
        """A search from what a file holds.

        >>> world = {"name": "coins", "env": "chance", "horizon": 99, "delta": 1e-5}
        >>> world |= {"trusts": ["local"], "epsilons": [1.0]}
        >>> table = {"policy": "ucb", "space": {"width": [0.5, 1.0]}, "incumbent": {"width": 1.0}}
        >>> table |= {"budget": {"candidates": [1], "replicates": [4], "confirm": 8}}
        >>> Search.of(table | {"seeds": [11_000, 12_000], "worlds": [world]}).candidates()
        ((('width', 0.5),),)
        """
        _check_fields("the search", table, cls)
        budget, worlds = table["budget"], table["worlds"]
        _check_fields("the budget", budget, Budget)
        for world in _several("worlds", worlds):
            _check_fields("a world", world, TuningWorld)
        return cls(
            policy=table["policy"],
            space={
                name: values_of(name, value)
                for name, value in _table("space", table["space"]).items()
            },
            incumbent=candidate(
                {
                    name: validate.at_least(name, value, 0.0)
                    for name, value in _table("incumbent", table["incumbent"]).items()
                }
            ),
            budget=Budget(**_tuples(budget)),
            seeds=tuple(_several("seeds", table["seeds"])),
            worlds=tuple(TuningWorld(**_tuples(world)) for world in worlds),
            held=table.get("held", ""),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the search as a table that `Search.of` reads."""
        fields: dict[str, Any] = _lists(dataclasses.asdict(self))
        return fields | {"incumbent": dict(self.incumbent)}

    def candidates(self) -> tuple[Candidate, ...]:
        """Draw the candidates of the first rung, without the incumbent."""
        first = self.budget.candidates[0]
        return drawn(self.space, first, without=self.incumbent, seed=self.seeds[0])

    def cells(self, numbers: Candidate) -> list[Cell]:
        """A candidate in every world under every trust."""
        return [cell for world in self.worlds for cell in world.cells(self.policy, numbers)]


def _check_fields(label: str, table: object, kind: type) -> None:
    """Refuse a table with unknown or missing fields, before anything is made of it."""
    fields = dataclasses.fields(kind)
    required = {field.name for field in fields if field.name not in ("options", "held")}
    names = _table(label, table).keys()
    wrong = [*(names - {field.name for field in fields}), *(required - names)]
    if wrong:
        raise InvalidValueError(
            f"{label} has {', '.join(map(repr, sorted(wrong)))} unknown or missing; "
            f"give {', '.join(field.name for field in fields)}"
        )


def _table(label: str, value: object) -> Mapping[str, Any]:
    """Return a table, or refuse a value that is none."""
    if not isinstance(value, Mapping):
        raise InvalidValueError(f"{label} is {repr(value)[:80]}; give a table of names and values")
    return value


def _text(label: str, value: object) -> None:
    if not isinstance(value, str):
        raise InvalidValueError(f"{label} is {repr(value)[:80]}; give a text")


def _several(label: str, value: object) -> Sequence[Any]:
    """Return a list, or refuse a value that is none or empty."""
    if not isinstance(value, list | tuple) or not value:
        raise InvalidValueError(f"{label} is {repr(value)[:80]}; give a list that is not empty")
    return value


def _tuples(table: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else value
        for name, value in table.items()
    }


def _lists(value: Any) -> Any:
    """Turn tuples into lists, as JSON gives them back."""
    if isinstance(value, Mapping):
        return {name: _lists(entry) for name, entry in value.items()}
    return [_lists(entry) for entry in value] if isinstance(value, list | tuple) else value
