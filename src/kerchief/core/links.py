"""Links: how a linear score becomes an expected reward."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.stats import norm

from kerchief.core.errors import InvalidValueError, UnknownNameError

Curve = Callable[[Array], Array]
Constant = Callable[[float], float]


@dataclass(frozen=True, kw_only=True)
class Link:
    """A link and its public facts.

    The constants are functions of a public bound on the scores' size, the largest score.

    Attributes:
        mean: the expected reward of a score.
        origin: the expected reward of score 0.
        integral: a convex function whose derivative is `mean`: what a (quasi-)likelihood pays for a
            score z and a reward r is integral(z) - r z.
        rewards: the least and the greatest reward, if scores lie between two bounds.
        steepest: the greatest slope up to the largest score.
        flattest: the least; its inverse is the κ of the literature.
        self_concordance: an M with |mean''| <= M slope up to the largest score.
    """

    name: str
    summary: str
    mean: Curve
    origin: float
    slope: Curve
    integral: Curve
    rewards: Callable[[float, float], tuple[float, float]]
    steepest: Constant
    flattest: Constant
    self_concordance: Constant

    def kappa(self, largest_score: float) -> float:
        """The κ of the literature, 1 / flattest (host only)."""
        least, greatest = self.flattest(largest_score), self.steepest(largest_score)
        if least < 1e-300 or not math.isfinite(greatest):
            raise InvalidValueError(
                f"scores reach {largest_score:g}, where the slope of {self.name} lies between "
                f"{least:g} and {greatest:g}; give a smaller radius or norm"
            )
        return 1 / least


def _exp(score: float) -> float:
    return math.exp(score) if score < 709 else math.inf


def _density(score: float) -> float:
    return math.exp(-score * score / 2) / math.sqrt(2 * math.pi)


_LINEAR = Link(
    name="linear",
    summary="the expected reward is the score",
    mean=lambda score: score,
    origin=0.0,
    slope=jnp.ones_like,
    integral=lambda score: score * score / 2,
    rewards=lambda least, greatest: (least, greatest),
    steepest=lambda largest_score: 1.0,
    flattest=lambda largest_score: 1.0,
    self_concordance=lambda largest_score: 0.0,
)

# |mean''| / slope is tanh(|z| / 2): below one, and near it already for a moderate largest score.
_LOGISTIC = Link(
    name="logistic",
    summary="the expected reward is the logistic function of the score",
    mean=jax.nn.sigmoid,
    origin=0.5,
    slope=lambda score: jax.nn.sigmoid(score) * jax.nn.sigmoid(-score),
    integral=jax.nn.softplus,
    rewards=lambda least, greatest: (0.0, 1.0),
    steepest=lambda largest_score: 0.25,
    flattest=lambda largest_score: math.exp(-largest_score) / (1 + math.exp(-largest_score)) ** 2,
    self_concordance=lambda largest_score: 1.0,
)

# Not the likelihood of a Bernoulli reward but a convex quasi-likelihood. Its score has mean zero at
# the true parameter, and the variance Φ(1 - Φ) is below the slope φ, as in an exponential family.
# |mean''| / slope is |z|; it is held to at least one, the width of the rewards' range, because the
# same constant stands for the bound on their noise.
_PROBIT = Link(
    name="probit",
    summary="the expected reward is the normal distribution function of the score",
    mean=norm.cdf,
    origin=0.5,
    slope=norm.pdf,
    integral=lambda score: score * norm.cdf(score) + norm.pdf(score),
    rewards=lambda least, greatest: (0.0, 1.0),
    steepest=lambda largest_score: _density(0.0),
    flattest=_density,
    self_concordance=lambda largest_score: max(1.0, largest_score),
)

# A Poisson count has no bound, and clipping one moves its mean off the link. So rewards are bounded
# first, by the whole number at or above the greatest mean, and each law of rewards keeps its mean
# within that; the binomial law, which is the one that counts, also keeps its variance below the
# slope, as a Poisson count does.
_POISSON = Link(
    name="poisson",
    summary="the expected reward is the exponential of the score",
    mean=jnp.exp,
    origin=1.0,
    slope=jnp.exp,
    integral=jnp.exp,
    rewards=lambda least, greatest: (0.0, float(np.ceil(_exp(greatest)))),
    steepest=_exp,
    flattest=lambda largest_score: math.exp(-largest_score),
    self_concordance=lambda largest_score: 1.0,
)

LINKS = {link.name: link for link in (_LINEAR, _LOGISTIC, _PROBIT, _POISSON)}


def get_link(name: str) -> Link:
    """Find a link."""
    if not isinstance(name, str) or name not in LINKS:
        raise UnknownNameError(
            f"no link is called {str(name)[:80]!r}; choose one of {', '.join(LINKS)}"
        )
    return LINKS[name]
