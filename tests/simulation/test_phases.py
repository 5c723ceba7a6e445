"""Runs by phases: what is released, what it costs, what is sent, and what is lost.

Each statistical test fails by chance with probability at most 1e-6; seeds are fixed.
"""

from __future__ import annotations

import dataclasses
import math
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from numpy.typing import NDArray

from kerchief.core.errors import BudgetExceededError, InvalidValueError
from kerchief.core.phases import ANSWERS, Phase
from kerchief.environments.population import Population
from kerchief.policies import POLICIES
from kerchief.policies.phased.elimination import Elimination
from kerchief.privacy import Guarantee, MemoryLedger, Trust
from kerchief.privatizers import Protection, protect
from kerchief.simulation import Run, simulate
from kerchief.simulation.machine import compiled
from kerchief.simulation.phases import PhaseReplicate, PhaseScene, begin, phases_of, play

WORLD = Population.of(dim=3, arms=12, clients=2000, radius=0.6, spread=0.2)
HORIZON, REPLICATES = 2050, 200
TRUSTS = ("none", "central", "shuffle", "local")


def promise(trust: str, epsilon: float = 4.0, delta: float = 0.01) -> Guarantee:
    if trust == "none":
        return Guarantee(epsilon=math.inf, delta=0.0, trust=Trust.NONE)
    return Guarantee(epsilon=epsilon, delta=delta, trust=Trust(trust))


def policy(name: str = "dpe", horizon: int = HORIZON) -> Any:
    return POLICIES[name].build(WORLD.problem(horizon), "tuned")


def protected(one: Any, guarantee: Guarantee) -> Any:
    return protect(one, Protection(guarantee=guarantee), horizon=HORIZON)


def run(name: str, trust: str, **changes: Any) -> Run:
    one = policy(name)
    guarantee = promise(trust)
    choices: dict[str, Any] = {
        "policy": one,
        "privatizers": protected(one, guarantee),
        "environment": WORLD,
        "ledger": MemoryLedger(guarantee),
        "horizon": HORIZON,
        "replicates": REPLICATES,
        "seed": 5,
    }
    return simulate(**choices | changes)


@lru_cache
def ran(name: str, trust: str) -> Run:
    return run(name, trust)


def walk(one: Elimination, privatizers: Any, phases: tuple[Phase, ...]) -> list[PhaseReplicate]:
    """Where all replicates stand before the first phase and after each, without a ledger."""
    scene = PhaseScene.of(one, privatizers, WORLD, 11)
    carries = [begin(scene, jnp.arange(REPLICATES, dtype=jnp.uint32))]
    for phase in phases:
        arguments = scene, carries[-1], jax.tree.map(jnp.int32, phase)
        carries.append(compiled(play, *arguments)[0](*arguments))
    return carries


@partial(jax.jit, static_argnames="noisy")
def standardized(
    one: Elimination,
    before: PhaseReplicate,
    after: PhaseReplicate,
    phase: Phase,
    noise: Array,
    *,
    noisy: bool,
) -> Array:
    """Errors of some estimated leads over their deviation, one row per replicate."""

    def errors(before: PhaseReplicate, after: PhaseReplicate, noise: Array) -> Array:
        features = before.world.features
        asked = one.ask(features, before.state, phase, noisy=noisy)
        apart = features[0].astype(jnp.float64) - features[1:4]
        users = jnp.maximum(after.last.count, 1)
        estimate = asked.decoder @ (after.last.total / users[:, None]).ravel()
        each = jnp.repeat(noise / users, after.last.total.shape[1])
        widths = one._exact_widths(apart, asked, phase, each)
        return apart @ (estimate - before.world.parameter) / (widths / one.width)

    return jax.vmap(errors)(before, after, noise)


