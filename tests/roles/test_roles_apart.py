"""Each role on its own: what it accepts, what it refuses, and what it can know."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from kerchief.core.contracts import Arms, Clock
from kerchief.core.errors import CapacityExceeded, CodecError, InvalidValue, UnknownName
from kerchief.core.problems import Problem
from kerchief.core.random import Stream
from kerchief.mechanisms.gaussian import Gaussian
from kerchief.policies import POLICIES
from kerchief.privacy import Charge, Guarantee, MemoryLedger, Receipt, Trust
from kerchief.privatizers import At, CohortSums, Every, OnDemand, Privatizer, Protection, protect
from kerchief.roles import Curator, Device, InProcess, Learner, Shuffler
from kerchief.roles import messages as wire
from kerchief.roles.messages import Ask, Batch, Done, Message, Post, Read, Reports, Tick
from kerchief.roles.shuffler import permuted

FACTS = Problem(dim=2, arms=3, norm=1.0, radius=1.0, low=0.0, high=1.0, horizon=6)
POLICY: Any = POLICIES["linucb"].build(FACTS, "tuned")
QUERY: Any = POLICY.queries["moments"]
ROOT = Stream.of(seed=1, replicate=0)
ARMS = Arms(features=jnp.eye(3, 2), allowed=jnp.ones(3, bool))
NOISE = Gaussian.of(noise_multiplier=5.0, sensitivity=QUERY.sensitivity)


def ledger(trust: str) -> MemoryLedger:
    if trust == "none":
        return MemoryLedger(Guarantee(epsilon=float("inf"), delta=0.0, trust=Trust.NONE))
    return MemoryLedger(Guarantee(epsilon=1.0, delta=1e-5, trust=Trust(trust)))


def clock(round: int) -> Clock:
    return Clock(round=jnp.int32(round), since={"moments": jnp.int32(round + 1)})


def device(sums: Privatizer) -> Device:
    return Device(policy=POLICY, privatizers={"moments": sums})


def curator(sums: CohortSums, trust: str) -> Curator:
    made = Curator(
        privatizers={"moments": sums}, ledger=ledger(trust), horizon=FACTS.horizon, stream=ROOT
    )
    made.open()
    return made


def report(ticket: str, value: float = 1.0) -> Reports:
    return Reports(ticket=ticket, answers={"moments": np.full(QUERY.size, value)})


def post() -> Post:
    aggregator = Learner(
        policy=POLICY,
        outlook={"moments": plain().outlook},
        limits={},
        aggregator=lambda query, clock, request: None,
    )
    return aggregator.post()


def plain(schedule: Every | At | OnDemand | None = None) -> CohortSums:
    chosen = Every() if schedule is None else schedule
    return CohortSums(query=QUERY, schedule=chosen, device=None, aggregator=None)


def central(schedule: Every | At | OnDemand) -> CohortSums:
    return CohortSums(query=QUERY, schedule=schedule, device=None, aggregator=NOISE)


@pytest.mark.parametrize("exact", [False, True])
def test_a_retry_sends_the_same_report(exact: bool) -> None:
    local = protect(POLICY, Protection(guarantee=ledger("local").budget), horizon=6)["moments"]
    one = device(local.exact() if exact else local)
    one.act(post(), ARMS, ROOT)
    first = one.reports(0.5, ROOT)
    again = one.reports(0.9, ROOT.split(7))
    assert again is first
    one.act(post(), ARMS, ROOT)
    other = one.reports(0.5, ROOT)
    assert other.ticket != first.ticket
    same = (np.asarray(other.answers["moments"]) == np.asarray(first.answers["moments"])).all()
    assert same != exact


def test_a_report_sent_twice_counts_once() -> None:
    one = curator(plain(), "none")
    for ticket in ("a", "b", "a", "b", "a"):
        assert one.handle(report(ticket)) == Done()
    assert one.users == 2
    release = one.release("moments", clock(1))
    assert release is not None
    assert release.total.tolist() == [2.0] * QUERY.size


def test_a_device_has_nothing_to_report_before_it_acts() -> None:
    with pytest.raises(InvalidValue, match="call act first"):
        device(plain()).reports(0.5, ROOT)


def test_simulated_noise_without_a_stream_is_refused() -> None:
    one = device(
        protect(POLICY, Protection(guarantee=ledger("local").budget), horizon=6)["moments"]
    )
    one.act(post(), ARMS, ROOT)
    with pytest.raises(InvalidValue, match="stream"):
        one.reports(0.5, None)
    aggregator = Curator(
        privatizers={"moments": central(Every())}, ledger=ledger("central"), horizon=6
    )
    aggregator.open()
    aggregator.handle(report("a"))
    with pytest.raises(InvalidValue, match="stream"):
        aggregator.release("moments", clock(0))


def test_no_receipt_no_release() -> None:
    one = Curator(privatizers={"moments": plain()}, ledger=ledger("none"), horizon=6)
    with pytest.raises(CapacityExceeded, match="paid"):
        one.handle(report("a"))
    with pytest.raises(CapacityExceeded, match="paid"):
        one.release("moments", clock(0))


def test_the_ledger_is_charged_before_any_noise_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    add, charge = Gaussian.add, MemoryLedger.charge_all

    def adding(self: Gaussian, vector: Array, stream: Stream) -> Array:
        order.append("noise")
        return add(self, vector, stream)

    def charging(self: MemoryLedger, bill: Sequence[Charge]) -> tuple[Receipt, ...]:
        order.append("charge")
        return charge(self, bill)

    monkeypatch.setattr(Gaussian, "add", adding)
    monkeypatch.setattr(MemoryLedger, "charge_all", charging)
    one = curator(central(At(ends=(1, 2, 3))), "central")
    for round in range(3):
        one.handle(report(str(round)))
        assert one.release("moments", clock(round)) is not None
    assert order == ["charge"] + ["noise"] * 3


def test_the_horizon_is_the_last_user() -> None:
    one = curator(plain(), "none")
    for user in range(FACTS.horizon):
        one.handle(report(str(user)))
    with pytest.raises(CapacityExceeded, match="6 were paid for"):
        one.handle(report("late"))
    assert one.users == FACTS.horizon


def test_one_release_too_many_is_refused() -> None:
    one = curator(central(OnDemand(limit=2)), "central")
    for round in range(3):
        one.handle(report(str(round)))
        if round < 2:
            assert one.release("moments", clock(round)) is not None
    with pytest.raises(CapacityExceeded, match="2 times of 2"):
        one.release("moments", clock(2))
    assert one.releases == {"moments": 2}


def test_a_schedule_that_is_not_ready_releases_nothing() -> None:
    one = curator(central(At(ends=(2, 4))), "central")
    found = []
    for round in range(5):
        one.handle(report(str(round)))
        found.append(one.release("moments", clock(round)) is not None)
    assert found == [False, True, False, True, False]


def test_a_cohort_that_was_never_released_is_not_paid_for() -> None:
    books = ledger("central")
    sums = central(At(ends=(2, 4)))
    one = Curator(privatizers={"moments": sums}, ledger=books, horizon=6, stream=ROOT)
    one.open()
    for round in range(3):
        one.handle(report(str(round)))
        one.release("moments", clock(round))
    one.settle()
    assert [receipt.used for receipt in books.receipts] == [1, 0]


def test_a_release_of_two_cohorts_is_paid_for_by_both() -> None:
    books = ledger("central")
    sums = central(At(ends=(2, 4)))
    one = Curator(privatizers={"moments": sums}, ledger=books, horizon=6, stream=ROOT)
    one.open()
    for round in range(4):
        one.handle(report(str(round)))
    # The learner did not want the first batch's release, so the second speaks about both.
    assert one.release("moments", clock(3)) is not None
    one.settle()
    assert [receipt.used for receipt in books.receipts] == [1, 1]


def test_local_reports_are_paid_for_even_if_never_released() -> None:
    books = ledger("local")
    sums = CohortSums(query=QUERY, schedule=At(ends=(4,)), device=NOISE, aggregator=None)
    one = Curator(privatizers={"moments": sums}, ledger=books, horizon=6, stream=ROOT)
    one.open()
    one.handle(report("a"))
    one.settle()
    assert [receipt.used for receipt in books.receipts] == [1]


@pytest.mark.parametrize(
    "answers",
    [
        {},
        {"other": np.zeros(QUERY.size)},
        {"moments": np.zeros(QUERY.size + 1)},
        {"moments": np.full(QUERY.size, np.nan)},
        {"moments": np.zeros(QUERY.size), "other": np.zeros(1)},
    ],
)
def test_reports_that_do_not_fit_leave_no_trace(answers: wire.Answers) -> None:
    one = curator(plain(), "none")
    with pytest.raises(InvalidValue):
        one.handle(Reports(ticket="a", answers=answers))
    good = report("b").answers
    with pytest.raises(InvalidValue):
        one.handle(Batch(answers=(good, answers)))
    assert one.users == 0
    assert one.handle(report("a")) == Done()
    assert one.users == 1


def test_a_clock_that_disagrees_is_refused() -> None:
    one = curator(plain(), "none")
    one.handle(report("a"))
    with pytest.raises(InvalidValue, match="2 users; 1 have"):
        one.release("moments", clock(1))


def test_shuffles_are_uniform() -> None:
    # Chi-square with 23 degrees of freedom: above 73.5 with probability below 1e-6.
    draws = 24 * 200
    found = Counter(tuple(permuted(range(4))) for _ in range(draws))
    assert found.keys() == set(itertools.permutations(range(4)))
    assert sum((count - 200) ** 2 / 200 for count in found.values()) < 73.5


def test_a_batch_is_full_and_carries_no_ticket() -> None:
    received: list[Message] = []

    class Middle:
        def handle(self, message: Message) -> Message:
            received.append(message)
            return Done()

    transport = InProcess()
    transport.register("curator", Middle())
    shuffler = Shuffler(size=3, transport=transport, to="curator")
    for value, ticket in enumerate(["a", "b", "a", "c", "d"]):
        shuffler.handle(report(ticket, float(value)))
    assert len(received) == 1
    assert shuffler.waiting == 1
    batch = received[0]
    assert isinstance(batch, Batch)
    assert sorted(answers["moments"][0] for answers in batch.answers) == [0.0, 1.0, 3.0]
    assert "ticket" not in {field.name for field in dataclasses.fields(Batch)}


def test_the_learner_is_blind() -> None:
    private = {"arms", "features", "action", "reward", "record", "context", "allowed"}
    for name, method in inspect.getmembers(Learner, inspect.isfunction):
        assert not private & set(inspect.signature(method).parameters), name
    fields = {f.name for kind in (Read, Tick, wire.Answer) for f in dataclasses.fields(kind)}
    assert not private & fields


@pytest.mark.parametrize("message", [Done(), report("a"), Ask(query="moments", clock=clock(0))])
def test_the_learner_takes_no_report(message: Message) -> None:
    learner = Learner(
        policy=POLICY,
        outlook={"moments": plain().outlook},
        limits={},
        aggregator=lambda query, clock, request: None,
    )
    with pytest.raises(InvalidValue, match="takes Read and Tick"):
        learner.handle(message)


def test_other_roles_refuse_what_is_not_for_them() -> None:
    with pytest.raises(InvalidValue, match="takes Reports, Batch, Mixed and Ask"):
        curator(plain(), "none").handle(Read())
    with pytest.raises(InvalidValue, match="takes Reports"):
        Shuffler(size=2, transport=InProcess(), to="curator").handle(Tick())


def test_the_transport_carries_messages_to_known_roles_only() -> None:
    class Odd:
        def handle(self, message: Message) -> Message:
            return FACTS  # type: ignore[return-value]

    transport = InProcess()
    with pytest.raises(UnknownName):
        transport.send("nobody", Read())
    transport.register("odd", Odd())
    with pytest.raises(CodecError, match="not a message"):
        transport.send("odd", Read())


def test_private_sums_are_not_shown() -> None:
    one = curator(central(At(ends=(2,))), "central")
    one.handle(report("a", 123.5))
    assert "123.5" not in repr(one.desks["moments"])
    assert "123.5" not in repr(one)
