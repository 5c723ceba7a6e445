"""An audit from a single run: many canaries in one fit, each with a direction of its own.

Every canary is a user whose record is one of two, by a fair coin. Their features are orthogonal, so
each canary's gradient is seen in one coordinate of every gradient sum, and the noise there is that
of the mechanism. Guessing the coins of those that stand out proves a lower bound on ε (Steinke,
Nasr and Jagielski 2023). The loss, its clip, its steps and its noise are those of the bandit; the
dimension is not: a run of a small dimension has no room for many canaries.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from kerchief.audits.audit import Audit, said
from kerchief.audits.bounds import one_run_lower
from kerchief.core.contracts import BoundedLoss, Clock, Example, Gradient, Start
from kerchief.core.errors import InvalidValueError
from kerchief.core.precision import double_precision
from kerchief.core.random import AGGREGATOR, Stream
from kerchief.core.validate import between, whole
from kerchief.environments.worlds import make_environment
from kerchief.policies import POLICIES
from kerchief.privacy.calibration import gaussian_noise_multiplier
from kerchief.privacy.guarantee import Guarantee, Trust
from kerchief.privatizers.fits import Fits
from kerchief.privatizers.registry import BEST


@dataclasses.dataclass(frozen=True, kw_only=True)
class Telltale:
    """A minimizer that returns every gradient sum that it was given.

    Whatever another one does is post-processing of this, so what holds for it holds for all.
    """

    steps: int

    def descend(self, gradient: Gradient, start: Start, *, users: Array, noise: Array) -> Array:
        """All sums at the start, side by side."""
        return jnp.concatenate([gradient(start.point, step) for step in range(self.steps)])


@double_precision
def one_run(
    name: str,
    *,
    epsilon: float,
    delta: float = 1e-5,
    canaries: int = 2000,
    seed: int = 0,
    failure: float = 0.05,
) -> Audit:
    """Audit the fits of a registered bandit under joint trust, from one run.

    All of the claim's ε is for the fits, and there are no users but the canaries. The bound is
    wrong with a chance of `failure`.

    Raises:
        KerchiefError: there is no such bandit, or it asks for no fits under joint trust.
    """
    loss = _find_loss(name)
    claim = Guarantee(epsilon=epsilon, delta=delta, trust=Trust.JOINT)
    query = dataclasses.replace(
        loss, dim=canaries, fits=1, minimizer=Telltale(steps=loss.minimizer.steps)
    )
    multiplier = gaussian_noise_multiplier(epsilon, delta)
    fits = Fits.of(query, noise_multiplier=multiplier, horizon=canaries)
    return count_canaries(name=name, fits=fits, claim=claim, seed=seed, failure=failure)


def count_canaries(
    *, name: str, fits: Fits, claim: Guarantee, seed: int = 0, failure: float = 0.05
) -> Audit:
    """Run the canaries through one fit of as many dimensions, with `Telltale`, and guess."""
    query: Any = fits.query
    count = whole("canaries", query.dim, low=20, high=10**4)
    between("failure", failure, 0.0, 1.0)
    coins = np.random.default_rng(seed).integers(2, size=count)
    features = query.norm * np.eye(count)
    rewards = np.where(coins == 1, query.high, query.low)
    rows = jax.vmap(query.encode)(
        Example(features=jnp.asarray(features), reward=jnp.asarray(rewards), weight=jnp.ones(count))
    )
    memory, tally = fits.open()
    tally = dataclasses.replace(tally, rows=rows.astype(tally.rows.dtype), count=jnp.int32(count))
    start = Start(point=jnp.zeros(count), metric=jnp.eye(1), ridge=jnp.float64(1), radius=1e6)
    clock = Clock(round=jnp.int32(count - 1), since={})
    at = Stream.of(seed=seed, replicate=0).at(AGGREGATOR, round=count - 1)
    release, _ = fits.release(memory, tally, start, clock, at)
    # A gradient falls with the reward: the lower a coordinate, the likelier is the high reward.
    scores = -np.asarray(release.point).reshape(-1, count).sum(0)
    scores = scores - np.median(scores)
    guesses = max(10, count // 5)
    boldest = np.argsort(-np.abs(scores))[:guesses]
    right = int(((scores[boldest] > 0) == (coins[boldest] == 1)).sum())
    return Audit(
        name=name,
        claim=claim,
        epsilon_lower=one_run_lower(
            guesses=guesses, right=right, canaries=count, delta=claim.delta, failure=failure
        ),
        failure=failure,
        counts={"canaries": count, "guesses": guesses, "right": right},
        noise=said(BEST, *fits.noises),
    )


def _find_loss(name: str) -> Any:
    """The loss that a bandit asks to be fitted."""
    entry = POLICIES[name]
    home = make_environment(link=entry.default_environment or "linear", dim=2, arms=2)
    queries = entry.factory(home.problem(1000), "tuned").queries
    losses = [query for query in queries.values() if isinstance(query, BoundedLoss)]
    if Trust.JOINT not in entry.trusts or not losses:
        raise InvalidValueError(
            f"policy is {name!r}, which asks for no fits under joint trust; choose one that does, "
            "such as glm-rare, or audit it without canaries"
        )
    return losses[0]
