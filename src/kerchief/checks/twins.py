"""The exact twin: the same law as the idealized noise, on a grid, within the same budget."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import jax
import numpy as np

from kerchief.checks.errors import expect, law
from kerchief.checks.leakage import bill, expect_noise_as_charged, rounded_sensitivity
from kerchief.checks.protocol import (
    ENDS,
    Noise,
    PrivatizerCase,
    drawn_noise,
    noises_of,
    records,
    released,
    statistics,
    told,
)
from kerchief.checks.statistics import expect_deviation
from kerchief.core.errors import InvalidValue
from kerchief.core.random import Stream
from kerchief.privacy import MemoryLedger
from kerchief.privatizers import Privatizer

__all__ = ["refuses", "twin_noise"]

_COPIES = 160


@law(when=lambda protocol: not refuses(protocol))
def exact_twin_has_the_same_law(protocol: PrivatizerCase) -> None:
    """The twin's noise is normal, as it states, as it charges, and never less than the idealized.

    800 draws a release from a seeded source of bytes; chi-square (2/3 and 3/2 of what is stated
    are rejected), Kolmogorov-Smirnov and Wishart's law, 1e-6 each.
    """
    noises = twin_noise(protocol)
    if not protocol.private:
        largest = max(float(np.abs(noise.draws).max()) for noise in noises)
        expect(largest <= protocol.rounding, seen=f"noise of {largest}", expected="none")
        return
    for noise, ideal in zip(noises, drawn_noise(protocol), strict=True):
        expect_deviation(noise.draws, noise.stated)
        enough = noise.stated >= ideal.stated * (1 - 1e-6)
        expect(enough, seen=f"noise of {noise.stated}", expected=f"at least {ideal.stated}")
    cost = bill(protocol.brief().exact().charges(len(ENDS))[:1])
    expect_noise_as_charged(noises, cost, rounded_sensitivity(protocol), turning=protocol.fits)


@law(when=lambda protocol: not refuses(protocol), cheap=True)
def exact_twin_fits_the_budget(protocol: PrivatizerCase) -> None:
    """The budget that pays for the idealized noise pays for the twin's."""
    ledger = MemoryLedger(protocol.guarantee)
    for charge in protocol.build().exact().charges(protocol.horizon):
        ledger.charge(charge.event, cohort=charge.cohort, capacity=charge.capacity)


@law()
def idealized_is_honest(protocol: PrivatizerCase) -> None:
    """Whatever says that it is not idealized adds exact noise and releases points of its grid."""
    plain = protocol.build()
    if refuses(protocol):
        expect(plain.idealized, seen="noise that is exact", expected="an idealized privatizer")
        return
    twin = plain.exact()
    expect(not twin.idealized, seen="an idealized twin", expected="one fit for deployment")
    sources = Stream.of(seed=1, replicate=0), np.random.default_rng(1).bytes
    for privatizer, source in zip((plain, twin), sources, strict=True):
        floats = any(noise.idealized for noise in privatizer.noises)
        said = privatizer.idealized
        expect(said == floats, seen=f"idealized: {said}", expected=f"{floats}, as its noise is")
        if not floats:
            _expect_points_of_a_grid(protocol, privatizer, source)


def refuses(protocol: PrivatizerCase) -> bool:
    """Whether it cannot be deployed: noisy fits to cohorts ask a device again and again."""
    if not (protocol.cohorts and protocol.private):
        return False
    try:
        protocol.build().exact()
    except InvalidValue:
        return True
    expect(False, seen="an exact twin", expected="a refusal, as devices report once")
    return False


def _expect_points_of_a_grid(protocol: PrivatizerCase, privatizer: Privatizer, source: Any) -> None:
    encoded = statistics(protocol.query, records(protocol.query, 3))
    for noise in privatizer.noises:
        grid = getattr(noise, "grid", None)
        expect(grid, seen=f"{type(noise).__name__} without a grid", expected="exact noise")
        release = released(protocol, privatizer, encoded, (3,), source)[0]
        steps = np.asarray(told(protocol, release)) / grid
        on_grid = np.array_equal(steps, np.rint(steps))
        expect(on_grid, seen=f"a release of {steps} steps", expected="whole numbers of steps")


@lru_cache(maxsize=32)
def twin_noise(protocol: PrivatizerCase) -> tuple[Noise, ...]:
    """The noise of each sum that the exact twin tells, in some copies of the protocol."""
    twin = protocol.brief().exact()
    encoded = statistics(protocol.query, records(protocol.query, ENDS[-1]))
    source: Any = (
        np.random.default_rng(0).bytes if protocol.private else Stream.of(seed=1, replicate=0)
    )
    count = _COPIES if protocol.private else 1
    copies = [released(protocol, twin, encoded, ENDS, source) for _ in range(count)]
    found: list[Noise] = []
    for end, *same in zip(ENDS, *copies, strict=True):
        beside = jax.tree.map(lambda *leaves: np.stack(leaves), *same)
        found += noises_of(protocol, encoded, end, beside)
    return tuple(found)
