"""A run message by message is the compiled run; exact noise has the law that was paid for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from numpy.typing import NDArray

from kerchief.core.contracts import Arms, Clock, Example, Outlook, Policy, Release, Tree
from kerchief.core.errors import BudgetExceeded
from kerchief.core.queries import Regression
from kerchief.core.random import ARMS, REWARD, WORLD, Stream
from kerchief.core.struct import static, struct
from kerchief.environments import GLMEnvironment, make_environment
from kerchief.mechanisms.blt import BLT
from kerchief.mechanisms.exact_continual import ExactContinualNoise
from kerchief.mechanisms.gaussian import Gaussian
from kerchief.policies import POLICIES
from kerchief.privacy import Guarantee, MemoryLedger, Trust
from kerchief.privatizers import (
    At,
    CohortSums,
    OnDemand,
    PrefixSums,
    Privatizer,
    Protection,
    protect,
)
from kerchief.roles import InProcess, drive
from kerchief.roles.drive import Played
from kerchief.roles.messages import Message, Reports
from kerchief.simulation.loop import Replicate, Scene, advance, begin

HORIZON = 60
WORLD_3 = make_environment(dim=3, arms=6, fewest=3)
# Two-sided normal quantile for an error of 1e-6.
QUANTILE = 4.9


def promise(trust: str) -> Guarantee:
    if trust == "none":
        return Guarantee(epsilon=float("inf"), delta=0.0, trust=Trust.NONE)
    return Guarantee(epsilon=8.0, delta=1e-6, trust=Trust(trust))


def simulated(
    policy: Policy, privatizers: Mapping[str, Privatizer], *, seed: int, replicate: int
) -> tuple[NDArray[np.float64], Replicate]:
    """The compiled loop's regret a round, and what it remembers at the end."""
    scene = Scene(
        policy=policy,
        privatizers=dict(privatizers),
        environment=WORLD_3,
        seed=jnp.uint32(seed),
    )
    carry = begin(scene, jnp.array([replicate], jnp.uint32))
    regret = [0.0]
    for round in range(HORIZON):
        carry = advance(scene, carry, jnp.int32(round), length=1)
        regret.append(float(carry.regret[0]))
    return np.diff(regret), carry


def agree(played: Played, regret: NDArray[np.float64], carry: Replicate) -> None:
    # Equal regret in every round: arms are drawn from continuous laws, so the actions are equal.
    np.testing.assert_allclose(played.regret, regret, atol=1e-6)
    posted = jax_leaves(played.model)
    for mine, theirs in zip(posted, jax_leaves(carry.model), strict=True):
        np.testing.assert_allclose(mine, theirs[0], atol=1e-5, rtol=1e-5)
    assert played.releases == {name: int(used[0]) for name, used in carry.used.items()}


def jax_leaves(tree: Tree) -> list[NDArray[np.float64]]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


@pytest.mark.parametrize("trust", ["none", "local", "joint", "central"])
@pytest.mark.parametrize(
    ("seed", "replicate"),
    [
        (4_000_000_000, 1),
        *(pytest.param(*one, marks=pytest.mark.nightly) for one in [(1, 0), (2, 5)]),
    ],
)
def test_linucb_plays_as_in_the_compiled_loop(trust: str, seed: int, replicate: int) -> None:
    policy: Any = POLICIES["linucb"].build(WORLD_3.problem(HORIZON), "tuned")
    privatizers = protect(policy, Protection(guarantee=promise(trust)), horizon=HORIZON)
    ledger = MemoryLedger(promise(trust))
    played = drive(
        policy=policy,
        privatizers=privatizers,
        environment=WORLD_3,
        ledger=ledger,
        horizon=HORIZON,
        seed=seed,
        replicate=replicate,
    )
    agree(played, *simulated(policy, privatizers, seed=seed, replicate=replicate))
    assert len(set(played.actions.tolist())) > 1
    assert played.spent.epsilon == pytest.approx(promise(trust).epsilon, rel=1e-4)
    # Read and Post, Reports and Done, Tick and Done, Ask and Answer.
    assert played.messages == 8 * HORIZON
    assert played.bytes > 100 * played.messages


def test_uniform_plays_as_in_the_compiled_loop() -> None:
    policy: Any = POLICIES["uniform"].build(WORLD_3.problem(HORIZON), "tuned")
    ledger = MemoryLedger(promise("none"))
    played = drive(
        policy=policy,
        privatizers={},
        environment=WORLD_3,
        ledger=ledger,
        horizon=HORIZON,
        seed=3,
    )
    agree(played, *simulated(policy, {}, seed=3, replicate=0))
    assert played.releases == {}
    assert played.spent.epsilon == 0.0


