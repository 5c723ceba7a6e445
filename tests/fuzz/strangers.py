"""Targets that strangers reach: what crosses the wire, the roles that read it, and their files.

Whatever a stranger sends, a refusal is an error of ours, charges and counts nothing, and quotes no
number of a user.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from tests.device.helpers import asking
from tests.fuzz.hostile import SECRETS
from tests.fuzz.targets import Target

from kerchief.core.errors import (
    DelayedLearningWarning,
    InvalidValueError,
    KerchiefError,
    WeakGuaranteeWarning,
)
from kerchief.core.problems import Problem
from kerchief.deployment import (
    Aggregator,
    Bandit,
    Budget,
    Deployment,
    Device,
    Learner,
    deploy,
    read_deployment,
)
from kerchief.deployment.audit_log import AuditLog
from kerchief.deployment.library_code import LibraryCode
from kerchief.deployment.verify import check_releases, load_chain, verify
from kerchief.privacy import Guarantee, Trust
from kerchief.stores import FileWitness, open_store
from kerchief.stores.sqlite import SQLiteStore
from kerchief_device import Pending
from kerchief_protocol import canonical
from kerchief_protocol.chain import ROOT, Line, check_chain, read_chain, write_chain
from kerchief_protocol.model import Model, Numbers, Status
from kerchief_protocol.noise import Bits, Coins
from kerchief_protocol.parties import Party
from kerchief_protocol.programs import Library
from kerchief_protocol.report import Release, Report
from kerchief_protocol.signing import Signed, Signer, public_key, verify_message
from kerchief_protocol.task import Task

__all__ = ["BY_STRANGERS", "FACTS", "FEATURES", "finite", "promise", "strangers"]

FACTS = Problem(dim=2, arms=3, norm=1.0, radius=1.0, low=0.0, high=1.0, horizon=2000)
EXTREME = {
    "tiny": Problem(dim=2, arms=3, norm=1e-9, radius=1e-9, low=0.0, high=1e-9, horizon=2000),
    "huge": Problem(dim=2, arms=3, norm=1e9, radius=1e9, low=-1e9, high=1e9, horizon=2000),
    "large": Problem(dim=2, arms=3, norm=1e4, radius=1e4, low=-1e4, high=1e4, horizon=2000),
    "one": Problem(dim=1, arms=1, norm=1.0, radius=1e9, low=-1e9, high=1e9, horizon=1),
}
FEATURES = np.array([[0.6, 0.8], [1.0, 0.0], [0.0, 0.5]])
SAME = np.array([[0.6, 0.8], [0.6, 0.8], [0.0, 0.0]])
MASK = np.array([True, False, True])
TRUSTS = ("local", "shuffle", "joint", "central")


def promise(trust: str, *, epsilon: float = 1.0, delta: float = 1e-6) -> Guarantee:
    """What is promised under a trust."""
    if trust == "none":
        return Guarantee(epsilon=math.inf, delta=0.0, trust=Trust.NONE)
    return Guarantee(epsilon=epsilon, delta=delta, trust=Trust(trust))


def finite(arrays: Mapping[str, Any]) -> None:
    """No number of a posted model is NaN or endless."""
    for name, array in arrays.items():
        number = np.asarray(array)
        assert number.dtype.kind != "f" or np.isfinite(number).all(), f"{name} is not finite"


@contextlib.contextmanager
def untouched(look: Callable[[], Any]) -> Iterator[None]:
    """A refusal changes nothing that can be seen, and tells nothing."""
    before = look()
    try:
        yield
    except KerchiefError as error:
        assert look() == before, "a refusal left a trace"
        told = str(error)
        assert not any(repr(abs(one)) in told for one in SECRETS), "an error quotes a user"
        raise


def _facts(policy: str, size: str) -> Problem:
    """The public bounds; arms have models of their own where the bandit is for such."""
    facts = EXTREME.get(size, FACTS)
    return dataclasses.replace(facts, own=facts.dim) if policy == "own-models" else facts


@functools.cache
def _build_deployment(trust: str, policy: str = "linucb", size: str = "usual") -> Deployment:
    facts = _facts(policy, size)
    return deploy(policy=policy, problem=facts, guarantee=promise(trust), window_s=0)


@functools.cache
def _scratch() -> Path:
    return Path(tempfile.mkdtemp(prefix="kerchief-strangers-"))


# Bytes.


@functools.cache
def _tasks() -> tuple[bytes, ...]:
    lazy = (_build_deployment("central", policy) for policy in ("glm", "greedy", "own-models"))
    bits = deploy(
        policy="linucb",
        problem=dataclasses.replace(FACTS, horizon=100),
        guarantee=promise("shuffle"),
        mechanism="bits",
    )
    short = deploy(policy="linucb", problem=FACTS, guarantee=promise("local"), project=1)
    usual = (_build_deployment(trust) for trust in TRUSTS)
    return (*(one.task.data for one in (*usual, *lazy, bits, short)), asking().data)


@functools.cache
def _visit(trust: str, policy: str = "linucb") -> tuple[bytes, bytes, bytes]:
    """A report, a model and a status of one honest visit."""
    deployment = _build_deployment(trust, policy)
    aggregator = Aggregator(deployment, store=SQLiteStore.memory())
    model, status = Learner(deployment).model, aggregator.status()
    device = _device(trust, policy)
    decision = device.decide(model, FEATURES)
    device.reward(decision.id, 0.5)
    return device.report(decision.id, status), model.write(), status.write()


def _device(trust: str, policy: str = "linucb", **more: Any) -> Device:
    return Device(_build_deployment(trust, policy).task, code=_code(trust, policy), **more)


@functools.cache
def _code(trust: str, policy: str) -> Any:
    """The library's own code where a task needs it, compiled once."""
    deployment = _build_deployment(trust, policy)
    return LibraryCode(deployment) if isinstance(deployment.task.program, Library) else None


