"""Targets that are more than one call: ledgers, codecs, roles and commands.

Each keeps something alive between inputs, so that nothing is compiled twice, and looks after every
input whether a refusal left a trace: a receipt that nobody got anything for, or a number that is
not finite in what is posted.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from click.testing import CliRunner
from kerchief.roles.messages import Ask, Batch, Message, Mixed, Post, Reports
from tests.fuzz.samples import SAMPLES
from tests.fuzz.targets import Target

from kerchief.cli.main import main
from kerchief.core.codec import decode, encode
from kerchief.core.contracts import Arms, Clock, Outlook
from kerchief.core.convex import Ball
from kerchief.core.errors import CapacityExceeded, InvalidValue, KerchiefError, WeakPromise
from kerchief.core.problems import ContextFreeProblem, Problem
from kerchief.core.random import Stream
from kerchief.environments import ChanceArms, Population, make_environment
from kerchief.experiments.folder import Folder
from kerchief.policies import POLICIES
from kerchief.privacy import Cohort, Gaussian, Guarantee, MemoryLedger, Trust
from kerchief.privatizers import Protection, protect
from kerchief.roles import (
    Answerer,
    Asker,
    Bandit,
    Curator,
    Device,
    InProcess,
    Mixer,
    Shuffler,
    drive,
)
from kerchief.roles.arrange import Arranged, arrange
from kerchief.simulation import simulate

__all__ = ["BY_HAND", "sessions"]

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


def promise(trust: str, *, epsilon: float = 1.0, delta: float = 1e-6) -> Guarantee:
    """What is promised under a trust."""
    if trust == "none":
        return Guarantee(epsilon=np.inf, delta=0.0, trust=Trust.NONE)
    return Guarantee(epsilon=epsilon, delta=delta, trust=Trust(trust))


@contextlib.contextmanager
def unchanged(ledger: Any) -> Iterator[None]:
    """A refusal leaves no receipt behind."""
    before = ledger.receipts
    try:
        yield
    except KerchiefError:
        assert ledger.receipts == before, "a charge without a release"
        raise


def finite(tree: Any) -> None:
    """No number of a posted model is NaN, and no estimate endless."""
    for leaf in jax.tree.leaves(tree):
        number = np.asarray(leaf)
        assert number.dtype.kind != "f" or not np.isnan(number).any(), "a NaN in the model"


# Ledgers.


def _charge(*, event: Any, cohort: Any, capacity: Any) -> None:
    ledger = MemoryLedger(promise("local", epsilon=3.0))
    ledger.charge(Gaussian(noise_multiplier=20.0), cohort=Cohort(first=0, last=5))
    with unchanged(ledger):
        ledger.charge(event, cohort=cohort, capacity=capacity)
    assert ledger.spent().epsilon <= 3.0 * (1 + 1e-9), "overspent"
    assert MemoryLedger.loads(ledger.dumps()).receipts == ledger.receipts, "the file differs"


def _settle(*, used: Any, capacity: Any) -> None:
    ledger = MemoryLedger(promise("local", epsilon=3.0))
    paid = ledger.charge(
        Gaussian(noise_multiplier=30.0), cohort=Cohort(first=0, last=5), capacity=capacity
    )
    with unchanged(ledger):
        ledger.settle(paid, used)


# Codecs.


@functools.cache
def _texts() -> tuple[str, ...]:
    """One text of every kind that is ever written, messages of every role first."""
    clock = Clock(round=jnp.int32(0), since={"moments": jnp.int32(1)})
    report = {"moments": np.arange(5.0)}
    policy: Any = POLICIES["linucb"].build(FACTS, "tuned")
    values: tuple[Any, ...] = (
        Reports(ticket="a", answers=report),
        Batch(answers=(report, report)),
        Mixed(users=2, answers=report),
        Ask(query="moments", clock=clock),
        Post(model=policy.publish(policy.init({"moments": Outlook(noisy=True)})), clock=clock),
        policy,
        dict(protect(policy, Protection(guarantee=promise("central")), horizon=60)),
        FACTS,
        promise("local"),
        SAMPLES["events"][0],
        {"a": (1, [2.5, None]), "b": np.array([1, np.nan], np.float32), "map": {}},
    )
    return tuple(encode(value) for value in values)


def _decode(*, text: Any) -> None:
    value = decode(text)
    again = encode(value)
    assert encode(decode(again)) == again, "the codec changes it"


def _encode(*, value: Any) -> None:
    text = encode(value)
    again = decode(text)
    assert encode(again) == text, "the codec changes it"
    if isinstance(value, np.ndarray):
        assert np.array_equal(again, np.asarray(value), equal_nan=value.dtype.kind == "f")


def _deep() -> Any:
    deep: Any = []
    for _ in range(5000):
        deep = [deep]
    ring: list[Any] = []
    ring.append(ring)
    return ({"a": (1, 2.5)}, np.eye(2), np.float64(0.5), (deep,), ring, FACTS)


@functools.cache
def _saved() -> tuple[str, ...]:
    made = []
    for trust in ("local", "central"):
        bandit = Bandit(policy="linucb", problem=FACTS, guarantee=promise(trust))
        bandit.decide(FEATURES)
        bandit.learn(0.5)
        made.append(bandit.save())
    return tuple(made)


def _load(*, text: Any) -> None:
    bandit = Bandit.load(text)
    bandit.decide(FEATURES)
    bandit.learn(0.5)
    finite(bandit.model)


# Bandits.

_PLAYED = (
    ("linucb", "none", "usual"),
    ("linucb", "local", "usual"),
    ("linucb", "central", "usual"),
    ("linucb", "joint", "usual"),
    ("linucb", "shuffle", "usual"),
    ("glm", "local", "usual"),
    ("linucb-pairs", "local", "usual"),
    ("linucb", "none", "tiny"),
    ("linucb", "local", "tiny"),
    ("linucb", "none", "huge"),
    ("linucb", "local", "large"),
    ("linucb", "local", "one"),
)


class _Player:
    """A bandit that is made anew when its horizon is over."""

    def __init__(self, policy: str, trust: str, size: str) -> None:
        self.problem = EXTREME.get(size, FACTS)
        self.ledger = MemoryLedger(promise(trust))
        self._make = functools.partial(
            Bandit, policy=policy, problem=self.problem, guarantee=promise(trust)
        )
        self.bandit = self._make(ledger=self.ledger)

    def renew(self) -> None:
        if self.bandit.round >= self.problem.horizon:
            self.ledger = MemoryLedger(self.ledger.budget)
            self.bandit = self._make(ledger=self.ledger)


_player = functools.cache(_Player)


def _step(player: _Player, *, features: Any, allowed: Any, reward: Any) -> None:
    """A decision and its reward; the scale of valid values is the problem's."""
    player.renew()
    bandit, scale = player.bandit, player.problem.norm
    if features is FEATURES or features is SAME:
        features = features[: player.problem.arms, : player.problem.dim] * scale
        allowed = None if allowed is None else MASK[: player.problem.arms]
    with unchanged(player.ledger):
        arm = bandit.decide(features, allowed)
        rows = np.asarray(features)
        assert 0 <= arm < len(rows), "no such arm"
        assert allowed is None or np.asarray(allowed)[arm], "an arm that is not allowed"
        before = bandit.round
        try:
            bandit.learn(reward)
        except KerchiefError:
            assert bandit.round == before, "a refused reward ended the round"
            raise
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
        },
        weight=0.4,
    )


