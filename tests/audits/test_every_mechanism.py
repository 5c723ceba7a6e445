"""Every registered mechanism draws what its event charges for, and two thirds of it are rejected.

Outputs are drawn as for the audits, on one of the two inputs. What an event says about them is held
against what was drawn: a deviation (chi-square), a mean absolute value (Laplace), how much all
prefixes of a stream tell together (Wishart), or the chance of one side of a coin or of one part of
the candidates (binomial). Each test errs with 1e-6, and seeds are fixed.
"""

from __future__ import annotations

import dataclasses
import importlib
import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pytest
from numpy.typing import NDArray

from kerchief.audits.specimens import SPECIMENS
from kerchief.mechanisms.registry import MECHANISMS
from kerchief.privacy.composition import leaves
from kerchief.privacy.randomized_bits import KEEP_UNIT

Floats: TypeAlias = NDArray[np.float64]
Judge: TypeAlias = Callable[[Any, Floats], bool]
Weaken: TypeAlias = Callable[[Any], Any]

ERROR, EPSILON, DELTA = 1e-6, 1.0, 1e-5
stats: Any = importlib.import_module("scipy.stats")


def multiplier(event: Any) -> float:
    """The noise multiplier of the one Gaussian that costs as much as an event made of some."""
    parts: Any = leaves([event]).items()
    return 1 / math.sqrt(sum(count / leaf.noise_multiplier**2 for leaf, count in parts))


def inside(law: Any, value: float) -> bool:
    """Whether a value is where a law puts it, but for the error."""
    return bool(law.ppf(ERROR / 2) <= value <= law.isf(ERROR / 2))


def drawn(noise: Any, outputs: Floats) -> Floats:
    """The noise in the outputs: the input was half the sensitivity."""
    added: Floats = outputs[:, 0, 0] - noise.sensitivity / 2
    return added


def deviates(noise: Any, std: float, outputs: Floats) -> bool:
    """Whether normal noise may have this deviation."""
    return inside(stats.chi2(len(outputs)), float(np.square(drawn(noise, outputs) / std).sum()))


def normal(noise: Any, outputs: Floats) -> bool:
    """One number with normal noise of the multiplier that is charged."""
    return deviates(noise, multiplier(noise.event()) * noise.sensitivity, outputs)


def bits(noise: Any, outputs: Floats) -> bool:
    """A sum of so many users' bits, each kept with the chance that is charged."""
    event = noise.event()
    each = (1 - event.keep**2) / (event.bits * event.keep**2)
    return deviates(noise, noise.bound * math.sqrt(event.users * each), outputs)


def laplace(noise: Any, outputs: Floats) -> bool:
    """Absolute values have an exponential law, of the scale that is charged."""
    event: Any = noise.event()
    ratio = event.noise_multiplier if hasattr(event, "noise_multiplier") else 1 / event.epsilon
    total = np.abs(drawn(noise, outputs)).sum() / (ratio * noise.taxicab)
    return inside(stats.chi2(2 * len(outputs)), 2 * float(total))


def stream(noise: Any, outputs: Floats) -> bool:
    """All prefixes together tell what one release of the multiplier that is charged tells.

    The first user moves every prefix alike. With Σ the covariance of the noise over the prefixes,
    that is 1ᵀ Σ⁻¹ 1; over its estimate it is chi-square (Wishart).
    """
    prefixes = (outputs[:, :, 0] - noise.sensitivity / 2).T
    rows, count = prefixes.shape
    ones = np.ones(rows)
    estimate = float(ones @ np.linalg.solve(prefixes @ prefixes.T / count, ones))
    charged = 1 / (multiplier(noise.event()) * noise.sensitivity) ** 2
    return inside(stats.chi2(count - rows + 1), count * charged / estimate)


def chance(share: float, outputs: Floats, above: float) -> bool:
    """Whether outputs are above a number as often as they should."""
    return inside(stats.binom(len(outputs), share), int((outputs[:, 0, 0] > above).sum()))


def coin(noise: Any, outputs: Floats) -> bool:
    """The likelier side has the chance e^ε / (1 + e^ε)."""
    return chance(1 / (1 + math.exp(-noise.event().epsilon)), outputs, 0.0)


def privunit(noise: Any, outputs: Floats) -> bool:
    """Beyond the threshold, which is the ball's radius, with p: e^ε = p(1 − q)/((1 − p)q)."""
    tail = float(stats.norm.sf(noise.radius / noise.std))
    odds = math.exp(noise.event().epsilon) * tail / (1 - tail)
    return chance(odds / (1 + odds), outputs, noise.radius)


def listed_above(noise: Any, many: int, best: int) -> float:
    """The chance that a reported candidate's score is in the upper best/many of its law.

    J of N candidates are there, by a binomial law; of the k best ones as many as there are places
    for. One of the best is reported with p: e^ε = p(N − k)/((1 − p)k).
    """
    odds = math.exp(noise.event().epsilon) * best / (many - best)
    counts = np.arange(many + 1)
    law = stats.binom(many, best / many).pmf(counts)
    among_best = float(law @ np.minimum(counts, best)) / best
    among_others = float(law @ np.maximum(counts - best, 0)) / (many - best)
    return (odds * among_best + among_others) / (1 + odds)


