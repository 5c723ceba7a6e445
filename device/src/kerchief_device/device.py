"""The device: decisions with ids, their rewards, and one report on each decision.

Rewards may come late, twice or never. A raw record stays in the device's own store until its report
is made, and is erased then. A report is stored before it is returned and does not change, so a
report that is sent twice, or after a crash, is no second release.
"""

from __future__ import annotations

import hashlib
import math
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, SupportsFloat

import numpy as np

from kerchief_device.decision import Decision
from kerchief_device.inputs import (
    Features,
    check_chain_length,
    check_default,
    check_rows,
    check_status,
    has_numbered_arms,
    read_id,
    read_mask,
    read_number,
    read_reward,
    read_rows,
)
from kerchief_device.pending import Budget, Cost, Pending, PostedModel, Row
from kerchief_device.phased import Place, Survey, averages, client_id
from kerchief_device.programs import Code, code_for
from kerchief_device.promise import CheckedGuarantee, check
from kerchief_device.randomize import Candidates, candidates, randomize
from kerchief_device.samplers import Randomness, drawn
from kerchief_protocol.errors import InvalidValueError, RejectedError
from kerchief_protocol.model import Model, Question, Status
from kerchief_protocol.programs import Answering, Phased
from kerchief_protocol.report import Report
from kerchief_protocol.signing import Signed, verify_message
from kerchief_protocol.task import Task

_REPORT = b"kerchief/1 report\0"


