"""The printed rules of LDP-LinUCB, on numbers worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from kerchief.core.contracts import NoiseInfo, Release
from kerchief.core.problems import Problem
from kerchief.policies.linear.linucb import PaperLinUCB

FACTS = Problem(dim=4, arms=3, norm=1.0, radius=1.0, low=0.0, high=1.0, horizon=10_000)


def test_the_width_is_the_printed_one() -> None:
    """σ = 2, t = 100, d = 4: Υ = 20 (8 + 2 ln(20000/0.05)), and so on."""
    policy = PaperLinUCB.printed(FACTS)
    release = Release(
        total=jnp.zeros(policy.query.size), count=jnp.int32(100), noise=jnp.float64(20.0)
    )

    @jax.jit
    def learned() -> Any:
        state = policy.init({"moments": NoiseInfo(noisy=True)})
        return policy.publish(policy.update(state, "moments", release))

    model = learned()
    upsilon = 20 * (8 + 2 * math.log(20_000 / 0.05))
    log = math.log(10_000)
    width = 4 * math.sqrt(4 * log)
    width += (math.sqrt(3 * upsilon) + 2 * math.sqrt(400 / upsilon)) * 4 * log
    assert float(model.width) == pytest.approx(width, rel=1e-6)
    assert float(model.inverse[0, 0]) == pytest.approx(1 / (2 * upsilon), rel=1e-6)


def test_without_noise_it_has_a_ridge_of_one() -> None:
    """The paper divides by a vanishing Υ there."""
    policy = PaperLinUCB.printed(FACTS)
    model = policy.publish(policy.init({"moments": NoiseInfo(noisy=False)}))
    assert float(model.inverse[0, 0]) == pytest.approx(1.0)
    assert math.isfinite(float(model.width))
