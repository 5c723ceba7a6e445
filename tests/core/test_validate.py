"""Checks on values: NumPy's numbers are numbers, and what is kept is plain."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kerchief.core import validate
from kerchief.core.errors import InvalidValueError
from kerchief.core.problems import Problem
from kerchief.core.queries import RegressionMoments
from kerchief.privacy import Guarantee, Trust
from kerchief.privacy.calibration import gaussian_noise_multiplier
from kerchief.privacy.events import DiscreteGaussian
from kerchief_protocol.canonical import pack, unpack

# Types say int and float: what people pass is wider.
numpy: Any = np
FACTS: dict[str, Any] = {"radius": 1.0, "low": 0.0, "high": 1.0}


@pytest.mark.parametrize("kind", [np.int8, np.int64, np.uint16])
def test_whole_takes_numpy_and_gives_int(kind: Any) -> None:
    assert type(validate.whole("dim", kind(12))) is int
    assert validate.increasing("batches", (kind(3), kind(7))) == (3, 7)
    assert type(validate.increasing("batches", (kind(3),))[0]) is int
    with pytest.raises(InvalidValueError, match=r"^dim is 0; it must be at least 1$"):
        validate.whole("dim", kind(0))


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, np.longdouble, np.int32])
@pytest.mark.parametrize(
    "check",
    [
        validate.positive,
        lambda name, value: validate.at_least(name, value, 0.0),
        lambda name, value: validate.between(name, value, 0.0, 2.0),
        lambda name, value: validate.or_default(name, value, 0.0),
    ],
)
def test_numbers_take_numpy_and_give_float(
    kind: Callable[[int], float], check: Callable[[str, float], float]
) -> None:
    found = check("norm", kind(1))
    assert (type(found), found) == (float, 1.0)


@pytest.mark.parametrize(
    "value", [True, np.bool_(True), np.array(1), "1", None, np.float32("nan"), 1j, np.complex64(1)]
)
def test_what_is_no_number_is_refused(value: object) -> None:
    with pytest.raises(InvalidValueError, match="must be a number"):
        validate.positive("norm", value)  # type: ignore[arg-type]
    with pytest.raises(InvalidValueError, match="must be a whole number"):
        validate.whole("dim", value)  # type: ignore[arg-type]


def test_an_infinite_numpy_number_is_infinite() -> None:
    with pytest.raises(InvalidValueError, match="finite"):
        validate.positive("norm", numpy.float32("inf"))
    assert validate.positive("epsilon", numpy.float32("inf"), infinite=True) == math.inf


def test_facts_and_promises_keep_plain_numbers() -> None:
    facts = Problem(
        dim=numpy.int64(12),
        arms=numpy.int8(3),
        norm=numpy.float32(0.1),
        horizon=numpy.uint32(9),
        **FACTS,
    )
    assert {type(facts.dim), type(facts.arms), type(facts.horizon)} == {int}
    assert type(facts.norm) is float
    again = unpack(Problem, pack(facts))
    assert again == facts
    assert hash(again) == hash(facts)
    promise = Guarantee(
        epsilon=numpy.float32(0.5),
        delta=numpy.float64(1e-5),
        trust=Trust.LOCAL,
        rounds=numpy.int32(5),
    )
    assert json.loads(json.dumps(promise.to_dict())) == promise.to_dict()


def test_narrow_numbers_neither_round_nor_overflow() -> None:
    """A sensitivity in half precision would be too small, and a bill could not be written."""
    query = RegressionMoments(dim=numpy.int8(100), norm=numpy.float16(3.0), low=-300.0, high=300.0)
    assert (
        query.sensitivity
        == RegressionMoments(dim=100, norm=3.0, low=-300.0, high=300.0).sensitivity
    )
    assert query.size == 100 * 101 // 2 + 100
    event = DiscreteGaussian(
        sensitivity=numpy.float32(2), scale=numpy.int64(8), dimension=numpy.int32(3)
    )
    assert json.loads(json.dumps(event.to_dict()))["scale"] == 8
    half = gaussian_noise_multiplier(numpy.float32(0.5), numpy.float32(2.0**-20))
    assert half == gaussian_noise_multiplier(0.5, 2.0**-20)
