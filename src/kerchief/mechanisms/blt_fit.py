"""Which buffered linear Toeplitz factor adds the least noise for a horizon.

The factor C has the generating function Π (1 - φ_j x) / Π (1 - θ_j x), with one θ and one φ for
each buffer, 1 > θ₁ > φ₁ > θ₂ > φ₂ > ... > 0. They alternate, so every quantity below is a sum of
positive terms. Roots near 1 are held by their gaps 1 - root. Privacy does not rest on the search.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import MutableMapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kerchief.core.errors import InvalidValueError

# Real, or complex where a derivative is carried in the imaginary part.
Numbers = NDArray[Any]

# What a search has found, by horizon and buffers: the gaps. A command keeps them between runs, and
# spares itself a library that takes a tenth of its start to import.
found: MutableMapping[tuple[int, int], tuple[float, ...]] = {}

_STEP = 1e-30
# How far the search may go from its start: far enough, and the largest gap never rounds to 1.
_FIRST_SPAN, _RISE_SPAN = 4.0, 1.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fit:
    """A factor as the stream needs it: b_i = base + Σ_j weights_j decays_j^i, all positive.

    The column norm is that of the first column of C, over the horizon that it was made for.
    """

    base: float
    weights: tuple[float, ...]
    decays: tuple[float, ...]
    column_norm: float


@functools.cache
def fit(horizon: int, buffers: int) -> Fit:
    """Return the factor whose worst noise over the horizon, at a fixed cost, is least."""
    if (horizon, buffers) not in found:
        found[horizon, buffers] = tuple(_search(horizon, buffers).tolist())
    return fit_of(np.array(found[horizon, buffers]), horizon)


def _search(horizon: int, buffers: int) -> NDArray[np.float64]:
    optimize: Any = importlib.import_module("scipy.optimize")
    start = _start(horizon, buffers)
    span = np.append(_FIRST_SPAN, np.full(start.size - 1, _RISE_SPAN))
    least = optimize.minimize(
        _value_and_gradient,
        start,
        args=(horizon,),
        jac=True,
        method="L-BFGS-B",
        bounds=np.stack([start - span, start + span], axis=1),
        options={"maxiter": 500, "ftol": 1e-9, "gtol": 1e-6},
    )
    return _gaps(least.x)


def fit_of(gaps: Numbers, horizon: int) -> Fit:
    """Return the factor with these gaps, of θ₁, φ₁, θ₂, φ₂ and so on, for this horizon.

    The decays are rounded first: the column norm is that of the very numbers that are used.
    """
    gaps = np.array(gaps, np.float64)
    decays = 1.0 - gaps[1::2]
    gaps[1::2] = 1.0 - decays
    if gaps[0] <= 0 or gaps[-1] >= 1 or not (np.diff(gaps) > 0).all():
        raise InvalidValueError(f"gaps are {gaps.tolist()}; they must grow strictly within (0, 1)")
    base, weights = _response(gaps)
    return Fit(
        base=float(base[0]),
        weights=tuple(weights.tolist()),
        decays=tuple(decays.tolist()),
        column_norm=float(np.sqrt(_column_energy(gaps, horizon))),
    )


def energy(base: Numbers, weights: Numbers, gaps: Numbers, count: int) -> Numbers:
    """Return Σ_{i < count} (base + Σ_j weights_j (1 - gaps_j)^i)²."""
    amplitudes, rates = modes(base, weights, gaps)
    faded: Numbers = (amplitudes * np.expm1(count * rates)).sum(-1)
    return base[..., 0] ** 2 * count - faded


def modes(base: Numbers, weights: Numbers, gaps: Numbers) -> tuple[Numbers, Numbers]:
    """Amplitudes a and rates l with `energy` = base² count - Σ a expm1(count l)."""
    rates, products = np.log1p(-gaps), _pairs(np.multiply, weights)
    pair_gaps = _pairs(np.add, gaps) - _pairs(np.multiply, gaps)
    amplitudes = np.concatenate([2 * base * weights / gaps, products / pair_gaps], -1)
    return amplitudes, np.concatenate([rates, _pairs(np.add, rates)], -1)


def row_norm(factor: Fit, count: Any, library: Any) -> Any:
    """The norm of row `count` of B, exact up to rounding: see `factor.Factor.row_norm`.

    >>> float(row_norm(fit_of(np.array([0.25, 0.5]), 2), np.array(2.0), np))
    1.25
    """
    amplitudes, rates = _row_modes(factor)
    faded = library.sum(amplitudes * library.expm1(count[..., None] * rates), axis=-1)
    return library.sqrt(factor.base**2 * count - faded)


@functools.cache
def _row_modes(factor: Fit) -> tuple[Numbers, Numbers]:
    base, weights = np.array([factor.base]), np.array(factor.weights)
    return modes(base, weights, 1.0 - np.array(factor.decays))


def _pairs(operation: np.ufunc, values: Numbers) -> Numbers:
    """The operation on every ordered pair of values, in one row."""
    table: Numbers = operation(values[..., :, None], values[..., None, :])
    return table.reshape(*values.shape[:-1], -1)


def _column_energy(gaps: Numbers, horizon: int) -> Numbers:
    """The squared norm of C's first column: 1, then Σ_j ω_j θ_j^i for i = 0, 1, ..."""
    theta, phi = gaps[..., 0::2], gaps[..., 1::2]
    omega = _residues(theta, phi)
    return 1.0 + energy(np.zeros_like(theta[..., :1]), omega, theta, horizon - 1)


def _response(gaps: Numbers) -> tuple[Numbers, Numbers]:
    """The base and the weights of B = A C⁻¹, whose generating function has one more root, 1."""
    theta, phi = gaps[..., 0::2], gaps[..., 1::2]
    weights = _residues(np.concatenate([np.zeros_like(phi[..., :1]), phi], -1), theta)
    return weights[..., :1], weights[..., 1:]


def _residues(poles: Numbers, zeros: Numbers) -> Numbers:
    """The weight of each pole in a ratio of products; differences of roots are those of gaps."""
    above = np.prod(zeros[..., None, :] - poles[..., :, None], -1)
    between = poles[..., None, :] - poles[..., :, None] + np.eye(poles.shape[-1])
    residues: Numbers = above / np.prod(between, -1)
    return residues


def _gaps(free: Numbers) -> Numbers:
    """Growing numbers within (0, 1): logits that start anywhere and rise by exponentials."""
    rises = np.cumsum(np.exp(free[..., 1:]), -1)
    logits = np.concatenate([free[..., :1], free[..., :1] + rises], -1)
    gaps: Numbers = 1.0 / (1.0 + np.exp(-logits))
    return gaps


def _loss(free: Numbers, horizon: int) -> Numbers:
    """The logarithm of the squared noise on the last prefix, per unit of multiplier."""
    gaps = _gaps(free)
    response = energy(*_response(gaps), gaps[..., 1::2], horizon)
    loss: Numbers = np.log(_column_energy(gaps, horizon) * response)
    return loss


def _value_and_gradient(free: Numbers, horizon: int) -> tuple[float, NDArray[np.float64]]:
    """Exact derivatives: the loss is analytic, so a tiny imaginary step carries each of them."""
    loss = _loss(free + 1j * _STEP * np.eye(free.size), horizon)
    return float(loss[0].real), loss.imag / _STEP


def _start(horizon: int, buffers: int) -> NDArray[np.float64]:
    """Logits of gaps that grow by equal rises, from 1 / horizon up to a constant."""
    depth, rises = np.log(horizon), 2 * buffers - 1
    return np.append(-depth, np.full(rises, np.log((depth + 1.0) / rises)))
