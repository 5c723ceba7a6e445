"""The device: decisions, rewards in any order, one report for each, and what it refuses."""

from __future__ import annotations

import dataclasses
import math
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.device.helpers import (
    ANSWERING,
    COINS,
    COMPASS,
    GRID,
    NEEDS,
    ONE_BIT,
    OPTIMIST,
    ROWS,
    asking,
    model,
    status,
    task,
)
from tests.vectors.bytes_of import Bytes

from kerchief_device import Budget, Device, Pending
from kerchief_device.record import RULE
from kerchief_protocol.errors import (
    BudgetExceededError,
    CodecError,
    InvalidValueError,
    KerchiefError,
    RejectedError,
)
from kerchief_protocol.model import Model, Numbers
from kerchief_protocol.noise import Floats, OneBit
from kerchief_protocol.programs import Library, Optimist
from kerchief_protocol.report import Report
from kerchief_protocol.task import Reward, Task

TASK = task()
SLOW = task(reward=Reward(window_s=100, jitter_s=50, default=0.0))


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def numbers(device: Device, data: bytes) -> list[float]:
    found = Report.read(data, device.task).numbers
    return [float(one) for one in np.ldexp(found.astype(np.float64), -GRID.grid_bits)]


def test_a_whole_round() -> None:
    device = Device(TASK)
    decision = device.decide(model(TASK), ROWS)
    assert decision.arm == 2
    assert len(bytes.fromhex(decision.id)) == 16
    assert device.reward(decision.id, 1.0)
    assert device.due() == (decision.id,)
    data = device.report(decision.id, status(TASK))
    x, y = 0.6, 0.8
    wanted = [x * x, x * y * 2**0.5, y * y, 0.5 * x, 0.5 * y]
    assert numbers(device, data) == pytest.approx(wanted, abs=2**-20)
    assert bytes.fromhex(decision.id) not in data
    device.confirm(decision.id)
    assert device.due() == ()


def test_rewards_in_any_order_go_to_their_own_decisions() -> None:
    device = Device(TASK)
    first = device.decide(model(TASK), ROWS[:1])
    second = device.decide(model(TASK), ROWS[1:2])
    device.reward(second.id, 1.0)
    device.reward(first.id, 0.25)
    device.reward(first.id, 1.0)
    assert numbers(device, device.report(first.id, status(TASK)))[3] == pytest.approx(-0.125)
    assert numbers(device, device.report(second.id, status(TASK)))[4] == pytest.approx(0.125)


def test_a_missing_reward_is_the_default() -> None:
    quiet = task(reward=Reward(window_s=0, jitter_s=0, default=0.75))
    device = Device(quiet)
    decision = device.decide(model(quiet), ROWS[:1])
    data = device.report(decision.id, status(quiet))
    assert numbers(device, data)[3] == pytest.approx(0.5 * 0.25)
    assert not device.reward(decision.id, 0.0), "too late"
    assert device.report(decision.id, status(quiet)) == data


def test_a_report_waits_for_its_time_reward_or_not() -> None:
    clock = Clock()
    device = Device(SLOW, clock=clock, source=Bytes("j"))
    ids = [device.decide(model(SLOW), ROWS).id for _ in range(20)]
    device.reward(ids[0], 1.0)
    with pytest.raises(InvalidValueError, match="is due in 1"):
        device.report(ids[0], status(SLOW))
    assert device.due() == device.due(1099.9) == ()
    some = device.due(1125.0)
    assert 0 < len(some) < 20, "the delay differs"
    assert set(device.due(1150.0)) == set(ids)
    clock.now = 1150.0
    assert len(device.report(ids[0], status(SLOW))) == len(device.report(ids[1], status(SLOW)))


def test_a_report_is_made_once(tmp_path: Path) -> None:
    shuffled = task(COINS, trust="shuffle", needs=NEEDS)
    device = Device(shuffled, pending=Pending(tmp_path / "d.db"))
    decision = device.decide(model(shuffled), ROWS)
    data = device.report(decision.id, status(shuffled))
    again = Device(shuffled, pending=Pending(tmp_path / "d.db"))
    assert again.report(decision.id, status(shuffled, label=1)) == data
    assert again.report(decision.id, status(shuffled, state="closed")) == data
    device.discard(decision.id)
    for one in (device, again):
        with pytest.raises(InvalidValueError, match="no decision"):
            one.report(decision.id, status(shuffled))


