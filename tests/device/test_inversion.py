"""Inversion draws exactly the law, also where the first word does not tell."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats  # type: ignore[import-untyped]
from tests.vectors.bytes_of import Bytes

from kerchief_device.inversion import Inversion, Weights, blocks, coins
from kerchief_device.randomize import heads

ERROR = 1e-6


def place(law: Inversion, number: int, bits: int) -> int:
    """What a uniform number with these first bits gives; the rest of it are zeros."""
    data = [(number >> (bits - 64)).to_bytes(8, "little")]
    left = bits - 64
    while left > 0:
        step = bits - left
        left -= step
        data.append(((number >> left) & ((1 << step) - 1)).to_bytes(step // 8, "little"))
    given = iter(data)
    found: int = law.draw(1, lambda count: next(given, bytes(count))).item()
    return found


@pytest.mark.parametrize("count", [1, 2, 7, 12, 40])
def test_heads_turn_exactly_at_the_distribution_function(count: int) -> None:
    law, below = coins(count), 0
    for k in range(count):
        below += math.comb(count, k)
        turn = below << (128 - count)
        assert place(law, turn + (1 << 60), 128) == k + 1
        assert place(law, turn - (1 << 60), 128) == k


def test_undecided_random_word_is_extended() -> None:
    third = Inversion(lambda bits: Weights(first=5, found=(1 << bits, 1 << (bits + 1)), slack=1))
    turn = (1 << 256) // 3
    assert place(third, turn - 2**100, 256) == 5
    assert place(third, turn + 2**100, 256) == 6


def test_steps_enclose_the_true_distribution_function() -> None:
    first, lows, highs = coins(9)._steps(64)
    total = 0
    for k, (low, high) in enumerate(zip(lows[1:], highs[1:], strict=True)):
        total += math.comb(9, first + 1 + k)
        true = Fraction(total, 2**9) * 2**64
        assert low <= true
        assert true < high + 1 or high == 2**64 - 1


def test_blocks_have_their_chances() -> None:
    first, lows, highs = blocks(100, 10)._steps(64)
    weights = np.exp(-((np.arange(len(lows) - 1) * 10.0) ** 2) / 20000)
    wanted = np.cumsum(weights) / weights.sum()
    assert first == -1
    np.testing.assert_allclose(np.array(lows[1:], float) / 2**64, wanted, rtol=1e-12)
    np.testing.assert_allclose(np.array(highs[1:], float) / 2**64, wanted, rtol=1e-12)


@pytest.mark.parametrize("count", [1025, 4096, 2_199_144])
def test_many_heads_have_the_law_of_coins(count: int) -> None:
    draws = heads(count, 40_000, Bytes("many"))
    quantiles = stats.binom.ppf(np.arange(1, 16) / 16, count, 0.5)
    cells = np.bincount(np.searchsorted(quantiles, draws), minlength=16)
    for near, fits in ((count, True), (count + 4 * math.isqrt(count) // 40, False)):
        chances = np.diff(stats.binom.cdf(quantiles, near, 0.5), prepend=0.0, append=1.0)
        assert (stats.chisquare(cells, chances * draws.size).pvalue > ERROR) == fits
