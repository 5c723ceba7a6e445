"""Who may report: floods of strangers, limits per client, and epochs that begin again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.deployment.field import Field, build_deployment, field
from tests.deployment.test_population import Town, town
from tests.deployment.test_questions import answer, served
from tests.deployment.test_questions import build_deployment as build_question_deployment

from kerchief.core.errors import CapacityExceededError, InvalidValueError
from kerchief.deployment.admission import Admission, AdmitEveryone, LimitPerClient
from kerchief.deployment.aggregator import Aggregator
from kerchief.deployment.audit_log import AuditLog
from kerchief.deployment.learner import Learner
from kerchief.deployment.population import PopulationLearner
from kerchief.deployment.questions import Asker
from kerchief.deployment.verify import verify
from kerchief.stores import FileWitness, open_store
from kerchief_device.randomize import randomize
from kerchief_protocol.errors import FencedError, RejectedError
from kerchief_protocol.report import Report
from kerchief_protocol.task import Task

USERS = 400


def words(answers: tuple[RejectedError | None, ...]) -> list[str | None]:
    return [None if refusal is None else refusal.word for refusal in answers]


def places(task: Task) -> int:
    """How many reports a task takes: the last users may fill no cohort."""
    return sum(task.needs) or task.horizon


def strangers(aggregator: Aggregator, count: int) -> list[bytes]:
    """Reports that one stranger makes up, all of them within their bounds."""
    task, status = aggregator.task, aggregator.status()
    zeros = np.zeros(task.size)
    return [
        Report(
            label=status.label,
            epoch=status.epoch,
            id=os.urandom(16),
            numbers=randomize(task.noise[0], zeros, status.label, os.urandom),
        ).write(task)
        for _ in range(count)
    ]


def flooded(aggregator: Aggregator, client: str | None = None) -> int:
    """How many reports of one stranger count, who goes on until all are refused."""
    counted = 0
    while aggregator.status().state == "running":
        reports = strangers(aggregator, 50)
        taken = aggregator.take(reports, [client] * 50).count(None)
        counted += taken
        if not taken:
            break
    return counted


def admitting(trust: str, store: Any, admission: Admission | None = None) -> Field:
    task = build_deployment(trust, horizon=USERS)
    aggregator = Aggregator(task, store=store, admission=admission)
    return Field(deployment=task, store=store, aggregator=aggregator, learner=Learner(task))


def serve(roles: Field, users: int) -> None:
    """So many honest users, each of whom the operator knows."""
    for user in range(users):
        assert roles.aggregator.take([roles.report()], [f"user {user}"]) == (None,)
        roles.follow()


# Floods.


@pytest.mark.parametrize("trust", ["local", "shuffle", "central"])
def test_a_stranger_uses_up_a_task_and_the_statement_says_so(trust: str) -> None:
    roles = admitting(trust, open_store(":memory:"))
    late = roles.report()
    assert flooded(roles.aggregator) == places(roles.task) > 200
    assert roles.aggregator.status().state == "closed"
    assert words(roles.aggregator.take([late])) == ["over"]
    assert AdmitEveryone().sentence() in roles.aggregator.statement()
    assert "one stranger" in AdmitEveryone().sentence()


@pytest.mark.parametrize("trust", ["local", "shuffle", "central"])
def test_a_limited_stranger_takes_one_place_and_users_the_others(trust: str) -> None:
    roles = admitting(trust, open_store(":memory:"), LimitPerClient())
    assert flooded(roles.aggregator, "stranger") == 1
    roles.follow()
    serve(roles, places(roles.task) - 1)
    assert roles.learner.users == places(roles.task)
    assert roles.aggregator.status().state == "closed"
    assert LimitPerClient().sentence() in roles.aggregator.statement()
    assert AdmitEveryone().sentence() not in roles.aggregator.statement()


@pytest.mark.parametrize("limited", [False, True])
def test_a_cohort_around_a_victim_is_filled_without_a_limit(limited: bool) -> None:
    """Whoever knows all other reports of a cohort sees the victim's coins alone."""
    roles = admitting("shuffle", open_store(":memory:"), LimitPerClient() if limited else None)
    need = roles.task.need(0)
    around = strangers(roles.aggregator, need - 1)
    answers = roles.aggregator.take(around, ["stranger"] * len(around))
    assert roles.aggregator.take([roles.report(reward=1.0)], ["victim"]) == (None,)
    assert words(answers).count("spent") == (need - 2 if limited else 0)
    assert len(roles.totals()) == (0 if limited else 1)


