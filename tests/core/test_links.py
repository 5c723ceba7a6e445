"""Links: values, ranges, types."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
import pytest

from kerchief.core.errors import UnknownName
from kerchief.core.links import LINKS, link_named

SCORES = np.linspace(-4, 4, 81)


def test_means_have_their_closed_forms() -> None:
    scores = jnp.asarray(SCORES)
    logistic = [1 / (1 + math.exp(-score)) for score in SCORES]
    probit = [0.5 * math.erfc(-score / math.sqrt(2)) for score in SCORES]
    np.testing.assert_array_equal(np.asarray(link_named("linear").mean(scores)), SCORES)
    np.testing.assert_allclose(
        np.asarray(link_named("logistic").mean(scores)), logistic, rtol=1e-12
    )
    np.testing.assert_allclose(np.asarray(link_named("probit").mean(scores)), probit, rtol=1e-9)


@pytest.mark.parametrize("name", list(LINKS))
def test_means_increase_within_their_range_and_keep_float32(name: str) -> None:
    link = link_named(name)
    means = link.mean(jnp.asarray(SCORES, jnp.float32))
    assert means.dtype == jnp.float32
    assert (jnp.diff(means) > 0).all()
    if link.low is not None and link.high is not None:
        assert link.low <= float(means[0]) < float(means[-1]) <= link.high


def test_an_unknown_link_is_refused() -> None:
    with pytest.raises(UnknownName, match="'logit'; choose one of linear, logistic, probit"):
        link_named("logit")
