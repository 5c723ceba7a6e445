"""The expected reward of score 0 is written down, and is the link's own."""

from __future__ import annotations

import jax.numpy as jnp
import pytest

from kerchief.core.links import LINKS
from kerchief.core.precision import double_precision


@pytest.mark.parametrize("name", list(LINKS))
@double_precision
def test_the_origin_is_the_mean_of_score_zero(name: str) -> None:
    assert float(LINKS[name].mean(jnp.float64(0))) == LINKS[name].origin
