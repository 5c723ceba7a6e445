"""A whole bandit in one process: names, ids, late rewards, folders, threads and asyncio."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import math
import os
import pickle
import time
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from tests.deployment.field import ARMS, FACTS, TRUSTS, bandit, kill, promise, reopened

from kerchief.core.errors import CapacityExceededError, InvalidValueError, WeakGuaranteeWarning
from kerchief.core.problems import Problem
from kerchief.deployment.aggregator import Aggregator
from kerchief.deployment.audit_log import AuditLog
from kerchief.deployment.bandit import Bandit
from kerchief.deployment.deployment import deploy
from kerchief.deployment.learner import Learner
from kerchief.deployment.protected_policy import build_protected
from kerchief.policies import POLICIES
from kerchief.privacy.guarantee import Guarantee, Trust
from kerchief.privatizers.protect import Protection
from kerchief.stores.sqlite import SQLiteStore
from kerchief_device import Pending
from kerchief_protocol import canonical
from kerchief_protocol.errors import CodecError, FencedError, StoreError

LATE = pytest.mark.filterwarnings("ignore::kerchief.DelayedLearningWarning")


def serve(one: Bandit, visits: int) -> None:
    for _ in range(visits):
        one.reward(one.decide(ARMS).id, 0.5)
    one.expire()


@pytest.mark.parametrize("trust", ["none", *TRUSTS])
@pytest.mark.parametrize("policy", ["linucb", "greedy", "glm"])
def test_every_trust_learns(trust: str, policy: str) -> None:
    one = bandit(trust, policy=policy)
    before = one.model
    serve(one, 50)
    assert one.users == 50
    assert any((one.model[name] != before[name]).any() for name in before)
    assert trust == "none" or one.spent().epsilon <= 1.0


@pytest.mark.parametrize("trust", ["none", *TRUSTS])
def test_whole_numbers_are_as_good_as_real_ones(trust: str, tmp_path: Path) -> None:
    """What was made with epsilon 1 can be stated, verified and opened again."""
    facts = Problem(dim=2, arms=3, norm=1, radius=1, low=0, high=1, horizon=2000)
    epsilon = math.inf if trust == "none" else 1
    promised = Guarantee(
        epsilon=epsilon, delta=0 if trust in ("none", "local") else 1e-6, trust=Trust(trust)
    )
    one = bandit(trust, problem=facts, guarantee=promised, default=0)
    assert "Spent" not in one.statement()
    serve(one, 5)
    said = one.statement()
    assert (trust == "none") != ("Paid in advance" in said)
    one.save(tmp_path / "there", witness=tmp_path / "witness")
    said = one.statement()
    one.close()
    assert reopened(tmp_path / "there").statement() == said


def test_arms_have_names_and_come_and_go() -> None:
    one = bandit()
    for names in ("a", "ab", "abc", "cb", "c"):
        rows = {name: ARMS["abc".index(name)] for name in names}
        assert str(one.decide(rows).arm) in names
    assert one.decide(ARMS[:1]).arm == 0
    assert one.decide(ARMS, [False, True, False]).arm == 1
    with pytest.raises(InvalidValueError, match="up to 3 arms"):
        one.decide(np.zeros((4, 2)))
    with pytest.raises(InvalidValueError, match="at most 1"):
        one.decide([[1.0, 1.0]])


@LATE
def test_many_decisions_wait_and_rewards_come_in_any_order() -> None:
    one = bandit("none", window_s=60)
    waiting = [one.decide(ARMS) for _ in range(20)]
    assert len({choice.id for choice in waiting}) == 20
    for choice in waiting[::-1]:
        one.reward(choice.id, 1.0)
    assert one.users == one.expire() == 0
    assert one.expire(time.time() + 61) == one.users == 20


def test_reward_is_final_once_given_or_defaulted() -> None:
    one = bandit()
    first = one.decide(ARMS)
    one.reward(first.id, 1.0)
    with pytest.raises(InvalidValueError, match="the first one counts"):
        one.reward(first.id, 0.0)
    second = one.decide(ARMS)
    assert one.users == one.expire() == 1
    for choice in (first, second):
        with pytest.raises(InvalidValueError, match="pending"):
            one.reward(choice.id, 1.0)
    assert one.users == 2


@pytest.mark.parametrize("policy", ["linucb", "glm-greedy"])
def test_values_outside_the_declared_bounds_are_refused(policy: str) -> None:
    """Also where devices need the whole library, which clips without a word."""
    service = bandit("central", policy=policy)
    choice = service.decide(ARMS)
    for reward in (1.5, -0.1, 1e308):
        with pytest.raises(InvalidValueError, match=r"it must be 0\.0 to 1\.0"):
            service.reward(choice.id, reward)
    service.reward(choice.id, 1.0)
    for arms in (ARMS * 1.1, ARMS * 1e200, np.full((3, 2), np.inf)):
        with pytest.raises(InvalidValueError, match="too long or not finite"):
            service.decide(arms)


def test_bandit_errors_do_not_quote_user_data() -> None:
    one = bandit()
    choice = one.decide(ARMS)
    for call in (
        lambda: one.reward(choice.id, 1.2345678),
        lambda: one.decide([[1.2345678, 0.0]]),
    ):
        with pytest.raises(InvalidValueError) as caught:
            call()
        assert "1.23" not in str(caught.value)


def test_decide_rejects_users_beyond_the_horizon() -> None:
    one = bandit("none", problem=dataclasses.replace(FACTS, horizon=3))
    serve(one, 3)
    assert one.users == 3
    with pytest.raises(CapacityExceededError, match="all 3 users"):
        one.decide(ARMS)


@pytest.mark.parametrize("trust", ["none", *TRUSTS])
def test_bandit_survives_a_kill_in_its_folder(trust: str, tmp_path: Path) -> None:
    folder = tmp_path / "bandit"
    one = bandit(trust, path=folder)
    serve(one, 55)
    choice, model, users = one.decide(ARMS), one.model, one.users
    kill(one)
    with reopened(folder) as again:
        assert again.users == users
        assert all((again.model[name] == model[name]).all() for name in model)
        again.reward(choice.id, 0.5)
        serve(again, 2)
        assert again.users == (58 if trust in ("none", "local", "joint") else 50)
        assert again.task.id == one.task.id
    with pytest.raises(InvalidValueError, match="exists already"):
        bandit(trust, path=folder)


def test_it_moves_from_memory_into_a_folder(tmp_path: Path) -> None:
    one = bandit("joint")
    serve(one, 5)
    choice = one.decide(ARMS)
    one.save(tmp_path / "bandit", witness=tmp_path / "witness")
    one.reward(choice.id, 0.5)
    serve(one, 5)
    one.close()
    with reopened(tmp_path / "bandit") as again:
        assert again.users == 11
        with pytest.raises(InvalidValueError, match="lives in"):
            again.save(tmp_path / "other")


@pytest.mark.parametrize("fault", [StoreError("full"), KeyboardInterrupt()])
def test_a_move_that_fails_leaves_no_second_bandit(
    fault: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two that go on from one state would draw twice for those who were there before."""
    one = bandit("joint")
    serve(one, 5)
    with monkeypatch.context() as patched:
        patched.setattr(Pending, "copy_to", Mock(side_effect=fault))
        with pytest.raises(type(fault)):
            one.save(tmp_path / "bandit", witness=tmp_path / "witness")
    serve(one, 5)
    with pytest.raises(InvalidValueError, match="no bandit"):
        reopened(tmp_path / "bandit")
    one.save(tmp_path / "bandit", witness=tmp_path / "witness")
    assert one.users == 10


