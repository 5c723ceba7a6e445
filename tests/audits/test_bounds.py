"""What an audit says is proved: exact bounds, and bounds that hold as often as they say."""

from __future__ import annotations

import math

import numpy as np
import pytest

from kerchief.audits.bounds import guess_lower, likely_above, one_run_lower
from kerchief.core.errors import InvalidValueError


@pytest.mark.parametrize("chance", [0.03, 0.5, 0.98])
def test_confidence_bounds_fail_as_rarely_as_they_say(chance: float) -> None:
    """By summing the binomial law: the chance of a bound on the wrong side is at most 2.5 %."""
    trials = 60
    law = [
        math.comb(trials, hits) * chance**hits * (1 - chance) ** (trials - hits)
        for hits in range(trials + 1)
    ]
    above = sum(
        p for hits, p in enumerate(law) if likely_above(hits, trials, failure=0.025) > chance
    )
    assert above <= 0.025
    assert likely_above(0, trials, failure=0.025) == 0.0


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_guess_bound_is_valid_and_tight_for_randomized_response(epsilon: float) -> None:
    """The bound stays below the truth in at least 95 of 100 audits, and comes close to it."""
    rng, trials = np.random.default_rng(0), 20_000
    truth = math.exp(epsilon) / (1 + math.exp(epsilon))
    right = [int(rng.binomial(trials, truth)) for _ in range(400)]
    bounds = [
        guess_lower(right=hits, wrong=trials - hits, trials=trials, delta=0.0) for hits in right
    ]
    # 20 are expected at the most; more than 43 come up with a chance of 1e-6.
    assert sum(bound > epsilon for bound in bounds) <= 43
    assert np.mean(bounds) > 0.9 * epsilon


@pytest.mark.parametrize("delta", [1e-4, 1e-2])
def test_guess_bound_is_valid_and_tight_when_delta_is_used_up(delta: float) -> None:
    """Randomized response that tells the truth outright with chance δ is within its claim."""
    rng, trials, epsilon = np.random.default_rng(1), 20_000, 1.0
    truth = delta + (1 - delta) * math.exp(epsilon) / (1 + math.exp(epsilon))
    right = [int(rng.binomial(trials, truth)) for _ in range(400)]
    bounds = [
        guess_lower(right=hits, wrong=trials - hits, trials=trials, delta=delta) for hits in right
    ]
    assert sum(bound > epsilon for bound in bounds) <= 43
    assert np.mean(bounds) > 0.85 * epsilon


def test_delta_is_taken_off() -> None:
    """A mechanism that fails outright with chance δ proves nothing at that δ."""
    trials = 10**6
    assert guess_lower(right=1000, wrong=0, trials=trials, delta=1.2e-3) == 0.0
    assert guess_lower(right=1000, wrong=0, trials=trials, delta=0.0) > 4


def test_chance_level_guesses_prove_no_epsilon() -> None:
    """As many wrong guesses as right ones."""
    assert guess_lower(right=500, wrong=500, trials=1000, delta=0.0) == 0.0
    assert one_run_lower(guesses=100, right=50, canaries=1000, delta=0.0) == 0.0


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_canaries_under_randomized_response(epsilon: float) -> None:
    """The bound of one run is wrong in at most 5 % of the runs, and near the truth."""
    rng, canaries = np.random.default_rng(1), 500
    truth = math.exp(epsilon) / (1 + math.exp(epsilon))
    bounds = [
        one_run_lower(
            guesses=canaries,
            right=int(rng.binomial(canaries, truth)),
            canaries=canaries,
            delta=0.0,
        )
        for _ in range(30)
    ]
    # 1.5 are expected at the most; more than 9 come up with a chance of 1e-5.
    assert sum(bound > epsilon for bound in bounds) <= 9
    assert np.mean(bounds) > 0.5 * epsilon


def test_delta_costs_the_canaries_something() -> None:
    """The bound falls as δ grows."""
    bounds = [
        one_run_lower(guesses=100, right=95, canaries=1000, delta=delta)
        for delta in (0.0, 1e-5, 1e-3)
    ]
    assert bounds[0] > bounds[1] > bounds[2]


def test_nonsense_is_refused() -> None:
    """More guesses than trials, more than canaries, a chance that is none."""
    with pytest.raises(InvalidValueError, match="wrong is 2"):
        guess_lower(right=9, wrong=2, trials=10, delta=0.0)
    with pytest.raises(InvalidValueError, match="guesses is 11"):
        one_run_lower(guesses=11, right=1, canaries=10, delta=0.0)
    with pytest.raises(InvalidValueError, match="failure"):
        guess_lower(right=9, wrong=1, trials=10, delta=0.0, failure=1.0)