@pytest.mark.nightly
@pytest.mark.parametrize("trust", TRUSTS)
def test_release_is_unbiased_with_stated_deviation(trust: str) -> None:
    """Mean 0, and deviation 1: noise that is a third too small would make it 0.8 at most."""
    one = dataclasses.replace(policy(), margin=20.0, hope=10.0)
    privatizers = protected(one, promise(trust, epsilon=0.5))
    first = phases_of(one, privatizers)[0]
    phase = dataclasses.replace(first, pulls=90, clients=150)
    before, after = walk(one, privatizers, (phase,))

    def errors(noise: Array) -> NDArray[np.float64]:
        noisy = trust != "none"
        return np.asarray(standardized(one, before, after, phase, noise, noisy=noisy))

    found = errors(after.last.noise)
    assert np.abs(found.mean(0)).max() < 5 / math.sqrt(REPLICATES)
    # A reward of 1 or -1 varies less than its bound, so sampling errs less than is stated.
    assert (0.78 if trust == "none" else 0.88) < found.std() < 1.12
    if trust != "none":
        assert errors(0 * after.last.noise).std() > 1.8


@pytest.mark.nightly
@pytest.mark.parametrize("trust", ["central", "shuffle", "local"])
def test_without_noise_it_is_the_non_private_bandit(trust: str) -> None:
    """With a margin so wide that nobody sends an own estimate, all of it is the same."""
    one = dataclasses.replace(policy(), margin=1e6)
    noisy, plain = protected(one, promise(trust)), protected(one, promise("none"))
    silent = noisy[ANSWERS].with_noise(lambda noise: dataclasses.replace(noise, std=0.0))
    phases = phases_of(one, plain)
    found = walk(one, {ANSWERS: silent}, phases)[-1]
    expected = walk(one, plain, phases)[-1]
    np.testing.assert_array_equal(found.state.allowed, expected.state.allowed)
    np.testing.assert_allclose(found.regret, expected.regret, rtol=1e-12)
    assert (np.asarray(expected.state.allowed).sum(1) < 6).mean() > 0.5


@pytest.mark.nightly
def test_the_best_action_is_hardly_ever_dropped() -> None:
    """The union bound allows for 0.3 of these runs; half a deviation would cost dozens."""

    def dropped(width: float) -> int:
        one = dataclasses.replace(policy(), width=width)
        privatizers = protected(policy(), promise("central"))
        last = walk(one, privatizers, phases_of(policy(), privatizers))[-1]
        best = np.asarray(jax.vmap(WORLD.losses)(last.world)).argmin(1)
        return int((~np.asarray(last.state.allowed)[np.arange(REPLICATES), best]).sum())

    assert dropped(float(policy().width)) <= 5
    assert dropped(0.5) >= 20


@pytest.mark.nightly
@pytest.mark.parametrize(
    "trust",
    ["central", *(pytest.param(one, marks=pytest.mark.nightly) for one in ("shuffle", "local"))],
)
def test_phased_run_spends_the_requested_budget(trust: str) -> None:
    found = ran("dpe", trust)
    assert found.spent.epsilon == pytest.approx(4.0, rel=0.02)
    assert found.spent.epsilon <= 4.0 * (1 + 1e-9)
    assert found.spent.delta == 0.01


@pytest.mark.nightly
def test_cohorts_are_disjoint_and_unplayed_phases_cost_nothing() -> None:
    one, guarantee = policy(), promise("central")
    ledger, phases = MemoryLedger(guarantee), phases_of(one, protected(one, guarantee))
    found = run("dpe", "central", ledger=ledger)
    ends = np.cumsum([phase.clients for phase in phases])
    assert [receipt.cohort.last for receipt in ledger.receipts] == ends.tolist()
    assert [receipt.cohort.first for receipt in ledger.receipts] == [0, *ends[:-1]]
    played = int(found.releases[ANSWERS].max())
    used = [receipt.used for receipt in ledger.receipts]
    assert used == [1] * played + [0] * (len(ends) - played)


@pytest.mark.nightly
def test_the_phase_that_the_horizon_cuts_asks_nobody() -> None:
    """Plays are rounded up, so 2 + 4 + ... + 1024 planned rounds do not fit into four more."""
    one, ledger = policy("dpe@paper"), MemoryLedger(promise("none"))
    phases = phases_of(one, protected(one, promise("none")))
    found = run("dpe@paper", "none", ledger=ledger)
    assert sum(int(phase.pulls) for phase in phases) == HORIZON - 4
    assert (found.releases[ANSWERS] == len(phases) - 1).all()
    assert [receipt.used for receipt in ledger.receipts] == [1] * 9 + [0]
    assert found.rounds[-1] == HORIZON


