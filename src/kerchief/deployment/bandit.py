"""A whole bandit in one process: device, aggregator and learner, with messages between them."""

from __future__ import annotations

import math
import shutil
import threading
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from kerchief.core.contracts import Policy
from kerchief.core.errors import (
    CapacityExceededError,
    DelayedLearningWarning,
    InvalidValueError,
    WeakGuaranteeWarning,
)
from kerchief.core.problems import Problem
from kerchief.deployment import bandit_folder, statements
from kerchief.deployment.aggregator import Aggregator
from kerchief.deployment.deployment import Deployment, deploy, read_deployment
from kerchief.deployment.learner import Learner
from kerchief.deployment.library_code import LibraryCode
from kerchief.deployment.no_copy import NoCopy
from kerchief.deployment.pool import CandidatePool, pool_noise
from kerchief.policies import Mode
from kerchief.privacy.guarantee import Guarantee, Trust, delta_warnings
from kerchief.privatizers.randomizers import BEST
from kerchief.stores import FileWitness
from kerchief.stores.memory import MemoryStore
from kerchief.stores.sqlite import SQLiteStore
from kerchief.stores.store import Store
from kerchief_device import Decision, Device, Pending
from kerchief_device.inputs import Features
from kerchief_device.randomize import candidates
from kerchief_protocol.programs import Library
from kerchief_protocol.projection import Projection
from kerchief_protocol.task import Task

# Releases that are read together.
_AT_ONCE = 1000
# Seconds between two looks for decisions that are due, where there is a window.
_LOOK_S = 1.0