def test_labels_decide_the_coins_in_one_process() -> None:
    shuffled = task(COINS, trust="shuffle", needs=NEEDS)
    device = Device(shuffled, in_process=True)
    for label in (0, 1):
        decision = device.decide(model(shuffled), ROWS)
        data = device.report(decision.id, status(shuffled, label=label))
        assert Report.read(data, shuffled).label == label
    with pytest.raises(InvalidValueError, match="label 2"):
        device.report(device.decide(model(shuffled), ROWS).id, status(shuffled, label=2))


def test_closed_task_rejects_report_and_record_can_be_dropped() -> None:
    device = Device(TASK)
    decision = device.decide(model(TASK), ROWS)
    with pytest.raises(RejectedError, match="takes no reports") as fault:
        device.report(decision.id, status(TASK, state="closed"))
    assert fault.value.word == "over"
    assert device.due() == (decision.id,)
    device.discard(decision.id)
    assert device.due() == ()


def test_arms_may_have_names_and_be_fewer() -> None:
    device = Device(TASK)
    named = {"red": [0.0, 0.1], "blue": [0.9, 0.0]}
    assert device.decide(model(TASK), named).arm == "blue"
    assert device.decide(model(TASK), named, allowed=[True, False]).arm == "red"
    assert device.decide(model(TASK), ROWS[:1].tolist()).arm == 0
    assert device.decide(model(TASK), ROWS.astype(np.float32)).arm == 2


@pytest.mark.parametrize(
    ("features", "words"),
    [
        (ROWS[:, :1], "3 arms of 1 features; the task takes up to 4 arms of 2"),
        (np.zeros((5, 2)), "5 arms of 2 features"),
        (np.array([[0.0, 1.5]]), "must be at most 1: scale"),
        (np.array([[0.8, 0.8]]), "must be at most 1: scale"),
        (np.array([[0.0, 1e300]]), "too long or not finite"),
        (np.array([[0.0, np.nan]]), "too long or not finite"),
        (np.array([[0.0, -np.inf]]), "too long or not finite"),
        (np.zeros((0, 2)), "one row of numbers for each arm"),
        (np.zeros((2, 0)), "one row of numbers for each arm"),
        (np.zeros(2), "one row of numbers for each arm"),
        ([[0.0], [0.0, 0.0]], "one row of numbers for each arm"),
        ([["0", "1"]], "one row of numbers for each arm"),
        ({}, "one row of numbers for each arm"),
    ],
)
def test_features_out_of_bounds_are_refused(features: Any, words: str) -> None:
    device = Device(TASK)
    with pytest.raises(InvalidValueError, match=words):
        device.decide(model(TASK), features)
    assert device.due() == ()


@pytest.mark.parametrize("allowed", [[True], [1, 1, 1], [False] * 3, "abc"])
def test_masks_out_of_bounds_are_refused(allowed: Any) -> None:
    with pytest.raises(InvalidValueError, match="give 3 booleans"):
        Device(TASK).decide(model(TASK), ROWS, allowed)


@pytest.mark.parametrize("value", [-0.1, 1.1, np.nan, np.inf, "1", None, True, [1.0]])
def test_rewards_out_of_bounds_are_refused(value: Any) -> None:
    device = Device(TASK)
    decision = device.decide(model(TASK), ROWS)
    with pytest.raises(InvalidValueError, match=r"it must be 0\.0 to 1\.0"):
        device.reward(decision.id, value)
    assert device.reward(decision.id, np.float32(0.5))


@pytest.mark.parametrize("id", ["", "zz" * 16, "00" * 15, "00" * 16, 7])
def test_unknown_ids_are_refused(id: Any) -> None:
    device = Device(TASK)
    for step in (lambda: device.reward(id, 1.0), lambda: device.report(id, status(TASK))):
        with pytest.raises(InvalidValueError, match=r"the id is|no decision"):
            step()


def test_impossible_chain_length_does_not_lock_device_out() -> None:
    device = Device(TASK)
    for length in (2**40, -1):
        with pytest.raises(
            InvalidValueError, match=f"chain of {length} lines; this task's has at most"
        ):
            device.decide(model(TASK, length=length), ROWS)
    assert device.due() == ()
    device.decide(model(TASK, length=8), ROWS)
    # One line for each charge of a query, each release, and the first one.
    device.decide(model(TASK, length=2 * TASK.horizon + 1), ROWS)