def test_an_interrupt_while_it_learns_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    one = bandit("local")
    serve(one, 5)
    with monkeypatch.context() as patched:
        patched.setattr(Learner, "_add_release", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            serve(one, 1)
    one.expire()
    assert one.users == 6
    other = Learner(one._deployment)
    other.follow(one._aggregator.releases())
    for name, array in one.model.items():
        np.testing.assert_array_equal(array, other.model[name])


def test_opening_a_name_too_long_for_files_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match="holds no bandit"):
        Bandit.open(tmp_path / ("1" * 400))


def test_opening_an_empty_folder_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match="no bandit"):
        Bandit.open(tmp_path)


def test_reopening_custom_bandit_requires_its_policy(tmp_path: Path) -> None:
    policy = POLICIES["linucb"].build(FACTS, "tuned")
    with bandit("local", policy=policy, path=tmp_path / "b") as one:
        serve(one, 3)
    with pytest.raises(InvalidValueError, match="of one's own"):
        reopened(tmp_path / "b")
    with pytest.raises(FencedError):
        reopened(tmp_path / "b", policy=POLICIES["linucb"].build(FACTS, "theory"))
    with reopened(tmp_path / "b", policy=policy) as again:
        assert again.users == 3


@LATE
def test_asyncio() -> None:
    one = bandit(window_s=60)

    async def visit() -> None:
        choice = await asyncio.to_thread(one.decide, ARMS)
        await asyncio.sleep(0)
        await asyncio.to_thread(one.reward, choice.id, 0.5)

    async def crowd() -> None:
        await asyncio.gather(*(visit() for _ in range(40)))

    asyncio.run(crowd())
    assert one.expire(time.time() + 61) == one.users == 40


