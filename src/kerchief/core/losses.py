"""Losses: what a policy may ask its users to be fitted to."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
from jax import Array

from kerchief.core.contracts import Example, Minimizer, Start
from kerchief.core.links import link_named
from kerchief.core.minimizers import newton
from kerchief.core.problems import Problem
from kerchief.core.queries import Posed, clip_features, finite


@dataclasses.dataclass(frozen=True, kw_only=True)
class GLMLoss(Posed):
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
        link_named(self.link)

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
        slopes = link_named(self.link).mean(x @ point.astype(rows.dtype)) - y
        # The floor is above what squares that underflow can hide; an endless slope meets the limit.
        most = self.clip / jnp.maximum(jnp.sqrt((x * x).sum(-1)), 1e-15)
        slopes = jnp.clip(jnp.where(jnp.isnan(slopes), 0, slopes), -most, most)
        return slopes[:, None] * x

    def minimum(self, rows: Array, start: Start) -> Array:
        """The minimizer over the rows of the losses and the ridge, by Newton's method."""
        link, wide = link_named(self.link), rows.astype(jnp.float64)
        x, y, ridge = wide[:, : self.dim], wide[:, self.dim], start.ridge

        def value(point: Array) -> Array:
            # A row of zeros weighs the constant b(0), which moves nothing.
            score = x @ point
            return (link.integral(score) - y * score).sum() + ridge / 2 * (point @ point)

        def slope(point: Array) -> Array:
            return (link.mean(x @ point) - y) @ x + ridge * point

        def curvature(point: Array) -> Array:
            return (x * link.slope(x @ point)[:, None]).T @ x + ridge * jnp.eye(self.dim)

        # Far out a loss may overflow, and Newton's steps be short: the origin is never far.
        given, origin = start.point.astype(jnp.float64), jnp.zeros(self.dim)
        begin = jnp.where(value(given) < value(origin), given, origin)
        return newton(value, slope, curvature, begin)