@struct
class Asker(Policy):
    """Asks for a release whenever seven rounds have passed, and plays the arm it likes best."""

    query: Regression = static()

    @property
    def queries(self) -> Mapping[str, Regression]:
        return {"moments": self.query}

    def init(self, outlook: Mapping[str, Outlook]) -> Array:
        return jnp.zeros(self.query.dim, jnp.float64)

    def due(self, state: Array, clock: Clock) -> Mapping[str, Array | bool]:
        return {"moments": clock.since["moments"] >= 7}

    def update(self, state: Array, name: str, release: Release) -> Array:
        return release.total[-self.query.dim :]

    def refreshes(self, clock: Clock) -> Array | bool:
        return False

    def act(self, model: Array, arms: Arms, clock: Clock, stream: Stream) -> Array:
        ticket = 0.1 * stream.uniform(arms.allowed.shape[0])
        return jnp.argmax(jnp.where(arms.allowed, arms.features @ model + ticket, -jnp.inf))

    def record(self, model: Array, arms: Arms, action: Array, reward: Array) -> Mapping[str, Tree]:
        return {"moments": Example(features=arms.features[action], reward=reward)}


def asker() -> Asker:
    return Asker(query=Regression.of(WORLD_3.problem(HORIZON)))


def test_releases_on_demand_are_served_within_their_limit() -> None:
    policy = asker()
    noise = Gaussian.of(noise_multiplier=1.0, sensitivity=policy.query.sensitivity)
    schedule = OnDemand(limit=3)
    sums = CohortSums(query=policy.query, schedule=schedule, device=None, aggregator=noise)
    budget = Guarantee(epsilon=20.0, delta=1e-6, trust=Trust.CENTRAL)
    played = drive(
        policy=policy,
        privatizers={"moments": sums},
        environment=WORLD_3,
        ledger=MemoryLedger(budget),
        horizon=HORIZON,
        seed=5,
    )
    agree(played, *simulated(policy, {"moments": sums}, seed=5, replicate=0))
    # It wished eight times.
    assert played.releases["moments"] == 3


@pytest.mark.parametrize("trust", ["none", "local", "joint", "central"])
def test_a_shuffler_between_changes_nothing_in_a_sum(trust: str) -> None:
    policy: Any = POLICIES["linucb"].build(WORLD_3.problem(HORIZON), "tuned")
    made = protect(policy, Protection(guarantee=promise(trust)), horizon=HORIZON)["moments"]
    sums = made.with_schedule(At(ends=(20, 40, 60)))
    runs = [
        drive(
            policy=policy,
            privatizers={"moments": sums},
            environment=WORLD_3,
            ledger=MemoryLedger(promise(trust)),
            horizon=HORIZON,
            seed=6,
            batch=batch,
        )
        for batch in (None, 20)
    ]
    assert (runs[0].actions == runs[1].actions).all()
    totals = [run.released["moments"].total for run in runs]
    np.testing.assert_allclose(totals[0], totals[1], rtol=1e-12, atol=1e-12)
    assert runs[1].releases == {"moments": 3}


class Wiretap(InProcess):
    """Keeps every report that leaves a device."""

    def __init__(self) -> None:
        super().__init__()
        self.reports: list[NDArray[np.float64]] = []

    def send(self, to: str, message: Message) -> Message:
        if isinstance(message, Reports):
            self.reports.append(np.asarray(message.answers["moments"]))
        return super().send(to, message)


def statistics(
    world: GLMEnvironment, query: Regression, actions: NDArray[np.int64], seed: int
) -> NDArray[np.float64]:
    """What the devices encoded, played again from the same addresses."""
    root = Stream.of(seed=seed, replicate=0)
    truth = world.init(root.at(WORLD))

    def encoded(round: Array, action: Array) -> Array:
        clock = Clock(round=round, since={})
        arms = world.arms(truth, clock, root.at(ARMS, round=round))
        reward = world.reward(truth, arms, action, clock, root.at(REWARD, round=round))
        x = arms.features[action].astype(jnp.float64)
        return query.encode(Example(features=x, reward=jnp.asarray(reward, jnp.float64)))

    rounds = jnp.arange(len(actions), dtype=jnp.int32)
    return np.asarray(jax.jit(jax.vmap(encoded))(rounds, jnp.asarray(actions)))


def far(residual: NDArray[np.float64], std: float) -> float:
    """How many standard deviations the sum of squares is from that of noise of this size."""
    squares = (residual / std) ** 2
    return float(abs(squares.sum() - squares.size) / np.sqrt(2 * squares.size))


def test_exact_local_noise_has_the_law_that_was_paid_for() -> None:
    policy: Any = POLICIES["linucb"].build(WORLD_3.problem(HORIZON), "tuned")
    sums = protect(policy, Protection(guarantee=promise("local")), horizon=HORIZON)[
        "moments"
    ].exact()
    assert isinstance(sums, CohortSums)
    assert sums.device is not None
    tap, ledger = Wiretap(), MemoryLedger(promise("local"))
    played = drive(
        policy=policy,
        privatizers={"moments": sums},
        environment=WORLD_3,
        ledger=ledger,
        horizon=HORIZON,
        seed=8,
        transport=tap,
    )
    assert isinstance(sums.query, Regression)
    reports = np.stack(tap.reports)
    noise = reports - statistics(WORLD_3, sums.query, played.actions, 8)
    std = float(sums.device.std)
    assert far(noise, std) < QUANTILE
    assert abs(noise.mean()) < QUANTILE * std / np.sqrt(noise.size)
    # The planted faults: the test must see noise that is off by a third or a half.
    assert far(noise, std * 2 / 3) > QUANTILE
    assert far(noise, std * 3 / 2) > QUANTILE
    # Whole grid steps add up without rounding, so the released total is the reports' sum exactly.
    assert (played.released["moments"].total == reports.sum(axis=0)).all()
    assert float(played.released["moments"].noise) == pytest.approx(std * np.sqrt(HORIZON))
    assert ledger.receipts[0].event == sums.device.event()
    assert 0 < played.spent.epsilon <= 8.0