@pytest.mark.filterwarnings("ignore")
def test_bandit_rejects_copy_pickle_and_fork() -> None:
    one = bandit()
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(InvalidValueError):
            copied(one)
    choice = one.decide(ARMS)
    child = os.fork()
    if child == 0:
        try:
            one.reward(choice.id, 0.5)
        except Exception:
            os._exit(3)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3


def test_statement_names_the_parties_to_be_trusted() -> None:
    said = bandit("shuffle", guarantee=promise("shuffle", honest=(4, 5))).statement()
    assert "at least 4 in 5" in said
    assert "several times: 2:" in said
    assert "no privacy promise" in bandit("none").statement()


def test_statement_excepts_the_owner_of_a_single_process() -> None:
    """The devices run in the operator's own process, whatever local trust says of an operator."""
    said = bandit("local").statement()
    assert "It protects from everyone, the operator included" in said
    assert "even where the operator was included above" in said


@pytest.mark.parametrize("trust", TRUSTS)
def test_a_statement_prices_visits_as_the_review_does(trust: str) -> None:
    """Where all visits may be in one total, they cost more than so many times epsilon."""
    one = bandit(trust, mechanism="gaussian" if trust == "central" else "best")
    said, books = one.statement(), AuditLog.of(one._aggregator.chain())
    for visits in (2, 4, 8):
        assert f"{visits}: {books.review(visits).spent.epsilon:.4g}" in said
    assert "who pays k times" not in said
    assert ("may pay more than k times epsilon" in said) == (trust != "local")
    assert (books.review(10).spent.epsilon > 13) == (trust != "local")
    assert books.review(10).spent.epsilon <= (14 if trust != "local" else 10 * (1 + 1e-9))


@pytest.mark.parametrize("mechanism", ["best", "bits"])
def test_statements_say_which_price_of_visits_is_unproved(mechanism: str) -> None:
    """Cohorts of randomized bits differ in what they cost, and their noise is not normal."""
    one = bandit("shuffle", mechanism=mechanism)
    aggregator = Aggregator(one._deployment, store=SQLiteStore.memory())
    for said in (one.statement(), aggregator.statement()):
        assert "at delta 1e-06" in said
        assert ("visits spread over unequal cohorts might cost more" in said) == (
            mechanism == "bits"
        )


def test_deploy_rejects_undeployable_policy_with_reason() -> None:
    for policy, why in (("glm-rare", "fit"), ("glm@paper", "study"), ("sblb", "runs under")):
        with pytest.raises(InvalidValueError, match=why):
            deploy(policy=policy, problem=FACTS, guarantee=promise("joint"))
    with pytest.raises(InvalidValueError, match="takes a"):
        deploy(policy="tsallis", problem=FACTS, guarantee=promise("local"))


def test_policies_suggested_instead_can_be_deployed() -> None:
    with pytest.raises(InvalidValueError, match="choose one of ") as caught:
        bandit(policy="dpe")
    named = str(caught.value).split("choose one of ")[1].split(", ")
    assert named == sorted(named)
    assert "linucb" in named
    for name in named:
        assert bandit(policy=name).users == 0


def test_a_large_delta_is_warned_about() -> None:
    weak = dataclasses.replace(promise("local"), delta=0.1)
    with pytest.warns(WeakGuaranteeWarning):
        bandit(guarantee=weak, mechanism="gaussian")


def test_settled_bandit_takes_no_decisions() -> None:
    one = bandit("central")
    serve(one, 60)
    assert one.settle().epsilon <= 1.0
    with pytest.raises(CapacityExceededError):
        one.decide(ARMS)


def test_a_shuffle_promise_says_whom_it_relies_on() -> None:
    """Where no part is planned for, one user without coins is one too many."""
    assert "all users of a cohort must add their noise" in promise("shuffle").statement()
    for trust in ("local", "joint", "central"):
        assert "relies on other users" not in promise(trust).statement()


@pytest.mark.parametrize("policy", [0.5, np.array(0.5), None, object()])
def test_arrange_rejects_object_that_is_no_policy(policy: Any) -> None:
    protection = Protection(guarantee=promise("none"))
    with pytest.raises(InvalidValueError, match="give a name from `kerchief list policies`"):
        build_protected(policy, FACTS, protection)


@pytest.mark.parametrize("data", [{}, None, 3, ["a"]])
def test_canonical_read_rejects_data_that_is_no_text(data: Any) -> None:
    with pytest.raises(CodecError, match="not canonical"):
        canonical.read(data)


def test_store_of_an_earlier_version_is_refused_by_its_new_name(tmp_path: Path) -> None:
    (tmp_path / "middle.db").touch()
    with pytest.raises(InvalidValueError, match=r"earlier version, as middle\.db.* aggregator\.db"):
        Bandit.open(tmp_path)
