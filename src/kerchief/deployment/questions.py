"""The server of a bandit without contexts: it asks, hears answers in any order, and learns.

The server proposes an action and learns from one protected number. A device knows its user's
losses, and only that number leaves it. Together they are Algorithm 1 of Zheng, Cai, Huang, Li and
Wang 2020 with exact noise and several questions open at once (`policies/context_free/base.md`).

========  =======================================  ==========================================
step      in one transaction                       afterwards
========  =======================================  ==========================================
ask       id, action and memo of each question     it is given out
take      a question is closed; what was asked     the answer is acknowledged; the learner's
          and what was answered is a release       state follows from all releases
========  =======================================  ==========================================
"""

from __future__ import annotations

import dataclasses
import math
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import Array
from numpy.typing import NDArray

from kerchief.core.contracts import NoiseInfo, Stops, Tree
from kerchief.core.precision import double_precision
from kerchief.core.random import POLICY, Stream
from kerchief.core.validate import between, whole
from kerchief.deployment.admission import Admission, Client, Places, read_client
from kerchief.deployment.aggregator import Aggregator
from kerchief.deployment.context_free import compute_unit
from kerchief.deployment.deployment import Deployment
from kerchief.policies.context_free.base import ContextFree
from kerchief.stores.store import EVERYTHING, Reader, Row, Store, Transaction
from kerchief.stores.store import Question as Stored
from kerchief.stores.witness import Witness
from kerchief_device.samplers import Randomness
from kerchief_protocol import canonical
from kerchief_protocol.errors import FencedError, RejectedError
from kerchief_protocol.model import Numbers, Question
from kerchief_protocol.report import Report

# Releases that are read together.
_AT_ONCE = 1000
# Seconds since 1970: what a clock may give, and by when every question is due.
_MAX_TIME_S, _ALL_DUE_S = 2**53, 2**62


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answer:
    """A release: what was asked, and the protected number that came back.

    Attributes:
        number: its place among the answers, from 0.
        round: its place among the questions, from 0.
        action: what was proposed.
        memo: what the learner kept of the state that proposed it, leaf by leaf.
        numbers: of the report.
    """

    number: int
    round: int
    action: Numbers
    memo: tuple[Numbers, ...]
    numbers: Numbers


