"""The worst user: a search over all that one user can bring, and the real run with what it found.

A user brings arms, a mask of those that are allowed, and a reward. What leaves the device is held
apart over random users, degenerate ones and climbs from the best, at models that real runs post.
Users who send the policy down another branch show by another action, or by weights or features that
vanish; the search climbs from each branch, so that pairs are found within and across them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from kerchief.audits.canaries import Telltale
from kerchief.audits.neighbours import contribution
from kerchief.checks.domains import NOWHERE, edge, far_points, farthest, lengths
from kerchief.checks.errors import expect, law
from kerchief.checks.learning import most_moved, summed
from kerchief.checks.policy_fixture import SEED, PolicyFixture, asks, by_totals, policy_of
from kerchief.checks.reference_runner import (
    USER,
    CounterfactualRun,
    expect_same_facts,
    expect_same_public,
    kept_turns,
    with_one_other,
)
from kerchief.checks.statistics import Floats
from kerchief.core.contracts import Arms, BoundedLoss, Clock, Released, Tree
from kerchief.core.random import POLICY, Stream
from kerchief.core.struct import struct
from kerchief.privacy import Trust
from kerchief.privatizers import Privatizer
from kerchief.simulation import loop
from kerchief.simulation.machine import compiled

_ROWS, _CLIMBS, _BRANCHES = 256, 6, 8
# What float32 may add: models are float32.
_ROUNDING = 1e-5


@struct
class Arrival:
    """Where a user may arrive: the model that is posted, public time, and the user's coins."""

    model: Tree
    clock: Clock
    coins: Stream


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorstPair:
    """Two users, one row each, how far apart what they send is, and the branches seen so far."""

    distance: float
    pair: Floats
    branches: int


@law(when=lambda case: by_totals(case) and asks(case))
def worst_user_moves_releases_by_the_sensitivity_at_most(case: PolicyFixture) -> None:
    """Whatever arms, mask and reward one user brings, sums move by the sensitivity at most.

    Searched at models of a run's beginning, middle and end; under a promise the search must
    reach half of the sensitivity of every query, or it is blind. Then the two worst users found are
    driven through the real run, with common noise: every released sum, and every gradient sum of a
    fit, moves by no more than that, and nothing else that is public moves at all. Noise that is not
    added to a statistic, but replaces it, is off in that run.
    """
    queries, best = policy_of(case).queries, dict[str, float]()
    for number, arrival in enumerate(arrivals(case)):
        searched = worst_users(case, arrival)
        for name, worst in searched.items():
            bound = queries[name].sensitivity
            observed = f"{name}: {worst.distance} between two users, over {worst.branches} branches"
            expect(
                worst.distance <= bound * (1 + _ROUNDING),
                seen=observed,
                expected=f"at most {bound}",
            )
            best[name] = max(worst.distance, best.get(name, 0.0))
        # The first arrival is in the run by hand.
        if number == 0 and case.trust != Trust.NONE:
            _expect_sums_move_no_more(case, searched)
    # Without a promise a bandit may ask for what no user of a small world ever sends.
    for name, distance in best.items() if case.trust != Trust.NONE else ():
        bound = queries[name].sensitivity
        observed = f"{name}: a search that reaches {distance}"
        expect(distance >= bound / 2, seen=observed, expected=f"at least half of {bound}")


def arrivals(case: PolicyFixture) -> Iterator[Arrival]:
    """Some of the models that real runs post: the first is in the run by hand."""
    coins = Stream.of(seed=1, replicate=0).at(POLICY, round=USER)
    yield _build_arrival(case, kept_turns(case)[USER - 1].posted, USER, coins)
    yield from _list_later_arrivals(case)


@lru_cache(maxsize=16)
def _list_later_arrivals(case: PolicyFixture) -> list[Arrival]:
    """List arrivals early in one replicate of a run and late in two."""
    scene, size = case.scene(case.arranged()), case.size
    carry = loop.begin(scene, jnp.arange(size.width, dtype=jnp.uint32))
    step, _ = compiled(loop.advance, scene, carry, jnp.int32(0), length=size.segment)
    later = []
    for round in range(0, size.horizon, size.segment):
        carry = step(scene, carry, jnp.int32(round))
        last = round + size.segment - 1
        for replicate in {size.segment - 1: (0,), size.horizon - 1: (0, 1)}.get(last, ()):
            model = jax.tree.map(
                lambda leaf, replicate=replicate: np.array(leaf[replicate]), carry.model
            )
            coins = Stream.of(seed=SEED, replicate=replicate).at(POLICY, round=last)
            later.append(_build_arrival(case, model, last, coins))
    return later


