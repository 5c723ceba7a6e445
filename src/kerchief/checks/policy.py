"""What every policy must be: plain, pure, repeatable, and the same alone as among thousands."""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from kerchief.checks.errors import expect, expect_frozen, law, same
from kerchief.checks.policy_fixture import (
    SEED,
    PolicyFixture,
    asks,
    by_rounds,
    by_totals,
    play,
    played,
    policy_of,
)
from kerchief.checks.reference_runner import (
    TURNS,
    Turn,
    hand_of,
    kept_turns,
    read_only,
    turns_by_hand,
    unchanged,
)
from kerchief.core.contracts import Arms, Clock, Tree
from kerchief.core.random import POLICY, Stream
from kerchief.environments import DisjointModels, make_environment
from kerchief.privatizers.billing import pay
from kerchief.privatizers.channels import channel_of
from kerchief_protocol.model import Model, Numbers


@law(cheap=True)
def config_is_the_same_built_again(case: PolicyFixture) -> None:
    """Built twice from the same public facts, a policy has the same numbers, in both modes.

    That is all that roles in different places share: a task holds the facts, not the policy.
    """
    for mode in ("tuned", "theory") if case.mechanism != "laplace" else ("tuned",):
        policy, again = case.policy(mode), case.policy(mode)
        expect(same(again, policy), seen=again, expected=policy)
        numbers = [np.asarray(leaf) for leaf in jax.tree.leaves(policy)]
        defined = not any(np.isnan(array).any() for array in numbers if array.dtype.kind == "f")
        expect(defined, seen=policy, expected="no number that is NaN")


