"""Recorded worlds: what a record must be, and the published worlds draw for draw."""

from __future__ import annotations

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray

from kerchief.checks import ENVIRONMENT_LAWS, WorldCase
from kerchief.checks.errors import Law
from kerchief.core.contracts import Clock
from kerchief.core.errors import InvalidValueError
from kerchief.core.links import get_link
from kerchief.core.random import ARMS, WORLD, Stream
from kerchief.environments import GLMEnvironment, Recorded, table_two
from kerchief.policies import POLICIES
from kerchief.privacy import Guarantee, MemoryLedger, Trust
from kerchief.simulation import simulate

ROOT = Stream.of(seed=3, replicate=0)
SMALL = WorldCase(name="table_two", environment=table_two(radius=2.0, horizon=256), fewest=20)


def recorded(world: GLMEnvironment) -> Recorded:
    assert isinstance(world.contexts, Recorded)
    return world.contexts


def scores(world: GLMEnvironment) -> NDArray[np.float64]:
    """The score of every arm in every round."""
    parameter = np.asarray(world.init(ROOT.at(WORLD)).parameter, np.float64)
    found: NDArray[np.float64] = np.asarray(recorded(world).arms, np.float64) @ parameter
    return found


@pytest.mark.parametrize(
    ("radius", "kappa", "uniform"), [(2.0, 18.39, 2144), (2.5, 56.44, 2318), (3.0, 222.15, 2408)]
)
def test_table_two_is_the_published_world(radius: float, kappa: float, uniform: int) -> None:
    world = table_two(radius=radius)
    link, z = get_link("probit"), scores(world)
    assert z.shape == (5000, 20)
    assert 1 / float(link.slope(jnp.asarray(z)).min()) == pytest.approx(kappa, abs=0.005)
    means = np.asarray(link.mean(jnp.asarray(z)))
    assert (means.max(1) - means.mean(1)).sum() == pytest.approx(uniform, abs=0.5)


@pytest.mark.parametrize(
    ("make", "kappa"),
    [
        (partial(table_two, radius=3.5, dim=5, horizon=15_000, link="logistic"), 33.76),
        (partial(table_two, radius=3.0, dim=5), 193.18),
    ],
)
def test_figure_one_shows_the_same_generator(make: partial[GLMEnvironment], kappa: float) -> None:
    world = make()
    slopes = get_link(world.link).slope(jnp.asarray(scores(world)))
    assert 1 / float(slopes.min()) == pytest.approx(kappa, abs=0.005)


def test_the_draws_follow_one_another_as_published() -> None:
    dice = np.random.default_rng(7)
    corner = dice.uniform(-1, 1, 2)
    points = []
    for _ in range(3 * 4):
        z = dice.normal(size=2)
        points.append(dice.uniform() ** (1 / 2) * z / np.linalg.norm(z))
    found = recorded(table_two(radius=1.0, dim=2, arms=4, horizon=3, seed=7))
    expected = np.array(points).reshape(3, 4, 2)
    np.testing.assert_allclose(found.arms, expected, rtol=2e-7)
    np.testing.assert_allclose(found.direction, corner / np.linalg.norm(corner), rtol=2e-7)


@pytest.mark.nightly
@pytest.mark.parametrize("law", ENVIRONMENT_LAWS, ids=str)
def test_recorded_worlds_keep_the_laws(law: Law[WorldCase]) -> None:
    law(SMALL)


def test_a_recorded_world_plays_in_the_compiled_loop() -> None:
    world = table_two(radius=2.0, horizon=200)
    policy = POLICIES["uniform"].build(world.problem(200), "tuned")
    free = MemoryLedger(budget=Guarantee(epsilon=math.inf, delta=0.0, trust=Trust.NONE))
    run = simulate(
        policy=policy,
        privatizers={},
        environment=world,
        ledger=free,
        horizon=200,
        replicates=50,
        seed=1,
    )
    means = np.asarray(get_link("probit").mean(jnp.asarray(scores(world))))
    # Hoeffding for 10000 independent regrets in [0, 1], at 1e-6.
    bound = math.sqrt(math.log(2 / 1e-6) / (2 * 200 * 50)) * 200
    expected = (means.max(1) - means.mean(1)).sum()
    assert abs(run.regret[-1].mean() - expected) < bound


def test_the_record_is_looked_up_by_round_and_ends() -> None:
    source = Recorded.of(direction=[1.0, 0.0], arms=[[[0.5, 0.0]], [[0.0, 0.25]]])
    assert (source.dim, source.count, source.rounds) == (2, 1, 2)

    @jax.jit
    def shown(source: Recorded, round: int) -> jax.Array:
        clock = Clock(round=jnp.int32(round), since={})
        return source.features(source.init(ROOT), clock, ROOT.at(ARMS))

    assert shown(source, 0).tolist() == [[0.5, 0.0]]
    assert shown(source, 1).tolist() == [[0.0, 0.25]]
    assert jnp.isnan(shown(source, 2)).all()


@pytest.mark.parametrize(
    ("direction", "arms", "words"),
    [
        ([1.0], [[0.5]], r"arms have shape \(1, 1\)"),
        ([1.0, 0.0], [[[0.5]]], r"the direction \(2,\)"),
        ([1.0], np.zeros((0, 2, 1)), "none of them 0"),
        ([1.0], [[[1.1]]], "norm 1.1"),
        ([1.0], [[[math.nan]]], "norm nan"),
        ([0.5], [[[1.0]]], "direction has norm 0.5"),
        ([1.0] + [0.0] * 512, np.zeros((1, 1, 513)), "dim is 513"),
    ],
)
def test_bad_records_are_refused(direction: ArrayLike, arms: ArrayLike, words: str) -> None:
    with pytest.raises(InvalidValueError, match=words):
        Recorded.of(direction=direction, arms=arms)


@pytest.mark.parametrize(
    "fault",
    [{"dim": 0}, {"arms": 0}, {"horizon": 0}, {"seed": -1}, {"radius": 0.0}, {"link": "cubic"}],
)
def test_bad_tables_are_refused(fault: dict[str, object]) -> None:
    with pytest.raises(InvalidValueError):
        table_two(**{"radius": 1.0, "horizon": 5, **fault})  # type: ignore[arg-type]


def test_a_horizon_beyond_the_record_is_refused() -> None:
    world = table_two(radius=1.0, horizon=5)
    assert world.problem(5).horizon == 5
    with pytest.raises(
        InvalidValueError, match="horizon is 6; it must be at least 1 and at most 5"
    ):
        world.problem(6)
