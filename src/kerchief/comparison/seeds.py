"""Seeds that numbers are chosen on: nothing that is reported is played on one of them."""

from __future__ import annotations

from kerchief.core.errors import InvalidValueError
from kerchief.core.validate import whole

SEEDS = tuple(range(11_000, 20_000, 1_000))
"""All of them."""


def tuning_seed(seed: int) -> int:
    """Return a seed if numbers may be chosen on it.

    >>> tuning_seed(0)
    Traceback (most recent call last):
    ...
    kerchief_protocol.errors.InvalidValueError: seed is 0, on which results are reported; numbers \
are chosen on 11000, 12000, 13000 and so on up to 19000
    """
    if whole("seed", seed, low=0, high=2**32 - 1) not in SEEDS:
        first = ", ".join(map(str, SEEDS[:3]))
        raise InvalidValueError(
            f"seed is {seed}, on which results are reported; numbers are chosen on {first} and so "
            f"on up to {SEEDS[-1]}"
        )
    return seed


def seed_warnings(seed: int) -> tuple[str, ...]:
    """What to say of results on a seed, one line each.

    >>> seed_warnings(0), len(seed_warnings(11_000))
    ((), 1)
    """
    if seed not in SEEDS:
        return ()
    return (f"seed is {seed}, on which defaults were tuned: results look too good; report others",)
