"""A report takes the same operations for every record, reward and posted model."""

from __future__ import annotations

import dataclasses
import gc
import itertools
import math
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from scipy import special  # type: ignore[import-untyped]
from tests.device.helpers import (
    COINS,
    COMPASS,
    GRID,
    NEEDS,
    ONE_BIT,
    OPTIMIST,
    model,
    status,
    task,
)
from tests.device.test_randomize import BITS, GAUSSIAN, LAPLACE, SHORTLIST
from tests.vectors.bytes_of import Bytes

from kerchief_device import Device, Pending, constant_time, record
from kerchief_device.disjoint_models import own_size
from kerchief_device.record import RULE
from kerchief_protocol.model import Model, Numbers
from kerchief_protocol.noise import Bits, Coins, Floats, Noise, Rounded, Shortlist, Statistic
from kerchief_protocol.programs import Answering, DisjointModels, Optimist, Phased, Program
from kerchief_protocol.task import Task

Operations = list[tuple[Any, ...]]
SURPRISED = dataclasses.replace(OPTIMIST, choice="guess", reweighed=RULE)
OWN = DisjointModels(
    dim=2,
    arms=4,
    norm=1.0,
    varying=1.0,
    low=0.0,
    high=1.0,
    offset=0.5,
    lever=0.0,
    weight=0.25,
    balance=0.0,
)


def _linked(link: str, **more: Any) -> Optimist:
    program = dataclasses.replace(OPTIMIST, link=link, linearized=True, weighted=True)
    return dataclasses.replace(program, largest_score=4.0, **more)


PROGRAMS: dict[str, Optimist | DisjointModels] = {
    "linear": OPTIMIST,
    **{link: _linked(link) for link in ("logistic", "probit", "poisson")},
    "surprised": SURPRISED,
    "surprised-weighted": dataclasses.replace(SURPRISED, weighted=True),
    "surprised-probit": _linked("probit", choice="guess", reweighed=RULE),
    "own": OWN,
    "own-pooled": dataclasses.replace(OWN, dim=3, lever=0.5, balance=1.0),
}
NOISES: tuple[Noise, ...] = (GRID, GAUSSIAN, LAPLACE, COINS, BITS, SHORTLIST, COMPASS)
# A row of features; the posted matrices see it at any length, or not at all.
RECORDS: dict[str, Any] = {
    "ordinary": [0.5, 0.25],
    "zero": [0.0, 0.0],
    "negative zero": [-0.0, 0.0],
    "one feature": [0.0, 0.25],
    "subnormal": [5e-324, -1e-310],
    "partly subnormal": [0.5, 5e-324],
    "tiny": [1e-200, 1e-300],
    "nearly none": [1e-13, 0.0],
    "boundary": [0.6, 0.8],
    "over the boundary": [0.6 * (1 + 5e-7), 0.8 * (1 + 5e-7)],
    "negative": [-1.0, 0.0],
    "other signs": [0.7, -0.7],
}
REWARDS: tuple[float | None, ...] = (0.5, 0.0, 1.0, 0.25, 5e-324, 1e-300, None)
MATRICES: dict[str, Any] = {
    "identity": np.eye(2),
    "aligned": np.diag([1.0, 0.0]),
    "orthogonal": np.diag([0.0, 1.0]),
    "of one row": np.array([[1.0, -2.0], [0.0, 0.0]]),
    "none": np.zeros((2, 2)),
    "subnormal": np.full((2, 2), 5e-324),
    "small": np.diag([1e-300, 1e-170]),
    "large": np.diag([1e300, -1e300]),
    "largest": np.full((2, 2), 1.79e308),
    "long": np.diag([8.0, 1.0]),
    "short": np.diag([1e-13, 1e-13]),
}
VECTORS: dict[str, Any] = {
    "zero": [0.0, 0.0],
    "ordinary": [1.0, -0.5],
    "steep": [300.0, -300.0],
    "subnormal": [5e-324, 1e-310],
    "largest": [1.79e308, 1.79e308],
    "cancelling": [0.5, -1.0],
}


def _operations(call: Callable[[], Any]) -> Operations:
    """Every opcode of every frame, NumPy's own included, and every array that a frame knows."""
    found: Operations = []

    def local(frame: FrameType, event: str, value: Any) -> Any:
        if event == "opcode":
            found.append((frame.f_code.co_qualname, frame.f_lasti))
        elif event in ("line", "return"):
            found.extend(_arrays(frame))
        return local

    def begin(frame: FrameType, event: str, value: Any) -> Any:
        frame.f_trace_opcodes = True
        found.append(("call", frame.f_code.co_filename, frame.f_code.co_qualname))
        return local

    before = sys.gettrace()
    # Collections of garbage come when they come.
    gc.disable()
    sys.settrace(begin)
    try:
        call()
    finally:
        sys.settrace(before)
        gc.enable()
    return found