def test_models_and_statuses_of_another_task_are_refused() -> None:
    device = Device(TASK)
    with pytest.raises(InvalidValueError, match="fetch that task's model"):
        device.decide(model(SLOW), ROWS)
    decision = device.decide(model(TASK), ROWS)
    with pytest.raises(InvalidValueError, match="fetch that task's status"):
        device.report(decision.id, status(SLOW))


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("estimate", np.zeros(3, np.float32)),
        ("estimate", np.array([0, np.nan], np.float32)),
        ("inverse", np.zeros(4, np.float32)),
        ("width", np.array(np.inf, np.float32)),
        ("width", np.array(1, np.int32)),
        ("width", None),
    ],
)
def test_models_out_of_bounds_are_refused(name: str, array: NDArray[Any] | None) -> None:
    given = model(TASK)
    arrays = dict(given.arrays)
    if array is None:
        del arrays[name]
    else:
        arrays[name] = Numbers.of(array)
    with pytest.raises(InvalidValueError, match=f"the model's {name}"):
        Device(TASK).decide(dataclasses.replace(given, arrays=arrays), ROWS)


@pytest.mark.parametrize("stored", [False, True])
def test_a_model_with_more_arrays_is_refused_before_it_is_stored(
    stored: bool, tmp_path: Path
) -> None:
    given, path = model(TASK), tmp_path / "d.db"
    big = Numbers.of(np.zeros(2**18))
    more = dataclasses.replace(given, arrays={**given.arrays, "more" * 1000: big})
    device = Device(TASK, pending=Pending(path if stored else None))
    with pytest.raises(InvalidValueError, match="has 4 arrays; its task uses 3") as refusal:
        device.decide(more, ROWS)
    assert len(str(refusal.value)) < 200
    assert device.due(1e12) == ()
    assert not stored or path.stat().st_size < len(big.data) / 4
    device.decide(given, ROWS)


def test_array_with_many_axes_is_rejected_without_reading_them() -> None:
    """The work of reading is counted in axes that are looked at."""
    seen = []

    class Axes(tuple[int, ...]):
        def __iter__(self) -> Iterator[int]:
            for axis in super().__iter__():
                seen.append(axis)
                yield axis

    for count in (33, 10**5):
        with pytest.raises(CodecError, match=f"has {count} axes") as refusal:
            Numbers(dtype="<f4", shape=Axes((2**53 - 1,) * count), data=b"")
        assert len(str(refusal.value)) < 80
    assert len(seen) == 0
    for shape in ((2**53,), (-1, 0), (2**28, 2**28), (3,) * 32):
        with pytest.raises(CodecError) as refusal:
            Numbers(dtype="<f4", shape=Axes(shape), data=b"")
        assert len(str(refusal.value)) < 160
    assert len(seen) < 32 * 16


@pytest.mark.parametrize("shape", [(1,) * 32, (0, 2**27) * 8])
def test_errors_quote_little_of_a_shape(shape: tuple[int, ...]) -> None:
    given, data = model(TASK), bytes(4 * math.prod(shape))

    def decide() -> None:
        wrong = {**given.arrays, "inverse": Numbers(dtype="<f4", shape=shape, data=data)}
        Device(TASK).decide(dataclasses.replace(given, arrays=wrong), ROWS)

    with pytest.raises(KerchiefError) as refusal:
        decide()
    assert len(str(refusal.value)) < 160


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("round", 2**40),
        ("round", -1),
        ("round", True),
        ("version", 2**64),
        ("version", -1),
        ("release", 2**64),
        ("release", math.nan),
        ("length", 2**64),
        ("length", "1"),
        ("head", bytes(2**20)),
        ("head", b""),
    ],
)
def test_counts_of_a_model_out_of_range_are_refused(name: str, value: Any) -> None:
    with pytest.raises(KerchiefError) as refusal:
        Device(TASK).decide(dataclasses.replace(model(TASK), **{name: value}), ROWS)
    assert len(str(refusal.value)) < 160


@pytest.mark.parametrize("name", ["label", "epoch"])
@pytest.mark.parametrize("value", [-1, 2**40, 10**5000, True, math.nan], ids=range(5))
def test_a_status_out_of_range_is_refused(name: str, value: Any) -> None:
    with pytest.raises(KerchiefError) as refusal:
        dataclasses.replace(status(TASK), **{name: value})
    assert len(str(refusal.value)) < 160


