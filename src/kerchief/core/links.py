"""Links: how a linear score becomes an expected reward."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax
from jax import Array
from jax.scipy.stats import norm

from kerchief.core.errors import UnknownName

__all__ = ["LINKS", "Link", "link_named"]


@dataclass(frozen=True, kw_only=True)
class Link:
    """A link and its public facts.

    Attributes:
        name: the word on the command line.
        mean: the expected reward of a score.
        low: the least expected reward, or None where it depends on the scores' bound.
        high: the greatest, likewise.
    """

    name: str
    mean: Callable[[Array], Array]
    low: float | None
    high: float | None


def _identity(score: Array) -> Array:
    return score


LINKS = {
    link.name: link
    for link in (
        Link(name="linear", mean=_identity, low=None, high=None),
        Link(name="logistic", mean=jax.nn.sigmoid, low=0.0, high=1.0),
        Link(name="probit", mean=norm.cdf, low=0.0, high=1.0),
    )
}


def link_named(name: str) -> Link:
    """Find a link.

    >>> link_named("logistic").high
    1.0
    """
    if name not in LINKS:
        raise UnknownName(f"no link is called {name!r}; choose one of {', '.join(LINKS)}")
    return LINKS[name]
