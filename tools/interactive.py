"""Timing of interactive use: one `Bandit` in memory, `decide` then `reward`."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

import numpy as np

from kerchief.core.problems import Problem
from kerchief.deployment.bandit import Bandit
from kerchief.privacy.guarantee import Guarantee

_ROUNDS = 500
# Models are posted ever more rarely: the first rounds are not typical of a run.
_WARM_UP = 1500
_ENDLESS = 10**6


def interactive_timer(policy: str, problem: Problem, guarantee: Guarantee) -> Callable[[], float]:
    """Build a bandit and a function that times its rounds in microseconds."""
    generator = np.random.default_rng(0)
    features = generator.normal(size=(_ROUNDS, problem.arms, problem.dim))
    features /= np.linalg.norm(features, axis=-1, keepdims=True) / problem.norm
    rewards = generator.uniform(problem.low, problem.high, size=_ROUNDS).tolist()
    bandit = Bandit(
        policy=policy,
        problem=dataclasses.replace(problem, horizon=_ENDLESS),
        guarantee=dataclasses.replace(
            guarantee, rounds=_ENDLESS, delta=min(guarantee.delta, 0.1 / _ENDLESS)
        ),
        window_s=0,
    )

    def timer(rounds: int = _ROUNDS) -> float:
        start = time.perf_counter()
        for arms, reward in zip(features[:rounds], rewards, strict=False):
            bandit.reward(bandit.decide(arms).id, reward)
        return 1e6 * (time.perf_counter() - start) / rounds

    for _ in range(-(-_WARM_UP // _ROUNDS)):
        timer()
    return timer
