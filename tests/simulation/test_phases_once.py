"""Phased elimination where every round is another client's: sums of rewards, bills, orders.

Each statistical test fails by chance with probability at most 1e-6; seeds are fixed.
"""

from __future__ import annotations

import dataclasses
import math
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

from kerchief.core.errors import InvalidValueError
from kerchief.core.phases import ANSWERS, Phase, PhasePolicy
from kerchief.core.random import REWARD, Stream
from kerchief.environments.population import Population
from kerchief.policies import POLICIES
from kerchief.privacy import Guarantee, MemoryLedger, Trust
from kerchief.privatizers import Protection, protect
from kerchief.simulation import Run, simulate
from kerchief.simulation.machine import compiled
from kerchief.simulation.phases import PhaseReplicate, PhaseScene, begin, phases_of, play

WORLD = Population.of(dim=3, arms=12, clients=6000, radius=0.8, spread=0.0)
HORIZON, REPLICATES, SEED = 6000, 64, 5
Floats = NDArray[np.float64]


def promise(trust: str) -> Guarantee:
    if trust == "none":
        return Guarantee(epsilon=math.inf, delta=0.0, trust=Trust.NONE)
    return Guarantee(epsilon=2.0, delta=1e-3, trust=Trust(trust))


def policy(name: str = "pe") -> Any:
    return POLICIES[name].build(WORLD.problem(HORIZON), "tuned")


def protected(one: Any, guarantee: Guarantee) -> Any:
    return protect(one, Protection(guarantee=guarantee), horizon=HORIZON)


@lru_cache
def ran(name: str, trust: str) -> Run:
    one, guarantee = policy(name), promise(trust)
    return simulate(
        policy=one,
        privatizers=protected(one, guarantee),
        environment=WORLD,
        ledger=MemoryLedger(guarantee),
        horizon=HORIZON,
        replicates=REPLICATES,
        seed=SEED,
    )


def walk(
    one: PhasePolicy, privatizers: Any, phases: tuple[Phase, ...], silent: bool
) -> list[PhaseReplicate]:
    """Where all replicates stand before the first phase and after each, without a ledger."""
    if silent:
        quiet = privatizers[ANSWERS].with_noise(lambda noise: dataclasses.replace(noise, std=0.0))
        privatizers = {ANSWERS: quiet}
    scene = PhaseScene.of(one, privatizers, WORLD, SEED)
    carries = [begin(scene, jnp.arange(REPLICATES, dtype=jnp.uint32))]
    for phase in phases:
        arguments = scene, carries[-1], jax.tree.map(jnp.int32, phase)
        carries.append(compiled(play, *arguments)[0](*arguments))
    return carries


def first(carry: PhaseReplicate) -> PhaseReplicate:
    """One replicate of many."""
    one: PhaseReplicate = jax.tree.map(lambda leaf: leaf[0], carry)
    return one


def rewards(
    before: PhaseReplicate, atoms: Floats, pulls: list[int], start: int
) -> tuple[Floats, Floats]:
    """The features and the reward of every client of a phase, met one by one."""
    played = np.repeat(atoms, pulls, axis=0)
    root = Stream.of(seed=SEED, replicate=0)

    def seen(row: jax.Array, client: jax.Array) -> jax.Array:
        at = root.at(REWARD, round=client)
        return WORLD.averages(before.world, row[None], jnp.ones(1), at)[0]

    clients = start + jnp.arange(len(played))
    found = jax.jit(jax.vmap(seen))(jnp.asarray(played, jnp.float32), clients)
    return played, np.asarray(found, np.float64)


@pytest.mark.nightly
def test_without_noise_it_is_plain_phased_elimination() -> None:
    """Beside least squares on every reward, and widths of the ordinary kind, in NumPy."""
    one = policy()
    privatizers = protected(one, promise("none"))
    carries = [
        first(carry) for carry in walk(one, privatizers, phases_of(policy(), privatizers), False)
    ]
    dropped = 0
    for phase, before, after in zip(
        phases_of(policy(), privatizers), carries, carries[1:], strict=False
    ):
        if bool(before.done):
            break
        asked = one.ask(before.world.features, before.state, phase, noisy=False)
        x = np.asarray(before.world.features, np.float64)
        atoms, pulls = x[np.asarray(asked.atoms)[:, 0]], np.asarray(asked.users).tolist()
        played, y = rewards(before, atoms, pulls, int(phase.first))
        assert set(y.tolist()) == {-1.0, 1.0}
        gram = np.linalg.pinv(played.T @ played, rcond=1e-9)
        scores = np.where(np.asarray(before.state.allowed), x @ gram @ played.T @ y, -np.inf)
        apart = x[scores.argmax()] - x
        wide = float(one.width) * np.sqrt(((apart @ gram) * apart).sum(1))
        keep = np.asarray(before.state.allowed) & ~(scores.max() - scores > wide)
        np.testing.assert_array_equal(after.state.allowed, keep)
        dropped += int(np.asarray(before.state.allowed).sum() - keep.sum())
    assert dropped > 5


