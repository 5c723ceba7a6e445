"""Sampling from weighted reports: under local trust, where noise hides what arms seldom show.

Every device adds noise of one size to (x xᵀ, y x), so directions on a small scale drown in it. Here
the learner posts a symmetric matrix P ≥ I, made from earlier releases, and a device reports

    x' = f P x,    y' = o + f (y - o),    f = min(1, L/‖P x‖),

L being the query's norm and o its offset. That is an example in the very same domain, so the same
noise keeps the same promise, whatever P is; and the model stays exactly linear: y' - o has the mean
x'ᵀ P⁻¹ θ. P raises the directions that are seen least to one level, until examples fill the ball.

After information-weighted regression: Chen, Li, Rakhlin and Simchi-Levi 2025 (arXiv 2502.13115).
Proof note: `weighted.md`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import jax
import jax.numpy as jnp
from jax import Array

from kerchief.core.contracts import Arms, Example, Outlook, Tree
from kerchief.core.linalg import inverse
from kerchief.core.problems import Problem
from kerchief.core.struct import struct
from kerchief.policies.registry import Mode, register
from kerchief.policies.sampling import Beliefs, LinearSampling, Told

_EARLY = 1.5
"""How often a cohort's matrix must stand out from its noise to be closed for other weights."""
_GROWTH = 0.5
"""Of all users before, a cohort that is closed for other weights has at least this share."""
_ROOM = 0.6
"""Weights are posted where squared lengths of examples are at most this share of the largest."""
_MOST = 10.0
"""The greatest weight."""


@struct
class WeightedTold(Told):
    """The learner's memory; precision and pull are in the coordinates of the parameter.

    Attributes:
        weights: P of the open cohort, as posted.
        unweighing: its inverse.
        seen: the matrix of closed cohorts, in the coordinates of the parameter.
        blur: the variance of its noise.
    """

    weights: Array
    unweighing: Array
    seen: Array
    blur: Array


@struct
class WeightedBeliefs(Beliefs):
    """The billboard: beliefs, and the matrix that weighs what devices report."""

    weights: Array


@struct
class WeightedSampling(LinearSampling):
    """Sampling that posts how reports shall be weighted, one matrix per cohort.

    >>> problem = Problem(dim=2, arms=3, norm=1.0, radius=1.0, low=-1.0, high=1.0, horizon=100)
    >>> policy = WeightedSampling.of(problem)
    >>> model = policy.publish(policy.init({"moments": Outlook(noisy=True, separate="users")}))
    >>> model.weights.tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    def init(self, outlook: Mapping[str, Outlook]) -> Tree:
        """Before any user: nothing is weighted."""
        same = jnp.eye(self.query.dim, dtype=jnp.float64)
        return WeightedTold(
            **vars(super().init(outlook)),
            weights=same,
            unweighing=same,
            seen=jnp.zeros_like(same),
            blur=jnp.float64(0),
        )

    def record(
        self, model: WeightedBeliefs, arms: Arms, action: Array, reward: Array
    ) -> Mapping[str, Tree]:
        """The example of the arm played, weighted, and scaled into the ball with its reward."""
        x = model.weights @ arms.features[action]
        scale = 1 / jnp.maximum(1.0, jnp.linalg.norm(x) / self.query.norm)
        y = self.query.offset + scale * (reward - self.query.offset)
        return {self.question: Example(features=scale * x, reward=y)}

    def publish(self, state: Tree) -> Tree:
        """What devices draw their guesses from, and how they weigh their reports."""
        weights = state.weights.astype(jnp.float32)
        return WeightedBeliefs(**vars(super().publish(state)), weights=weights)

    def _ripe(self, state: Tree) -> Array:
        """Whether the open cohort may be closed, in public time: early, if that is worth it."""
        return super()._ripe(state) | self._stands_out(state, times=_EARLY, growth=_GROWTH)

    def _closed(self, state: Tree) -> Tree:
        """What the open cohort tells is added up, where it is time or other weights are worth it.

        The next one begins with these.
        """
        told: Tree = super()._closed(state)
        gram, noise = self._everyones(state)
        # After the other decomposition: library calls side by side were seen to hang.
        gram = jnp.where(jnp.trace(told.precision) >= 0, gram, 0.0)
        weights, worth = self._weights(gram, noise, state.count)
        closed = dataclasses.replace(
            told, weights=weights, unweighing=inverse(weights), seen=gram, blur=noise**2
        )
        now = worth | super()._ripe(state)
        return jax.tree.map(lambda new, old: jnp.where(now, new, old), closed, state)

    def _weights(self, gram: Array, noise: Array, count: Array) -> tuple[Array, Array]:
        """What to post for the matrix of so many users, as posted, and whether it is worth it."""
        values, axes, _ = self._shrunk(gram, noise)
        most = self.query.norm**2 * count
        seen = jnp.maximum(values, noise + 1e-9)
        raised = jnp.clip(jnp.sqrt(water_level(seen, most) / seen), 1.0, _MOST)
        worth = (noise > 0) & (jnp.trace(gram) <= _ROOM * most)
        made = (axes * raised) @ axes.T
        weights = jnp.where(worth, (made + made.T) / 2, jnp.eye(self.query.dim))
        return weights.astype(jnp.float32).astype(jnp.float64), worth

    def _everyones(self, state: Tree) -> tuple[Array, Array]:
        """The matrix of everyone's arms, in the coordinates of the parameter, and its noise."""
        dim, back = self.query.dim, state.unweighing
        gram, noise = self._matrix(self._opened(state))
        square = back @ back
        left = (jnp.trace(square) ** 2 + jnp.trace(square @ square)) / (dim * (dim + 1))
        return state.seen + back @ gram @ back, jnp.sqrt(state.blur + left * noise**2)

    def _gathered(
        self, opened: Tree, values: Array, axes: Array, mean: Array
    ) -> tuple[Array, Array]:
        """What all cohorts tell; the open one about P⁻¹θ, which is shorter than θ."""
        back = opened.unweighing
        shorter = jnp.sqrt((back**2).sum() / self.query.dim)
        alone = dataclasses.replace(
            opened, precision=jnp.zeros_like(opened.precision), pull=jnp.zeros_like(opened.pull)
        )
        about = dataclasses.replace(self, radius=shorter * self.radius)
        precision, pull = super(WeightedSampling, about)._gathered(alone, values, axes, mean)
        return opened.precision + back @ precision @ back, opened.pull + back @ pull


def water_level(values: Array, total: Array | float) -> Array:
    """To which level the least of ascending values must be raised for all to have this sum.

    >>> float(water_level(jnp.array([0.0, 1.0, 5.0]), 9.0))
    2.0
    """
    others = values.sum() - values.cumsum()
    return ((total - others) / jnp.arange(1, len(values) + 1)).min()


def weighted(
    problem: Problem, *, mode: Mode = "tuned", epsilon: float = 1.0, delta: float = 0.0
) -> WeightedSampling:
    """Build it from public facts and the terms of the promise."""
    return WeightedSampling.of(problem, mode=mode, epsilon=epsilon)


register(
    "sampling-weighted",
    WeightedSampling,
    promised=weighted,
    summary="sampling from reports that a posted matrix weighs: for features on different scales",
    source="ours, after Chen et al. 2025",
    trusts=("none", "local"),
)
