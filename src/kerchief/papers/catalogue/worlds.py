"""Families of worlds and of players that differ in one thing, and sizes of experiments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from kerchief.comparison.players import Player, player
from kerchief.core.errors import InvalidValueError
from kerchief.environments.worlds import make_environment
from kerchief.papers.experiment import Setting, Size
from kerchief.simulation.run import AnyEnvironment

Number = TypeVar("Number", int, float)


def by_contexts(
    *kinds: str, players: Mapping[str, tuple[Player, ...]] | None = None, **options: Any
) -> tuple[Setting, ...]:
    """Build one world per kind of contexts; `players` restricts who plays in a kind."""
    remaining = dict(players or {})
    settings = tuple(
        Setting(
            name=kind,
            make=partial(make_environment, contexts=kind, **options),
            players=remaining.pop(kind, ()),
        )
        for kind in kinds
    )
    if remaining:
        raise InvalidValueError(f"players are for {', '.join(remaining)}; no world is of that kind")
    return settings


def by_number(
    letter: str,
    numbers: Sequence[Number],
    make: Callable[[Number], AnyEnvironment],
    *,
    place: Callable[[Number], float] = float,
) -> tuple[Setting, ...]:
    """Build one world per number, such as "S=2", with its place on the axis."""
    return tuple(
        Setting(name=f"{letter}={number:g}", make=partial(make, number), number=place(number))
        for number in numbers
    )


def by_rounds(
    horizons: Sequence[int], make: Callable[..., AnyEnvironment], **options: Any
) -> tuple[Setting, ...]:
    """Build one kind of world at several horizons."""
    return tuple(
        Setting(
            name=f"T={rounds}", make=partial(make, **options), number=float(rounds), horizon=rounds
        )
        for rounds in horizons
    )


def names(settings: Sequence[Setting]) -> tuple[str, ...]:
    """Return the names of worlds."""
    return tuple(setting.name for setting in settings)


def players(*policies: str, **options: Any) -> tuple[Player, ...]:
    """Name several policies with the same options; see `player`."""
    return tuple(player(policy, **options) for policy in policies)


def size(horizon: int, replicates: int, *settings: str, players: tuple[Player, ...] = ()) -> Size:
    """Build a size from rounds, replicates and names of environments; see `Size`."""
    return Size(horizon=horizon, replicates=replicates, settings=settings, players=players)
