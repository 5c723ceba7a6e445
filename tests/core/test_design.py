"""Near-optimal designs: the guarantee on nasty sets, against NumPy, and the draw."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from numpy.typing import NDArray

from kerchief.core.design import Design, enough_steps, near_optimal
from kerchief.core.errors import InvalidValueError
from kerchief.core.random import POLICY, Stream

Floats = NDArray[np.float64]
ROOT = Stream.of(seed=5, replicate=0)
SHAPE = (400, 16)
FAST: dict[str, str | bool] = {"xla_backend_optimization_level": "0"}  # to compile, not to run


@functools.cache
def compiled(options: tuple[tuple[str, Any], ...]) -> Callable[[Array, Array], Design]:
    function = jax.jit(functools.partial(near_optimal, **dict(options)))
    lowered = function.lower(jnp.zeros(SHAPE), jnp.zeros(SHAPE[0], bool))
    return lowered.compile(compiler_options=FAST)


def made(features: Floats, allowed: NDArray[np.bool_] | None = None, **options: float) -> Design:
    """The design on these arms, which stand among others that are not allowed: one compilation."""
    count, dim = features.shape
    padded, mask = np.zeros(SHAPE), np.zeros(SHAPE[0], bool)
    padded[:count, :dim] = features
    mask[:count] = True if allowed is None else allowed
    design = compiled(tuple(options.items()))(jnp.asarray(padded), jnp.asarray(mask))
    assert not np.asarray(design.weights)[count:].any()
    return dataclasses.replace(design, weights=design.weights[:count], basis=design.basis[:, :dim])


def sphere(count: int, dim: int, seed: int = 0) -> Floats:
    raw = np.random.default_rng(seed).normal(size=(count, dim))
    return np.asarray(raw / np.linalg.norm(raw, axis=1, keepdims=True))


def measured(design: Design, features: Floats) -> float:
    """The greatest leverage in the span of the support, by NumPy's least squares alone."""
    weights = np.asarray(design.weights)
    x = np.asarray(features, np.float64)
    support = np.sqrt(weights[weights > 0])[:, None] * x[weights > 0]
    return float((np.linalg.lstsq(support.T, x.T, rcond=1e-6)[0] ** 2).sum(0).max())


def hold(design: Design, features: Floats, factor: float = 2.0) -> None:
    """All that `near_optimal` promises."""
    weights, found = np.asarray(design.weights), int(design.rank)
    assert found == np.linalg.matrix_rank(features, tol=1e-5)
    assert (weights >= 0).all()
    assert abs(weights.sum() - 1) < 1e-12
    assert float(design.leverage) <= factor * found
    assert float(design.leverage) >= found * (1 - 1e-9)  # Kiefer and Wolfowitz: none is below
    assert measured(design, features) == pytest.approx(float(design.leverage), rel=1e-6)
    assert int(design.steps) <= enough_steps(found, factor * (1 - 1e-6))
    assert found <= (weights > 0).sum() <= found + int(design.steps)
    basis = np.asarray(design.basis)
    np.testing.assert_allclose(basis @ basis.T, np.diag(np.arange(len(basis)) < found), atol=1e-13)
    longest = np.linalg.norm(features, axis=1).max()
    np.testing.assert_allclose(features @ basis.T @ basis, features, atol=1e-4 * longest)


def misleading(dim: int, cosine: float) -> Floats:
    """Arms that pivoting takes in order (Kahan's), and one whose coefficients in them explode."""
    sine = math.sqrt(1 - cosine**2)
    upper = np.eye(dim) - cosine * np.triu(np.ones((dim, dim)), 1)
    rows = (np.diag(sine ** np.arange(dim)) @ upper).T
    other = cosine * sine ** np.arange(dim)
    return np.vstack([rows * (1 - 1e-7) ** np.arange(dim)[:, None], 0.999 * other])


def nasty() -> dict[str, Floats]:
    rng = np.random.default_rng(1)
    return {
        "misleading pivots": misleading(14, 0.45),
        "badly misleading pivots": misleading(16, 0.6),
        "polynomials": np.vander(np.linspace(-1, 1, 400), 10),
        "lengths of all sizes": np.diag(10.0 ** -np.linspace(0, 4, 8)),
        "one cluster": np.ones(8) + 1e-4 * rng.normal(size=(200, 8)),
        "corners": rng.choice([-1.0, 1.0], size=(300, 12)),
        "heavy tails": rng.standard_cauchy(size=(300, 10)),
        "mostly zeros": (rng.random((300, 10)) < 0.2) * rng.normal(size=(300, 10)),
        "seven of ten dimensions": rng.normal(size=(300, 7)) @ rng.normal(size=(7, 10)),
        "fewer arms than dimensions": rng.normal(size=(4, 9)),
        "each arm twice, and its opposite": np.tile(sphere(20, 4), (3, 1))
        * np.repeat([1, 1, -1], 20)[:, None],
        "huge": 1e300 * sphere(30, 3),
        "tiny": 1e-300 * sphere(30, 3),
        "one dimension": rng.normal(size=(50, 1)),
    }