class Asker(Aggregator):
    """Proposes actions, takes answers in, and names what it would choose.

    It is blind to users: a report is all that it gets, and that is safe to publish. Any number of
    questions may be open, unless the bandit must wait; several threads may use one server, and
    several processes one store.

    >>> from kerchief.core.problems import ContextFreeProblem
    >>> from kerchief.privacy import Guarantee
    >>> from kerchief.deployment.deployment import deploy
    >>> from kerchief.stores import open_store
    >>> from kerchief_device import Device
    >>> promise = Guarantee(epsilon=1.0, delta=0.0, trust="local")
    >>> problem = ContextFreeProblem(horizon=100, low=0.0, high=1.0, arms=3)
    >>> deployment = deploy(policy="tsallis", problem=problem, guarantee=promise, window_s=0)
    >>> server, device = Asker(deployment, store=open_store(":memory:")), Device(deployment.task)
    >>> first, second = server.ask(2)
    >>> id = device.accept_question(first.id)
    >>> device.reward(id, 0.25)
    True
    >>> server.take([device.report(id, server.status())])
    (None,)
    >>> server.is_stopped, round(server.spent().epsilon, 6)
    (False, 1.0)
    """

    _asks = True

    def __init__(
        self,
        deployment: Deployment,
        *,
        store: Store,
        witness: Witness | None = None,
        source: Randomness = os.urandom,
        admission: Admission | None = None,
        patience_s: int = 3600,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Open a task in a store, or begin it: then its whole horizon is paid for at once.

        Args:
            deployment: the task of a bandit without contexts.
            store: what survives a crash.
            witness: remembers the chain's head elsewhere.
            source: of randomness; anything but the default is for tests.
            admission: decides how many questions a client may be given; by default everyone may
                have any number.
            patience_s: seconds after the latest time at which a device reports; a question that
                has no answer then is asked of someone else.
            clock: seconds since 1970.

        Raises:
            BudgetExceededError: the promise does not pay for the noise; nothing was begun.
            FencedError: the store is not as it was last seen, or its task is another one.
            InvalidValueError: the task is for another role.
        """
        super().__init__(
            deployment, store=store, witness=witness, source=source, admission=admission
        )
        self._learner = _QuestionLearner(deployment, source)
        rule, patience = deployment.task.reward, whole("patience_s", patience_s, low=0, high=2**31)
        self._wait_s, self._clock = rule.window_s + rule.jitter_s + patience, clock

    def ask(self, count: int = 1, client: Client = None) -> tuple[Question, ...]:
        """Questions for as many users: first those that others left unanswered, under new ids.

        Args:
            count: how many.
            client: who wants them, as the operator's own login established. Its questions count
                when they are given out, and its answers no more.

        Returns:
            Fewer than were asked for, or none, where the bandit waits for open questions, has asked
            all users that were paid for, or has stopped, or where the client may have no more.

        Raises:
            InvalidValueError: the clock gives no finite number.
            RejectedError: the client is not admitted, or had all questions that it may have.
        """
        # A store holds no numbers beyond 64 bits.
        count = min(whole("count", count), self.task.horizon)
        sender = read_client(client)
        with self._lock, self._store.transaction(self.task.id) as transaction:
            row = self._read_running_row(transaction)
            places = Places(transaction, self._admission, [sender])
            if (refused := places.refusal(sender)) is not None:
                raise refused
            self._follow(transaction, row)
            if self._learner.is_stopped:
                return ()
            count = places.free(sender, count)
            again = tuple(
                self._ask_again(transaction, question)
                for question in transaction.overdue_questions(int(self._now()), count)
            )
            questions = again + self._ask_new(transaction, row, count - len(again))
            places.take(sender, len(questions))
            places.close()
            return questions

    def _restart(self, transaction: Transaction) -> None:
        """Close all open questions: what they propose follows from what is thrown away."""
        for question in transaction.overdue_questions(_ALL_DUE_S, EVERYTHING):
            transaction.expire(question.id)

    @property
    def is_stopped(self) -> bool:
        """Whether nothing more is asked: the bandit knows enough, or all users have answered."""
        with self._lock:
            learner = self._update_learner()
            return learner.users >= self.task.horizon or learner.is_stopped

    @property
    def recommendation(self) -> NDArray[np.generic]:
        """The arm or the point that it would name now."""
        with self._lock:
            return self._update_learner().recommendation

    @property
    def state(self) -> Tree:
        """What the learner knows, which anyone may: it follows from the releases."""
        with self._lock:
            return self._update_learner().state

    def _update_learner(self) -> _QuestionLearner:
        with self._store.read(self.task.id) as reader:
            row = reader.row()
            assert row is not None
            self._follow(reader, row)
        return self._learner

    def _follow(self, reader: Reader, row: Row) -> None:
        """Learn from what others have stored; only what is committed is ever learned.

        An epoch that began again at the first cohort begins a new state.
        """
        first = row.releases - row.cohort
        if self._learner.first != first:
            self._learner.begin(first)
        while self._learner.count < row.releases:
            for payload in reader.releases(self._learner.count, _AT_ONCE):
                self._learner.learn(canonical.read_as(Answer, payload))

    def _ask_new(self, transaction: Transaction, row: Row, count: int) -> tuple[Question, ...]:
        # Every round that was asked is answered or open.
        first, questions = row.cohort + transaction.open_questions(), list[Question]()
        for round in range(first, min(first + count, self.task.horizon)):
            proposal = self._learner.propose(round)
            if proposal is None:
                break
            action, memo = (canonical.write(canonical.pack(part)) for part in proposal)
            questions.append(self._store_question(transaction, round, action, memo))
        return tuple(questions)

    def _ask_again(self, transaction: Transaction, question: Stored) -> Question:
        transaction.expire(question.id)
        return self._store_question(transaction, question.round, question.action, question.memo)

    def _store_question(
        self, transaction: Transaction, round: int, action: bytes, memo: bytes
    ) -> Question:
        id, due = self._source(16), math.ceil(self._now()) + self._wait_s
        transaction.ask(id, round=round, action=action, memo=memo, due=due)
        return Question(task=self.task.id, id=id, action=canonical.read_as(Numbers, action))

    def _now(self) -> float:
        """The clock's time, which decides whose question is overdue."""
        return between("the time of the clock", self._clock(), -_MAX_TIME_S, _MAX_TIME_S)

    def _take_reports(
        self,
        transaction: Transaction,
        row: Row,
        read: Sequence[Report | RejectedError],
        clients: Sequence[bytes | None],
    ) -> tuple[tuple[RejectedError | None, ...], Row]:
        """Close each report's question; what was asked and answered is released at once.

        Clients were counted as they were asked.
        """
        self._follow(transaction, row)
        before = row.releases
        answers: list[RejectedError | None] = []
        for report in read:
            question = transaction.question(report.id) if isinstance(report, Report) else None
            refused = (
                report
                if isinstance(report, RejectedError)
                else self._find_refusal(report, row, question)
            )
            answers.append(refused)
            if (
                isinstance(report, Report)
                and question
                and not refused
                and question.state == "asked"
            ):
                transaction.answer(report.id, report.id)
                transaction.publish(row.releases, [_payload(row.releases, question, report)])
                row = dataclasses.replace(row, cohort=row.cohort + 1, releases=row.releases + 1)
        if row.releases > before:
            transaction.change(row)
        return tuple(answers), row

    def _find_refusal(
        self, report: Report, row: Row, question: Stored | None
    ) -> RejectedError | None:
        """Return why a report counts for nothing; None if it counts, or has counted already."""
        if report.epoch != row.epoch:
            return RejectedError(
                "epoch", f"the report is of epoch {report.epoch}; it is {row.epoch} now"
            )
        if question is None:
            return RejectedError("question", "nobody was asked this question")
        if question.state == "expired":
            return RejectedError("question", "the answer is late; someone else was asked")
        if question.state == "asked" and self._learner.is_stopped:
            return RejectedError("over", "the bandit knows enough")
        return None


@double_precision
class _QuestionLearner:
    """The learner: its state after so many answers, and its own coins.

    Attributes:
        state: what it knows.
        first: the number of the first release that it learned from.
        count: the number of the next one.
    """

    def __init__(self, deployment: Deployment, source: Randomness) -> None:
        assert isinstance(deployment.policy, ContextFree)
        self._policy, self._noise = deployment.policy, deployment.task.noise[0]
        self._unit = compute_unit(deployment.policy)
        seed, replicate = np.frombuffer(source(8), "<u4").tolist()
        self._root = Stream.of(seed=seed, replicate=replicate)
        outlook = {name: privatizer.outlook for name, privatizer in deployment.privatizers.items()}
        self._outlook = tuple(outlook.items())
        self.begin(0)
        shape = jax.eval_shape(_propose, self._policy, self.state, np.int32(0), self._root)
        self._form = jax.tree.structure(shape[2])

    def begin(self, first: int) -> None:
        """Begin with an empty state before a release."""
        self.state: Tree = _init(self._policy, self._outlook)
        self.first = self.count = first

    @property
    def users(self) -> int:
        """How many answers it has learned from."""
        return self.count - self.first

    @property
    def is_stopped(self) -> bool:
        """Whether it wants no more answers."""
        return isinstance(self._policy, Stops) and bool(_stopped(self._policy, self.state))

    @property
    def recommendation(self) -> NDArray[np.generic]:
        """What it would name."""
        return np.asarray(_recommend(self._policy, self.state))

    def propose(self, round: int) -> tuple[Numbers, tuple[Numbers, ...]] | None:
        """An action, and what is kept for its answer; nothing while answers are waited for."""
        ready, action, memo = _propose(self._policy, self.state, np.int32(round), self._root)
        if not ready:
            return None
        leaves = tuple(Numbers.of(np.asarray(leaf)) for leaf in jax.tree.leaves(memo))
        return Numbers.of(np.asarray(action)), leaves

    def learn(self, answer: Answer) -> None:
        """Take in the next answer."""
        if answer.number != self.count:
            raise FencedError(f"answer {answer.number} came where {self.count} was due; read again")
        numbers = answer.numbers.array.astype(np.int64)
        report = self._noise.estimate(numbers, users=1, label=0) / self._unit
        memo = jax.tree.unflatten(self._form, [leaf.array for leaf in answer.memo])
        evidence = answer.action.array, memo, report, np.int32(self.users)
        self.state, self.count = _learn(self._policy, self.state, *evidence), self.count + 1


def _payload(number: int, question: Stored, report: Report) -> bytes:
    return canonical.write(
        {
            "number": number,
            "round": question.round,
            "action": canonical.read(question.action),
            "memo": canonical.read(question.memo),
            "numbers": canonical.pack(Numbers.of(report.numbers)),
        }
    )


@partial(jax.jit, static_argnums=1)
def _init(policy: ContextFree, outlook: tuple[tuple[str, NoiseInfo], ...]) -> Tree:
    return policy.init(dict(outlook))


@jax.jit
def _stopped(policy: Stops, state: Tree) -> Array:
    return policy.is_stopped(state)


@jax.jit
def _propose(
    policy: ContextFree, state: Tree, round: Array, root: Stream
) -> tuple[Array | bool, Array, Tree]:
    action = policy.propose(state, round, root.at(POLICY, round=round))
    return policy.ready(state, round), action, policy.memo(state, action, round)


@jax.jit
def _learn(policy: ContextFree, state: Tree, *evidence: Any) -> Tree:
    return policy.learn(state, *evidence)


@jax.jit
def _recommend(policy: ContextFree, state: Tree) -> Array:
    return policy.recommend(state)
