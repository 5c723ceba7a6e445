"""Bandits that go by phases, with roles apart: the simulation's mathematics and its promise."""

from __future__ import annotations

import dataclasses
import os
import random
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray
from tests.deployment.field import build_deployment, promise

from kerchief.core.contracts import Release as Total
from kerchief.core.errors import InvalidValueError, KerchiefError
from kerchief.core.phases import ANSWERS, learn
from kerchief.core.problems import PopulationProblem
from kerchief.core.random import REWARD, Stream
from kerchief.deployment.aggregator import Aggregator
from kerchief.deployment.audit_log import AuditLog
from kerchief.deployment.bandit import Bandit
from kerchief.deployment.deployed_statistic import build_statistics
from kerchief.deployment.deployment import Deployment, deploy, read_deployment
from kerchief.deployment.learner import Learner
from kerchief.deployment.population import PopulationLearner
from kerchief.deployment.verify import verify
from kerchief.environments.population import Population, PopulationTruth
from kerchief.privacy.guarantee import Guarantee, Trust
from kerchief.privatizers.protect import Protection, protect
from kerchief.simulation.phases import PhaseScene, begin, phases_of, play
from kerchief.stores import Store
from kerchief.stores.sqlite import SQLiteStore
from kerchief_device import Device, Pending, Place
from kerchief_device.randomize import randomize
from kerchief_protocol import noise as wire
from kerchief_protocol.errors import FencedError, RejectedError
from kerchief_protocol.model import Model, Numbers, Status
from kerchief_protocol.report import Release, Report
from kerchief_protocol.task import Task

TRUSTS = ("local", "shuffle", "central")
POLICIES = ("dpe", "pe")
BY_DAY = [pytest.param("dpe", marks=pytest.mark.nightly), "pe"]
"""The other one is played by night where a test plays for long."""
WORLD = Population.of(dim=2, arms=4, clients=3000, spread=0.1, fixed=3)
FACTS_PHASED = WORLD.problem(1000)
TRUTH: PopulationTruth = jax.jit(WORLD.init)(Stream.of(seed=0, replicate=0))
ACTIONS = np.asarray(TRUTH.features, np.float64)
BEST = int(np.argmax(ACTIONS @ np.asarray(TRUTH.parameter, np.float64)))

Randomness = Callable[[int], bytes]


def promised(trust: str, epsilon: float = 8.0) -> Guarantee:
    if trust == "none":
        return promise("none")
    return Guarantee(epsilon=epsilon, delta=1e-4, trust=Trust(trust))


def task_for(
    policy: str, trust: str, facts: PopulationProblem = FACTS_PHASED, **more: Any
) -> Deployment:
    return deploy(
        policy=policy,
        problem=facts,
        guarantee=promised(trust),
        window_s=0,
        nonce=bytes(16),
        **more,
    )


@dataclasses.dataclass(kw_only=True)
class Town:
    """All roles of one task around one store, and clients who come one after another."""

    deployment: Deployment
    store: Store
    source: Randomness
    seed: int = 0
    clients: int = 0

    def __post_init__(self) -> None:
        self.aggregator = Aggregator(self.deployment, store=self.store, source=self.source)
        self.learner = PopulationLearner(self.deployment, ACTIONS)
        self.follow()

    def follow(self) -> None:
        lines = self.aggregator.chain()
        self.learner.follow(
            self.aggregator.releases(self.learner.releases), length=len(lines), head=lines[-1].hash
        )

    def device(self) -> Device:
        return Device(self.deployment.task, source=self.source)

    def joined(self, device: Device) -> tuple[Place, NDArray[np.float64]]:
        """A place, and what its client saw: in the simulation the client of this number did."""
        place = device.join(self.learner.model, self.aggregator.status())
        at = Stream.of(seed=self.seed, replicate=0).at(REWARD, round=jnp.int32(self.clients))
        self.clients += 1
        seen = _seen(at, jnp.asarray(place.atoms), jnp.asarray(place.pulls, jnp.float64))
        return place, np.asarray(seen, np.float64)

    def report(self, device: Device | None = None) -> bytes:
        own = device or self.device()
        place, seen = self.joined(own)
        assert own.reward(place.id, seen)
        return own.report(place.id, self.aggregator.status())

    def group(self) -> None:
        """Let the clients of one group come."""
        label = self.aggregator.status().label
        reports = [self.report() for _ in range(self.deployment.task.need(label))]
        assert set(self.aggregator.take(reports)) == {None}
        self.follow()

    def phases(self) -> Iterator[int]:
        while not self.learner.is_over:
            phase = self.learner.phase
            for _ in range(self.deployment.by_phases.groups):
                self.group()
            yield phase

    def totals(self) -> list[Release]:
        return [Release.read(one) for one in self.aggregator.releases()]


