"""The learner: follows releases, posts models."""

from __future__ import annotations

import abc
import dataclasses
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from kerchief.core.compiling import compile_quickly
from kerchief.core.contracts import Clock, NoiseInfo, Policy, Tree, does_newest_count
from kerchief.core.contracts import Release as Total
from kerchief.core.precision import double_precision
from kerchief.deployment.deployed_statistic import DeployedStatistic, build_statistics
from kerchief.deployment.deployment import Deployment
from kerchief_protocol.errors import FencedError, InvalidValueError
from kerchief_protocol.model import Model, Numbers
from kerchief_protocol.report import Release
from kerchief_protocol.task import Task

# Releases that the state takes in together, where no model is posted in between: so many, and
# of so many numbers, at most.
_AT_ONCE, _MOST_NUMBERS = 64, 2**16
# Rounds that a policy is asked about together whether it posts a model after them.
_ROUNDS = 1024


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Sum:
    """What all releases of one query say together.

    Attributes:
        total: over everyone so far, in the statistics' own units.
        variance: of its noise.
        before: the total when the present epoch began.
        variance_before: of its noise then.
    """

    total: NDArray[np.float64]
    variance: float
    before: NDArray[np.float64]
    variance_before: float

    def now(self, total: NDArray[np.float64], variance: float) -> _Sum:
        """Return the sum after one more release."""
        return _Sum(
            total=total,
            variance=variance,
            before=self.before,
            variance_before=self.variance_before,
        )


class ReleaseConsumer(abc.ABC):
    """What learners of every kind do: take releases in, in their order, and post models."""

    def __init__(self, deployment: Deployment) -> None:
        """Prepare the first release."""
        self.deployment, self.users = deployment, 0
        self._followed = ReadPosition(last=deployment.task.id)
        self._version, self._chain = -1, (0, bytes(32))
        self._model: Model

    @property
    def releases(self) -> int:
        """How many releases it has taken in."""
        return self._followed.count

    @property
    def model(self) -> Model:
        """The model that was posted last."""
        return self._model

    @double_precision
    def follow(
        self, payloads: Iterable[bytes], *, length: int = 0, head: bytes = bytes(32)
    ) -> None:
        """Take releases in, and post a model if it is time.

        Args:
            payloads: releases as the aggregator serves them; those that are known are passed over.
            length: of the chain that they come from.
            head: of that chain.

        Raises:
            FencedError: a release is missing, or of another task.
        """
        self._chain = (length, head)
        for release in next_releases(self.deployment.task, self._followed, payloads):
            if release.number == self._followed.first > 0:
                self._begin_state()
                self.users = 0
            self.users += release.users
            self._take(release)

    @double_precision
    def restart(self) -> None:
        """Discard what was learned, before the first release of a task that begins again.

        The first such release does so too (`Aggregator.renew`): until it comes, this posts the
        first model in place of one that strangers spoiled. The next release must be of the first
        cohort.
        """
        self.users, self._followed.first = 0, self._followed.count
        self._begin_state()
        self._post_first()

    @abc.abstractmethod
    def _begin_state(self) -> None:
        """Begin with an empty state."""

    @abc.abstractmethod
    def _post_first(self) -> None:
        """Post the model of an empty state."""

    @abc.abstractmethod
    def _take(self, release: Release) -> None:
        """Learn from one release."""

    def _show(self, round: int, arrays: Mapping[str, Any]) -> None:
        """Post a model that speaks about so many users or rounds."""
        self._version += 1
        length, head = self._chain
        self._model = Model(
            task=self.deployment.task.id,
            version=self._version,
            release=self.releases,
            round=round,
            length=length,
            head=head,
            arrays={name: Numbers.of(np.asarray(array)) for name, array in arrays.items()},
        )


