"""Families of worlds that differ in one thing, as experiments play them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from kerchief.core.errors import InvalidValue
from kerchief.environments.worlds import make_environment
from kerchief.experiments.experiment import Setting
from kerchief.experiments.players import Player
from kerchief.simulation.run import AnyEnvironment

Number = TypeVar("Number", int, float)


def by_contexts(
    *kinds: str, players: Mapping[str, tuple[Player, ...]] | None = None, **options: Any
) -> tuple[Setting, ...]:
    """One world per kind of contexts, named after it; `players` are those of kinds, if not all."""
    left = dict(players or {})
    made = tuple(
        Setting(
            name=kind,
            make=partial(make_environment, contexts=kind, **options),
            players=left.pop(kind, ()),
        )
        for kind in kinds
    )
    if left:
        raise InvalidValue(f"players are for {', '.join(left)}; no world is of that kind")
    return made


def by_number(
    letter: str,
    numbers: Sequence[Number],
    make: Callable[[Number], AnyEnvironment],
    *,
    place: Callable[[Number], float] = float,
) -> tuple[Setting, ...]:
    """One world per number, such as "S=2", and its place on the picture's axis of worlds."""
    return tuple(
        Setting(name=f"{letter}={one:g}", make=partial(make, one), number=place(one))
        for one in numbers
    )


def by_rounds(
    horizons: Sequence[int], make: Callable[..., AnyEnvironment], **options: Any
) -> tuple[Setting, ...]:
    """One kind of world at several lengths."""
    return tuple(
        Setting(
            name=f"T={rounds}", make=partial(make, **options), number=float(rounds), horizon=rounds
        )
        for rounds in horizons
    )


def names(settings: Sequence[Setting]) -> tuple[str, ...]:
    """What the worlds are called."""
    return tuple(one.name for one in settings)