@jax.jit
def _seen(stream: Stream, atoms: Any, pulls: Any) -> Any:
    return WORLD.averages(TRUTH, TRUTH.features[atoms], pulls, stream)


def town(
    policy: str,
    trust: str,
    *,
    store: Store | None = None,
    seed: int = 0,
    salt: str = "",
    **more: Any,
) -> Town:
    source = random.Random(f"{policy} {trust} {salt}").randbytes
    kept = store or SQLiteStore.memory()
    return Town(deployment=task_for(policy, trust, **more), store=kept, source=source, seed=seed)


def words(answers: tuple[RejectedError | None, ...]) -> list[str | None]:
    return [None if one is None else one.word for one in answers]


# The same mathematics.


@pytest.mark.parametrize("policy", BY_DAY)
def test_without_noise_the_field_plays_the_simulated_phases(policy: str) -> None:
    """Client by client the same rewards: after every phase the same state, and the same end."""
    one = town(policy, "none", seed=7)
    acting = one.deployment.by_phases
    guard = Protection(guarantee=promised("none"))
    idealized = protect(acting, guard, horizon=FACTS_PHASED.horizon)
    scene = PhaseScene.of(acting, idealized, WORLD, seed=7)
    carry = begin(scene, jnp.arange(1, dtype=jnp.uint32))
    phases, played = phases_of(acting, idealized), 0
    assert phases == one.deployment.phases
    for phase in one.phases():
        carry = play(scene, carry, jax.tree.map(jnp.int32, phases[phase]))
        for mine, theirs in zip(
            jax.tree.leaves(one.learner.state), jax.tree.leaves(carry.state), strict=True
        ):
            assert np.asarray(mine).tolist() == np.asarray(theirs)[0].tolist()
        assert one.learner.rounds == int(carry.rounds[0])
        groups = [released.total for released in one.totals()[-acting.groups :]]
        shown = [one.deployment.task.noise[0].estimate(t, users=1, label=0) for t in groups]
        np.testing.assert_allclose(np.stack(shown), carry.last.total[0], atol=1e-3)
        played += 1
    left = phases[played:]
    ends = not left or bool(play(scene, carry, jax.tree.map(jnp.int32, left[0])).done[0])
    assert played >= 2
    assert ends
    assert one.learner.shares.argmax() == BEST


@pytest.mark.parametrize(
    "trust",
    ["central", *(pytest.param(t, marks=pytest.mark.nightly) for t in ("local", "shuffle"))],
)
@pytest.mark.parametrize("policy", BY_DAY)
def test_a_population_is_played_to_the_end_and_finds_the_best(policy: str, trust: str) -> None:
    """And the learner's state is what the simulation's functions make of the same releases."""
    one = town(policy, trust)
    for _ in one.phases():
        pass
    acting, task = one.deployment.by_phases, one.deployment.task
    privatizer: Any = one.deployment.privatizers[ANSWERS]
    state = acting.init({ANSWERS: privatizer.outlook})
    releases, features = one.totals(), jnp.asarray(ACTIONS)
    ask = jax.jit(acting.ask, static_argnames="noisy")
    assert len(releases) == one.learner.phase * acting.groups
    for number, phase in enumerate(one.deployment.phases[: one.learner.phase]):
        asked = ask(features, state, phase, noisy=True)
        mine = releases[number * acting.groups : (number + 1) * acting.groups]
        users = jnp.asarray([released.users for released in mine], jnp.int32)
        shown = [task.noise[0].estimate(r.total, users=r.users, label=r.cohort) for r in mine]
        noise = [privatizer.noise_after(np.asarray(r.users), np.asarray(1)) for r in mine]
        said = Total(total=jnp.asarray(np.stack(shown)), count=users, noise=jnp.asarray(noise))
        state = learn(acting, features, state, asked, phase, said)
    assert np.asarray(one.learner.state.allowed).tolist() == state.allowed.tolist()
    assert int(one.learner.state.best) == int(state.best) == BEST
    books = AuditLog.of(one.aggregator.chain())
    books.check(read_deployment(Task.read(task.data)))
    assert verify(one.aggregator.chain()).review.kept
    assert one.aggregator.close().epsilon <= 8.0 * (1 + 1e-9)


