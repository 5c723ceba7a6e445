"""The noise that is built is the one that was printed: its class and its deviation.

A run says by a word of `MECHANISMS_OF` which noise protects it. Here is what each word means,
written a second time: what is built for it must be that. What is drawn is held to it by
`checks.drawn`.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kerchief.checks.bills import users_of
from kerchief.checks.case import BEST, Case, asks
from kerchief.checks.errors import expect, law
from kerchief.checks.leakage import charged_multiplier
from kerchief.core.contracts import BoundedLoss
from kerchief.core.errors import InvalidValue
from kerchief.mechanisms.binomial import Binomial
from kerchief.mechanisms.blt import BLT
from kerchief.mechanisms.continual import ContinualNoise
from kerchief.mechanisms.doubling import Doubling
from kerchief.mechanisms.gaussian import Gaussian
from kerchief.mechanisms.laplace import Laplace
from kerchief.mechanisms.one_bit import OneBit
from kerchief.mechanisms.privunit import PrivUnitG
from kerchief.mechanisms.randomized_bits import Response
from kerchief.mechanisms.shortlist import Shortlist
from kerchief.mechanisms.toeplitz import SqrtToeplitz
from kerchief.mechanisms.tree import Tree as BinaryTree
from kerchief.privacy.unit_vectors import unit_noise
from kerchief.privatizers import MECHANISMS_OF, Privatizer
from kerchief.privatizers.billing import pay

__all__ = ["pure_epsilon"]

Floats = NDArray[np.float64]

WORDS: dict[str, dict[str, tuple[type, ...]]] = {
    "none": {BEST: ()},
    "local": {
        BEST: (Gaussian, Laplace, PrivUnitG, OneBit),
        "gaussian": (Gaussian,),
        "laplace": (Laplace,),
        "privunit": (PrivUnitG,),
        "shortlist": (Shortlist,),
        "one-bit": (OneBit,),
    },
    "shuffle": {
        BEST: (Binomial,),
        "theorem": (Binomial,),
        "bits": (Response,),
        "byte": (Response,),
        "bit": (Response,),
    },
    "joint": {
        BEST: (BLT,),
        "blt": (BLT,),
        "tree": (BinaryTree,),
        "toeplitz": (SqrtToeplitz,),
        "doubling": (Doubling,),
    },
    "central": {BEST: (Gaussian,)},
}
"""What a word means for sums. Every look at the records of a loss is a Gaussian, or coins."""

_BITS = {"bits": 64, "byte": 8, "bit": 1}
# The noise of bits is searched for, for every size of a batch: here there is one batch.
_SHORT = 60


@law(when=asks, cheap=True)
def noise_is_of_the_word_printed(case: Case) -> None:
    """For every word of the trust, what is built has that word's noise, or the word is refused.

    Its class is the word's, and its deviation what its event says that was charged; the bill fits
    the promise. Nothing is ever put in a word's place: it is refused with InvalidValue.
    """
    words = MECHANISMS_OF[case.promise().trust]
    expect(set(words) == set(WORDS[case.trust]), seen=list(words), expected=list(WORDS[case.trust]))
    for word in words:
        other = dataclasses.replace(case, mechanism=word)
        try:
            made = other.arranged(horizon=_SHORT if word in _BITS else None)
        except InvalidValue:
            expect(word != case.mechanism, seen=f"{word} is refused", expected="its own noise")
            continue
        ledger = case.make_ledger(other.promise())
        pay(made.privatizers, ledger, horizon=_SHORT if word in _BITS else users_of(other, made))
        for name, privatizer in made.privatizers.items():
            _expect_word(other, name, privatizer)


def _expect_word(case: Case, name: str, privatizer: Privatizer) -> None:
    kinds, word = WORDS[case.trust][case.mechanism], case.mechanism
    if isinstance(privatizer.query, BoundedLoss) and kinds:
        kinds = (Gaussian, Binomial)
    # Of single numbers one bit is the best.
    if case.feedback == "reports" and word == BEST and kinds:
        kinds = (OneBit,)
    found = [_kind(noise) for noise in privatizer.noises]
    seen = f"{name}: {[kind.__name__ for kind in found]}"
    wanted = f"{word}: {' or '.join(kind.__name__ for kind in kinds) or 'none'}"
    right = all(kind in kinds for kind in found)
    expect(right and bool(privatizer.noises) == bool(kinds), seen=seen, expected=wanted)
    for noise in privatizer.noises:
        made: Any = noise
        if word in _BITS:
            expect(made.bits == _BITS[word], seen=f"{made.bits} bits", expected=_BITS[word])
        named = _named_deviation(made, privatizer)
        close = named is None or math.isclose(float(made.std), named, rel_tol=1e-6)
        seen = f"{name}: a deviation of {made.std}"
        expect(close, seen=seen, expected=f"{named}, as {word} charges")


def _kind(noise: Any) -> type:
    """What a word names: noise of a class, or for prefixes the factor that mixes its seeds."""
    return type(noise.factor if isinstance(noise, ContinualNoise) else noise)


def _named_deviation(noise: Any, privatizer: Privatizer) -> float | None:
    """The deviation of a word's noise that costs what was charged; None where no formula has it."""
    if isinstance(noise, Response | Shortlist):
        return None
    query: Any = privatizer.query
    event = noise.event()
    match noise:
        case Gaussian() | ContinualNoise():
            norm = getattr(noise, "column_norm", 1.0)
            return charged_multiplier(event) * float(query.sensitivity * norm)
        case Laplace():
            euclidean = math.sqrt(query.size) * query.sensitivity
            return math.sqrt(2) * float(getattr(query, "taxicab", euclidean)) / pure_epsilon(event)
        case OneBit():
            return float(query.radius) / math.tanh(event.epsilon / 2)
        case PrivUnitG():
            return float(query.radius * unit_noise(event.epsilon))
        case Binomial():
            return float(event.scale * noise.step)
    return None


def pure_epsilon(event: Any) -> float:
    """The epsilon of pure noise."""
    epsilon = getattr(event, "epsilon", None)
    return float(1 / event.noise_multiplier if epsilon is None else epsilon)