class Bandit(NoCopy):
    """A private bandit for one process: arms in, a choice out, rewards when they come.

    The privacy of the whole horizon is paid for when the bandit is made, before any noise is drawn.
    All roles run in this object, so its owner sees contexts and rewards; what the guarantee
    protects from is everyone who sees the model, or the actions of others. Where the owner must not
    see them, run the same roles apart: `docs/field.md`.

    A decision is reported when it is due, whether or not a reward came, so the time of a report
    does not tell. With ``window_s=0`` it is due when the next ``decide``, ``expire``, ``settle`` or
    ``close`` begins; otherwise when its window is over. With a path every step is on disk before it
    returns, and a bandit that was killed goes on where it was. All methods may be called from any
    thread.

    Privacy:
        (epsilon, delta) of the guarantee per user, under its trust model and adjacency, if the
        application times its calls without regard to rewards: ``deployment/crediting.md``.

    >>> from kerchief import Guarantee, Problem
    >>> problem = Problem(dim=2, arms=3, norm=1.0, radius=1.0, low=0.0, high=1.0, horizon=100)
    >>> guarantee = Guarantee(epsilon=1.0, delta=1e-6, trust="local")
    >>> bandit = Bandit(problem=problem, guarantee=guarantee, window_s=0)
    >>> choice = bandit.decide({"news": [1.0, 0.0], "sport": [0.6, 0.8]})
    >>> choice.arm in ("news", "sport")
    True
    >>> bandit.reward(choice.id, 0.5)
    >>> bandit.expire()
    1
    >>> bandit
    Bandit('sampling', local trust, 1 of 100 users)
    >>> round(bandit.spent().epsilon, 3)
    1.0
    """

    def __init__(
        self,
        *,
        policy: str | Policy = BEST,
        problem: Problem,
        guarantee: Guarantee,
        mode: Mode = "tuned",
        mechanism: str | None = None,
        numbers: Mapping[str, float] | None = None,
        name: str | None = None,
        window_s: int = 86_400,
        default: float | None = None,
        project: int | Projection | None = None,
        path: str | Path | None = None,
        witness: str | Path | None = None,
    ) -> None:
        """Make a bandit, and pay for its whole horizon.

        Args:
            policy: a registered policy's name, or a policy; `best` is the one for any arms.
            problem: the public bounds; values outside them are refused, never clipped in silence.
            guarantee: what is promised to each user.
            mode: for a policy given by name: widths from its theorem, or tuned.
            mechanism: which noise keeps the guarantee, a word of `MECHANISMS_OF` its trust; by
                default the policy's own, which is `best`, the least noisy one.
            numbers: parameters of the policy that are replaced.
            name: what people call the bandit.
            window_s: seconds until a decision is due, and counts with its reward or else with the
                default. ``expire``, ``settle`` and ``close`` report what is due, and ``decide``
                does so at most once a second. With 0 a decision counts when the next of these
                four calls begins, whatever the clock says. Use 0 if each reward comes before the
                next decision, so for one visit at a time over all threads.
            default: the reward of a decision that got none; the least one if None.
            project: onto how many numbers features are mapped first, by a public random projection,
                or that projection: for problems of more than some 64 dimensions.
            path: of a new folder in which the bandit lives; None keeps it in memory.
            witness: of a file that notices whether the folder was copied or restored: best on
                another disk. By default it lies in the folder, and a backup that is restored in
                place may go unnoticed.

        Raises:
            BudgetExceededError: the guarantee does not pay for the noise.
            InvalidValueError: a value is outside its bound; nothing was begun.
            UnknownNameError: no such policy, or no such noise for this trust.

        Warns:
            DelayedLearningWarning: the window is longer than 0.
            WeakGuaranteeWarning: delta is not below 1/horizon, or the witness lies in the folder.
        """
        deployment = deploy(
            policy=policy,
            problem=problem,
            guarantee=guarantee,
            mode=mode,
            mechanism=mechanism,
            numbers=numbers,
            name=name,
            window_s=window_s,
            default=default,
            project=project,
            in_process=True,
        )
        if deployment.phases:
            raise InvalidValueError(
                "this bandit goes by phases, and asks clients who do not choose; use deploy, "
                "Aggregator, PopulationLearner and, on each client's device, Device.join"
            )
        for line in delta_warnings(guarantee.delta, problem.horizon):
            warnings.warn(line, WeakGuaranteeWarning, stacklevel=2)
        if window_s:
            warnings.warn(statements.describe_delay(window_s), DelayedLearningWarning, stacklevel=2)
        folder = None if path is None else Path(path)
        remembered = bandit_folder.resolve_witness(folder, witness)
        if bandit_folder.is_restorable(deployment, folder, remembered):
            warnings.warn(bandit_folder.RESTORABLE, WeakGuaranteeWarning, stacklevel=2)
        if folder is not None:
            bandit_folder.create(folder)
        self._live(deployment, folder, remembered)

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        policy: Policy | None = None,
        witness: str | Path | None = None,
        renew: bool = False,
    ) -> Self:
        """Go on with the bandit in a folder; nothing is charged or drawn again.

        Args:
            path: of the folder.
            policy: the bandit's policy, where it is not a registered one.
            witness: the same file as when the bandit was made.
            renew: go on with a folder that is fenced, in a new epoch with new users: whoever took
                part before must not take part again.

        Raises:
            InvalidValueError: there is no bandit.
            FencedError: what is there is a copy, was rolled back, or was changed.
        """
        folder = Path(path)
        remembered = bandit_folder.resolve_witness(folder, witness)
        deployment = read_deployment(bandit_folder.read_task(folder), policy=policy)
        bandit = cls.__new__(cls)
        bandit._live(deployment, folder, remembered, renew=renew)
        return bandit

    def _live(
        self,
        deployment: Deployment,
        folder: Path | None,
        witness: Path | None,
        *,
        renew: bool = False,
    ) -> None:
        self._deployment, self._folder, self._witness = deployment, folder, witness
        self._is_open = True
        self._now: float | None = None
        self._store: Store
        self._lock = threading.RLock()
        code: Any = (
            LibraryCode(deployment) if isinstance(deployment.task.program, Library) else None
        )
        draw_candidates = CandidatePool() if folder is None else candidates
        if folder is None:
            self._store, self._pending = MemoryStore(), Pending()
            self._aggregator = Aggregator(deployment, store=self._store, pool=pool_noise)
        else:
            self._store = SQLiteStore(bandit_folder.aggregator_path(folder))
            bandit_folder.check_place(folder, renew=renew)
            assert witness is not None
            self._aggregator = Aggregator(
                deployment, store=self._store, witness=FileWitness(witness), renew=renew
            )
            self._pending = Pending(folder / "device.db")
        self._device = Device(
            deployment.task,
            pending=self._pending,
            code=code,
            draw_candidates=draw_candidates,
            clock=self._clock,
            in_process=True,
        )
        self._learner, self._last_check_s = Learner(deployment), time.monotonic()
        self._is_over = self._aggregator.status().state != "running"
        self._follow()

    @property
    def task(self) -> Task:
        """All public numbers of this bandit."""
        return self._deployment.task

    @property
    def users(self) -> int:
        """How many users the model has learned from."""
        with self._lock:
            return self._learner.users

    @property
    def model(self) -> Mapping[str, NDArray[Any]]:
        """What is public: the numbers that the next decision is made from, by name."""
        with self._lock:
            model = self._learner.model
        return {name: np.array(model[name]) for name in model.arrays}

    def decide(
        self,
        arms: Features,
        allowed: Sequence[bool] | None = None,
    ) -> Decision:
        """Choose an arm.

        Args:
            arms: one row of features per arm, or rows by name; at most `problem.arms` of them.
            allowed: which rows may be chosen; all if None.

        Returns:
            The decision: its id, for the reward, and the arm: its name, or the number of its row.

        Raises:
            CapacityExceededError: all users that were paid for have been here.
            InvalidValueError: the arms are outside the declared bounds; no decision was made.
        """
        with self._lock:
            if not self.task.reward.window_s or time.monotonic() > self._last_check_s + _LOOK_S:
                self.expire()
            if self._is_over:
                raise CapacityExceededError(
                    f"all {self.task.horizon} users that were paid for have been here; make a new "
                    "bandit for more"
                )
            return self._device.decide(self._learner.model, arms, allowed)

    def reward(self, id: str, value: float) -> None:
        """Note the reward of a decision; it is reported when the decision is due.

        Args:
            id: of the decision.
            value: within [problem.low, problem.high].

        Raises:
            InvalidValueError: no such decision waits for a reward, or the reward is out of range.
        """
        with self._lock:
            if not self._device.reward(id, value):
                raise InvalidValueError(
                    f"decision {id} has its reward or was reported; the first one counts"
                )

    def expire(self, now: float | None = None) -> int:
        """Report all decisions that are due, and learn from the cohorts that they complete.

        Args:
            now: the time by which windows are over, in seconds since 1970; the clock's if None.
                With a window of 0 every decision is due.

        Returns:
            How many decisions were reported; those without a reward count with the default.

        Raises:
            InvalidValueError: now is no finite number.
        """
        with self._lock:
            self._last_check_s = time.monotonic()
            # A clock that goes back meanwhile would call a decision due and refuse its report.
            self._now = time.time() if now is None else now
            try:
                due = self._device.due(now)
                self._send(due)
            finally:
                self._now = None
            self._follow()
            return len(due)

    def spent(self) -> Guarantee:
        """Return what the worst-off user was charged."""
        return self._aggregator.spent()

    def statement(self) -> str:
        """State the guarantee, what it relies on, and what it costs users who return."""
        chain = self._aggregator.read_chain()
        guarantee = self._deployment.guarantee
        if guarantee.trust is Trust.NONE:
            return guarantee.statement(protected=self._deployment.problem.protected)
        conditions = [statements.ONE_PROCESS, statements.describe_due(self.task.reward.window_s)]
        if self._folder is not None:
            conditions.append(
                bandit_folder.describe_backups(self._deployment, self._folder, self._witness)
            )
        conditions.append(statements.UNLIMITED_DECISIONS)
        if self.task.projection is not None:
            conditions.append(statements.describe_projection(self.task.projection))
        return statements.build_statement(self._deployment, chain, conditions)

    def save(self, path: str | Path, *, witness: str | Path | None = None) -> None:
        """Move a bandit from memory into a new folder, where it then lives; nothing is reported.

        Args:
            path: of the folder.
            witness: of a file on another disk, as when a bandit is made with a path.

        Raises:
            InvalidValueError: it lives in a folder already, or the path is taken.

        Warns:
            WeakGuaranteeWarning: the witness lies in the folder.
        """
        with self._lock:
            if self._folder is not None:
                raise InvalidValueError(
                    f"the bandit lives in {self._folder}; every step is saved there"
                )
            folder = Path(path)
            remembered = folder / "witness" if witness is None else Path(witness)
            if bandit_folder.is_restorable(self._deployment, folder, remembered):
                warnings.warn(bandit_folder.RESTORABLE, WeakGuaranteeWarning, stacklevel=2)
            bandit_folder.create(folder)
            try:
                assert isinstance(self._store, MemoryStore)
                self._store.copy_to(bandit_folder.aggregator_path(folder))
                self._pending.copy_to(folder / "device.db")
                FileWitness(remembered).swap(self.task.id, None, self._aggregator.head()[1])
            except BaseException:
                # This one goes on in memory: no copy of it may.
                shutil.rmtree(folder)
                raise
            self._release_files()
            self._live(self._deployment, folder, remembered)

    def settle(self) -> Guarantee:
        """Report what is due and end the task; the bill is then for what was really released."""
        with self._lock:
            self.expire()
            self._is_over = True
            return self._aggregator.close()

    def close(self) -> None:
        """Report what is due and let go of files; a bandit with a path can be opened again."""
        with self._lock:
            if not self._is_open:
                return
            try:
                self.expire()
            finally:
                self._release_files()

    def _release_files(self) -> None:
        self._is_open = False
        self._store.close()
        self._pending.close()

    def _clock(self) -> float:
        return time.time() if self._now is None else self._now

    def __enter__(self) -> Self:
        """Return the bandit itself."""
        return self

    def __exit__(self, *fault: object) -> None:
        """Close the bandit."""
        self.close()

    def __repr__(self) -> str:
        """Describe public facts alone."""
        return (
            f"Bandit({self.task.name!r}, {self.task.trust} trust, {self.users} of "
            f"{self.task.horizon} users)"
        )

    def _send(self, ids: Sequence[str]) -> None:
        # One at a time where labels differ: the next cohort may need more noise than this one.
        size = 1 if self.task.trust == "shuffle" else max(1, len(ids))
        for first in range(0, len(ids), size):
            self._send_batch(ids[first : first + size])

    def _send_batch(self, ids: Sequence[str]) -> None:
        status = self._aggregator.status()
        if status.state != "running":
            # Nobody who comes now was paid for.
            for id in ids:
                self._device.discard(id)
            return
        reports = [self._device.report(id, status) for id in ids]
        for id, refused in zip(ids, self._aggregator.take(reports), strict=True):
            (self._device.confirm if refused is None else self._device.discard)(id)

    def _follow(self) -> None:
        new: Sequence[bytes] = (b"",) * _AT_ONCE
        while len(new) == _AT_ONCE:
            new = self._aggregator.releases(self._learner.releases, _AT_ONCE)
            if new:
                self._learn(new)
        self._is_over |= self._learner.releases >= self.task.cohorts

    def _learn(self, new: Sequence[bytes]) -> None:
        try:
            self._learner.follow(new)
        except BaseException:
            # It may have learned half of a release: another one reads all of them, at once.
            self._learner, self._last_check_s = Learner(self._deployment), -math.inf
            raise