def test_population_end_stops_reports_and_frees_unused_groups() -> None:
    one = town("pe", "central", numbers={"width": 0.5})
    for _ in one.phases():
        pass
    assert one.learner.phase < len(one.deployment.phases)
    with pytest.raises(RejectedError, match="settled"):
        one.report()
    one.aggregator.close()
    receipts = AuditLog.of(one.aggregator.chain()).receipts
    assert [receipt.used for receipt in receipts].count(0) == len(receipts) - len(one.totals())


def test_groups_are_equal_on_surviving_actions_for_any_design() -> None:
    acting = task_for("pe", "central").by_phases
    state = acting.init({})
    state = dataclasses.replace(state, allowed=jnp.asarray([True, False, True, False]))
    phase = task_for("pe", "central").phases[0]
    asked = acting.ask(jnp.asarray(ACTIONS), state, phase, noisy=True)
    assert asked.users.tolist() == [phase.clients // 4] * 4
    assert set(np.ravel(asked.atoms).tolist()) == {0, 2}
    x = ACTIONS[np.ravel(asked.atoms)]
    exact = np.linalg.inv((x.T * np.ravel(asked.plays)) @ x)
    np.testing.assert_allclose(asked.inverse, exact, rtol=1e-9)


def test_a_curator_draws_laplace_noise_in_the_units_of_reports() -> None:
    """Pure: its own epsilon, of the sum of a group, whatever delta is."""
    one = task_for("pe", "central", mechanism="laplace")
    (statistic,) = build_statistics(one)
    noise: Any = one.privatizers[ANSWERS]
    (exact,) = noise.noises
    assert isinstance(statistic.wire, wire.Statistic)
    assert statistic.wire.grid_bits == exact.grid_bits
    drawn, _ = statistic.draw(
        np.zeros((4000, 1), np.int64), statistic.open(), 0, random.Random(5).randbytes
    )
    assert (drawn / 2.0**exact.grid_bits).std() == pytest.approx(2**0.5 * 2 / 8.0, rel=0.1)
    assert np.abs(drawn).max() > 4 * drawn.std()  # longer tails than normal ones
    assert exact.event().epsilon == pytest.approx(8.0, rel=1e-6)
    assert exact.event().epsilon <= 8.0
    assert read_deployment(Task.read(one.task.data)).task == one.task


# Restarts.


@pytest.mark.parametrize("trust", TRUSTS)
@pytest.mark.parametrize("policy", BY_DAY)
def test_a_restart_amid_a_group_loses_and_repeats_nothing(
    policy: str, trust: str, tmp_path: Path
) -> None:
    path = str(tmp_path / "aggregator.db")
    first = town(policy, trust, store=SQLiteStore(path))
    first.group()
    early = [first.report() for _ in range(5)]
    assert set(first.aggregator.take(early)) == {None}
    before = first.aggregator.releases()
    first.store.close()
    again = town(policy, trust, store=SQLiteStore(path), salt="again")
    again.clients = first.clients
    assert again.aggregator.releases() == before
    posted = dataclasses.replace(first.learner.model, version=again.learner.model.version)
    assert again.learner.model == dataclasses.replace(
        posted, length=again.learner.model.length, head=again.learner.model.head
    )
    assert set(again.aggregator.take(early)) == {None}
    label = again.aggregator.status().label
    rest = [again.report() for _ in range(again.deployment.task.need(label) - 5)]
    assert set(again.aggregator.take(rest)) == {None}
    assert [one.number for one in again.totals()] == [0, 1]
    assert again.totals()[1].users == again.deployment.task.need(label)
    again.store.close()


def test_a_new_epoch_amid_a_phase_goes_on_with_new_clients() -> None:
    one = town("pe", "central")
    begun = one.aggregator.status().epoch
    one.group()
    waiting = one.report()
    assert one.aggregator.take([waiting]) == (None,)
    one.aggregator.renew()
    assert words(one.aggregator.take([waiting])) == ["epoch"]
    one.follow()
    for _ in range(3):
        one.group()
    first, *others = (release.epoch for release in one.totals())
    assert (first, len(set(others)), len(others)) == (begun, 1, 3)
    assert others[0] != begun
    assert one.learner.phase == 1
    AuditLog.of(one.aggregator.chain()).check(one.deployment)


# Late, repeated, forged.


@pytest.mark.parametrize("trust", TRUSTS)
@pytest.mark.parametrize("policy", POLICIES)
def test_late_repeated_and_forged_reports(policy: str, trust: str) -> None:
    one = town(policy, trust)
    label = one.aggregator.status().label
    late, slow = one.report(), one.device()
    place, seen = one.joined(slow)
    slow.reward(place.id, seen)
    twice = one.report()
    assert set(one.aggregator.take([twice, twice])) == {None}
    assert set(one.aggregator.take([twice])) == {None}
    others = [one.report() for _ in range(one.deployment.task.need(label) - 1)]
    assert set(one.aggregator.take(others)) == {None}
    (release,) = one.totals()
    assert release.users == one.deployment.task.need(label)
    one.follow()
    # Made before its group was full, and not made at all after.
    assert words(one.aggregator.take([late, twice])) == ["label", None]
    with pytest.raises(RejectedError, match="full"):
        slow.report(place.id, one.aggregator.status())
    slow.discard(place.id)
    assert slow.join(one.learner.model, one.aggregator.status()).label == label + 1
    other = task_for(policy, trust, name="another").task
    wrong = Report.read(late, one.deployment.task).write(other)
    assert words(one.aggregator.take([wrong, late[:-8], late + bytes(8)])) == [
        "task",
        "length",
        "length",
    ]


@pytest.mark.parametrize("trust", TRUSTS)
@pytest.mark.parametrize("policy", POLICIES)
def test_reports_are_whole_numbers_within_public_bounds(policy: str, trust: str) -> None:
    one = town(policy, trust)
    task, status = one.deployment.task, one.aggregator.status()
    bounds = task.bounds(status.label)

    def sent(numbers: Any, label: int = status.label) -> bytes:
        report = Report(
            label=label, epoch=status.epoch, id=os.urandom(16), numbers=np.asarray(numbers)
        )
        return report.write(task)

    far = [bounds.high + 2, bounds.low - 2, np.full(task.size, 2**62)]
    assert words(one.aggregator.take([sent(numbers) for numbers in far])) == ["bounds"] * 3
    if len(task.needs) > 1:
        early = randomize(task.noise[0], np.zeros(task.size), 1, os.urandom)
        assert words(one.aggregator.take([sent(early, label=1)])) == ["label"]
    # Whatever a learner posts and a client says, its report is one of these numbers.
    model = one.learner.model
    wild = Numbers.of(1e308 * np.ones_like(np.asarray(model["encoder"])))
    model = dataclasses.replace(model, arrays={**model.arrays, "encoder": wild})
    device = one.device()
    place = device.join(model, status)
    device.reward(place.id, np.full(len(place.atoms), 1e300))
    assert one.aggregator.take([device.report(place.id, status)]) == (None,)


@pytest.mark.parametrize("trust", TRUSTS)
@pytest.mark.parametrize("policy", BY_DAY)
def test_release_is_sum_of_its_group_plus_noise_of_its_trust(policy: str, trust: str) -> None:
    one = town(policy, trust)
    label = one.aggregator.status().label
    reports = [one.report() for _ in range(one.deployment.task.need(label))]
    assert set(one.aggregator.take(reports)) == {None}
    exact = sum(Report.read(report, one.deployment.task).numbers for report in reports)
    noise, privatizer = (
        one.totals()[0].total - exact,
        cast(Any, one.deployment.privatizers[ANSWERS]),
    )
    if trust == "central":
        assert 0 < np.abs(noise).max() < 12 * privatizer.aggregator.scale
    else:
        assert not noise.any()


# The device: one client, one report.


def test_a_client_answers_once_in_a_task() -> None:
    one = town("dpe", "local")
    device = one.device()
    status = one.aggregator.status()
    place = device.join(one.learner.model, status)
    assert device.join(one.learner.model, status) == place
    assert device.reward(place.id, [0.5] * len(place.atoms))
    assert not device.reward(place.id, [-0.5] * len(place.atoms))
    report = device.report(place.id, status)
    assert device.report(place.id, status) == report
    with pytest.raises(InvalidValueError, match="already"):
        device.join(one.learner.model, status)
    device.confirm(place.id)
    device.discard(place.id)
    with pytest.raises(InvalidValueError, match="has been reported"):
        device.join(one.learner.model, status)
    assert device.due() == ()


def test_client_with_rejected_report_cannot_join_again() -> None:
    one = town("dpe", "local")
    device = one.device()
    place = device.join(one.learner.model, one.aggregator.status())
    device.report(place.id, one.aggregator.status())
    device.discard(place.id)
    with pytest.raises(InvalidValueError, match="has been reported"):
        device.join(one.learner.model, one.aggregator.status())


def _reported(one: Town, path: Path) -> bytes:
    """What the client of a store reports; nobody tells it that the report arrived."""
    pending = Pending(path)
    report = one.report(Device(one.deployment.task, pending=pending))
    pending.close()
    return report


@pytest.mark.parametrize("later", ["same group", "next group", "next epoch"])
@pytest.mark.parametrize("trust", TRUSTS)
def test_a_client_whose_store_is_restored_counts_once(
    trust: str, later: str, tmp_path: Path
) -> None:
    one, path, copy = town("pe", trust), tmp_path / "device.db", tmp_path / "copy.db"
    Pending(path).close()
    shutil.copy(path, copy)
    assert one.aggregator.take([_reported(one, path)]) == (None,)
    if later == "next group":
        label = one.aggregator.status().label
        others = [one.report() for _ in range(one.deployment.task.need(label) - 1)]
        assert set(one.aggregator.take(others)) == {None}
        one.follow()
    if later == "next epoch":
        one.aggregator.renew()
        one.follow()
    again = _reported(one, copy)
    assert Report.read(again, one.deployment.task).label == one.aggregator.status().label
    assert one.aggregator.take([again]) == (None,)
    with one.store.read(one.deployment.task.id) as at:
        assert sum(at.count_report_ids().values()) == one.clients - 1
        assert sum(at.counts().values()) == (1 if later == "same group" else 0)


def test_report_ids_identify_clients_only_within_one_task() -> None:
    """In two tasks one client has two names, which only its secret connects."""
    one, other = town("pe", "local"), town("pe", "local", name="another")
    pending, ids = Pending(), set()
    for each in (one, other):
        for own in (pending, Pending()):
            report = each.report(Device(each.deployment.task, pending=own))
            ids.add(Report.read(report, each.deployment.task).id)
    assert len(ids) == 4
    assert all(len(id) == 16 for id in ids)


def test_threads_of_one_client_make_one_report(tmp_path: Path) -> None:
    one = town("pe", "local")
    status, model = one.aggregator.status(), one.learner.model

    def answer(number: int) -> bytes | None:
        pending = Pending(tmp_path / "device.db")
        device = Device(one.deployment.task, pending=pending)
        try:
            place = device.join(model, status)
            device.reward(place.id, [number / 8])
            return device.report(place.id, status)
        except InvalidValueError:
            return None
        finally:
            pending.close()

    with ThreadPoolExecutor(8) as pool:
        made_reports = set(pool.map(answer, range(8))) - {None}
    assert len(made_reports) == 1


def test_silence_is_the_public_default() -> None:
    one = town("pe", "none", default=0.25)
    device, status = one.device(), one.aggregator.status()
    place = device.join(one.learner.model, status)
    silent = Report.read(device.report(place.id, status), one.deployment.task).numbers
    device = one.device()
    place = device.join(one.learner.model, status)
    device.reward(place.id, [0.25])
    spoken = Report.read(device.report(place.id, status), one.deployment.task).numbers
    assert silent.tolist() == spoken.tolist()
    shown = one.deployment.task.noise[0].estimate(silent, users=1, label=0)
    assert shown.tolist() == [0.25]


def _answered(device: Device, model: Model, status: Status) -> bytes:
    return device.report(device.join(model, status).id, status)


@pytest.mark.parametrize("name", ["phase", "done", "atoms", "pulls", "encoder"])
def test_a_model_of_another_form_is_refused(name: str) -> None:
    one = town("dpe", "central")
    model = one.learner.model
    for wrong in (None, Numbers.of(np.zeros((9, 9))), Numbers.of(np.full((), np.nan))):
        arrays = {key: value for key, value in model.arrays.items() if key != name}
        if wrong is not None:
            arrays[name] = wrong
        device, broken = one.device(), dataclasses.replace(model, arrays=arrays)
        with pytest.raises(InvalidValueError, match=name):
            _answered(device, broken, one.aggregator.status())


@pytest.mark.parametrize(
    ("name", "value", "word"),
    [
        ("pulls", 2**62, "pulls"),
        ("pulls", -5, "pulls"),
        ("pulls", FACTS_PHASED.horizon + 1, "pulls"),
        ("atoms", 10**9, "actions"),
        ("atoms", -1, "actions"),
        ("atoms", FACTS_PHASED.arms, "actions"),
    ],
)
def test_a_phase_outside_the_problem_is_refused(name: str, value: int, word: str) -> None:
    one = town("dpe", "central")
    posted = one.learner.model
    array = np.array(posted[name])
    array[0, -1] = value
    wrong = dataclasses.replace(posted, arrays={**posted.arrays, name: Numbers.of(array)})
    device = one.device()
    with pytest.raises(InvalidValueError, match=f"the model.*{word}"):
        device.join(wrong, one.aggregator.status())
    assert device.due(1e12) == ()
    device.join(posted, one.aggregator.status())


def test_a_phase_with_another_array_is_refused() -> None:
    one = town("dpe", "central")
    more = {**one.learner.model.arrays, "more": Numbers.of(np.zeros(3))}
    device = one.device()
    with pytest.raises(InvalidValueError, match="has 6 arrays; its task uses 5"):
        device.join(dataclasses.replace(one.learner.model, arrays=more), one.aggregator.status())
    assert device.due(1e12) == ()


def test_a_phase_of_a_problem_without_bounds_is_refused() -> None:
    deployment = town("dpe", "central").deployment
    for problem in ({}, {**deployment.task.problem, "arms": None}, None):
        with pytest.raises(InvalidValueError, match="bound what a phase may ask"):
            Device(dataclasses.replace(deployment.task, problem=problem))


def test_a_model_of_another_phase_is_refused() -> None:
    one = town("dpe", "central")
    old = Model.read(one.learner.model.write())
    one.group()
    with pytest.raises(InvalidValueError, match="phase 0"):
        one.device().join(old, one.aggregator.status())
    device = one.device()
    place = device.join(one.learner.model, one.aggregator.status())
    with pytest.raises(InvalidValueError, match="averages"):
        device.reward(place.id, [0.0])


@pytest.mark.parametrize("trust", ["local", "shuffle"])
@pytest.mark.parametrize("policy", POLICIES)
def test_device_recomputes_guarantee_of_phased_task(policy: str, trust: str) -> None:
    made_task = task_for(policy, trust).task
    checked = Device(made_task).checked
    assert checked.recomputed
    assert checked.epsilon <= 8.0
    less = dataclasses.replace(made_task.promise, epsilon=0.9 * checked.epsilon)
    with pytest.raises(InvalidValueError, match="do not take part"):
        Device(dataclasses.replace(made_task, promise=less))


# What cannot be.


@pytest.mark.parametrize(
    ("policy", "trust", "more", "reason"),
    [
        ("dpe", "joint", {}, "joint"),
        ("pe", "joint", {}, "joint"),
        ("dpe", "shuffle", {"mechanism": "byte"}, "depends on the size"),
        ("dpe@paper", "central", {}, "study"),
        ("uniform", "central", {}, "runs under none"),
        ("uniform", "none", {}, "asks nobody"),
        ("linucb", "central", {}, "Problem"),
        ("dpe", "central", {"facts": dataclasses.replace(FACTS_PHASED, clients=20)}, "population"),
        ("pe", "local", {"facts": dataclasses.replace(FACTS_PHASED, horizon=3)}, "asks nobody"),
    ],
)
def test_undeployable_population_is_rejected_with_reason(
    policy: str, trust: str, more: Any, reason: str
) -> None:
    with pytest.raises(KerchiefError, match=reason):
        task_for(policy, trust, **more)


def test_roles_reject_tasks_of_other_kinds(tmp_path: Path) -> None:
    folder = tmp_path / "bandit"
    phased, plain = task_for("dpe", "central"), build_deployment("central")
    with pytest.raises(InvalidValueError, match="goes by phases"):
        Learner(phased)
    with pytest.raises(InvalidValueError, match="no phases"):
        PopulationLearner(plain, ACTIONS)
    with pytest.raises(InvalidValueError, match="goes by phases"):
        Bandit(policy="dpe", problem=FACTS_PHASED, guarantee=promised("central"), path=folder)
    assert not folder.exists()
    status = Aggregator(plain, store=SQLiteStore.memory()).status()
    with pytest.raises(InvalidValueError, match="call decide"):
        Device(plain.task).join(Learner(plain).model, status)
    posted = PopulationLearner(phased, ACTIONS).model
    with pytest.raises(InvalidValueError, match="call join"):
        Device(phased.task).decide(posted, [[0.0, 1.0]])
    for wrong in (ACTIONS[1:], 2 * ACTIONS, np.nan * ACTIONS):
        with pytest.raises(InvalidValueError, match="action"):
            PopulationLearner(phased, wrong)


@pytest.mark.parametrize("policy", POLICIES)
def test_the_honest_part_of_every_group_tosses_enough(policy: str) -> None:
    guarantee = dataclasses.replace(promised("shuffle"), honest=(4, 5))
    task = deploy(policy=policy, problem=FACTS_PHASED, guarantee=guarantee, in_process=True).task
    noise: Any = task.noise[0]
    for coins, need in zip(noise.coins, task.needs, strict=True):
        assert (4 * need // 5) * coins >= 4 * noise.scale**2
        assert (4 * need // 5) * (coins - 1) < 4 * noise.scale**2
    assert Device(task, in_process=True).checked.recomputed


@pytest.mark.parametrize("policy", POLICIES)
def test_unsigned_phases_have_the_coins_of_the_smallest_group(policy: str) -> None:
    deployment = deploy(policy=policy, problem=FACTS_PHASED, guarantee=promised("shuffle"))
    noise: Any = deployment.task.noise[0]
    most = -(-4 * noise.scale**2 // min(deployment.task.needs))
    assert set(noise.coins) == {most}
    assert Device(deployment.task).checked.recomputed


def test_task_with_other_groups_or_fewer_coins_is_rejected() -> None:
    task = task_for("pe", "shuffle").task
    program: Any = task.program
    with pytest.raises(InvalidValueError, match="whole groups"):
        dataclasses.replace(task, needs=task.needs[1:])
    with pytest.raises(InvalidValueError, match="contextual bandit"):
        dataclasses.replace(task, bandit="contextual")
    with pytest.raises(FencedError):
        read_deployment(dataclasses.replace(task, program=dataclasses.replace(program, low=-2.0)))
    noise: Any = task.noise[0]
    fewer = dataclasses.replace(noise, coins=(noise.coins[0] - 1, *noise.coins[1:]))
    with pytest.raises(InvalidValueError, match="coins"):
        dataclasses.replace(task, noise=(fewer,))


def test_phased_task_does_not_depend_on_precision_of_jax() -> None:
    """Whoever keeps JAX in 32-bit mode gets the same task, and no warning about its types."""
    facts: dict[str, Any] = {"problem": FACTS_PHASED, "guarantee": promise("local")}
    with jax.enable_x64(True):
        task = deploy(policy="dpe", nonce=bytes(16), **facts).task
    with jax.enable_x64(False):
        assert deploy(policy="dpe", nonce=bytes(16), **facts).task.data == task.data
