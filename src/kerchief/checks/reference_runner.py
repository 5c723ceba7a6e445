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

from kerchief.checks.errors import expect, same
from kerchief.checks.policy_fixture import PolicyFixture
from kerchief.core.contracts import Arms, Clock, Environment, Policy, Released, Start, Stops, Tree
from kerchief.core.random import AGGREGATOR, ARMS, DEVICE, POLICY, REWARD, WORLD, Stream
from kerchief.deployment.round import place
from kerchief.privatizers import At, Every, OnDemand, Privatizer

TURNS = 8
# Who is replaced in a run: someone early, so that others come after.
USER = 2
_BATCH = 3

# Only the policy is watched, so the rooms around it may be compiled.
_world = jax.jit(lambda environment, stream: environment.init(stream))
_arms = jax.jit(lambda environment, world, clock, stream: environment.arms(world, clock, stream))
_reward = jax.jit(lambda environment, *rest: environment.reward(*rest))
_regret = jax.jit(lambda environment, *rest: environment.regret(*rest))
_randomize = jax.jit(lambda privatizer, *arguments: privatizer.randomize(*arguments))
_release = jax.jit(lambda privatizer, *rest: privatizer.release(*rest))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Turn:
    """One round: what was chosen, lost, asked, released and posted.

    Requests and releases are in the order in which they came. `posted` is the very object that the
    policy published, `model` a copy of it, made at once.
    """

    allowed: Any
    action: Any
    lost: float
    stopped: bool
    wanted: Mapping[str, bool]
    refreshes: bool
    requests: Mapping[str, Start | None]
    releases: Mapping[str, Released]
    posted: Tree
    model: Tree


def read_only(tree: Tree) -> Tree:
    """Copy every leaf into a NumPy array that cannot be written."""
    return jax.tree.map(_lock_array, tree)


def _lock_array(leaf: Any) -> Any:
    array = np.array(leaf)
    array.setflags(write=False)
    return array


def unchanged(thing: Any, where: int | str) -> Any:
    """Return arms, a reward or a release as it is."""
    return thing