def _arrays(frame: FrameType) -> Iterator[tuple[Any, ...]]:
    for name, value in frame.f_locals.items():
        if isinstance(value, np.ndarray | np.generic):
            yield name, value.dtype.str, value.shape
        elif isinstance(value, bytes | list | tuple | dict):
            yield name, type(value).__name__, len(value)


def _differs(one: Operations, other: Operations) -> str:
    """Where two sequences part, or nothing."""
    for place, pair in enumerate(itertools.zip_longest(one, other)):
        if pair[0] != pair[1]:
            return f"operation {place}: {pair[0]} and {pair[1]}"
    return ""


def _task(program: Program, noise: Noise) -> Task:
    """A task of this noise, with as many numbers as the program reports."""
    size = own_size(program) if isinstance(program, DisjointModels) else 5
    labels = 0
    match noise:
        case Statistic() | Rounded() | Shortlist():
            noise = dataclasses.replace(noise, center=(*noise.center, *[0] * size)[:size])
        case Coins():
            noise, labels = dataclasses.replace(noise, size=size), len(noise.coins)
        case Bits():
            noise, labels = dataclasses.replace(noise, size=size), len(noise.keep)
    return task(noise, program=program, needs=NEEDS[:labels])


def _model(of: Task, matrix: Any, vector: Any) -> Model:
    """A posted model whose arrays all are this matrix and this vector."""
    program = of.program
    assert isinstance(program, Optimist | DisjointModels)
    matrix, vector = np.array(matrix, np.float64), np.array(vector, np.float64)
    arrays: dict[str, Any] = {"estimate": vector, "sample": matrix}
    if isinstance(program, DisjointModels):
        arms, dim = program.arms, program.dim
        arrays = {"estimate": np.zeros((arms, dim)), "sample": np.zeros((arms, dim, dim))}
        arrays["sample"][:, :2, :2] = matrix
        arrays["estimate"][:, :2] = vector
    elif program.choice == "bound":
        arrays = {"estimate": vector, "inverse": matrix, "width": np.array(0.125)}
    else:
        arrays["widen"] = matrix
        if program.reweighed:
            arrays |= {"weights": matrix, "reference": vector}
    return _posted(of, {name: Numbers.of(array) for name, array in arrays.items()})


def _posted(of: Task, arrays: dict[str, Numbers]) -> Model:
    return dataclasses.replace(model(of), arrays=arrays)


class Visits:
    """A device whose reports on any visit draw the same random bytes."""

    def __init__(self, of: Task, pending: Pending | None = None) -> None:
        self.task, self._bytes, self._ids = of, Bytes("same"), itertools.count()
        self.device = Device(of, pending=pending, source=self._source)
        # What is kept after the first report, such as tables of noise, depends on the task alone.
        self.operations(RECORDS["ordinary"], 0.5)

    def _source(self, count: int) -> bytes:
        return self._bytes(count)

    def operations(
        self, row: Any, reward: float | None, matrix: Any = MATRICES["long"], vector: Any = (0, 0)
    ) -> Operations:
        """Those of a report on a visit in which the first row was played."""
        program = self.task.program
        assert isinstance(program, Optimist | DisjointModels)
        self._bytes = Bytes(f"id {next(self._ids)}")
        features = np.array([[*row, *[0.5] * (program.dim - 2)]]) / math.sqrt(program.dim - 1)
        id = self.device.decide(_model(self.task, matrix, vector), features).id
        if reward is not None:
            assert self.device.reward(id, reward)
        self._bytes = Bytes("same")
        said = status(self.task)
        found = _operations(lambda: self.device.report(id, said))
        self.device.confirm(id)
        return found


PAIRS = [
    *((name, GRID) for name in PROGRAMS),
    *(("linear", noise) for noise in NOISES if noise not in (GRID, COMPASS)),
    *(("own-pooled", noise) for noise in (GAUSSIAN, COINS, SHORTLIST)),
    ("surprised", COMPASS),
]


@pytest.mark.parametrize(("name", "noise"), PAIRS, ids=lambda one: getattr(one, "kind", one))
def test_report_operations_are_the_same_for_all_records(name: str, noise: Noise) -> None:
    visits = Visits(_task(PROGRAMS[name], noise))
    usual = visits.operations(RECORDS["ordinary"], 0.5)
    assert len(usual) > 200
    for what, row in RECORDS.items():
        assert not _differs(usual, visits.operations(row, 0.5)), what
    for reward in REWARDS:
        assert not _differs(usual, visits.operations(RECORDS["ordinary"], reward)), reward