@double_precision
class Learner(ReleaseConsumer):
    """Keeps the policy's state and posts its model.

    It is blind: all that it ever gets are releases, which anyone may see. It draws nothing, so one
    that lost its memory reads all releases again and is where it was.

    >>> from kerchief import Guarantee, Problem, deploy
    >>> problem = Problem(dim=2, arms=3, norm=1.0, radius=1.0, low=0.0, high=1.0, horizon=100)
    >>> guarantee = Guarantee(epsilon=1.0, delta=1e-6, trust="joint")
    >>> deployment = deploy(policy="linucb", problem=problem, guarantee=guarantee)
    >>> learner = Learner(deployment)
    >>> learner.follow([])
    >>> learner.users, sorted(learner.model.arrays)
    (0, ['estimate', 'inverse', 'width'])
    """

    def __init__(self, deployment: Deployment) -> None:
        """Begin with an empty state and post its model."""
        super().__init__(deployment)
        # Its numbers go to the device once, not with every call.
        self._policy: Policy = jax.device_put(deployment.by_totals)
        self._statistics = build_statistics(deployment)
        outlook = {name: privatizer.outlook for name, privatizer in deployment.privatizers.items()}
        self._outlook = tuple(outlook.items())
        self._choosy = type(self._policy).due is not Policy.due
        self._posts: tuple[int, NDArray[np.bool_]] = (-1, np.empty(0, np.bool_))
        self._epoch: int | None = None
        self._begin_state()
        self._post_first()

    def _begin_state(self) -> None:
        queries = self.deployment.task.queries
        self._state: Tree = _init(self._policy, self._outlook)
        self._sums = {
            name: _begin_sum(statistic)
            for name, statistic in zip(queries, self._statistics, strict=True)
        }
        self._epoch_releases, self._last = 0, dict.fromkeys(queries, -1)
        self._waiting = _Waiting(
            {name: sums.total.size for name, sums in self._sums.items()},
            newest=does_newest_count(self._policy),
        )

    def _take(self, release: Release) -> None:
        if release.epoch != self._epoch:
            self._epoch, self._epoch_releases = release.epoch, 0
            self._sums = {
                name: dataclasses.replace(sums, before=sums.total, variance_before=sums.variance)
                for name, sums in self._sums.items()
            }
        self._epoch_releases += 1
        parts = zip(self._sums.items(), self._statistics, self.deployment.task.parts, strict=True)
        self._sums = {
            name: self._add_release(statistic, sums, release, release.total[part])
            for (name, sums), statistic, part in parts
        }
        # What a batch brings is always posted.
        names, posts = self._due(), bool(self.deployment.task.needs) or self._refreshes()
        if names:
            self._waiting.add(names, self._sums, self.users)
            self._last.update(dict.fromkeys(names, self.users - 1))
        if posts:
            self._post()
        elif self._waiting.full or (names and self._choosy):
            self._state = _update_state(self._policy, self._state, *self._waiting.take_rows())

    def _add_release(
        self, statistic: DeployedStatistic, sums: _Sum, release: Release, total: NDArray[np.int64]
    ) -> _Sum:
        if statistic.running:
            # Of all users of the epoch: what came before it is a constant.
            estimate = statistic.wire.estimate(total, users=self.users, label=0)
            variance = statistic.running_variance(self._epoch_releases)
            return sums.now(sums.before + estimate, sums.variance_before + variance)
        label = release.cohort if self.deployment.task.needs else 0
        estimate = statistic.wire.estimate(total, users=release.users, label=label)
        variance = statistic.variance(label, release.users)
        return sums.now(sums.total + estimate, sums.variance + variance)

    def _clock(self) -> Clock:
        now = self.users - 1
        since: Any = {name: np.int32(now - last) for name, last in self._last.items()}
        round: Any = np.int32(now)
        return Clock(round=round, since=since)

    def _due(self) -> tuple[str, ...]:
        """Return the queries whose totals the policy wants now; the others wait."""
        if not self._choosy:
            return self.deployment.task.queries
        is_due = _due(self._policy, self._state, self._clock())
        return tuple(
            name for name in self.deployment.task.queries if bool(np.asarray(is_due[name]))
        )

    def _refreshes(self) -> bool:
        """Return whether it is time to post, computed for many rounds of public time ahead."""
        if self._choosy:
            return bool(np.asarray(_refreshes(self._policy, self._clock())))
        block, place = divmod(self.users - 1, _ROUNDS)
        if self._posts[0] != block:
            rounds: Any = block * _ROUNDS + np.arange(_ROUNDS, dtype=np.int32)
            steps: Any = np.ones_like(rounds)
            clocks = Clock(round=rounds, since=dict.fromkeys(self._last, steps))
            self._posts = block, np.asarray(_all_refreshes(self._policy, clocks))
        return bool(self._posts[1][place])

    def _post_first(self) -> None:
        self._post()

    def _post(self) -> None:
        self._state, published = _update_and_publish(
            self._policy, self._state, *self._waiting.take_rows()
        )
        self._show(self.users, published)


