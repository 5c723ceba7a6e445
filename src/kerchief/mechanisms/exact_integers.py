"""Exact coins and exact choices, from a source of random bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from kerchief.core.errors import InvalidValue
from kerchief.core.validate import whole

__all__ = ["UNITS", "Randomness", "below", "drawn", "word", "words"]

Randomness: TypeAlias = Callable[[int], bytes]
"""Gives n independent uniform bytes when called with n."""

UNITS = 2**32
"""Chances of exact coins are multiples of one over this."""


def drawn(count: int, source: Randomness) -> bytes:
    """As many bytes as were asked for; a source that gives another number is refused."""
    data = source(count)
    if len(data) != count:
        raise InvalidValue(f"randomness gave {len(data)} bytes; it must give the {count} asked for")
    return data


def word(source: Randomness) -> int:
    """A whole number uniform below `UNITS`: it is below n with chance exactly n/`UNITS`.

    >>> word(lambda count: bytes([1, 0, 0, 0]))
    1
    """
    return int.from_bytes(drawn(4, source), "little")


def words(size: int, source: Randomness) -> NDArray[np.int64]:
    """As many such numbers."""
    return np.frombuffer(drawn(4 * size, source), dtype="<u4").astype(np.int64)


def below(limit: int, source: Randomness) -> int:
    """A whole number uniform below a limit of at most `UNITS`: words that favour some are redrawn.

    >>> below(10, lambda count: bytes([17, 0, 0, 0]))
    7
    """
    limit = whole("limit", limit, high=UNITS)
    fair = UNITS - UNITS % limit
    while (number := word(source)) >= fair:
        pass
    return number % limit
