"""Worlds: rewards, masks, regret and refusals.

Each statistical test fails by chance with probability at most 1e-6; seeds are fixed.
"""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from scipy import special  # type: ignore[import-untyped]

from kerchief.core.contracts import Arms, Clock
from kerchief.core.errors import InvalidValueError, KerchiefError, UnknownNameError
from kerchief.core.links import get_link
from kerchief.core.random import ARMS, REWARD, WORLD, Stream
from kerchief.environments import NOISES, GLMEnvironment, make_environment
from kerchief.environments.worlds import GLMTruth

ERROR = 1e-6
ROOT = Stream.of(seed=17, replicate=1)
CLOCK = Clock(round=jnp.int32(0), since={})


class Edge(Stream):
    """A stream whose uniforms are all the least, 2^-25, or all the greatest, 1."""

    greatest = False

    def uniform(self, size: int) -> Array:
        return jnp.full(size, 1.0 if self.greatest else 2**-25, jnp.float32)


class Top(Edge):
    greatest = True


START = Clock(round=jnp.int32(0), since={})


def rewards(
    world: GLMEnvironment, score: float, count: int
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Many rewards of one arm whose score is given."""
    truth = world.init(ROOT.at(WORLD))
    direction = truth.parameter / jnp.linalg.norm(truth.parameter) ** 2
    arms = Arms(features=(score * direction)[None], allowed=jnp.array([True]))

    @jax.jit
    @jax.vmap
    def draw(round: Array) -> Array:
        clock = Clock(round=round, since={})
        return world.reward(truth, arms, jnp.int32(0), clock, ROOT.at(REWARD, round=round))

    return np.asarray(draw(jnp.arange(count, dtype=jnp.uint32)), np.float64)


@pytest.mark.parametrize("noise", list(NOISES))
@pytest.mark.parametrize(
    ("link", "score"), [("linear", -0.3), ("logistic", 0.4), ("probit", -0.2), ("poisson", 0.7)]
)
def test_rewards_have_their_mean_and_range(noise: str, link: str, score: float) -> None:
    world = make_environment(link=link, noise=noise, dim=3, arms=2)
    problem = world.problem(10)
    expected = {"linear": (-1, 1), "poisson": (0, 3)}.get(link, (0, 1))
    assert (problem.low, problem.high) == expected
    n = 100_000
    drawn = rewards(world, score, n)
    mean = float(get_link(link).mean(jnp.float64(score)))
    spread = problem.high - problem.low
    if noise == "gaussian":
        error = -special.ndtri(ERROR / 4) * spread / 4 / math.sqrt(n)
        squares = ((drawn - drawn.mean()) ** 2).sum() / (spread / 4) ** 2
        low, high = special.chdtri(n - 1, [1 - ERROR / 4, ERROR / 4])
        assert low < squares < high
    else:
        error = spread * math.sqrt(math.log(2 / ERROR) / (2 * n))
        assert drawn.min() >= problem.low - 1e-6
        assert drawn.max() <= problem.high + 1e-6
    if noise == "bernoulli":
        assert set(drawn) == {problem.low, problem.high}
    if noise == "binomial":
        assert set(drawn) == set(np.arange(problem.low, problem.high + 1))
    assert abs(drawn.mean() - mean) < error + 1e-6


def test_counts_are_binomial() -> None:
    n, score = 100_000, 0.7
    drawn = rewards(make_environment(link="poisson", noise="binomial", dim=3, arms=2), score, n)
    chance = math.exp(score) / 3
    chances = [math.comb(3, k) * chance**k * (1 - chance) ** (3 - k) for k in range(4)]
    # Hoeffding for each of four frequencies.
    bound = math.sqrt(math.log(8 / ERROR) / (2 * n))
    assert np.abs(np.bincount(drawn.astype(int), minlength=4) / n - chances).max() < bound


def test_a_range_that_is_not_whole_has_even_steps() -> None:
    drawn = rewards(make_environment(noise="binomial", radius=1.25, dim=2, arms=2), 0.5, 1000)
    np.testing.assert_allclose(np.unique(drawn), [-1.25, -1.25 / 3, 1.25 / 3, 1.25], rtol=1e-6)


@pytest.mark.parametrize("edge", [Edge, Top])
def test_certain_rewards_are_certain(edge: type[Edge]) -> None:
    stream = edge.of(seed=0, replicate=0)
    low, high = jnp.float32(0), jnp.float32(3)
    for noise in ("bernoulli", "binomial"):
        assert float(NOISES[noise](low, low, high, stream)) == low
        assert float(NOISES[noise](high, low, high, stream)) == high


def test_linear_reward_range_follows_radius_and_contexts() -> None:
    problem = make_environment(radius=2.5).problem(7)
    assert (problem.low, problem.high, problem.radius, problem.norm) == (-2.5, 2.5, 2.5, 1.0)
    assert (problem.dim, problem.arms, problem.horizon, problem.constant) == (5, 20, 7, 0.0)
    problem = make_environment(radius=2.0, contexts="intercept").problem(7)
    assert (problem.low, problem.high) == (0.0, 2.0)
    assert problem.constant == pytest.approx(math.sqrt(0.5))
    world = make_environment(radius=2.5).init(ROOT.at(WORLD))
    assert float(jnp.linalg.norm(world.parameter)) == pytest.approx(2.5, rel=1e-6)


def test_problem_does_not_reveal_strength_of_the_parameter() -> None:
    weak, usual = make_environment(radius=2.0, strength=0.1), make_environment(radius=2.0)
    assert weak.problem(7) == usual.problem(7)
    assert float(jnp.linalg.norm(weak.init(ROOT.at(WORLD)).parameter)) == pytest.approx(0.2)


def test_regret_is_against_the_best_allowed_arm() -> None:
    world = make_environment(dim=2, arms=3)
    truth = world.init(ROOT.at(WORLD))
    features = truth.parameter[None] * jnp.array([[0.2], [0.5], [0.9]])
    arms = Arms(features=features, allowed=jnp.array([True, True, False]))
    lost = [float(world.regret(truth, arms, jnp.int32(action), START)) for action in range(2)]
    np.testing.assert_allclose(lost, [0.3, 0.0], atol=1e-6)


def test_masks_vary_and_honour_the_fewest() -> None:
    world = make_environment(dim=2, arms=6, fewest=2)
    truth = world.init(ROOT.at(WORLD))

    @jax.jit
    @jax.vmap
    def mask(round: Array) -> Array:
        return world.arms(truth, CLOCK, ROOT.at(ARMS, round=round)).allowed

    n = 20_000
    allowed = np.asarray(mask(jnp.arange(n, dtype=jnp.uint32)))
    sizes = np.bincount(allowed.sum(1), minlength=7)
    assert sizes[:2].tolist() == [0, 0]
    # Hoeffding for five sizes, each with chance 1/5, and six arms, each allowed with chance 4/6.
    bound = n * math.sqrt(math.log(2 * 11 / ERROR) / (2 * n))
    assert np.abs(sizes[2:] - n / 5).max() < bound
    assert np.abs(allowed.sum(0) - n * 4 / 6).max() < bound


@pytest.mark.parametrize("edge", [Edge, Top])
def test_masks_honour_the_fewest_at_the_edge(edge: type[Edge]) -> None:
    """A uniform is in (0, 1]: its least value must not leave a user with fewer arms, or none."""
    sizes = [(2, 1), (20, 1), (20, 19), (100, 3), (4, 4)]
    stream = edge.of(seed=0, replicate=0)

    def count(arms: int, fewest: int) -> Array:
        world = make_environment(contexts="fixed", dim=1, arms=arms, fewest=fewest)
        truth = GLMTruth(parameter=jnp.ones(1), kept=jnp.ones((arms, 1)))
        return world.arms(truth, CLOCK, stream).allowed.sum()

    counts = jax.jit(lambda: [count(arms, fewest) for arms, fewest in sizes])()
    expected = [arms if edge is Top else fewest for arms, fewest in sizes]
    assert [int(found) for found in counts] == expected


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ({"dim": 0}, InvalidValueError),
        ({"dim": 513}, InvalidValueError),
        ({"dim": 2.0}, InvalidValueError),
        ({"dim": 1, "contexts": "intercept"}, InvalidValueError),
        ({"arms": 0}, InvalidValueError),
        ({"radius": 0.0}, InvalidValueError),
        ({"radius": math.nan}, InvalidValueError),
        ({"radius": math.inf}, InvalidValueError),
        ({"fewest": 0}, InvalidValueError),
        ({"fewest": 21}, InvalidValueError),
        ({"link": "cubic"}, InvalidValueError),
        ({"link": "poisson", "radius": 21.0}, InvalidValueError),
        ({"link": "poisson", "radius": 1e9}, InvalidValueError),
        ({"link": "poisson", "radius": 7.0, "noise": "binomial"}, InvalidValueError),
        ({"radius": 513.0, "noise": "binomial"}, InvalidValueError),
        ({"contexts": "bal"}, UnknownNameError),
        ({"noise": "cauchy"}, UnknownNameError),
    ],
)
def test_bad_worlds_are_refused(fault: dict[str, object], error: type[KerchiefError]) -> None:
    with pytest.raises(error):
        make_environment(**fault)  # type: ignore[arg-type]


def test_problem_may_state_a_wrong_link() -> None:
    """Truth, rewards and regret are those of the true link; the problem states the other."""
    wrong = make_environment(link="logistic", radius=4.0, told="linear")
    right = make_environment(link="logistic", radius=4.0)
    assert (wrong.problem(7).link, right.problem(7).link) == ("linear", "logistic")
    assert dataclasses.replace(wrong.problem(7), link="logistic") == right.problem(7)
    truth, arms = (wrong.init(ROOT.at(WORLD)), wrong.arms(wrong.init(ROOT.at(WORLD)), START, ROOT))
    for action in range(3):
        assert float(wrong.regret(truth, arms, jnp.int32(action), START)) == float(
            right.regret(truth, arms, jnp.int32(action), START)
        )
    with pytest.raises(InvalidValueError, match="told is 'cubic'"):
        make_environment(told="cubic")
