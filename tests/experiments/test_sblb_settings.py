"""The settings of Table 1: three promises each, and players on batches of a given length."""

from __future__ import annotations

import math

import pytest

from kerchief.environments import make_environment
from kerchief.experiments.catalogue.sblb import LENGTH, LOCAL, REGRET, WIRES, Paced, paced
from kerchief.experiments.players import player
from kerchief.policies.linear.sblb import Mended
from kerchief.privacy import Guarantee, Trust
from kerchief.privacy.randomized_bits import (
    RandomizedBits,
    batch_length,
    bits_epsilon,
    local_epsilon,
    local_keep,
)
from kerchief.privatizers import At, BitSums

HORIZON, DELTA = 20_000, 1e-5
PROBLEM = make_environment(contexts="orthant", dim=2, arms=10).problem(HORIZON)


def made(one: Paced) -> Mended:
    policy = one.arrange(PROBLEM, one.promise(DELTA, HORIZON)).policy
    assert isinstance(policy, Mended)
    return policy


def batches(one: Paced) -> tuple[int, ...]:
    return made(one).query.batches


def test_equal_batches_of_the_length_that_was_named() -> None:
    one = paced(300, epsilon=1.0, mechanism="bit")
    assert batches(one) == tuple(range(300, HORIZON + 1, 300))
    assert one.label() == "sblb length=300 shuffle, bit ε=1"
    assert one.parents() == player("sblb", trust="shuffle", epsilon=1.0).parents()
    other = paced(301, epsilon=1.0, mechanism="bit")
    assert one != other
    assert len({one, other}) == 2


@pytest.mark.parametrize(("one", "model"), [(LOCAL[0], 0.048), (LOCAL[1], 0.478), (REGRET, 1.0)])
def test_a_setting_makes_three_promises(one: Paced, model: float) -> None:
    """To the device's wire, of the shuffler's output and of the model; all nearly used up."""
    promise = Guarantee(epsilon=one.epsilon, delta=DELTA, trust=Trust.SHUFFLE)
    sums = BitSums.of(made(one).query, promise=promise, schedule=At(ends=(LENGTH,)), bits=1)
    views = sums.views(DELTA)
    assert one.epsilon == model
    assert 0.97 * WIRES[one] <= views["device wire"].epsilon <= WIRES[one]
    assert views["device wire"].delta == 0
    for view in ("shuffler output", "published model"):
        assert 0.97 * model <= views[view].epsilon <= model


@pytest.mark.parametrize(("one", "wire"), [(LOCAL[0], 1.0), (LOCAL[1], 5.0)])
def test_the_sums_promise_what_the_wire_makes_of_them(one: Paced, wire: float) -> None:
    """Tuned for the wire: the keep parameter is the largest that keeps its promise."""
    keep = local_keep(wire, bits=1, dimension=5, taxicab=math.sqrt(5))
    event = RandomizedBits(
        users=LENGTH, bits=1, keep=keep, sensitivity=1.0, dimension=5, tail=DELTA / 64
    )
    assert one.epsilon == pytest.approx(bits_epsilon(event, DELTA), rel=0.015)


def test_the_papers_own_settings_need_longer_batches_than_there_are_rounds() -> None:
    """Corollary 8 at its largest epsilon, and Corollary 7 at a local epsilon of 1."""
    epsilon = 1 / (27 * HORIZON**0.25)
    keep = epsilon ** (2 / 3) * HORIZON ** (1 / 6)
    assert keep == pytest.approx(1 / 9)
    assert batch_length(epsilon, DELTA, horizon=HORIZON, dim=2, keep=keep) > HORIZON
    told = local_epsilon(keep, bits=1, dimension=5, taxicab=math.sqrt(2) + 1.5)
    assert told < 5 * math.log((1 + keep) / (1 - keep)) < 6 * 4 * keep
    small = math.tanh(1 / (2 * 5))
    found = batch_length(math.sqrt(math.e - 1), DELTA, horizon=HORIZON, dim=2, keep=small)
    assert found > HORIZON
