"""What every world must be: repeatable, within its public bounds, and fair to all policies."""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np

from kerchief.checks.errors import expect, law, same
from kerchief.checks.histories import (
    DRAWS,
    ROUNDS,
    WorldCase,
    arms_met,
    everything,
    history,
    mean_reward,
)
from kerchief.checks.statistics import hoeffding
from kerchief.core.errors import InvalidValue
from kerchief.core.links import LINKS, link_named
from kerchief.environments import CONTEXTS, NOISES, make_environment

__all__ = ["WorldCase", "environment_cases"]

_ARMS, _FEWEST = 4, 2
# Worlds are drawn in float32.
_ROUNDING = 1e-6

_BAD: Mapping[str, tuple[Any, ...]] = {
    "dim": (0, 2.5, 1000),
    "arms": (0, True),
    "radius": (0.0, -1.0, math.nan, math.inf),
    "fewest": (0, _ARMS + 1),
    "link": ("cubic",),
}


def environment_cases() -> Iterator[WorldCase]:
    """Every link with every source of contexts and every law of rewards, with masks."""
    for link, contexts, noise in itertools.product(LINKS, CONTEXTS, NOISES):
        made = make_environment(
            link=link, contexts=contexts, dim=3, arms=_ARMS, fewest=_FEWEST, noise=noise
        )
        name = f"{link}-{contexts}-{noise}"
        yield WorldCase(name=name, environment=made, fewest=_FEWEST, make=make_environment)


@law(cheap=True)
def same_seed_same_world(world: WorldCase) -> None:
    """One seed gives one world and one history, bit for bit; another gives another."""
    first, again, other = everything(world)[0], history(world, 3), history(world, 4)
    expect(same(first, again), seen="two histories at one seed", expected="one")
    expect(not same(first, other), seen="one history at two seeds", expected="two")


@law(when=lambda world: world.featured, cheap=True)
def arms_keep_the_declared_norm(world: WorldCase) -> None:
    """Features are finite and within the norm, also for the rarest draws."""
    facts: Any = world.environment.problem(ROUNDS)
    bound = facts.norm * (1 + _ROUNDING)
    for seen in everything(world):
        norms = np.linalg.norm(np.asarray(seen.arms.features, np.float64), axis=-1)
        worst = float(norms.max())
        expect(worst <= bound, seen=f"a norm of {worst}", expected=f"at most {bound}")


@law(when=lambda world: world.contextual, cheap=True)
def masks_leave_enough_arms(world: WorldCase) -> None:
    """Each user may choose from the declared number of arms at least, also for the rarest draws."""
    most = world.environment.problem(ROUNDS).arms
    for seen in everything(world):
        counts = np.asarray(seen.arms.allowed).sum(axis=-1)
        fair = (counts >= world.fewest).all() and (counts <= most).all()
        seen_counts = f"{counts.min()} to {counts.max()} arms"
        expect(fair, seen=seen_counts, expected=f"{world.fewest} to {most}")


@law(cheap=True)
def rewards_keep_their_range(world: WorldCase) -> None:
    """Rewards lie in the declared range, unless their law is declared unbounded."""
    facts = world.environment.problem(ROUNDS)
    room = _ROUNDING * (facts.high - facts.low)
    for seen in everything(world):
        rewards = np.asarray(seen.reward, np.float64)
        expect(np.isfinite(rewards).all(), seen="an endless reward", expected="finite ones")
        if getattr(world.environment, "noise", None) != "gaussian":
            inside = rewards.min() >= facts.low - room and rewards.max() <= facts.high + room
            spread = f"[{rewards.min()}, {rewards.max()}]"
            expect(inside, seen=spread, expected=f"within [{facts.low}, {facts.high}]")


@law(when=lambda world: world.contextual)
def rewards_have_the_right_mean(world: WorldCase) -> None:
    """Mean rewards differ by the regret, and are the link of the score where there is one.

    20000 draws for the best and the worst arm; Hoeffding's bound at 1e-6 each.
    """
    environment: Any = world.environment
    facts = environment.problem(ROUNDS)
    room = hoeffding(DRAWS, facts.high - facts.low)
    seen = everything(world)[0]
    truth, arms = seen.truth, jax.tree.map(lambda leaf: leaf[-1], seen.arms)
    regrets = np.asarray(seen.regret[-1], np.float64)
    best, worst = int(np.argmin(regrets)), int(np.argmax(regrets))
    means = {action: mean_reward(world, truth, arms, action) for action in (best, worst)}
    gap, wanted = means[best] - means[worst], float(regrets[worst] - regrets[best])
    fair = abs(gap - wanted) <= 2 * room
    expect(fair, seen=f"means {gap} apart", expected=f"{wanted}, the regret")
    if hasattr(environment, "link") and hasattr(truth, "parameter"):
        mean = float(link_named(environment.link).mean(arms.features[best] @ truth.parameter))
        close = abs(means[best] - mean) <= room
        expect(close, seen=f"a mean reward of {means[best]}", expected=f"{mean}, by the link")


@law(when=lambda world: world.featured, cheap=True)
def regret_is_zero_for_the_best_arm(world: WorldCase) -> None:
    """No arm has negative regret among the allowed, and some allowed arm has none."""
    for seen in everything(world):
        regrets = np.where(seen.arms.allowed, np.asarray(seen.regret, np.float64), np.inf)
        least = regrets.min(axis=-1)
        spread = f"least regrets {least.min()} to {least.max()}"
        expect((least == 0).all(), seen=spread, expected="0 in every round")


@law(when=lambda world: world.contextual, cheap=True)
def policies_meet_the_same_arms(world: WorldCase) -> None:
    """What is played changes nothing in the arms that come later."""
    first, other = (arms_met(world, action) for action in (0, 1))
    expect(same(first, other), seen="arms that follow the actions", expected="the same arms")


@law(cheap=True)
def problem_is_public_and_consistent(world: WorldCase) -> None:
    """The public facts come from the horizon alone and fit what the world shows."""
    environment = world.environment
    taken = list(inspect.signature(environment.problem).parameters)
    expect(taken == ["horizon"], seen=f"problem({taken})", expected="problem(horizon)")
    facts = environment.problem(ROUNDS)
    expect(environment.problem(ROUNDS) == facts, seen="other facts later", expected=facts)
    if world.featured:
        shape = history(world, 7).arms.features.shape[1:]
        expect(shape == (facts.arms, facts.dim), seen=shape, expected=(facts.arms, facts.dim))
    right = facts.low < facts.high and facts.horizon == ROUNDS
    expect(right, seen=facts, expected="positive bounds, and this horizon")


@law(when=lambda world: world.make is not None, cheap=True)
def bad_values_are_refused(world: WorldCase) -> None:
    """The factory answers impossible values with InvalidValue."""
    make: Any = world.make
    for word, value in ((word, value) for word, values in _BAD.items() for value in values):
        refused = False
        try:
            make(**{"arms": _ARMS, word: value})
        except InvalidValue:
            refused = True
        expect(refused, seen=f"{word} {value} is accepted", expected="InvalidValue")
