"""Worlds of convex losses: bounds, slopes and regret against the losses themselves."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from numpy.typing import NDArray

from kerchief.core.contracts import Arms, Clock
from kerchief.core.convex import Ball, Box, Domain, Simplex
from kerchief.core.errors import InvalidValueError
from kerchief.core.random import POLICY, REWARD, WORLD, Stream
from kerchief.environments.context_free_convex import CONVEX, ConvexWorld, Quadratic

DOMAINS: dict[str, Domain] = {
    "quadratic": Simplex(dim=3),
    "absolute": Ball(dim=3, radius=2.0),
    "kinked": Ball(dim=3),
    "linear": Box(dim=3, half=0.5),
}
COUNT = 8_000


@pytest.fixture(scope="module", params=list(CONVEX))
def played(request: pytest.FixtureRequest) -> tuple[ConvexWorld, dict[str, NDArray[np.float64]]]:
    """Losses of the same many users at the best point and at two others, in one world."""
    world = CONVEX[request.param].of(domain=DOMAINS[request.param])
    truth = world.init(Stream.of(seed=1, replicate=0).at(WORLD))
    domain = world.domain
    aside = domain.direction(Stream.of(seed=1, replicate=0).at(POLICY))
    others = [domain.project(domain.center() + side * domain.outer * aside) for side in (1, -0.7)]
    points = jnp.stack([truth.best, *others])

    @jax.jit
    @jax.vmap
    def lose(round: Array) -> Array:
        at = Stream.of(seed=2, replicate=0).at(REWARD, round=round)
        return world.reward(truth, Arms.none(), points, Clock(round=round, since={}), at)

    start = Clock(round=jnp.int32(0), since={})
    regret = jax.jit(lambda truth, points: world.regret(truth, Arms.none(), points, start))
    one = [regret(truth, point[None]) for point in points]
    return world, {
        "points": np.asarray(points),
        "losses": np.asarray(lose(jnp.arange(COUNT, dtype=jnp.int32))),
        "regret": np.asarray(one),
        "both": np.asarray(regret(truth, points[1:])),
    }


def test_losses_keep_the_public_bounds(
    played: tuple[ConvexWorld, dict[str, NDArray[np.float64]]],
) -> None:
    world, seen = played
    problem = world.problem(100)
    assert seen["losses"].dtype == np.float64
    assert seen["losses"].min() >= problem.low - 1e-12
    assert seen["losses"].max() <= problem.high + 1e-12
    for i, j in [(0, 1), (0, 2), (1, 2)]:
        apart = np.linalg.norm(seen["points"][i] - seen["points"][j])
        steepest = np.abs(seen["losses"][:, i] - seen["losses"][:, j]).max() / apart
        assert steepest <= problem.lipschitz * (1 + 1e-12)
        # The bound is not idle: noise is paid against it.
        assert steepest > problem.lipschitz / 4


def test_regret_is_the_mean_loss_above_the_best(
    played: tuple[ConvexWorld, dict[str, NDArray[np.float64]]],
) -> None:
    _, seen = played
    assert seen["regret"][0] == pytest.approx(0, abs=1e-12)
    assert (seen["regret"][1:] > 0.01).all()
    assert seen["both"] == pytest.approx(seen["regret"][1:].mean())
    for i in (1, 2):
        above = seen["losses"][:, i] - seen["losses"][:, 0]
        error = (above.mean() - seen["regret"][i]) / (above.std() / math.sqrt(COUNT))
        assert abs(error) < 5


def test_losses_are_as_curved_as_the_game_says() -> None:
    world = Quadratic.of(domain=Ball(dim=3))
    truth = world.init(Stream.of(seed=3, replicate=0).at(WORLD))
    bend = jax.hessian(lambda x: world.loss(truth, x, jnp.zeros(3)))(jnp.ones(3) / 3)
    problem = world.problem(10)
    np.testing.assert_allclose(np.linalg.eigvalsh(bend), problem.convexity)
    assert (problem.smoothness, problem.lipschitz, problem.high) == (1.0, 2.0, 2.0)


def test_a_best_point_outside_the_set_is_refused() -> None:
    with pytest.raises(InvalidValueError, match=r"away is 0\.5"):
        Quadratic.of(domain=Simplex(dim=4), away=0.5)
    with pytest.raises(InvalidValueError, match="noise is 2"):
        Quadratic.of(domain=Ball(dim=2), noise=2.0)
