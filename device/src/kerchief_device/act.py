"""The choice of an arm: the highest upper bound over an ellipsoid around the posted estimate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kerchief_wire.errors import InvalidValue
from kerchief_wire.model import Model
from kerchief_wire.noise import Floats

__all__ = ["Ellipsoid", "act", "ellipsoid"]


@dataclass(frozen=True, kw_only=True)
class Ellipsoid:
    """A model's numbers, ready for use.

    Attributes:
        estimate: of the parameter.
        inverse: of the matrix of the confidence set.
        width: of the confidence set.
    """

    estimate: Floats
    inverse: Floats
    width: float


def ellipsoid(model: Model, dim: int) -> Ellipsoid:
    """Read a posted model, which a stranger may have written.

    Raises:
        InvalidValue: it lacks an array, or has one of another shape or with numbers that are not
            finite.
    """
    return Ellipsoid(
        estimate=_array(model, "estimate", (dim,)),
        inverse=_array(model, "inverse", (dim, dim)),
        width=_array(model, "width", ()).item(),
    )


def act(model: Ellipsoid, rows: Floats, mask: NDArray[np.bool_] | None) -> int:
    """The allowed row of the highest upper bound; the first of those that are equal.

    >>> seen = Ellipsoid(estimate=np.array([1.0, 0.0]), inverse=np.eye(2), width=0.5)
    >>> rows = np.array([[0.0, 0.0], [0.5, 0.5], [1.0, 0.0]])
    >>> act(seen, rows, None), act(seen, rows, np.array([True, True, False]))
    (2, 1)
    """
    squares = np.add.reduce((rows @ model.inverse) * rows, -1)
    upper = rows @ model.estimate + model.width * np.sqrt(np.maximum(0, squares))
    return int((upper if mask is None else np.where(mask, upper, -np.inf)).argmax())


def _array(model: Model, name: str, shape: tuple[int, ...]) -> Floats:
    numbers = model.arrays.get(name)
    if numbers is None or numbers.shape != shape or not numbers.dtype.startswith("<f"):
        found = "no such array" if numbers is None else f"{numbers.dtype} of shape {numbers.shape}"
        raise InvalidValue(f"the model's {name} is {found}; it must be real, of shape {shape}")
    array = numbers.array.astype(np.float64)
    if not np.isfinite(array).all():
        raise InvalidValue(f"the model's {name} is not finite; read the billboard again")
    return array
