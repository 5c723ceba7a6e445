"""Where random bytes come from."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from kerchief_protocol.errors import InvalidValueError

Randomness: TypeAlias = Callable[[int], bytes]
"""Gives n independent uniform bytes when called with n."""


def drawn(count: int, source: Randomness) -> bytes:
    """Draw exactly this many random bytes.

    Raises:
        InvalidValueError: the source gave another number of them.
    """
    data = source(count)
    if len(data) != count:
        raise InvalidValueError(
            f"randomness gave {len(data)} bytes; it must give the {count} asked for"
        )
    return data