@pytest.mark.parametrize("name", PROGRAMS)
def test_report_operations_are_the_same_for_all_models(name: str) -> None:
    visits = Visits(_task(PROGRAMS[name], COMPASS if name == "surprised" else GRID))
    usual = visits.operations(RECORDS["ordinary"], 0.5)
    for (what, matrix), (where, vector) in itertools.product(MATRICES.items(), VECTORS.items()):
        for row in ("ordinary", "one feature", "subnormal"):
            found = visits.operations(RECORDS[row], 1.0, matrix, vector)
            assert not _differs(usual, found), (what, where, row)


def _subnormal(call: Callable[[], Any]) -> set[tuple[str, str]]:
    """Where the device computes with subnormal numbers: in which function, under which name."""
    found, least = set(), np.finfo(np.float64).tiny

    def local(frame: FrameType, event: str, value: Any) -> Any:
        for name, array in frame.f_locals.items():
            # These are what is given, before it is flushed.
            if name in ("features", "numbers") or not isinstance(array, np.ndarray):
                continue
            sizes = np.abs(array) if array.dtype == np.float64 else np.zeros(0)
            if ((sizes > 0) & (sizes < least)).any():
                found.add((frame.f_code.co_qualname, name))
        return local

    def begin(frame: FrameType, event: str, value: Any) -> Any:
        return local if "kerchief_device" in frame.f_code.co_filename else None

    before = sys.gettrace()
    sys.settrace(begin)
    try:
        call()
    finally:
        sys.settrace(before)
    return found


def _visit(of: Task, row: Any) -> Callable[[], bytes]:
    """The call that makes the report on a visit with these features."""
    device, dim = Device(of), getattr(of.program, "dim", 2)
    features = np.array([[*row, *[0.5] * (dim - 2)]])
    id = device.decide(_model(of, np.eye(2), (0.5, 0.25)), features).id
    device.reward(id, 1.0)
    return partial(device.report, id, status(of))


SMALL = ([5e-324, -1e-310], [0.5, 5e-324], [1e-200, 1e-300])


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_report_computes_with_subnormal_numbers(name: str) -> None:
    """Processors are slow with them, which no count of operations shows."""
    own = _task(PROGRAMS[name], COMPASS if name == "surprised" else GRID)
    assert set().union(*(_subnormal(_visit(own, row)) for row in SMALL)) == set()


def test_features_that_are_not_flushed_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "flush", lambda features: features)
    found = _subnormal(_visit(_task(OPTIMIST, GRID), SMALL[0]))
    assert ("into_ball", "x") in found


def test_silence_takes_the_operations_of_a_reward_on_disk(tmp_path: Path) -> None:
    visits = Visits(_task(SURPRISED, GRID), Pending(tmp_path / "d.db"))
    usual = visits.operations(RECORDS["ordinary"], 1.0)
    assert not _differs(usual, visits.operations(RECORDS["zero"], None))


def _reports(device: Device, ids: list[str]) -> set[str]:
    """How reports differ from the second one; at the first some tables of the task are made."""
    said = status(device.task)
    _, usual, *others = [_operations(partial(device.report, id, said)) for id in ids]
    return {_differs(usual, other) for other in others}


def test_the_arm_does_not_change_the_operations_of_a_report() -> None:
    own = _task(OWN, GRID)
    device, rows = Device(own), np.eye(2)[[0, 1, 0, 1]]
    posted = _model(own, np.eye(2), (1, 0))
    masks = [[number == arm for number in range(4)] for arm in (0, 0, 1, 2, 3)]
    ids = [device.decide(posted, rows, mask).id for mask in masks]
    assert _reports(device, ids) == {""}


@pytest.mark.parametrize(
    "noise", [dataclasses.replace(GRID, center=(0,)), ONE_BIT], ids=lambda one: one.kind
)
def test_answer_operations_are_the_same_for_all_losses(noise: Noise) -> None:
    program = Answering(low=-1.0, high=1.0, questions=2, answer="difference")
    device = Device(dataclasses.replace(task(noise), program=program, bandit="context-free"))
    answers = ([0.5, 0.25], [0.5, 0.25], [0.0, 0.0], [5e-324, 0.0], [1.0, -1.0], None)
    ids = [device.accept_question(bytes([number]) * 16) for number in range(len(answers))]
    for id, losses in zip(ids, answers, strict=True):
        if losses is not None:
            device.reward(id, losses)
    assert _reports(device, ids) == {""}


