"""Gaussian noise for simulation: floating point, so an idealization of what deployment adds."""

from __future__ import annotations

from jax import Array

from kerchief.core.random import Stream
from kerchief.core.struct import static, struct
from kerchief.core.validate import between
from kerchief.mechanisms.exact_gaussian import ExactGaussian
from kerchief.mechanisms.mechanism import Simulated
from kerchief.privacy import events


@struct
class Gaussian(Simulated):
    """Add independent normal noise of one standard deviation to every coordinate.

    Symmetric matrices come as `core.linalg.svec` writes them, so their noise matrix has standard
    deviation `std` on the diagonal and std/√2 off it: what the Frobenius sensitivity pays for.

    Formal guarantees:
        With real numbers, adding this noise to a vector of Euclidean sensitivity Δ costs the event
        `privacy.events.Gaussian(noise_multiplier=std / Δ)`: see `gaussian.md`. Floating-point noise
        leaks through its low bits, so only simulation may use it; `ExactGaussian` is the twin for
        deployment.
    """

    std: float | Array
    sensitivity: float = static()

    @classmethod
    def of(cls, *, noise_multiplier: float, sensitivity: float) -> Gaussian:
        """The noise that a multiplier, once calibrated, asks for."""
        noise_multiplier = between("noise_multiplier", noise_multiplier, 0.0, 1e150, closed=True)
        sensitivity = between("sensitivity", sensitivity, 1e-150, 1e150, closed=True)
        return cls(std=noise_multiplier * sensitivity, sensitivity=sensitivity)

    def add(self, vector: Array, stream: Stream) -> Array:
        """The vector with noise."""
        return vector + self.std * stream.normal(vector.shape[0])

    def exact(self, dimension: int) -> ExactGaussian:
        """The twin for deployment, at the same multiplier, for vectors of this length."""
        multiplier = float(self.std) / self.sensitivity
        return ExactGaussian.matching(multiplier, self.sensitivity, dimension)

    def _price(self) -> events.Event:
        return events.Gaussian(noise_multiplier=float(self.std) / self.sensitivity)