@pytest.mark.parametrize("time", [math.nan, math.inf, -math.inf, 10**400, None, "now"])
def test_a_clock_without_a_finite_number_is_refused(time: Any) -> None:
    clock = Clock()
    device, asker = (Device(one, clock=clock) for one in (SLOW, asking(reward=SLOW.reward)))
    id = device.decide(model(SLOW), ROWS).id
    clock.now = time
    for step in (
        lambda: device.decide(model(SLOW), ROWS),
        lambda: asker.accept_question(bytes(16)),
        lambda: device.due(),
        lambda: device.report(id, status(SLOW)),
    ):
        with pytest.raises(InvalidValueError, match="the clock gives no finite number"):
            step()
    clock.now = 2000.0
    assert device.due() == (id,)
    device.report(id, status(SLOW))


def test_a_linearized_reward_remembers_the_model_that_chose(tmp_path: Path) -> None:
    curved = task(
        program=dataclasses.replace(OPTIMIST, link="logistic", linearized=True, weighted=True)
    )
    device = Device(curved, pending=Pending(tmp_path / "d.db"))
    decision = device.decide(model(curved), ROWS[:1])
    other = dataclasses.replace(
        model(curved, version=1),
        arrays={**model(curved).arrays, "estimate": Numbers.of(np.zeros(2, np.float32))},
    )
    later = device.decide(other, ROWS[:1])
    device.reward(decision.id, 1.0)
    device.reward(later.id, 1.0)
    device = Device(curved, pending=Pending(tmp_path / "d.db"))
    (first, second) = (
        numbers(device, device.report(one.id, status(curved)))[0] for one in (decision, later)
    )
    mean = 1 / (1 + np.exp(-0.5))
    assert first == pytest.approx(0.25 * mean * (1 - mean), abs=1e-5)
    assert second == pytest.approx(0.25 * 0.25, abs=1e-5)


REWEIGHED = dataclasses.replace(OPTIMIST, choice="guess", reweighed=RULE)


def _weighing(of: Task, weights: Any, reference: Any = (0, 0), *, version: int = 0) -> Model:
    nothing = Numbers.of(np.zeros((2, 2), np.float32))
    arrays = {
        "sample": nothing,
        "widen": nothing,
        "weights": Numbers.of(np.asarray(weights, np.float64)),
        "reference": Numbers.of(np.asarray(reference, np.float64)),
    }
    given = model(of, version=version)
    return dataclasses.replace(given, arrays={"estimate": given.arrays["estimate"], **arrays})


@pytest.mark.parametrize("weighted", [False, True])
def test_report_is_weighted_by_the_model_that_chose_its_arm(tmp_path: Path, weighted: bool) -> None:
    """By the trace of its matrix; what else there is in it has that weight, or none."""
    own = task(program=dataclasses.replace(REWEIGHED, weighted=weighted))
    device = Device(own, pending=Pending(tmp_path / "d.db"))
    # What each posts, and then: the weight of a unit vector, and the surprise in the reward 1.
    posted = [
        (np.diag([1.5, 1.0]), (0.0, 0.0), 0.75, 0.5),
        (np.diag([8.0, 1.0]), (0.0, 0.0), 1.0, 0.125),
        (np.eye(2), (1.0, 0.0), 0.25, 0.0),
        (np.eye(2), (-0.5, 9.0), 1 / 3, 0.5),
    ]
    chosen = [
        device.decide(_weighing(own, *one[:2], version=n), ROWS[:1]).id
        for n, one in enumerate(posted)
    ]
    for id in chosen:
        device.reward(id, 1.0)
    device = Device(own, pending=Pending(tmp_path / "d.db"))
    made = [numbers(device, device.report(id, status(own))) for id in chosen]
    assert [one[0] + one[2] for one in made] == pytest.approx([one[2] for one in posted], abs=1e-5)
    along = [one[2] if weighted else 1.0 for one in posted]
    assert [one[0] - one[2] for one in made] == pytest.approx(along, abs=1e-5)
    assert [float(one[3]) for one in made] == pytest.approx([one[3] for one in posted], abs=1e-5)


