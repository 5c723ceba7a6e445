"""Properties of what is made from any value at all (hypothesis)."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from kerchief.core.errors import CodecError, InvalidValueError, KerchiefError
from kerchief.core.pairs import Pair
from kerchief.core.problems import Problem
from kerchief.core.queries import GramMatrix, RegressionMoments
from kerchief.core.validate import (
    at_least,
    between,
    increasing,
    one_of,
    positive,
    real_array,
    whole,
)
from kerchief.deployment import Bandit, deploy
from kerchief.privacy import Cohort, Gaussian, Guarantee, Laplace, MemoryLedger, Trust, Zcdp
from kerchief.privacy.receipts import read_ledger
from kerchief_protocol.canonical import pack, read, unpack, write
from kerchief_protocol.model import Numbers
from kerchief_protocol.report import Report

quick = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
NUMBERS = st.one_of(
    st.floats(), st.integers(), st.integers(-(10**400), 10**400), st.booleans(), st.none()
)
ANYTHING = st.one_of(
    NUMBERS,
    st.text(),
    st.binary(),
    st.complex_numbers(),
    st.lists(NUMBERS, max_size=4),
    st.tuples(NUMBERS, NUMBERS),
    st.dictionaries(st.text(), NUMBERS, max_size=3),
    arrays.arrays(
        dtype=st.one_of(arrays.scalar_dtypes(), st.just(np.dtype(object))),
        shape=arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
        fill=None,
    ).filter(lambda array: array.size < 30),
)
FACTS = Problem(dim=2, arms=3, norm=1.0, radius=1.0, low=0.0, high=1.0, horizon=2000)


@given(ANYTHING)
@quick
def test_checks_answer_with_a_value_in_bounds_or_refuse(value: Any) -> None:
    with contextlib.suppress(KerchiefError):
        assert 0 < positive("x", value) < math.inf
    with contextlib.suppress(KerchiefError):
        assert 2 <= at_least("x", value, 2.0) < math.inf
    with contextlib.suppress(KerchiefError):
        assert 0 < between("x", value, 0.0, 1.0) < 1
    with contextlib.suppress(KerchiefError):
        assert 1 <= whole("x", value, high=9) <= 9
    with contextlib.suppress(KerchiefError):
        assert one_of("x", value, ("a", "b")) in ("a", "b")
    with contextlib.suppress(KerchiefError):
        assert list(increasing("x", value)) == sorted(set(value))
    with contextlib.suppress(KerchiefError):
        assert real_array("x", value).dtype == np.float64


@given(st.sampled_from(("dim", "arms", "norm", "radius", "low", "high", "horizon")), ANYTHING)
@quick
def test_a_problem_is_within_its_bounds_or_refused(name: str, value: Any) -> None:
    facts = vars(FACTS) | {name: value}
    with contextlib.suppress(KerchiefError):
        made = Problem(**facts)
        assert made.dim >= 1
        assert 1e-9 <= made.norm <= 1e9
        assert made.high - made.low >= 1e-9
        assert unpack(Problem, pack(made)) == made


@given(
    dim=st.integers(1, 30),
    norm=st.floats(1e-9, 1e9),
    low=st.floats(-1e9, 1e9),
    span=st.floats(0, 1e9),
    balance=st.floats(1e-9, 1e9),
    kind=st.sampled_from((RegressionMoments, Pair, GramMatrix)),
)
@quick
def test_every_query_that_is_made_has_a_finite_sensitivity(
    dim: int, norm: float, low: float, span: float, balance: float, kind: Any
) -> None:
    facts: dict[str, Any] = {"dim": dim, "norm": norm}
    if kind is not GramMatrix:
        facts |= {"low": low, "high": min(low + span, 1e9), "balance": balance}
    query = kind(**facts)
    assert 0 < query.sensitivity < math.inf
    assert 0 < query.radius < math.inf
    assert np.isfinite(query.center).all()


@given(epsilon=ANYTHING, delta=ANYTHING, trust=st.sampled_from((*Trust, "x", 3)), unit=ANYTHING)
@quick
def test_a_guarantee_says_what_it_promises_or_is_refused(
    epsilon: Any, delta: Any, trust: Any, unit: Any
) -> None:
    with contextlib.suppress(KerchiefError):
        made = Guarantee(epsilon=epsilon, delta=delta, trust=trust, unit=unit)
        assert Guarantee.from_dict(made.to_dict()) == made
        assert made.statement()


@given(
    event=st.one_of(
        st.builds(Gaussian, noise_multiplier=st.floats(0.01, 1e6)),
        st.builds(Laplace, noise_multiplier=st.floats(0.05, 1e6)),
        st.builds(Zcdp, rho=st.floats(0, 10)),
        ANYTHING,
    ),
    first=st.integers(-1, 50),
    length=st.integers(-1, 50),
    capacity=NUMBERS,
)
@quick
def test_a_refused_charge_leaves_no_trace_and_a_granted_one_fits(
    event: Any, first: int, length: int, capacity: Any
) -> None:
    ledger = MemoryLedger(Guarantee(epsilon=1.0, delta=1e-5, trust=Trust.JOINT))
    ledger.charge(Gaussian(noise_multiplier=20.0), cohort=Cohort(first=0, last=30))
    before = ledger.receipts
    try:
        cohort = Cohort(first=first, last=first + length)
        ledger.charge(event, cohort=cohort, capacity=capacity)
    except KerchiefError:
        assert ledger.receipts == before
    else:
        assert ledger.spent().epsilon <= 1 + 1e-9
        assert MemoryLedger.loads(ledger.dumps()).receipts == ledger.receipts


VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**53) + 1, 2**53 - 1), st.text()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(VALUES)
@quick
def test_a_tree_has_one_text(value: Any) -> None:
    with contextlib.suppress(CodecError):
        data = write(value)
        assert read(data) == value
        assert write(read(data)) == data


@given(ANYTHING)
@quick
def test_a_value_is_written_or_refused(value: Any) -> None:
    with contextlib.suppress(CodecError):
        read(write(value))


@given(
    arrays.arrays(
        dtype=st.sampled_from(("float32", "float64", "int32", "int64", "bool", ">f8")),
        shape=arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
    )
)
@quick
def test_an_array_keeps_every_bit(array: np.ndarray[Any, Any]) -> None:
    again = unpack(Numbers, read(write(pack(Numbers.of(array))))).array
    assert again.shape == array.shape
    assert again.dtype == array.dtype.newbyteorder("<")
    assert np.array_equal(again, array, equal_nan=array.dtype.kind == "f")


TASK = deploy(
    policy="linucb",
    problem=FACTS,
    guarantee=Guarantee(epsilon=1.0, delta=1e-6, trust=Trust.SHUFFLE),
).task
SENT = Report(label=0, epoch=0, id=bytes(16), numbers=TASK.bounds(0).high).write(TASK)


@given(start=st.integers(0, len(SENT)), cut=st.integers(0, 20), put=st.binary(max_size=20))
@quick
def test_an_altered_report_is_within_its_bounds_or_refused(
    start: int, cut: int, put: bytes
) -> None:
    with contextlib.suppress(KerchiefError):
        report = Report.read(SENT[:start] + put + SENT[start + cut :], TASK)
        assert TASK.within(report.numbers, report.label)


@given(st.text())
@quick
def test_no_text_but_a_ledger_is_read_as_one(text: str) -> None:
    with pytest.raises(KerchiefError):
        read_ledger(text)


@pytest.fixture(scope="module")
def bandit() -> Bandit:
    promise = Guarantee(epsilon=1.0, delta=1e-6, trust=Trust.LOCAL)
    return Bandit(policy="linucb", problem=FACTS, guarantee=promise, window_s=0)


@given(
    rows=st.one_of(
        arrays.arrays(np.float64, st.sampled_from(((3, 2), (2, 2), (1, 2), (0, 2), (3, 1)))),
        ANYTHING,
    ),
    allowed=st.one_of(st.none(), ANYTHING),
    reward=st.one_of(st.floats(), ANYTHING),
)
@quick
def test_a_bandit_refuses_or_stays_finite(
    bandit: Bandit, rows: Any, allowed: Any, reward: Any
) -> None:
    before = bandit.users
    try:
        choice = bandit.decide(rows, allowed)
    except InvalidValueError:
        assert bandit.expire() == 0
        assert bandit.users == before
    else:
        with contextlib.suppress(InvalidValueError):
            bandit.reward(choice.id, reward)
        assert bandit.expire() == 1
        assert bandit.users == before + 1
    assert all(np.isfinite(part).all() for part in bandit.model.values())