@functools.cache
def _field(trust: str) -> tuple[tuple[Line, ...], tuple[bytes, ...]]:
    """A chain and the releases of a task that took in a whole cohort or two."""
    guarantee = promise(trust)
    with Bandit(policy="linucb", problem=FACTS, guarantee=guarantee, window_s=0) as bandit:
        for _ in range(60):
            bandit.reward(bandit.decide(FEATURES).id, 0.5)
        return bandit._aggregator.chain(), bandit._aggregator.releases()


def _canonical(*, data: bytes) -> None:
    assert canonical.write(canonical.read(data)) == data, "two texts for one value"


def _write(*, value: Any) -> None:
    data = canonical.write(value)
    assert canonical.write(canonical.read(data)) == data, "it is read as something else"


def _task(*, data: bytes) -> None:
    task = Task.read(data)
    assert task.data == data, "two texts for one task"
    assert len(task.id) == 32
    assert task.size == sum(one.size for one in task.noise)


def _model(*, data: bytes) -> None:
    model = Model.read(data)
    assert model.write() == data, "two texts for one model"
    for name in model.arrays:
        assert model[name].shape == model.arrays[name].shape


def _status(*, data: bytes) -> None:
    assert Status.read(data).write() == data, "two texts for one status"


@functools.cache
def _signing() -> tuple[Task, bytes]:
    """A task with a key, and its signed status as bytes."""
    private = bytes(range(32))
    party = Party(role="aggregator", operator="Example Ltd", keys=(public_key(private),))
    task = dataclasses.replace(_build_deployment("local").task, parties=(party,), valid_s=100)
    status = Status(task=task.id, state="running", epoch=0, label=0)
    return task, Signer(task, private, clock=lambda: 1e9).sign(status).write()


def _signed(*, data: bytes) -> None:
    task, sent = _signing()
    signed = Signed.read(data)
    assert signed.write() == data, "two texts for one signed message"
    verify_message(task, Status, signed, lambda: 1e9)
    assert data == sent, "a message that nobody signed is taken"