def test_the_statement_of_shuffle_trust_says_who_must_be_honest() -> None:
    assert "all users of every cohort are honest" in field("shuffle").aggregator.statement()
    assert "at least 4 in 5 users" in field("shuffle", honest=(4, 5)).aggregator.statement()
    assert "are honest" not in field("central").aggregator.statement()


# What is counted.


def test_repeated_and_rejected_reports_use_no_client_limit(where: str) -> None:
    store = open_store(where)
    roles = admitting("central", store, LimitPerClient(reports=2))
    first, second, third = (roles.report() for _ in range(3))
    wrong = first[:-8] + (2**61).to_bytes(8, "little")
    assert words(roles.aggregator.take([first, first, wrong], ["a"] * 3)) == [
        None,
        None,
        "bounds",
    ]
    assert words(roles.aggregator.take([first, second, first], list("abc"))) == [None] * 3
    assert words(roles.aggregator.take([third], [b"a"])) == [None]
    assert words(roles.aggregator.take([roles.report(), first], ["a", "a"])) == ["spent", None]
    again = Aggregator(roles.deployment, store=store, admission=LimitPerClient(reports=2))
    assert words(again.take([roles.report()], ["a"])) == ["spent"]
    assert words(again.take([roles.report()], ["b"])) == [None]
    store.close()


def test_a_refused_client_spoils_no_report_that_it_copied() -> None:
    roles = admitting("local", open_store(":memory:"), LimitPerClient())
    assert roles.aggregator.take([roles.report()], ["eve"]) == (None,)
    for eve, word in (("eve", "spent"), (None, "client")):
        answers = roles.aggregator.take([report := roles.report(), report], [eve, "user " + word])
        assert words(answers) == [word, None]


def test_report_without_client_id_is_rejected_as_client(where: str) -> None:
    store = open_store(where)
    roles = admitting("joint", store, LimitPerClient())
    reports = [roles.report() for _ in range(4)]
    assert words(roles.aggregator.take(reports)) == ["client"] * 4
    assert words(roles.aggregator.take(reports, [None, "", b"", "a"])) == ["client"] * 3 + [None]
    with store.read(roles.task.id) as at:
        assert sum(at.count_report_ids().values()) == 1
    store.close()


def test_a_limit_holds_over_epochs_and_is_forgotten_at_the_end(where: str) -> None:
    store = open_store(where)
    roles = admitting("central", store, LimitPerClient())
    assert roles.aggregator.take([roles.report()], ["a"]) == (None,)
    roles.aggregator.renew(restart=True)
    assert words(roles.aggregator.take([roles.report()], ["a"])) == ["spent"]
    with store.read(roles.task.id) as at:
        assert at.client_key() is not None
    roles.aggregator.close()
    with store.read(roles.task.id) as at:
        assert at.client_key() is None
    store.close()


def test_reports_count_from_the_first_limit_on() -> None:
    """As docs/field.md says: who sent a report before is not known any more."""
    roles = admitting("central", open_store(":memory:"))
    assert roles.aggregator.take([roles.report()], ["a"]) == (None,)
    limited = Aggregator(roles.deployment, store=roles.store, admission=LimitPerClient())
    answers = [limited.take([roles.report()], ["a"]) for _ in range(2)]
    assert [words(answer) for answer in answers] == [[None], ["spent"]]
    page = (Path(__file__).parents[2] / "docs" / "field.md").read_text()
    assert "count from the first `Aggregator`" in page


def test_the_store_holds_no_identifier_of_a_client(tmp_path: Path) -> None:
    """Nor one name in two tasks; and nothing of it is left when the task is closed."""
    names, path = [], tmp_path / "m.db"
    for _ in range(2):
        roles = admitting("central", open_store(path), LimitPerClient())
        assert roles.aggregator.take([roles.report()], ["someone@example.org"]) == (None,)
        store: Any = roles.store
        names += store._writer.execute("SELECT name, used FROM clients").fetchall()
        store.close()
        assert all(b"someone" not in file.read_bytes() for file in tmp_path.iterdir())
        path = tmp_path / "other.db"
    (first, once), (second, _) = names
    assert (len(first), once, first == second) == (32, 1, False)
    roles.store.close()
    roles = admitting("central", open_store(path), LimitPerClient())
    roles.aggregator.close()
    roles.store.close()
    assert all(second not in file.read_bytes() for file in [path])


def test_clients_are_as_many_as_reports() -> None:
    roles = field("local")
    report = roles.report()
    for clients in ([], ["a", "b"], "a" * 2, [3], [["a"]], 7, iter(["a"])):
        with pytest.raises(InvalidValueError, match="client"):
            roles.aggregator.take([report], clients)  # type: ignore[arg-type]
    assert roles.aggregator.take([report], [None]) == (None,)


