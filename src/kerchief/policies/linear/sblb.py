"""Shuffle-batched linear bandits with the paper's own widths, batches and switching rule.

E. Garcelon, K. Chaudhuri, V. Perchet, M. Pirotta, "Privacy amplification via shuffling for linear
contextual bandits", ALT 2022, algorithm 1 with equations (7) and (8), and algorithm 4, which posts
after every batch. Kept to compare with: even without noise these widths lose about as much as
uniform play at every horizon that we can run. Repaired, it is `sblb`. Proof note: `sblb.md`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array

from kerchief.core.batches import growing
from kerchief.core.contracts import Outlook, Release
from kerchief.core.linalg import floored_inverse, log_det
from kerchief.core.problems import Problem
from kerchief.core.queries import Regression
from kerchief.core.struct import static, struct
from kerchief.core.validate import positive, whole
from kerchief.policies.ellipsoid import Model, Optimist, posted
from kerchief.policies.linear.linucb import LinUCB
from kerchief.policies.refresh import Batchwise
from kerchief.policies.registry import Mode, register

__all__ = ["SBLB", "Mended"]

# The batch length of the paper's condition as printed, at T = 20000 and δ = 1e-5, for every ε.
_PRINTED = 371
_MOST_BATCHES = 2**20


@struct
class Held:
    """The matrix and vector that the posted model was made from, and their widths."""

    matrix: Array
    vector: Array
    width: Array
    floor: Array


@struct
class SBLB(Batchwise, Optimist):
    """Optimism with the constants of Garcelon et al. 2022; sums come halved, as they code them.

    Attributes:
        radius: bound S on the norm of the parameter.
        spread: sub-Gaussian constant of the rewards.
        regularizer: λ.
        growth: η; a new model needs a determinant that is 1 + η times as large. Negative: any will
            do, as in algorithm 4.
        confidence: δ of the widths.
    """

    query: Regression = static()
    radius: float | Array
    spread: float | Array
    regularizer: float | Array
    growth: float | Array
    confidence: float | Array

    @classmethod
    def of(cls, problem: Problem, *, mode: Mode = "theory", switching: bool) -> SBLB:
        """Build it from public facts alone; there is nothing to tune."""
        length = min(_PRINTED, whole("horizon", problem.horizon, high=_PRINTED * _MOST_BATCHES))
        query = dataclasses.replace(
            Regression.of(problem), batches=tuple(range(length, problem.horizon + 1, length))
        )
        return cls(
            query=query,
            radius=problem.radius,
            spread=(problem.high - problem.low) / 2,
            regularizer=problem.horizon**0.5,
            growth=0.5 if switching else -1.0,
            confidence=0.05,
        )

    def init(self, outlook: Mapping[str, Outlook]) -> Held:
        """Before any user: the regularizer alone."""
        dim = self.query.dim
        start = jnp.asarray(self.regularizer, jnp.float64)
        return Held(
            matrix=start * jnp.eye(dim), vector=jnp.zeros(dim), width=jnp.float64(0), floor=start
        )

    def update(self, state: Held, name: str, release: Release) -> Held:
        """Hold the new sums if their determinant has grown enough."""
        gram, moment = self.query.split(release.total)
        ridge, width = self._widths(release.count, release.noise)
        dim = self.query.dim
        matrix = gram / 2 + 2 * ridge * jnp.eye(dim)
        grown = log_det(matrix) >= jnp.log1p(self.growth) + log_det(state.matrix)
        new = Held(matrix=matrix, vector=moment / 2, width=width, floor=0.1 * ridge)
        held: Held = jax.tree.map(partial(jnp.where, grown | (self.growth < 0)), new, state)
        return held

    def publish(self, state: Held) -> Model:
        """The estimate; eigenvalues are floored, as noise may make some negative."""
        inverted = floored_inverse(state.matrix, state.floor)
        return posted(Model(estimate=inverted @ state.vector, inverse=inverted, width=state.width))

    def _widths(self, count: Array, noise: Array) -> tuple[Array, Array]:
        """Equations (8) and (7), with the noise that a release states in place of √t/((1−p)√m)."""
        log = jnp.log(2 * count / self.confidence)
        ridge = jnp.sqrt(8 * log) * (jnp.sqrt(1.0 * count) + 2 * noise) + self.regularizer
        dim = self.query.dim
        sampling = self.spread * jnp.sqrt(8 * log + dim * jnp.log(3 + count / ridge))
        shaken = 2 * noise * jnp.sqrt(log) + 8 / 3 * log + jnp.sqrt(8 * count * log)
        return ridge, sampling + self.radius * jnp.sqrt(3 * ridge) + dim / jnp.sqrt(ridge) * shaken


@struct
class Mended(LinUCB):
    """LinUCB on batches that grow: what is left of the algorithm of Garcelon et al. 2022, repaired.

    Batches grow by a factor of 2.5. The first, in which nothing is known, has a twenty-fifth of all
    users, and more where epsilon is small: (d + 2)/(10 ε) times that, up to a fifth of all.
    """

    @classmethod
    def of(
        cls,
        problem: Problem,
        *,
        mode: Mode = "tuned",
        exploration: float | None = None,
        epsilon: float = math.inf,
    ) -> Mended:
        """Build it as `LinUCB.of` does, with a damping of 1; epsilon is that of the promise."""
        epsilon = positive("epsilon", epsilon, infinite=True)
        made = LinUCB.of(problem, mode=mode, exploration=exploration)
        longer = min(5.0, max(1.0, (problem.dim + 2) / (10 * epsilon)))
        first = max(100, int(problem.horizon / 25 * longer))
        batches = growing(problem.horizon, first=first, growth=2.5)
        query = dataclasses.replace(made.query, batches=batches)
        return cls(**(vars(made) | {"query": query, "damping": 1.0}))


def _promised(
    problem: Problem, *, mode: Mode, epsilon: float = math.inf, delta: float = 0.0
) -> Mended:
    return Mended.of(problem, mode=mode, epsilon=epsilon)


register(
    "sblb",
    Mended,
    summary="shuffle-batched linear bandit: LinUCB on batches that grow",
    source="Garcelon et al. 2022, repaired",
    trusts=("none", "shuffle"),
    promised=_promised,
)
for _name, _algorithm, _switching, _when in (
    ("sblb@paper", 1, True, "as the determinant says"),
    ("sblb-fixed@paper", 4, False, "after every batch"),
):
    register(
        _name,
        SBLB,
        partial(SBLB.of, switching=_switching),
        summary=f"LinUCB with the paper's widths and batches, and a new model {_when}",
        source=f"Garcelon et al. 2022, Algorithm {_algorithm}",
        trusts=("none", "shuffle"),
        home=None,
        deployable=False,
    )
