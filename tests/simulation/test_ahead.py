"""Arms that are drawn ahead of time: everyone plays what they would have played alone."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from kerchief.core.contracts import Clock
from kerchief.core.errors import BudgetExceededError
from kerchief.core.random import Stream
from kerchief.core.struct import struct
from kerchief.environments import CONTEXTS, GLMEnvironment, make_environment
from kerchief.environments.ahead import can_be_handed
from kerchief.environments.contexts import Contexts
from kerchief.environments.worlds import GLMTruth
from kerchief.policies import POLICIES
from kerchief.policies.baselines import Uniform
from kerchief.privacy import Guarantee, MemoryLedger, Trust
from kerchief.privatizers import Protection, protect
from kerchief.simulation import ahead, machine, rounds
from kerchief.simulation import run as module
from kerchief.simulation.recorder import Recorder
from kerchief.simulation.rounds import Contender
from kerchief.simulation.run import Run, simulate_side_by_side

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


def test_simulation_side_by_side_matches_simulation_alone() -> None:
    world = make_environment(dim=2, arms=4, fewest=2)
    together = _play([_contender(*who, world) for who in WHO], world)
    for who, run in zip(WHO, together, strict=True):
        (alone,) = _play([_contender(*who, world)], world)
        _same(run, alone)


@pytest.mark.parametrize("contexts", [*CONTEXTS])
def test_arms_drawn_ahead_equal_arms_drawn_in_the_round(
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
    monkeypatch.setattr(ahead, "_MOST_NUMBERS", 10**9)
    monkeypatch.setattr(ahead, "_FEW_NUMBERS", 0)
    monkeypatch.setattr(ahead, "_USUAL_ROUNDS", rows)
    _same(_play([_contender(*WHO[1], world)], world)[0], usual)


def test_many_features_are_drawn_few_rounds_at_once() -> None:
    def rows(arms: int, replicates: int) -> int:
        world = make_environment(dim=4, arms=arms)
        source = ahead.Source(environment=world, seed=jax.numpy.uint32(0))
        numbers = jax.numpy.arange(replicates, dtype=jax.numpy.uint32)
        room = ahead.nothing_drawn(source, numbers, ahead.meet(source, numbers)[0])
        return int(jax.tree.leaves(room)[0].shape[0])

    # A call for few rounds costs more than they do.
    assert rows(3, 1) == 2048
    assert rows(10, 10) == 512
    assert rows(20, 64) == 128
    assert rows(1000, 50) == 2**21 // (50 * (1000 * 5 + 1))
    assert rows(2**16, 50) == 1


def test_worlds_that_differ_in_arms_alone_share_their_programs() -> None:
    machine.forget()
    worlds = [make_environment(contexts=one, dim=2, arms=4) for one in ("ball", "fixed", "starved")]
    worlds += [make_environment(dim=2, arms=4, fewest=2)]
    worlds += [make_environment(dim=2, arms=4, told="logistic")]
    for world in worlds:
        _play([_contender(*WHO[1], worlds[0])], world)
    played = [key for key in machine._MACHINE_CODE if key[0] is ahead.play_ahead]  # type: ignore[index]
    assert len(played) == 1


def test_all_are_charged_before_anybody_plays(monkeypatch: pytest.MonkeyPatch) -> None:
    world = make_environment(dim=2, arms=4)
    poor = dataclasses.replace(JOINT, epsilon=0.5)
    monkeypatch.setattr(module, "play_handed", lambda *given, **more: pytest.fail("it played"))
    with pytest.raises(BudgetExceededError):
        _play([_contender(*WHO[1], world), _contender(*WHO[1], world, poor)], world)


def test_seconds_are_divided_and_microseconds_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds add up to the time that passed; time per decision does not depend on company."""

    class Counts(Recorder):
        counted = 0.0

        def run(self, function: Any, *arguments: Any, **options: Any) -> Any:
            result = super().run(function, *arguments, **options)
            self.counted += {ahead.draw: 8.0, ahead.play_ahead: 1.0}.get(function, 0.0)
            self.seconds, self.compile_seconds = self.counted, 2.0
            return result

    for where in (module, rounds):
        monkeypatch.setattr(where, "Recorder", Counts)
    world = make_environment(dim=2, arms=4)
    (alone,) = _play([_contender(*WHO[0], world)], world)
    runs = _play([_contender(*WHO[0], world), _contender(*WHO[3], world)], world)
    calls = 5
    assert (alone.seconds, alone.seconds_alone) == (9.0 * calls, 9.0 * calls)
    assert [run.seconds for run in runs] == [5.0 * calls, 5.0 * calls]
    assert {run.microseconds for run in runs} == {alone.microseconds}
    # What drawing takes to compile is the first one's.
    assert [run.compile_seconds for run in runs] == [4.0, 2.0]


