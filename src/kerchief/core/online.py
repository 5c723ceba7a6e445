"""Online learners: a point in a ball that moves with every gradient.

Each is a frozen description and pure functions of a state. Maler (Wang, Lu and Zhang 2020,
"Adaptivity and optimality: a universal algorithm for online convex optimization") runs a convex
expert, and for a grid of rates η an expert for strongly convex and one for exp-concave losses; each
is judged by its own surrogate of the loss, and the point is their mean with exponential weights.
"""

from __future__ import annotations

import math
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from kerchief.core.contracts import Tree
from kerchief.core.linalg import solve_quadratic
from kerchief.core.minimizers import project_to_ball
from kerchief.core.struct import static, struct

# Newton's method in `nearest` doubles the correct digits in each step, and starts close.
_STEPS = 10
_CLOSE = 1e-12


class Learner(Protocol):
    """Moves a point against gradients that it is shown one by one."""

    def begin(self, point: Array, length: Array | float) -> Tree:
        """The state at a first point, with about so many steps ahead."""

    def point(self, state: Tree) -> Array:
        """Where it is now."""

    def step(self, state: Tree, gradient: Array, curvature: Array) -> Tree:
        """Move, by this round's gradient at the present point, which may be noisy.

        The curvature bounds how fast a gradient changes with the point.
        """


@struct
class Moving:
    """A point and the steps that led there."""

    at: Array
    steps: Array


@struct
class Descent:
    """Gradient descent with steps a/(t + a h), h the curvature, kept within a ball.

    That is at most 1/h in the beginning and a/t in the end, for losses of curvature 1/a at least.
    """

    radius: float | Array
    pace: float | Array

    def begin(self, point: Array, length: Array | float) -> Moving:
        """At this point; how many steps there will be does not matter."""
        return Moving(at=point, steps=jnp.float64(0))

    def point(self, state: Moving) -> Array:
        """Where it is now."""
        return state.at

    def step(self, state: Moving, gradient: Array, curvature: Array) -> Moving:
        """One step against the gradient."""
        steps = state.steps + 1
        rate = self.pace / (steps + self.pace * curvature)
        return Moving(at=project_to_ball(state.at - rate * gradient, self.radius), steps=steps)


@struct
class Experts:
    """What Maler keeps: the points of its experts, one row for each rate.

    The concave ones have matrices (`metric`). Weights are logarithms, up to a constant: convex,
    strong, concave. So many steps were taken, of the `length` that was foreseen.
    """

    convex: Array
    strong: Array
    concave: Array
    metric: Array
    weights: Array
    steps: Array
    length: Array


def grid_size(horizon: int) -> int:
    """How many rates Maler's grid has for so many steps.

    >>> grid_size(20000)
    9
    """
    return math.ceil(0.5 * math.log2(max(1, horizon))) + 1