def _make_bandit(**arguments: Any) -> None:
    epsilon, delta, trust = (arguments.pop(name) for name in ("epsilon", "delta", "trust"))
    guarantee = (
        promise("none")
        if str(trust) == "none"
        else Guarantee(epsilon=epsilon, delta=delta, trust=trust)
    )
    ledger = MemoryLedger(guarantee)
    with unchanged(ledger), warnings.catch_warnings():
        warnings.simplefilter("ignore", WeakPromise)
        bandit = Bandit(problem=FACTS, guarantee=guarantee, ledger=ledger, **arguments)
    finite(bandit.model)
    assert bandit.spent().epsilon <= guarantee.epsilon * (1 + 1e-9), "overspent"


# Roles.


@functools.cache
def _linucb(trust: str, exact: bool = True) -> tuple[Any, Any]:
    policy = POLICIES["linucb"].build(FACTS, "tuned")
    privatizers = protect(policy, Protection(guarantee=promise(trust)), horizon=FACTS.horizon)
    if exact:
        privatizers = {name: one.exact() for name, one in privatizers.items()}
    return policy, privatizers


@functools.cache
def _post() -> Post:
    policy, privatizers = _linucb("local")
    state = policy.init({name: one.outlook for name, one in privatizers.items()})
    clock = Clock(round=jnp.int32(0), since={"moments": jnp.int32(1)})
    return Post(model=jax.jit(policy.publish)(state), clock=clock)


