"""The choice of an arm, from a posted model.

A device plays the arm of the highest upper bound over an ellipsoid around the estimate, or the best
arm under a guess that the device draws for itself. A guess protects nobody: it may come from any
source of randomness.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kerchief_device.constant_time import flush
from kerchief_device.source import Randomness, drawn
from kerchief_protocol.errors import InvalidValueError
from kerchief_protocol.model import Model
from kerchief_protocol.noise import Floats

_KINDS = {"f": "real", "i": "whole", "b": "true or false"}


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
class PosteriorModel:
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


def beliefs(model: Model, dim: int, *, reweighed: bool = False) -> PosteriorModel:
    """Read a posted model as beliefs, with the weights of reports if reweighed.

    Raises:
        InvalidValueError: it has other arrays, or one of another shape or with numbers that are not
            finite.
    """
    shapes: dict[str, tuple[int, ...]] = {
        "estimate": (dim,),
        "sample": (dim, dim),
        "widen": (dim, dim),
    }
    if reweighed:
        shapes |= {"weights": (dim, dim), "reference": (dim,)}
    return PosteriorModel(**read_reals(model, shapes))


def ellipsoid(model: Model, dim: int) -> Ellipsoid:
    """Read a posted model, which a stranger may have written, as an ellipsoid.

    Raises:
        InvalidValueError: it has other arrays, or one of another shape or with numbers that are not
            finite.
    """
    shapes = {"estimate": (dim,), "inverse": (dim, dim), "width": ()}
    arrays = read_reals(model, shapes)
    width = arrays.pop("width").item()
    return Ellipsoid(**arrays, width=width)


def act(model: Ellipsoid, rows: Floats, mask: NDArray[np.bool_] | None) -> int:
    """Return the allowed row of the highest upper bound, the first among equals.

    >>> ellipsoid = Ellipsoid(estimate=np.array([1.0, 0.0]), inverse=np.eye(2), width=0.5)
    >>> rows = np.array([[0.0, 0.0], [0.5, 0.5], [1.0, 0.0]])
    >>> act(ellipsoid, rows, None), act(ellipsoid, rows, np.array([True, True, False]))
    (2, 1)
    """
    with np.errstate(all="ignore"):
        # Each row by itself: `@` rounds equal rows differently, by their place and the processor.
        squares = np.add.reduce(np.vecmat(rows, model.inverse) * rows, -1)
        score = np.vecdot(rows, model.estimate)
        upper = score + model.width * np.sqrt(np.maximum(0, squares))
    return first_best(upper, mask)


def guess(dim: int, source: Randomness) -> tuple[Floats, float]:
    """Draw a normal number per dimension, and a number uniform in [0, 1).

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
    model: PosteriorModel, rows: Floats, mask: NDArray[np.bool_] | None, normals: Floats, lot: float
) -> int:
    """Return the allowed row that is best under a guess, the first among equals.

    >>> model = PosteriorModel(estimate=np.zeros(2), sample=np.eye(2), widen=np.zeros((2, 2)))
    >>> act_on_a_guess(model, np.eye(2), None, np.array([0.3, 0.7]), 0.5)
    1
    """
    with np.errstate(all="ignore"):
        wide = np.vecmat(rows, model.widen)
        value = np.vecdot(rows, model.estimate + model.sample @ normals)
        value += 2 * lot * np.sqrt(np.add.reduce(wide * wide, -1))
    return first_best(value, mask)


def first_best(value: Floats, mask: NDArray[np.bool_] | None) -> int:
    """Return the first allowed row of the largest value, for any values.

    A stranger's finite numbers may overflow. Whether they do depends on the rows, so no log and no
    error shows it.
    """
    if mask is None:
        return int(value.argmax())
    allowed = np.flatnonzero(mask)
    return int(allowed[value[allowed].argmax()])


def read_reals(model: Model, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Floats]:
    """Read arrays of a posted model, which a stranger may have written, as float64.

    Numbers that are too small or too large for steady arithmetic are flushed (`constant_time.py`).

    Raises:
        InvalidValueError: it has other arrays, or one of another shape or with numbers that are not
            finite.
    """
    arrays = read_arrays(model, {name: ("f", shape) for name, shape in shapes.items()})
    return {name: flush(array.astype(np.float64)) for name, array in arrays.items()}


def read_arrays(
    model: Model, forms: Mapping[str, tuple[str, tuple[int, ...]]]
) -> dict[str, NDArray[Any]]:
    """Read exactly the arrays of a posted model that a program uses, in their forms.

    A device stores no other array with a decision, so its task bounds what it stores.

    Args:
        model: that a stranger may have written.
        forms: of each array, its kind (f, i or b, as in NumPy) and its shape.

    Raises:
        InvalidValueError: it has other arrays, or one of another form or with numbers that are not
            finite.
    """
    arrays = {}
    for name, (kind, shape) in forms.items():
        numbers = model.arrays.get(name)
        if numbers is None or numbers.shape != shape or numbers.dtype[1] != kind:
            form = "missing" if numbers is None else f"{numbers.dtype} of shape {numbers.shape}"
            raise InvalidValueError(
                f"the model's {name} is {form:.80}; it must be {_KINDS[kind]}, of shape {shape}"
            )
        arrays[name] = numbers.array
        if not np.isfinite(arrays[name]).all():
            raise InvalidValueError(f"the model's {name} is not finite; read the billboard again")
    if len(model.arrays) > len(forms):
        raise InvalidValueError(
            f"the model has {len(model.arrays)} arrays; its task uses {len(forms)}: "
            f"{', '.join(forms)}"
        )
    return arrays
