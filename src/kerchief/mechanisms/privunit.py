"""A normal vector on the statistic's side: the best pure local randomizer of vectors in a ball.

`PrivUnitG` is for simulation. Its reports carry the statistic in their low bits, so a deployment
uses `mechanisms.shortlist.ExactShortlist`, which has nearly the same law. Note: `privunit.md`.

H. Asi, V. Feldman, K. Talwar, "Optimal algorithms for mean estimation under local differential
privacy", ICML 2022, section 4: there for unit vectors.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from kerchief.core.random import Stream
from kerchief.core.struct import static, struct
from kerchief.core.validate import between
from kerchief.mechanisms.ball import SidedReport, spread_out, upper_normal
from kerchief.mechanisms.mechanism import Floats
from kerchief.mechanisms.shortlist import ExactShortlist, Shortlist
from kerchief.privacy import events
from kerchief.privacy.unit_vectors import unit_epsilon, unit_noise


@struct
class PrivUnitG(SidedReport):
    """Report a normal vector, more often from beyond a threshold along the statistic.

    The statistic is centred, scaled into the unit ball and lifted to the unit sphere of one more
    dimension. Along it the report is a normal number that is above the threshold γ = radius/std
    with probability p instead of q; across it, plain normal noise. The lift is dropped.

    Formal guarantees:
        With real numbers, one report is ε-differentially private, e^ε = p(1 − q)/((1 − p)q), and
        has mean the statistic and covariance std² I, whatever the statistic: see `privunit.md`.
        A std of 0 is no noise.

    >>> noise = PrivUnitG.of(epsilon=1.0, center=0.0, radius=2**0.5, size=3)
    >>> round(noise.std, 3), round(noise.event().epsilon, 6)
    (3.558, 1.0)
    """

    std: float | Array
    center: tuple[float, ...] = static()
    radius: float = static()

    @classmethod
    def of(cls, *, epsilon: float, center: float | Floats, radius: float, size: int) -> PrivUnitG:
        """The noise with which a report is ε-private (less noise beyond ε = 30 is not drawn)."""
        radius = between("radius", radius, 1e-18, 1e18, closed=True)
        return cls(std=radius * unit_noise(epsilon), center=spread_out(center, size), radius=radius)

    def _price(self) -> events.Event:
        return events.RandomizedResponse(epsilon=unit_epsilon(self.radius / float(self.std)))

    def exact(self, dimension: int | None = None) -> ExactShortlist:
        """The twin for deployment, at the same epsilon.

        Its noise is within a hundredth of this one's up to an epsilon of 13.
        """
        return Shortlist.of(
            epsilon=unit_epsilon(self.radius / float(self.std)),
            center=np.array(self.center),
            radius=self.radius,
            size=len(self.center),
        ).exact()

    def along(self, stream: Stream) -> Array:
        """A normal number, above the threshold with probability p, by its tail probability."""
        threshold = self.radius / jnp.asarray(self.std)
        tail = jax.scipy.stats.norm.sf(threshold)
        density = jax.scipy.stats.norm.pdf(threshold)
        chance = tail * (1 + threshold * (1 - tail) / density)
        coin, place = stream.uniform(2).astype(jnp.float64)
        return upper_normal(coin, place, chance, tail, tail)