@dataclasses.dataclass(kw_only=True)
class ReferenceRunner:
    """Plays one bandit and remembers every input that it gave to the policy.

    `show` and `earn` may replace the arms and the reward that the world drew for the user of a
    round. `inputs` is each tree that the policy was given, beside a copy made before the call.
    """

    policy: Policy
    privatizers: Mapping[str, Privatizer]
    environment: Environment
    seed: int
    show: Callable[[Arms, int], Arms] = unchanged
    earn: Callable[[Any, int], Any] = unchanged
    inputs: list[tuple[Tree, Tree]] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        """Open everything before the first round."""
        self.stream = Stream.of(seed=self.seed, replicate=0)
        self.world = _world(self.environment, self.stream.at(WORLD))
        self.state = self.policy.init({name: p.outlook for name, p in self.privatizers.items()})
        self.model = self.policy.publish(self._copy_input(self.state))
        states = {name: p.open() for name, p in self.privatizers.items()}
        self.memory = {name: memory for name, (memory, _) in states.items()}
        self.tally = {name: tally for name, (_, tally) in states.items()}
        self.last = dict.fromkeys(states, -1)
        self.used = dict.fromkeys(states, 0)

    def turn(self, round: int, give: Callable[[Released, str], Released] = unchanged) -> Turn:
        """Play one round, as `deployment.round` does; `give` may replace its releases."""
        going = not self.stopped
        arms, action, regret = self._device(self._clock(round), round)
        due_flags, requests, releases = {}, {}, {}

        def ask(name: str, due: bool) -> bool:
            """Take one release, if it is due and the schedule lets it through."""
            due_flags[name] = due
            if not due or not self._ready(name, round):
                return False
            requests[name] = self.policy.request(self._copy_input(self.state), name)
            release = self._make_release(name, requests[name], round)
            if self.policy.feedback == "reports":
                release = dataclasses.replace(release, action=action)
            releases[name] = give(release, name)
            self._take_release(name, releases[name], round)
            return True

        for name in (name for name in self.privatizers if not self._on_demand(name)):
            ask(name, self._due(round)[name])
        refreshes = self._refreshes(round)
        if refreshes:
            self._post_model()
        wishes = self._due(round)
        for name in self.privatizers:
            if self._on_demand(name) and ask(name, wishes[name]):
                self._post_model()
        return Turn(
            allowed=arms.allowed,
            action=action,
            lost=regret if going else 0.0,
            stopped=self.stopped,
            wanted=due_flags,
            refreshes=refreshes,
            requests=read_only(requests),
            releases=releases,
            posted=self.model,
            model=read_only(self.model),
        )

    @property
    def stopped(self) -> bool:
        """Whether nobody is asked any more."""
        policy = self.policy
        return (
            bool(policy.is_stopped(self._copy_input(self.state)))
            if isinstance(policy, Stops)
            else False
        )

    def replay(self, round: int, turn: Turn) -> None:
        """Give the learner a turn's releases and nothing else: no user comes."""
        for demand in (False, True):
            for name in (name for name in turn.releases if self._on_demand(name) == demand):
                self._take_release(name, turn.releases[name], round)
                if demand:
                    self._post_model()
            if turn.refreshes and not demand:
                self._post_model()

    def _take_release(self, name: str, release: Released, round: int) -> None:
        """Update the learner with one release."""
        self.state = self.policy.update(
            self._copy_input(self.state), name, self._copy_input(release)
        )
        self.last[name] = round
        self.used[name] += 1

    def _post_model(self) -> None:
        """Publish a model, as the learner."""
        self.model = self.policy.publish(self._copy_input(self.state))

    def _device(self, clock: Clock, round: int) -> tuple[Arms, Any, float]:
        """Play one visit on the user's device and collect its reports."""
        at = self.stream.at
        model = self._copy_input(self.model)
        arms = _arms(self.environment, self.world, clock, at(ARMS, round=round))
        arms = self._copy_input(self.show(arms, round))
        action: Any = self.policy.act(model, arms, clock, at(POLICY, round=round))
        # An arm's number, or what the learner proposes.
        action = read_only(np.int32(action) if self.policy.feedback == "totals" else action)
        facts = self.environment, self.world, arms, action, clock
        reward = self._copy_input(self.earn(_reward(*facts, at(REWARD, round=round)), round))
        records = self.policy.record(model, arms, jnp.asarray(action), reward)
        for name, p in self.privatizers.items():
            number = place(name, self.privatizers)
            report = _randomize(p, records[name], clock, at(DEVICE, round=round, query=number))
            self.tally[name] = p.collect(self.tally[name], report)
        return arms, action, float(_regret(*facts))

    def _refreshes(self, round: int) -> bool:
        """Whether a model is posted: what a batch brings always, else as the bandit says."""
        kinds = {type(privatizer.schedule) for privatizer in self.privatizers.values()}
        if Every in kinds and bool(self.policy.refreshes(self._clock(round))):
            return True
        batched = (
            name
            for name, privatizer in self.privatizers.items()
            if isinstance(privatizer.schedule, At)
        )
        return any(self._ready(name, round) for name in batched)

    def _on_demand(self, name: str) -> bool:
        return isinstance(self.privatizers[name].schedule, OnDemand)

    def _due(self, round: int) -> Mapping[str, bool]:
        due = self.policy.due(self._copy_input(self.state), self._clock(round))
        return {name: bool(is_due) for name, is_due in due.items()}

    def _ready(self, name: str, round: int) -> bool:
        """Whether the schedule lets a release through."""
        schedule = self.privatizers[name].schedule
        if isinstance(schedule, At):
            return bool(schedule.ready(self._clock(round)))
        return not isinstance(schedule, OnDemand) or bool(schedule.room(jnp.int32(self.used[name])))

    def _make_release(self, name: str, request: Start | None, round: int) -> Released:
        """Make one release, as the aggregator."""
        p, clock = self.privatizers[name], self._clock(round)
        at = self.stream.at(AGGREGATOR, round=round, query=place(name, self.privatizers))
        release, self.memory[name] = _release(
            p, self.memory[name], self.tally[name], request, clock, at
        )
        self.tally[name] = p.clear(self.tally[name])
        return read_only(release)

    def _clock(self, round: int) -> Clock:
        since = {name: jnp.int32(round - last) for name, last in self.last.items()}
        clock: Clock = self._copy_input(Clock(round=jnp.int32(round), since=since))
        return clock

    def _copy_input(self, tree: Tree) -> Tree:
        """Copy a tree read-only for the policy, and remember both."""
        copy = read_only(tree)
        self.inputs.append((copy, read_only(tree)))
        return copy


def _shorten_batches(privatizer: Privatizer) -> Privatizer:
    """Shorten a privatizer's batches so that a run by hand has several."""
    if not isinstance(privatizer.schedule, At):
        return privatizer
    return privatizer.with_schedule(At(ends=tuple(_BATCH * (i + 1) for i in range(64))))