@struct
class Named(GLMEnvironment):
    """Says which arm is the best on average, and goes without arms by itself."""

    def without_contexts(self) -> Any:
        return GLMEnvironment.without_contexts(self)

    def single(self, world: GLMTruth) -> Array:
        return jnp.argmax(self._means(world, world.kept))


@struct
class Reacting(GLMEnvironment):
    """Moves after a round."""

    def without_contexts(self) -> Any:
        return GLMEnvironment.without_contexts(self)

    def reacted(self, world: GLMTruth, action: Array, clock: Clock) -> GLMTruth:
        return world


@struct
class Repaid(GLMEnvironment):
    """Pays by what a world without arms does not know."""

    def _means(self, world: GLMTruth, features: Array) -> Array:
        return GLMEnvironment._means(self, world, features) * (0.5 if self.told else 1.0)


def _kind(kind: type[GLMEnvironment], contexts: str = "fixed") -> GLMEnvironment:
    plain = make_environment(contexts=contexts, dim=2, arms=4)
    return kind(**{one.name: getattr(plain, one.name) for one in dataclasses.fields(plain)})


def test_informed_or_reactive_environment_draws_in_the_round() -> None:
    """As does whoever only inherits a way to go without arms."""
    assert can_be_handed(_kind(GLMEnvironment))
    for kind in (Named, Reacting, Repaid):
        assert not can_be_handed(_kind(kind))


def test_adversary_gets_its_candidate_sets_drawn_ahead() -> None:
    """If its class itself says which it considers; a bandit that plays better is opposed less."""
    hostile = make_environment(contexts="hostile", dim=2, arms=4, fewest=2)
    heir = type("Heir", (type(hostile),), {"without_contexts": type(hostile).without_contexts})
    facts = {one.name: getattr(hostile, one.name) for one in dataclasses.fields(hostile)}
    own = {name: getattr(type(hostile), name) for name in ("without_contexts", "considered")}
    other = type("Other", (type(hostile),), own)
    handed = [can_be_handed(one) for one in (hostile, heir(**facts), other(**facts))]
    assert handed == [True, False, False]
    runs = _play([_contender(*who, hostile) for who in WHO], hostile)
    for who, run in zip(WHO, runs, strict=True):
        _same(run, _play([_contender(*who, hostile)], hostile)[0])
    assert len({float(run.regret[-1].sum()) for run in runs}) == len(WHO)


def test_policy_given_the_best_arm_has_no_regret() -> None:
    world = _kind(Named)
    (run,) = _play([_contender("single-arm", FREE, world)], world)
    assert run.regret.max() == 0.0


@struct
class Judging(GLMEnvironment):
    """Knows from its arms whether the best one was named."""

    def without_contexts(self) -> Any:
        return GLMEnvironment.without_contexts(self)

    def right(self, world: GLMTruth, action: Array) -> Array:
        return action == jnp.argmax(self._means(world, world.kept))


@struct
class Naming(Uniform):
    """Plays at random, and names the first arm."""

    def recommend(self, state: Any) -> Array:
        return jnp.zeros((), jnp.int32)


def test_policy_naming_an_arm_is_judged_in_whole_environment() -> None:
    world = _kind(Judging)
    assert can_be_handed(world)
    policy = Naming(**vars(POLICIES["uniform"].build(world.problem(HORIZON), "tuned")))
    named = Contender(policy=policy, privatizers={}, ledger=MemoryLedger(FREE))
    (run,) = simulate_side_by_side(
        [named], environment=world, horizon=HORIZON, replicates=64, seed=11, ticks=4
    )
    assert run.right is not None
    assert 0.05 < run.right.mean() < 0.6


@struct
class Keeps(Contexts):
    """Keeps something that is no array of arms."""

    def init(self, stream: Stream) -> Any:
        return {"scale": stream.uniform(1)[0]}

    def features(self, kept: Any, clock: Clock, stream: Stream) -> Array:
        scaled: Array = kept["scale"] * self.points(stream, self.count)
        return scaled


def test_contexts_with_state_of_any_form_are_drawn_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    world = dataclasses.replace(make_environment(dim=2, arms=4), contexts=Keeps(dim=2, count=4))
    handed = _play([_contender(*WHO[1], world)], world)[0]
    monkeypatch.setattr(module, "is_foreseen", lambda environment: False)
    drawn = _play([_contender(*WHO[1], world)], world)[0]
    np.testing.assert_array_equal(handed.earned, drawn.earned)


def test_several_devices_draw_in_the_round(monkeypatch: pytest.MonkeyPatch) -> None:
    world = make_environment(dim=2, arms=4)
    assert ahead.is_foreseen(world)
    monkeypatch.setattr(jax, "device_count", lambda: 2)
    assert not ahead.is_foreseen(world)
