"""Shuffled sums: bits through a real shuffler, cohorts, bills, and the roles apart."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from scipy import stats  # type: ignore[import-untyped]

from kerchief.core.batches import growing
from kerchief.core.errors import CapacityExceeded, InvalidValue
from kerchief.core.queries import Regression
from kerchief.environments import make_environment
from kerchief.mechanisms.binomial import Binomial, ExactBinomial
from kerchief.policies import POLICIES
from kerchief.privacy import Guarantee, MemoryLedger, Trust, gaussian_noise_multiplier
from kerchief.privatizers import At, Protection, ShuffledSums, protect
from kerchief.privatizers.shuffled import analyze, mix, to_bits
from kerchief.roles import Bandit, Curator, InProcess, Mixer, drive
from kerchief.roles.messages import Message, Mixed, Reports
from kerchief.simulation.run import simulate

QUERY = Regression(dim=2, norm=1.0, low=0.0, high=1.0)
PROMISE = Guarantee(epsilon=4.0, delta=1e-5, trust=Trust.SHUFFLE)
SMALL = ExactBinomial(step=1.0, scale=2, sensitivity=3.0, dimension=2)


def bytes_of(seed: int) -> Any:
    return np.random.default_rng(seed).bytes


def sums(**changes: Any) -> ShuffledSums:
    multiplier = gaussian_noise_multiplier(PROMISE.epsilon, PROMISE.delta)
    facts: dict[str, Any] = {"noise_multiplier": multiplier, "horizon": 500, "first": 50, **changes}
    schedule = At(ends=growing(facts.pop("horizon"), first=facts.pop("first"), growth=2.0))
    return ShuffledSums.of(QUERY, schedule=schedule, **facts)


def analyzed(vectors: list[Any], source: Any) -> Any:
    """Randomizer, shuffler and analyzer, with every single bit."""
    users = len(vectors)
    sent = []
    for place, vector in enumerate(vectors):
        report = SMALL.share(np.asarray(vector), place=place, users=users, randomness=source)
        sent.append(to_bits(report, SMALL, place=place, users=users))
    assert len({len(bits.values) for bits in sent}) == 1
    return analyze(mix(sent, randomness=source), SMALL, users=users)


def test_bits_through_a_real_shuffler_are_one_binomial_draw() -> None:
    """Chi-square against the total plus Bin(16, 1/2) - 8; errs once in a million."""
    source = bytes_of(0)
    vectors = [[2.0, -1.0], [0.0, 3.0], [-3.0, 0.0], [1.0, 1.0], [0.0, 0.0]]
    found = np.array([analyzed(vectors, source) for _ in range(4000)])
    heads = found - np.sum(vectors, axis=0) + 8
    np.testing.assert_array_equal(heads, np.rint(heads))
    for coordinate in heads.T:
        counts = np.bincount(coordinate.astype(int), minlength=17)[2:15]
        expected = stats.binom.pmf(np.arange(2, 15), 16, 0.5)
        wanted = expected / expected.sum() * counts.sum()
        assert stats.chisquare(counts, wanted).pvalue > 1e-6


def test_fractions_are_right_on_average() -> None:
    source = bytes_of(1)
    vectors = [[0.25, -0.5], [0.5, 0.1], [-1.3, 2.2]]
    found = np.array([analyzed(vectors, source) for _ in range(6000)])
    room = 5 * math.sqrt(4 + 3 / 4) / math.sqrt(6000)
    assert (np.abs(found.mean(0) - np.sum(vectors, axis=0)) < room).all()


def test_mixing_hides_the_order_and_keeps_the_bits() -> None:
    source = bytes_of(2)
    bits = to_bits(np.array([3.0, -3.0]) - 8, SMALL, place=0, users=1)
    mixed = mix([bits], randomness=source)
    assert sorted(mixed.labels) == sorted(bits.labels)
    assert not np.array_equal(mixed.labels, bits.labels)
    # The place of the first bit is uniform: chi-square over 22 * 2 places.
    first = np.zeros(len(bits.values))
    marked = dataclasses.replace(bits, labels=np.arange(len(bits.values)))
    for _ in range(4400):
        first[np.flatnonzero(mix([marked], randomness=source).labels == 0)[0]] += 1
    assert stats.chisquare(first).pvalue > 1e-6
    with pytest.raises(InvalidValue, match="clip"):
        to_bits(np.array([99.0, 0.0]), SMALL, place=0, users=1)


def test_cohorts_grow_and_a_short_last_one_is_left_out() -> None:
    made = sums()
    assert made.ends == (50, 100, 200, 400)
    assert sums(horizon=420).ends == (50, 100, 200, 400)
    assert sums(horizon=30).ends == (30,)
    assert made.cohort(0) == (0, 50)
    assert made.cohort(399) == (200, 400)
    assert sums(horizon=420).cohort(410) is None
    assert sums(horizon=420).bits(410) == 0
    noise = made.exact().aggregator
    assert isinstance(noise, ExactBinomial)
    assert made.bits(0) == 5 * (2 * noise.levels + -(-noise.trials // 50))
    with pytest.raises(InvalidValue, match="end at times"):
        made.with_schedule(
            protect(_linucb(20), Protection(guarantee=_free()), horizon=20)["moments"].schedule
        ).bits(0)


def _linucb(horizon: int) -> Any:
    return POLICIES["linucb"].build(make_environment(dim=2, arms=3).problem(horizon), "tuned")


def _free() -> Guarantee:
    return Guarantee(epsilon=math.inf, delta=0.0, trust=Trust.NONE)


def test_many_cohorts_cost_what_one_costs() -> None:
    spent = []
    for ends in ((500,), (50, 100, 500), tuple(range(1, 501))):
        made = sums().with_schedule(At(ends=ends))
        ledger = MemoryLedger(PROMISE)
        for charge in made.charges(500):
            ledger.charge(charge.event, cohort=charge.cohort, capacity=charge.capacity)
        spent.append(ledger.spent().epsilon)
    assert spent[0] == spent[1] == spent[2]
    assert 0.98 * PROMISE.epsilon < spent[0] <= PROMISE.epsilon


def test_the_theorem_is_hundreds_of_times_as_noisy() -> None:
    schedule = At(ends=growing(500, first=50, growth=2.0))
    proved = ShuffledSums.by_theorem(QUERY, epsilon=1.0, delta=1e-6, schedule=schedule)
    tight = sums(noise_multiplier=gaussian_noise_multiplier(1.0, 1e-6))
    assert isinstance(proved.aggregator, Binomial)
    assert isinstance(tight.aggregator, Binomial)
    assert float(proved.aggregator.std) > 150 * float(tight.aggregator.std)
    ledger = MemoryLedger(PROMISE)
    ledger.charge_all(proved.charges(500))
    assert ledger.spent().epsilon < 0.02
    with pytest.raises(InvalidValue, match="epsilon"):
        ShuffledSums.by_theorem(QUERY, epsilon=15.0, delta=1e-6, schedule=schedule)


@pytest.mark.nightly
def test_roles_apart_play_what_the_simulation_plays() -> None:
    world = make_environment(dim=2, arms=3)
    policy = POLICIES["linucb"].build(world.problem(450), "tuned")
    privatizers = protect(policy, Protection(guarantee=PROMISE), horizon=450)
    given: Any = {"policy": policy, "environment": world, "horizon": 450, "seed": 3}
    apart = drive(privatizers=privatizers, ledger=MemoryLedger(PROMISE), **given)
    run = simulate(privatizers=privatizers, ledger=MemoryLedger(PROMISE), replicates=1, **given)
    assert apart.regret.sum() == pytest.approx(run.regret[-1, 0], abs=1e-3)
    assert apart.releases == {"moments": 5}
    exact = drive(
        privatizers={name: one.exact() for name, one in privatizers.items()},
        ledger=MemoryLedger(PROMISE),
        **given,
    )
    assert exact.spent == run.spent
    assert np.isfinite(exact.released["moments"].total).all()


def test_a_bandit_with_exact_coins_is_not_saved() -> None:
    """A copy would forget the present cohort, and with it the coins that hide its other users."""
    facts = make_environment(dim=2, arms=3).problem(120)
    bandit = Bandit(policy="linucb", problem=facts, guarantee=PROMISE)
    for _ in range(60):
        bandit.decide(np.eye(2))
        bandit.learn(0.5)
    with pytest.raises(InvalidValue, match="coins"):
        bandit.save()
    simulated = Bandit(policy="linucb", problem=facts, guarantee=PROMISE, noise="simulated", seed=1)
    assert Bandit.load(simulated.save()).round == 0


def test_too_many_coins_are_refused_before_anything_is_paid() -> None:
    """With the remedy, and not by the first device that would have to toss them."""
    facts = make_environment(dim=64, arms=3).problem(200)
    ledger = MemoryLedger(dataclasses.replace(PROMISE, epsilon=0.01))
    remedy = "ask for a larger epsilon or delta, use fewer dimensions or longer cohorts"
    with pytest.raises(InvalidValue, match=remedy):
        Bandit(policy="linucb", problem=facts, guarantee=ledger.budget, ledger=ledger)
    assert not ledger.receipts
    with pytest.raises(InvalidValue, match=r"the most is 16777216: ask for a larger epsilon"):
        ExactBinomial(step=0.5, scale=2**24 + 1, sensitivity=1.0, dimension=3)


def test_a_shuffle_budget_pays_for_shuffled_sums_alone() -> None:
    policy = _linucb(60)
    central = protect(
        policy, Protection(guarantee=dataclasses.replace(PROMISE, trust=Trust.CENTRAL)), horizon=60
    )
    world = make_environment(dim=2, arms=3)
    ledger = MemoryLedger(PROMISE)
    with pytest.raises(InvalidValue, match="is not shuffled"):
        simulate(
            policy=policy,
            privatizers=central,
            environment=world,
            ledger=ledger,
            horizon=60,
            replicates=1,
            seed=0,
        )
    assert ledger.receipts == ()


def test_the_mixer_refuses_what_it_could_not_mix() -> None:
    mixer = Mixer(ends=(2,), transport=InProcess(), to="curator")
    mixer.handle(Reports(ticket="a", answers={"q": np.zeros(2)}))
    for bad in ({"q": np.array([np.nan, 0.0])}, {"q": np.zeros(3)}, {"p": np.zeros(2)}):
        with pytest.raises(InvalidValue):
            mixer.handle(Reports(ticket="b", answers=bad))
    assert mixer.waiting == 1


class Kept:
    """An address that keeps what it is sent."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    def handle(self, message: Message) -> Message:
        self.messages.append(message)
        return message