def _visit(*, features: Any, allowed: Any, reward: Any) -> None:
    """A device with its user's own ledger: what is refused costs nothing."""
    policy, privatizers = _linucb("local")
    ledger = MemoryLedger(promise("local"))
    device = Device(policy=policy, privatizers=privatizers, ledger=ledger)
    with unchanged(ledger):
        action = device.act(_post(), Arms(features=features, allowed=allowed), _ROOT)
        assert np.asarray(allowed)[action], "an arm that is not allowed"
        reports = device.reports(reward, None)
    assert len(ledger.receipts) == 1, "a report without a charge"
    assert np.isfinite(reports.answers["moments"]).all(), "a report that is not finite"


_ROOT = Stream.of(seed=0, replicate=0)


class _Middle:
    """A curator that is opened anew when its horizon is over."""

    def __init__(self, trust: str) -> None:
        self.trust = trust
        self.renew()

    def renew(self) -> None:
        _, privatizers = _linucb(self.trust)
        self.ledger = MemoryLedger(promise(self.trust))
        self.curator = Curator(
            privatizers=privatizers, ledger=self.ledger, horizon=FACTS.horizon, stream=None
        )
        self.curator.open()


_aggregator = functools.cache(_Middle)


def _curate(*, text: Any, trust: str) -> None:
    """A curator that strangers write to: refused messages change nothing."""
    aggregator = _aggregator(trust)
    if aggregator.curator.users > FACTS.horizon - 10:
        aggregator.renew()
    before = aggregator.curator.users
    try:
        with unchanged(aggregator.ledger):
            aggregator.curator.handle(_message(text))
    except KerchiefError:
        assert aggregator.curator.users == before, "a refused message counted"
        raise


def _message(text: Any) -> Message:
    message = decode(text)
    if not isinstance(message, Message):
        raise InvalidValue("not a message")
    return message


def _gather(*, text: Any, kind: str, ends: Any) -> None:
    """A shuffler or a mixer that strangers write to."""
    carrier = InProcess()
    gatherer: Any = (
        Mixer(ends=ends, transport=carrier, to="nobody")
        if kind == "mixer"
        else Shuffler(size=max(ends) if ends else 1, transport=carrier, to="nobody")
    )
    gatherer.handle(_message(text))


def _send(*, to: Any, text: Any) -> None:
    carrier = InProcess()
    carrier.register("curator", _Echo())
    carrier.send(to, _message(text))


class _Echo:
    def handle(self, message: Message) -> Message:
        return message


@functools.cache
def _questions(name: str) -> Arranged:
    problems = {
        "tsallis": ContextFreeProblem(horizon=2000, low=0.0, high=1.0, arms=3),
        "two-point": ContextFreeProblem(
            horizon=2000, low=0.0, high=1.0, domain=Ball(dim=2), lipschitz=1.0
        ),
    }
    return arrange(name, problems[name], Protection(guarantee=promise("local")))


_ACTIONS = {"tsallis": np.array(1), "two-point": np.array([[0.1, 0.2], [0.3, 0.4]])}


def _answer(*, name: str, round: Any, losses: Any) -> None:
    ledger = MemoryLedger(promise("local", epsilon=9.0))
    device = Answerer(_questions(name), ledger=ledger)
    with unchanged(ledger):
        report = device.answer(round, _ACTIONS[name], losses)
    assert len(ledger.receipts) == 1, "a report without a charge"
    assert np.isfinite(report).all(), "a report that is not finite"


@functools.cache
def _asker(name: str) -> list[Asker]:
    return []


def _learn(*, name: str, report: Any) -> None:
    kept = _asker(name)
    if not kept or kept[0].stopped:
        kept[:] = [Asker(_questions(name), ledger=MemoryLedger(promise("local")))]
    server = kept[0]
    action, before = server.ask(), server.round
    finite(action)
    try:
        server.learn(report)
    except KerchiefError:
        assert server.round == before, "a refused report ended the round"
        raise
    finite(server.recommendation)


# Protection and simulation.