def shortlist(noise: Any, outputs: Floats) -> bool:
    """Above a quantile, with the chance that the choice among the candidates gives."""
    many, best = noise.candidates, noise.listed
    share = listed_above(noise, many, best)
    factor = SPECIMENS["shortlist"].make(EPSILON, DELTA).factor
    return chance(share, outputs, factor * float(stats.norm.isf(best / many)))


def compass(noise: Any, outputs: Floats) -> bool:
    """The direction, read back, agrees with its vector better than a quantile, as often as due.

    Its last coordinate is told by the trace, the others by the vector.
    """
    wire = getattr(noise, "wire", None) or noise.exact().wire
    flat = outputs[:, 0, :]
    last = (flat[:, 0] + flat[:, 2] - wire.square / 2) / wire.weight
    along = math.sqrt(1 - wire.lean**2) * flat[:, 3] / wire.vector + wire.lean * last
    # On the sphere in three dimensions heights are even: this is the upper k/N of them.
    height = 1 - 2 * wire.listed / wire.candidates
    share = listed_above(noise, wire.candidates, wire.listed)
    return chance(share, along[:, None, None], height)


def less_std(noise: Any) -> Any:
    return dataclasses.replace(noise, std=noise.std * 2 / 3)


def less_scale(noise: Any) -> Any:
    return dataclasses.replace(noise, scale=round(noise.scale * 2 / 3))


def less_seeds(noise: Any) -> Any:
    return dataclasses.replace(noise, seeds=tuple(map(less_scale, noise.seeds)))


def less_bits(noise: Any) -> Any:
    """Bits are kept so much more often that the deviation is two thirds."""
    ratio = (1 - noise.keep**2) / noise.keep**2 * 4 / 9
    keep = math.floor(1 / math.sqrt(1 + ratio) / KEEP_UNIT) * KEEP_UNIT
    return dataclasses.replace(noise, keep=keep)


def less_coin(noise: Any) -> Any:
    return dataclasses.replace(noise, bias=round(noise.bias * 3 / 2))


def less_listed(name: str, epsilon: float = 1.53) -> Weaken:
    """The mechanism of an ε at which the deviation is two thirds."""

    def rebuilt(noise: Any) -> Any:
        weaker = SPECIMENS[name].make(epsilon, DELTA)
        assert 0.64 < weaker.std / noise.std < 0.67
        return weaker

    return rebuilt


LAWS: dict[str, tuple[Judge, Weaken, int]] = {
    "gaussian": (normal, less_std, 1000),
    "discrete-gaussian": (normal, less_scale, 1000),
    "binomial": (normal, less_std, 1000),
    "coins": (normal, less_scale, 300),
    "randomized-bits": (bits, less_bits, 1000),
    "exact-randomized-bits": (bits, less_bits, 500),
    "tree": (stream, less_std, 1000),
    "sqrt-toeplitz": (stream, less_std, 1000),
    "exact-sqrt-toeplitz": (stream, less_seeds, 1000),
    "blt": (stream, less_std, 1000),
    "discrete-blt": (stream, less_seeds, 1000),
    "discrete-tree": (stream, less_seeds, 1000),
    "doubling": (stream, less_std, 1000),
    "discrete-doubling": (stream, less_seeds, 1000),
    "laplace": (laplace, less_std, 1000),
    "discrete-laplace": (laplace, less_scale, 1000),
    "one-bit": (coin, less_std, 5000),
    "exact-one-bit": (coin, less_coin, 5000),
    "privunit": (privunit, less_std, 8000),
    "shortlist": (shortlist, less_listed("shortlist"), 8000),
    "exact-shortlist": (shortlist, less_listed("exact-shortlist"), 10_000),
    "compass": (compass, less_listed("compass", 1.385), 8000),
    "exact-compass": (compass, less_listed("exact-compass", 1.4), 8000),
}


def test_every_mechanism_has_specimen_and_distribution_test() -> None:
    """A registered mechanism has a specimen to audit, and a law."""
    assert set(SPECIMENS) == set(MECHANISMS)
    assert set(LAWS) == set(MECHANISMS)


# These take long, and tests of their own hold them to their deviation by day.
SLOW = ("binomial", "randomized-bits", "shortlist", "exact-shortlist", "exact-compass")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.nightly] * (name in SLOW)) for name in LAWS]
)
def test_mechanism_draws_the_noise_that_it_charges_for(name: str) -> None:
    """The right noise is accepted, and two thirds of it are rejected; 1e-6 each."""
    (judge, weaken, draws), specimen = LAWS[name], SPECIMENS[name]
    noise = specimen.make(EPSILON, DELTA)
    entry: Any = MECHANISMS[name]
    assert type(noise) is entry.kind
    assert entry.factor is (type(noise.factor) if entry.factor else None)
    assert judge(noise, specimen.draw(noise, 1, draws, 7))
    assert not judge(noise, specimen.draw(weaken(noise), 1, draws, 8))
