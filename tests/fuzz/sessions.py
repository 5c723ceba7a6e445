"""Targets that are more than one call: ledgers, questions, simulations and commands.

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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from click.testing import CliRunner
from tests.fuzz.logs import BY_FILE, written
from tests.fuzz.samples import SAMPLES
from tests.fuzz.strangers import BY_STRANGERS, FACTS, promise
from tests.fuzz.targets import Target

from kerchief.cli.main import main
from kerchief.comparison.run_folder import Folder
from kerchief.core.convex import Ball
from kerchief.core.errors import CapacityExceededError, InvalidValueError, KerchiefError
from kerchief.core.problems import ContextFreeProblem
from kerchief.deployment import Aggregator, Asker, Budget, Deployment, Device, deploy
from kerchief.deployment.protected_policy import build_protected
from kerchief.environments import ChanceArms, Population, make_environment
from kerchief.policies import POLICIES
from kerchief.privacy import Cohort, Gaussian, Guarantee, MemoryLedger
from kerchief.privatizers import Protection, protect
from kerchief.simulation import simulate
from kerchief.stores.memory import MemoryStore
from kerchief.stores.sqlite import SQLiteStore
from kerchief_protocol.chain import write_chain
from kerchief_protocol.model import Status
from kerchief_protocol.report import Report

__all__ = ["BY_HAND", "sessions"]


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


# Questions.


@functools.cache
def _questions(name: str) -> Deployment:
    problems = {
        "tsallis": ContextFreeProblem(horizon=2000, low=0.0, high=1.0, arms=3),
        "two-point": ContextFreeProblem(
            horizon=2000, low=0.0, high=1.0, domain=Ball(dim=2), lipschitz=1.0
        ),
    }
    return deploy(policy=name, problem=problems[name], guarantee=promise("local"), window_s=0)


def _answer(*, name: str, losses: Any) -> None:
    task = _questions(name).task
    device = Device(task, budget=Budget(epsilon=9.0))
    id = device.accept_question(os.urandom(16))
    try:
        device.reward(id, losses)
    except KerchiefError:
        assert device.spent().epsilon == 0, "a refused answer was charged for"
        raise
    status = Status(task=task.id, state="running", epoch=0, label=0)
    Report.read(device.report(id, status), task)
    assert device.spent().epsilon > 0, "a report without a charge"


@functools.cache
def _asker(name: str) -> list[Asker]:
    return []


def _learn(*, name: str, report: Any) -> None:
    kept = _asker(name)
    if not kept or kept[0].is_stopped:
        kept[:] = [Asker(_questions(name), store=SQLiteStore.memory())]
    server = kept[0]
    (question,) = server.ask()
    finite(question.action.array)
    before = len(server.releases())
    # The first bytes are a header as it should be, the rest is the stranger's.
    head = Report(label=0, epoch=0, id=question.id, numbers=np.zeros(1, np.int64))
    data = bytes(report) if isinstance(report, bytes) else b""
    (refused,) = server.take([head.write(server.task)[: 68 - len(data)] + data])
    assert len(server.releases()) == before + (refused is None), "a refused report was learned"
    finite(server.recommendation)
    if refused is not None:
        raise refused


# Protection and simulation.


def _protect(**arguments: Any) -> None:
    names = ("epsilon", "delta", "trust", "mechanism")
    epsilon, delta, trust, mechanism = (arguments.pop(name) for name in names)
    guarantee = Guarantee(epsilon=epsilon, delta=delta, trust=trust)
    policy: Any = POLICIES["linucb"].build(FACTS, "tuned")
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


def _build_protected(*, policy: Any, mode: Any, numbers: Any, **promised: Any) -> None:
    guarantee = Guarantee(**{name: promised[name] for name in ("epsilon", "delta", "trust")})
    protection = Protection(guarantee=guarantee, mechanism=promised["mechanism"])
    made = build_protected(policy, FACTS, protection, mode=mode, numbers=numbers)
    for privatizer in made.privatizers.values():
        for noise in privatizer.noises:
            finite(noise.std)


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
    first = [name for name in options if name in ("device", "plugin")]
    line = [word for name in first for word in _spell(name, options[name])]
    line += words
    for name, value in options.items():
        line += [] if name in first else _spell(name, value)
    _invoke(line)


_PAIRED = {
    **dict.fromkeys(("action", "reward", "propensity", "reward_range"), "declare"),
    **dict.fromkeys(("noise", "strength"), "env-param"),
    "arm": "policy",
}
"""Names that stand with their value in an option of pairs."""


def _spell(name: str, value: Any) -> list[str]:
    """An option with its value, or nothing where there is no value."""
    flag = name.replace("_", "-")
    if value is None:
        return []
    return (
        [f"--{_PAIRED[name]}", f"{flag}={value}"] if name in _PAIRED else [f"--{flag}", str(value)]
    )


def _invoke(line: list[str]) -> None:
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(_folder() / "compiled"))
    try:
        for word in line:
            word.encode()
    except UnicodeEncodeError:
        raise InvalidValueError("no shell can pass such a word") from None
    result = CliRunner().invoke(main, line)
    fault = result.exception
    if fault is not None and not isinstance(fault, SystemExit):
        raise fault
    assert result.exit_code in (0, 1, 2), f"it left with {result.exit_code}"
    if result.exit_code == 2:
        reason = result.stderr.strip().rpartition("\n")[2]
        assert reason.startswith("kerchief: error: "), "it left without a reason"
        raise InvalidValueError(reason)


def _show(*, text: Any, visits: Any) -> None:
    path = _folder() / f"ledger-{os.getpid()}.json"
    path.write_text(text if isinstance(text, str) else json.dumps(str(text)), "utf-8", "replace")
    _invoke(["ledger", "show", str(path), "--visits", str(visits), "--json"])


def _chained(command: str) -> Callable[..., None]:
    def call(*, text: Any) -> None:
        path = _folder() / f"chain-{os.getpid()}.jsonl"
        path.write_bytes(text if isinstance(text, bytes) else str(text).encode("utf-8", "replace"))
        _invoke(["ledger", command, str(path)])

    return call


@functools.cache
def _exported() -> bytes:
    deployment = deploy(policy="linucb", problem=FACTS, guarantee=promise("joint"))
    return write_chain(Aggregator(deployment, store=MemoryStore()).chain())


def _listing(*, kind: Any) -> None:
    _invoke(["list", str(kind), "--json"])


def _open_folder(*, name: Any) -> None:
    Folder.at(_folder() / str(name))


def _value(**options: Any) -> None:
    path = _folder() / "logs.csv"
    path.write_bytes(written(".csv"))
    _command(words=("value", "--json", "--data", str(path)), **options)


_VALUE = {
    "action": ("action", "action=0|1"),
    "reward": ("reward",),
    "propensity": ("propensity", "0.5"),
    "reward_range": ("0:1",),
    "arms": (2,),
    "arm": ("0", "1"),
    "estimator": ("ips", "replay"),
    "epsilon": (1.0, 0.5),
    "delta": (1e-5, 0.0),
    "mechanism": ("best", "laplace"),
    "largest_weight": (None, 5.0),
    "level": (0.9,),
}
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
_PLAN = {
    "users": (1000, 50),
    "dim": (3,),
    "arms": (4,),
    "noise": ("bernoulli", "gaussian"),
    "strength": ("0.2:0.6", "0.5"),
    "trust": ("any", "joint"),
    "epsilon": (1.0, 0.1),
    "delta": (1e-5,),
    "seconds": (20,),
    "jobs": (1,),
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
        *(
            Target(
                name=f"deployment.questions:{what} {name}",
                call=call,
                samples=samples | {"name": (name,)},
                closed=closed({"name"}),
                weight=0.2,
            )
            for name, questions in (("tsallis", 1), ("two-point", 2))
            for what, call, samples in (
                ("answer", _answer, {"losses": (np.full(questions, 0.5),)}),
                ("Asker", _learn, {"report": (b"\0" * 8, b"\1" + b"\0" * 7)}),
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
            name="deployment.protected_policy:build_protected",
            call=_build_protected,
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
                (f"simulation.run:simulate{what}", _sizes(functools.partial(_simulate, world)))
                for what, world in _WORLDS.items()
            )
        ),
        Target(
            name="command:ledger show",
            call=_show,
            samples={"text": SAMPLES_LEDGERS, "visits": (1, 3)},
            weight=0.05,
        ),
        *(
            Target(
                name=f"command:ledger {command}",
                call=_chained(command),
                samples={"text": (_exported(),)},
                weight=0.05,
            )
            for command in ("verify", "export")
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
            name="command:plan",
            call=lambda **options: _command(words=("plan",), **options | {"out": "/dev/null/plan"}),
            samples=_PLAN,
            weight=0.02,
        ),
        Target(
            name="command:value",
            call=_value,
            samples=_VALUE,
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
            name="command:leaderboard",
            call=lambda **options: _command(
                words=("leaderboard", "--size", "quick"), **options | {"device": "abacus"}
            ),
            samples={
                "env": ("chance",),
                "policy": ("ucb",),
                "trust": ("local",),
                "epsilon": (1.0,),
                "replicates": (2,),
            },
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
            samples={"policy": ("linucb",), "trust": ("abacus",), "plugin": ("absent.py",)},
            closed=closed({"trust"}),
            weight=0.02,
        ),
        Target(
            name="comparison.run_folder:Folder.at",
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
            raise CapacityExceededError("too large to play here")
        call(**sizes)

    return refused


SAMPLES_LEDGERS = SAMPLES["written"]

BY_HAND = {
    **BY_STRANGERS,
    **BY_FILE,
    "comparison.runner:compare": "command:compare",
    "papers.experiment:Experiment": "command:reproduce",
    "papers.experiment:Reproduction": "command:reproduce",
    "comparison.run_folder:Folder.at": "comparison.run_folder:Folder.at",
    "reports.outputs:Outputs.at": "comparison.run_folder:Folder.at",
    "reports.output_path:Place.at": "comparison.run_folder:Folder.at",
    "comparison.runner:RunState.of": "command:compare",
    "comparison.workers:Processes": "command:compare",
    "comparison.plugins:Plugin.at": "command:check",
    "privatizers.protect:protect": "privatizers.protect:protect",
    "core.registry:Registry": "environments.worlds:make_environment",
    "policies.registry:resolve_name": "deployment.bandit:Bandit",
    "privacy.ledger:MemoryLedger": "ledger:charge",
    "deployment.questions:Asker": "deployment.questions:Asker tsallis",
    "simulation.phases:PhaseScene.of": "simulation.run:simulate by phases",
    "simulation.run:simulate": "simulation.run:simulate",
    "simulation.run:simulate_side_by_side": "simulation.run:simulate",
}
"""Constructors that need more than one call, each with the target that makes it."""
