"""Online learners: by hand, against their guarantees, and anew in epochs."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

from kerchief.core.contracts import Tree
from kerchief.core.online import Descent, Doubling, Learner, Maler, grid_size, nearest

Floats = NDArray[np.float64]


def stepped(learner: Learner, state: Tree, gradients: Floats, curvature: float) -> list[Floats]:
    points = []
    for gradient in gradients:
        state = learner.step(state, jnp.asarray(gradient), jnp.float64(curvature))
        points.append(np.asarray(learner.point(state)))
    return points


def test_descent_by_hand() -> None:
    learner = Descent(radius=1.0, pace=4.0)
    gradients = np.array([[0.6, 0.0], [0.0, -10.0]])
    points = stepped(learner, learner.begin(jnp.zeros(2), 5.0), gradients, 0.5)
    np.testing.assert_allclose(points[0], [-4 / 3 * 0.6, 0])
    far = np.array([-0.8, 4 / 4 * 10])
    np.testing.assert_allclose(points[1], far / np.linalg.norm(far))


class Reference:
    """Maler in one dimension, written out expert by expert."""

    def __init__(self, radius: float, bound: float, length: int) -> None:
        last = math.ceil(0.5 * math.log2(length))
        self.radius, self.g, self.t = radius, bound, 0
        self.rates = [2.0**-i / (5 * bound * 2 * radius) for i in range(last + 1)]
        self.slow = 1 / (2 * bound * 2 * radius * math.sqrt(length))
        share = 1 + 1 / (1 + last)
        prior = [share / (3 * (i + 1) * (i + 2)) for i in range(last + 1)]
        self.weights = [1 / 3, *prior, *prior]
        self.points = [0.0] * (2 * last + 3)
        self.a = 25 / 56
        self.metric = [1 / (self.a * 2 * radius) ** 2] * (last + 1)
        self.worth = [0.0] * (2 * last + 3)

    @property
    def all_rates(self) -> list[float]:
        return [self.slow, *self.rates, *self.rates]

    def point(self) -> float:
        tilted = [w * r for w, r in zip(self.weights, self.all_rates, strict=True)]
        return sum(w * p for w, p in zip(tilted, self.points, strict=True)) / sum(tilted)

    def step(self, g: float) -> None:
        here, self.t, n = self.point(), self.t + 1, len(self.rates)
        g = max(-self.g, min(self.g, g))
        for k, (rate, point) in enumerate(zip(self.all_rates, list(self.points), strict=True)):
            gain = (here - point) * g
            if k == 0:
                loss = -rate * gain + (rate * self.g * 2 * self.radius) ** 2
                moved = point - 2 * self.radius / (self.g * math.sqrt(self.t)) * g
            elif k <= n:
                loss = -rate * gain + (rate * self.g * (here - point)) ** 2
                slope = rate * g + 2 * (rate * self.g) ** 2 * (point - here)
                moved = point - slope / (2 * (rate * self.g) ** 2 * self.t)
            else:
                loss = -rate * gain + (rate * gain) ** 2
                slope = rate * g + 2 * rate**2 * (point - here) * g**2
                self.metric[k - n - 1] += slope**2
                moved = point - slope / self.a / self.metric[k - n - 1]
            self.weights[k] *= math.exp(-loss)
            self.worth[k] -= loss
            self.points[k] = max(-self.radius, min(self.radius, moved))
        total = sum(self.weights)
        self.weights = [weight / total for weight in self.weights]


def test_maler_is_the_experts_written_out() -> None:
    length, rng = 50, np.random.default_rng(1)
    learner = Maler(radius=1.5, slack=2.0, rates=grid_size(length))
    plain = Reference(1.5, 2.0 * 1.5 * 0.8, length)
    state = learner.begin(jnp.zeros(1), float(length))
    np.testing.assert_allclose(np.exp(np.asarray(state.weights)), plain.weights, rtol=1e-12)
    assert sum(plain.weights) == pytest.approx(1)
    step = jax.jit(learner.step)
    for gradient in rng.normal(size=length) * 2:
        state = step(state, jnp.asarray([gradient]), jnp.float64(0.8))
        plain.step(float(gradient))
        assert float(learner.point(state)[0]) == pytest.approx(plain.point(), abs=1e-9)
        np.testing.assert_allclose(np.exp(np.asarray(state.weights)), plain.weights, atol=1e-12)


def test_no_expert_is_better_than_maler_by_more_than_its_prior() -> None:
    """Lemma H.4's constant: a surrogate is 0 for Maler itself, so an expert's worth is bounded."""
    for seed in range(3):
        rng, plain = np.random.default_rng(seed), Reference(1.0, 1.0, 400)
        drift = 0.3 * rng.normal()
        for _ in range(400):
            plain.step(float(np.clip(plain.point() - drift + 0.3 * rng.normal(), -1, 1)))
        assert max(plain.worth) <= 2 * math.log(math.sqrt(3) * (0.5 * math.log2(400) + 3))


def regrets(rounds: int, losses: str, seeds: int = 4) -> float:
    """Mean regret of Maler in two dimensions, against the best point."""
    learner = Maler(radius=1.0, rates=grid_size(rounds))
    rng = np.random.default_rng(5)
    # Signs that a learner cannot foresee, or targets around a point: both with |gradients| ≤ 2.
    signs = rng.choice([-1.0, 1.0], size=(seeds, rounds, 2)) / math.sqrt(2)
    targets = jnp.asarray(np.array([0.3, -0.2]) + 0.3 * signs)

    def play(targets: jax.Array, signs: jax.Array) -> jax.Array:
        def turn(state: Tree, given: tuple[jax.Array, jax.Array]) -> tuple[Tree, jax.Array]:
            target, sign = given
            point = learner.point(state)
            slope = point - target if losses == "quadratic" else sign
            loss = (slope @ slope) / 2 if losses == "quadratic" else sign @ point
            return learner.step(state, slope, jnp.float64(2.0)), loss

        first = learner.begin(jnp.zeros(2), float(rounds))
        _, lost = jax.lax.scan(turn, first, (targets, signs))
        if losses == "quadratic":
            best = ((targets - targets.mean(0)) ** 2).sum() / 2
        else:
            best = -jnp.linalg.norm(signs.sum(0))
        return lost.sum() - best

    return float(jax.jit(jax.vmap(play))(targets, jnp.asarray(signs)).mean())


@pytest.mark.nightly
def test_regret_grows_as_the_losses_allow() -> None:
    """As √T without curvature; with it, it is by far less, though no logarithm yet at this size."""
    flat = [regrets(rounds, "linear", seeds=24) for rounds in (500, 8000)]
    slope = math.log(flat[1] / flat[0]) / math.log(16)
    assert 0.4 < slope < 0.6
    assert flat[1] <= (2 * math.log(3) + 1.5) * 2 * 2 * math.sqrt(8000)
    assert 0 < regrets(8000, "quadratic") < 0.1 * flat[1]


def test_epochs_double_and_begin_where_the_last_ended() -> None:
    learner = Descent(radius=9.0, pace=1.0)
    doubled = Doubling(learner=learner)
    state = doubled.begin(jnp.zeros(1), 1e9)
    ages, plain = [], 0.0
    for _ in range(16):
        ages.append(float(state.inner.steps))
        state = doubled.step(state, jnp.ones(1), jnp.float64(1.0))
        plain -= 1 / (ages[-1] + 2)
        assert float(doubled.point(state)[0]) == pytest.approx(plain)
    assert ages == [0, 0, 1, 0, 1, 2, 3, *range(8), 0]


def test_epochs_tell_maler_how_long_they_are() -> None:
    """Rates beyond an epoch's grid have no weight, and the convex rate is that of its length."""
    doubled = Doubling(learner=Maler(radius=1.0, rates=5))
    state, step = doubled.begin(jnp.zeros(2), 1.0), jax.jit(doubled.step)
    for _ in range(7):
        state = step(state, jnp.ones(2), jnp.float64(1.0))
    assert float(state.inner.length) == 8
    assert float(state.left) == 8
    weights = np.exp(np.asarray(state.inner.weights))
    expected = np.array([2 / 9, 2 / 27, 1 / 27, 0, 0])
    np.testing.assert_allclose(weights, [1 / 3, *expected, *expected], rtol=1e-9)


def test_the_projection_is_one_in_the_metric() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        raw = rng.normal(size=(3, 3))
        metric = raw @ raw.T * 10 ** rng.uniform(0, 4) + np.eye(3)
        point = rng.normal(size=3) * 10 ** rng.uniform(-1, 1)
        found = np.asarray(nearest(jnp.asarray(metric), jnp.asarray(metric @ point), 1.5))
        if np.linalg.norm(point) <= 1.5:
            np.testing.assert_allclose(found, point, atol=1e-8)
            continue
        # Optimality: on the edge, and the pull back is along the edge's normal.
        assert np.linalg.norm(found) == pytest.approx(1.5, rel=1e-6)
        pull = metric @ (point - found)
        np.testing.assert_allclose(pull, (pull @ found) / 1.5**2 * found, rtol=1e-4, atol=1e-6)
