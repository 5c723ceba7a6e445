"""How much a privatizer's releases tell about one user, all of them together."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from kerchief.checks.errors import expect
from kerchief.checks.protocol import Noise, PrivatizerCase
from kerchief.checks.statistics import Floats, most_deviation, precision_range
from kerchief.privacy import Composed, Event, Repeated
from kerchief.privacy.composition import leaves
from kerchief.privacy.receipts import Charge


def charged_multiplier(event: Event) -> float:
    """The noise multiplier of the one Gaussian that costs as much as an event made of some.

    >>> from kerchief.privacy import Gaussian, Repeated
    >>> charged_multiplier(Repeated(event=Gaussian(noise_multiplier=6.0), count=9))
    2.0
    """
    parts: Any = leaves([event]).items()
    return 1 / math.sqrt(sum(count / leaf.noise_multiplier**2 for leaf, count in parts))


def rounded_sensitivity(protocol: PrivatizerCase) -> float:
    """The sensitivity, a hair wider where statistics are rounded to a grid with a margin."""
    return float(protocol.query.sensitivity + protocol.step * math.sqrt(protocol.width))


def bill(charges: Iterable[Charge]) -> Event:
    """All that one user pays, in one event."""
    return Composed(
        events=tuple(Repeated(event=charge.event, count=charge.capacity) for charge in charges)
    )


def expect_noise_as_charged(
    noises: Sequence[Noise],
    event: Event,
    sensitivity: float,
    *,
    turning: bool,
    alone: int | None = None,
) -> None:
    """All releases together tell as much about a user as was charged, and not more.

    One user moves the total by a vector of length Δ, in the release that first speaks about them
    and in every later one. With Σ the covariance of the noise over the releases and u the indicator
    of those releases, the transcript is a Gaussian release of multiplier 1 / (Δ √(uᵀ Σ⁻¹ u)).
    Exact tests on Wishart's law, 1e-6 over all places of the user. If a user may move each sum in
    another direction, as with gradients (`turning`), u with changing signs is looked at too. If
    none but the sums of one fit speak about a user, `alone` is how many those are.
    """
    draws, multiplier = _stack_draws(noises), charged_multiplier(event)
    places: Floats = np.tri(len(noises)).T
    if alone is not None:
        places = np.kron(np.eye(len(noises) // alone), np.ones(alone)).astype(np.float64)
    if turning:
        places = np.concatenate([places, places * (-1.0) ** np.arange(len(noises))])
    ranges = [precision_range(draws, place, len(places)) for place in places]
    # High precision is a low multiplier. Rows: the least and the most that it may be.
    lowest, highest = 1 / (sensitivity * np.sqrt(np.array(ranges)[:, ::-1].T))
    observed = (
        f"multipliers of {lowest.round(4)} to {highest.round(4)}, by the user's first release"
    )
    expect(
        (multiplier <= highest).all(), seen=observed, expected=f"{multiplier}, as charged, or more"
    )
    expect(
        (multiplier >= lowest).any(), seen=observed, expected=f"{multiplier} for some, as charged"
    )


def expect_fresh(noises: Sequence[Noise], charged: float) -> None:
    """What two successive sums differ by is new noise, at least as much as was charged.

    A user who is first in the later sum is hidden by the difference alone, and by no more of it
    than the earlier sums leave open: the part of its noise that no mixture of theirs foretells.
    That part has the charged deviation or more (chi-square at 1e-6; two thirds of it are rejected),
    and in no copy is the difference nothing.
    """
    draws = _stack_draws(noises)
    squares = draws @ draws.T
    # The diagonal of the root: what is left of each sum's noise beside the earlier ones'. Noise
    # that was drawn once and used twice leaves nothing: not quite nothing here.
    fresh = np.diag(np.linalg.cholesky(squares + 1e-12 * np.trace(squares) * np.eye(len(squares))))
    for place in range(1, len(noises)):
        apart = np.abs(noises[place].draws - noises[place - 1].draws).max(axis=1)
        again = int((apart <= 1e-9 * charged).sum())
        pair = f"sums {place} and {place + 1}"
        observed = f"{pair} have the same noise in {again} of {len(apart)} copies"
        expect(not again, seen=observed, expected="fresh noise in each")
        size = draws.shape[1]
        observed = f"{pair} differ by fresh noise of deviation {fresh[place] / math.sqrt(size):.4g}"
        bound = most_deviation(fresh[place] ** 2, size - place)
        expect(charged <= bound, seen=observed, expected=f"at least {charged:.4g}, as charged")


def _stack_draws(noises: Sequence[Noise]) -> Floats:
    return np.stack([noise.draws.ravel() for noise in noises])
