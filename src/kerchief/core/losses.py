"""Losses: what a policy may ask its users to be fitted to."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jax import Array

from kerchief.core.contracts import Example, Minimizer, Start
from kerchief.core.links import get_link
from kerchief.core.minimizers import Look, newton
from kerchief.core.problems import Problem
from kerchief.core.queries import BaseStatistic, clip_features, finite

_ROWS_ON_CPU = 128
"""How many rows an exact fit looks at at a time: few enough that a short history is quick."""

_ROWS = 16384
"""On an accelerator, where a block takes as long as its kernels take to start."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class GLMLoss(BaseStatistic):
    """The negative quasi-log-likelihood b(⟨x, θ⟩) − y ⟨x, θ⟩ of a generalized linear model.

    A row is (x, y), x scaled into the ball of radius `norm` and y clipped to [low, high]. Its
    gradient (μ(⟨x, θ⟩) − y) x, μ being the link, is scaled down to `clip` where it is longer, so
    that replacing one user moves a sum of gradients by at most 2 clip, at any point whatever. At
    most so many `fits` may be asked for.
    """

    link: str
    dim: int
    norm: float
    low: float
    high: float
    clip: float
    fits: int
    minimizer: Minimizer

    def __post_init__(self) -> None:
        """Check the bounds, and the link."""
        super().__post_init__()
        get_link(self.link)

    @classmethod
    def of(
        cls,
        problem: Problem,
        *,
        link: str,
        clip: float,
        fits: int,
        minimizer: Minimizer,
        importance: float = 1.0,
        batches: tuple[int, ...] = (),
    ) -> GLMLoss:
        """The loss that fits a problem's public bounds."""
        return cls(
            link=link,
            dim=problem.dim,
            norm=problem.norm,
            low=problem.low,
            high=problem.high,
            clip=clip,
            fits=fits,
            minimizer=minimizer,
            importance=importance,
            batches=batches,
        )

    @property
    def size(self) -> int:
        """Length of a row: x and y."""
        return self.dim + 1

    @property
    def sensitivity(self) -> float:
        """Two clipped gradients may point in opposite directions."""
        return 2 * self.clip

    def encode(self, record: Example) -> Array:
        """Clip x and y and write them side by side."""
        x = clip_features(record.features, self.norm)
        y = jnp.clip(finite(record.reward), self.low, self.high)
        return jnp.concatenate([x, y[None]])

    def gradients(self, rows: Array, point: Array) -> Array:
        """The clipped gradient of each row's loss at this point, in the rows' precision."""
        x, y = rows[:, : self.dim], rows[:, self.dim]
        slopes = get_link(self.link).mean(x @ point.astype(rows.dtype)) - y
        # The floor is above what squares that underflow can hide; an endless slope meets the limit.
        limit = self.clip / jnp.maximum(jnp.sqrt((x * x).sum(-1)), 1e-15)
        slopes = jnp.clip(jnp.where(jnp.isnan(slopes), 0, slopes), -limit, limit)
        return slopes[:, None] * x

    def minimum(self, rows: Array, start: Start, *, count: Array | int) -> Array:
        """The minimizer of the first `count` rows' losses and the ridge, by Newton's method."""

        def look(point: Array) -> Look:
            total = self._look(rows, point, count)
            return Look(
                value=total.value + start.ridge / 2 * (point @ point),
                slope=total.slope + start.ridge * point,
                curvature=total.curvature + start.ridge * jnp.eye(self.dim),
            )

        at_origin = count * get_link(self.link).integral(jnp.float64(0))
        return newton(look, start.point.astype(jnp.float64), at_origin=at_origin)

    def _look(self, rows: Array, point: Array, count: Array | int) -> Look:
        """The sum over the first `count` rows, in float64, some rows at a time.

        Blocks that hold none of them are not visited, so it takes as long as there are users, but
        where one block has room for all that may come.
        """
        link, room = get_link(self.link), rows.shape[0]
        size = min(room, _ROWS_ON_CPU if jax.default_backend() == "cpu" else _ROWS)

        def add(block: Array | int, total: Look) -> Look:
            # The last block may reach back into the one before, whose rows count no second time.
            first = jnp.minimum(block * size, room - size)
            places = first + jnp.arange(size)
            counts = (places >= block * size) & (places < count)
            wide = jax.lax.dynamic_slice_in_dim(rows, first, size).astype(jnp.float64)
            wide = jnp.where(counts[:, None], wide, 0)
            x, y = wide[:, : self.dim], wide[:, self.dim]
            score = x @ point
            loss = link.integral(score) - y * score
            return Look(
                value=total.value + jnp.where(counts, loss, 0).sum(),
                slope=total.slope + (link.mean(score) - y) @ x,
                curvature=total.curvature + (x * link.slope(score)[:, None]).T @ x,
            )

        nothing = Look(
            value=jnp.float64(0),
            slope=jnp.zeros(self.dim),
            curvature=jnp.zeros((self.dim, self.dim)),
        )
        if size == room:
            return add(0, nothing)
        summed: Look = jax.lax.fori_loop(0, -(-count // size), add, nothing)
        return summed
