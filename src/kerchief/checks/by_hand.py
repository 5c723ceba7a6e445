"""One bandit by hand: a user at a time, on read-only NumPy arrays, with everything kept.

No compiler stands between the policy and its inputs here, so editing an input, a hidden memory or a
draw from a global generator shows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from kerchief.checks.stage import Case
from kerchief.core.contracts import Arms, Clock, Environment, Policy, Release, Tree
from kerchief.core.random import ARMS, DEVICE, MIDDLE, POLICY, REWARD, WORLD, Stream
from kerchief.privatizers import At, Privatizer

__all__ = [
    "TURNS",
    "Hand",
    "Turn",
    "as_shown",
    "hand_of",
    "kept_turns",
    "other_data",
    "read_only",
    "turns_by_hand",
]

TURNS = 8
_BATCH = 3

# Only the policy is watched, so the rooms around it may be compiled.
_world = jax.jit(lambda environment, stream: environment.init(stream))
_arms = jax.jit(lambda environment, world, clock, stream: environment.arms(world, clock, stream))
_reward = jax.jit(lambda environment, *rest: environment.reward(*rest))
_randomize = jax.jit(lambda privatizer, record, stream: privatizer.randomize(record, stream))
_release = jax.jit(lambda privatizer, *rest: privatizer.release(*rest))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Turn:
    """One round: what was chosen, asked, released and posted.

    `posted` is the very object that the policy published and `model` a copy made at once.
    """

    allowed: Any
    action: int
    wanted: Mapping[str, bool]
    refreshes: bool
    releases: Mapping[str, Release]
    posted: Tree
    model: Tree


def read_only(tree: Tree) -> Tree:
    """Copy every leaf into a NumPy array that cannot be written."""
    return jax.tree.map(_locked, tree)


def _locked(leaf: Any) -> Any:
    array = np.array(leaf)
    array.setflags(write=False)
    return array


def as_shown(arms: Arms) -> Arms:
    """Show the arms as the world drew them."""
    return arms


@dataclasses.dataclass(kw_only=True)
class Hand:
    """Plays one bandit and remembers every input that it gave to the policy.

    Attributes:
        inputs: each tree that the policy was given, beside a copy made before the call.
    """

    policy: Policy
    privatizers: Mapping[str, Privatizer]
    environment: Environment
    seed: int
    show: Callable[[Arms], Arms] = as_shown
    inputs: list[tuple[Tree, Tree]] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        """Open everything before the first round."""
        self.privatizers = {name: _hastened(p) for name, p in self.privatizers.items()}
        self.stream = Stream.of(seed=self.seed, replicate=0)
        self.world = _world(self.environment, self.stream.at(WORLD))
        self.state = self.policy.init({name: p.outlook for name, p in self.privatizers.items()})
        self.model = self.policy.publish(self._given(self.state))
        opened = {name: p.open() for name, p in self.privatizers.items()}
        self.memory = {name: memory for name, (memory, _) in opened.items()}
        self.tally = {name: tally for name, (_, tally) in opened.items()}
        self.last = dict.fromkeys(opened, -1)

    def turn(self, round: int, script: Mapping[str, Release] | None = None) -> Turn:
        """Play one round; a script's releases take the place of the privatizers'."""
        clock = self._clock(round)
        arms, action = self._device(clock, round)
        wanted = {name: bool(w) for name, w in self.policy.due(self._state(), clock).items()}
        releases = self._released(clock, round, wanted) if script is None else script
        for name, release in releases.items():
            self.state = self.policy.update(self._state(), name, self._given(release))
            self.last[name] = round
        refreshes = bool(self.policy.refreshes(clock))
        if refreshes:
            self.model = self.policy.publish(self._state())
        return Turn(
            allowed=arms.allowed,
            action=action,
            wanted=wanted,
            refreshes=refreshes,
            releases=releases,
            posted=self.model,
            model=read_only(self.model),
        )

    def _device(self, clock: Clock, round: int) -> tuple[Arms, int]:
        """What happens on the user's device, and how its reports are added up."""
        at = self.stream.at
        model = self._given(self.model)
        arms = _arms(self.environment, self.world, clock, at(ARMS, round=round))
        arms = self._given(self.show(arms))
        action = int(self.policy.act(model, arms, clock, at(POLICY, round=round)))
        reward = _reward(
            self.environment, self.world, arms, jnp.int32(action), at(REWARD, round=round)
        )
        records = self.policy.record(model, arms, jnp.int32(action), self._given(reward))
        for place, (name, p) in enumerate(self.privatizers.items()):
            report = _randomize(p, records[name], at(DEVICE, round=round, query=place))
            self.tally[name] = p.collect(self.tally[name], report)
        return arms, action

    def _released(self, clock: Clock, round: int, wanted: Mapping[str, bool]) -> dict[str, Release]:
        """The releases of this round."""
        releases = {}
        for place, (name, p) in enumerate(self.privatizers.items()):
            ready = bool(p.schedule.ready(clock)) if isinstance(p.schedule, At) else True
            if ready and wanted[name]:
                at = self.stream.at(MIDDLE, round=round, query=place)
                release, self.memory[name] = _release(
                    p, self.memory[name], self.tally[name], clock, at
                )
                releases[name] = read_only(release)
                self.tally[name] = p.clear(self.tally[name])
        return releases

    def _clock(self, round: int) -> Clock:
        since = {name: jnp.int32(round - last) for name, last in self.last.items()}
        clock: Clock = self._given(Clock(round=jnp.int32(round), since=since))
        return clock

    def _state(self) -> Tree:
        return self._given(self.state)

    def _given(self, tree: Tree) -> Tree:
        """A read-only copy for the policy, remembered beside another."""
        copy = read_only(tree)
        self.inputs.append((copy, read_only(tree)))
        return copy


def _hastened(privatizer: Privatizer) -> Privatizer:
    """The same protocol with batches short enough for a run by hand."""
    if not isinstance(privatizer.schedule, At):
        return privatizer
    return privatizer.with_schedule(At(ends=tuple(_BATCH * (i + 1) for i in range(64))))


def hand_of(case: Case, *, seed: int, epsilon: float = 20.0) -> Hand:
    """A fresh hand for a case."""
    return Hand(
        policy=case.policy(),
        privatizers=case.privatizers(epsilon),
        environment=case.environment,
        seed=seed,
    )


def turns_by_hand(
    case: Case, *, seed: int = 1, script: Sequence[Turn] | None = None
) -> tuple[Turn, ...]:
    """Play a fresh copy of the case from the first round on."""
    hand = hand_of(case, seed=seed)
    given = [None] * TURNS if script is None else [turn.releases for turn in script]
    return tuple(hand.turn(round, given[round]) for round in range(TURNS))


kept_turns = lru_cache(maxsize=64)(turns_by_hand)


@lru_cache(maxsize=64)
def other_data(case: Case) -> tuple[Turn, ...]:
    """A play with other data, whose learner is given the releases of `kept_turns`."""
    return turns_by_hand(case, seed=2, script=kept_turns(case))
