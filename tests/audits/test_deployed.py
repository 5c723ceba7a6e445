"""The deployed protocol audited: real devices, the aggregator's noise, and a malicious minority.

The adversary knows every other user's report and takes it off the total. What is left depends on
the victim's record and on the noise that the trust relies on.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kerchief.audits.audit import Audit, look
from kerchief.core.problems import Problem
from kerchief.deployment.deployed_statistic import build_statistics
from kerchief.deployment.deployment import Deployment, deploy
from kerchief.privacy.guarantee import Guarantee, Trust
from kerchief_device.randomize import randomize
from kerchief_protocol import noise as wire

FACTS = Problem(dim=1, arms=2, norm=1.0, radius=1.0, low=-1.0, high=1.0, horizon=300)
EPSILON = 4.0


def task(trust: str) -> Deployment:
    parts: Any = {"honest": (4, 5)} if trust == "shuffle" else {}
    promise = Guarantee(epsilon=EPSILON, delta=1e-5, trust=Trust(trust), **parts)
    return deploy(policy="linucb", problem=FACTS, guarantee=promise)


def views(
    made: Deployment, statistic: NDArray[np.float64], runs: int, seed: int, honest: float
) -> NDArray[np.float64]:
    """What is left of the victim's first cohort, once all that others sent is taken off."""
    (deployed_statistic,), noise = build_statistics(made), made.task.noise[0]
    source = np.random.default_rng(seed).bytes
    users = made.task.need(0)
    tossing = round(honest * users) - 1 if isinstance(noise, wire.Coins) else 0
    found = []
    for _ in range(runs):
        total = randomize(noise, statistic, 0, source)
        for _ in range(tossing):
            # Other honest users, whose records the adversary knows: their coins are left.
            total = total + randomize(noise, np.zeros(made.task.size), 0, source)
        (shown,), _ = deployed_statistic.draw(total[None], deployed_statistic.open(), 0, source)
        found.append(noise.estimate(shown, users=1, label=0))
    return np.array(found)[:, None, :]


def audit(trust: str, *, runs: int, honest: float = 1.0) -> Audit:
    made = task(trust)
    query: Any = made.privatizers["moments"].query
    worst = [np.array([1.0, side * 1.0]) for side in (-1, 1)]
    # In one dimension no two records are quite as far apart as in two.
    assert np.linalg.norm(worst[1] - worst[0]) > 0.9 * query.sensitivity
    seen = [views(made, one, runs, seed, honest) for seed, one in enumerate(worst)]
    return look(name=trust, claim=made.guarantee, views=(seen[0], seen[1]), failure=1e-6)


NIGHT = pytest.mark.nightly


@pytest.mark.parametrize(
    "trust", ["local", pytest.param("joint", marks=NIGHT), pytest.param("central", marks=NIGHT)]
)
def test_audit_of_deployment_proves_at_most_the_guarantee(trust: str) -> None:
    # One running total of joint trust says little of one user: it takes more looks.
    found = audit(trust, runs=16000 if trust == "joint" else 4000)
    assert found.kept
    # The audit has teeth: noise is drawn, and a part of what is promised is proved.
    assert found.epsilon_lower > 0.1


@pytest.mark.nightly
def test_shuffle_deployment_keeps_guarantee_with_malicious_fifth() -> None:
    """The malicious fifth of the users tosses no coins."""
    found = audit("shuffle", runs=4000, honest=0.8)
    assert found.kept
    assert found.epsilon_lower > 0.1


@pytest.mark.nightly
def test_audit_catches_shuffler_that_leaks_a_single_report() -> None:
    """Without the others' coins next to nothing is protected, and the audit says so."""
    made = task("shuffle")
    seen = [
        views(made, np.array([1.0, side]), 4000, seed, 1 / made.task.need(0))
        for seed, side in enumerate((-1.0, 1.0))
    ]
    alone = dataclasses.replace(made.guarantee, epsilon=EPSILON)
    assert not look(name="alone", claim=alone, views=(seen[0], seen[1]), failure=1e-6).kept
