"""The choice of an arm, from a posted model.

The highest upper bound over an ellipsoid around the estimate, or what is best under a guess that
the device draws for itself. A guess protects nobody: it may come from any source of randomness.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kerchief_device.source import Randomness, drawn
from kerchief_wire.errors import InvalidValue
from kerchief_wire.model import Model
from kerchief_wire.noise import Floats


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


@dataclass(frozen=True, kw_only=True)
class Beliefs:
    """A model's numbers, where devices guess.

    Attributes:
        estimate: of the parameter.
        sample: a square root of the covariance that guesses are drawn with.
        widen: the same for directions in which a random width is enough.
        weights: what the features of a report are multiplied by, where the task says so.
        reference: the estimate whose surprises are reported then.
    """

    estimate: Floats
    sample: Floats
    widen: Floats
    weights: Floats | None = None
    reference: Floats | None = None


def beliefs(model: Model, dim: int, *, reweighed: bool = False) -> Beliefs:
    """Read a posted model, like `ellipsoid`; with what weighs reports, where something does.

    Raises:
        InvalidValue: as there.
    """
    return Beliefs(
        estimate=read_array(model, "estimate", (dim,)),
        sample=read_array(model, "sample", (dim, dim)),
        widen=read_array(model, "widen", (dim, dim)),
        weights=read_array(model, "weights", (dim, dim)) if reweighed else None,
        reference=read_array(model, "reference", (dim,)) if reweighed else None,
    )


def ellipsoid(model: Model, dim: int) -> Ellipsoid:
    """Read a posted model, which a stranger may have written.

    Raises:
        InvalidValue: it lacks an array, or has one of another shape or with numbers that are not
            finite.
    """
    return Ellipsoid(
        estimate=read_array(model, "estimate", (dim,)),
        inverse=read_array(model, "inverse", (dim, dim)),
        width=read_array(model, "width", ()).item(),
    )


def act(model: Ellipsoid, rows: Floats, mask: NDArray[np.bool_] | None) -> int:
    """The allowed row of the highest upper bound; the first of those that are equal.

    >>> seen = Ellipsoid(estimate=np.array([1.0, 0.0]), inverse=np.eye(2), width=0.5)
    >>> rows = np.array([[0.0, 0.0], [0.5, 0.5], [1.0, 0.0]])
    >>> act(seen, rows, None), act(seen, rows, np.array([True, True, False]))
    (2, 1)
    """
    with np.errstate(all="ignore"):
        squares = np.add.reduce((rows @ model.inverse) * rows, -1)
        upper = rows @ model.estimate + model.width * np.sqrt(np.maximum(0, squares))
    return first_best(upper, mask)


def guess(dim: int, source: Randomness) -> tuple[Floats, float]:
    """Independent normal numbers, one per dimension, and one that is uniform in [0, 1).

    >>> normals, lot = guess(3, lambda count: bytes(count))
    >>> normals.shape, 0 < lot < 1e-15
    ((3,), True)
    """
    pairs = (dim + 1) // 2
    lots = (np.frombuffer(drawn(8 * (2 * pairs + 1), source), "<u8") >> 11) * 2.0**-53 + 2.0**-54
    length, angle = np.sqrt(-2 * np.log(lots[:pairs])), 2 * math.pi * lots[pairs:-1]
    normals = np.concatenate([length * np.cos(angle), length * np.sin(angle)])[:dim]
    return normals, float(lots[-1])


def act_on_a_guess(
    model: Beliefs, rows: Floats, mask: NDArray[np.bool_] | None, normals: Floats, lot: float
) -> int:
    """The allowed row that is best under the guess; the first of those that are equal.

    >>> seen = Beliefs(estimate=np.zeros(2), sample=np.eye(2), widen=np.zeros((2, 2)))
    >>> act_on_a_guess(seen, np.eye(2), None, np.array([0.3, 0.7]), 0.5)
    1
    """
    with np.errstate(all="ignore"):
        wide = rows @ model.widen
        value = rows @ (model.estimate + model.sample @ normals)
        value += 2 * lot * np.sqrt(np.add.reduce(wide * wide, -1))
    return first_best(value, mask)


def first_best(value: Floats, mask: NDArray[np.bool_] | None) -> int:
    """An allowed row, whatever the values are: a stranger's finite numbers may overflow.

    Whether they do depends on the rows, so it must show nowhere: in no log, and in no error.
    """
    if mask is None:
        return int(value.argmax())
    allowed = np.flatnonzero(mask)
    return int(allowed[value[allowed].argmax()])


def read_array(model: Model, name: str, shape: tuple[int, ...]) -> Floats:
    """One array of a posted model, which a stranger may have written.

    Raises:
        InvalidValue: there is none, or one of another shape or with numbers that are not finite.
    """
    numbers = model.arrays.get(name)
    if numbers is None or numbers.shape != shape or not numbers.dtype.startswith("<f"):
        found = "no such array" if numbers is None else f"{numbers.dtype} of shape {numbers.shape}"
        raise InvalidValue(f"the model's {name} is {found}; it must be real, of shape {shape}")
    array = numbers.array.astype(np.float64)
    if not np.isfinite(array).all():
        raise InvalidValue(f"the model's {name} is not finite; read the billboard again")
    return array
