"""Exact coins and exact choices, one at a time, from a source of random bytes."""

from __future__ import annotations

from kerchief.core.errors import InvalidValue
from kerchief.core.validate import whole
from kerchief.mechanisms.discrete_gaussian import Randomness

__all__ = ["UNITS", "below", "word"]

UNITS = 2**32
"""Chances of exact coins are multiples of one over this."""


def word(source: Randomness) -> int:
    """A whole number uniform below `UNITS`: it is below n with chance exactly n/`UNITS`.

    >>> word(lambda count: bytes([1, 0, 0, 0]))
    1
    """
    data = source(4)
    if len(data) != 4:
        raise InvalidValue(f"randomness gave {len(data)} bytes; it must give the 4 asked for")
    return int.from_bytes(data, "little")


def below(limit: int, source: Randomness) -> int:
    """A whole number uniform below a limit of at most `UNITS`: words that favour some are redrawn.

    >>> below(10, lambda count: bytes([17, 0, 0, 0]))
    7
    """
    limit = whole("limit", limit, high=UNITS)
    fair = UNITS - UNITS % limit
    while (drawn := word(source)) >= fair:
        pass
    return drawn % limit
