"""The run: one seed, one result, however it is cut; releases are metered and paid for."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from kerchief.core.contracts import Arms, Clock, Example, NoiseInfo, Policy, Release
from kerchief.core.errors import BudgetExceededError, InvalidValueError
from kerchief.core.queries import RegressionMoments
from kerchief.core.random import AGGREGATOR, ARMS, DEVICE, POLICY, REWARD, WORLD, Stream
from kerchief.core.struct import static, struct
from kerchief.environments import ChanceArms, Supervised, make_environment
from kerchief.mechanisms.gaussian import Gaussian
from kerchief.policies import POLICIES
from kerchief.privacy import Cohort, Guarantee, MemoryLedger, Trust, gaussian_noise_multiplier
from kerchief.privatizers import At, CohortSums, Every, OnDemand, Protection, protect
from kerchief.privatizers.schedule import Schedule
from kerchief.privatizers.sums import Memory, Tally
from kerchief.simulation import machine, rounds
from kerchief.simulation import run as module
from kerchief.simulation.loop import Scene, advance, begin
from kerchief.simulation.recorder import Progress
from kerchief.simulation.run import Run, simulate

WORLD_2D = make_environment(dim=2, arms=3)
QUERY = RegressionMoments.of(WORLD_2D.problem(20))
FREE = Guarantee(epsilon=math.inf, delta=0.0, trust=Trust.NONE)
CENTRAL = Guarantee(epsilon=1.0, delta=1e-5, trust=Trust.CENTRAL)
LOCAL = Guarantee(epsilon=1.0, delta=1e-5, trust=Trust.LOCAL)
NOISE = Gaussian.of(
    noise_multiplier=gaussian_noise_multiplier(1.0, 1e-5), sensitivity=QUERY.sensitivity
)


@struct
class State:
    total: Array
    seen: Array


@struct
class Fickle(Policy):
    """Plays by what it was told, and asks again after a time read off the last release."""

    query: RegressionMoments = static()
    eager: float | Array

    @property
    def queries(self) -> Mapping[str, RegressionMoments]:
        return {"sum": self.query}

    def init(self, outlook: Mapping[str, NoiseInfo]) -> State:
        return State(total=jnp.zeros(self.query.size, jnp.float64), seen=jnp.int32(0))

    def due(self, state: State, clock: Clock) -> Mapping[str, Array | bool]:
        wait = 2 + (jnp.abs(state.total[0]) * 7).astype(jnp.int32) % 5
        return {"sum": (clock.since["sum"] >= wait) & (self.eager > 0)}

    def request(self, state: Any, name: str) -> None:
        return None

    def update(self, state: State, name: str, release: Release) -> State:
        return State(total=release.total, seen=release.count)

    def refreshes(self, clock: Clock) -> Array | bool:
        return False

    def publish(self, state: State) -> Array:
        return state.total[-2:].astype(jnp.float32)

    def act(self, model: Array, arms: Arms, clock: Clock, stream: Stream) -> Array:
        return jnp.argmax(jnp.where(arms.allowed, arms.features @ model, -jnp.inf))

    def record(
        self, model: Array, arms: Arms, action: Array, reward: Array
    ) -> Mapping[str, Example]:
        return {"sum": Example(features=arms.features[action], reward=reward)}


def fickle(eager: float = 1.0) -> Fickle:
    return Fickle(query=QUERY, eager=eager)


def sums(schedule: Schedule, *, device: bool = False) -> CohortSums:
    own, common = (NOISE, None) if device else (None, NOISE)
    return CohortSums(query=QUERY, schedule=schedule, device=own, aggregator=common)


def linear(
    *,
    horizon: int = 23,
    replicates: int = 4,
    ticks: int = 5,
    promise: Guarantee = CENTRAL,
    **more: Any,
) -> Run:
    policy = POLICIES["linucb"].build(WORLD_2D.problem(horizon), "tuned")
    return simulate(
        policy=policy,
        privatizers=protect(policy, Protection(guarantee=promise), horizon=horizon),
        environment=WORLD_2D,
        ledger=MemoryLedger(promise),
        horizon=horizon,
        replicates=replicates,
        ticks=ticks,
        **{"seed": 5, **more},
    )


def demanded(
    *,
    replicates: int = 5,
    first_replicate: int = 0,
    privatizer: CohortSums | None = None,
    ledger: MemoryLedger | None = None,
    eager: float = 1.0,
    horizon: int = 20,
) -> Run:
    return simulate(
        policy=fickle(eager),
        privatizers={"sum": privatizer or sums(OnDemand(limit=3))},
        environment=WORLD_2D,
        ledger=ledger or MemoryLedger(CENTRAL),
        horizon=horizon,
        replicates=replicates,
        first_replicate=first_replicate,
        seed=3,
        ticks=1,
    )


def test_run_is_determined_by_its_seed() -> None:
    first, again, other = linear(ticks=1), linear(ticks=1), linear(ticks=1, seed=6)
    assert (first.regret == again.regret).all()
    assert (first.regret != other.regret).any()
    assert first.device == "cpu"
    assert first.microseconds > 0


def test_segments_that_are_played_together_are_read_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As on an accelerator: the same regrets, and fewer looks."""
    usual, looks = linear(), list[int]()
    monkeypatch.setattr(rounds, "_find_largest_stretch", lambda: 10)
    monkeypatch.setattr(module, "is_foreseen", lambda environment: False)
    together = linear(
        progress=lambda stage, done: looks.append(done) if stage == "playing" else None
    )
    np.testing.assert_allclose(together.regret, usual.regret, rtol=1e-6)
    assert usual.rounds.tolist() == [4, 8, 12, 16, 20, 23]
    assert looks == [20, 23]