def _report(*, data: bytes, trust: str) -> None:
    task = _build_deployment(trust).task
    (together,) = Report.read_all([data], task)
    report = Report.read(data, task)
    assert isinstance(together, Report), "refused among others, and not alone"
    for one in (report, together):
        assert one.write(task) == data, "two reports in one"
        assert task.within(one.numbers, one.label), "out of bounds"


def _release(*, data: bytes) -> None:
    assert Release.read(data).write() == data, "two releases in one"


def _array(*, array: Any) -> None:
    assert np.array_equal(Numbers.of(array).array, array, equal_nan=array.dtype.kind == "f")


def _chain(*, data: bytes) -> None:
    lines = read_chain(data)
    assert write_chain(lines) == data, "two texts for one chain"
    assert check_chain(lines) == lines[-1].hash


def _forged(said: Any) -> tuple[Line, ...]:
    """A chain whose hashes are right, whatever its lines say."""
    lines: list[Line] = []
    for kind, content in said:
        head = lines[-1].hash if lines else ROOT
        body = canonical.write(content)
        lines.append(Line(number=len(lines), kind=str(kind), prev=head, body=body))
    return tuple(lines)


def _told(lines: tuple[Line, ...]) -> bytes:
    return canonical.write({"said": [[line.kind, line.content] for line in lines]})


def _books(*, data: bytes, trust: str) -> None:
    """Books that a forger wrote: those that are kept pay for the noise, and no more is drawn."""
    match canonical.read(data):
        case {"said": list() as said} if all(isinstance(o, list) and len(o) == 2 for o in said):
            lines = _forged(said)
        case _:
            raise InvalidValueError("these are no lines")
    audit_log = AuditLog.of(lines)
    audit_log.check(read_deployment(audit_log.task))
    assert audit_log.spent().epsilon <= audit_log.budget.epsilon * (1 + 1e-9), "overspent"
    check_releases(audit_log, _field(trust)[1])


def _verify(*, data: bytes, visits: Any, head: Any) -> None:
    path = _scratch() / f"chain-{os.getpid()}"
    path.write_bytes(data)
    lines, _ = load_chain(str(path))
    if not isinstance(visits, int) or not isinstance(head, str | None):
        raise InvalidValueError("the commands take no such thing")
    said = verify(lines, visits=visits, head=head)
    assert said.audit_log.head == lines[-1].hash


# Tasks that strangers wrote.

_MOST_COINS = 2**22


def _deployed(*, data: bytes) -> None:
    task = Task.read(data)
    deployment = read_deployment(task)
    assert deployment.task.data == data, "another task"


def _take_part(*, data: bytes) -> None:
    """Whatever a task says, what a device reports is within the task's own bounds."""
    task, moments = Task.read(data), iter((0.0,))
    # The decision is made at 0 and reported long after any window.
    device = Device(task, clock=lambda: next(moments, 1e18))
    if any(_work(noise) > _MOST_COINS for noise in task.noise):
        raise InvalidValueError("too much to toss here")
    id = _begun(device, task)
    device.reward(id, task.reward.default)
    status = Status(task=task.id, state="running", epoch=0, label=0)
    Report.read(device.report(id, status), task)


def _work(noise: Any) -> int:
    if isinstance(noise, Coins):
        return noise.size * max(noise.coins)
    return noise.size * noise.bits * 64 if isinstance(noise, Bits) else int(noise.size)