def test_too_small_budget_is_rejected_before_any_draw() -> None:
    small = MemoryLedger(promise("central", epsilon=1.0))
    with pytest.raises(BudgetExceededError, match="nothing was charged"):
        run("dpe", "central", ledger=small)
    assert small.receipts == ()


def test_a_small_population_is_refused() -> None:
    problem = dataclasses.replace(WORLD, clients=100).problem(HORIZON)
    with pytest.raises(InvalidValueError, match="population has 100"):
        protected(POLICIES["dpe@paper"].build(problem, "tuned"), promise("central"))


def test_noise_is_calibrated_where_the_classical_formula_is_not() -> None:
    """At epsilon 10 and delta 0.25 the noise is 0.2472 sensitivities, not 0.1794."""
    (noise,) = protected(policy(), promise("central", epsilon=10.0, delta=0.25))[ANSWERS].noises
    assert noise.sensitivity == 2.0
    assert float(noise.std) == pytest.approx(0.2472 * 2, abs=1e-4)


def test_noise_grows_down_the_ladder_of_trusts() -> None:
    """Of the mean of n answers: central at most shuffle, within a tenth, and local √n as much.

    Where devices add normal noise, that is; by default they add less.
    """

    def deviation(trust: str, mechanism: str = "best", clients: int = 400) -> float:
        protection = Protection(guarantee=promise(trust), mechanism=mechanism)
        made: Any = protect(policy(), protection, horizon=HORIZON)[ANSWERS]
        return float(made.noise_after(jnp.asarray(clients), jnp.asarray(1))) / clients

    stated = [deviation(trust) for trust in TRUSTS[:3]]
    none, central, shuffle = stated
    assert none == 0
    assert central <= shuffle <= 1.1 * central
    assert deviation("local", "gaussian") == pytest.approx(20 * central)
    assert deviation("local") < 0.9 * deviation("local", "gaussian")


@pytest.mark.nightly
def test_regret_falls_from_local_to_none() -> None:
    means = {trust: ran("dpe", trust).regret[-1].mean() for trust in TRUSTS}
    errors = {trust: ran("dpe", trust).regret[-1].std() / math.sqrt(REPLICATES) for trust in TRUSTS}
    assert means["none"] < means["central"] - 3 * errors["central"]
    assert means["shuffle"] < 1.2 * means["central"]
    assert 2 * means["shuffle"] < means["local"] - 5 * errors["local"]
    assert means["local"] < ran("uniform", "none").regret[-1].mean()


def test_uniform_play_loses_the_average_gap() -> None:
    found = ran("uniform", "none")
    scene = PhaseScene.of(policy("uniform"), {}, WORLD, 5)
    worlds = begin(scene, jnp.arange(REPLICATES, dtype=jnp.uint32)).world
    gaps = np.asarray(jax.vmap(WORLD.losses)(worlds)).mean(1)
    np.testing.assert_allclose(found.regret[-1], HORIZON * gaps, rtol=1e-6)
    np.testing.assert_allclose(found.regret[49], 1000 * gaps, rtol=1e-6)
    assert found.spent.epsilon == 0
    assert found.releases == {}
    assert found.communication["reals"].sum() == 0


def test_regret_is_read_at_every_tick() -> None:
    found = ran("dpe", "central")
    assert found.rounds.tolist() == [*range(20, 2050, 20), 2050]
    assert found.regret.shape == (103, REPLICATES)
    assert (np.diff(found.regret, axis=0) >= -1e-9).all()
    assert found.microseconds > 0


@pytest.mark.nightly
def test_communication_counts_numbers_and_bits_sent() -> None:
    """The paper's rule asks in each phase, and sends an average an atom: 64 bits a number."""
    found = ran("dpe@paper", "none")
    one = policy("dpe@paper")
    phases = phases_of(one, protected(one, promise("none")))
    asked = sum(int(phase.clients) for phase in phases[: int(found.releases[ANSWERS][0])])
    sent = found.communication["reals"]
    assert (sent >= asked).all()
    assert (sent <= 6 * asked).all()
    np.testing.assert_allclose(found.communication["bits"], 64 * sent)