def test_a_shorter_segment_at_the_end_is_not_compiled_anew() -> None:
    machine.forget()
    compiled = [
        done
        for stage, done in _stages(lambda progress: linear(progress=progress))
        if stage == "compiling"
    ]
    # Worlds, the beginning, arms and rounds, before the first of them; segments have 4 and 3.
    assert compiled == [0, 0, 0, 0]


def _stages(play: Callable[[Progress], Run]) -> list[tuple[str, int]]:
    seen: list[tuple[str, int]] = []
    play(lambda stage, done: seen.append((stage, done)))
    return seen


@pytest.mark.parametrize(
    ("most", "stretches"),
    [
        (1, [(0, 4, 1), (4, 4, 1), (8, 4, 1), (12, 4, 1), (16, 3, 1)]),
        (3, [(0, 4, 2), (8, 4, 2), (16, 3, 1)]),
    ],
)
def test_stretches_cover_every_round_once(
    most: int, stretches: list[tuple[int, int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "_find_largest_stretch", lambda: most)
    assert list(rounds._split_stretches(np.array([4, 8, 12, 16, 19]))) == stretches


def test_a_run_may_be_cut_into_chunks_of_replicates() -> None:
    whole = linear(ticks=1)
    left, right = (linear(ticks=1, replicates=2, first_replicate=first) for first in (0, 2))
    chunks = np.concatenate([left.regret, right.regret], axis=1)
    np.testing.assert_allclose(chunks, whole.regret, rtol=1e-6, atol=1e-6)
    assert (np.diff(whole.regret[-1]) != 0).all()


def test_ticks_where_the_horizon_does_not_divide() -> None:
    told: list[tuple[str, int]] = []
    run = linear(progress=lambda stage, done: told.append((stage, done)))
    assert run.rounds.tolist() == [4, 8, 12, 16, 20, 23]
    assert [done for stage, done in told if stage == "playing"] == run.rounds.tolist()
    assert run.regret.shape == (6, 4)
    assert (np.diff(run.regret, axis=0) >= 0).all()
    coarse = linear(ticks=1)
    assert coarse.rounds.tolist() == [23]
    np.testing.assert_allclose(coarse.regret[-1], run.regret[-1], rtol=1e-6, atol=1e-6)


def test_a_horizon_of_one() -> None:
    run = linear(horizon=1, promise=LOCAL)
    assert run.rounds.tolist() == [1]
    assert run.regret.shape == (1, 4)
    assert run.releases["moments"].tolist() == [1] * 4
    assert run.spent.epsilon == pytest.approx(1.0, rel=2e-5)


def test_batches_are_released_and_paid_for() -> None:
    ledger = MemoryLedger(CENTRAL)
    run = demanded(privatizer=sums(At(ends=(1, 10, 40))), ledger=ledger)
    assert run.releases["sum"].tolist() == [1] * 5
    assert [receipt.used for receipt in ledger.receipts][-1] == 0
    assert run.spent.epsilon == pytest.approx(1.0, rel=1e-9)


def test_on_demand_is_served_within_its_limit_and_paid_for_once() -> None:
    ledger = MemoryLedger(CENTRAL)
    run = demanded(ledger=ledger)
    assert run.releases["sum"].max() == 3
    assert run.releases["sum"].min() >= 1
    (receipt,) = ledger.receipts
    assert receipt.used == 1
    assert (receipt.cohort.first, receipt.cohort.last) == (0, 20)
    assert run.spent.epsilon == pytest.approx(1.0, rel=1e-9)


def test_a_learner_that_never_asks_is_settled_at_nothing() -> None:
    ledger = MemoryLedger(CENTRAL)
    run = demanded(ledger=ledger, eager=0.0)
    assert run.releases["sum"].tolist() == [0] * 5
    assert [receipt.used for receipt in ledger.receipts] == [0]
    assert run.spent.epsilon == 0


def test_replicates_together_match_each_replicate_alone() -> None:
    together = demanded()
    for number in range(5):
        alone = demanded(replicates=1, first_replicate=number)
        np.testing.assert_allclose(alone.regret[:, 0], together.regret[:, number], rtol=1e-6)
        assert alone.releases["sum"][0] == together.releases["sum"][number]


@jax.jit
def one_round(root: Stream, model: Array, round: Array) -> tuple[Array, Array]:
    """What a round loses, and the report of its user."""
    policy, clock = fickle(), Clock(round=round, since={})
    world = WORLD_2D.init(root.at(WORLD))
    arms = WORLD_2D.arms(world, clock, root.at(ARMS, round=round))
    action = policy.act(model, arms, clock, root.at(POLICY, round=round))
    reward = WORLD_2D.reward(world, arms, action, clock, root.at(REWARD, round=round))
    record = policy.record(model, arms, action, reward)["sum"]
    report = sums(OnDemand(limit=3)).randomize(record, clock, root.at(DEVICE, round=round))
    return WORLD_2D.regret(world, arms, action, clock), report


@jax.jit
def one_release(root: Stream, memory: Memory, tally: Tally, clock: Clock) -> tuple[Release, Memory]:
    """The aggregator's answer at this time."""
    at = root.at(AGGREGATOR, round=clock.round)
    return sums(OnDemand(limit=3)).release(memory, tally, None, clock, at)


def by_hand(number: int) -> tuple[list[int], float]:
    """One replicate of the fickle policy, round by round: when it was answered, and its regret."""
    policy, privatizer = fickle(), sums(OnDemand(limit=3))
    root = Stream.of(seed=3, replicate=number)
    state = policy.init({})
    memory, tally = privatizer.open()
    times: list[int] = []
    regret = 0.0
    for t in range(20):
        lost, report = one_round(root, policy.publish(state), jnp.int32(t))
        tally = privatizer.collect(tally, report)
        regret += float(lost)
        now = Clock(round=jnp.int32(t), since={"sum": jnp.int32(t - (times[-1] if times else -1))})
        if bool(policy.due(state, now)["sum"]) and len(times) < 3:
            release, memory = one_release(root, memory, tally, now)
            state = policy.update(state, "sum", release)
            tally = privatizer.clear(tally)
            times.append(t)
    return times, regret


def test_the_loop_is_the_protocol_by_hand() -> None:
    run = demanded()
    answered = []
    for number in range(3):
        times, regret = by_hand(number)
        assert run.releases["sum"][number] == len(times)
        assert run.regret[-1, number] == pytest.approx(regret, rel=1e-5)
        answered.append(tuple(times))
    # The first wait is fixed; later ones follow from what was released.
    assert {times[0] for times in answered} == {1}
    assert len(set(answered)) > 1


def size(carry: Any) -> int:
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(carry))


@pytest.mark.nightly
def test_memory_does_not_grow_with_the_horizon() -> None:
    stage = Scene(
        policy=fickle(),
        privatizers={"sum": sums(OnDemand(limit=3))},
        environment=WORLD_2D,
        seed=jnp.uint32(3),
    )
    carry = jax.eval_shape(begin, stage, jnp.arange(3, dtype=jnp.uint32))
    lowered = advance.lower(stage, carry, jnp.int32(0), length=10_000)
    assert size(lowered.out_info) == size(carry)
    analysis: Any = lowered.compile().memory_analysis()
    # The scan holds its own round numbers, four bytes each: one number a replicate would add 12.
    assert int(analysis.temp_size_in_bytes) <= 4 * 10_000 + 16_384


@pytest.mark.parametrize("bad", [{"horizon": 0}, {"replicates": 0}, {"seed": -1}, {"seed": 2**32}])
def test_bad_numbers_are_refused_before_anything_is_charged(bad: dict[str, int]) -> None:
    ledger = MemoryLedger(FREE)
    good: dict[str, Any] = {"horizon": 5, "replicates": 2, "seed": 0}
    with pytest.raises(InvalidValueError):
        simulate(
            policy=fickle(),
            privatizers={"sum": sums(Every())},
            environment=WORLD_2D,
            ledger=ledger,
            **(good | bad),
        )
    assert ledger.receipts == ()


def test_too_small_budget_is_rejected_before_any_round() -> None:
    ledger = MemoryLedger(Guarantee(epsilon=0.5, delta=1e-5, trust=Trust.CENTRAL))
    with pytest.raises(BudgetExceededError):
        demanded(ledger=ledger)
    assert ledger.receipts == ()


def test_a_local_report_is_spent_when_it_is_sent() -> None:
    run = demanded(
        privatizer=sums(At(ends=(100,)), device=True), ledger=MemoryLedger(LOCAL), horizon=20
    )
    assert run.spent.epsilon == pytest.approx(1.0, rel=1e-9)


def test_only_released_batches_are_charged() -> None:
    """The learner declines the first end, so the second release speaks about both batches."""
    ledger = MemoryLedger(CENTRAL)
    demanded(privatizer=sums(At(ends=(1, 10, 40))), ledger=ledger)
    assert [receipt.used for receipt in ledger.receipts] == [1, 1, 0]


def test_a_refusal_leaves_no_trace() -> None:
    ledger = MemoryLedger(CENTRAL)
    ledger.charge(NOISE.event(), cohort=Cohort(first=15, last=16))
    with pytest.raises(BudgetExceededError):
        demanded(privatizer=sums(At(ends=(10, 20))), ledger=ledger)
    assert len(ledger.receipts) == 1


def test_no_ticks_are_refused() -> None:
    with pytest.raises(InvalidValueError):
        linear(ticks=0)


@pytest.mark.nightly
def test_serving_at_own_times_leaves_histories_as_they_are_alone() -> None:
    home = make_environment(link="probit", dim=2, arms=5, fewest=3)
    policy = POLICIES["glm-rare"].build(home.problem(30), "tuned")
    promise = Guarantee(epsilon=20.0, delta=1e-5, trust=Trust.JOINT)
    scene = Scene(
        policy=policy,
        privatizers=dict(protect(policy, Protection(guarantee=promise), horizon=30)),
        environment=home,
        seed=jnp.uint32(5),
    )

    def ended(replicates: list[int]) -> Any:
        carry = begin(scene, jnp.array(replicates, jnp.uint32))
        return advance(scene, carry, jnp.int32(0), length=30)

    together = ended([0, 1, 2, 3])
    # Some are served at times when others are not, or the test would say nothing.
    assert len(set(np.asarray(together.last["fit"]).tolist())) > 1
    assert (together.tally["fit"].count == 30).all()
    for replicate in (0, 3):
        alone = ended([replicate])
        assert int(alone.used["fit"][0]) == int(together.used["fit"][replicate])
        rows = [one.tally["fit"].rows for one in (alone, together)]
        np.testing.assert_allclose(rows[0][0], rows[1][replicate], atol=1e-5)
        assert float(alone.regret[0]) == pytest.approx(float(together.regret[replicate]), abs=1e-4)


def test_earned_is_the_sum_of_rewards() -> None:
    """On labelled data every user brings 1 or is lost."""
    dice = np.random.default_rng(0)
    rows = np.column_stack([dice.uniform(-0.5, 0.5, 300), np.full(300, 0.5)])
    world = Supervised.of(users=rows, labels=dice.integers(0, 3, 300), norm=1.0, constant=0.5)
    policy = POLICIES["uniform"].build(world.problem(300), "tuned")
    run = simulate(
        policy=policy,
        privatizers=protect(policy, Protection(guarantee=FREE), horizon=300),
        environment=world,
        ledger=MemoryLedger(FREE),
        horizon=300,
        replicates=3,
        seed=4,
    )
    assert run.earned is not None
    assert (run.earned > 0).all()
    np.testing.assert_array_equal(run.earned + run.regret[-1], [300.0] * 3)


def test_losses_earn_nothing() -> None:
    world = ChanceArms.of(arms=3)
    policy = POLICIES["uniform"].build(world.problem(20), "tuned")
    run = simulate(
        policy=policy,
        privatizers={},
        environment=world,
        ledger=MemoryLedger(FREE),
        horizon=20,
        replicates=2,
        seed=1,
    )
    assert run.earned is None