def _protect(**arguments: Any) -> None:
    names = ("epsilon", "delta", "trust", "mechanism")
    epsilon, delta, trust, mechanism = (arguments.pop(name) for name in names)
    guarantee = Guarantee(epsilon=epsilon, delta=delta, trust=trust)
    policy, _ = _linucb("local")
    protection = Protection(guarantee=guarantee, mechanism=mechanism)
    privatizers = protect(policy, protection, **arguments)
    for privatizer in privatizers.values():
        for noise in privatizer.noises:
            finite(noise.std)


def _sizes(run: Callable[..., Any]) -> Callable[..., None]:
    def call(**sizes: Any) -> None:
        ledger = MemoryLedger(promise("none"))
        with unchanged(ledger):
            run(ledger=ledger, **sizes)

    return call


def _simulate(world: Any, **sizes: Any) -> None:
    policy = POLICIES["uniform"].build(world.problem(20), "tuned")
    simulate(policy=policy, privatizers={}, environment=world, **sizes)


_WORLDS = {
    "": make_environment(dim=2, arms=3),
    " without contexts": ChanceArms.of(arms=3),
    " by phases": Population.of(dim=2, arms=3, clients=20),
}


def _arrange(*, policy: Any, mode: Any, numbers: Any, **promised: Any) -> None:
    guarantee = Guarantee(**{name: promised[name] for name in ("epsilon", "delta", "trust")})
    protection = Protection(guarantee=guarantee, mechanism=promised["mechanism"])
    made = arrange(policy, FACTS, protection, mode=mode, numbers=numbers)
    for privatizer in made.privatizers.values():
        for noise in privatizer.noises:
            finite(noise.std)


def _drive(*, ticks: Any, replicates: Any, first_replicate: Any, **sizes: Any) -> None:
    world = make_environment(dim=2, arms=3)
    policy: Any = POLICIES["uniform"].build(world.problem(50), "tuned")
    drive(policy=policy, privatizers={}, environment=world, replicate=first_replicate, **sizes)


_SIZES = {
    "horizon": (20,),
    "replicates": (2,),
    "seed": (0, 7),
    "first_replicate": (0,),
    "ticks": (4,),
}


# Commands.


@functools.cache
def _folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="kerchief-fuzz-"))


def _command(*, words: tuple[str, ...], **options: Any) -> None:
    """Run a command: it ends with 0, 1 or 2, and what it says on failure is one line."""
    line = list(words)
    for name, value in options.items():
        if value is not None:
            line += [f"--{name.replace('_', '-')}", str(value)]
    _invoke(line)


def _invoke(line: list[str]) -> None:
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(_folder() / "compiled"))
    try:
        for word in line:
            word.encode()
    except UnicodeEncodeError:
        raise InvalidValue("no shell can pass such a word") from None
    result = CliRunner().invoke(main, line)
    fault = result.exception
    if fault is not None and not isinstance(fault, SystemExit):
        raise fault
    assert result.exit_code in (0, 1, 2), f"it left with {result.exit_code}"
    if result.exit_code == 2:
        reason = result.stderr.strip().rpartition("\n")[2]
        assert reason.startswith("kerchief: error: "), "it left without a reason"
        raise InvalidValue(reason)


def _show(*, text: Any, visits: Any) -> None:
    path = _folder() / f"ledger-{os.getpid()}.json"
    path.write_text(text if isinstance(text, str) else json.dumps(str(text)), "utf-8", "replace")
    _invoke(["ledger", "show", str(path), "--visits", str(visits), "--json"])


def _listing(*, kind: Any) -> None:
    _invoke(["list", str(kind), "--json"])


def _open_folder(*, name: Any) -> None:
    Folder.at(_folder() / str(name))


_CALIBRATE = {
    "epsilon": (1.0, 0.5),
    "delta": (1e-5,),
    "trust": ("local", "central"),
    "env": ("linear", "logistic"),
    "dim": (2, 5),
    "radius": (1.0,),
    "horizon": (1000,),
    "sensitivity": (None, 1.0),
}
_PLAY = {
    "env": ("linear",),
    "contexts": ("ball",),
    "dim": (2,),
    "arms": (3,),
    "radius": (1.0,),
    "horizon": (20,),
    "policy": ("uniform",),
    "trust": ("none",),
    "epsilon": (1.0,),
    "delta": (1e-5,),
    "replicates": (2,),
    "seed": (0,),
    "mode": ("tuned",),
    "device": ("cpu",),
}