@pytest.mark.nightly
@pytest.mark.parametrize("trust", ["central", "shuffle", "local"])
def test_noiseless_run_matches_non_private_counterpart(trust: str) -> None:
    one = policy()
    plain = protected(one, promise("none"))
    expected = walk(one, plain, phases_of(one, plain), False)[-1]
    found = walk(one, protected(one, promise(trust)), phases_of(one, plain), True)[-1]
    np.testing.assert_array_equal(found.state.allowed, expected.state.allowed)
    np.testing.assert_allclose(found.regret, expected.regret, rtol=1e-12)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "trust",
    ["shuffle", *(pytest.param(one, marks=pytest.mark.nightly) for one in ("central", "local"))],
)
def test_sums_of_rewards_are_as_noisy_as_they_say(trust: str) -> None:
    """One sum an action; noise that is a third too small would have a deviation of 0.67."""
    one = policy()
    privatizers = protected(one, promise(trust))
    noisy, silent = (
        walk(one, privatizers, phases_of(policy(), privatizers)[:1], quiet)[-1].last
        for quiet in (False, True)
    )
    asked = np.asarray(noisy.count) > 0
    counts, stated = np.asarray(noisy.count)[asked], np.asarray(noisy.noise)[asked]
    draws = np.asarray(noisy.total - silent.total)[asked][:, 0] / stated
    assert draws.size > 150
    assert abs(draws.mean()) < 5 / math.sqrt(draws.size)
    assert 0.75 < draws.std() < 1.25
    assert np.abs(silent.total).max() > 5
    # Only under local trust does the noise of a sum grow with its clients, and with no one else's.
    (noise,) = privatizers[ANSWERS].noises
    most = float(noise.std) * (np.sqrt(counts) if trust == "local" else 1.0)
    np.testing.assert_allclose(stated, most * np.ones_like(stated), rtol=0.05)


@pytest.mark.nightly
@pytest.mark.parametrize("trust", ["shuffle", "central", "local"])
def test_single_answer_run_spends_the_requested_budget(trust: str) -> None:
    spent = ran("pe", trust).spent
    assert 2.0 * 0.97 <= spent.epsilon <= 2.0 * (1 + 1e-9)
    assert spent.delta == 1e-3


def test_a_client_is_asked_for_one_number_and_once() -> None:
    """As many numbers are sent as rounds are played, and they fit into the phases' clients."""
    found, privatizers = ran("pe", "central"), protected(policy(), promise("central"))
    clients = np.cumsum([0, *(int(phase.clients) for phase in phases_of(policy(), privatizers))])
    asked = found.communication["reals"]
    assert (asked <= clients[found.releases[ANSWERS]]).all()
    assert (asked >= 0.8 * clients[found.releases[ANSWERS]]).all()
    assert clients[-1] <= HORIZON
    np.testing.assert_allclose(found.communication["bits"], 64 * asked)


def test_a_small_population_is_refused() -> None:
    problem = dataclasses.replace(WORLD, clients=500).problem(HORIZON)
    with pytest.raises(InvalidValueError, match="population has 500"):
        protected(POLICIES["pe"].build(problem, "tuned"), promise("central"))


@pytest.mark.nightly
def test_regret_grows_down_the_ladder_of_trusts() -> None:
    finals = {
        trust: ran("pe", trust).regret[-1] for trust in ("none", "central", "shuffle", "local")
    }
    means = {trust: final.mean() for trust, final in finals.items()}
    errors = {trust: final.std() / math.sqrt(REPLICATES) for trust, final in finals.items()}
    assert means["none"] < means["central"] + 3 * errors["central"]
    assert means["shuffle"] < 1.25 * means["central"] + 3 * errors["shuffle"]
    assert 1.2 * means["shuffle"] < means["local"] - 4 * errors["local"]
    assert means["local"] < ran("uniform", "none").regret[-1].mean()
