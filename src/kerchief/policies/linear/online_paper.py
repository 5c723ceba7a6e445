"""Online LinUCB with the constants that its paper prints: for study, not for deployment.

"Improved rate for Locally Differentially Private Linear Bandits" (TMLR submission): Algorithm 1
with Maler as in its appendix, the gradient bound G of Corollary C.1, and the width √(M + K) of
Lemma 3.3, with M and the sum of ‖θ_t - θ*‖² bounded at the horizon as in Theorem C.2, which is
about expected losses: for those that the learner sees no constants are printed. Hidden constants
are 1.
Algorithm 9 begins it anew, with all its constants, after 1, 2, 4, ... users, and forgets the rest.

Not taken over is the noise, which is too little for the pair (`privacy.printed` says how much), and
the extra noise ζ on x where the least eigenvalue is taken for small: a learner draws nothing. What
ζ of variance Δ² adds on average is there: a ridge Δ² in the loss, which has the same mean gradient,
Δ² I for each user in Ṽ, and Δ² θ_t in ũ. That eigenvalue must be known; by default it is the
greatest possible, 1/d. Models are posted ever more rarely (`patience`), and not after every user.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import jax.numpy as jnp
from jax import Array

from kerchief.core.contracts import Release
from kerchief.core.online import Doubling, Maler, grid_size
from kerchief.core.pairs import Pair
from kerchief.core.problems import Problem
from kerchief.core.struct import struct
from kerchief.core.validate import between
from kerchief.policies.linear.online import Model, OnlineLinUCB, State
from kerchief.policies.registry import Mode, register

_FAILURE = 0.01
# No bonus is ever so large.
_NO_CEILING = 1e30


def printed_gradient_bound(
    *, std: float, perturbation: float, radius: float, horizon: int
) -> float:
    """G of Corollary C.1, with its universal constant at 1.

    Here `std` is σ of the printed noise, `perturbation` Δ² of the extra noise on x, and `radius` D.

    >>> round(printed_gradient_bound(std=0.4495, perturbation=0.0, radius=1.0, horizon=20000), 1)
    54.5
    """
    log, extra, d = math.log(2 * horizon / _FAILURE), math.sqrt(perturbation), radius
    linear = 2 * d * std + 2 * std + d * extra + extra
    square = 2 * d * extra**2 + 4 * d * extra * std + 2 * extra * std
    square += 2 * d * std**2 + 2 * std**2 + d * std**2
    return 2 * math.sqrt(2 * log) * linear + 2 * log * square + 2 * d + 2


def printed_square(
    *, steepest: float, convexity: float, radius: float, horizon: int
) -> tuple[float, float]:
    """Return the bounds of Theorem C.2 on expected regret and Σ ‖θ_t - θ*‖².

    >>> bounds = printed_square(steepest=54.0, convexity=0.4, radius=1.0, horizon=20000)
    >>> f"{bounds[1]:.1e}"
    '1.6e+07'
    """
    g, mu = steepest, convexity
    learning = 2 * math.log(math.sqrt(3) * (0.5 * math.log2(horizon) + 3)) + 1 + math.log(horizon)
    tail = g**2 * math.log(1 / _FAILURE)
    regret = (40 * g * radius + 18 * g**2 / mu) * learning + 32 * tail / mu
    square = (80 * g * radius / mu + 36 * g**2 / mu**2) * learning + 64 * tail / mu**2
    return regret, square


def _compute_constants(
    *, std: float, least: float, threshold: float, radius: float, horizon: int
) -> dict[str, float]:
    """Compute the constants of Algorithm 1 for a number of users.

    They are Δ², G, M, the bound on Σ ‖θ_t - θ*‖² and ln(T/α).
    """
    extra = threshold if least <= threshold else 0.0
    steepest = printed_gradient_bound(std=std, perturbation=extra, radius=radius, horizon=horizon)
    regret, square = printed_square(
        steepest=steepest, convexity=2 * (least + extra), radius=radius, horizon=horizon
    )
    log = math.log(horizon / _FAILURE)
    return {"ridge": extra, "steepest": steepest, "regret": regret, "square": square, "log": log}


@struct
class PrintedLinUCB(OnlineLinUCB):
    """`OnlineLinUCB` with the printed G and the printed width.

    Attributes:
        steepest: G.
        regret: M, the bound on the learner's regret.
        square: the bound on Σ ‖θ_t - θ*‖².
        spread: R, sub-Gaussian constant of the rewards.
        scale: √ln(1/δ)/ε, which stands for σ in Lemma 3.3.
        log: ln(T/α).
    """

    steepest: float | Array
    regret: float | Array
    square: float | Array
    spread: float | Array
    scale: float | Array
    log: float | Array

    @classmethod
    def build_with_budget(
        cls,
        problem: Problem,
        epsilon: float = math.inf,
        delta: float = 0.1,
        *,
        mode: Mode = "theory",
        least: float | None = None,
        power: float = 0.25,
    ) -> PrintedLinUCB:
        """The rule for a promise, or for none; there is nothing to tune.

        `least` is the least eigenvalue of E x xᵀ, by default 1/d. Not above the threshold T^(-k),
        x gets extra noise of that variance; `power` is k.
        """
        horizon, radius = problem.horizon, problem.radius
        epsilon = between("epsilon", epsilon, 1e-9, math.inf, closed=True)
        delta = between("delta", delta, 1e-300, 1.0)
        low = between("least", 1 / problem.dim if least is None else least, 0.0, 1e9, closed=True)
        bar = horizon ** -between("power", power, 0.0, 1.0, closed=True)
        std = 2 * math.sqrt(2 * math.log(1.25 / delta)) / epsilon
        return cls(
            query=Pair(dim=problem.dim, norm=problem.norm, low=problem.low, high=problem.high),
            learner=Maler(radius=radius, newton=0.5, rates=grid_size(horizon)),
            radius=radius,
            regularizer=1.0,
            exploration=1.0,
            ceiling=_NO_CEILING,
            patience=0.01,
            length=float(horizon),
            mode="theory",
            spread=(problem.high - problem.low) / 2,
            scale=math.sqrt(math.log(1 / delta)) / epsilon,
            **_compute_constants(std=std, least=low, threshold=bar, radius=radius, horizon=horizon),
        )

    def update(self, state: State, name: str, release: Release) -> State:
        """Learn, and count in Ṽ and ũ what ζ adds to them on average."""
        point = self.learner.point(state.learner)
        after = OnlineLinUCB.update(self, state, name, release)
        return dataclasses.replace(
            after,
            gram=after.gram + self.ridge * jnp.eye(self.query.dim),
            moment=after.moment + self.ridge * point,
        )

    def _curvature(self, variance: Array) -> Array:
        """Return the curvature for which the learner's gradient bound is the printed one."""
        return jnp.asarray(self.steepest / self.radius)

    def _width(self, state: State) -> Array:
        """√(M + K) of Lemma 3.3; in K, `ridge` is Δ² and γ is 1."""
        noise = self.spread + self.radius * (self.scale + jnp.sqrt(self.ridge))
        count = self._steps(state) + 1.0
        drift = self.radius * self.ridge * self.log * jnp.sqrt(count * self.square)
        spill = (self.scale**2 + self.ridge) * self.log * self.square
        return jnp.sqrt(self.regret + drift + noise**2 * self.log + spill)

    def _steps(self, state: State) -> Array:
        """Return how many reports this learner has learned from."""
        steps: Array = state.learner.steps
        return steps