def hand_of(
    case: PolicyFixture,
    *,
    seed: int,
    horizon: int | None = None,
    change: Callable[[Privatizer], Privatizer] = lambda privatizer: privatizer,
    **options: Any,
) -> ReferenceRunner:
    """A fresh hand for a case, with changed privatizers."""
    bandit: Any = case.arranged(horizon=horizon)
    world: Any = case.environment
    privatizers = {name: change(_shorten_batches(p)) for name, p in bandit.privatizers.items()}
    return ReferenceRunner(
        policy=bandit.policy, privatizers=privatizers, environment=world, seed=seed, **options
    )


def turns_by_hand(
    case: PolicyFixture, *, seed: int = 1, script: Sequence[Turn] | None = None
) -> tuple[Turn, ...]:
    """Play a fresh copy of the case from the first round on.

    With a script the learner is given the releases of those turns, wherever there is one.
    """
    hand = hand_of(case, seed=seed)
    turns = list[Turn]()
    for round in range(TURNS):

        def give(release: Released, name: str, round: int = round) -> Released:
            return script[round].releases.get(name, release) if script else release

        turns.append(hand.turn(round, give))
    return tuple(turns)


kept_turns = lru_cache(maxsize=16)(turns_by_hand)


@lru_cache(maxsize=16)
def other_data(case: PolicyFixture) -> tuple[Turn, ...]:
    """A play with other data, whose learner is given the releases of `kept_turns`."""
    return turns_by_hand(case, seed=2, script=kept_turns(case))


@dataclasses.dataclass(frozen=True, kw_only=True)
class CounterfactualRun:
    """Run with one user changed, whose learner gets the usual noisy releases.

    `told` is round, query and release of all that was really released.
    """

    privatizers: Mapping[str, Privatizer]
    turns: tuple[Turn, ...]
    told: tuple[tuple[int, str, Released], ...]


def with_one_other(
    case: PolicyFixture,
    *,
    show: Callable[[Arms], Arms] = lambda arms: arms,
    earn: Callable[[Any], Any] = lambda reward: reward,
    change: Callable[[Privatizer], Privatizer] = lambda privatizer: privatizer,
) -> CounterfactualRun:
    """A run like `kept_turns`, but for one user's arms and reward, with changed privatizers.

    What carries noise is given to the learner as the usual run had it; what carries none stays as
    it is, since nothing hides it.
    """
    hand = hand_of(
        case,
        seed=1,
        change=change,
        show=lambda arms, round: show(arms) if round == USER else arms,
        earn=lambda reward, round: earn(reward) if round == USER else reward,
    )
    turns, releases = list[Turn](), list[tuple[int, str, Released]]()
    for round, turn in enumerate(kept_turns(case)):

        def give(release: Released, name: str, round: int = round, turn: Turn = turn) -> Released:
            releases.append((round, name, release))
            is_recorded = name in turn.releases
            expect(is_recorded, seen=f"a release of {name} in round {round}", expected="none")
            return turn.releases[name] if hand.privatizers[name].outlook.noisy else release

        turns.append(hand.turn(round, give))
    return CounterfactualRun(privatizers=hand.privatizers, turns=tuple(turns), told=tuple(releases))


def expect_same_public(seen: Sequence[Turn], usual: Sequence[Turn], whose: str) -> None:
    """Times, requests, models and everyone else's actions are the same, whatever one user does."""
    expect_same_times(seen, usual)
    for round, (now, then) in enumerate(zip(seen, usual, strict=True)):
        where = f"with {whose}, in round {round}"
        expect(same(now.model, then.model), seen=f"another model {where}", expected="the same")
        is_same = round == USER or same(now.action, then.action)
        expect(is_same, seen=f"another's action {where}", expected="the same")


def expect_same_facts(name: str, one: Released, other: Released) -> None:
    """Two releases speak of as many users, with as much noise."""
    facts, expected = ((int(release.count), float(release.noise)) for release in (one, other))
    expect(facts == expected, seen=f"{name}: users and noise {facts}", expected=expected)


def expect_same_times(seen: Sequence[Turn], usual: Sequence[Turn]) -> None:
    """Two runs ask, and ask for the same, post and stop at the same times."""
    for round, (now, then) in enumerate(zip(seen, usual, strict=True)):
        times, expected = (
            (turn.wanted, list(turn.releases), turn.refreshes, turn.stopped) for turn in (now, then)
        )
        expect(times == expected, seen=f"{times} in round {round}", expected=expected)
        alike = same(now.requests, then.requests)
        expect(alike, seen=f"another request in round {round}", expected="the same")
