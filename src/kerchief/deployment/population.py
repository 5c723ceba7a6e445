"""The learner of a bandit that goes by phases: posts what a phase plays and asks.

Devices `join` a group of the phase that is posted, the `Aggregator` releases each group's total
once, and this learner takes in the totals of a phase together. It is the mathematics of the
simulation (`simulation.phases`) with real clients; proof note: `population.md`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike, NDArray

from kerchief.core.contracts import NoiseInfo, Tree
from kerchief.core.contracts import Release as Total
from kerchief.core.errors import InvalidValueError
from kerchief.core.phases import Phase, PhasePolicy, PhaseQuery, learn
from kerchief.core.precision import double_precision
from kerchief.core.problems import PopulationProblem
from kerchief.core.validate import real_array
from kerchief.deployment.deployed_statistic import build_statistics
from kerchief.deployment.deployment import Deployment
from kerchief.deployment.learner import ReleaseConsumer
from kerchief_protocol.report import Release

# Whoever scales actions in single precision may be a little outside.
_SLACK = 1 + 1e-6


@double_precision
class PopulationLearner(ReleaseConsumer):
    """Keeps the policy's state, and posts what the present phase plays and asks.

    It is blind: all that it ever gets are releases, which anyone may see. It draws nothing, so one
    that lost its memory reads all releases again and is where it was.

    Attributes:
        state: of the policy, after the last whole phase.
        query: what the present phase plays and asks; once `is_over`, what the last one did.
        phase: how many phases were played to the end.
        rounds: how many rounds these took.
        is_over: whether nobody is asked any more: one action is left, or no further phase fits.
        releases: how many were taken in.
        users: how many clients these speak about.

    >>> from kerchief.privacy.guarantee import Guarantee, Trust
    >>> from kerchief.deployment.deployment import deploy
    >>> from kerchief.deployment.aggregator import Aggregator
    >>> from kerchief.stores.sqlite import SQLiteStore
    >>> from kerchief_device import Device
    >>> facts = PopulationProblem(dim=2, arms=3, norm=1.0, radius=1.0, low=-1.0, high=1.0,
    ...                           horizon=1000, clients=600, spread=0.1)
    >>> promise = Guarantee(epsilon=8.0, delta=1e-4, trust=Trust.CENTRAL)
    >>> made = deploy(policy="dpe", problem=facts, guarantee=promise, window_s=0)
    >>> aggregator = Aggregator(made, store=SQLiteStore.memory())
    >>> learner = PopulationLearner(made, [[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    >>> while not learner.is_over:
    ...     status = aggregator.status()
    ...     for _ in range(made.task.need(status.label)):
    ...         client = Device(made.task)
    ...         place = client.join(learner.model, status)
    ...         _ = client.reward(place.id, [{0: 0.9, 1: 0.1, 2: 0.6}[x] for x in place.atoms])
    ...         _ = aggregator.take([client.report(place.id, status)])
    ...         client.confirm(place.id)
    ...     learner.follow(aggregator.releases(learner.releases))
    >>> learner.shares.tolist()
    [1.0, 0.0, 0.0]
    """

    def __init__(self, deployment: Deployment, features: ArrayLike) -> None:
        """Post the first phase.

        Args:
            deployment: the task.
            features: of the public actions, one per row, within the problem's bounds.

        Raises:
            InvalidValueError: the bandit has no phases, or the actions are not the problem's.
        """
        super().__init__(deployment)
        self._policy = deployment.by_phases
        self._features = _actions(self._policy.problem, features)
        (self._statistic,) = build_statistics(deployment)
        outlook = {name: privatizer.outlook for name, privatizer in deployment.privatizers.items()}
        self._noisy = any(info.noisy for info in outlook.values())
        self._outlook = tuple(outlook.items())
        self._begin_state()
        self._post_first()

    def _begin_state(self) -> None:
        self.state: Tree = _init(self._policy, self._outlook)
        self.phase, self.rounds = 0, 0
        self._phase_releases: list[Release] = []
        self.query, self.is_over = self._ask(), False

    def _post_first(self) -> None:
        self._begin(self.query)

    @property
    def shares(self) -> NDArray[np.float64]:
        """The share of each action in the rounds that are left, about which nobody is asked."""
        return np.asarray(_finish(self._policy, self._features, self.state), np.float64)

    def _take(self, release: Release) -> None:
        """Post the next phase when one is whole; whoever answers after the end is not heard."""
        self._phase_releases.append(release)
        if not self.is_over and len(self._phase_releases) == self._policy.groups:
            self._learn()

    def _learn(self) -> None:
        """Take in all groups of a phase, and begin the next one."""
        phase_releases, self._phase_releases = self._phase_releases, []
        phase = _traced(self.deployment.phases[self.phase])
        self.state = _learn(
            self._policy, self._features, self.state, self.query, phase, self._total(phase_releases)
        )
        self.rounds += int(np.asarray(self.query.rounds))
        self.phase += 1
        self.is_over = self.phase == len(self.deployment.phases) or bool(
            _is_settled(self._policy, self.state)
        )
        self._begin(self.query if self.is_over else self._ask())

    def _total(self, phase_releases: list[Release]) -> Total:
        """What the groups of a phase said, one per row."""
        statistic = self._statistic
        totals = [
            statistic.wire.estimate(release.total, users=release.users, label=release.cohort)
            for release in phase_releases
        ]
        noise = [
            statistic.variance(release.cohort, release.users) ** 0.5 for release in phase_releases
        ]
        return Total(
            total=jnp.asarray(np.stack(totals)),
            count=jnp.asarray([release.users for release in phase_releases], jnp.int32),
            noise=jnp.asarray(noise, jnp.float64),
        )

    def _ask(self) -> PhaseQuery:
        phase = _traced(self.deployment.phases[self.phase])
        query: PhaseQuery = _ask(self._policy, self._features, self.state, phase, self._noisy)
        return query

    def _begin(self, query: PhaseQuery) -> None:
        """Post a phase, unless it would last longer than there are rounds."""
        rounds = int(np.asarray(query.rounds))
        if not self.is_over and self.rounds + rounds > self._policy.problem.horizon:
            self.is_over = True
        if not self.is_over:
            self.query = query
        arrays = {
            "phase": np.int64(self.phase),
            "done": np.bool_(self.is_over),
            "atoms": np.asarray(self.query.atoms, np.int64),
            "pulls": np.asarray(self.query.pulls, np.int64),
            "encoder": np.asarray(self.query.encoder, np.float64),
        }
        self._show(self.users, arrays)


def _actions(problem: PopulationProblem, features: ArrayLike) -> Array:
    """The public actions, checked."""
    rows = real_array("features", features)
    if rows.shape != (problem.arms, problem.dim):
        raise InvalidValueError(
            f"features have shape {rows.shape}; the problem has {problem.arms} actions of "
            f"{problem.dim} numbers"
        )
    longest = float(np.linalg.norm(rows, axis=1).max())
    if not longest <= problem.norm * _SLACK:
        raise InvalidValueError(
            f"an action's norm is {longest:g}; it must be at most {problem.norm:g}: scale them"
        )
    return jnp.asarray(rows, jnp.float64)


def _traced(phase: Phase) -> Any:
    """One program for all phases."""
    return jax.tree.map(jnp.int32, phase)


@partial(jax.jit, static_argnums=1)
def _init(policy: PhasePolicy, outlook: tuple[tuple[str, NoiseInfo], ...]) -> Tree:
    return policy.init(dict(outlook))


@partial(jax.jit, static_argnums=4)
def _ask(
    policy: PhasePolicy, features: Array, state: Tree, phase: Phase, noisy: bool
) -> PhaseQuery:
    return policy.ask(features, state, phase, noisy=noisy)


_learn = jax.jit(learn)


@jax.jit
def _is_settled(policy: PhasePolicy, state: Tree) -> Array:
    return policy.is_settled(state)


@jax.jit
def _finish(policy: PhasePolicy, features: Array, state: Tree) -> Array:
    return policy.finish(features, state)
