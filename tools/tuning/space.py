"""What a search may choose from: values of each number, and the candidates made of them."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping
from typing import Literal, TypeAlias

import numpy as np

from kerchief.core import validate
from kerchief.core.errors import InvalidValueError

Candidate: TypeAlias = tuple[tuple[str, float], ...]
"""Numbers with their values, in the order of their names: as `Player.numbers`."""

_DIGITS = 3
_TRIES = 100


@dataclasses.dataclass(frozen=True, kw_only=True)
class Interval:
    """All values between two, of which each is as likely as any other on a scale."""

    low: float
    high: float
    scale: Literal["linear", "log"] = "linear"

    def __post_init__(self) -> None:
        """Check the bounds."""
        validate.plain(self)
        validate.one_of("scale", self.scale, ("linear", "log"))
        least = 1e-12 if self.scale == "log" else 0.0
        validate.between("low", self.low, least, 1e9, closed=True)
        validate.between("high", self.high, self.low, 1e9)

    def at(self, share: float) -> float:
        """The value at a share of the way, with few digits: it may become a default.

        >>> Interval(low=0.01, high=1.0, scale="log").at(0.5)
        0.1
        """
        low, high = self.low, self.high
        exact = low * (high / low) ** share if self.scale == "log" else low + share * (high - low)
        return float(f"{exact:.{_DIGITS}g}")


Values: TypeAlias = tuple[float, ...] | Interval


def values_of(name: str, given: object) -> Values:
    """Read the values of a number: a list, or a table with low, high and scale.

    >>> values_of("width", [0.5, 1])
    (0.5, 1.0)
    >>> values_of("width", [])
    Traceback (most recent call last):
    ...
    kerchief_protocol.errors.InvalidValueError: width is []; give a list of values, or a table \
with low, high and scale
    """
    if isinstance(given, Interval):
        return given
    if isinstance(given, Mapping) and {"low", "high"} <= given.keys() <= {"low", "high", "scale"}:
        return Interval(**given)
    if not isinstance(given, list | tuple) or not given:
        raise InvalidValueError(
            f"{name} is {repr(given)[:80]}; give a list of values, or a table with low, high and "
            "scale"
        )
    return tuple(validate.at_least(name, value, 0.0) for value in given)


def edges(space: Mapping[str, Values]) -> tuple[Candidate, Candidate]:
    """The candidate with the least value of every number, and that with the greatest."""
    least = {
        name: values.low if isinstance(values, Interval) else min(values)
        for name, values in space.items()
    }
    greatest = {
        name: values.high if isinstance(values, Interval) else max(values)
        for name, values in space.items()
    }
    return candidate(least), candidate(greatest)


def candidate(numbers: Mapping[str, float]) -> Candidate:
    """Numbers in the order of their names."""
    return tuple(sorted(numbers.items()))


def drawn(
    space: Mapping[str, Values], count: int, *, without: Candidate, seed: int
) -> tuple[Candidate, ...]:
    """The whole grid where it has no more than so many candidates, else a sample by the seed.

    >>> space = {"width": (0.5, 1.0, 2.0)}
    >>> drawn(space, 5, without=(("width", 1.0),), seed=11_000)
    ((('width', 0.5),), (('width', 2.0),))
    >>> len(drawn(space | {"floor": Interval(low=0.1, high=1.0)}, 5, without=(), seed=11_000))
    5
    """
    lists = [values for values in space.values() if not isinstance(values, Interval)]
    if len(lists) == len(space) and math.prod(map(len, lists)) <= count + 1:
        grid = (
            candidate(dict(zip(space, numbers, strict=True)))
            for numbers in itertools.product(*lists)
        )
        return tuple(choice for choice in dict.fromkeys(grid) if choice != without)[:count]
    generator = np.random.default_rng(seed)
    sample: dict[Candidate, None] = {}
    # A narrow interval may have fewer values than are asked for.
    for _ in range(_TRIES * count):
        choice = candidate({name: _draw_value(values, generator) for name, values in space.items()})
        sample |= {} if choice == without or len(sample) == count else {choice: None}
    return tuple(sample)


def _draw_value(values: Values, generator: np.random.Generator) -> float:
    share = float(generator.random())
    return values.at(share) if isinstance(values, Interval) else values[int(share * len(values))]
