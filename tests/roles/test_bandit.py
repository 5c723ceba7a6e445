"""One bandit in one object: it plays as the simulation does, refuses what it must, and restarts."""

from __future__ import annotations

import copy
import dataclasses
import functools
import os
import pickle
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

from kerchief.core.codec import decode
from kerchief.core.contracts import Clock
from kerchief.core.errors import (
    BudgetExceeded,
    CapacityExceeded,
    CodecError,
    InvalidValue,
    UnknownName,
    WeakPromise,
)
from kerchief.core.problems import ContextFreeProblem, Problem
from kerchief.core.random import ARMS, REWARD, WORLD, Stream
from kerchief.environments import make_environment
from kerchief.mechanisms.binomial import Binomial
from kerchief.mechanisms.exact_gaussian import ExactGaussian
from kerchief.mechanisms.laplace import Laplace
from kerchief.mechanisms.tree import Tree
from kerchief.policies import POLICIES
from kerchief.privacy import Guarantee, MemoryLedger, Trust
from kerchief.privatizers import Protection, protect
from kerchief.roles import Bandit
from kerchief.roles.arrange import arrange
from kerchief.roles.pool import Pooled
from kerchief.simulation.loop import Scene, advance, begin

HORIZON = 60
SEED = 4_000_000_011
# The same shapes as in `test_drive`, so that the compiled loop is shared.
SCENERY = make_environment(dim=3, arms=6, fewest=3)
FACTS = SCENERY.problem(HORIZON)
EYE = np.eye(3)
QUANTILE = 4.9


def promise(trust: str) -> Guarantee:
    if trust == "none":
        return Guarantee(epsilon=float("inf"), delta=0.0, trust=Trust.NONE)
    return Guarantee(epsilon=8.0, delta=1e-6, trust=Trust(trust))


def bandit(trust: str, **options: Any) -> Bandit:
    return Bandit(policy="linucb", problem=FACTS, guarantee=promise(trust), **options)


