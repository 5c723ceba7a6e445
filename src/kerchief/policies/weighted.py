"""Sampling from weighted reports: under local trust noise hides what arms seldom show.

Every device adds noise of one size to (x xᵀ, y x), so directions on a small scale drown in it. So
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
from typing import Self

import jax
import jax.numpy as jnp
from jax import Array

from kerchief.core.contracts import Arms, Example, Outlook, Tree
from kerchief.core.problems import Problem
from kerchief.core.struct import struct
from kerchief.policies.linear.linucb import LinUCB
from kerchief.policies.registry import Mode, register
from kerchief.policies.sampling import Beliefs, GLMSampling, Sampling, Told

RULE = 1
"""Counts how often it was changed how weights are chosen: those of a deployed bandit are computed
again when it is opened, and its devices have used what its own version posted."""
_EARLY = 1.5
"""How often a cohort's matrix must stand out from its noise to be closed for other weights."""
_GROWTH = 0.5
"""Of all users before, a cohort that is closed for other weights has at least this share."""
_ROOM = 0.6
"""Weights are posted where squared lengths of examples are at most this share of the largest."""
_HEAVIEST = 10.0


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
class LinearSampling(Sampling, LinUCB):
    """Sampling for linear rewards; where noise is that of single users, reports are weighted.

    Attributes:
        heaviest: the greatest weight; 1 weighs nothing.

    >>> problem = Problem(dim=2, arms=3, norm=1.0, radius=1.0, low=-1.0, high=1.0, horizon=100)
    >>> policy = LinearSampling.of(problem)
    >>> model = policy.publish(policy.init({"moments": Outlook(noisy=True, separate="users")}))
    >>> model.weights.tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    heaviest: float | Array = _HEAVIEST

    @classmethod
    def of(
        cls,
        problem: Problem,
        *,
        mode: Mode = "tuned",
        epsilon: float = 1.0,
        exploration: float | None = None,
    ) -> Self:
        """Build it from public facts alone; see `LinUCB.of`."""
        base = LinUCB.of(problem, mode=mode)
        return cls._sampling(base, problem.horizon, epsilon, exploration)

    def init(self, outlook: Mapping[str, Outlook]) -> Tree:
        """Before any user: nothing is weighted."""
        told = super().init(outlook)
        if not self.weighs(outlook[self.question]):
            return told
        same = jnp.eye(self.query.dim, dtype=jnp.float64)
        return WeightedTold(
            **vars(told),
            weights=same,
            unweighing=same,
            seen=jnp.zeros_like(same),
            blur=jnp.float64(0),
        )

    def weighs(self, outlook: Outlook) -> bool:
        """Whether reports are weighted: where every user's has noise of its own.

        And where a reward that is drawn to the offset stays within its bounds.
        """
        inside = self.query.low <= self.query.offset <= self.query.high
        return self.mode == "tuned" and outlook.separate == "users" and inside

    def record(self, model: Tree, arms: Arms, action: Array, reward: Array) -> Mapping[str, Tree]:
        """The example of the arm played, weighted, and scaled into the ball with its reward."""
        if not isinstance(model, WeightedBeliefs):
            return super().record(model, arms, action, reward)
        x = model.weights @ arms.features[action]
        # Where nothing is weighted, rounding must not make an example too long.
        scale = 1 / jnp.maximum(1.0, jnp.linalg.norm(x) / self.query.norm - 1e-6)
        y = self.query.offset + scale * (reward - self.query.offset)
        return {self.question: Example(features=scale * x, reward=y)}

    def publish(self, state: Tree) -> Tree:
        """What devices draw their guesses from, and how they weigh their reports."""
        beliefs = super().publish(state)
        if not isinstance(state, WeightedTold):
            return beliefs
        return WeightedBeliefs(**vars(beliefs), weights=state.weights.astype(jnp.float32))

    def _ripe(self, state: Told) -> Array:
        """Whether the open cohort may be closed, in public time: early, if that is worth it."""
        usual = super()._ripe(state)
        if not isinstance(state, WeightedTold):
            return usual
        return usual | self._stands_out(state, times=_EARLY, growth=_GROWTH)

    def _closed(self, state: Told) -> Told:
        """What the open cohort tells is added up, where it is time or other weights are worth it.

        The next one begins with these.
        """
        if not isinstance(state, WeightedTold):
            return super()._closed(state)
        told: Tree = super()._closed(state)
        gram, noise = self._everyones(state)
        # After the other one: library calls side by side can wait for each other for ever.
        gram = jnp.where(jnp.trace(told.precision) >= 0, gram, 0.0)
        weights, unweighing, worth = self._weights(gram, noise, state.count)
        closed = dataclasses.replace(
            told, weights=weights, unweighing=unweighing, seen=gram, blur=noise**2
        )
        now = worth | super()._ripe(state)
        chosen: Told = jax.tree.map(lambda new, old: jnp.where(now, new, old), closed, state)
        return chosen

    def _weights(self, gram: Array, noise: Array, count: Array) -> tuple[Array, Array, Array]:
        """What to post for the matrix of so many users, its inverse, and whether it is worth it."""
        values, axes, _ = self._shrunk(gram, noise)
        most = self.query.norm**2 * count
        seen = jnp.maximum(values, noise + 1e-9)
        raised = jnp.clip(jnp.sqrt(water_level(seen, most) / seen), 1.0, self.heaviest)
        worth = (noise > 0) & (jnp.trace(gram) <= _ROOM * most) & (raised.max() > 1)
        raised = jnp.where(worth, raised, 1.0)
        same = jnp.eye(self.query.dim)
        weights, unweighing = (
            jnp.where(worth, (axes * scale) @ axes.T, same) for scale in (raised, 1 / raised)
        )
        return weights.astype(jnp.float32).astype(jnp.float64), unweighing, worth

    def _everyones(self, state: Told) -> tuple[Array, Array]:
        """The matrix of everyone's arms, in the coordinates of the parameter, and its noise."""
        if not isinstance(state, WeightedTold):
            return super()._everyones(state)
        dim, back = self.query.dim, state.unweighing
        gram, noise = self._matrix(self._opened(state))
        square = back @ back
        left = (jnp.trace(square) ** 2 + (square**2).sum()) / (dim * (dim + 1))
        return state.seen + back @ gram @ back, jnp.sqrt(state.blur + left * noise**2)

    def _gathered(
        self, opened: Told, values: Array, axes: Array, mean: Array
    ) -> tuple[Array, Array]:
        """What all cohorts tell; the open one about P⁻¹θ, which is shorter than θ."""
        if not isinstance(opened, WeightedTold):
            return super()._gathered(opened, values, axes, mean)
        back = opened.unweighing
        shorter = jnp.sqrt((back**2).sum() / self.query.dim)
        alone = dataclasses.replace(
            opened, precision=jnp.zeros_like(opened.precision), pull=jnp.zeros_like(opened.pull)
        )
        about = dataclasses.replace(self, radius=shorter * self.radius)
        precision, pull = super(LinearSampling, about)._gathered(alone, values, axes, mean)
        return opened.precision + back @ precision @ back, opened.pull + back @ pull


def water_level(values: Array, total: Array | float) -> Array:
    """To which level the least of ascending values must be raised for all to have this sum.

    >>> float(water_level(jnp.array([0.0, 1.0, 5.0]), 9.0))
    2.0
    """
    place = jnp.arange(len(values))
    greater = jnp.where(place > place[:, None], values, 0.0).sum(1)
    return ((total - greater) / (1 + place)).min()


def sampling(
    problem: Problem, *, mode: Mode = "tuned", epsilon: float = 1.0, delta: float = 0.0
) -> LinearSampling | GLMSampling:
    """The one for the problem's rewards."""
    kind = LinearSampling if problem.link == "linear" else GLMSampling
    return kind.of(problem, mode=mode, epsilon=epsilon)


register(
    "sampling",
    (LinearSampling, GLMSampling),
    promised=sampling,
    summary="each device plays its own guess, drawn from what releases leave open: `best` is this",
    source="ours; posterior sampling: Thompson 1933, Abeille and Lazaric 2017; "
    "weighted reports: after Chen et al. 2025",
)
