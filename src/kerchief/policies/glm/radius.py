"""How far a (noisy) estimate of a generalized linear model can be from the truth, in numbers.

All are for one batch or, elementwise, for several. Proofs in `batched.md`, section 3.
"""

from __future__ import annotations

import math

import jax.numpy as jnp
from jax import Array

from kerchief.core.struct import static, struct


@struct
class Facts:
    """What the bounds depend on: public numbers.

    Attributes:
        dim: d.
        users: n, how many there are in the batch.
        ridge: λ of the loss.
        radius: S, bound on the norm of the parameter.
        norm: bound on the norm of an arm.
        steepest: bound on μ'.
        spread: R, width of the rewards' range.
        bend: M, bound on |μ''|/μ'.
        log: the logarithm of one over the failure probability.
    """

    dim: int = static()
    users: Array
    ridge: Array
    radius: float | Array
    norm: float | Array
    steepest: float | Array
    spread: float | Array
    bend: float | Array
    log: float | Array


def distance(facts: Facts, estimate: Array, excess: Array) -> Array:
    """The most that ‖θ̂ − θ*‖ can be in the norm of the loss's curvature at the truth.

    Γ = √λ (S + 1/2R) + 2Rψ/√λ bounds the gradient at the truth (Faury et al. 2020), with
    ψ = d log 2 + log 1/ζ + d/2 log(1 + nL/(dλ)); what the loss curves at least along the way is
    1/c of what it does at the truth, c = 2 + M‖x‖(S + ‖θ̂‖). So D²/c ≤ ν + DΓ.
    Here ν, `excess`, is how far the loss at θ̂ may be above that at the truth.
    """
    span, ridge, dim = facts.spread, facts.ridge, facts.dim
    grown = facts.users * facts.steepest * facts.norm**2 / (dim * ridge)
    tail = dim * math.log(2) + facts.log + dim / 2 * jnp.log1p(grown)
    gap = jnp.sqrt(ridge) * (facts.radius + 1 / (2 * span)) + 2 * span * tail / jnp.sqrt(ridge)
    far = facts.radius + jnp.linalg.norm(estimate, axis=-1)
    curve = 2 + facts.bend * facts.norm * far
    bound: Array = curve * gap + jnp.sqrt(curve * excess)
    return bound


def excess(facts: Facts, *, steps: int, clip: float, noise: Array) -> Array:
    """How far averaged noisy descent may leave a loss above its value at the truth.

    `core.minimizers.GradientDescent` with its own step, with noise of this deviation on each
    coordinate of each gradient sum. It falls as the root of the steps and grows with n.
    """
    tail = jnp.sqrt(2 * (facts.log + math.log(steps)))
    slope = facts.users * clip
    expected = jnp.maximum(jnp.sqrt(slope**2 + facts.dim * noise**2), 1e-9)
    longest = slope + facts.ridge * facts.radius + noise * (math.sqrt(facts.dim) + tail)
    descent = (expected + longest**2 / (2 * expected)) / math.sqrt(2)
    return 2 * facts.radius * (descent + noise * tail) / math.sqrt(steps)