def test_the_mixer_passes_on_totals_of_full_cohorts_alone() -> None:
    transport, kept = InProcess(), Kept()
    transport.register("curator", kept)
    mixer = Mixer(ends=(2, 3), transport=transport, to="curator")
    for ticket in ("a", "a", "b", "c", "d"):
        mixer.handle(Reports(ticket=ticket, answers={"q": np.array([1.0, 2.0])}))
    first, second = kept.messages
    assert isinstance(first, Mixed)
    assert isinstance(second, Mixed)
    assert (first.users, np.asarray(first.answers["q"]).tolist()) == (2, [2.0, 4.0])
    assert (second.users, mixer.waiting) == (1, 1)
    with pytest.raises(InvalidValue, match="takes Reports"):
        mixer.handle(first)


def test_the_curator_counts_mixed_users() -> None:
    made = sums(horizon=60, first=60).exact()
    curator = Curator(privatizers={"q": made}, ledger=MemoryLedger(PROMISE), horizon=60)
    curator.open()
    curator.handle(Mixed(users=60, answers={"q": np.zeros(QUERY.size)}))
    assert curator.users == 60
    with pytest.raises(CapacityExceeded, match="paid for"):
        curator.handle(Mixed(users=1, answers={"q": np.zeros(QUERY.size)}))