def _begun(device: Device, task: Task) -> str:
    program: Any = task.program
    if program.kind == "answering":
        if program.questions > 1:
            raise InvalidValueError("one loss is all there is")
        return device.accept_question(bytes(16))
    if program.dim > 64:
        raise InvalidValueError("too long for here")
    zeros: dict[str, Any] = {"estimate": np.zeros(program.dim), "inverse": np.eye(program.dim)}
    zeros["width"] = 0.0
    if program.kind == "own-models":
        if program.arms > 64:
            raise InvalidValueError("too many for here")
        shape = (program.arms, program.dim)
        zeros = {"estimate": np.zeros(shape), "sample": np.zeros((*shape, program.dim))}
    blank: Any = dict.fromkeys(("version", "release", "round", "length"), 0)
    arrays = {name: Numbers.of(np.asarray(one)) for name, one in zeros.items()}
    model = Model(task=task.id, head=bytes(32), arrays=arrays, **blank)
    dim = program.dim if task.projection is None else task.projection.dim
    return device.decide(model, np.zeros((1, dim))).id


# Devices.


def _seen(device: Device) -> Any:
    return device.spent(), device.due(1e18)


def _act(*, features: Any, allowed: Any, reward: Any, trust: str) -> None:
    """A visit on a device with its user's own budget: what is refused costs nothing."""
    budget = Budget(epsilon=1.0, delta=1e-5) if trust == "local" else None
    device = _device(trust, budget=budget)
    _, model, status = _visit(trust)
    with untouched(lambda: _seen(device)):
        decision = device.decide(Model.read(model), features, allowed)
    assert 0 <= int(decision.arm) < len(features), "no such arm"
    assert allowed is None or np.asarray(allowed)[decision.arm], "an arm that is not allowed"
    with untouched(lambda: _seen(device)):
        device.reward(decision.id, reward)
    Report.read(device.report(decision.id, Status.read(status)), device.task)


def _choose(*, model: bytes, policy: str) -> None:
    """A model that a stranger posted."""
    device = _device("central", policy)
    with untouched(lambda: _seen(device)):
        decision = device.decide(Model.read(model), FEATURES)
    assert 0 <= int(decision.arm) < 3, "no such arm"


def _tell(*, status: bytes, id: Any, now: Any, trust: str) -> None:
    """A status that a stranger wrote: a refused report is not paid for, and can be made yet."""
    budget = Budget(epsilon=1.0, delta=1e-5) if trust == "local" else None
    device = _device(trust, budget=budget)
    decision = device.decide(Model.read(_visit(trust)[1]), FEATURES)
    with untouched(lambda: _seen(device)):
        device.due(now)
        name = decision.id if isinstance(id, str) and id == "" else id
        report = device.report(name, Status.read(status))
    assert Report.read(report, device.task).epoch == Status.read(status).epoch


def _ask(*, question: bytes, losses: Any) -> None:
    device = Device(asking(), budget=Budget(epsilon=1.0))
    with untouched(lambda: _seen(device)):
        id = device.accept_question(question)
    with untouched(lambda: _seen(device)):
        device.reward(id, losses)
    status = Status(task=device.task.id, state="running", epoch=0, label=0)
    Report.read(device.report(id, status), device.task)


# Aggregators and learners.


class _Open:
    """An aggregator that is opened anew when its horizon is over."""

    def __init__(self, trust: str) -> None:
        self.deployment = _build_deployment(trust)
        self.renew()

    def renew(self) -> None:
        self.store = SQLiteStore.memory()
        self.aggregator = Aggregator(self.deployment, store=self.store)
        self.status = self.aggregator.status()
        self.taken = 0

    def seen(self) -> Any:
        with self.store.read(self.deployment.task.id) as at:
            row, counts = at.row(), at.counts()
        return row, counts


_opened = functools.cache(_Open)


def _take(*, data: bytes, trust: str) -> None:
    """An aggregator that strangers write to: refused reports change nothing, others count once."""
    field = _opened(trust)
    if field.taken > 40:
        field.renew()
    before = field.seen()
    fresh = data[:44] + os.urandom(16) + data[60:] if len(data) > 60 else data
    (refused,) = field.aggregator.take([fresh])
    if refused is not None:
        assert field.seen() == before, "a refused report left a trace"
        raise refused
    field.taken += 1
    after = field.seen()
    assert field.aggregator.take([fresh, fresh]) == (None, None), "what counts is refused later"
    assert field.seen() == after, "a report counts twice"


