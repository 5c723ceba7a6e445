"""Arms that are drawn ahead of time: everyone plays what they would have played alone."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import jax
import numpy as np
import pytest

from kerchief.core.errors import BudgetExceeded
from kerchief.environments import CONTEXTS, GLMEnvironment, make_environment
from kerchief.policies import POLICIES
from kerchief.privacy import Guarantee, MemoryLedger, Trust
from kerchief.privatizers import Protection, protect
from kerchief.simulation import ahead, machine
from kerchief.simulation import run as module
from kerchief.simulation.run import Contender, Run, simulate_side_by_side

FREE = Guarantee(epsilon=math.inf, delta=0.0, trust=Trust.NONE)
JOINT, LOCAL = (Guarantee(epsilon=1.0, delta=1e-5, trust=one) for one in (Trust.JOINT, Trust.LOCAL))
WHO = (("uniform", FREE), ("linucb", JOINT), ("sampling", LOCAL), ("sampling", FREE))
HORIZON = 150


def _contender(
    name: str, promise: Guarantee, world: GLMEnvironment, budget: Guarantee | None = None
) -> Contender:
    policy = POLICIES[name].build(world.problem(HORIZON), "tuned")
    return Contender(
        policy=policy,
        privatizers=protect(policy, Protection(guarantee=promise), horizon=HORIZON),
        ledger=MemoryLedger(budget or promise),
    )


def _play(contenders: Sequence[Contender], world: GLMEnvironment) -> list[Run]:
    return simulate_side_by_side(
        contenders, environment=world, horizon=HORIZON, replicates=3, seed=11, ticks=4
    )


def _same(one: Run, other: Run) -> None:
    np.testing.assert_array_equal(one.regret, other.regret)
    np.testing.assert_array_equal(one.earned, other.earned)
    assert one.spent == other.spent
    for name, used in one.releases.items():
        np.testing.assert_array_equal(used, other.releases[name])


def test_company_changes_nothing() -> None:
    world = make_environment(dim=2, arms=4, fewest=2)
    together = _play([_contender(*who, world) for who in WHO], world)
    for who, run in zip(WHO, together, strict=True):
        (alone,) = _play([_contender(*who, world)], world)
        _same(run, alone)


@pytest.mark.parametrize("contexts", [one for one in CONTEXTS if one != "hostile"])
def test_handed_arms_are_those_that_would_have_been_drawn(
    contexts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rewards are the same; regrets are rounded in another order."""
    world = make_environment(contexts=contexts, dim=3, arms=4)
    handed = _play([_contender(*WHO[1], world)], world)[0]
    monkeypatch.setattr(module, "is_foreseen", lambda environment: False)
    drawn = _play([_contender(*WHO[1], world)], world)[0]
    np.testing.assert_array_equal(handed.earned, drawn.earned)
    np.testing.assert_allclose(handed.regret, drawn.regret, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rows", [1, 7, 1000])
def test_how_many_rounds_are_drawn_at_once_changes_nothing(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_environment(dim=2, arms=4)
    usual = _play([_contender(*WHO[1], world)], world)[0]
    monkeypatch.setattr(ahead, "_MOST_ROUNDS", rows)
    _same(_play([_contender(*WHO[1], world)], world)[0], usual)


def test_many_features_are_drawn_few_rounds_at_once() -> None:
    def rows(arms: int, replicates: int) -> int:
        world = make_environment(dim=4, arms=arms)
        source = ahead.Source(environment=world, seed=jax.numpy.uint32(0))
        numbers = jax.numpy.arange(replicates, dtype=jax.numpy.uint32)
        return ahead.rounds_at_once(source, numbers, ahead.meet(source, numbers))

    assert rows(10, 2) == 128
    assert rows(1000, 50) == 2**21 // (50 * (1000 * 5 + 1))
    assert rows(2**16, 50) == 1


def test_worlds_that_differ_in_arms_alone_share_their_programs() -> None:
    machine.forget()
    worlds = [make_environment(contexts=one, dim=2, arms=4) for one in ("ball", "fixed", "starved")]
    worlds += [make_environment(dim=2, arms=4, fewest=2)]
    for world in worlds:
        _play([_contender(*WHO[1], world)], world)
    played = [key for key in machine._MACHINE_CODE if key[0] is ahead.play_ahead]  # type: ignore[index]
    assert len(played) == 1


def test_all_are_charged_before_anybody_plays(monkeypatch: pytest.MonkeyPatch) -> None:
    world = make_environment(dim=2, arms=4)
    poor = dataclasses.replace(JOINT, epsilon=0.5)
    monkeypatch.setattr(module, "_play_handed", lambda *given, **more: pytest.fail("it played"))
    with pytest.raises(BudgetExceeded):
        _play([_contender(*WHO[1], world), _contender(*WHO[1], world, poor)], world)
