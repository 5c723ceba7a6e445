"""The learner takes in every release once, in order, however many it takes in together."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from tests.deployment.field import FACTS, Field, promise

from kerchief.deployment import learner as home
from kerchief.deployment.aggregator import Aggregator
from kerchief.deployment.deployed_statistic import build_statistics
from kerchief.deployment.deployment import deploy
from kerchief.deployment.learner import Learner
from kerchief.stores.memory import MemoryStore


class Digits:
    """A policy whose state writes down every release that it heard, in order."""

    def update(self, state: Any, name: str, release: Any) -> Any:
        return 100 * state + {"one": 10, "two": 0}[name] + release.count


@pytest.mark.parametrize("many", [0, 1, 3])
def test_releases_are_taken_in_once_and_in_order(many: int) -> None:
    rows = jnp.zeros((4, 4)).at[:, 2].set(jnp.arange(1, 5))
    names, digits = ("one", "two"), 0
    for number in range(1, 1 + many):
        digits = 10000 * digits + 100 * (10 + number) + number
    policy: Any = Digits()
    after: Any = home._apply_releases(policy, jnp.int64(0), names, (rows, rows), jnp.int32(many))
    assert int(after) == digits


@pytest.mark.parametrize("at_once", [1, 5])
@pytest.mark.parametrize("trust", ["local", "joint"])
def test_models_do_not_depend_on_how_many_are_taken_in_together(
    trust: str, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rarely = {"patience": 1.0}
    deployment = deploy(
        policy="linucb", problem=FACTS, guarantee=promise(trust), numbers=rarely, window_s=0
    )
    store = MemoryStore()
    one = Field(
        deployment=deployment,
        store=store,
        aggregator=Aggregator(deployment, store=store),
        learner=Learner(deployment),
    )
    one.serve(40)
    monkeypatch.setattr(home, "_AT_ONCE", at_once)
    again, versions = Learner(deployment), []
    for payload in one.aggregator.releases():
        again.follow([payload])
        versions.append(again.model.round)
    assert again.model == one.learner.model
    # After 1, 2, 4, 8, ... users.
    assert versions == [1 << (users.bit_length() - 1) for users in range(1, 41)]
    again._post()
    assert again.model.round == 40
    state: Any = again._state
    assert int(state.count) == 40


@pytest.mark.parametrize("mechanism", ["blt", "toeplitz", "tree", "doubling"])
def test_running_variance_matches_each_total_by_itself(mechanism: str) -> None:
    horizon = 3000 if mechanism == "doubling" else 600
    facts = dataclasses.replace(FACTS, horizon=horizon)
    common: Any = {"problem": facts, "guarantee": promise("joint"), "window_s": 0}
    deployment = deploy(policy="linucb", mechanism=mechanism, **common)
    privatizer: Any = deployment.privatizers["moments"]
    (statistic,) = build_statistics(deployment)
    for releases in (1, 2, 255, 256, 257, horizon - 1, horizon, 3):
        alone = float(privatizer.noise.std_at(np.array([releases]))[0])
        assert statistic.running_variance(releases) == pytest.approx(alone**2, rel=1e-12)