def _follow(*, data: bytes, trust: str) -> None:
    learner = Learner(_build_deployment(trust))
    learner.follow(_field(trust)[1][:1])
    with untouched(lambda: (learner.users, learner.releases, learner.model)):
        learner.follow([data])
    finite({name: learner.model[name] for name in learner.model.arrays})


# Bandits.

_PLAYED = (
    ("linucb", "none", "usual"),
    ("linucb", "local", "usual"),
    ("linucb", "central", "usual"),
    ("linucb", "joint", "usual"),
    ("linucb", "shuffle", "usual"),
    ("glm", "local", "usual"),
    ("linucb-pairs", "local", "usual"),
    ("sampling", "local", "usual"),
    ("linucb", "none", "tiny"),
    ("linucb", "local", "tiny"),
    ("linucb", "none", "huge"),
    ("linucb", "local", "large"),
    ("linucb", "local", "one"),
    ("own-models", "central", "usual"),
    ("own-models", "none", "tiny"),
    ("own-models", "none", "huge"),
)


class _Player:
    """A bandit that is made anew when its horizon is over."""

    def __init__(self, policy: str, trust: str, size: str) -> None:
        self.problem = _facts(policy, size)
        self._make = functools.partial(
            Bandit, policy=policy, problem=self.problem, guarantee=promise(trust), window_s=0
        )
        self.bandit = self._make()

    def renew(self) -> None:
        if self.bandit.users >= self.problem.horizon:
            self.bandit.close()
            self.bandit = self._make()
        # A refused call reports what waits, as every call does.
        self.bandit.expire()

    def seen(self) -> Any:
        bandit = self.bandit
        return bandit.users, bandit.spent(), len(bandit._device.due(1e18))


_player = functools.cache(_Player)


def _step(player: _Player, *, features: Any, allowed: Any, reward: Any, id: Any, now: Any) -> None:
    """A decision and its reward; the scale of valid values is the problem's."""
    player.renew()
    bandit, scale = player.bandit, player.problem.norm
    if features is FEATURES or features is SAME:
        features = features[: player.problem.arms, : player.problem.dim] * scale
        allowed = None if allowed is None else MASK[: player.problem.arms]
    with untouched(player.seen):
        choice = bandit.decide(features, allowed)
    assert 0 <= int(choice.arm) < len(features), "no such arm"
    assert allowed is None or np.asarray(allowed)[choice.arm], "an arm that is not allowed"
    before = bandit.users
    with untouched(player.seen):
        bandit.reward(choice.id if isinstance(id, str) and id == "" else id, reward)
    with untouched(player.seen):
        bandit.expire(now)
    assert bandit.users >= before
    finite(bandit.model)


def _bandit_target(policy: str, trust: str, size: str) -> Target:
    def call(**arguments: Any) -> None:
        _step(_player(policy, trust, size), **arguments)

    middle = EXTREME.get(size, FACTS)
    return Target(
        name=f"bandit:{policy} {trust} {size}",
        call=call,
        samples={
            "features": (FEATURES, FEATURES, SAME),
            "allowed": (None, MASK),
            "reward": (middle.low, middle.high),
            "id": ("",),
            "now": (None, 0.0),
        },
        weight=0.4,
    )


def _make_bandit(*, folder: Any, **arguments: Any) -> None:
    """Nothing is left behind by a bandit that was not made."""
    epsilon, delta, trust = (arguments.pop(name) for name in ("epsilon", "delta", "trust"))
    guarantee = (
        promise("none")
        if str(trust) == "none"
        else Guarantee(epsilon=epsilon, delta=delta, trust=trust)
    )
    home = _scratch() / f"bandit-{os.getpid()}"
    path = None if folder is None else home / f"{folder}"
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, home, ignore_errors=True)
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore", WeakGuaranteeWarning)
        warnings.simplefilter("ignore", DelayedLearningWarning)
        with Bandit(problem=FACTS, guarantee=guarantee, path=path, **arguments) as bandit:
            finite(bandit.model)
            assert bandit.spent().epsilon <= guarantee.epsilon * (1 + 1e-9), "overspent"