@struct
class Maler:
    """Maler with all of its experts; gradients are clipped to G = slack * curvature * radius.

    Attributes:
        slack: how far above curvature times radius the bound on gradients is.
        newton: step of the exp-concave experts: half of min(1/(4 · 7/25), 1) is what their analysis
            asks for.
        rates: how many rates the grid has at most; for fewer steps it has fewer.
    """

    radius: float | Array
    slack: float | Array = 1.0
    newton: float | Array = 25 / 56
    rates: int = static()

    def begin(self, point: Array, length: Array | float) -> Experts:
        """All experts at this point, with the weights that they have before any loss."""
        start = jnp.eye(point.shape[0]) / (2 * self.newton * self.radius) ** 2
        length = jnp.asarray(length, jnp.float64)
        rows = jnp.tile(point, (self.rates, 1))
        return Experts(
            convex=point,
            strong=rows,
            concave=rows,
            metric=jnp.tile(start, (self.rates, 1, 1)),
            weights=jnp.log(self._priors(length)),
            steps=jnp.float64(0),
            length=length,
        )

    def point(self, state: Experts) -> Array:
        """The mean of all experts, each with its weight times its rate."""
        rates = self._rates(state.length, 1.0)
        share = jax.nn.softmax(state.weights + jnp.log(rates))
        points = jnp.concatenate([state.convex[None], state.strong, state.concave])
        return share @ points

    def step(self, state: Experts, gradient: Array, curvature: Array) -> Experts:
        """Judge the experts by their surrogates, then let each take its own step."""
        bound = self.slack * curvature * self.radius
        g = project_to_ball(gradient, bound)
        here, steps = self.point(state), state.steps + 1
        rates = self._rates(state.length, bound)
        slow, fast = rates[0], rates[1 : self.rates + 1, None]
        largest = 2 * self.radius * bound
        gain = (here - state.convex) @ g
        strong_gap, concave_gap = here - state.strong, here - state.concave
        strong_gain, concave_gain = strong_gap @ g, concave_gap @ g
        eta = fast[:, 0]
        surrogates = jnp.concatenate(
            [
                (-slow * gain + (slow * largest) ** 2)[None],
                -eta * strong_gain + (eta * bound) ** 2 * (strong_gap**2).sum(-1),
                -eta * concave_gain + (eta * concave_gain) ** 2,
            ]
        )
        convex = state.convex - 2 * self.radius / (bound * jnp.sqrt(steps)) * g
        strong = state.strong + strong_gap / steps - g / (2 * fast * bound**2 * steps)
        slopes = fast * (1 - 2 * eta * concave_gain)[:, None] * g
        metric = state.metric + slopes[:, :, None] * slopes[:, None, :]
        pulls = jnp.einsum("kij,kj->ki", metric, state.concave) - slopes / self.newton
        return Experts(
            convex=project_to_ball(convex, self.radius),
            strong=jax.vmap(project_to_ball, in_axes=(0, None))(strong, self.radius),
            concave=jax.vmap(nearest, in_axes=(0, 0, None))(metric, pulls, self.radius),
            metric=metric,
            weights=jax.nn.log_softmax(state.weights - surrogates),
            steps=steps,
            length=state.length,
        )

    def _rates(self, length: Array, bound: Array | float) -> Array:
        """The rates of all experts: one for the convex, then the grid twice."""
        largest = 2 * self.radius * bound
        grid = 2.0 ** -np.arange(self.rates) / (5 * largest)
        return jnp.concatenate([(0.5 / (largest * jnp.sqrt(length)))[None], grid, grid])

    def _priors(self, length: Array) -> Array:
        """A third for each kind; rates beyond the grid for so many steps get nothing."""
        last = jnp.ceil(0.5 * jnp.log2(jnp.maximum(1.0, length)))
        i = np.arange(self.rates)
        grid = jnp.where(i <= last, (1 + 1 / (1 + last)) / (3 * (i + 1) * (i + 2)), 0.0)
        return jnp.concatenate([jnp.full(1, 1 / 3), grid, grid])


@struct
class Epoch:
    """A learner's state, and how much of its epoch is left."""

    inner: Tree
    length: Array
    left: Array


@struct
class Doubling:
    """Begins a learner anew after 1, 2, 4, ... steps: no horizon is needed.

    It begins from where it is, or from zero where it is `forgetful`.
    """

    learner: Learner
    forgetful: bool = static(default=False)

    def begin(self, point: Array, length: Array | float) -> Epoch:
        """The first epoch, of one step; how many steps there will be does not matter."""
        unit = jnp.float64(1)
        return Epoch(inner=self.learner.begin(point, unit), length=unit, left=unit)

    def point(self, state: Epoch) -> Array:
        """Where the learner is now."""
        return self.learner.point(state.inner)

    def step(self, state: Epoch, gradient: Array, curvature: Array) -> Epoch:
        """One step; the last of an epoch begins the next, which is twice as long."""
        inner = self.learner.step(state.inner, gradient, curvature)
        length, over = 2 * state.length, state.left == 1
        here = self.learner.point(inner)
        fresh = self.learner.begin(jnp.zeros_like(here) if self.forgetful else here, length)
        return Epoch(
            inner=jax.tree.map(lambda new, old: jnp.where(over, new, old), fresh, inner),
            length=jnp.where(over, length, state.length),
            left=jnp.where(over, length, state.left - 1),
        )


def nearest(metric: Array, pull: Array, radius: float | Array) -> Array:
    """The point of the ball that is nearest, in the norm of a metric M, to M⁻¹ pull.

    It is (M + νI)⁻¹ pull for the least ν ≥ 0 that puts it into the ball. Newton's method on
    1/length, which is concave in ν, never steps over that ν, so it needs no safeguard. Mostly the
    first point is inside, and no step is taken.
    """
    unit = jnp.eye(metric.shape[-1])

    def at(load: Array) -> tuple[Array, Array, Array]:
        """The point, by which share it is too long, and what to add to ν then."""
        point, slope = solve_quadratic(metric + load * unit, pull)
        square = point @ point
        excess = jnp.sqrt(square) / radius - 1
        return point, excess, excess * square / jnp.maximum(slope, 1e-30)

    def outside(state: tuple[Array, ...]) -> Array:
        _, excess, _, _, steps = state
        return (excess > _CLOSE) & (steps < _STEPS)

    def step(state: tuple[Array, ...]) -> tuple[Array, ...]:
        _, _, further, load, steps = state
        return *at(load + further), load + further, steps + 1

    nothing = 0 * pull[0]
    start: tuple[Array, ...] = (*at(nothing), nothing, nothing)
    return jax.lax.while_loop(outside, step, start)[0]
