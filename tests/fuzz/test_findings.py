"""What the fuzzer found, one test each: it must stay mended."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from tests.device.helpers import OPTIMIST, asking, model, status, task

from kerchief.cli.main import main
from kerchief.comparison.comparison import Comparison
from kerchief.comparison.players import player
from kerchief.comparison.run_folder import Folder
from kerchief.core import validate
from kerchief.core.batches import grow_batches
from kerchief.core.convex import Ball
from kerchief.core.errors import InvalidValueError, KerchiefError
from kerchief.core.links import get_link
from kerchief.core.problems import ContextFreeProblem, Problem
from kerchief.core.queries import BoundedScalar, GramMatrix, RegressionMoments
from kerchief.core.report_distribution import ReportDistribution
from kerchief.deployment import Bandit, Budget, Device, deploy, read_deployment
from kerchief.deployment.audit_log import AuditLog
from kerchief.deployment.learner import Form
from kerchief.deployment.verify import check_releases
from kerchief.environments import Population, Recorded, make_environment, table_two
from kerchief.environments.ranges import ranged
from kerchief.mechanisms.binomial import ExactBinomial
from kerchief.policies import POLICIES
from kerchief.policies.glm.batched import Batched
from kerchief.policies.glm.ucb import GLMUCB
from kerchief.policies.linear.linucb import LinUCB
from kerchief.policies.linear.online_paper import PrintedLinUCB
from kerchief.policies.phased.elimination import Elimination
from kerchief.privacy import (
    Gaussian,
    Guarantee,
    Laplace,
    MemoryLedger,
    Repeated,
    Trust,
    event_from_dict,
)
from kerchief.privacy.calibration import bun_steinke_rho, classical_gaussian_noise_multiplier
from kerchief.privacy.curves import PureCurve
from kerchief.privacy.randomized_bits import bits_keep
from kerchief.privacy.receipts import read_ledger
from kerchief.privacy.vector_sum import vector_sum
from kerchief.privacy.visits import visited
from kerchief.privatizers import Protection, protect
from kerchief.privatizers.schedule import At
from kerchief.simulation import simulate
from kerchief.stores import open_store
from kerchief_device import Pending
from kerchief_protocol import canonical
from kerchief_protocol.chain import ROOT, Line
from kerchief_protocol.model import Numbers
from kerchief_protocol.noise import Coins

HUGE = 10**400
LOCAL = Guarantee(epsilon=1.0, delta=1e-6, trust=Trust.LOCAL)


def facts(**changes: Any) -> Problem:
    usual: dict[str, Any] = {"dim": 2, "arms": 3, "norm": 1.0, "radius": 1.0}
    return Problem(**usual | {"low": 0.0, "high": 1.0, "horizon": 60} | changes)


def query(**changes: Any) -> RegressionMoments:
    usual: dict[str, Any] = {"dim": 2, "norm": 1.0, "low": 0.0, "high": 1.0}
    return RegressionMoments(**usual | changes)


def problem(**changes: Any) -> ContextFreeProblem:
    usual: dict[str, Any] = {"horizon": 60, "low": 0.0, "high": 1.0}
    return ContextFreeProblem(**usual | changes)


def plain(name: str) -> Any:
    domain = problem(domain=Ball(dim=2), lipschitz=1.0)
    return POLICIES[name].build(domain, "tuned")


REFUSED: dict[str, Callable[[], Any]] = {
    "a whole number beyond all floats": lambda: validate.positive("x", HUGE),
    "an array as a word": lambda: validate.one_of("x", np.array([]), ("a",)),  # type: ignore[arg-type]
    "a list as a name": lambda: POLICIES[[]],  # type: ignore[index]
    "a number as a name": lambda: POLICIES[3],  # type: ignore[index]
    "a dictionary as a link": lambda: get_link({}),  # type: ignore[arg-type]
    "more dimensions than memory": lambda: facts(dim=10**9),
    "no range of rewards": lambda: facts(low=1.0),
    "a range of rewards below all floats": lambda: BoundedScalar(low=0.0, high=5e-324),
    "an endless reward in a query": lambda: query(high=1e154),
    "batches that are no numbers": lambda: query(batches=("a",)),
    "batches that go back": lambda: At(ends=(5, 3)),
    "a number as batches": lambda: At(ends=3),  # type: ignore[arg-type]
    "more groups than memory": lambda: GramMatrix(dim=2, norm=1.0, groups=2**40),
    "a Lipschitz bound that is NaN": lambda: problem(arms=3, lipschitz=math.nan),
    "batches that grow at once": lambda: grow_batches(100, first=1, growth=1e308),
    "an array as delta": lambda: Guarantee(
        epsilon=1.0,
        delta=np.zeros(2),  # type: ignore[arg-type]
        trust=Trust.LOCAL,
    ),
    "an honest part that is a number": lambda: Guarantee(
        epsilon=1.0,
        delta=1e-6,
        trust=Trust.SHUFFLE,
        honest=0.8,  # type: ignore[arg-type]
    ),
    "a multiplier of many layers": lambda: event_from_dict(
        {"kind": "laplace", "noise_multiplier": _deep()}
    ),
    "a number as unit": lambda: Guarantee(epsilon=1.0, delta=0.0, trust=Trust.LOCAL, unit=3),  # type: ignore[arg-type]
    "exploration that is NaN": lambda: LinUCB.of(facts(), exploration=math.nan),
    "exploration that is a text": lambda: GLMUCB.of(facts(), exploration="1"),  # type: ignore[arg-type]
    "a clip that is a tuple": lambda: Batched.of(facts(), clip=(1, 2)),  # type: ignore[arg-type]
    "clients that are a text": lambda: Elimination.of(
        Population.of(dim=2, arms=3).problem(60),
        clients="x",  # type: ignore[arg-type]
    ),
    "a promise of nothing to a printed rule": lambda: PrintedLinUCB.build_with_budget(
        facts(), 5e-324, 0.1
    ),
    "arms on a domain": lambda: plain("ucb"),
    "arms on a domain, halved": lambda: plain("halving"),
    "more batches than memory": lambda: POLICIES["sblb@paper"].build(
        facts(horizon=2**31 - 1), "tuned"
    ),
    "complex arms on record": lambda: Recorded.of(direction=[1.0, 0.0], arms=np.eye(2)[None] * 1j),
    "endless arms on record": lambda: Recorded.of(direction=[1e308, 1e308], arms=np.eye(2)[None]),
    "more arms than memory": lambda: table_two(radius=1.0, arms=2**40),
    "an array as contexts": lambda: make_environment(contexts=np.zeros(2)),  # type: ignore[arg-type]
    "a trust that is none": lambda: player("linucb", trust="join"),
    "a policy that is no name": lambda: player(3.0),  # type: ignore[arg-type]
    "policies that are no tuple": lambda: Comparison(policies=3),  # type: ignore[arg-type]
    "a path with a null": lambda: Folder.at(Path("/tmp/\0")),
    "a horizon that is a list": lambda: protect(
        LinUCB.of(facts()),
        Protection(guarantee=LOCAL),
        horizon=[],  # type: ignore[arg-type]
    ),
    "more bits than memory": lambda: bits_keep(
        1.0, 1e-5, users=100, bits=2**31, sensitivity=1.0, dimension=1
    ),
    "a delta below the theorem": lambda: vector_sum(users=10, size=2, epsilon=1.0, delta=5e-324),
    "visits without end": lambda: visited(Laplace(noise_multiplier=1.0), visits=HUGE, apart=True),
    "visits to nothing": lambda: visited(math.nan, visits=1, apart=False),  # type: ignore[arg-type]
    "a count without end": lambda: Repeated(event=Gaussian(noise_multiplier=1.0), count=HUGE),
    "a ledger that is a number": lambda: read_ledger(3),  # type: ignore[arg-type]
    "a ledger of many brackets": lambda: read_ledger("[" * 100_000),
    "a ledger of many digits": lambda: read_ledger("9" * 5000),
    "a ledger of many layers": lambda: read_ledger(_layers()),
    "a policy that is an array": lambda: Bandit(
        policy=np.zeros(2),  # type: ignore[arg-type]
        problem=facts(),
        guarantee=LOCAL,
    ),
    "a name that is a number": lambda: deploy(
        policy="linucb",
        problem=facts(),
        guarantee=LOCAL,
        name=3,  # type: ignore[arg-type]
    ),
    "a folder with a null": lambda: Bandit(
        policy="linucb", problem=facts(), guarantee=LOCAL, window_s=0, path="/tmp/\0", witness="w"
    ),
    "a store with a null": lambda: open_store("/tmp/\0"),
    "a device's store with a null": lambda: Pending("/tmp/\0"),
    "a list in a ring": lambda: canonical.write(_ring()),
    "half a letter": lambda: canonical.write("\ud800"),
    "a tree of many layers": lambda: canonical.read(b"[" * 600 + b"]" * 600),
    "an array of many axes": lambda: Numbers(dtype="<f8", shape=(1,) * 65, data=bytes(8)),
    "an array of no bytes without end": lambda: Numbers(
        dtype="<f8", shape=(0, 2**40, 2**40), data=b""
    ),
    "a report of fewer numbers than none": lambda: task(_coins(-1), needs=(100,)),
    "a report of more numbers than memory": lambda: task(_coins(2**50), needs=(100,)),
    "a program that divides by zero": lambda: Device(_broken(balance=0.0)),
    "a program beyond all floats": lambda: Device(_broken(response_high=1e308)),
    "a task of no known bandit": lambda: read_deployment(task()),
    "a receipt that is a number": lambda: AuditLog.of(_lines("charge", 3)),
    "a number of a receipt that is none": lambda: AuditLog.of(_lines("charge", {"real": "z" * 16})),
    "a draw without a release": lambda: check_releases(_drawn(), ()),
    "a model of other arrays": lambda: Form(_lazy()).tree(
        dataclasses.replace(model(task()), arrays={})
    ),
}


def _coins(size: int) -> Coins:
    return Coins(size=size, step_bits=7, levels=272, scale=1400, coins=(78400,))


def _broken(**program: Any) -> Any:
    changed = dataclasses.replace(OPTIMIST, **program)
    return task(_coins(5), trust="shuffle", program=changed, needs=(100,))


def _lines(kind: str, content: Any) -> tuple[Line, ...]:
    config = canonical.write({"config": canonical.read(task().data)})
    first = Line(number=0, kind="open", prev=ROOT, body=config)
    return first, first.next(kind, content)


def _drawn() -> AuditLog:
    said = {"release": 7, "epoch": 0, "cohort": 7, "users": 1, "payload": "00" * 32}
    return AuditLog.of(_lines("draw", said))


def _lazy() -> Any:
    return deploy(policy="greedy", problem=facts(), guarantee=LOCAL)


def _ring() -> list[Any]:
    ring: list[Any] = []
    ring.append(ring)
    return ring


def _deep() -> Any:
    deep: Any = 1.0
    for _ in range(2000):
        deep = [deep]
    return deep


def _layers() -> str:
    inner = '{"kind":"repeated","count":1,"event":' * 500 + '{"kind":"nothing"}' + "}" * 500
    receipt = f'{{"number":0,"event":{inner},"first":0,"last":1,"capacity":1,"used":null,"bill":0}}'
    budget = json.dumps(LOCAL.to_dict())
    return f'{{"format":"kerchief-ledger/1","budget":{budget},"receipts":[{receipt}]}}'


@pytest.mark.parametrize("what", REFUSED)
def test_finding_is_rejected_with_kerchief_error(what: str) -> None:
    with pytest.raises(KerchiefError, match=r"\w"):
        REFUSED[what]()


def test_a_bandit_with_numpy_facts_is_deployed() -> None:
    """A NumPy number came back as an array, which no check takes for a number."""
    promise = dataclasses.replace(LOCAL, epsilon=np.float32(0.5))  # type: ignore[arg-type]
    deployment = deploy(policy="linucb", problem=facts(norm=np.float64(1.0)), guarantee=promise)
    assert read_deployment(deployment.task).problem == deployment.problem


def test_big_endian_numbers_are_written_correctly() -> None:
    """The bytes were written as they lay, and read as if they lay the usual way."""
    assert Numbers.of(np.array([1.0, 2.5], ">f8")).array.tolist() == [1.0, 2.5]


def test_whole_numbers_are_numbers_of_a_policy() -> None:
    """They were written as such, and then refused where a real one was due."""
    given: Any = {"policy": "linucb", "problem": facts(), "guarantee": LOCAL, "nonce": bytes(16)}
    whole = deploy(**given, numbers={"exploration": 1})
    assert whole.task.id == deploy(**given, numbers={"exploration": 1.0}).task.id


def test_curves_end_where_floats_do() -> None:
    assert PureCurve(total=1.0).delta(1e300) == 0.0
    assert bun_steinke_rho(1e308, 1e-5) > 1e300
    assert math.isfinite(classical_gaussian_noise_multiplier(1.0, 1e-310))


def test_vanishing_epsilon_is_rejected() -> None:
    """No noise that a float holds keeps it."""
    result = CliRunner().invoke(main, ["calibrate", "--epsilon", "1e-300"])
    assert result.exit_code == 2
    assert "at least 1e-09" in result.output


def test_a_tiny_delta_is_calibrated_for() -> None:
    """An endless deviation is no JSON."""
    line = ["calibrate", "--delta", "1e-310", "--dim", "2", "--horizon", "100", "--json"]
    result = CliRunner().invoke(main, line)
    assert result.exit_code == 0
    assert json.loads(result.stdout)


@pytest.mark.parametrize("wrong", ["a", [0.5], None, 1j, HUGE, np.complex128(0.5), math.nan, True])
def test_invalid_reward_charges_nothing(wrong: Any) -> None:
    """It was charged first, and then could not be reported."""
    device = Device(asking(), budget=Budget(epsilon=1.0))
    id = device.accept_question(bytes(16))
    given: tuple[Any, ...] = ([wrong], [[wrong]], [0.5, wrong])
    for losses in (*given, *(() if wrong == [0.5] else (wrong,))):
        with pytest.raises(InvalidValueError):
            device.reward(id, losses)
    assert device.spent().epsilon == 0
    assert device.reward(id, [0.5])
    device.report(id, status(device.task))
    assert device.spent().epsilon > 0


@pytest.mark.parametrize(
    ("rows", "allowed"),
    [
        (np.full((3, 2), np.nan), None),
        (np.eye(3, 2), np.zeros(3, bool)),
        (np.eye(3, 2), [True, False, [True]]),
        (np.eye(3), None),
        (np.zeros((0, 2)), np.zeros(0, bool)),
        (np.eye(2) * 1j, None),
        ([["0.5", "0.5"]], None),
        ("a", "b"),
    ],
)
def test_device_rejects_invalid_arms(rows: Any, allowed: Any) -> None:
    device = Device(task())
    with pytest.raises(InvalidValueError):
        device.decide(model(device.task), rows, allowed)
    assert device.due(1e18) == ()


@pytest.mark.parametrize("now", ["tomorrow", HUGE, math.nan, [1.0], 1j])
def test_invalid_time_expires_nothing(now: Any) -> None:
    """SQLite compares a text with a number, and says that every number is before it."""
    bandit = Bandit(policy="linucb", problem=facts(), guarantee=LOCAL, window_s=0)
    bandit.decide(np.eye(3, 2))
    with pytest.raises(InvalidValueError):
        bandit.expire(now)
    assert bandit.users == 0


def test_a_reward_in_the_place_of_an_id_is_not_quoted() -> None:
    bandit = Bandit(policy="linucb", problem=facts(), guarantee=LOCAL, window_s=0)
    choice = bandit.decide(np.eye(3, 2))
    with pytest.raises(InvalidValueError) as caught:
        bandit.reward(0.7371, choice.id)  # type: ignore[arg-type]
    assert "0.7371" not in str(caught.value)


def test_an_answer_that_is_no_number_costs_nothing() -> None:
    """It was charged first, and then could not be encoded."""
    task = deploy(policy="tsallis", problem=problem(arms=3), guarantee=LOCAL, window_s=0).task
    device = Device(task, budget=Budget(epsilon=9.0))
    id = device.accept_question(bytes(16))
    wrong: Any
    for wrong in (["a"], [], [0.5, 0.5], [1e400], None):
        with pytest.raises(InvalidValueError):
            device.reward(id, wrong)
    assert device.spent().epsilon == 0


def test_a_bandit_whose_file_was_altered_is_refused(tmp_path: Path) -> None:
    """A flipped bit in its memory was loaded, and a NaN with it."""
    folder = tmp_path / "bandit"
    given: Any = {"policy": "linucb", "problem": facts(), "guarantee": LOCAL, "window_s": 0}
    with Bandit(**given, path=folder, witness=tmp_path / "witness") as bandit:
        bandit.decide(np.eye(3, 2))
    for name in ("aggregator.db", "device.db"):
        whole = (folder / name).read_bytes()
        (folder / name).write_bytes(b"x" * len(whole))
        with pytest.raises(KerchiefError):
            Bandit.open(folder, witness=tmp_path / "witness")
        (folder / name).write_bytes(whole)
    Bandit.open(folder, witness=tmp_path / "witness").close()


def test_coins_of_any_size_are_refused_in_one_line() -> None:
    with pytest.raises(InvalidValueError, match="the most is"):
        ExactBinomial(step=1.0, scale=10**400, sensitivity=1.0, dimension=2)


def test_clear_channel_takes_bounds_of_any_float() -> None:
    low: Any = np.float32(0.5)
    with pytest.raises(InvalidValueError, match="high is 1e"):
        ReportDistribution.clear(low=low, high=1e155)
    assert ReportDistribution.clear(low=low, high=1.0).spread == 0.25


def test_ranges_of_a_single_number_are_refused() -> None:
    with pytest.raises(InvalidValueError, match="one greatest value per feature"):
        ranged(0.5, low=0.0, high=1.0)


@pytest.mark.parametrize("horizon", [np.uint64(2**64 - 1), 2**31])
def test_simulation_refuses_a_horizon_beyond_31_bits(horizon: Any) -> None:
    world = make_environment(dim=2, arms=3)
    free = MemoryLedger(Guarantee(epsilon=math.inf, delta=0.0, trust=Trust.NONE))
    policy = POLICIES["uniform"].build(world.problem(50), "tuned")
    with pytest.raises(InvalidValueError, match="horizon is"):
        simulate(
            policy=policy,
            privatizers={},
            environment=world,
            ledger=free,
            horizon=horizon,
            replicates=1,
            seed=1,
        )