@functools.cache
def _kept() -> Mapping[str, bytes]:
    """The files of a bandit that lives in a folder."""
    home = Path(tempfile.mkdtemp(prefix="kerchief-kept-")) / "bandit"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WeakGuaranteeWarning)
        bandit = Bandit(
            policy="linucb", problem=FACTS, guarantee=promise("joint"), window_s=0, path=home
        )
    for _ in range(3):
        bandit.reward(bandit.decide(FEATURES).id, 0.5)
    bandit.decide(FEATURES)
    # The last decision waits: the process was killed.
    bandit._release_files()
    names = ("aggregator.db", "device.db", "witness")
    kept = {name: (home / name).read_bytes() for name in names}
    shutil.rmtree(home.parent)
    return kept


def _open(*, place: str, data: bytes) -> None:
    """A bandit whose file was altered is refused, or goes on with finite numbers."""
    home = Path(tempfile.mkdtemp(dir=_scratch()))
    try:
        for name, content in (*_kept().items(), (place, data)):
            (home / name).write_bytes(content)
        with Bandit.open(home) as bandit:
            bandit.reward(bandit.decide(FEATURES).id, 0.5)
            finite(bandit.model)
            assert bandit.users == 4, "somebody was lost"
    finally:
        shutil.rmtree(home)


def _open_place(*, name: Any, kind: Any) -> None:
    """Paths that are none."""
    home = _scratch() / f"paths-{os.getpid()}"
    home.mkdir(exist_ok=True)
    path = home / str(name)
    try:
        match kind:
            case "store":
                open_store(path).close()
            case "witness":
                FileWitness(path).swap(bytes(32), None, bytes(32))
            case "pending":
                Pending(path).close()
            case _:
                Bandit.open(path)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _on_wire(
    name: str, call: Callable[..., None], weight: float, **samples: tuple[Any, ...]
) -> Target:
    """A target that takes bytes, which stay bytes."""
    held = frozenset(key for key, values in samples.items() if isinstance(values[0], bytes))
    return Target(name=name, call=call, samples=samples, held=held, weight=weight)


