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
from kerchief.checks.case import SEED, Case, asks, by_totals, policy_of
from kerchief.checks.domains import NOWHERE, edge, far_points, farthest, lengths
from kerchief.checks.errors import expect, law
from kerchief.checks.learning import most_moved, summed
from kerchief.checks.player import (
    USER,
    Retold,
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
class Found:
    """Two users, one row each, how far apart what they send is, and the branches seen so far."""

    distance: float
    pair: Floats
    branches: int


@law(when=lambda case: by_totals(case) and asks(case))
def worst_user_moves_releases_by_the_sensitivity_at_most(case: Case) -> None:
    """Whatever arms, mask and reward one user brings, sums move by the sensitivity at most.

    Searched at models of a run's beginning, middle and end; under a promise the search must reach
    half of the sensitivity of every query, or it is blind. Then the two worst users found are
    driven through the real run, with common noise: every released sum, and every gradient sum of a
    fit, moves by no more than that, and nothing else that is public moves at all. Noise that is not
    added to a statistic, but replaces it, is off in that run.
    """
    queries, best = policy_of(case).queries, dict[str, float]()
    for number, arrival in enumerate(arrivals(case)):
        searched = worst_users(case, arrival)
        for name, found in searched.items():
            most = queries[name].sensitivity
            seen = f"{name}: {found.distance} between two users, over {found.branches} branches"
            expect(found.distance <= most * (1 + _ROUNDING), seen=seen, expected=f"at most {most}")
            best[name] = max(found.distance, best.get(name, 0.0))
        # The first arrival is in the run by hand.
        if number == 0 and case.trust != Trust.NONE:
            _expect_sums_move_no_more(case, searched)
    # Without a promise a bandit may ask for what no user of a small world ever sends.
    for name, distance in best.items() if case.trust != Trust.NONE else ():
        most = queries[name].sensitivity
        seen = f"{name}: a search that reaches {distance}"
        expect(distance >= most / 2, seen=seen, expected=f"at least half of {most}")


def arrivals(case: Case) -> Iterator[Arrival]:
    """Some of the models that real runs post: the first is in the run by hand."""
    coins = Stream.of(seed=1, replicate=0).at(POLICY, round=USER)
    yield _arrival(case, kept_turns(case)[USER - 1].posted, USER, coins)
    yield from _met(case)


@lru_cache(maxsize=16)
def _met(case: Case) -> list[Arrival]:
    """Early in one replicate of a simulated run, and late in two."""
    scene, size = case.scene(case.arranged()), case.size
    carry = loop.begin(scene, jnp.arange(size.width, dtype=jnp.uint32))
    step, _ = compiled(loop.advance, scene, carry, jnp.int32(0), length=size.segment)
    found = []
    for round in range(0, size.horizon, size.segment):
        carry = step(scene, carry, jnp.int32(round))
        last = round + size.segment - 1
        for one in {size.segment - 1: (0,), size.horizon - 1: (0, 1)}.get(last, ()):
            model = jax.tree.map(lambda leaf, one=one: np.array(leaf[one]), carry.model)
            coins = Stream.of(seed=SEED, replicate=one).at(POLICY, round=last)
            found.append(_arrival(case, model, last, coins))
    return found


def _arrival(case: Case, model: Tree, round: int, coins: Stream) -> Arrival:
    since = dict.fromkeys(policy_of(case).queries, jnp.int32(1))
    clock = Clock(round=jnp.int32(round), since=since)
    return Arrival(model=jax.tree.map(jnp.asarray, model), clock=clock, coins=coins)


@struct
class _Sent:
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

    def drawn(self, rng: np.random.Generator, count: int) -> Floats:
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
        moved = features + step * self.facts.norm * rng.normal(size=features.shape)
        out = rng.random((len(rows), 1, 1)) < 0.5
        moved = np.where(out, self.facts.norm * edge(moved), moved)
        turned = allowed ^ (rng.random(allowed.shape) < 0.1)
        other = np.where(rng.random(len(rows)) < 0.5, reward, self.rewards(rng, len(rows)))
        return self.rows(moved, turned, other)

    def rewards(self, rng: np.random.Generator, count: int) -> Floats:
        """The ends of the range and its middle."""
        low, high = self.facts.low, self.facts.high
        return rng.choice([low, high, (low + high) / 2], size=count)


@lru_cache(maxsize=32)
def _sender(case: Case) -> Callable[[Floats, Arrival], _Sent]:
    """What each of many users sends at an arrival, compiled once for a case."""
    policy, users = case.policy(), _Users(facts=case.problem)

    def one(row: Array, arrival: Arrival) -> _Sent:
        # In single precision, as worlds draw them: ties are broken as in the real run.
        arms, reward = users.split(row.astype(jnp.float32))
        action = policy.act(arrival.model, arms, arrival.clock, arrival.coins)
        records = policy.record(arrival.model, arms, action, reward)
        parts = {name: _parts(query, records[name]) for name, query in policy.queries.items()}
        marks = [(leaf != 0).ravel() for leaf in map(jnp.asarray, jax.tree.leaves(records))]
        branch = jnp.concatenate([jnp.asarray(action)[None], *marks]).astype(jnp.int32)
        return _Sent(parts=parts, branch=branch)

    return jax.jit(jax.vmap(one, in_axes=(0, None)))


def _parts(query: Any, record: Tree) -> Array:
    """The statistic, or the gradients at some points near and far: one row each."""
    points = far_points(query.dim)[:6] if isinstance(query, BoundedLoss) else [NOWHERE]
    return jnp.stack([contribution(query, record, point) for point in points])


def worst_users(case: Case, arrival: Arrival) -> Mapping[str, Found]:
    """For each query the two users found whose answers lie farthest apart."""
    send, users = _sender(case), _Users(facts=case.problem)
    rng = np.random.default_rng(0)
    rows, best, branches = users.drawn(rng, _ROWS), dict[str, Found](), set[bytes]()
    for step in (*np.geomspace(0.5, 2e-3, _CLIMBS), None):
        sent = jax.tree.map(np.asarray, send(rows, arrival))
        branches |= {mark.tobytes() for mark in sent.branch}
        for name, parts in sent.parts.items():
            distance, pair = farthest(np.asarray(parts, np.float64))
            if name not in best or distance > best[name].distance:
                best[name] = Found(distance=distance, pair=rows[pair], branches=0)
        if step is not None:
            elite = np.concatenate([*(f.pair for f in best.values()), _one_a_branch(rows, sent)])
            copies = np.resize(np.arange(len(elite)), _ROWS - len(elite))
            rows = np.concatenate([elite, users.near(rng, elite[copies], step)])
    return {
        name: dataclasses.replace(found, branches=len(branches)) for name, found in best.items()
    }


def _one_a_branch(rows: Floats, sent: _Sent) -> Floats:
    """Of each of some branches the user who sends the most."""
    size = sum(lengths(np.asarray(p, np.float64)).max(-1) for p in sent.parts.values())
    _, which = np.unique(sent.branch, axis=0, return_inverse=True)
    # Of rows with the same branch, the last one in this order stays.
    most = {int(which.ravel()[place]): int(place) for place in np.argsort(size)}
    return rows[list(most.values())[:_BRANCHES]]


def _expect_sums_move_no_more(case: Case, searched: Mapping[str, Found]) -> None:
    """Drive the worst users through the real run, with the same noise, and look at every sum."""
    for name, found in searched.items():
        first, second = (_told(case, row) for row in found.pair)
        for run in (first, second):
            expect_same_public(run.turns, kept_turns(case), f"the worst users for {name}")
        moves = dict[str, float]()
        for (_, asked, one), (_, _, other) in zip(first.told, second.told, strict=True):
            privatizer = first.privatizers[asked]
            expect_same_facts(asked, one, other)
            moved, most = _moved(privatizer, one, other), most_moved(privatizer, rounding=_ROUNDING)
            seen = f"{asked}: a release that moves by {moved}, with the worst users for {name}"
            expect(moved <= most, seen=seen, expected=f"at most {most}")
            moves[asked] = max(moved, moves.get(asked, 0.0))
        # Whatever breaks ties, a released sum moves; a fit may look where these two are alike.
        if name in moves and not isinstance(first.privatizers[name].query, BoundedLoss):
            seen = f"{name}: a release that moves by {moves[name]}"
            half = moves[name] >= found.distance / 2
            expect(half, seen=seen, expected=f"{found.distance}, as was searched for")


def _told(case: Case, row: Floats) -> Retold:
    """The usual run with one other user, and all that it tells."""
    arms, reward = _Users(facts=case.problem).split(row)

    def show(usual: Arms) -> Arms:
        features = jnp.asarray(arms.features, usual.features.dtype)
        return Arms(features=features, allowed=jnp.asarray(arms.allowed))

    def earn(usual: Any) -> Any:
        return np.asarray(reward, usual.dtype)

    return with_one_other(case, show=show, earn=earn, change=_talkative)


def _talkative(privatizer: Privatizer) -> Privatizer:
    """The same privatizer, whose fits tell every sum; without noise that sums do not show."""
    privatizer = summed(privatizer)
    if not isinstance(privatizer.query, BoundedLoss) or not privatizer.outlook.noisy:
        return privatizer
    made: Any = privatizer
    telltale = Telltale(steps=made.query.minimizer.steps)
    telling: Privatizer = dataclasses.replace(
        made, query=dataclasses.replace(made.query, minimizer=telltale)
    )
    return telling


def _moved(privatizer: Privatizer, one: Released, other: Released) -> float:
    """How far the sum that was told moved; of a fit, the one that moved most."""
    query: Any = privatizer.query
    fit = isinstance(query, BoundedLoss)
    moved = one.point - other.point if fit else one.total - other.total
    return float(lengths(np.reshape(moved, (-1, query.dim if fit else query.size))).max())
