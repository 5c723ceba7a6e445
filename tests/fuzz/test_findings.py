"""What the fuzzer found, one test each: it must stay mended."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from click.testing import CliRunner
from kerchief.roles.messages import Ask, Post, Reports
from kerchief.roles.transport import InProcess
from kerchief.roles.values import as_reward, as_rows

from kerchief.cli.main import main
from kerchief.core import validate
from kerchief.core.batches import growing
from kerchief.core.codec import decode, encode
from kerchief.core.contracts import Arms, Clock, Outlook
from kerchief.core.convex import Ball
from kerchief.core.errors import CodecError, InvalidValue, KerchiefError
from kerchief.core.links import link_named
from kerchief.core.problems import ContextFreeProblem, Problem
from kerchief.core.queries import Gram, Loss, Regression
from kerchief.core.random import Stream
from kerchief.environments import Population, Recorded, make_environment, table_two
from kerchief.experiments.declare import Comparison
from kerchief.experiments.folder import Folder
from kerchief.experiments.players import player
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
)
from kerchief.privacy.calibration import bun_steinke_rho, classical_gaussian_noise_multiplier
from kerchief.privacy.curves import PureCurve
from kerchief.privacy.randomized_bits import bits_keep
from kerchief.privacy.receipts import read_ledger
from kerchief.privacy.vector_sum import vector_sum
from kerchief.privacy.visits import visited
from kerchief.privatizers import Protection, protect
from kerchief.privatizers.schedule import At
from kerchief.roles import Answerer, Asker, Bandit, Curator, Device, Mixer
from kerchief.roles.arrange import Arranged, arrange

HUGE = 10**400
LOCAL = Guarantee(epsilon=1.0, delta=1e-6, trust=Trust.LOCAL)


def facts(**changes: Any) -> Problem:
    usual: dict[str, Any] = {"dim": 2, "arms": 3, "norm": 1.0, "radius": 1.0}
    return Problem(**usual | {"low": 0.0, "high": 1.0, "horizon": 60} | changes)


def query(**changes: Any) -> Regression:
    usual: dict[str, Any] = {"dim": 2, "norm": 1.0, "low": 0.0, "high": 1.0}
    return Regression(**usual | changes)


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
    "a dictionary as a link": lambda: link_named({}),  # type: ignore[arg-type]
    "more dimensions than memory": lambda: facts(dim=10**9),
    "no range of rewards": lambda: facts(low=1.0),
    "a range of rewards below all floats": lambda: Loss(low=0.0, high=5e-324),
    "an endless reward in a query": lambda: query(high=1e154),
    "batches that are no numbers": lambda: query(batches=("a",)),
    "batches that go back": lambda: At(ends=(5, 3)),
    "a number as batches": lambda: At(ends=3),  # type: ignore[arg-type]
    "more groups than memory": lambda: Gram(dim=2, norm=1.0, groups=2**40),
    "a Lipschitz bound that is NaN": lambda: problem(arms=3, lipschitz=math.nan),
    "batches that grow at once": lambda: growing(100, first=1, growth=1e308),
    "an array as delta": lambda: Guarantee(
        epsilon=1.0,
        delta=np.zeros(2),  # type: ignore[arg-type]
        trust=Trust.LOCAL,
    ),
    "a number as unit": lambda: Guarantee(epsilon=1.0, delta=0.0, trust=Trust.LOCAL, unit=3),  # type: ignore[arg-type]
    "exploration that is NaN": lambda: LinUCB.of(facts(), exploration=math.nan),
    "exploration that is a text": lambda: GLMUCB.of(facts(), exploration="1"),  # type: ignore[arg-type]
    "a clip that is a tuple": lambda: Batched.of(facts(), clip=(1, 2)),  # type: ignore[arg-type]
    "clients that are a text": lambda: Elimination.of(
        Population.of(dim=2, arms=3).problem(60),
        clients="x",  # type: ignore[arg-type]
    ),
    "a promise of nothing to a printed rule": lambda: PrintedLinUCB.promised(facts(), 5e-324, 0.1),
    "arms on a domain": lambda: plain("ucb"),
    "arms on a domain, halved": lambda: plain("halving"),
    "more batches than memory": lambda: POLICIES["sblb@paper"].build(
        facts(horizon=2**31 - 1), "tuned"
    ),
    "complex arms": lambda: as_rows(np.eye(2) * 1j, facts()),
    "text as arms": lambda: as_rows([["0.5", "0.5"]], facts()),
    "an endless reward": lambda: as_reward(HUGE, facts()),
    "a reward in a list": lambda: as_reward([0.5], facts()),  # type: ignore[arg-type]
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
    "a list in a ring": lambda: encode(_ring()),
    "an array of texts": lambda: encode(np.array(["a"])),
    "a message that is a number": lambda: decode(3),  # type: ignore[arg-type]
    "an array of an old kind": lambda: decode('{"array":"AAAA","dtype":"a","shape":[3]}'),
    "a ledger that is a number": lambda: read_ledger(3),  # type: ignore[arg-type]
    "a ledger of many brackets": lambda: read_ledger("[" * 100_000),
    "a ledger of many digits": lambda: read_ledger("9" * 5000),
    "a ledger of many layers": lambda: read_ledger(_layers()),
    "a policy that is an array": lambda: Bandit(
        policy=np.zeros(2),  # type: ignore[arg-type]
        problem=facts(),
        guarantee=LOCAL,
    ),
    "reports that are texts": lambda: Reports(ticket="a", answers={"moments": np.array(["a"])}),
    "reports without end": lambda: Reports(ticket="a", answers={"moments": np.array([1e308])}),
    "reports that are a list": lambda: Reports(ticket="a", answers=[1]),  # type: ignore[arg-type]
    "a ticket that is a list": lambda: Reports(ticket=[], answers={}),  # type: ignore[arg-type]
    "a clock that is None": lambda: Ask(query="moments", clock=None),  # type: ignore[arg-type]
    "cohorts that go back": lambda: Mixer(ends=(5, 2), transport=InProcess(), to="x"),
}


def _ring() -> list[Any]:
    ring: list[Any] = []
    ring.append(ring)
    return ring


def _layers() -> str:
    inner = '{"kind":"repeated","count":1,"event":' * 500 + '{"kind":"nothing"}' + "}" * 500
    receipt = f'{{"number":0,"event":{inner},"first":0,"last":1,"capacity":1,"used":null}}'
    budget = json.dumps(LOCAL.to_dict())
    return f'{{"format":"kerchief-ledger/1","budget":{budget},"receipts":[{receipt}]}}'


@pytest.mark.parametrize("what", REFUSED)
def test_it_is_refused_by_an_error_of_ours(what: str) -> None:
    with pytest.raises(KerchiefError, match=r"\w"):
        REFUSED[what]()


def test_a_bandit_with_numpy_facts_can_be_saved_and_loaded() -> None:
    """A NumPy number came back as an array, which no check takes for a number."""
    problem = facts(norm=np.float64(1.0))
    assert decode(encode(problem)) == problem


def test_numbers_that_lie_the_other_way_round_are_written_rightly() -> None:
    """The bytes were written as they lay, and read as if they lay the usual way."""
    assert decode(encode(np.array([1.0, 2.5], ">f8"))).tolist() == [1.0, 2.5]


def test_curves_end_where_floats_do() -> None:
    assert PureCurve(total=1.0).delta(1e300) == 0.0
    assert bun_steinke_rho(1e308, 1e-5) > 1e300
    assert math.isfinite(classical_gaussian_noise_multiplier(1.0, 1e-310))


def test_an_epsilon_of_nothing_is_refused() -> None:
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


def _device(ledger: MemoryLedger | None = None) -> tuple[Device, Post]:
    policy = LinUCB.of(facts())
    privatizers = {
        name: one.exact()
        for name, one in protect(policy, Protection(guarantee=LOCAL), horizon=60).items()
    }
    model = policy.publish(policy.init({"moments": Outlook(noisy=True)}))
    clock = Clock(round=jnp.int32(0), since={"moments": jnp.int32(1)})
    device = Device(policy=policy, privatizers=privatizers, ledger=ledger)
    return device, Post(model=model, clock=clock)


def _arms(features: Any, allowed: Any) -> Arms:
    return Arms(features=features, allowed=allowed)


def test_a_reward_that_is_none_costs_nothing() -> None:
    """It was charged first, and then could not be reported."""
    ledger = MemoryLedger(LOCAL)
    device, post = _device(ledger)
    device.act(post, _arms(np.eye(3, 2), np.ones(3, bool)), Stream.of(seed=0, replicate=0))
    for reward in ("a", [0.5], None, 1j):
        with pytest.raises(InvalidValue):
            device.reports(reward, None)  # type: ignore[arg-type]
    assert ledger.receipts == ()
    device.reports(0.5, None)
    assert len(ledger.receipts) == 1


@pytest.mark.parametrize(
    "arms",
    [
        _arms(np.full((3, 2), np.nan), np.ones(3, bool)),
        _arms(np.eye(3, 2), np.zeros(3, bool)),
        _arms(np.eye(3), np.ones(3, bool)),
        _arms(np.zeros((0, 2)), np.zeros(0, bool)),
        _arms("a", "b"),
    ],
)
def test_a_device_refuses_arms_that_are_none(arms: Arms) -> None:
    device, post = _device()
    with pytest.raises(InvalidValue):
        device.act(post, arms, Stream.of(seed=0, replicate=0))


def _questions() -> Arranged:
    return arrange("tsallis", problem(arms=3), Protection(guarantee=LOCAL))


def test_a_question_without_a_round_costs_nothing() -> None:
    """It was charged first, and then had no time to be answered at."""
    ledger = MemoryLedger(LOCAL)
    device = Answerer(_questions(), ledger=ledger)
    for round, losses in (("a", [0.5]), (-1, [0.5]), (0, ["a"]), (0, []), (0, [0.5, 0.5])):
        with pytest.raises(InvalidValue):
            device.answer(round, np.array(0), losses)  # type: ignore[arg-type]
    assert ledger.receipts == ()


def test_an_endless_report_is_not_learned_from() -> None:
    server = Asker(_questions(), ledger=MemoryLedger(LOCAL))
    server.ask()
    for report in (1e308, "a", [[0.1, 0.2]], None):
        with pytest.raises(InvalidValue):
            server.learn(report)  # type: ignore[arg-type]
    assert server.round == 0


def test_a_curator_refuses_a_question_it_does_not_know() -> None:
    policy = LinUCB.of(facts())
    curator = Curator(
        privatizers=protect(policy, Protection(guarantee=LOCAL), horizon=60),
        ledger=MemoryLedger(LOCAL),
        horizon=60,
    )
    curator.open()
    clock = Clock(round=jnp.int32(0), since={})
    with pytest.raises(InvalidValue, match="moments"):
        curator.handle(Ask(query="x", clock=clock))


def test_a_saved_bandit_that_was_altered_is_refused() -> None:
    """A flipped bit in its memory was loaded, and a NaN with it."""
    bandit = Bandit(policy="linucb", problem=facts(), guarantee=LOCAL)
    tree = json.loads(bandit.save())
    tree["fields"]["round"] = 7
    with pytest.raises(CodecError, match="changed"):
        Bandit.load(json.dumps(tree))
    assert Bandit.load(bandit.save()).round == 0