def strangers() -> list[Target]:
    """All targets of this file."""
    partial, closed = functools.partial, frozenset
    chain, releases = _field("central")
    tree = {"a": [1, "x", None], "b": {"c": True}}
    return [
        _on_wire(
            "protocol.canonical:read", _canonical, 3, data=(_tasks()[0], canonical.write(tree))
        ),
        Target(
            name="protocol.canonical:write",
            call=_write,
            samples={"value": (tree, [1, 2], "x", _deep())},
            weight=0.5,
        ),
        _on_wire("protocol.task:Task.read", _task, 10, data=_tasks()),
        _on_wire("protocol.model:Model.read", _model, 5, data=(_visit("central")[1],)),
        _on_wire("protocol.model:Status.read", _status, 2, data=(_visit("central")[2],)),
        _on_wire("protocol.signing:Signed.read", _signed, 2, data=(_signing()[1],)),
        Target(
            name="protocol.model:Numbers.of",
            call=_array,
            samples={"array": (np.eye(2), np.arange(3), np.array(True))},
            closed=closed({"array"}),
            weight=0.02,
        ),
        *(
            _on_wire(
                f"protocol.report:Report.read {trust}",
                partial(_report, trust=trust),
                5,
                data=(_visit(trust)[0],),
            )
            for trust in TRUSTS
        ),
        _on_wire("protocol.report:Release.read", _release, 3, data=releases[:1]),
        _on_wire("protocol.chain:read_chain", _chain, 3, data=(write_chain(chain),)),
        *(
            _on_wire(
                f"deployment.audit_log:AuditLog.of {trust}",
                partial(_books, trust=trust),
                0.3,
                data=(_told(_field(trust)[0]),),
            )
            for trust in ("central", "joint")
        ),
        Target(
            name="deployment.verify:verify",
            call=_verify,
            samples={
                "data": (write_chain(chain),),
                "visits": (1, 3),
                "head": (None, chain[-1].hash.hex()),
            },
            held=closed({"data"}),
            weight=0.3,
        ),
        _on_wire("deployment.deployment:read_deployment", _deployed, 0.3, data=_tasks()),
        _on_wire(
            "device.device:Device",
            _take_part,
            2,
            data=(*_tasks()[:4], _build_deployment("local", "own-models").task.data, asking().data),
        ),
        *(
            Target(
                name=f"device:visit {trust}",
                call=partial(_act, trust=trust),
                samples={
                    "features": (FEATURES, SAME),
                    "allowed": (None, MASK),
                    "reward": (0.5, 1.0),
                },
                weight=1,
            )
            for trust in ("local", "central")
        ),
        *(
            _on_wire(
                f"device:model {policy}",
                partial(_choose, policy=policy),
                weight,
                model=(_visit("central", policy)[1],),
            )
            for policy, weight in (("linucb", 2), ("own-models", 1), ("greedy", 1))
        ),
        *(
            Target(
                name=f"device:status {trust}",
                call=partial(_tell, trust=trust),
                samples={"status": (_visit(trust)[2],), "id": ("",), "now": (None, 0.0)},
                held=closed({"status"}),
                weight=1,
            )
            for trust in ("local", "shuffle")
        ),
        Target(
            name="device:question",
            call=_ask,
            samples={"question": (bytes(16),), "losses": ([0.5], 0.5, np.array([0.5]))},
            held=closed({"question"}),
        ),
        *(
            _on_wire(
                f"deployment.aggregator:Aggregator {trust}",
                partial(_take, trust=trust),
                2,
                data=(_visit(trust)[0],),
            )
            for trust in TRUSTS
        ),
        *(
            _on_wire(
                f"deployment.learner:Learner {trust}",
                partial(_follow, trust=trust),
                0.3,
                data=_field(trust)[1][1:2] or _field(trust)[1][:1],
            )
            for trust in ("local", "joint", "shuffle")
        ),
        *(_bandit_target(*played) for played in _PLAYED),
        Target(
            name="deployment.bandit:Bandit",
            call=_make_bandit,
            samples={
                "policy": ("linucb", "uniform"),
                "mode": ("tuned", "theory"),
                "mechanism": ("best", "gaussian"),
                "numbers": ({}, {"exploration": 0.5}),
                "name": (None, "a bandit"),
                "window_s": (0, 86_400),
                "default": (None, 0.5),
                "epsilon": (1.0,),
                "delta": (1e-6,),
                "trust": ("local", "central", "none"),
                "folder": (None, "bandit"),
            },
            held=closed({"numbers"}),
            weight=0.1,
        ),
        *(
            Target(
                name=f"deployment.bandit:Bandit.open {place}",
                call=_open,
                samples={"place": (place,), "data": (content,)},
                closed=closed({"place"}),
                held=closed({"data"}),
                weight=0.1,
            )
            for place, content in _kept().items()
        ),
        Target(
            name="stores:paths",
            call=_open_place,
            samples={"name": ("a", "b"), "kind": ("store", "witness", "pending", "bandit")},
            closed=closed({"kind"}),
            weight=0.2,
        ),
    ]


def _deep() -> Any:
    ring: list[Any] = []
    ring.append(ring)
    return ring