@struct
class PrintedAnytime(PrintedLinUCB):
    """Algorithm 9: Algorithm 1 for 1, 2, 4, ... users, each time with its constants and from zero.

    In epoch m the threshold is (2^m)^(-k). `epochs` has each constant of each epoch.
    """

    epochs: Mapping[str, tuple[float | Array, ...]]

    @classmethod
    def build_with_budget(
        cls,
        problem: Problem,
        epsilon: float = math.inf,
        delta: float = 0.1,
        *,
        mode: Mode = "theory",
        least: float | None = None,
        power: float = 0.25,
    ) -> PrintedAnytime:
        """The rule for a promise, or for none; numbers as in Algorithm 1."""
        parts = [
            PrintedLinUCB.build_with_budget(
                dataclasses.replace(problem, horizon=2**m), epsilon, delta, least=least, power=power
            )
            for m in range(problem.horizon.bit_length())
        ]
        last = vars(parts[-1])
        return cls(
            **last | {"learner": Doubling(learner=last["learner"], forgetful=True)},
            epochs={
                name: tuple(getattr(part, name) for part in parts) for name in _EPOCH_CONSTANTS
            },
        )

    def update(self, state: State, name: str, release: Release) -> State:
        """Learn as in this epoch; its last user leaves nothing behind."""
        after = PrintedLinUCB.update(self._at_epoch(state), state, name, release)
        is_same_epoch = after.learner.length == state.learner.length
        return dataclasses.replace(
            after,
            gram=is_same_epoch * after.gram,
            moment=is_same_epoch * after.moment,
            distance=is_same_epoch * after.distance,
        )

    def publish(self, state: State) -> Model:
        """Publish the ellipsoid of this epoch."""
        return PrintedLinUCB.publish(self._at_epoch(state), state)

    def _at_epoch(self, state: State) -> PrintedAnytime:
        """Return this policy with the constants of the present epoch."""
        epoch = jnp.round(jnp.log2(state.learner.length)).astype(jnp.int32)
        constants: Any = {name: jnp.array(values)[epoch] for name, values in self.epochs.items()}
        return dataclasses.replace(self, **constants)

    def _steps(self, state: State) -> Array:
        steps: Array = state.learner.inner.steps
        return steps


_EPOCH_CONSTANTS = ("ridge", "steepest", "regret", "square", "log")
_SOURCE = "Improved rate for Locally Differentially Private Linear Bandits, Algorithm"
_register = partial(
    register,
    trusts=("none", "local"),
    default_environment=None,
    noises={"local": "gaussian"},
    arguments=("least", "power"),
)
_register(
    "online-linucb@paper",
    PrintedLinUCB,
    summary="The paper's online LinUCB, with its widths and bounds",
    source=f"{_SOURCE} 1",
    build_with_budget=PrintedLinUCB.build_with_budget,
)
_register(
    "online-linucb-anytime@paper",
    PrintedAnytime,
    summary="The paper's online LinUCB, restarted in epochs that double",
    source=f"{_SOURCE} 9",
    build_with_budget=PrintedAnytime.build_with_budget,
)