@pytest.mark.nightly
def test_shuffled_answers_are_counted_in_bits() -> None:
    found, privatizers = ran("dpe", "shuffle"), protected(policy(), promise("shuffle"))
    phases = phases_of(policy(), privatizers)
    widths = [privatizers[ANSWERS].coins.width(int(phase.clients)) for phase in phases]
    assert widths == sorted(widths, reverse=True)
    bits, sent = found.communication["bits"], found.communication["reals"]
    assert (bits >= widths[-1] * sent).all()
    assert (bits <= widths[0] * sent).all()


def test_chunks_of_replicates_change_nothing() -> None:
    whole = ran("dpe", "central")
    part = run("dpe", "central", first_replicate=50)
    np.testing.assert_allclose(part.regret[:, :150], whole.regret[:, 50:], rtol=1e-9)


@pytest.mark.nightly
def test_phases_end_once_a_single_action_is_left() -> None:
    found = ran("dpe", "none")
    phases = phases_of(policy(), protected(policy(), promise("none")))
    assert found.releases[ANSWERS].min() < len(phases)
    greedy = ran("greedy", "none")
    # All actions survive a tie, which the coarse answers of few clients can be.
    assert (greedy.releases[ANSWERS] == 1).mean() > 0.7


@pytest.mark.parametrize("change", [{"horizon": 0}, {"replicates": 0}, {"seed": -1}, {"ticks": 0}])
def test_bad_sizes_are_refused(change: dict[str, NDArray[Any] | int]) -> None:
    (name,) = change
    with pytest.raises(InvalidValueError, match=f"{name} is"):
        run("uniform", "none", **change)


@pytest.mark.parametrize(
    ("trust", "word", "name"),
    [
        # By day laws compare the noise with the word and with the bill.
        pytest.param("shuffle", "theorem", "dpe", marks=pytest.mark.nightly),
        pytest.param("central", "laplace", "pe", marks=pytest.mark.nightly),
        pytest.param("shuffle", "theorem", "pe", marks=pytest.mark.nightly),
    ],
)
def test_noise_of_a_word_is_drawn_and_paid_for(trust: str, word: str, name: str) -> None:
    """Its mean squares are those that the release states, and no more is spent than was asked.

    The published coins of equation 22 cost less than a hundredth of what they are meant to keep.
    """
    one, guarantee = policy(name), promise(trust, epsilon=1.0, delta=1e-5)
    made = protect(one, Protection(guarantee=guarantee, mechanism=word), horizon=HORIZON)
    quiet = made[ANSWERS].with_noise(lambda noise: dataclasses.replace(noise, std=0.0))
    first = phases_of(one, made)[:1]
    noisy, exact = (walk(one, {ANSWERS: kept}, first)[-1] for kept in (made[ANSWERS], quiet))
    asked = np.asarray(noisy.last.count) > 0
    drawn = np.asarray(noisy.last.total - exact.last.total)[asked]
    share = (drawn / np.asarray(noisy.last.noise)[asked][:, None]) ** 2
    assert share.mean() == pytest.approx(1, abs=5 * share.std() / math.sqrt(share.size))
    found = run(name, trust, privatizers=made, ledger=MemoryLedger(guarantee))
    assert 0 < found.spent.epsilon <= (0.01 if (name, word) == ("dpe", "theorem") else 1.0)


def test_phases_with_more_clients_than_rounds_end_at_the_horizon() -> None:
    """The promise speaks of the rounds of the run, however many clients its plan could ask."""
    horizon = 60
    guarantee = dataclasses.replace(promise("none"), rounds=horizon)
    one = POLICIES["dpe-fixed-u"].build(WORLD.problem(horizon), "tuned")
    made = protect(one, Protection(guarantee=guarantee), horizon=horizon)
    assert sum(int(phase.clients) for phase in phases_of(one, made)) > horizon
    found = simulate(
        policy=one,
        privatizers=made,
        environment=WORLD,
        ledger=MemoryLedger(guarantee),
        horizon=horizon,
        replicates=2,
        seed=1,
        ticks=5,
    )
    assert found.rounds[-1] == horizon
    assert (found.regret[-1] >= 0).all()