@pytest.mark.parametrize(
    "weights",
    [
        np.full((2, 2), 1.79e308),
        np.diag([1e300, -1e300]),
        np.zeros((2, 2)),
        -np.eye(2),
        np.diag([1e-160, 1.0]),
    ],
)
@pytest.mark.parametrize("reference", [(0, 0), (1.79e308, 1.79e308), (-1e300, 1e-300)])
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("weighted", [False, True])
def test_no_weights_make_a_report_that_is_out_of_bounds(
    weights: Any, reference: Any, weighted: bool
) -> None:
    """Nor one that is told from others by a warning or an error."""
    own = task(program=dataclasses.replace(REWEIGHED, weighted=weighted))
    device = Device(own)
    id = device.decide(_weighing(own, weights, reference), ROWS).id
    device.reward(id, 1.0)
    with np.errstate(all="raise"):
        made = device.report(id, status(own))
    found = np.asarray(numbers(device, made), float)
    assert np.isfinite(found).all()
    assert np.linalg.norm(found) <= np.hypot(1.0, 0.5) + 1e-5


@pytest.mark.parametrize("name", ["weights", "reference"])
def test_missing_weight_array_of_model_is_named(name: str) -> None:
    own = task(program=REWEIGHED)
    given = _weighing(own, np.eye(2))
    less = {one: array for one, array in given.arrays.items() if one != name}
    with pytest.raises(InvalidValueError, match=f"the model's {name}"):
        Device(own).decide(dataclasses.replace(given, arrays=less), ROWS)


@pytest.mark.parametrize(
    "change",
    [
        {"choice": "bound"},
        {"offset": 1.0},
    ],
)
def test_importance_weights_require_thompson_sampling(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidValueError, match="only what is guessed reweighed"):
        Device(task(program=dataclasses.replace(REWEIGHED, **change)))


@pytest.mark.parametrize("rule", [-1, 1, RULE - 1, RULE + 1])
def test_residuals_with_another_rule_number_are_rejected(rule: int) -> None:
    said = f"of this task are reported by rule {rule}, and those of this device by rule {RULE}"
    with pytest.raises(InvalidValueError, match=said):
        Device(task(program=dataclasses.replace(REWEIGHED, reweighed=rule)))


def test_record_without_direction_gives_report_of_zeros() -> None:
    own = task(program=REWEIGHED)
    device = Device(own)
    for weights, row in ((np.eye(2), np.zeros(2)), (np.diag([0.0, 1.0]), ROWS[0])):
        id = device.decide(_weighing(own, weights, (0.1, 0.1)), row[None]).id
        device.reward(id, 1.0)
        assert numbers(device, device.report(id, status(own))) == [0.0] * 5


@pytest.mark.parametrize("weights", [np.full((2, 2), 1.79e308), np.zeros((2, 2)), np.eye(2)])
@pytest.mark.filterwarnings("error")
def test_compass_report_stays_in_bounds_for_any_model(weights: Any) -> None:
    own = task(COMPASS, trust="local", program=REWEIGHED)
    device = Device(own)
    for reference in ((0, 0), (-1e300, 1e-300)):
        id = device.decide(_weighing(own, weights, reference), ROWS).id
        device.reward(id, 1.0)
        with np.errstate(all="raise"):
            made = device.report(id, status(own))
        assert own.within(Report.read(made, own).numbers, 0)


def test_a_budget_is_charged_with_the_report() -> None:
    local = asking()
    device = Device(local, budget=Budget(epsilon=2.0))
    ids = [device.accept_question(bytes([n]) * 16) for n in range(3)]
    for id in ids[:2]:
        assert device.report(id, status(local)) == device.report(id, status(local))
    with pytest.raises(BudgetExceededError, match="no report was made"):
        device.report(ids[2], status(local))
    assert device.spent() == (2.0, 0.0)
    with pytest.raises(InvalidValueError, match="no decision"):
        device.report(ids[2], status(local))


def test_a_budget_is_for_local_trust() -> None:
    with pytest.raises(InvalidValueError, match="leave the budget out"):
        Device(TASK, budget=Budget(epsilon=1.0))


def test_a_question_is_answered_once() -> None:
    local = asking()
    device = Device(local)
    question = bytes(range(16))
    id = device.accept_question(question)
    assert device.accept_question(question) == id
    assert device.reward(id, [0.25])
    data = device.report(id, status(local))
    assert Report.read(data, local).id == question
    device.confirm(id)
    device.accept_question(question)
    for step in (lambda: device.report(id, status(local)), lambda: device.reward(id, [0.5])):
        with pytest.raises(InvalidValueError, match="no decision"):
            step()


