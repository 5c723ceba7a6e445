"""Rounds that are played together: the same run as round by round."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kerchief.deployment.protected_policy import build_protected
from kerchief.environments import make_environment
from kerchief.policies import POLICIES
from kerchief.privacy import Guarantee, Trust
from kerchief.privatizers import Protection
from kerchief.simulation import loop

HORIZON, REPLICATES = 300, 3
TRUSTS = ("none", "local", "shuffle", "joint", "central")


def scene_of(name: str, trust: str, **options: Any) -> loop.Scene:
    world = make_environment(dim=2, arms=4, **options)
    problem = world.problem(HORIZON)
    epsilon, delta = (math.inf, 0.0) if trust == "none" else (4.0, 1e-3)
    promise = Guarantee(epsilon=epsilon, delta=delta, trust=Trust(trust), rounds=HORIZON)
    made = build_protected(name, problem, Protection(guarantee=promise))
    policy: Any = made.policy
    return loop.Scene(
        policy=policy,
        privatizers=made.privatizers,
        environment=world,
        seed=jnp.uint32(5),
    )


def begun(scene: loop.Scene) -> loop.Replicate:
    carry: loop.Replicate = loop.begin(scene, jnp.arange(REPLICATES, dtype=jnp.uint32))
    return carry


def played(scene: loop.Scene, longest: int) -> loop.Replicate:
    play: Callable[..., loop.Replicate] = jax.jit(partial(loop._advance, scene, longest=longest))
    carry, half = begun(scene), jnp.int32(HORIZON // 2)
    for start in (jnp.int32(0), half):
        carry = play(carry, start, half)
    return carry


CASES = [("linucb", "joint"), ("sampling", "local")]
OTHERS = [
    (name, trust)
    for name in ("uniform", "greedy", "linucb", "sampling", "glm", "online-linucb", "linucb-pairs")
    for trust in TRUSTS
    if trust in POLICIES[name].trusts and (name, trust) not in CASES
]


@pytest.mark.parametrize(
    ("name", "trust"),
    [*CASES, *(pytest.param(*case, marks=pytest.mark.nightly) for case in OTHERS)],
)
def test_blocks_play_the_same_run(name: str, trust: str) -> None:
    scene = scene_of(name, trust)
    alone, together = (played(scene, longest) for longest in (1, 8))
    assert loop.block_size(scene, begun(scene), 8) in (4, 8)
    for one, other in zip(jax.tree.leaves(alone), jax.tree.leaves(together), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "trust"),
    [
        pytest.param("elimination", "none", id="asks when a batch ends"),
        pytest.param("glm-rare", "joint", id="asks when it likes"),
        pytest.param("combiner@paper", "none", id="posts after every user"),
    ],
)
def test_policy_that_needs_the_last_round_runs_round_by_round(name: str, trust: str) -> None:
    scene = scene_of(name, trust)
    assert loop.block_size(scene, begun(scene), 8) == 1


@pytest.mark.parametrize(("name", "size"), [("linucb", 4), ("sampling", 8)])
def test_noise_on_a_running_total_halves_a_block(name: str, size: int) -> None:
    """Under joint trust one of them has it, the other releases totals of cohorts."""
    scene = scene_of(name, "joint")
    assert loop.block_size(scene, begun(scene), 8) == size


def test_worlds_that_react_or_oppose_are_played_round_by_round() -> None:
    scene = scene_of("linucb", "none", contexts="hostile")
    assert loop.block_size(scene, begun(scene), 8) == 1


@pytest.mark.parametrize(
    ("backend", "horizon", "longest"),
    [("cpu", 20_000, 1), ("gpu", 20_000, 16), ("gpu", 19_999, 1)],
)
def test_an_accelerator_plays_long_runs_in_blocks(
    backend: str, horizon: int, longest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    assert loop.longest_block(horizon) == longest


def test_a_block_holds_no_more_than_an_accelerator_wants(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = scene_of("linucb", "none")
    carry = begun(scene)
    numbers = 4 * 2 + 4 + 5  # features of four arms, whether each is allowed, and a statistic
    monkeypatch.setattr(loop, "_MOST_NUMBERS", 4 * REPLICATES * numbers)
    assert loop.block_size(scene, carry, 16) == 4
    monkeypatch.setattr(loop, "_MOST_NUMBERS", 4 * REPLICATES * numbers - 1)
    assert loop.block_size(scene, carry, 16) == 2


@pytest.mark.parametrize(("few", "many"), [(2, 2), (1, 3), (loop._FEW_LANES, loop._MANY_LANES)])
def test_accelerator_serving_several_matches_serial_processor(
    few: int, many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it could serve more than there are, and where it serves now few, now many."""
    scene = scene_of("glm-ucb", "none", link="logistic")
    alone = played(scene, 1)
    assert len(np.unique(alone.used["fit"])) > 1  # they ask at times of their own
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(loop, "_FEW_LANES", few)
    monkeypatch.setattr(loop, "_MANY_LANES", many)
    together = played(scene, 1)
    for one, other in zip(jax.tree.leaves(alone), jax.tree.leaves(together), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