def _build_arrival(case: PolicyFixture, model: Tree, round: int, coins: Stream) -> Arrival:
    since = dict.fromkeys(policy_of(case).queries, jnp.int32(1))
    clock = Clock(round=jnp.int32(round), since=since)
    return Arrival(model=jax.tree.map(jnp.asarray, model), clock=clock, coins=coins)


@struct
class _Answers:
    """What a user sends: for each query one row per point, and the branch that the policy took."""

    parts: Mapping[str, Array]
    branch: Array


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Users:
    """The domain of one user: arms in a ball, a mask with one arm or more, a reward."""

    facts: Any

    def split(self, row: Any) -> tuple[Arms, Any]:
        """The arms and the reward that a row stands for; of many users, a column each."""
        count, dim = self.facts.arms, self.facts.dim
        features = row[: count * dim].reshape(count, dim, *row.shape[1:])
        allowed = row[count * dim : -1] > 0
        return Arms(features=features, allowed=allowed), row[-1]

    def rows(self, features: Floats, allowed: Any, rewards: Floats) -> Floats:
        """Users with these arms, scaled into the ball; without an allowed arm all are."""
        length = np.linalg.norm(features, axis=-1, keepdims=True)
        inside = features * np.minimum(1, self.facts.norm / np.maximum(length, 1e-300))
        mask = np.where(allowed.any(1, keepdims=True), allowed, True)
        return np.concatenate([inside.reshape(len(inside), -1), mask, rewards[:, None]], axis=1)

    def draw(self, rng: np.random.Generator, count: int) -> Floats:
        """Random users: long arms, short ones, arms all alike or nearly so, orthogonal ones."""
        shape = (count, self.facts.arms, self.facts.dim)
        features = edge(rng.normal(size=shape))
        size = rng.choice([1.0, 1.0, 0.3, 1e-3, 0.0], size=(count, shape[1], 1))
        features *= np.where(np.arange(count)[:, None, None] % 2, size, 1.0)
        # Every fourth user has arms along one line; half of these point the same way.
        alike = np.arange(count) % 4 == 0
        jitter = rng.choice([0.0, 1e-4, 1e-2], size=(count, 1, 1)) * rng.normal(size=shape)
        signs = rng.choice([-1.0, 1.0], size=(*shape[:2], 1))
        turn = np.where(rng.random((count, 1, 1)) < 0.5, 1.0, signs)
        features[alike] = (turn * features[:, :1] + jitter)[alike]
        axes = np.arange(count) % 8 == 1
        features[axes] = np.eye(shape[2])[np.arange(shape[1]) % shape[2]]
        allowed = rng.random(shape[:2]) < rng.choice([0.2, 0.6, 1.0], size=(count, 1))
        return self.rows(self.facts.norm * features, allowed, self.rewards(rng, count))

    def near(self, rng: np.random.Generator, rows: Floats, step: float) -> Floats:
        """Users like these, moved a little: half of them out to the sphere."""
        arms, reward = self.split(rows.T)
        features: Floats = np.moveaxis(np.asarray(arms.features), -1, 0)
        allowed = np.asarray(arms.allowed).T
        shifted = features + step * self.facts.norm * rng.normal(size=features.shape)
        out = rng.random((len(rows), 1, 1)) < 0.5
        shifted = np.where(out, self.facts.norm * edge(shifted), shifted)
        mask = allowed ^ (rng.random(allowed.shape) < 0.1)
        rewards = np.where(rng.random(len(rows)) < 0.5, reward, self.rewards(rng, len(rows)))
        return self.rows(shifted, mask, rewards)

    def rewards(self, rng: np.random.Generator, count: int) -> Floats:
        """The ends of the range and its middle."""
        low, high = self.facts.low, self.facts.high
        return rng.choice([low, high, (low + high) / 2], size=count)


@lru_cache(maxsize=32)
def _compile_sender(case: PolicyFixture) -> Callable[[Floats, Arrival], _Answers]:
    """Compile what each of many users sends at an arrival."""
    policy, users = case.policy(), _Users(facts=case.problem)

    def answer(row: Array, arrival: Arrival) -> _Answers:
        # In single precision, as worlds draw them: ties are broken as in the real run.
        arms, reward = users.split(row.astype(jnp.float32))
        action = policy.act(arrival.model, arms, arrival.clock, arrival.coins)
        records = policy.record(arrival.model, arms, action, reward)
        parts = {
            name: _encode_parts(query, records[name]) for name, query in policy.queries.items()
        }
        marks = [(leaf != 0).ravel() for leaf in map(jnp.asarray, jax.tree.leaves(records))]
        branch = jnp.concatenate([jnp.asarray(action)[None], *marks]).astype(jnp.int32)
        return _Answers(parts=parts, branch=branch)

    return jax.jit(jax.vmap(answer, in_axes=(0, None)))