@pytest.mark.parametrize("name", list(nasty()))
def test_the_guarantee_holds_on_nasty_sets(name: str) -> None:
    features = nasty()[name]
    scale = np.abs(features).max()
    hold(made(features), features / scale)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("dim", "count", "kind"),
    [
        (3, 20, np.float32),
        (5, 100, np.float64),
        pytest.param(20, 1000, np.float32, marks=pytest.mark.nightly),
    ],
)
def test_the_guarantee_holds_on_many_sets_at_once(
    dim: int, count: int, kind: type[np.floating]
) -> None:
    features = np.stack([sphere(count, dim, seed) for seed in range(8)]).astype(kind)
    allowed = np.random.default_rng(0).random((8, count)) < 0.8
    designs = jax.jit(jax.vmap(near_optimal))(jnp.asarray(features), jnp.asarray(allowed))
    for i in range(8):
        design = jax.tree.map(lambda leaf, i=i: leaf[i], designs)
        assert not np.asarray(design.weights)[~allowed[i]].any()
        hold(design, np.where(allowed[i][:, None], features[i], 0).astype(np.float64))
    assert (np.asarray(designs.weights) > 0).sum(1).max() <= 1.5 * dim + 1


def test_misleading_pivots_need_steps_and_get_them() -> None:
    features = misleading(16, 0.6)
    start = made(features, most_steps=0)
    assert float(start.leverage) > 1e5  # so this set tests something
    assert int(made(features).steps) >= 1


def test_too_few_steps_are_admitted() -> None:
    features = sphere(400, 16)
    short, enough = made(features, most_steps=1), made(features)
    assert int(enough.steps) > 1
    assert int(short.steps) == 1
    assert float(short.leverage) > 2 * 16
    assert float(short.leverage) == pytest.approx(measured(short, features), rel=1e-9)


@pytest.mark.parametrize("factor", [1.05, 4.0])
def test_other_factors(factor: float) -> None:
    features = sphere(300, 16)
    hold(made(features, factor=factor), features, factor=factor)


def test_design_stops_at_the_first_sufficient_step() -> None:
    features = sphere(300, 16)
    steps = int(made(features, factor=1.05).steps)
    assert steps > 20
    short = made(features, factor=1.05, most_steps=steps - 1)
    assert float(short.leverage) > 1.05 * 16 * (1 - 1e-6)


def test_the_optimum_for_parabolas_is_found() -> None:
    """On [-1, 1] the best design for (1, t, t²) has a third at each of -1, 0 and 1."""
    points = np.linspace(-1, 1, 101)
    weights = np.asarray(made(np.vander(points, 3), factor=1.05).weights)
    np.testing.assert_allclose(weights[[0, 50, 100]], 1 / 3, atol=0.05)


def test_masked_arms_do_not_matter_even_if_they_are_not_numbers() -> None:
    features, allowed = sphere(40, 4), np.arange(40) % 2 == 0
    poisoned = np.where(allowed[:, None], features, np.nan)
    poisoned[1] = np.inf
    alone, among = made(features[allowed]), made(poisoned, allowed)
    np.testing.assert_allclose(np.asarray(among.weights)[allowed], alone.weights, atol=1e-12)
    assert not np.asarray(among.weights)[~allowed].any()
    assert float(among.leverage) == pytest.approx(float(alone.leverage))
    assert np.isfinite(np.asarray(among.matrix(jnp.asarray(poisoned)))).all()


@pytest.mark.parametrize(
    ("features", "weights", "rank", "leverage"),
    [
        ([[2.0, 0.0]], [1.0], 1, 1.0),
        ([[1.0, 1.0], [2.0, 2.0], [-3.0, -3.0]], [0.0, 0.0, 1.0], 1, 1.0),
        ([[1.0, 0.0], [1.0, 0.0]], [1.0, 0.0], 1, 1.0),
        ([[0.0, 0.0], [0.0, 0.0]], [1.0, 0.0], 0, 0.0),
        ([[np.nan, 0.0], [0.0, np.inf]], [1.0, 0.0], 0, 0.0),
        ([[1.0, 0.0], [1.0, 1e-7]], [0.0, 1.0], 1, 1.0),
        ([[1.0, 0.0], [0.0, 1e-4]], [0.5, 0.5], 2, 2.0),
    ],
)
def test_small_and_degenerate_sets(
    features: list[list[float]], weights: list[float], rank: int, leverage: float
) -> None:
    design = made(np.array(features))
    np.testing.assert_allclose(np.asarray(design.weights), weights, atol=1e-12)
    assert int(design.rank) == rank
    assert float(design.leverage) == pytest.approx(leverage, abs=1e-9)


def test_no_arm_allowed_gives_no_weight() -> None:
    design = made(sphere(5, 2), np.zeros(5, bool))
    assert not np.asarray(design.weights).any()
    assert (int(design.rank), float(design.leverage), int(design.steps)) == (0, 0.0, 0)