class OfTheHouse:
    """Known clients may send any number, and all unknown ones three together."""

    def limit(self, client: bytes | None) -> int | None:
        return 3 if client is None else None

    def sentence(self) -> str:
        return "House rules."


def test_custom_admission_is_followed() -> None:
    roles = admitting("local", open_store(":memory:"), OfTheHouse())
    reports = [roles.report() for _ in range(12)]
    answers = words(roles.aggregator.take(reports, [None] * 5 + ["a"] * 7))
    assert answers == [None] * 3 + ["spent"] * 2 + [None] * 7
    assert "House rules." in roles.aggregator.statement()


# Questions.


def test_questions_are_limited_per_client(where: str) -> None:
    store = open_store(where)
    server = served(build_question_deployment(), store=store, admission=LimitPerClient(reports=2))
    with pytest.raises(RejectedError, match="not admitted") as refused:
        server.ask(1)
    assert refused.value.word == "client"
    first, _ = server.ask(5, client="a")
    assert words(server.take([answer(server, first)])) == [None]
    again = Asker(build_question_deployment(), store=store, admission=LimitPerClient(reports=2))
    with pytest.raises(RejectedError, match="its limit of 2") as refused:
        again.ask(1, client="a")
    assert refused.value.word == "spent"
    assert len(again.ask(1, client=b"b")) == len(again.ask(7, client="b")) == 1
    store.close()


# An epoch that strangers used up.