class Device:
    """Acts for users, and reports on each decision once.

    Any number of decisions may be pending, rewards come in any order, and several threads may use
    one device. Several processes may share a store that is a file, each with a device of its own.

    >>> from kerchief import Guarantee, Learner, Problem, deploy
    >>> problem = Problem(dim=2, arms=3, norm=1.0, radius=1.0, low=0.0, high=1.0, horizon=100)
    >>> guarantee = Guarantee(epsilon=1.0, delta=1e-6, trust="local")
    >>> deployment = deploy(policy="linucb", problem=problem, guarantee=guarantee, window_s=0)
    >>> device, model = Device(Task.read(deployment.task.data)), Learner(deployment).model
    >>> decision = device.decide(model, {"news": [1.0, 0.0], "sport": [0.6, 0.8]})
    >>> device.reward(decision.id, 0.5)
    True
    >>> status = Status(task=deployment.task.id, state="running", epoch=0, label=0)
    >>> len(device.report(decision.id, status))
    100
    """

    def __init__(
        self,
        task: Task,
        *,
        pending: Pending | None = None,
        budget: Budget | None = None,
        code: Code | None = None,
        source: Randomness = os.urandom,
        draw_candidates: Candidates = candidates,
        clock: Callable[[], float] = time.time,
        in_process: bool = False,
    ) -> None:
        """Check the task, and take part in it.

        Args:
            task: everything public; that it is the right one is known by its id.
            pending: where decisions are kept; in memory by default.
            budget: of the one user whose device this is, over all reports of this store. Only
                under local trust does a device know what a report costs.
            code: what chooses and records, for policies that were not made light.
            source: of random bytes; anything but the operating system's is for tests.
            draw_candidates: draws the candidates of a shortlist; anything but the default is for a
                bandit that lives in one process alone.
            clock: seconds since 1970.
            in_process: the aggregator runs in this process, as in `Bandit`, so its status is
                followed without a signature. Never set it where a status comes over a network.

        Raises:
            InvalidValueError: the task promises more than its noise keeps, or is not for this
                device.
        """
        self.task, self.checked = task, check(task)
        self._code = code_for(task, source) if code is None else code
        self._pending = Pending() if pending is None else pending
        self._bill = _bill(task, self.checked, budget)
        self._source, self._draw_candidates, self._clock = source, draw_candidates, clock
        self._posted_model: PostedModel | None = None
        self._signed_model: tuple[Signed, Model] | None = None
        self._follows_labels = in_process or task.has_signed_labels or task.has_equal_noise
        check_default(task)
        if not self._follows_labels and task.noisiest_label is None:
            raise InvalidValueError(
                "a report's noise depends on the label in a status, which nobody signs in this "
                "task; use a task with parties, or one whose cohorts all have the same noise"
            )

    def decide(
        self, model: Model | Signed, features: Features, allowed: Sequence[bool] | None = None
    ) -> Decision:
        """Choose an arm from the public model, and keep what a report will need.

        Args:
            model: the billboard; signed where the task names keys of the learner.
            features: of each arm, within the task's bounds; there may be fewer arms than the most.
            allowed: which of them may be played; all, by default.

        Raises:
            InvalidValueError: a value is outside its bounds, or the model is not signed as the task
                demands; nothing was stored.
            FencedError: the device has seen a longer chain than this signed model's, or another
                one.
        """
        model = self._verified_model(model)
        posted_model = self._posted_model
        if posted_model is None or posted_model.model is not model:
            self._posted_model = posted_model = self._check_posted(model)
        rows, names = read_rows(features)
        check_rows(self.task, rows)
        if self.task.projection is not None:
            rows = self.task.projection.apply(rows)
        numbered = has_numbered_arms(self.task)
        if numbered and names is not None:
            raise InvalidValueError(
                "arms have names, and in this task each has a model of its own, known by the "
                "number of its row; give rows without names, always in the same order"
            )
        arm = self._code.act(model, rows, read_mask(allowed, len(rows)))
        chosen_features = np.append(rows[arm], arm) if numbered else rows[arm]
        random = drawn(24, self._source)
        self._pending.decided(
            random[:16],
            self.task.id,
            due=self._due(random[16:]),
            version=model.version,
            model=posted_model,
            chain=self._signed_chain(model),
            features=chosen_features.tobytes(),
        )
        return Decision(id=random[:16].hex(), arm=arm if names is None else names[arm])

    def accept_question(self, question: bytes | Signed) -> str:
        """Take a learner's question; one that was answered before is not answered again.

        Args:
            question: its 16 bytes, which the report will carry as its own; the signed question
                where the task names keys of the aggregator.

        Returns:
            The id for `reward`, which takes the loss of each point that was asked about.

        Raises:
            InvalidValueError: the task asks no questions, or this one is not signed as it demands.
        """
        if isinstance(question, Signed) or self.task.keys("aggregator"):
            question = self._verified_question(question).id
        is_well_formed = isinstance(question, bytes) and len(question) == 16
        if not isinstance(self.task.program, Answering) or not is_well_formed:
            raise InvalidValueError("only a task that asks takes questions, and each has 16 bytes")
        self._pending.decided(question, self.task.id, due=self._due(drawn(8, self._source)))
        return question.hex()

    def join(self, model: Model | Signed, status: Status | Signed) -> Place:
        """Take a place in the group that is asked now; a client has one place in a task.

        Asked again before its report is made, the device repeats the place that it has. If that
        group is full meanwhile, `report` says so; after `discard` the client may join once more.

        Raises:
            InvalidValueError: the client has answered already, the model is of another phase, or a
                message is not signed as the task demands.
            RejectedError: nobody is asked any more.
            FencedError: the device has seen a longer chain than this signed model's, or another
                one.
        """
        program = self.task.program
        if not isinstance(self._code, Survey) or not isinstance(program, Phased):
            raise InvalidValueError("only a task that goes by phases has places; call decide")
        model, status = self._verified_model(model), self._verified_status(status)
        check_status(self.task, status)
        self._code.place(model, status.label)
        self._posted_model = posted_model = self._check_posted(model)
        id = hashlib.sha256(b"kerchief/1 place\0" + self.task.id).digest()[:16]
        self._pending.decided(
            id,
            self.task.id,
            due=self._due(drawn(8, self._source)),
            version=model.version,
            model=posted_model,
            chain=self._signed_chain(model),
            # The default stands for each average until one comes.
            features=np.array(
                [status.label, *[self.task.reward.default] * program.atoms], np.float64
            ).tobytes(),
        )
        row = self._pending.row(id, self.task.id)
        if row.posted is None or row.features is None:
            raise InvalidValueError(
                "this client has answered in this task already, and is asked once"
            )
        label = int(np.frombuffer(row.features, np.float64)[0])
        atoms, pulls = self._code.place(row.posted.model, label)
        return Place(id=id.hex(), label=label, atoms=atoms, pulls=pulls)

    def reward(self, id: str, value: SupportsFloat | Sequence[float]) -> bool:
        """Record a decision's reward; only the first one before the report counts.

        Args:
            id: of the decision.
            value: the reward; where a question was asked, the loss of each of its points; in a
                phase, the average reward on each action of the place.

        Returns:
            Whether it counts.

        Raises:
            InvalidValueError: no such decision is pending, or the value is outside its bounds.
        """
        if isinstance(self.task.program, Phased):
            average_bytes = averages(self.task.program, value).tobytes()
            return self._pending.rewarded(read_id(id), self.task.id, 0.0, more=average_bytes)
        return self._pending.rewarded(read_id(id), self.task.id, read_reward(self.task, value))

    def due(self, now: float | None = None) -> tuple[str, ...]:
        """Decisions to report on: their time is over, or their report has not arrived.

        With a window of 0 these are all decisions that wait. The order does not depend on rewards.

        Raises:
            InvalidValueError: now is no number.
        """
        time_s = None if now is None else read_number(now)
        if now is not None and time_s is None:
            raise InvalidValueError("now is no finite number; give seconds since 1970, or nothing")
        if not self.task.reward.window_s:
            time_s = math.inf
        elif time_s is None:
            time_s = self._now()
        return tuple(id.hex() for id in self._pending.due(self.task.id, time_s))

    def report(self, id: str, status: Status | Signed) -> bytes:
        """Return the report on a decision, which is made once and stored.

        No report is made before the decision is due, with or without a reward. So the time of a
        report tells nothing of the reward, if the application also calls this at times that do not
        depend on rewards.

        Args:
            id: of a decision that is due.
            status: what the aggregator says a report must state; signed where the task names keys
                of the aggregator. Where nobody signs, the report brings as much noise as the task's
                noisiest cohort needs, whatever the status says.

        Raises:
            InvalidValueError: no such decision is pending, it is not due, or the status is not
                signed as the task demands; nothing was charged, and the decision waits.
            RejectedError: the task takes no reports, or not of this place's group; `discard` throws
                the record away.
            BudgetExceededError: the user's own budget does not pay for it; the record is erased.
        """
        verified = self._verified_status(status)

        def check(row: Row) -> None:
            if row.due > -math.inf and (now := self._now()) < row.due:
                raise InvalidValueError(
                    f"decision {id} is due in {row.due - now:.0f} seconds; report it "
                    "then, so that the time of a report tells nothing of the reward"
                )
            self._check_report(row, verified)

        def make(row: Row) -> bytes:
            return self._make_report(row, verified, read_id(id))

        return self._pending.encoded(read_id(id), self.task.id, make, check=check, bill=self._bill)

    def confirm(self, id: str) -> None:
        """Remove a report that the aggregator has received."""
        self._pending.gone(read_id(id), self.task.id, remember=self._should_remember_ids)

    def discard(self, id: str) -> None:
        """Discard a report that the aggregator refused; no other is made."""
        phased = isinstance(self.task.program, Phased)
        self._pending.gone(
            read_id(id), self.task.id, remember=self._should_remember_ids, if_made=phased
        )

    def forget_chain(self) -> None:
        """Forget the longest chain that a signed model named in this task.

        For a device that refuses every model because its learner signed a false length or head.
        Pending decisions, reports, costs and the ids of answered questions stay. Call it only when
        the operator has explained the false model: the device no longer notices a rollback that
        happened before the next model.
        """
        self._pending.forget_chain(self.task.id)

    def spent(self) -> Cost:
        """Return the privacy cost of all reports of this store, under local trust."""
        return self._pending.spent()

    @property
    def _is_answering(self) -> bool:
        return isinstance(self.task.program, Answering)

    @property
    def _should_remember_ids(self) -> bool:
        """Whether ids stay in the store, so that no decision is reported twice."""
        return isinstance(self.task.program, Answering | Phased)

    def _due(self, random: bytes) -> float:
        """Compute when a report is due: at once if the window is 0."""
        rule = self.task.reward
        if not rule.window_s:
            return -math.inf
        delay = rule.jitter_s * (int.from_bytes(random, "little") / 2**64)
        return self._now() + rule.window_s + delay

    def _now(self) -> float:
        """Read the clock, which decides what is due."""
        now = read_number(self._clock())
        if now is None:
            raise InvalidValueError(
                "the clock gives no finite number; it must give seconds since 1970"
            )
        return now

    def _verified_model(self, model: Model | Signed) -> Model:
        """Verify a model; the signature of the latest model is checked only once."""
        posted_model = self._posted_model
        if (
            posted_model is not None
            and model is posted_model.model
            and not self.task.keys("learner")
        ):
            return posted_model.model
        verified_model = verify_message(self.task, Model, model, self._now, self._signed_model)
        if isinstance(model, Signed):
            self._signed_model = model, verified_model
        return verified_model

    def _verified_status(self, status: Status | Signed) -> Status:
        return verify_message(self.task, Status, status, self._now)

    def _verified_question(self, question: bytes | Signed) -> Question:
        if not isinstance(question, Signed):
            raise InvalidValueError(
                "the question has no signature, and the task names keys of the aggregator; pass "
                "a signed question"
            )
        return verify_message(self.task, Question, question, self._now)

    def _signed_chain(self, model: Model) -> tuple[int, bytes] | None:
        """Return length and head of a signed model's chain; None for an unsigned model.

        Anyone can post an unsigned model. A false length in it must stop no device.
        """
        return (model.length, model.head) if self.task.keys("learner") else None

    def _check_posted(self, model: Model) -> PostedModel:
        check_chain_length(self.task, model)
        return PostedModel.of(model)

    def _check_report(self, row: Row, status: Status) -> None:
        """Refuse a report that the status does not allow, before anything is charged."""
        check_status(self.task, status)
        if isinstance(self.task.program, Phased):
            features = np.frombuffer(row.features or b"", np.float64)
            if status.label != int(features[0]):
                raise RejectedError(
                    "label", "this client's group is full; another one is asked now"
                )

    def _make_report(self, row: Row, status: Status, id: bytes) -> bytes:
        """Encode a record, add noise, and write the report, with the store's lock held."""
        task, label = self.task, self._label(status)
        features = np.frombuffer(row.features or b"", np.float64)
        # No branch: silence takes the same operations as a reward.
        rewards: tuple[Any, float] = (row.reward, task.reward.default)
        reward: float = rewards[row.reward is None]
        model = None if row.posted is None else row.posted.model
        statistics = self._code.statistics(model, features, reward)
        if len(statistics) != len(task.noise):
            raise InvalidValueError(
                f"there are {len(statistics)} statistics for {len(task.noise)} queries"
            )
        numbers = [
            randomize(noise, statistic, label, self._source, self._draw_candidates)
            for noise, statistic in zip(task.noise, statistics, strict=True)
        ]
        report_id = id if self._is_answering else self._derive_report_id(id)
        report_numbers = np.concatenate(numbers)
        return Report(label=label, epoch=status.epoch, id=report_id, numbers=report_numbers).write(
            task
        )

    def _label(self, status: Status) -> int:
        """Return the label of a report; an unsigned status never lowers its noise.

        See `crediting.md`, Theorem 2a.
        """
        label = status.label if self._follows_labels else self.task.noisiest_label
        assert label is not None
        return label

    def _derive_report_id(self, id: bytes) -> bytes:
        """Derive the id of a report from the decision's id, not from the time.

        A device that was rolled back therefore repeats the id, and its second report is not
        counted. A client of a phased task has one report id, whichever group its store names.
        """
        if isinstance(self.task.program, Phased):
            return client_id(self._pending.secret, self.task.id)
        return hashlib.sha256(_REPORT + self.task.id + id).digest()[:16]


def _bill(
    task: Task, checked: CheckedGuarantee, budget: Budget | None
) -> tuple[Cost, Budget | None] | None:
    if task.trust != "local":
        if budget is None:
            return None
        raise InvalidValueError(
            f"under {task.trust} trust the device does not add all the noise, so it cannot know "
            "what a report costs; leave the budget out, or choose local trust"
        )
    return Cost(task.promise.epsilon, checked.delta), budget
