"""How regret grows with the horizon, for every bandit on a convex set that promises a rate."""

from __future__ import annotations

import numpy as np
import pytest

from kerchief.core.convex import Ball
from kerchief.deployment.protected_policy import build_protected
from kerchief.environments.context_free_convex import CONVEX
from kerchief.privacy import Guarantee, MemoryLedger, Trust
from kerchief.privatizers import Protection
from kerchief.simulation import simulate

LOCAL = Guarantee(epsilon=4.0, delta=0.0, trust=Trust.LOCAL)
HORIZONS = (2_000, 20_000, 200_000)


def _regret(name: str, shape: str, horizon: int) -> float:
    world = CONVEX[shape].of(domain=Ball(dim=2))
    problem = world.problem(horizon)
    made = build_protected(name, problem, Protection(guarantee=LOCAL), mode="theory")
    run = simulate(
        policy=made.policy,
        privatizers=made.privatizers,
        environment=world,
        ledger=MemoryLedger(LOCAL),
        horizon=horizon,
        replicates=16,
        seed=5,
        ticks=1,
    )
    return float(run.regret[-1].mean())


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "shape", "exponent"),
    [
        ("one-point", "absolute", 3 / 4),
        ("one-point-smooth", "quadratic", 2 / 3),
        ("one-point-strong", "quadratic", 1 / 2),
        ("two-point", "absolute", 1 / 2),
        ("two-point", "linear", 1 / 2),
    ],
)
def test_regret_grows_as_the_theorem_says(name: str, shape: str, exponent: float) -> None:
    lost = [_regret(name, shape, horizon) for horizon in HORIZONS]
    slope = np.polyfit(np.log(HORIZONS), np.log(lost), 1)[0]
    assert abs(slope - exponent) < 0.07