def test_neither_the_order_nor_the_units_matter() -> None:
    rng = np.random.default_rng(3)
    features, order = rng.normal(size=(60, 5)), rng.permutation(60)
    weights = np.asarray(made(features).weights)
    np.testing.assert_allclose(np.asarray(made(features[order]).weights), weights[order], atol=1e-9)
    np.testing.assert_allclose(np.asarray(made(-1e-6 * features).weights), weights, atol=1e-9)


def test_enough_steps_grows_with_rank_and_falls_with_factor() -> None:
    counts = [enough_steps(rank, 2.0) for rank in range(1, 60)]
    assert counts == sorted(counts)
    assert enough_steps(20, 1.05) > enough_steps(20, 1.5) > enough_steps(20, 2.0)


def test_initial_gap_and_step_gain_match_the_bound() -> None:
    """The start is within r ln r of the best log det V, and within r ln(leverage / r)."""
    features = sphere(400, 16)
    x = jnp.asarray(features)
    before, after = (made(features, most_steps=steps) for steps in (0, 1))
    first, second, best = (
        float(np.linalg.slogdet(design.matrix(x))[1])
        for design in (before, after, made(features, factor=1.05))
    )
    excess = float(before.leverage) / 16
    assert excess > 2
    gain = math.log(excess) - 15 * math.log1p((excess - 1) / (15 * excess))
    assert second - first == pytest.approx(gain, abs=1e-9)
    assert best - first <= 16 * min(math.log(16), math.log(excess))


def test_matrix_and_pulls_by_hand() -> None:
    design = made(np.array([[3.0, 0.0], [0.0, 2.0], [1.0, 1.0]]))
    features = jnp.array([[3, 0], [0, 2], [1, 1]], jnp.float32)
    np.testing.assert_allclose(design.matrix(features), [[4.5, 0.0], [0.0, 2.0]], rtol=1e-12)
    assert design.matrix(features).dtype == jnp.float64
    assert design.pulls(7).tolist() == [4, 4, 0]
    assert design.pulls(jnp.float64(8)).tolist() == [4, 4, 0]


def test_pulls_exceed_the_total_by_at_most_the_support() -> None:
    design = made(sphere(200, 8))
    for total in (2, 64, 1000):
        pulls = np.asarray(design.pulls(total))
        support = np.asarray(design.weights) > 0
        assert ((pulls > 0) == support).all()
        assert total <= pulls.sum() <= total + support.sum()


def test_arms_are_drawn_with_their_weights() -> None:
    """Each frequency among 40,000 draws is within five standard errors of its weight."""
    design, count = made(sphere(12, 3), factor=1.05), 40_000
    streams = jax.vmap(lambda i: ROOT.at(POLICY, round=i))(jnp.arange(count))
    drawn = np.asarray(jax.jit(jax.vmap(design.draw))(streams))
    weights = np.asarray(design.weights)
    assert (weights > 0).sum() >= 4
    shares = np.bincount(drawn, minlength=12) / count
    assert not shares[weights == 0].any()
    errors = np.sqrt(weights * (1 - weights) / count)
    assert (np.abs(shares - weights) <= 5 * errors).all()


class Fixed(Stream):
    """A stream that gives one number."""

    def uniform(self, size: int) -> Array:
        return jnp.full(size, self.part, jnp.float32)


def drawn_at(ticket: float, weights: Array) -> Array:
    design = Design(
        weights=weights,
        leverage=jnp.float64(2),
        rank=jnp.int32(2),
        basis=jnp.eye(2),
        steps=jnp.int32(0),
    )
    nought = jnp.uint32(0)
    fixed = jnp.float32(ticket)
    return design.draw(
        Fixed(seed=nought, replicate=nought, stream=nought, round=nought, part=fixed)
    )


@pytest.mark.parametrize(("ticket", "arm"), [(2**-25, 1), (0.5, 1), (0.50001, 3), (1.0, 3)])
def test_the_draw_at_the_edges(ticket: float, arm: int) -> None:
    assert int(drawn_at(ticket, jnp.array([0.0, 0.5, 0.0, 0.5 - 1e-15, 0.0]))) == arm


def test_draw_skips_arms_without_weight_despite_rounding() -> None:
    rng = np.random.default_rng(0)
    weights = rng.random((200, 1000)) * (rng.random((200, 1000)) < 0.2)
    weights[:, 750:] = 0
    weights /= weights.sum(1, keepdims=True)
    draw = jax.jit(jax.vmap(functools.partial(drawn_at, 1.0)))
    chosen = np.asarray(draw(jnp.asarray(weights)))
    assert (weights[np.arange(200), chosen] > 0).all()


@pytest.mark.parametrize("options", [{"factor": 1.0}, {"factor": float("nan")}, {"most_steps": -1}])
def test_bad_options_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(InvalidValueError, match=next(iter(options))):
        near_optimal(jnp.eye(2), jnp.ones(2, bool), **options)  # type: ignore[arg-type]