BY_STRANGERS = {
    "device.device:Device": "device.device:Device",
    "device.file_rows:FileRows": "stores:paths",
    "device.memory_rows:MemoryRows": "device:visit local",
    "device.pending:Budget": "device:visit local",
    "device.pending:Pending": "stores:paths",
    "device.programs:LossReports": "device.device:Device",
    "device.phased:Survey": "device.device:Device",
    "device.disjoint_models:DisjointSampling": "device.device:Device",
    "device.programs:Optimism": "device.device:Device",
    "device.record:Moments": "device.device:Device",
    "deployment.admission:Places": "deployment.aggregator:Aggregator local",
    "deployment.bandit:Bandit": "deployment.bandit:Bandit",
    "deployment.bandit:Bandit.open": "deployment.bandit:Bandit.open aggregator.db",
    "deployment.audit_log:AuditLog.of": "deployment.audit_log:AuditLog.of central",
    "deployment.audit_log:ChainReader": "deployment.audit_log:AuditLog.of central",
    "deployment.deployment:deploy": "deployment.bandit:Bandit",
    "deployment.deployment:read_deployment": "deployment.deployment:read_deployment",
    "deployment.release_batch:ReleaseBatch": "deployment.aggregator:Aggregator local",
    "deployment.learner:Form": "device:model greedy",
    "deployment.learner:Learner": "deployment.learner:Learner joint",
    "deployment.library_code:LibraryCode": "device:model greedy",
    "deployment.aggregator:Aggregator": "deployment.aggregator:Aggregator local",
    "deployment.population:PopulationLearner": "deployment.learner:Learner joint",
    "deployment.pool:CandidatePool": "bandit:linucb local usual",
    "deployment.pool:PooledGaussian": "bandit:linucb central usual",
    "deployment.record_check:RecordCheck": "deployment.aggregator:Aggregator joint",
    "deployment.verify:check_payloads": "deployment.audit_log:AuditLog.of central",
    "deployment.verify:check_releases": "deployment.audit_log:AuditLog.of central",
    "deployment.verify:load_chain": "deployment.verify:verify",
    "deployment.verify:verify": "deployment.verify:verify",
    "deployment.witnessed_store:WitnessedStore": "deployment.aggregator:Aggregator local",
    "stores.opening:open_store": "stores:paths",
    "stores.sqlite:SQLiteStore": "stores:paths",
    "stores.memory:MemoryStore": "deployment.aggregator:Aggregator local",
    "stores.sqlite:SQLiteStore.memory": "deployment.aggregator:Aggregator local",
    "stores.witness:FileWitness": "stores:paths",
    "stores.witness:StoreWitness": "deployment.aggregator:Aggregator local",
    "protocol.canonical:pack": "protocol.task:Task.read",
    "protocol.canonical:read": "protocol.canonical:read",
    "protocol.canonical:read_as": "protocol.task:Task.read",
    "protocol.canonical:unpack": "protocol.task:Task.read",
    "protocol.canonical:write": "protocol.canonical:write",
    "protocol.chain:write_chain": "protocol.chain:read_chain",
    "protocol.chain:check_chain": "protocol.chain:read_chain",
    "protocol.chain:read_chain": "protocol.chain:read_chain",
    "device.rows:PostedModel.of": "protocol.model:Model.read",
    "device.rows:PostedModel.stored": "protocol.model:Model.read",
    "protocol.model:Model.read": "protocol.model:Model.read",
    "protocol.model:Numbers": "protocol.model:Model.read",
    "protocol.model:Numbers.of": "protocol.model:Numbers.of",
    "protocol.model:Status.read": "protocol.model:Status.read",
    "protocol.signing:Signed": "protocol.signing:Signed.read",
    "protocol.signing:Signed.read": "protocol.signing:Signed.read",
    "protocol.signing:Signer": "protocol.signing:Signed.read",
    "protocol.parties:Party": "protocol.task:Task.read",
    "protocol.noise:Rounded": "protocol.task:Task.read",
    "protocol.report:Release.read": "protocol.report:Release.read",
    "protocol.report:Report.read": "protocol.report:Report.read local",
    "protocol.report:Report.read_all": "protocol.report:Report.read local",
    "protocol.task:Promise": "protocol.task:Task.read",
    "protocol.task:Task": "protocol.task:Task.read",
    "protocol.task:Task.read": "protocol.task:Task.read",
}
"""What strangers reach, each with the target that makes it."""
