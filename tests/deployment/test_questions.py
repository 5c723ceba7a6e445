"""Bandits without contexts in the field: several questions open at once, answers in any order."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from kerchief.core.convex import Ball, Box, Domain, Simplex
from kerchief.core.errors import CapacityExceededError, CodecError, InvalidValueError
from kerchief.core.precision import double_precision
from kerchief.core.problems import ContextFreeProblem
from kerchief.core.random import POLICY, Stream
from kerchief.core.report_distribution import ReportDistribution
from kerchief.core.struct import struct
from kerchief.deployment import Aggregator, Bandit
from kerchief.deployment.deployment import Deployment, deploy, read_deployment
from kerchief.deployment.questions import Asker
from kerchief.deployment.verify import verify
from kerchief.policies.context_free.best_arm import Halving
from kerchief.policies.context_free.tsallis import State, Tsallis
from kerchief.policies.context_free.ucb import UCB
from kerchief.privacy.guarantee import Guarantee, Trust
from kerchief.stores import Store
from kerchief.stores.sql import SQLReader
from kerchief.stores.sqlite import SQLiteStore
from kerchief.stores.store import Question as Stored
from kerchief_device import Budget, Device, Pending
from kerchief_protocol import canonical
from kerchief_protocol.errors import BudgetExceededError, FencedError, RejectedError
from kerchief_protocol.model import Question
from kerchief_protocol.noise import OneBit
from kerchief_protocol.programs import Answering
from kerchief_protocol.report import Report
from kerchief_protocol.task import Task

ARMS = ContextFreeProblem(horizon=200, low=0.0, high=1.0, arms=3)
LOSSES = (0.9, 0.1, 0.6)
DOMAINS = (Ball(dim=3, radius=2.0), Box(dim=2), Simplex(dim=3))


def build_deployment(policy: Any = "tsallis", *, trust: str = "local", **facts: Any) -> Deployment:
    problem = dataclasses.replace(ARMS, **facts)
    epsilon = 1.0 if trust == "local" else float("inf")
    promise = Guarantee(epsilon=epsilon, delta=0.0, trust=Trust(trust))
    return deploy(policy=policy, problem=problem, guarantee=promise, window_s=0, nonce=bytes(16))


def on(domain: Domain, policy: str = "two-point", **more: Any) -> Deployment:
    return build_deployment(policy, arms=0, domain=domain, lipschitz=1.0, smoothness=1.0, **more)


class Clock:
    """Time that stands still until it is told to go on."""

    now = 1e9

    def __call__(self) -> float:
        return self.now


def served(task: Deployment, store: Store | None = None, **more: Any) -> Asker:
    return Asker(task, store=store or SQLiteStore.memory(), **more)


def answer(server: Asker, question: Question, device: Device | None = None) -> bytes:
    """The report of an honest user, made and not sent."""
    own = device or Device(server.task)
    id = own.accept_question(question.id)
    own.reward(id, LOSSES[int(question.action.array)])
    return own.report(id, server.status())


def forged(server: Asker, id: bytes, bit: int = 1, later: int = 0) -> bytes:
    epoch = (server.status().epoch + later) % 2**32
    return Report(label=0, epoch=epoch, id=id, numbers=np.array([bit])).write(server.task)


def words(answers: tuple[RejectedError | None, ...]) -> list[str | None]:
    return [None if one is None else one.word for one in answers]


def same(one: Any, other: Any) -> bool:
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.array_equal(np.asarray(a), np.asarray(b)) for a, b in pairs)


# What a proposal remembers.


@pytest.mark.nightly
@pytest.mark.parametrize("estimator", ["importance", "reduced-variance"])
@double_precision
def test_tsallis_with_open_queries_is_unbiased_only_with_memo(
    estimator: Any,
) -> None:
    """Eight arms are drawn, then eight reports come: the mean estimate is eight times the loss."""
    clear = ReportDistribution.clear(low=0.0, high=1.0)
    policy = Tsallis.of(ARMS, mode="theory", channel=clear, estimator=estimator)
    losses, open_ones, many = jnp.asarray(LOSSES), 8, 20_000
    begun = State(losses=jnp.zeros(3), weights=jnp.asarray([0.2, 0.3, 0.5]))

    def run(replicate: Array, remembers: bool) -> Array:
        root = Stream.of(seed=3, replicate=replicate)
        rounds = [jnp.int32(20 + n) for n in range(open_ones)]
        arms = [policy.propose(begun, n, root.at(POLICY, round=n)) for n in rounds]
        memos = [policy.memo(begun, arm, n) for arm, n in zip(arms, rounds, strict=True)]
        state = begun
        for n, arm, memo in zip(rounds, arms, memos, strict=True):
            kept = memo if remembers else policy.memo(state, arm, n)
            state = policy.learn(state, arm, kept, losses[arm][None], n)
        return state.losses

    for remembers in (True, False):
        found = np.asarray(jax.jit(jax.vmap(lambda n: run(n, remembers)))(jnp.arange(many)))  # noqa: B023
        off = found.mean(0) - open_ones * np.asarray(LOSSES)
        far = np.abs(off) / (found.std(0) / many**0.5 + 1e-12)
        assert (far.max() < 5) == remembers, (off, far)


@pytest.mark.parametrize("name", ["one-point", "one-point-smooth"])
def test_step_follows_its_query_after_the_learner_has_moved(
    name: str,
) -> None:
    """The answer to the first question comes last, when the learner stands elsewhere."""
    task = on(Ball(dim=3), name)
    server = served(task, source=np.random.default_rng(5).bytes)
    first, *others = server.ask(5)
    from_center = first.action.array[0]
    server.take([forged(server, one.id) for one in others])
    before = np.asarray(server.recommendation)
    server.take([forged(server, first.id)])
    step = np.asarray(server.recommendation) - before
    assert np.linalg.norm(before) > 1e-3
    if name == "one-point":
        assert abs(step @ from_center) == pytest.approx(
            np.linalg.norm(step) * np.linalg.norm(from_center), rel=1e-6
        )
    assert step @ from_center < 0


@pytest.mark.parametrize("trust", ["local", "none"])
def test_halving_asks_many_at_once_and_waits_for_a_stage_to_end(trust: str) -> None:
    task = build_deployment("halving", trust=trust, horizon=100, arms=5)
    policy: Any = task.policy
    assert isinstance(policy, Halving)
    server, shuffle, asked = served(task), random.Random(1), []
    losses, device = (0.5, 0.1, 0.9, 0.3, 0.2), Device(task.task)
    for stage in policy.stages:
        questions = server.ask(1000)
        assert len(questions) == stage.arms * stage.pulls
        assert server.ask() == ()
        reports = []
        for one in questions:
            id = device.accept_question(one.id)
            device.reward(id, losses[int(one.action.array)])
            reports.append(device.report(id, server.status()))
            asked.append(int(one.action.array))
        shuffle.shuffle(reports)
        assert not server.is_stopped
        assert set(server.take(reports)) == {None}
    assert sorted(np.bincount(asked)) == [6, 6, 6 + 11, 6 + 11 + 16, 6 + 11 + 16]
    assert server.is_stopped
    assert server.ask() == ()
    if trust == "none":
        assert int(server.recommendation) == 1


def test_lil_ucb_asks_one_at_a_time() -> None:
    server = served(build_deployment("lil-ucb"))
    for _ in range(10):
        (only,) = server.ask(5)
        assert server.ask() == ()
        server.take([answer(server, only)])


def test_elimination_survives_late_answers_of_a_dropped_arm() -> None:
    server = served(build_deployment("successive-elimination", trust="none", horizon=2000))
    late, device = [], Device(server.task)
    while not (dropped := not server.state.alive[0]):
        questions = server.ask(4)
        reports = [answer(server, one, device) for one in questions]
        late += [r for r, q in zip(reports, questions, strict=True) if q.action.array == 0][:1]
        server.take([one for one in reports if one not in late])
    assert dropped
    assert set(server.take(late)) == {None}
    assert server.state.alive.tolist()[:2] == [False, True]
    assert int(server.recommendation) == 1


# The task.


@pytest.mark.parametrize("domain", DOMAINS, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("trust", ["local", "none"])
def test_a_task_comes_back_from_its_bytes(domain: Domain, trust: str) -> None:
    for task in (on(domain, trust=trust), on(domain, "one-point-smooth", trust=trust)):
        again = read_deployment(Task.read(task.task.data))
        assert again.task == task.task
        assert again.problem == task.problem
        assert again.task.bandit == "context-free"
        assert again.task.needs == ()


def test_a_slope_is_asked_for_as_a_difference_of_losses() -> None:
    task = on(Ball(dim=3))
    policy: Any = task.policy
    far = float(2 * policy.radius)
    assert task.task.program == Answering(low=-far, high=far, questions=2, answer="difference")
    (noise,) = task.task.noise
    assert isinstance(noise, OneBit)
    assert noise.radius == pytest.approx(far)
    assert task.task.reward.default == 0.0
    assert build_deployment("ucb").task.reward.default == 1.0


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "kerchief.core.convex:Ball"},
        {"kind": "box"},
        {"radius": "7ff0000000000000"},
        {"more": 1},
        {"dim": 2**40},
    ],
)
def test_a_domain_that_a_task_cannot_name_is_refused(change: dict[str, Any]) -> None:
    tree = canonical.read(on(Ball(dim=3)).task.data)
    tree["problem"]["domain"] |= change
    with pytest.raises((CodecError, InvalidValueError)):
        read_deployment(Task.read(canonical.write(tree)))


def test_task_with_less_noise_than_guaranteed_is_rejected_by_all() -> None:
    tree = canonical.read(build_deployment().task.data)
    tree["noise"][0]["bias"] = 2**31 - 1
    bold = Task.read(canonical.write(tree))
    with pytest.raises(FencedError, match="not what its promise needs"):
        read_deployment(bold)
    with pytest.raises(InvalidValueError, match="do not take part"):
        Device(bold)


@struct
class Averaging(UCB):
    """Answers in a way of its own."""

    def answer(self, action: Array, losses: Array) -> Array:
        return losses.mean()


def test_policy_whose_queries_no_device_answers_is_rejected() -> None:
    plain: Any = build_deployment("ucb").policy
    with pytest.raises(InvalidValueError, match="devices know loss, difference"):
        build_deployment(Averaging(**vars(plain)))
    with pytest.raises(InvalidValueError, match="hears reports"):
        build_deployment("uniform", trust="none")


def test_each_task_has_its_role() -> None:
    with pytest.raises(InvalidValueError, match="Asker is for"):
        Aggregator(build_deployment(), store=SQLiteStore.memory())
    promise = Guarantee(epsilon=1.0, delta=0.0, trust=Trust.LOCAL)
    problem: Any = ARMS
    with pytest.raises(InvalidValueError, match="Asker is for"):
        Bandit(policy="ucb", problem=problem, guarantee=promise, window_s=0)


def test_custom_policy_is_deployed_and_recognized() -> None:
    plain: Any = build_deployment("ucb").policy
    wide = dataclasses.replace(plain, width=3.0)
    task = build_deployment(wide)
    assert read_deployment(task.task, policy=wide).task == task.task
    with pytest.raises(FencedError):
        read_deployment(task.task, policy=plain)


# Asking and answering.


def test_a_server_learns_which_arm_is_best() -> None:
    server = served(build_deployment("ucb", trust="none"))
    device = Device(server.task)
    while questions := server.ask(5):
        assert set(server.take([answer(server, one, device) for one in questions])) == {None}
    assert server.is_stopped
    assert len(server.releases()) == ARMS.horizon
    assert int(server.recommendation) == 1


def test_queries_never_exceed_users_charged() -> None:
    server = served(build_deployment(horizon=20))
    questions = server.ask(15) + server.ask(15)
    assert len(questions) == 20
    assert server.ask() == ()
    assert len({one.id for one in questions}) == 20
    assert not server.is_stopped
    assert set(server.take([answer(server, one) for one in questions])) == {None}
    assert server.is_stopped
    assert server.status().state == "closed"


def test_ask_reads_only_expired_queries_of_all_open_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, read, real = Clock(), list[Stored](), SQLReader._questions
    server = served(build_deployment(), clock=clock, patience_s=60)

    def spied(reader: SQLReader, *which: Any, **more: Any) -> list[Stored]:
        found = real(reader, *which, **more)
        read.extend(found)
        return found

    monkeypatch.setattr(SQLReader, "_questions", spied)
    assert len(server.ask(50) + server.ask(50)) == 100
    assert read == []
    clock.now += 61
    again = server.ask(3)
    assert [one.round for one in read] == [0, 1, 2]
    assert len(again) == 3
    assert len(server.ask(200)) == 97 + 100


@pytest.mark.parametrize("moment", [math.nan, math.inf, -math.inf, 1e300, 10**400, None, "now"])
def test_invalid_clock_time_issues_no_query(moment: Any) -> None:
    clock = Clock()
    server = served(build_deployment(), clock=clock, patience_s=60)
    (question,) = server.ask()
    clock.now, before = moment, clock.now
    with pytest.raises(InvalidValueError, match="time of the clock"):
        server.ask()
    clock.now = before
    assert words(server.take([answer(server, question)])) == [None]


@pytest.mark.parametrize("count", [2**31, 2**63, 2**70])
def test_ask_beyond_integer_range_of_store_returns_all_queries(count: int, tmp_path: Path) -> None:
    with contextlib.closing(SQLiteStore(tmp_path / "q.db")) as store:
        server = served(build_deployment(horizon=3), store=store)
        assert len(server.ask(count)) == 3
        assert server.ask(count) == ()


def test_query_takes_one_answer_and_counts_a_repeat_once() -> None:
    server = served(build_deployment("ucb"))
    (question,) = server.ask()
    first, second = (forged(server, question.id, bit) for bit in (1, 0))
    assert words(server.take([first, second, first])) == [None, None, None]
    state = server.state
    assert float(state.pulls.sum()) == 1
    assert words(server.take([second])) == [None]
    assert same(server.state, state)
    assert len(server.releases()) == 1


def test_answer_without_matching_query_is_rejected() -> None:
    server, other = served(build_deployment()), served(build_deployment(horizon=ARMS.horizon + 1))
    (question,) = other.ask()
    assert words(server.take([forged(server, os.urandom(16))])) == ["question"]
    assert words(server.take([forged(server, question.id)])) == ["question"]
    assert words(server.take([answer(other, question)])) == ["task"]
    assert words(server.take([b"", forged(server, question.id)[:-1]])) == ["length", "length"]
    (own,) = server.ask()
    assert words(server.take([forged(server, own.id, 2)])) == ["bounds"]
    assert words(server.take([forged(server, own.id, later=1)])) == ["epoch"]
    assert server.releases() == ()


def test_expired_query_is_reassigned_and_late_answer_rejected() -> None:
    clock = Clock()
    server = served(build_deployment(horizon=2), clock=clock, patience_s=60)
    lost, kept = server.ask(2)
    assert server.ask() == ()
    clock.now += 30
    assert words(server.take([answer(server, kept)])) == [None]
    clock.now += 31
    (again,) = server.ask(5)
    assert again.id != lost.id
    assert again.action == lost.action
    assert words(server.take([answer(server, lost), answer(server, again)])) == ["question", None]
    assert server.is_stopped
    rounds = sorted(canonical.read(one)["round"] for one in server.releases())
    assert rounds == [0, 1]


def test_query_round_trips_through_its_encoding() -> None:
    for task in (build_deployment(), on(Ball(dim=3))):
        (question,) = served(task).ask()
        assert Question.read(question.write()) == question
        assert question.task == task.task.id


def test_a_new_epoch_takes_no_old_answers() -> None:
    server = served(build_deployment(horizon=5))
    questions = server.ask(2)
    old = answer(server, questions[0])
    server.renew()
    assert words(server.take([old])) == ["epoch"]
    assert words(server.take([answer(server, questions[1])])) == [None]
    assert server.spent().epsilon == pytest.approx(1.0)


def test_a_closed_task_asks_and_takes_nothing() -> None:
    server = served(build_deployment())
    (question,) = server.ask()
    report = answer(server, question)
    assert server.close().epsilon == pytest.approx(1.0)
    with pytest.raises(CapacityExceededError):
        server.ask()
    with pytest.raises(CapacityExceededError):
        server.take([report])
    assert server.status().state == "closed"


# What survives.


@pytest.mark.parametrize("name", ["tsallis", "halving", "one-point-strong", "two-point"])
def test_a_restart_between_question_and_answer_changes_nothing(name: str, tmp_path: Path) -> None:
    task = (
        build_deployment(name)
        if name in ("tsallis", "halving")
        else on(Ball(dim=3), name, convexity=1.0)
    )
    live = served(task, SQLiteStore(tmp_path / "server.db"))
    for bit in (1, 0, 1, 1):
        questions = live.ask(5)
        fresh = served(read_deployment(task.task), SQLiteStore(tmp_path / "server.db"))
        taken = fresh.take([forged(fresh, one.id, bit) for one in reversed(questions)])
        assert words(taken) == [None] * 5
        assert same(fresh.state, live.state)
        assert not same(fresh.state, served(task).state)


def test_a_crash_before_the_commit_leaves_the_learner_as_it_was() -> None:
    server = served(build_deployment("ucb"))
    first, second = server.ask(2)
    server.take([forged(server, first.id)])
    state = server.state
    late = [Report.read(forged(server, second.id), server.task)]

    def crash() -> None:
        with server._store.transaction(server.task.id) as at:
            row = at.row()
            assert row is not None
            server._take_reports(at, row, late, [None])
            raise RuntimeError

    with pytest.raises(RuntimeError):
        crash()
    assert same(server.state, state)
    assert server.take([forged(server, second.id)]) == (None,)
    assert float(server.state.pulls.sum()) == 2


def test_several_servers_share_a_store(tmp_path: Path) -> None:
    task = build_deployment("ucb", horizon=40)
    one, other = (served(task, SQLiteStore(tmp_path / "server.db")) for _ in range(2))
    while questions := one.ask(3) + other.ask(3):
        reports = [answer(one, question) for question in questions]
        other.take(reports[::2])
        one.take(reports[1::2])
        assert same(one.state, other.state)
    assert one.is_stopped
    assert other.is_stopped
    assert len(one.releases()) == 40


def test_many_threads_ask_and_answer() -> None:
    server = served(build_deployment(horizon=96))

    def work(_: int) -> int:
        taken = 0
        while questions := server.ask(2):
            reports = [answer(server, one) for one in questions]
            taken += words(server.take(reports + reports)).count(None) // 2
        return taken

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(work, range(8))) == 96
    assert server.is_stopped
    assert len(server.releases()) == 96


def test_the_chain_is_verified_from_its_lines_alone() -> None:
    server = served(on(Ball(dim=3)))
    (question,) = server.ask()
    server.take([forged(server, question.id)])
    found = verify(server.chain())
    assert found.audit_log.spent().epsilon == pytest.approx(1.0)
    assert found.review.kept


# A device and a server that does not keep to the protocol.


def test_device_answers_and_charges_a_repeated_query_once(tmp_path: Path) -> None:
    server = served(build_deployment())
    (question,) = server.ask()
    path, reports = tmp_path / "device.db", set()
    for loss in np.linspace(0, 1, 20).tolist():
        pending = Pending(path)
        device = Device(server.task, pending=pending, budget=Budget(epsilon=5.0))
        id = device.accept_question(question.id)
        device.reward(id, loss)
        reports.add(device.report(id, server.status()))
        assert device.spent().epsilon == pytest.approx(1.0)
        pending.close()
    assert len(reports) == 1
    device = Device(server.task, pending=Pending(path), budget=Budget(epsilon=5.0))
    device.confirm(question.id.hex())
    device.accept_question(question.id)
    with pytest.raises(InvalidValueError, match="no decision"):
        device.report(question.id.hex(), server.status())
    assert device.spent().epsilon == pytest.approx(1.0)


def test_a_users_own_budget_ends_what_a_server_may_ask() -> None:
    server = served(build_deployment())
    device, answered = Device(server.task, budget=Budget(epsilon=3.0)), 0
    for question in server.ask(10):
        try:
            answered += words(server.take([answer(server, question, device)])) == [None]
        except BudgetExceededError:
            continue
    assert answered == 3
    assert device.spent().epsilon == pytest.approx(3.0)


def test_task_beyond_its_guarantee_is_not_stored() -> None:
    task, store = build_deployment(), SQLiteStore.memory()
    less = dataclasses.replace(task.guarantee, epsilon=0.5)
    with pytest.raises(BudgetExceededError):
        Asker(dataclasses.replace(task, guarantee=less), store=store)
    assert store.tasks() == []