def _encode_parts(query: Any, record: Tree) -> Array:
    """Encode a record: its statistic, or its gradients at some points."""
    points = far_points(query.dim)[:6] if isinstance(query, BoundedLoss) else [NOWHERE]
    return jnp.stack([contribution(query, record, point) for point in points])


def worst_users(case: PolicyFixture, arrival: Arrival) -> Mapping[str, WorstPair]:
    """For each query the two users found whose answers lie farthest apart."""
    send, users = _compile_sender(case), _Users(facts=case.problem)
    rng = np.random.default_rng(0)
    rows, best, branches = users.draw(rng, _ROWS), dict[str, WorstPair](), set[bytes]()
    for step in (*np.geomspace(0.5, 2e-3, _CLIMBS), None):
        answers = jax.tree.map(np.asarray, send(rows, arrival))
        branches |= {mark.tobytes() for mark in answers.branch}
        for name, parts in answers.parts.items():
            distance, pair = farthest(np.asarray(parts, np.float64))
            if name not in best or distance > best[name].distance:
                best[name] = WorstPair(distance=distance, pair=rows[pair], branches=0)
        if step is not None:
            elite = np.concatenate(
                [*(f.pair for f in best.values()), _pick_per_branch(rows, answers)]
            )
            copies = np.resize(np.arange(len(elite)), _ROWS - len(elite))
            rows = np.concatenate([elite, users.near(rng, elite[copies], step)])
    return {
        name: dataclasses.replace(worst, branches=len(branches)) for name, worst in best.items()
    }


def _pick_per_branch(rows: Floats, answers: _Answers) -> Floats:
    """Pick from each branch the user who sends the most."""
    size = sum(lengths(np.asarray(p, np.float64)).max(-1) for p in answers.parts.values())
    _, branches = np.unique(answers.branch, axis=0, return_inverse=True)
    # Of rows with the same branch, the last one in this order stays.
    places = {int(branches.ravel()[place]): int(place) for place in np.argsort(size)}
    return rows[list(places.values())[:_BRANCHES]]


def _expect_sums_move_no_more(case: PolicyFixture, searched: Mapping[str, WorstPair]) -> None:
    """Drive the worst users through the real run, with the same noise, and look at every sum."""
    for name, worst in searched.items():
        first, second = (_run_with_user(case, row) for row in worst.pair)
        for run in (first, second):
            expect_same_public(run.turns, kept_turns(case), f"the worst users for {name}")
        moves = dict[str, float]()
        for (_, query_name, release), (_, _, other_release) in zip(
            first.told, second.told, strict=True
        ):
            privatizer = first.privatizers[query_name]
            expect_same_facts(query_name, release, other_release)
            distance, bound = (
                _measure_move(privatizer, release, other_release),
                most_moved(privatizer, rounding=_ROUNDING),
            )
            observed = (
                f"{query_name}: a release that moves by {distance}, with the worst users for {name}"
            )
            expect(distance <= bound, seen=observed, expected=f"at most {bound}")
            moves[query_name] = max(distance, moves.get(query_name, 0.0))
        # Whatever breaks ties, a released sum moves; a fit may look where these two are alike.
        if name in moves and not isinstance(first.privatizers[name].query, BoundedLoss):
            observed = f"{name}: a release that moves by {moves[name]}"
            half = moves[name] >= worst.distance / 2
            expect(half, seen=observed, expected=f"{worst.distance}, as was searched for")


def _run_with_user(case: PolicyFixture, row: Floats) -> CounterfactualRun:
    """Replay the usual run with one user changed."""
    arms, reward = _Users(facts=case.problem).split(row)

    def show(usual: Arms) -> Arms:
        features = jnp.asarray(arms.features, usual.features.dtype)
        return Arms(features=features, allowed=jnp.asarray(arms.allowed))

    def earn(usual: Any) -> Any:
        return np.asarray(reward, usual.dtype)

    return with_one_other(case, show=show, earn=earn, change=_show_every_sum)


def _show_every_sum(privatizer: Privatizer) -> Privatizer:
    """Make fits return every sum, and silence noise that replaces a statistic."""
    privatizer = summed(privatizer)
    if not isinstance(privatizer.query, BoundedLoss) or not privatizer.outlook.noisy:
        return privatizer
    fit: Any = privatizer
    telltale = Telltale(steps=fit.query.minimizer.steps)
    telling: Privatizer = dataclasses.replace(
        fit, query=dataclasses.replace(fit.query, minimizer=telltale)
    )
    return telling


def _measure_move(privatizer: Privatizer, first: Released, second: Released) -> float:
    """Measure how far a release moved; for a fit, its most moved sum."""
    query: Any = privatizer.query
    fit = isinstance(query, BoundedLoss)
    difference = first.point - second.point if fit else first.total - second.total
    return float(lengths(np.reshape(difference, (-1, query.dim if fit else query.size))).max())