def test_answers_follow_the_losses() -> None:
    certain = OneBit(bias=2**31 - 1, center=0.0, radius=1.0, low=-1.0, high=1.0)
    slope = dataclasses.replace(ANSWERING, low=-1.0, questions=2, answer="difference")
    local = task(certain, trust="local", program=slope, epsilon=50.0)
    device = Device(local)
    for losses, bit in (([3.0, 2.0], 1), ([2.0, 3.0], 0)):
        id = device.accept_question(bytes([bit]) * 16)
        device.reward(id, losses)
        assert Report.read(device.report(id, status(local)), local).numbers == [bit]
    id = device.accept_question(b"q" * 16)
    for wrong in ([1.0], [1.0, np.nan], 1.0):
        with pytest.raises(InvalidValueError, match="each of the 2 questions"):
            device.reward(id, wrong)


def test_queries_and_decisions_reject_tasks_of_the_other_kind() -> None:
    with pytest.raises(InvalidValueError, match="only a task that asks"):
        Device(TASK).accept_question(bytes(16))
    local = asking()
    with pytest.raises(InvalidValueError, match="call asked"):
        Device(local).decide(model(local), ROWS)
    with pytest.raises(InvalidValueError, match="16 bytes"):
        Device(local).accept_question(b"short")


class Plugged:
    """Code of a policy that was not made light."""

    def act(self, model: Model, rows: Floats, mask: NDArray[np.bool_]) -> int:
        return int(np.flatnonzero(mask)[-1])

    def statistics(self, model: Model | None, features: Floats, reward: float) -> Sequence[Floats]:
        assert model is not None
        return (np.array([*features, reward, model.version, 0.0]),)


def test_other_policies_plug_in_their_code() -> None:
    whole = task(program=Library())
    with pytest.raises(InvalidValueError, match="was not made light; give code"):
        Device(whole)
    device = Device(whole, code=Plugged())
    decision = device.decide(model(whole, version=1), ROWS * 2, allowed=[True, True, False])
    assert decision.arm == 1
    device.reward(decision.id, 0.5)
    found = numbers(device, device.report(decision.id, status(whole)))
    assert found == pytest.approx([0.0, 0.5, 0.5, 1.0, 0.0])
    with pytest.raises(InvalidValueError, match="not finite"):
        device.decide(model(whole), ROWS * np.nan)


@pytest.mark.parametrize(
    "wrong",
    [
        task(program=dataclasses.replace(OPTIMIST, norm=-1.0)),
        task(program=dataclasses.replace(OPTIMIST, balance=float("inf"))),
        task(program=dataclasses.replace(OPTIMIST, low=2.0)),
        task(program=dataclasses.replace(OPTIMIST, link="cubic")),
        task(program=dataclasses.replace(OPTIMIST, dim=3)),
        task(reward=Reward(window_s=0, jitter_s=0, default=2.0)),
        task(ONE_BIT, program=dataclasses.replace(ANSWERING, answer="guess")),
        task(ONE_BIT, trust="local", program=dataclasses.replace(ANSWERING, low=1.0, high=0.0)),
    ],
)
def test_tasks_that_do_not_fit_are_refused(wrong: Task) -> None:
    with pytest.raises(InvalidValueError):
        Device(wrong)


def test_threads_share_a_device() -> None:
    device, found = Device(TASK), []

    def work(number: int) -> None:
        own = model(TASK, version=number)
        for _ in range(20):
            decision = device.decide(own, ROWS)
            device.reward(decision.id, 1.0)
            found.append(device.report(decision.id, status(TASK)))
            device.confirm(decision.id)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(set(found)) == 160
    assert device.due() == ()


def _huge(of: Task) -> Model:
    """A model whose numbers are finite, and whose values of arms are not."""
    assert isinstance(of.program, Optimist)
    shapes = {
        "bound": {"inverse": np.eye(2), "width": np.array(0.0)},
        "guess": {"sample": np.zeros((2, 2)), "widen": np.zeros((2, 2))},
    }
    arrays = {"estimate": np.full(2, -1.7e308), **shapes[of.program.choice]}
    posted = {name: Numbers.of(array) for name, array in arrays.items()}
    return dataclasses.replace(model(of), arrays=posted)


@pytest.mark.parametrize("choice", ["bound", "guess"])
@pytest.mark.filterwarnings("error")
def test_no_model_makes_device_play_masked_arms(choice: str) -> None:
    """Nor say anything, in a log or by an error: whether numbers overflow depends on contexts."""
    own = task(program=dataclasses.replace(OPTIMIST, choice=choice))
    assert Device(own).decide(_huge(own), ROWS, [False, False, True]).arm == 2