def test_exact_central_noise_has_the_law_that_was_paid_for() -> None:
    policy: Any = POLICIES["linucb"].build(WORLD_3.problem(HORIZON), "tuned")
    made = protect(policy, Protection(guarantee=promise("central")), horizon=HORIZON)["moments"]
    assert isinstance(made, CohortSums)
    ends = At(ends=tuple(range(1, HORIZON + 1)))
    sums = CohortSums(
        query=made.query, schedule=ends, device=None, aggregator=made.aggregator
    ).exact()
    assert sums.aggregator is not None
    assert isinstance(sums.query, Regression)
    tap = Totals()
    played = drive(
        policy=policy,
        privatizers={"moments": sums},
        environment=WORLD_3,
        ledger=MemoryLedger(promise("central")),
        horizon=HORIZON,
        seed=9,
        transport=tap,
    )
    truth = statistics(WORLD_3, sums.query, played.actions, 9)
    released = np.diff(np.stack(tap.totals), axis=0, prepend=0.0)
    std = float(sums.aggregator.std)
    assert far(released - truth, std) < QUANTILE
    assert far(released - truth, std * 2 / 3) > QUANTILE
    assert far(released - truth, std * 3 / 2) > QUANTILE
    # Central reports are the clipped statistics, on the grid: no noise before the aggregator.
    assert np.abs(np.stack(tap.reports) - truth).max() < 1e-4


def test_exact_joint_noise_has_the_law_that_was_paid_for() -> None:
    policy: Any = POLICIES["linucb"].build(WORLD_3.problem(HORIZON), "tuned")
    sums = protect(policy, Protection(guarantee=promise("joint")), horizon=HORIZON)[
        "moments"
    ].exact()
    assert isinstance(sums, PrefixSums)
    assert isinstance(sums.query, Regression)
    assert isinstance(sums.noise, ExactContinualNoise)
    assert isinstance(sums.noise.factor, BLT)
    tap, ledger = Totals(), MemoryLedger(promise("joint"))
    played = drive(
        policy=policy,
        privatizers={"moments": sums},
        environment=WORLD_3,
        ledger=ledger,
        horizon=HORIZON,
        seed=10,
        transport=tap,
    )
    noise = np.stack(tap.totals) - np.stack(tap.reports).cumsum(axis=0)
    assert (noise % sums.noise.grid == 0).all()
    # Unmixed, the seed vector of each round: independent draws of one deviation.
    fit, ages = sums.noise.factor.fit, np.arange(HORIZON)
    weights = fit.base + np.array(fit.weights) @ np.power.outer(fit.decays, ages)
    gaps = np.subtract.outer(ages, ages)
    seeds = np.linalg.solve(np.where(gaps >= 0, weights[gaps], 0.0), noise)
    assert far(seeds, sums.noise.std) < QUANTILE
    assert far(seeds, sums.noise.std * 2 / 3) > QUANTILE
    assert far(seeds, sums.noise.std * 3 / 2) > QUANTILE
    stated = sums.noise.std * np.linalg.norm(weights)
    assert float(played.released["moments"].noise) == pytest.approx(stated)
    assert len(ledger.receipts) == 1
    assert played.spent.epsilon == pytest.approx(8.0, rel=1e-4)
    assert played.spent.epsilon <= 8.0


class Totals(Wiretap):
    """Keeps every released total too."""

    def __init__(self) -> None:
        super().__init__()
        self.totals: list[NDArray[np.float64]] = []

    def send(self, to: str, message: Message) -> Message:
        reply = super().send(to, message)
        release = getattr(reply, "release", None)
        if release is not None:
            self.totals.append(np.asarray(release.total))
        return reply


def test_a_budget_too_small_is_refused_before_anything_is_played() -> None:
    policy: Any = POLICIES["linucb"].build(WORLD_3.problem(HORIZON), "tuned")
    privatizers = protect(policy, Protection(guarantee=promise("local")), horizon=HORIZON)
    tap = Wiretap()
    poor = MemoryLedger(Guarantee(epsilon=1.0, delta=1e-6, trust=Trust.LOCAL))
    with pytest.raises(BudgetExceeded):
        drive(
            policy=policy,
            privatizers=privatizers,
            environment=WORLD_3,
            ledger=poor,
            horizon=HORIZON,
            seed=1,
            transport=tap,
        )
    assert tap.messages == 0
    assert poor.receipts == ()
