"""K questions a user: directions, estimates, steps by hand, and what more questions are worth."""

from __future__ import annotations

import math
import re
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from kerchief.core.contracts import Arms, Clock
from kerchief.core.convex import Ball, Simplex
from kerchief.core.errors import InvalidValueError
from kerchief.core.random import POLICY, REWARD, WORLD, Stream
from kerchief.core.report_distribution import ReportDistribution
from kerchief.deployment.protected_policy import build_protected
from kerchief.environments.context_free_convex import Linear, Quadratic
from kerchief.policies.context_free.base import LOSS
from kerchief.policies.context_free.k_point import KPoint
from kerchief.policies.context_free.two_point import TwoPoint
from kerchief.privacy import Guarantee, Trust
from kerchief.privatizers import Protection
from kerchief.privatizers.channels import channel_of

CLEAR = ReportDistribution.clear(low=-1.0, high=1.0)
NOTHING = Guarantee(epsilon=math.inf, delta=0.0, trust=Trust.NONE)


@pytest.mark.parametrize("questions", [2, 4, None])
def test_directions_are_at_right_angles_and_questions_in_the_set(questions: int | None) -> None:
    world = Quadratic.of(domain=Simplex(dim=4))
    policy = KPoint.of(world.problem(100), channel=CLEAR, questions=questions)
    at = Stream.of(seed=2, replicate=0).at(POLICY)
    action = np.asarray(jax.jit(lambda: policy.propose(policy.init({}), jnp.int32(0), at))())
    pairs = 3 if questions is None else questions // 2
    assert action.shape == (2 * pairs, 4)
    np.testing.assert_allclose(action.sum(axis=1), 1)
    assert (action >= 0).all()
    across = (action[:pairs] - action[pairs:]) / (2 * float(policy.radius))
    np.testing.assert_allclose(across @ across.T, np.eye(pairs), atol=1e-9)


@pytest.mark.parametrize("questions", [2, 4])
def test_estimates_are_right_on_average(questions: int) -> None:
    world = Linear.of(domain=Ball(dim=3), noise=0.0)
    policy = KPoint.of(world.problem(10_000), channel=CLEAR, questions=questions)
    truth, state = world.init(Stream.of(seed=1, replicate=0).at(WORLD)), policy.init({})
    count, round = 8000, jnp.int32(5)

    @jax.jit
    @jax.vmap
    def estimate(replicate: Array) -> Array:
        root = Stream.of(seed=7, replicate=replicate)
        action = policy.propose(state, round, root.at(POLICY))
        clock = Clock(round=round, since={})
        losses = world.reward(truth, Arms.none(), action, clock, root.at(REWARD))
        report = policy.queries[LOSS].encode(policy.answer(action, losses))
        after = policy.learn(state, action, (), report, round)
        return (state.point - after.point) / policy.step

    found = np.asarray(estimate(jnp.arange(count, dtype=jnp.uint32)))
    error = (found.mean(0) - np.asarray(truth.slope)) / (found.std(0) / math.sqrt(count))
    assert np.abs(error).max() < 5
    # Its mean square is d/m times that of the gradient.
    assert (found**2).sum(1).mean() == pytest.approx(6 / questions, rel=0.05)


def test_steps_know_noise_and_questions() -> None:
    """T = 10000, G = 2, d = 4: √(T (d/m G² + d²/m G² σ²)), and two questions are two-point's."""
    world = Quadratic.of(domain=Ball(dim=4))
    problem = world.problem(10_000)
    noisy = ReportDistribution(low=None, high=None, spread=math.sqrt(1 + 9))
    for questions, square in ((2, 4 * 4 + 16 * 4 * 9), (8, 4 + 4 * 4 * 9)):
        made = KPoint.of(problem, channel=noisy, questions=questions)
        assert 1 / made.step == pytest.approx(100 * math.sqrt(square))
    two = TwoPoint.of(
        problem, channel=ReportDistribution(low=None, high=None, spread=math.sqrt(4 + 36))
    )
    made = KPoint.of(problem, channel=noisy, questions=2)
    assert (1 / made.step, made.radius) == pytest.approx((two.firmness, two.radius))
    for wrong in (3, 10):
        with pytest.raises(InvalidValueError, match=f"questions is {wrong}"):
            KPoint.of(problem, channel=CLEAR, questions=wrong)


def test_the_number_of_questions_is_a_number_of_the_bandit() -> None:
    """`--param questions=2` plays and reports what `KPoint.of(questions=2)` does."""
    problem = Quadratic.of(domain=Ball(dim=4)).problem(50)
    promise = Guarantee(epsilon=1.0, delta=1e-5, trust=Trust.LOCAL)
    asked = partial(build_protected, "k-point", problem)
    for protection in (Protection(guarantee=promise), Protection(guarantee=NOTHING)):
        made = asked(protection, numbers={"questions": 2.0})
        policy: Any = made.policy
        assert (policy.pairs, made.privatizers[LOSS].query.size) == (1, 1)
        wanted = KPoint.of(problem, channel=channel_of(made.privatizers[LOSS]), questions=2)
        assert policy.step == pytest.approx(wanted.step)
    for wrong, bound in ((3.0, "even"), (2.5, "even"), (10.0, r"\[2, 8\]"), (1.0, r"\[2, 8\]")):
        with pytest.raises(InvalidValueError, match=f"questions is {wrong:g}.*{bound}"):
            asked(Protection(guarantee=promise), numbers={"questions": wrong})


def test_unsupported_mechanism_is_rejected_with_alternatives() -> None:
    problem = Quadratic.of(domain=Ball(dim=4)).problem(50)
    promise = Guarantee(epsilon=1.0, delta=1e-5, trust=Trust.LOCAL)
    with pytest.raises(InvalidValueError, match="choose randomizer") as refused:
        build_protected("k-point", problem, Protection(guarantee=promise, mechanism="shortlist"))
    words = re.findall("'([a-z-]+)'", str(refused.value))
    assert words
    for word in words:
        build_protected("k-point", problem, Protection(guarantee=promise, mechanism=word))


def test_noise_for_all_slopes_equals_noise_for_one() -> None:
    """At one promise the normal noise on each slope, in units of the bound, is the same."""
    promise = Guarantee(epsilon=1.0, delta=1e-5, trust=Trust.LOCAL)
    problem = Quadratic.of(domain=Ball(dim=4)).problem(50)
    protection = Protection(guarantee=promise, mechanism="gaussian")
    one, all_of = (
        build_protected(name, problem, protection).privatizers[LOSS].noises[0]
        for name in ("two-point", "k-point")
    )
    assert float(one.std) / problem.lipschitz == pytest.approx(float(all_of.std))
