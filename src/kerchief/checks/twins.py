"""The exact twin: the same law as the idealized noise, on a grid, within the same budget."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from kerchief.checks.errors import Law, expect, laws_of
from kerchief.checks.protocol import Protocol, drawn_noise, records, released, statistics
from kerchief.checks.statistics import ERROR, fits_deviation, normality
from kerchief.core.contracts import Example
from kerchief.core.random import Stream
from kerchief.privacy import MemoryLedger
from kerchief.privatizers import CohortSums

__all__ = ["yield_twin_checks"]

Floats = NDArray[np.float64]

_DRAWS = 120


def yield_twin_checks() -> Iterator[tuple[str, Law[Protocol]]]:
    """Name and function of every law of twins."""
    return laws_of(exact_twin_has_the_same_law, exact_twin_fits_the_budget, idealized_is_honest)


def exact_twin_has_the_same_law(protocol: Protocol) -> None:
    """The twin's noise is normal with the idealized deviation; 2/3 and 3/2 of it are rejected.

    600 draws from a seeded source of bytes; chi-square and Kolmogorov-Smirnov, 1e-6 each.
    """
    noise = _twin_noise(protocol, protocol.build().exact())
    if not protocol.private:
        largest = float(np.abs(noise).max())
        expect(largest <= 1e-12, seen=f"noise of {largest}", expected="none")
        return
    stated = drawn_noise(protocol)[0].stated
    verdict = [fits_deviation(noise, stated * factor) for factor in (1.0, 2 / 3, 3 / 2)]
    seen = f"a deviation of {noise.std()}; accepted at 1, 2/3, 3/2 of {stated}: {verdict}"
    expect(verdict == [True, False, False], seen=seen, expected=f"{stated} alone")
    chance = normality(noise, stated)
    expect(chance >= ERROR, seen=f"a p-value of {chance}", expected=f"at least {ERROR}")


def exact_twin_fits_the_budget(protocol: Protocol) -> None:
    """The budget that pays for the idealized noise pays for the twin's."""
    ledger = MemoryLedger(protocol.guarantee)
    for charge in protocol.build().exact().charges(protocol.horizon):
        ledger.charge(charge.event, cohort=charge.cohort)


def idealized_is_honest(protocol: Protocol) -> None:
    """Whatever says that it is not idealized adds exact noise and releases points of its grid."""
    plain = protocol.build()
    twin = plain.exact()
    expect(not twin.idealized, seen="an idealized twin", expected="one fit for deployment")
    for privatizer, source in ((plain, Stream.of(seed=1, replicate=0)), (twin, _bytes(1))):
        noises = [noise for noise in (privatizer.device, privatizer.middle) if noise is not None]
        floats = any(noise.idealized for noise in noises)
        said = privatizer.idealized
        expect(said == floats, seen=f"idealized: {said}", expected=f"{floats}, as its noise is")
        if not floats:
            _expect_points_of_a_grid(privatizer, source, noises)


def _expect_points_of_a_grid(privatizer: CohortSums, source: Any, noises: Sequence[Any]) -> None:
    user = Example(features=jnp.asarray([0.3, -0.7]), reward=jnp.asarray(0.1))
    for noise in noises:
        grid = getattr(noise, "grid", None)
        expect(grid, seen=f"{type(noise).__name__} without a grid", expected="exact noise")
        steps = np.asarray(released(privatizer, [user], (1,), source)[0].total) / grid
        on_grid = np.array_equal(steps, np.rint(steps))
        expect(on_grid, seen=f"a release of {steps} steps", expected="whole numbers of steps")


def _twin_noise(protocol: Protocol, twin: CohortSums) -> Floats:
    user = records(protocol.query, 1)
    exact = statistics(protocol.query, user)[0]
    source = _bytes(0) if protocol.private else Stream.of(seed=1, replicate=0)
    draws = range(_DRAWS if protocol.private else 1)
    totals = [released(twin, user, (1,), source)[0].total for _ in draws]
    noise: Floats = np.stack([np.asarray(total) for total in totals]) - exact
    return noise


def _bytes(seed: int) -> object:
    return np.random.default_rng(seed).bytes