@law(when=by_rounds)
def run_continues_from_a_restored_state(case: PolicyFixture) -> None:
    """With state and model from the wire, and a fresh policy, the rest of a run is the same."""
    turns = kept_turns(case)
    hand = hand_of(case, seed=1)
    for round in range(TURNS // 2):
        hand.turn(round)
    hand.policy = case.policy()
    hand.state, hand.model = _pass_over_wire(hand.state), _pass_over_wire(hand.model)
    rest = [hand.turn(round) for round in range(TURNS // 2, TURNS)]
    _expect_same_turns(rest, turns[TURNS // 2 :], "the run without a pause")


def _pass_over_wire(tree: Tree) -> Tree:
    """A tree as others read it: arrays by their names, put into the form that a policy declares."""
    leaves, form = jax.tree_util.tree_flatten_with_path(tree)
    names = [jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in leaves]
    expect(len({*names}) == len(names), seen=names, expected="another name for each array")
    arrays = {
        name: Numbers.of(np.asarray(leaf)) for name, (_, leaf) in zip(names, leaves, strict=True)
    }
    blank: Any = {"task": bytes(32), "head": bytes(32)}
    blank |= dict.fromkeys(("version", "release", "round", "length"), 0)
    model = Model.read(Model(arrays=arrays, **blank).write())
    return jax.tree.unflatten(form, [model[name] for name in names])


@law(cheap=True)
def keyword_only_and_frozen(case: PolicyFixture) -> None:
    """A policy is a frozen dataclass that takes its parameters by keyword alone."""
    kind: Any = type(policy_of(case))
    expect_frozen(kind)
    parameters = inspect.signature(kind).parameters.values()
    loose = [p.name for p in parameters if p.kind is not p.KEYWORD_ONLY]
    expect(not loose, seen=f"positional parameters {loose}", expected="keyword-only ones")


@law(cheap=True)
def documented(case: PolicyFixture) -> None:
    """Its module names the entry's source, and class, methods and entry are described."""
    kind, entry = type(policy_of(case)), case.entry
    expect(entry.summary and entry.source, seen=entry, expected="a summary and a source")
    text = (sys.modules[kind.__module__].__doc__ or "") + (kind.__doc__ or "")
    expect(text and kind.__doc__, seen="no docstring", expected="one for module and class")
    cited = re.findall(r"([A-Z][\w\-]+) et al\.|\b((?:19|20)\d\d)\b", entry.source)
    # What plays in problems of several kinds is described where each of them is.
    cited = cited if len(entry.kinds) == 1 else []
    missing = [citation for pair in cited for citation in pair if citation and citation not in text]
    expect(not missing, seen=f"the docstring lacks {missing}", expected=f"to name {entry.source}")
    public = [name for name, value in vars(kind).items() if name[0] != "_" and callable(value)]
    silent = [name for name in public if not inspect.getdoc(getattr(kind, name))]
    expect(not silent, seen=f"{silent} have no docstring", expected="every method described")


@law(when=by_rounds)
def inputs_are_never_edited(case: PolicyFixture) -> None:
    """Arms, rewards, states, models and releases come read-only and are unchanged afterwards."""
    hand = hand_of(case, seed=1)
    for round in range(TURNS):
        hand.turn(round)
    edited = sum(not same(tree, before) for tree, before in hand.inputs)
    expect(not edited, seen=f"{edited} of {len(hand.inputs)} inputs changed", expected="none")


@law(when=by_rounds)
def models_are_snapshots(case: PolicyFixture) -> None:
    """A model that was posted does not change when later ones are."""
    turns = kept_turns(case)
    changed = [i for i, turn in enumerate(turns) if not same(read_only(turn.posted), turn.model)]
    expect(not changed, seen=f"the models of rounds {changed} changed later", expected="none")


@law()
def same_seed_same_run(case: PolicyFixture) -> None:
    """Two runs at one seed agree in every bit, whatever global generators do in between."""
    if by_rounds(case):
        turns = [_run_disturbed(turns_by_hand, case, disturbance) for disturbance in (1, 2)]
        _expect_same_turns(turns[1], turns[0], "the first run")
    again = _run_disturbed(play, case, 3).run.regret
    expect(same(again, played(case).run.regret), seen="another regret", expected="the same bits")


def _run_disturbed(
    run: Callable[[PolicyFixture], Any], case: PolicyFixture, disturbance: int
) -> Any:
    state = np.random.get_state()  # noqa: NPY002 - the global generator is what is tested
    try:
        np.random.seed(disturbance)  # noqa: NPY002
        return run(case)
    finally:
        np.random.set_state(state)  # noqa: NPY002


@law(when=lambda case: by_rounds(case) and asks(case))
def update_and_publish_draw_nothing(case: PolicyFixture) -> None:
    """Releases replayed into a fresh state, with no device at all, give the same models."""
    turns, hand = kept_turns(case), hand_of(case, seed=2)
    for round, turn in enumerate(turns):
        hand.replay(round, turn)
        alike = same(read_only(hand.model), turn.model)
        observed = f"another model after round {round}"
        expect(alike, seen=observed, expected="the model of the recorded run")


@law()
def replicates_are_isolated(case: PolicyFixture) -> None:
    """With other replicates beside it, a replicate has the same regret up to rounding.

    Rounding may depend on its place among them: compiled code treats the last ones of a vector
    differently on some processors.
    """
    half = case.size.width // 2
    before = played(case).run.regret[:, half:]
    shifted = play(case, first_replicate=half).run.regret[:, :half]
    differ = int((np.abs(before - shifted) > 1e-9 * (1 + np.abs(before))).any(axis=0).sum())
    expect(not differ, seen=f"{differ} of {half} replicates changed", expected="none")


@law()
def one_replicate_is_a_slice_of_many(case: PolicyFixture) -> None:
    """Run alone, a replicate has the regret it has among many, up to float32 rounding."""
    brief: Any = {"horizon": case.size.segment, "ticks": 1} if by_totals(case) else {}
    single_run = play(case, replicates=1, **brief).run
    row = int(np.searchsorted(played(case).run.rounds, single_run.rounds[-1]))
    regret_in_batch, regret_alone = played(case).run.regret[row, 0], single_run.regret[-1, 0]
    close = abs(regret_alone - regret_in_batch) <= 1e-4 * (1 + abs(regret_in_batch))
    observed = f"regret {regret_alone} alone, {regret_in_batch} among {case.size.width}"
    expect(close, seen=observed, expected="the same to 1e-4")


@law(when=by_rounds)
def actions_are_allowed(case: PolicyFixture) -> None:
    """Every action is an allowed arm or lies in the convex set, whatever was seen before.

    No mask, however tempting or undefined the masked features, lets a masked arm through. Where
    the learner proposes: with the least and the greatest reports, and with both in turns, proposals
    and what is named stay inside; reports without bounds go as far as four deviations.
    """
    if case.feedback == "totals":
        _expect_masks_are_kept(case)
    elif asks(case):
        _expect_proposals_inside(case)


def _expect_masks_are_kept(case: PolicyFixture) -> None:
    hand = hand_of(case, seed=1)
    models = [hand.model, [hand.turn(round) for round in range(TURNS)][-1].posted]
    for trial in range(48):
        arms = _make_masked_arms(case, trial)
        clock = Clock(round=jnp.int32(trial), since=dict.fromkeys(hand.privatizers, jnp.int32(1)))
        stream = Stream.of(seed=SEED, replicate=trial).at(POLICY)
        action = int(hand.policy.act(models[trial % 2], arms, clock, stream))
        allowed = np.flatnonzero(arms.allowed)
        expect(action in allowed, seen=f"arm {action}", expected=f"one of {allowed}")


def _make_masked_arms(case: PolicyFixture, trial: int) -> Arms:
    """Arms of which one, or about a quarter or a half, are allowed."""
    rng, problem = np.random.default_rng(trial), case.problem
    allowed = np.arange(problem.arms) == trial % problem.arms
    allowed |= rng.random(problem.arms) < (trial % 3) / 4
    features = rng.normal(size=(problem.arms, problem.dim)).astype(np.float32)
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    features[~allowed] *= rng.choice([1.0, 100.0, np.nan])
    arms: Arms = read_only(Arms(features=jnp.asarray(features), allowed=jnp.asarray(allowed)))
    return arms


def _expect_proposals_inside(case: PolicyFixture) -> None:
    bandit = case.arranged()
    (privatizer,) = bandit.privatizers.values()
    query: Any = privatizer.query
    channel, center = channel_of(privatizer), float(np.asarray(query.center))
    low, high = channel.low, channel.high
    if low is None or high is None:
        low, high = center - 4 * float(channel.spread), center + 4 * float(channel.spread)
    for name, ends in (("least", (low,)), ("greatest", (high,)), ("alternating", (low, high))):
        reports = np.resize(np.array(ends, np.float64), (case.size.segment, 1))
        reports = np.tile(reports, query.size)
        actions, recommendations = _drive_policy(bandit.policy, jnp.asarray(reports))
        for subject, action in (("a proposal", actions), ("an answer", recommendations)):
            excess = _measure_excess(case, np.asarray(action))
            expect(excess <= 1e-9, seen=f"{subject} {excess} outside, {name} reports", expected=0)


@jax.jit
def _drive_policy(policy: Any, reports: Array) -> tuple[Array, Array]:
    """What is proposed, and what would be named, on the way through these reports."""

    def step(state: Any, inputs: tuple[Array, Array]) -> tuple[Any, tuple[Array, Array]]:
        round, report = inputs
        at = Stream.of(seed=SEED, replicate=0).at(POLICY, round=round)
        action = policy.propose(state, round, at)
        memo = policy.memo(state, action, round)
        after = policy.learn(state, action, memo, report, round)
        return after, (action, policy.recommend(after))

    rounds = jnp.arange(reports.shape[0], dtype=jnp.int32)
    return jax.lax.scan(step, policy.init({}), (rounds, reports))[1]


def _measure_excess(case: PolicyFixture, action: Any) -> float:
    """How far the worst of some actions lies outside; endless where it is not finite."""
    problem: Any = case.problem
    if not np.isfinite(action).all() or (problem.domain is None and action.dtype.kind != "i"):
        return float("inf")
    if problem.domain is None:
        return float(max(0, -action.min(), action.max() - problem.arms + 1))
    points = jnp.asarray(action).reshape(-1, problem.domain.dim)
    inside = jax.vmap(problem.domain.project)(points)
    return float(np.abs(np.asarray(inside) - np.asarray(points)).max())


@law(when=by_totals)
def edge_sizes_run(case: PolicyFixture) -> None:
    """One dimension, arm and round, zero or like arms: an allowed choice, a finite model.

    Arms with models of their own have a second dimension, the constant.
    """
    if case.resizable:
        problem: Any = case.problem
        least: Any = make_environment(link=problem.link, dim=1, arms=1)
        if problem.own:
            least = DisjointModels.of(dim=2, arms=1)
        _expect_sound(dataclasses.replace(case, environment=least), unchanged, horizon=1)
    # All arms zero, all alike, and all faint.
    for size, shift in ((0.0, 0.0), (0.0, 1.0), (1e-20, 0.0)):
        _expect_sound(case, partial(_scale_features, size, shift), horizon=3)


def _expect_sound(case: PolicyFixture, show: Callable[[Arms, int], Arms], *, horizon: int) -> None:
    hand = hand_of(case, seed=1, horizon=horizon, show=show)
    pay(hand.privatizers, case.make_ledger(case.promise()), horizon=horizon)
    size = case.environment.problem(horizon)
    where = f"{size.dim} dimensions, {size.arms} arms, shown by {show}"
    for round in range(horizon):
        turn = hand.turn(round)
        finite = all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(turn.model))
        expect(finite, seen=f"{turn.model} with {where}", expected="a finite model")
        expect(turn.allowed[turn.action], seen=f"arm {turn.action}", expected="an allowed arm")


def _scale_features(size: float, shift: float, arms: Arms, round: int) -> Arms:
    return Arms(features=arms.features * size + shift, allowed=arms.allowed)


def _expect_same_turns(turns: Sequence[Turn], expected_turns: Sequence[Turn], source: str) -> None:
    for round, (now, then) in enumerate(zip(turns, expected_turns, strict=True)):
        alike = same(now.action, then.action) and same(now.model, then.model)
        expect(alike, seen=f"another action or model in round {round}", expected=source)
