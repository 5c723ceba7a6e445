"""What every noise that is added to a vector must be: fresh, centred, as large as it says, priced.

Whether a promise is kept by it is for its privatizer (`checks.privatizer`) and its proof note, and
so are draws of noise on a cohort's sum, or on the prefixes of a stream.
"""

from __future__ import annotations

import dataclasses
import math
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from kerchief.checks.errors import expect, expect_frozen, law
from kerchief.checks.statistics import Floats, expect_deviation, fits_squares, normal_bound
from kerchief.core.random import DEVICE, Stream
from kerchief.mechanisms.binomial import Binomial, ExactBinomial
from kerchief.mechanisms.compass import Compass, ExactCompass
from kerchief.mechanisms.randomized_bits import ExactResponse, Response
from kerchief.privacy import Event, Gaussian, Laplace, NonPrivate, epsilon_at

_DRAWS, _EXACT, _DELTA = 8192, 2048, 1e-5
# What the users of a cohort add together: a draw of one of them says nothing.
_COHORT_NOISES = (Binomial, ExactBinomial, Response, ExactResponse)
# Of whose numbers the noisiest ones have the deviation that is stated, and all of them this share.
_ROUNDED, _SHARE = (Compass, ExactCompass), 0.85


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class MechanismCase:
    """A noise under test: it adds itself to a vector, and knows its deviation and its event."""

    noise: Any

    def __str__(self) -> str:
        """The kind."""
        return f"the noise {type(self.noise).__name__}"

    @property
    def place(self) -> Floats:
        """A vector to add it to: where it rounds nothing, or at the center of the statistics."""
        if isinstance(self.noise, _ROUNDED):
            return self.noise.corner
        center = np.atleast_1d(np.asarray(getattr(self.noise, "center", 0.0), np.float64))
        size = getattr(self.noise, "dimension", None)
        length = len(center) if hasattr(self.noise, "center") else 2
        return np.resize(center, length if size is None else int(size))


def added_alone(case: MechanismCase) -> bool:
    """Whether it is added to one vector; others protect the sum of many users, or all prefixes."""
    return hasattr(case.noise, "add") and not isinstance(case.noise, _COHORT_NOISES)


@lru_cache(maxsize=8)
def _draw_noise(case: MechanismCase) -> Floats:
    """Draw what the noise adds, one row per draw."""
    vector = case.place
    if case.noise.idealized:
        return np.asarray(_draw_many(case.noise, jnp.asarray(vector)), np.float64) - vector
    source = np.random.default_rng(7).bytes
    return np.stack([np.asarray(case.noise.add(vector, source)) for _ in range(_EXACT)]) - vector


@jax.jit
def _draw_many(noise: Any, vector: Array) -> Array:
    def draw(copy: Array) -> Array:
        added: Array = noise.add(vector, Stream.of(seed=7, replicate=copy).at(DEVICE))
        return added

    return jax.vmap(draw)(jnp.arange(_DRAWS, dtype=jnp.uint32))


@law(cheap=True)
def frozen_and_keyword_only(case: MechanismCase) -> None:
    """A noise is a frozen dataclass, so that what was priced is what is drawn."""
    expect_frozen(type(case.noise))


@law(cheap=True)
def its_event_is_priced(case: MechanismCase) -> None:
    """What it costs is known to the accountants, and is not nothing; silence is not private."""
    event = case.noise.event()
    expect(isinstance(event, Event), seen=f"{event!r}", expected="an event of kerchief.privacy")
    cost, silent = epsilon_at([event], _DELTA), float(case.noise.std) == 0
    expect((event == NonPrivate()) == silent, seen=f"{event}", expected="NonPrivate if silent")
    expect(silent or 0 < cost < math.inf, seen=f"epsilon {cost}", expected="a finite price")


@law(cheap=True, when=added_alone)
def its_event_is_about_its_deviation(case: MechanismCase) -> None:
    """Where the event is normal or Laplace noise, its multiplier is deviation over sensitivity."""
    event, std = case.noise.event(), float(case.noise.std)
    if isinstance(event, Gaussian):
        stated = event.noise_multiplier * case.noise.sensitivity
    elif isinstance(event, Laplace) and case.place.size == 1:
        stated = math.sqrt(2) * event.noise_multiplier * case.noise.sensitivity
    else:
        return
    close = math.isclose(std, stated, rel_tol=1e-6)
    expect(close, seen=f"a deviation of {std}", expected=f"{stated}, as charged")


@law(when=added_alone)
def draws_are_fresh(case: MechanismCase) -> None:
    """No two draws from different places of the randomness are alike, unless it is a coin."""
    draws = _draw_noise(case)
    coin = hasattr(case.noise, "reports")
    alike = len(draws) - len(np.unique(draws, axis=0))
    expect(coin or 2 * alike < len(draws), seen=f"{alike} draws again", expected="fresh ones")
    expect(np.ptp(draws) > 0, seen="one draw for all", expected="fresh ones")


@law(when=added_alone)
def draws_have_mean_zero(case: MechanismCase) -> None:
    """At the vector of `place` no coordinate is shifted (normal test, 1e-6 over all)."""
    draws = _draw_noise(case)
    room = normal_bound(draws.shape[1]) * draws.std() / math.sqrt(len(draws))
    worst = float(np.abs(draws.mean(axis=0)).max())
    expect(worst <= room, seen=f"a mean of {worst}", expected=f"0, within {room}")


@law(when=added_alone)
def draws_have_the_stated_deviation(case: MechanismCase) -> None:
    """Their mean square is the stated one (normal test, 1e-6); 2/3 and 3/2 of it are rejected."""
    share = _SHARE if isinstance(case.noise, _ROUNDED) else 1.0
    fits = partial(fits_squares, share=share)
    expect_deviation(_draw_noise(case), float(case.noise.std), fits=fits, law=None)
