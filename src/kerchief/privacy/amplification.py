"""Shuffling amplifies local privacy: what a permuted batch of locally private reports tells.

The bound holds for every ε₀-local randomizer, whatever the other users hold, and is computed, not
estimated by a closed form. Result: V. Feldman, A. McMillan, K. Talwar, "Stronger privacy
amplification by shuffling for Rényi and approximate differential privacy", SODA 2023; the proof is
our own (`amplification.md`).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from kerchief.core.validate import at_least, between, positive, whole
from kerchief.privacy.bit_sums import binomial_law
from kerchief.privacy.external import beta_tail

Floats = NDArray[np.float64]

# Outside this range nothing is computed: a report tells next to nothing, or all.
_LEAST_LOCAL, _MOST_LOCAL = 1e-9, 40.0
# Pays for rounding, relative to the two terms whose difference is taken.
_GUARD = 1e-11
_LEFT_OUT = 1e-40


def shuffled_delta(epsilon: float, local_epsilon: float, reports: int) -> float:
    """Return a δ(ε) that every shuffled batch of ε₀-locally private reports keeps.

    It is E max(0, (e^ε₀ − e^ε) A − (e^(ε₀+ε) − 1) B) / n, rounded up, where each of n reports is,
    independently, counted in A or in B with probability 1/(e^ε₀ + 1) each.
    """
    epsilon = at_least("epsilon", epsilon, 0.0)
    local_epsilon = positive("local_epsilon", local_epsilon)
    reports = whole("reports", reports)
    if epsilon >= local_epsilon:
        return 0.0
    if not _LEAST_LOCAL < local_epsilon < _MOST_LOCAL:
        # The most that one report tells by itself at ε = 0.
        return math.tanh(local_epsilon / 2)
    gain = math.exp(epsilon) * math.expm1(local_epsilon - epsilon)
    loss = math.expm1(local_epsilon + epsilon)
    first, law = binomial_law(reports, 2 / (math.exp(local_epsilon) + 1))
    clones = np.arange(first, first + law.size)
    above, below = _compute_half_means(clones, loss / (gain + loss))
    body = law @ np.maximum(gain * above - loss * below, 0.0)
    terms = law @ (gain * above + loss * below)
    total = float(body + _GUARD * terms) / reports + _LEFT_OUT * math.exp(local_epsilon)
    return min(1.0, total)


def unshuffled_epsilon(epsilon: float, reports: int, delta: float) -> float:
    """Return the largest ε₀ known to suffice for (ε, δ) after shuffling; at least ε itself."""
    low, high = positive("epsilon", epsilon), max(_MOST_LOCAL, epsilon)
    delta = between("delta", delta, 0.0, 1.0)
    # The lower end was tried, or is ε: rounding can make it too small, never too large.
    while low < (midpoint := low + (high - low) / 2) < high:
        keeps = shuffled_delta(epsilon, midpoint, reports) <= delta
        low, high = (midpoint, high) if keeps else (low, midpoint)
    return low


def _compute_half_means(clones: NDArray[np.int64], share: float) -> tuple[Floats, Floats]:
    """Return the means of A and B where A exceeds a share of A + B, by the value of A + B.

    With N fair coins, the mean of A over A ≥ k is N/2 times the chance of k − 1 or more heads
    among N − 1 coins, and that of B = N − A is N/2 times the chance of k or more.
    """
    least_heads = np.floor(share * clones) + 1
    coins = np.maximum(clones - 1, 0)
    above = clones / 2 * _compute_tail_chance(least_heads - 1, coins)
    below = clones / 2 * _compute_tail_chance(least_heads, coins)
    return above, below


def _compute_tail_chance(heads: Floats, coins: NDArray[np.int64]) -> Floats:
    """Return the chance of at least so many heads among fair coins."""
    inside = np.clip(heads, 1, np.maximum(coins, 1))
    tails: Floats = beta_tail(inside, coins)
    return np.where(heads < 1, 1.0, np.where(heads > coins, 0.0, tails))