ENCODERS = {
    "ordinary": np.full((2, 2, 3), 0.25),
    "none": np.zeros((2, 2, 3)),
    "subnormal": np.full((2, 2, 3), 5e-324),
    "largest": np.full((2, 2, 3), -1.79e308),
}


@pytest.mark.parametrize("noise", [GRID, GAUSSIAN, SHORTLIST], ids=lambda one: one.kind)
def test_client_operations_are_the_same_for_all_averages(noise: Any) -> None:
    own = dataclasses.replace(
        task(dataclasses.replace(noise, center=(0, 0)), needs=(100, 100)),
        bandit="phased",
        program=Phased(low=-1.0, high=1.0, groups=2, atoms=3, size=2),
        problem={"arms": 5, "horizon": 100},
    )
    answers = (None, [0.5, 0.25, 0.0], [0.0] * 3, [5e-324, -1e-310, 0.0], [7.0, -7.0, 1.0])
    found = []
    for encoder, averages in itertools.product(ENCODERS.values(), answers):
        for pulls in ([1, 1, 1], [0, 0, 0]):
            arrays = {
                "phase": np.int64(0),
                "done": np.bool_(False),
                "atoms": np.array([[0, 1, 2]] * 2),
                "pulls": np.array([pulls] * 2),
                "encoder": encoder,
            }
            posted = {name: Numbers.of(np.asarray(array)) for name, array in arrays.items()}
            device = Device(own, source=Bytes("same"))
            id = device.join(_posted(own, posted), status(own)).id
            if averages is not None:
                device.reward(id, averages)
            found.append(_operations(partial(device.report, id, status(own))))
    assert {_differs(found[1], other) for other in found[2:]} == {""}


def _branch_on_length(features: Floats, norm: float) -> Floats:
    x = constant_time.flush(features)
    length = math.sqrt(float(x @ x))
    return x * (norm / length) if length > norm else x


def _end_early(features: Floats, norm: float) -> Floats:
    if not features.any():
        return np.zeros(len(features))
    return features * (norm / max(math.sqrt(float(features @ features)), norm))


def _drop_zeros(features: Floats, norm: float) -> Floats:
    few = features[features != 0]
    return features * (norm / max(math.sqrt(float(few @ few)), norm))


@pytest.mark.parametrize("fault", [_branch_on_length, _end_early, _drop_zeros])
def test_a_planted_branch_is_found(fault: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "into_ball", fault)
    visits = Visits(_task(OPTIMIST, GRID))
    usual = visits.operations(RECORDS["boundary"], 0.5)
    found = [visits.operations(row, 0.5) for row in RECORDS.values()]
    assert any(_differs(usual, one) for one in found)


def test_flushed_numbers_are_ordinary_or_zero() -> None:
    bits = np.random.default_rng(3).integers(0, 2**64, 20000, np.uint64)
    numbers = np.concatenate([bits.view(np.float64), [0.0, -0.0, 5e-324, np.inf, -np.inf, np.nan]])
    flushed = constant_time.flush(numbers)
    sizes = np.abs(flushed)
    least, most = constant_time.LEAST, constant_time.MOST
    assert (((sizes >= least) & (sizes <= most)) | (flushed == 0)).all()
    ordinary = (np.abs(numbers) >= least) & (np.abs(numbers) <= most)
    assert (flushed[ordinary] == numbers[ordinary]).all()
    assert 5000 < ordinary.sum() < 15000


def test_links_are_those_of_the_library() -> None:
    scores = [0.0, 5e-324, -1e-300, *np.linspace(-30, 30, 601).tolist(), 200.0, -200.0]
    wanted = {
        "logistic": special.expit,
        "probit": special.ndtr,
        "poisson": np.exp,
    }
    for link, expected in wanted.items():
        mean, _ = record.LINKS[link]
        for score in scores:
            assert mean(score) == pytest.approx(float(expected(score)), rel=3e-14, abs=3e-16)
    for score in scores:
        density = math.exp(-score * score / 2) / math.sqrt(2 * math.pi)
        assert constant_time.density(score) == pytest.approx(density, rel=1e-15, abs=1e-200)


@pytest.mark.parametrize("score", [0.0, 5e-324, 1e-300, 1e300, -1e300, math.inf, -math.inf])
def test_links_take_any_score(score: float) -> None:
    for mean, slope in (record.LINKS[link] for link in ("logistic", "probit", "poisson")):
        assert 0 <= mean(score) < math.inf
        assert 0 <= slope(score) < math.inf