def sessions() -> list[Target]:
    """All targets of this file.

    Commands that play take seconds where they accept: they are told of a device that is not there,
    which they notice last, after everything else was checked.
    """
    closed = frozenset
    one = [
        Target(
            name="ledger:charge",
            call=_charge,
            samples={key: SAMPLES[key] for key in ("event", "cohort", "capacity")},
            weight=0.3,
        ),
        Target(
            name="ledger:settle",
            call=_settle,
            samples={"used": (0, 1), "capacity": (1, 3)},
            closed=closed({"capacity"}),
        ),
        Target(name="core.codec:decode", call=_decode, samples={"text": _texts()}, weight=20),
        Target(name="core.codec:encode", call=_encode, samples={"value": _deep()}, weight=0.5),
        Target(name="roles.bandit:Bandit.load", call=_load, samples={"text": _saved()}),
        *(_bandit_target(*played) for played in _PLAYED),
        Target(
            name="roles.bandit:Bandit",
            call=_make_bandit,
            samples={
                "policy": ("linucb", "uniform"),
                "noise": ("exact",),
                "seed": (None,),
                "mode": ("tuned",),
                "mechanism": ("best", "gaussian"),
                "epsilon": (1.0,),
                "delta": (1e-6,),
                "trust": ("local", "central", "none"),
            },
            weight=0.1,
        ),
        Target(
            name="roles.device:Device",
            call=_visit,
            samples={"features": (FEATURES, SAME), "allowed": (MASK,), "reward": (0.5, 1.0)},
            weight=0.2,
        ),
        *(
            Target(
                name=f"roles.curator:Curator {trust}",
                call=functools.partial(_curate, trust=trust),
                samples={"text": _texts()[:4]},
                weight=10,
            )
            for trust in ("local", "central", "shuffle")
        ),
        *(
            Target(
                name=f"roles.shuffler:{kind}",
                call=functools.partial(_gather, kind=kind),
                samples={"text": _texts()[:4], "ends": ((2, 5), (3,))},
                closed=closed({"ends"} if kind == "shuffler" else ()),
                held=closed({"ends"}),
                weight=10,
            )
            for kind in ("mixer", "shuffler")
        ),
        Target(
            name="roles.transport:InProcess",
            call=_send,
            samples={"to": ("curator",), "text": _texts()[:5]},
        ),
        *(
            Target(
                name=f"roles.questions:{what} {name}",
                call=call,
                samples=samples | {"name": (name,)},
                closed=closed({"name"}),
                weight=0.2,
            )
            for name, questions in (("tsallis", 1), ("two-point", 2))
            for what, call, samples in (
                ("Answerer", _answer, {"round": (0, 5), "losses": (np.full(questions, 0.5),)}),
                ("Asker", _learn, {"report": (np.array([0.5]), np.array([-1.0]))}),
            )
        ),
        Target(
            name="privatizers.protect:protect",
            call=_protect,
            samples={
                "epsilon": (1.0, 0.1),
                "delta": (1e-5,),
                "trust": ("local", "central", "joint"),
                "horizon": (60, 1000),
                "mechanism": ("best", "gaussian", "tree", "doubling", "toeplitz"),
            },
            closed=closed({"trust"}),
            weight=0.1,
        ),
        Target(
            name="roles.arrange:arrange",
            call=_arrange,
            samples={
                "policy": ("linucb", "greedy"),
                "mode": ("tuned", "theory"),
                "numbers": ({}, {"exploration": 0.5}),
                "epsilon": (1.0, 0.1),
                "delta": (1e-5,),
                "trust": ("local", "central", "joint"),
                "mechanism": ("best", "laplace"),
            },
            closed=closed({"mode", "trust"}),
            held=closed({"numbers"}),
            weight=0.1,
        ),
        *(
            Target(name=name, call=_never(call), samples=_SIZES, weight=0.1)
            for name, call in (
                *(
                    (f"simulation.run:simulate{what}", _sizes(functools.partial(_simulate, world)))
                    for what, world in _WORLDS.items()
                ),
                ("roles.drive:drive", _sizes(_drive)),
            )
        ),
        Target(
            name="command:ledger show",
            call=_show,
            samples={"text": SAMPLES_LEDGERS, "visits": (1, 3)},
            weight=0.05,
        ),
        Target(
            name="command:list",
            call=_listing,
            samples={"kind": ("policies", "environments", "mechanisms", "trusts", "experiments")},
            weight=0.1,
        ),
        Target(
            name="command:calibrate",
            call=functools.partial(_command, words=("calibrate", "--json")),
            samples=_CALIBRATE,
            weight=0.02,
        ),
        Target(
            name="command:compare",
            call=lambda **options: _command(words=("compare",), **options | {"device": "abacus"}),
            samples=_PLAY,
            weight=0.02,
        ),
        Target(
            name="command:reproduce",
            call=lambda name, **options: _command(words=("reproduce", str(name)), **options),
            samples={
                "name": ("joint-linucb", "best-arm"),
                "replicates": (2,),
                "seed": (0,),
                "device": ("abacus",),
            },
            closed=closed({"device"}),
            weight=0.02,
        ),
        Target(
            name="command:audit",
            call=lambda policy, **options: _command(words=("audit", str(policy)), **options),
            samples={
                "policy": ("linucb",),
                "trust": ("abacus",),
                "epsilon": (1.0,),
                "delta": (1e-5,),
                "replicates": (10,),
            },
            closed=closed({"trust"}),
            weight=0.02,
        ),
        Target(
            name="command:check",
            call=lambda policy, **options: _command(words=("check", str(policy)), **options),
            samples={"policy": ("linucb",), "trust": ("abacus",)},
            closed=closed({"trust"}),
            weight=0.02,
        ),
        Target(
            name="command:bench",
            call=lambda **options: _command(words=("bench",), **options | {"device": "abacus"}),
            samples={"arms": (3,), "replicates": (1,)},
            weight=0.02,
        ),
        Target(
            name="experiments.folder:Folder.at",
            call=_open_folder,
            samples={"name": ("a", "b")},
            weight=0.2,
        ),
    ]
    return one


