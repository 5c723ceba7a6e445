"""Links: values, derivatives, constants, ranges."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kerchief.core.errors import InvalidValueError, UnknownNameError
from kerchief.core.links import LINKS, get_link
from kerchief.core.problems import Problem

SCORES = np.linspace(-4, 4, 81)


def test_means_have_their_closed_forms() -> None:
    scores = jnp.asarray(SCORES)
    logistic = [1 / (1 + math.exp(-score)) for score in SCORES]
    probit = [0.5 * math.erfc(-score / math.sqrt(2)) for score in SCORES]
    np.testing.assert_array_equal(np.asarray(get_link("linear").mean(scores)), SCORES)
    np.testing.assert_allclose(np.asarray(get_link("logistic").mean(scores)), logistic, rtol=1e-12)
    np.testing.assert_allclose(np.asarray(get_link("probit").mean(scores)), probit, rtol=1e-9)
    np.testing.assert_allclose(np.asarray(get_link("poisson").mean(scores)), np.exp(SCORES))


@pytest.mark.parametrize("name", list(LINKS))
def test_curves_keep_float32_and_their_range(name: str) -> None:
    link, scores = get_link(name), jnp.asarray(SCORES, jnp.float32)
    means = link.mean(scores)
    assert means.dtype == link.slope(scores).dtype == link.integral(scores).dtype == jnp.float32
    assert (jnp.diff(means) > 0).all()
    low, high = link.rewards(SCORES[0], SCORES[-1])
    assert low <= float(means[0]) < float(means[-1]) <= high


@pytest.mark.parametrize("name", list(LINKS))
def test_each_curve_is_the_derivative_of_the_next(name: str) -> None:
    link, scores, step = get_link(name), jnp.asarray(SCORES), 1e-4
    mean, slope, integral = (jax.jit(one) for one in (link.mean, link.slope, link.integral))
    for curve, derivative in ((mean, slope), (integral, mean)):
        found = jax.jit(jax.vmap(jax.grad(curve)))(scores)
        np.testing.assert_allclose(found, derivative(scores), rtol=1e-9, atol=1e-12)
        differences = (curve(scores + step) - curve(scores - step)) / (2 * step)
        np.testing.assert_allclose(differences, derivative(scores), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("reach", [0.3, 1.0, 2.5, 5.0])
@pytest.mark.parametrize("name", list(LINKS))
def test_constants_bound_the_slope_tightly(name: str, reach: float) -> None:
    link, scores = get_link(name), jnp.linspace(-reach, reach, 2001)
    slopes = np.asarray(link.slope(scores))
    assert link.steepest(reach) == pytest.approx(slopes.max(), rel=1e-9)
    assert link.flattest(reach) == pytest.approx(slopes.min(), rel=1e-9)
    bends = np.abs(np.asarray(jax.vmap(jax.grad(link.slope))(scores)))
    assert (bends <= link.self_concordance(reach) * slopes * (1 + 1e-9)).all()


@pytest.mark.parametrize(
    ("name", "reach"), [("linear", 2.0), ("logistic", 30.0), ("probit", 2.0), ("poisson", 2.0)]
)
def test_self_concordance_is_attained(name: str, reach: float) -> None:
    """Where the reach is large enough for the floor of one, which two links have."""
    link, end = get_link(name), jnp.float64(reach)
    ratio = abs(jax.grad(link.slope)(end)) / link.slope(end)
    assert float(ratio) == pytest.approx(link.self_concordance(reach), abs=1e-6)


def test_constants_have_their_closed_forms() -> None:
    logistic, probit, poisson = map(get_link, ("logistic", "probit", "poisson"))
    assert 1 / logistic.flattest(3.0) == pytest.approx(2 + math.exp(3) + math.exp(-3))
    assert probit.steepest(2.0) == pytest.approx(1 / math.sqrt(2 * math.pi))
    assert 1 / probit.flattest(2.0) == pytest.approx(math.sqrt(2 * math.pi) * math.exp(2))
    assert [probit.self_concordance(reach) for reach in (0.5, 3.0)] == [1.0, 3.0]
    assert (poisson.steepest(2.0), poisson.flattest(2.0)) == (math.exp(2), math.exp(-2))


def test_constants_survive_any_reach() -> None:
    assert [link.flattest(1e9) for link in LINKS.values()] == [1.0, 0.0, 0.0, 0.0]
    assert get_link("poisson").steepest(1e9) == math.inf


def test_ranges_of_rewards() -> None:
    ranges = {name: link.rewards(-2.0, 2.0) for name, link in LINKS.items()}
    unit, counts = (0.0, 1.0), (0.0, 8.0)
    assert ranges == {"linear": (-2, 2), "logistic": unit, "probit": unit, "poisson": counts}
    fixed = {name: link.rewards(-math.inf, math.inf) for name, link in LINKS.items()}
    assert fixed["linear"] == (-math.inf, math.inf)
    assert fixed["logistic"] == fixed["probit"] == unit
    assert fixed["poisson"] == (0.0, math.inf)


def test_an_unknown_link_is_refused() -> None:
    with pytest.raises(
        UnknownNameError, match="'logit'; choose one of linear, logistic, probit, poisson"
    ):
        get_link("logit")
    with pytest.raises(UnknownNameError) as caught:
        get_link("x" * 10**6)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("name", "reach"), [("probit", 40.0), ("logistic", 800.0), ("poisson", 800.0)]
)
def test_a_link_that_floats_cannot_follow_is_refused(name: str, reach: float) -> None:
    with pytest.raises(InvalidValueError, match="give a smaller radius or norm"):
        get_link(name).kappa(reach)
    assert get_link(name).kappa(2.0) == pytest.approx(1 / get_link(name).flattest(2.0))


@pytest.mark.parametrize("radius", [250.0, 800.0])
def test_problem_rejects_link_too_steep_for_devices(radius: float) -> None:
    facts: dict[str, Any] = {"dim": 2, "arms": 3, "norm": 1, "low": 0, "high": 3, "horizon": 100}
    with pytest.raises(
        InvalidValueError, match=r"scores reach \d+, where poisson .* radius or norm"
    ):
        Problem(radius=radius, link="poisson", **facts)
    Problem(radius=radius, link="logistic", **facts)
    Problem(radius=200.0, link="poisson", **facts)