class _Waiting:
    """Releases that the policy's state has not taken in yet: nobody sees it before it is posted.

    They lie in arrays of one length, so that one compiled function takes in any number of them.
    Where only the newest counts, there is one.
    """

    def __init__(self, sizes: Mapping[str, int], *, newest: bool) -> None:
        self._sizes, self._names, self._newest = sizes, tuple(sizes), newest
        room = max(1, min(_AT_ONCE, _MOST_NUMBERS // max(1, sum(sizes.values()))))
        self._room = 1 if newest else room
        self._begin()

    @property
    def full(self) -> bool:
        return self._count == self._room and not self._newest

    def add(self, names: tuple[str, ...], sums: Mapping[str, _Sum], users: int) -> None:
        """Add one release of some queries; whatever waits together is of the same ones."""
        self._names = names
        if self._newest:
            self._count = 0
        for name in names:
            row, sums_of_query = self._rows[name][self._count], sums[name]
            row[:-2], row[-2], row[-1] = sums_of_query.total, users, sums_of_query.variance**0.5
        self._count += 1

    def take_rows(self) -> tuple[tuple[str, ...], tuple[NDArray[np.float64], ...], np.int32]:
        """Take names of queries, a release of each in every row, and how many rows count.

        A row is a total, how many users it is of, and the deviation of its noise: one array costs
        a compiled call less than three.
        """
        rows, count = tuple(self._rows[name] for name in self._names), np.int32(self._count)
        self._begin()
        return self._names, rows, count

    def _begin(self) -> None:
        """Begin with new arrays, since the old ones may still be read."""
        self._count = 0
        self._rows = {name: np.zeros((self._room, size + 2)) for name, size in self._sizes.items()}


@dataclasses.dataclass
class ReadPosition:
    """Where a learner stands among a task's releases.

    Attributes:
        last: a hash of the last of them, or the task's id; each release names the one before.
        count: how many it has taken in.
        first: the number of the release of the first cohort; a task that begins again has another.
    """

    last: bytes
    count: int = 0
    first: int = 0


def next_releases(
    task: Task, position: ReadPosition, payloads: Iterable[bytes]
) -> Iterator[Release]:
    """Yield the releases of a task that a learner has not read, in their order.

    Raises:
        FencedError: one is missing, does not follow those that are known, or is of another task.
    """
    for payload in payloads:
        release = Release.read(payload)
        if release.number < position.count:
            continue
        users = release.users
        if release.number != position.count or len(release.total) != task.size:
            raise FencedError(
                f"release {release.number} came where {position.count} was due; ask again"
            )
        if release.previous != position.last:
            raise FencedError(
                f"release {release.number} follows others than this learner has seen; the "
                "aggregator was rolled back: begin a new learner from all of its releases"
            )
        if release.cohort >= task.cohorts or users != task.need(release.cohort):
            raise FencedError(f"release {release.number} is of {users} users, not of a full cohort")
        if release.cohort == 0:
            position.first = release.number
        if release.cohort != release.number - position.first:
            raise FencedError(
                f"release {release.number} is of cohort {release.cohort}, out of order"
            )
        position.count, position.last = position.count + 1, hashlib.sha256(payload).digest()
        yield release


class Form:
    """The form in which a policy publishes its model, to read one from the wire."""

    def __init__(self, deployment: Deployment) -> None:
        """Look at what the policy would publish, without computing it."""
        outlook = {name: privatizer.outlook for name, privatizer in deployment.privatizers.items()}
        policy = deployment.by_totals
        form = jax.eval_shape(lambda: policy.publish(policy.init(outlook)))
        self._leaves, self._structure = _flatten_by_path(form), jax.tree.structure(form)

    def tree(self, model: Model) -> Tree:
        """Read a posted model in the form of the policy.

        Raises:
            InvalidValueError: it has other arrays.
        """
        shapes = {name: (array.dtype, array.shape) for name, array in self._leaves.items()}
        received = {
            name: (np.dtype(array.dtype), array.shape) for name, array in model.arrays.items()
        }
        if received != shapes:
            raise InvalidValueError(
                "the model's arrays are not those of this policy; read it again"
            )
        return jax.tree.unflatten(self._structure, [model[name] for name in self._leaves])


def _flatten_by_path(tree: Tree) -> dict[str, Array]:
    """Map the leaves of a tree by their paths."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in leaves}


def _begin_sum(statistic: DeployedStatistic) -> _Sum:
    zero = np.zeros(statistic.wire.size)
    return _Sum(total=zero, variance=0.0, before=zero, variance_before=0.0)


@partial(jax.jit, static_argnums=1)
def _init(policy: Policy, outlook: tuple[tuple[str, NoiseInfo], ...]) -> Tree:
    return policy.init(dict(outlook))


@jax.jit
def _due(policy: Policy, state: Tree, clock: Clock) -> Mapping[str, Array | bool]:
    return policy.due(state, clock)


@jax.jit
def _refreshes(policy: Policy, clock: Clock) -> Array | bool:
    return policy.refreshes(clock)


@jax.jit
def _all_refreshes(policy: Policy, clocks: Clock) -> Array:
    return jax.vmap(lambda clock: jnp.asarray(policy.refreshes(clock)))(clocks)


def _apply_releases(
    policy: Policy, state: Tree, names: tuple[str, ...], releases: tuple[Array, ...], count: Array
) -> Tree:
    """Update a policy's state with so many releases."""

    def update_by_row(place: Array, state: Tree) -> Tree:
        for name, rows in zip(names, releases, strict=True):
            row = rows[place]
            total = Total(total=row[:-2], count=row[-2].astype(jnp.int32), noise=row[-1])
            state = policy.update(state, name, total)
        return state

    final_state: Tree = jax.lax.fori_loop(0, count, update_by_row, state)
    return final_state


_update_state = compile_quickly(static=2)(_apply_releases)


@compile_quickly(static=2)
def _update_and_publish(
    policy: Policy, state: Tree, names: tuple[str, ...], releases: tuple[Array, ...], count: Array
) -> tuple[Tree, dict[str, Array]]:
    after = _apply_releases(policy, state, names, releases, count)
    return after, _flatten_by_path(policy.publish(after))