@pytest.mark.parametrize("trust", ["local", "shuffle", "joint", "central"])
def test_a_task_that_strangers_used_up_begins_again(trust: str, tmp_path: Path) -> None:
    """New places are charged, and what strangers sent is learned from no more."""
    roles = field(trust, horizon=60, witness=FileWitness(tmp_path / "witness"))
    users = places(roles.task)
    assert flooded(roles.aggregator) == users
    roles.follow()
    spoiled = roles.learner.model
    with pytest.raises(CapacityExceededError, match="restart=True"):
        roles.aggregator.renew()
    roles.aggregator.renew(restart=True)
    status = roles.aggregator.status()
    assert (status.state, status.label) == ("running", 0)
    roles.learner.restart()
    empty = Learner(roles.deployment).model
    assert roles.learner.model.arrays == empty.arrays
    assert roles.learner.model.version > spoiled.version
    old = len(roles.aggregator.releases())
    roles.serve(users, reward=1.0)
    assert roles.aggregator.status().state == "closed"
    assert roles.learner.users == users
    totals = roles.totals()
    assert status.epoch not in {release.epoch for release in totals[:old]}
    assert {release.epoch for release in totals[old:]} == {status.epoch}
    assert [release.cohort for release in totals[old:]] == list(range(roles.task.cohorts))
    again = Learner(roles.deployment)
    again.follow(roles.aggregator.releases())
    assert again.model.arrays == roles.learner.model.arrays
    audit_log = verify(roles.aggregator.chain()).audit_log
    assert [epoch.cohort for epoch in audit_log.epochs] == [0, 0]
    assert {receipt.cohort.first // 60 for receipt in audit_log.receipts} == {0, 1}
    assert audit_log.spent().epsilon <= 1.0
    Aggregator(roles.deployment, store=roles.store, witness=FileWitness(tmp_path / "witness"))
    assert roles.aggregator.close().epsilon <= 1.0
    assert verify(roles.aggregator.chain()).review.kept


@pytest.mark.parametrize("trust", ["shuffle", "joint", "central"])
def test_a_task_begins_again_in_the_midst_of_an_epoch(trust: str) -> None:
    roles = field(trust, horizon=200)
    flood = strangers(roles.aggregator, roles.task.need(0) + 1)
    roles.aggregator.take(flood)
    late = roles.report()
    roles.aggregator.renew(restart=True)
    assert words(roles.aggregator.take([late, *flood])) == ["epoch"] * (len(flood) + 1)
    roles.serve(roles.task.need(0), reward=1.0)
    fresh = field(trust, horizon=200)
    fresh.serve(fresh.task.need(0), reward=1.0)
    assert roles.learner.users == fresh.learner.users
    assert roles.learner.model.round == fresh.learner.model.round
    roles.aggregator.renew()
    roles.serve(3, reward=1.0)
    cohorts = [epoch.cohort for epoch in AuditLog.of(roles.aggregator.chain()).epochs]
    assert cohorts == [0, 0, fresh.task.need(0) if trust == "joint" else 1]
    assert verify(roles.aggregator.chain()).review.kept


def test_a_fenced_store_that_is_used_up_begins_again(tmp_path: Path) -> None:
    witness = FileWitness(tmp_path / "witness")
    roles = field("central", horizon=60, witness=witness)
    flooded(roles.aggregator)
    witness.swap(roles.task.id, witness.read(roles.task.id), bytes(32))
    with pytest.raises(FencedError):
        Aggregator(roles.deployment, store=roles.store, witness=witness)
    with pytest.raises(CapacityExceededError):
        Aggregator(roles.deployment, store=roles.store, witness=witness, renew=True)
    again = Aggregator(roles.deployment, store=roles.store, witness=witness, restart=True)
    assert again.status().label == 0


@pytest.mark.parametrize("change", [{"cohort": 1}, {"release": 1}, {"release": 3, "cohort": 2}])
def test_an_epoch_that_begins_elsewhere_does_not_verify(change: Any) -> None:
    roles = field("central", horizon=200)
    roles.serve(roles.task.need(0) + roles.task.need(1))
    assert len(roles.totals()) == 2
    roles.aggregator.renew(restart=True)
    lines = roles.aggregator.chain()
    verify(lines)
    with pytest.raises(FencedError, match="begins an epoch at another place"):
        verify(_changed(lines, change))


@pytest.mark.parametrize("epoch", ["that of the first", -1, 2**32, True, "1"])
def test_an_epoch_without_a_new_number_does_not_verify(epoch: Any) -> None:
    roles = field("local")
    roles.aggregator.renew()
    lines = roles.aggregator.chain()
    verify(lines)
    number = lines[0].content["epoch"] if epoch == "that of the first" else epoch
    with pytest.raises(FencedError, match="epoch"):
        verify(_changed(lines, {"epoch": number}))


def _changed(lines: Any, change: dict[str, Any]) -> Any:
    """A chain whose epoch line says something else, all hashes computed anew."""
    chain = [lines[0]]
    for line in lines[1:]:
        content = line.content | (change if line.kind == "epoch" else {})
        chain.append(chain[-1].next(line.kind, content))
    return tuple(chain)


def test_a_population_that_begins_again_forgets_its_phases() -> None:
    roles: Town = town("pe", "central")
    for _ in range(3):
        roles.group()
    assert roles.learner.releases == 3
    roles.aggregator.renew(restart=True)
    roles.learner.restart()
    fresh = PopulationLearner(roles.deployment, roles.learner._features)
    assert (roles.learner.phase, roles.learner.users) == (0, 0)
    assert roles.learner.model.arrays == fresh.model.arrays
    for _ in range(roles.deployment.by_phases.groups):
        roles.group()
    assert roles.learner.phase == 1
    again = PopulationLearner(roles.deployment, roles.learner._features)
    again.follow(roles.aggregator.releases())
    assert again.model.arrays == roles.learner.model.arrays
    assert verify(roles.aggregator.chain()).review.kept


def test_restarted_learner_rejects_later_cohort() -> None:
    roles = field("joint")
    roles.serve(2)
    roles.learner.restart()
    with pytest.raises(FencedError, match="out of order"):
        roles.serve(1)


def test_a_server_of_questions_begins_again(tmp_path: Path) -> None:
    """Open questions follow from answers that are thrown away: nobody may answer them."""
    store = open_store(tmp_path / "q.db")
    server, other = (Asker(build_question_deployment(horizon=6), store=store) for _ in range(2))
    for question in server.ask(4):
        assert server.take([answer(server, question)]) == (None,)
    (left,) = server.ask(1)
    stale = answer(server, left)
    assert len(other.releases()) == 4
    empty = Asker(build_question_deployment(horizon=6), store=open_store(":memory:")).state
    server.renew(restart=True)
    for asker in (server, other):
        assert not asker.is_stopped
        assert str(asker.state) == str(empty)
        assert words(asker.take([stale, answer(asker, left)])) == ["epoch", "question"]
    questions = (*server.ask(3), *other.ask(9))
    assert len(questions) == 6
    assert words(server.take([answer(server, question) for question in questions])) == [None] * 6
    assert server.is_stopped
    assert other.is_stopped
    assert len(server.releases()) == 10
    assert verify(server.chain()).audit_log.spent().epsilon == pytest.approx(1.0)
    again = Asker(build_question_deployment(horizon=6), store=store)
    assert np.array_equal(again.recommendation, server.recommendation)
    store.close()
