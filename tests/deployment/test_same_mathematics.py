"""Simulation, `Bandit` and the roles apart are the same mathematics."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.deployment.field import FACTS, TRUSTS, field, promise

from kerchief.core.contracts import Arms
from kerchief.core.errors import KerchiefError
from kerchief.core.precision import double_precision
from kerchief.core.problems import Problem
from kerchief.core.random import POLICY, Stream
from kerchief.deployment.bandit import Bandit
from kerchief.deployment.deployment import deploy
from kerchief.deployment.protected_policy import build_protected
from kerchief.deployment.round import Round
from kerchief.environments.population import Population
from kerchief.policies import POLICIES
from kerchief.policies.phased.elimination import Elimination
from kerchief.privacy.guarantee import Guarantee, Trust
from kerchief.privacy.ledger import MemoryLedger
from kerchief.privatizers.protect import Protection, protect
from kerchief.simulation import simulate
from kerchief.simulation.phases import phases_of
from kerchief_device import disjoint_models, programs

ROUNDS = 40


def visits(problem: Problem) -> list[tuple[Any, float]]:
    rng = np.random.default_rng(5)
    arms = rng.normal(size=(ROUNDS, problem.arms, problem.dim))
    arms /= np.linalg.norm(arms, axis=-1, keepdims=True)
    return list(zip(arms, rng.uniform(size=ROUNDS), strict=True))


def facts(name: str) -> Problem:
    """The public bounds; arms have models of their own where the bandit is for such."""
    apart = POLICIES[name].actions == ("models",)
    return dataclasses.replace(FACTS, own=FACTS.dim, constant=0.5) if apart else FACTS


def deployable() -> list[str]:
    """Every registered bandit that hears totals and can be deployed without noise."""
    found = []
    for name, entry in POLICIES.items():
        if Problem not in entry.problems or not entry.deployable:
            continue
        try:
            deployment = deploy(policy=name, problem=facts(name), guarantee=promise("none"))
        except KerchiefError:
            continue
        if deployment.privatizers and name != "uniform":
            found.append(name)
    return found


@double_precision
def by_hand(name: str, problem: Problem) -> tuple[list[int], Any]:
    """The functions of a simulated round, one after another."""
    protected = build_protected(name, problem, Protection(guarantee=promise("none")))
    policy: Any = protected.policy
    play, root = (
        Round(policy=policy, privatizers=protected.privatizers),
        Stream.of(seed=0, replicate=0),
    )
    carry, chosen = play.begin(), []

    @jax.jit
    def turn(carry: Any, arms: Arms, reward: jax.Array, now: jax.Array) -> Any:
        action = play.act(carry.model, arms, play.clock(carry, now), root)
        return play.learn(carry, arms, action, reward, now, root), action

    for number, (features, reward) in enumerate(visits(problem)):
        arms = Arms(features=jnp.asarray(features), allowed=jnp.ones(problem.arms, bool))
        carry, action = turn(carry, arms, jnp.float64(reward), jnp.int32(number))
        chosen.append(int(action))
    return chosen, carry.model


# By day one of each family; compiling the others takes a minute.
DAY = ("glm", "sampling")


def named(name: str) -> Any:
    return name if name in DAY else pytest.param(name, marks=pytest.mark.nightly)


def seeded() -> Any:
    """Guesses of a light device from the seed of the simulation."""
    rounds = itertools.count()

    @double_precision
    def guess(dim: int, source: Any) -> tuple[Any, float]:
        at = Stream.of(seed=0, replicate=0).at(POLICY, round=next(rounds))
        return np.asarray(at.split(0).normal(dim)), float(at.split(1).uniform(1)[0])

    return guess


@pytest.mark.parametrize("name", [named(name) for name in deployable()])
def test_without_noise_a_bandit_plays_the_simulated_rounds(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same choices, and the same model but for the grid of the sums."""
    problem = dataclasses.replace(facts(name), horizon=200)
    chosen, model = by_hand(name, problem)
    bandit = Bandit(policy=name, problem=problem, guarantee=promise("none"), window_s=0)
    played = []
    # What a policy tosses to explore comes from the operating system: here, from the seed.
    for room in (programs, disjoint_models):
        monkeypatch.setattr(room, "guess", seeded())
    code: Any = bandit._device._code
    code._stream = Stream.of(seed=0, replicate=0)
    for features, reward in visits(problem):
        choice = bandit.decide(features)
        played.append(choice.arm)
        bandit.reward(choice.id, reward)
    bandit.expire()
    assert played == chosen
    leaves, _ = jax.tree_util.tree_flatten_with_path(model)
    simulated = {jax.tree_util.keystr(path, simple=True, separator="."): x for path, x in leaves}
    assert set(bandit.model) == set(simulated)
    for part, theirs in simulated.items():
        np.testing.assert_allclose(bandit.model[part], theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("trust", TRUSTS)
def test_deployed_learner_gets_the_noise_of_the_simulation(trust: str) -> None:
    one = field(trust)
    one.serve(100)
    (total,) = one.learner._sums.values()
    privatizer: Any = one.deployment.privatizers["moments"]
    users, releases = np.int64(one.learner.users), np.int64(one.learner.releases)
    stated = float(privatizer.noise_after(users, releases))
    assert total.variance**0.5 == pytest.approx(stated, rel=2e-3)


@pytest.mark.parametrize("trust", TRUSTS)
def test_totals_are_right_on_average(trust: str) -> None:
    """What the learner adds up is the users' sum, within its stated noise."""
    one = field(trust)
    one.serve(85 if trust in ("shuffle", "central") else 60, reward=1.0)
    (total,) = one.learner._sums.values()
    # Whatever arm was played, the trace of the matrix grows by one with each user.
    trace = total.total[0] + total.total[2]
    assert abs(trace - one.learner.users) < 6 * (2 * total.variance) ** 0.5


# Populations: `tests/deployment/test_population.py` plays the simulated phases client by client.

POPULATION = Population.of(dim=3, arms=12, clients=6000, radius=0.8, spread=0.0)


def promised(trust: str) -> Guarantee:
    if trust == "none":
        return promise("none")
    return Guarantee(epsilon=2.0, delta=1e-3, trust=Trust(trust))


@pytest.mark.parametrize("trust", ["none", "local", "shuffle", "central"])
@pytest.mark.parametrize("name", ["dpe", "dpe-fixed-u", "pe"])
def test_deployed_population_matches_simulation_but_equal_groups(name: str, trust: str) -> None:
    """The same numbers, the same phases; with one action in a group, clients but for rounding."""
    facts, guard = POPULATION.problem(6000), Protection(guarantee=promised(trust))
    deployment = deploy(policy=name, problem=facts, guarantee=guard.guarantee)
    simulated = build_protected(name, facts, guard)
    assert isinstance(simulated.policy, Elimination)
    even = dataclasses.replace(simulated.policy, even=name == "pe")
    assert deployment.policy == even
    phases = phases_of(simulated.policy, simulated.privatizers)
    assert [one.pulls for one in deployment.phases] == [one.pulls for one in phases]
    for mine, theirs in zip(deployment.phases, phases, strict=True):
        assert abs(int(mine.clients) - int(theirs.clients)) <= (6 if name == "pe" else 0)


@pytest.mark.nightly
@pytest.mark.parametrize("trust", ["none", "local", "shuffle", "central"])
def test_equal_groups_cost_no_regret(trust: str) -> None:
    """In the same worlds the difference is within what 64 of them let one see."""
    facts, guard = POPULATION.problem(6000), Protection(guarantee=promised(trust))
    single = build_protected("pe", facts, guard).policy
    assert isinstance(single, Elimination)
    lost = []
    for policy in (single, single.with_equal_groups()):
        run = simulate(
            policy=policy,
            privatizers=protect(policy, guard, horizon=facts.horizon),
            environment=POPULATION,
            ledger=MemoryLedger(guard.guarantee),
            horizon=facts.horizon,
            replicates=64,
            seed=5,
        )
        lost.append(run.regret[-1])
    apart = lost[1] - lost[0]
    assert abs(apart.mean()) < 3 * apart.std() / 8
    assert abs(apart.mean()) < 0.05 * lost[0].mean()