@functools.cache
def script(seed: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """All rounds' arms, and each arm's reward, as the simulation at this seed would draw them."""
    root = Stream.of(seed=seed, replicate=0)
    world = SCENERY.init(root.at(WORLD))

    def one(round: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        clock = Clock(round=round, since={})
        arms = SCENERY.arms(world, clock, root.at(ARMS, round=round))
        at = root.at(REWARD, round=round)
        rewards = jax.vmap(lambda arm: SCENERY.reward(world, arms, arm, clock, at))(jnp.arange(6))
        return arms.features, arms.allowed, rewards

    arms, allowed, rewards = jax.jit(jax.vmap(one))(jnp.arange(HORIZON, dtype=jnp.int32))
    return np.asarray(arms), np.asarray(allowed), np.asarray(rewards)


def play(one: Bandit, seed: int, start: int, stop: int) -> list[int]:
    arms, allowed, rewards = script(seed)
    actions = []
    for round in range(start, stop):
        actions.append(one.decide(arms[round], allowed[round]))
        one.learn(float(rewards[round, actions[-1]]))
    return actions


def same(first: Any, second: Any, tolerance: float = 0.0) -> None:
    pairs = zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True)
    for mine, theirs in pairs:
        np.testing.assert_allclose(mine, theirs, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize(
    "trust",
    [
        "joint",
        *(pytest.param(one, marks=pytest.mark.nightly) for one in ("none", "local", "central")),
    ],
)
def test_a_simulated_bandit_plays_as_the_simulation(trust: str) -> None:
    policy: Any = POLICIES["linucb"].build(FACTS, "tuned")
    privatizers = protect(policy, Protection(guarantee=promise(trust)), horizon=HORIZON)
    scene = Scene(
        policy=policy, privatizers=dict(privatizers), environment=SCENERY, seed=jnp.uint32(SEED)
    )
    carry = begin(scene, jnp.zeros(1, jnp.uint32))
    for round in range(HORIZON):
        carry = advance(scene, carry, jnp.int32(round), length=1)
    one = bandit(trust, noise="simulated", seed=SEED)
    play(one, SEED, 0, HORIZON)
    same(one.model, jax.tree.map(lambda leaf: leaf[0], carry.model), 1e-5)
    assert one.spent().epsilon == pytest.approx(promise(trust).epsilon, rel=1e-4)


@pytest.mark.parametrize("trust", ["none", "local", "central"])
def test_a_simulated_bandit_survives_a_restart(trust: str) -> None:
    """Under central trust 50 users end a cohort, so that none is open."""
    one = bandit(trust, noise="simulated", seed=SEED)
    play(one, SEED, 0, 50)
    again = Bandit.load(one.save())
    assert play(again, SEED, 50, HORIZON) == play(one, SEED, 50, HORIZON)
    same(one.model, again.model)
    assert again.round == HORIZON
    assert again.spent() == one.spent()


@pytest.mark.parametrize("trust", ["local", "joint", "central"])
def test_an_exact_bandit_plays_to_its_horizon(trust: str) -> None:
    books = MemoryLedger(promise(trust))
    one = bandit(trust, ledger=books)
    assert len(books.receipts) > 0
    play(one, SEED, 0, HORIZON)
    assert 7.9 < one.spent().epsilon <= 8.0
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(one.model))
    with pytest.raises(CapacityExceeded, match="60 rounds"):
        one.decide(EYE)


@pytest.mark.parametrize("noise", ["exact", "simulated"])
def test_no_copy_releases_a_cohort_again(noise: str) -> None:
    """What was not released when the bandit was saved is never released from the copy."""
    seed = SEED if noise == "simulated" else None
    one = bandit("central", noise=noise, seed=seed)
    play(one, SEED, 0, 49)
    text = one.save()
    totals = []
    for _ in range(2):
        again = Bandit.load(text)
        play(again, SEED, 49, 50)
        totals.append(decode(again.save()).memory)
    # One user alone is in the release: with the 49 others the trace would be near their number.
    for memory in totals:
        released = (
            memory["desks"]["moments"].memory if noise == "exact" else memory["memory"]["moments"]
        )
        trace = released.total[0] + released.total[2]
        assert abs(float(trace)) < 1 + 6 * 2**0.5 * float(one_std())


def one_std() -> float:
    (noise,) = protect(
        POLICIES["linucb"].build(FACTS, "tuned"),
        Protection(guarantee=promise("central")),
        horizon=HORIZON,
    )["moments"].noises
    return float(noise.std)


def test_a_bandit_under_joint_trust_cannot_be_copied() -> None:
    with pytest.raises(InvalidValue, match="exact totals"):
        bandit("joint").save()


def test_a_ledger_that_never_paid_is_refused() -> None:
    text = bandit("local").save()
    with pytest.raises(InvalidValue, match="receipts"):
        Bandit.load(text, ledger=MemoryLedger(promise("local")))


def test_the_ledger_must_speak_of_the_same_trust() -> None:
    with pytest.raises(InvalidValue, match="same trust"):
        bandit("central", ledger=MemoryLedger(promise("local")))


def test_the_model_stands_still_between_central_releases_and_moves_at_one() -> None:
    one = bandit("central")
    before = one.model
    play(one, SEED, 0, 49)
    assert (one.model.estimate == before.estimate).all()
    play(one, SEED, 49, 50)
    assert (one.model.estimate != before.estimate).any()


def test_a_joint_bandit_shows_nothing_of_its_exact_total() -> None:
    one = bandit("joint")
    before = one.model
    play(one, SEED, 0, 3)
    assert (one.model.estimate != before.estimate).any()
    assert "moments" not in repr(one)


def test_the_saved_text_holds_no_noise_seed_or_pending_arm() -> None:
    one = bandit("local")
    play(one, SEED, 0, 5)
    settled = one.save()
    one.decide(EYE * 0.123456)
    assert one.save() == settled
    assert "Pooled" not in settled
    assert '"seed":null' in settled
    with pytest.raises(InvalidValue, match="no decision"):
        Bandit.load(one.save()).learn(0.5)


@pytest.mark.parametrize("trust", ["none", "local"])
@pytest.mark.parametrize(
    ("features", "words"),
    [
        (np.zeros((7, 3)), "shape"),
        (np.zeros((4, 2)), "shape"),
        (np.zeros(3), "shape"),
        (np.zeros((0, 3)), "shape"),
        (EYE * 1.01, "row 0 .* its norm must be at most 1.0: rescale"),
        (EYE * 1e200, "too long"),
        (np.full((2, 3), np.nan), "not finite"),
        (np.full((2, 3), -np.inf), "not finite"),
        ([[1.0, 0.0, 0.0], [1.0]], "matrix of real numbers"),
        ([["a", "b", "c"]], "matrix of real numbers"),
    ],
)
def test_bad_arms_are_refused_and_leave_no_trace(
    trust: str, features: NDArray[np.float64], words: str, bandits: dict[str, Bandit]
) -> None:
    one = bandits[trust]
    before = one.save()
    with pytest.raises(InvalidValue, match=words):
        one.decide(features)
    assert one.save() == before


@pytest.fixture(scope="module")
def bandits() -> dict[str, Bandit]:
    return {trust: bandit(trust) for trust in ("none", "local")}


@pytest.mark.parametrize("trust", ["none", "local"])
def test_bad_masks_and_rewards_are_refused(trust: str, bandits: dict[str, Bandit]) -> None:
    one = bandits[trust]
    for mask in ([True], [1, 1, 1], [False] * 3):
        with pytest.raises(InvalidValue, match="allowed"):
            one.decide(EYE, mask)
    one.decide(EYE)
    before = one.save()
    for reward in (np.nan, np.inf, -np.inf, 1.5, -1.5):
        with pytest.raises(InvalidValue, match=r"it must lie in \[-1.0, 1.0\]"):
            one.learn(reward)
    assert one.save() == before


def test_refused_arms_do_not_displace_a_pending_decision() -> None:
    slip, without = bandit("none"), bandit("none")
    for one in (slip, without):
        one.decide(EYE * 0.5)
    with pytest.raises(InvalidValue):
        slip.decide(EYE * 7)
    for one in (slip, without):
        one.learn(1.0)
    same(slip.model, without.model)
    assert np.abs(without.model.estimate).max() > 0
    check_replacement(slip, without)


def check_replacement(twice: Bandit, once: Bandit) -> None:
    """A second decision replaces the first, and a reward is taken once."""
    twice.decide(EYE * 0.9)
    for one in (twice, once):
        one.decide(EYE * 0.5)
        one.learn(1.0)
        with pytest.raises(InvalidValue, match="no decision"):
            one.learn(1.0)
    same(twice.model, once.model)
    assert twice.round == once.round == 2


@pytest.mark.parametrize("trust", ["none", "local"])
def test_fewer_rows_are_padded_and_masked(trust: str, bandits: dict[str, Bandit]) -> None:
    one = bandits[trust]
    for _ in range(5):
        assert one.decide(EYE[:1]) == 0
        assert one.decide(EYE, [False, False, True]) == 2
        assert one.decide(EYE[:2] * 0.0) in (0, 1)


def test_uniform_play_needs_no_seed_and_reaches_every_arm() -> None:
    one = Bandit(policy="uniform", problem=FACTS, guarantee=promise("none"))
    found = set()
    for _ in range(HORIZON):
        found.add(one.decide(EYE))
        one.learn(0.0)
    # Each arm is missed with probability (2/3)**60 < 1e-10.
    assert found == {0, 1, 2}


def test_bad_settings_are_refused_before_anything_is_charged() -> None:
    books = MemoryLedger(promise("local"))
    for options, words in (
        ({"noise": "loud"}, "noise"),
        ({"seed": 1}, "exact noise"),
        ({"noise": "simulated"}, "seed is None"),
        ({"noise": "simulated", "seed": -1}, "seed"),
        ({"mode": "wild"}, "mode"),
    ):
        with pytest.raises(InvalidValue, match=words):
            bandit("local", ledger=books, **options)
    with pytest.raises(InvalidValue, match="runs under"):
        Bandit(policy="uniform", problem=FACTS, guarantee=promise("local"), ledger=books)
    with pytest.raises(UnknownName):
        Bandit(policy="linucbb", problem=FACTS, guarantee=promise("local"), ledger=books)
    assert books.receipts == ()
    poor = MemoryLedger(Guarantee(epsilon=1.0, delta=1e-6, trust=Trust.LOCAL))
    with pytest.raises(BudgetExceeded):
        bandit("local", ledger=poor)
    assert poor.receipts == ()


@pytest.mark.parametrize(
    ("trust", "word", "kind"),
    [("local", "laplace", Laplace), ("joint", "tree", Tree), ("shuffle", "theorem", Binomial)],
)
def test_the_noise_that_was_named_is_the_one_that_is_drawn(
    trust: str, word: str, kind: type
) -> None:
    one = Bandit(
        policy="linucb",
        problem=dataclasses.replace(FACTS, horizon=4000),
        guarantee=promise(trust),
        noise="simulated",
        seed=1,
        mechanism=word,
    )
    (sums,) = one._setup.privatizers.values()
    (noise,) = sums.noises
    assert type(getattr(noise, "factor", noise)) is kind


def test_noise_of_another_trust_and_policies_of_another_kind_are_refused() -> None:
    ledger = MemoryLedger(promise("local"))
    for word in ("tree", "bits", "one-bits"):
        with pytest.raises(UnknownName, match=f"no randomizer is called '{word}'"):
            bandit("local", mechanism=word, ledger=ledger)
    for name in ("dpe", "tsallis"):
        with pytest.raises(InvalidValue, match="the problem is a Problem with arms; this bandit"):
            Bandit(policy=name, problem=FACTS, guarantee=promise("local"), ledger=ledger)
    heard: Any = arrange(
        "ucb",
        ContextFreeProblem(horizon=60, low=0.0, high=1.0, arms=3),
        Protection(guarantee=promise("local")),
    ).policy
    with pytest.raises(InvalidValue, match="UCB hears reports"):
        Bandit(policy=heard, problem=FACTS, guarantee=promise("local"), ledger=ledger)
    assert ledger.receipts == ()


def test_what_is_not_a_saved_bandit_is_refused() -> None:
    with pytest.raises(CodecError):
        Bandit.load("{}")
    with pytest.raises(CodecError):
        Bandit.load("nonsense")


def test_nothing_private_is_shown(bandits: dict[str, Bandit]) -> None:
    assert repr(bandits["local"]) == "Bandit(LinUCB, local trust, exact noise, round 0 of 60)"


def noise() -> ExactGaussian:
    return ExactGaussian.matching(2.0, 1.0, 9)


def far(residual: NDArray[np.float64], std: float) -> float:
    squares = (residual / std) ** 2
    return float(abs(squares.sum() - squares.size) / np.sqrt(2 * squares.size))


def test_a_pool_has_the_law_of_its_noise() -> None:
    # 3000 rows run through the pool's 1820 rows more than once.
    pool, vector = Pooled(noise()), np.linspace(-1, 1, 9)
    drawn = np.stack([pool.add(vector) for _ in range(3000)]) - noise().prepare(vector)
    assert far(drawn, pool.std) < QUANTILE
    assert far(drawn, pool.std * 2 / 3) > QUANTILE
    assert far(drawn, pool.std * 3 / 2) > QUANTILE
    assert abs(drawn.mean()) < QUANTILE * pool.std / np.sqrt(drawn.size)
    # Nine coordinates of about 20 bits each: two equal rows would be one row used twice.
    assert len({row.tobytes() for row in drawn}) == len(drawn)
    assert pool.event() == noise().event()


def test_a_pool_is_in_no_copy_and_no_pickle() -> None:
    pool = Pooled(noise())
    pool.add(np.zeros(9))
    for other in (copy.deepcopy(pool), copy.copy(pool), pickle.loads(pickle.dumps(pool))):
        assert other._rows.size == 0
    assert len(pickle.dumps(pool)) < 1000


def test_a_forked_child_throws_its_pool_away(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Pooled(noise())
    pool.add(np.zeros(9))
    inherited = pool._rows
    monkeypatch.setattr(os, "getpid", lambda: -1)
    pool.add(np.zeros(9))
    assert pool._rows is not inherited


def test_a_pool_takes_no_stream_and_keeps_the_bounds() -> None:
    pool: Any = Pooled(noise())
    with pytest.raises(InvalidValue, match="takes none"):
        pool.add(np.zeros(9), os.urandom)
    with pytest.raises(InvalidValue, match="float64"):
        pool.add(np.zeros(9, np.float32))
    with pytest.raises(InvalidValue):
        pool.add(np.full(9, 2.0**60))


def test_problems_with_other_bounds_are_kept() -> None:
    facts = Problem(dim=3, arms=4, norm=2.0, radius=1.0, low=0.0, high=5.0, horizon=3)
    one = Bandit(policy="linucb", problem=facts, guarantee=promise("none"))
    one.decide(EYE * 2.0)
    one.learn(5.0)
    with pytest.raises(InvalidValue):
        one.decide(EYE * 2.001)


def test_a_delta_that_means_little_is_warned_of() -> None:
    """In the words of the command line; nothing is said of a smaller one."""
    weak = Guarantee(epsilon=1.0, delta=0.05, trust=Trust.LOCAL)
    facts = SCENERY.problem(20)
    with pytest.warns(WeakPromise, match=r"delta is 0.05, which is not below 1/horizon = 0.05: "):
        Bandit(policy="linucb", problem=facts, guarantee=weak)