def _never(call: Callable[..., None]) -> Callable[..., None]:
    """Sizes that a run would take minutes for are not played, only those that are refused."""

    def refused(**sizes: Any) -> None:
        odd = [v for v in sizes.values() if isinstance(v, int) and v > 50]
        if odd:
            raise CapacityExceeded("too large to play here")
        call(**sizes)

    return refused


SAMPLES_LEDGERS = SAMPLES["written"]

BY_HAND = {
    "core.codec:decode": "core.codec:decode",
    "core.codec:encode": "core.codec:encode",
    "experiments.runner:compare": "command:compare",
    "experiments.experiment:Experiment": "command:reproduce",
    "experiments.experiment:Reproduction": "command:reproduce",
    "experiments.folder:Folder.at": "experiments.folder:Folder.at",
    "experiments.outputs:Outputs.at": "experiments.folder:Folder.at",
    "privatizers.protect:protect": "privatizers.protect:protect",
    "roles.drive:drive": "roles.drive:drive",
    "roles.bandit:Bandit.load": "roles.bandit:Bandit.load",
    "roles.learner:Learner.beside": "roles.bandit:Bandit",
    "roles.learner:Learner.over": "roles.drive:drive",
    "core.registry:Registry": "environments.worlds:make_environment",
    "privacy.ledger:MemoryLedger": "ledger:charge",
    "roles.curator:Curator": "roles.curator:Curator local",
    "roles.device:Device": "roles.device:Device",
    "roles.engines:Apart": "bandit:linucb local usual",
    "roles.engines:Compiled": "bandit:linucb none usual",
    "roles.bandit:Bandit": "roles.bandit:Bandit",
    "roles.learner:Learner": "roles.bandit:Bandit",
    "roles.pool:Pooled": "bandit:linucb local usual",
    "roles.questions:Answerer": "roles.questions:Answerer tsallis",
    "roles.questions:Asker": "roles.questions:Asker tsallis",
    "roles.shuffler:Mixer": "roles.shuffler:mixer",
    "roles.shuffler:Shuffler": "roles.shuffler:shuffler",
    "roles.transport:InProcess": "roles.transport:InProcess",
    "roles.values:as_arms": "roles.device:Device",
    "roles.values:as_report": "roles.curator:Curator local",
    "roles.values:check_rows": "bandit:linucb local usual",
    "simulation.phases:PhaseScene.of": "simulation.run:simulate by phases",
    "simulation.run:simulate": "simulation.run:simulate",
}
"""Constructors that need more than one call, each with the target that makes it."""
