"""Mechanisms by name, for listings and checks."""

from __future__ import annotations

import dataclasses

from kerchief.core.registry import Registry
from kerchief.mechanisms.binomial import Binomial, ExactBinomial
from kerchief.mechanisms.blt import BLT
from kerchief.mechanisms.discrete_blt import DiscreteBLT
from kerchief.mechanisms.discrete_doubling import DiscreteDoubling
from kerchief.mechanisms.discrete_tree import DiscreteTree
from kerchief.mechanisms.doubling import Doubling
from kerchief.mechanisms.exact_gaussian import ExactGaussian
from kerchief.mechanisms.gaussian import Gaussian
from kerchief.mechanisms.laplace import ExactLaplace, Laplace
from kerchief.mechanisms.one_bit import ExactOneBit, OneBit
from kerchief.mechanisms.privunit import PrivUnitG
from kerchief.mechanisms.randomized_bits import ExactResponse, Response
from kerchief.mechanisms.shortlist import ExactShortlist, Shortlist
from kerchief.mechanisms.toeplitz import SqrtToeplitz
from kerchief.mechanisms.tree import Tree

__all__ = ["MECHANISMS", "Entry"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
    """A registered mechanism.

    Attributes:
        kind: the class.
        idealized: whether its noise is floating point, and so for simulation only.
        summary: one line for listings.
    """

    kind: type
    idealized: bool
    summary: str


MECHANISMS: Registry[Entry] = Registry("mechanism")
MECHANISMS.add(
    "gaussian",
    Entry(
        kind=Gaussian,
        idealized=Gaussian.idealized,
        summary="independent normal noise on every coordinate, in floating point",
    ),
)
MECHANISMS.add(
    "discrete-gaussian",
    Entry(
        kind=ExactGaussian,
        idealized=ExactGaussian.idealized,
        summary="rounding to a grid, then whole grid steps of exactly sampled noise",
    ),
)
MECHANISMS.add(
    "binomial",
    Entry(
        kind=Binomial,
        idealized=Binomial.idealized,
        summary="random rounding to a grid, then all coins of a shuffled cohort in one draw",
    ),
)
MECHANISMS.add(
    "coins",
    Entry(
        kind=ExactBinomial,
        idealized=ExactBinomial.idealized,
        summary="random rounding to a grid, then this device's share of a cohort's fair coins",
    ),
)
MECHANISMS.add(
    "randomized-bits",
    Entry(
        kind=Response,
        idealized=Response.idealized,
        summary="bits of a shuffled batch, each kept or replaced by a coin, in two draws",
    ),
)
MECHANISMS.add(
    "exact-randomized-bits",
    Entry(
        kind=ExactResponse,
        idealized=ExactResponse.idealized,
        summary="this device's bits, each kept or replaced by a coin",
    ),
)
MECHANISMS.add(
    "tree",
    Entry(
        kind=Tree,
        idealized=Tree.idealized,
        summary="every prefix sum, from a binary tree of normal noise",
    ),
)
MECHANISMS.add(
    "sqrt-toeplitz",
    Entry(
        kind=SqrtToeplitz,
        idealized=SqrtToeplitz.idealized,
        summary="every prefix sum, with near-optimal correlated normal noise; short streams",
    ),
)
MECHANISMS.add(
    "blt",
    Entry(
        kind=BLT,
        idealized=BLT.idealized,
        summary="every prefix sum, with near-optimal correlated normal noise; long streams",
    ),
)
MECHANISMS.add(
    "discrete-blt",
    Entry(
        kind=DiscreteBLT,
        idealized=DiscreteBLT.idealized,
        summary="every prefix sum, with the noise of blt from exactly sampled seeds on a grid",
    ),
)
MECHANISMS.add(
    "discrete-tree",
    Entry(
        kind=DiscreteTree,
        idealized=DiscreteTree.idealized,
        summary="every prefix sum, from a binary tree of exactly sampled noise on a grid",
    ),
)
MECHANISMS.add(
    "doubling",
    Entry(
        kind=Doubling,
        idealized=Doubling.idealized,
        summary="every prefix sum, with the noise of blt in epochs that double; unknown length",
    ),
)
MECHANISMS.add(
    "discrete-doubling",
    Entry(
        kind=DiscreteDoubling,
        idealized=DiscreteDoubling.idealized,
        summary="every prefix sum, with discrete-blt in epochs that double; unknown length",
    ),
)
MECHANISMS.add(
    "laplace",
    Entry(
        kind=Laplace,
        idealized=Laplace.idealized,
        summary="independent Laplace noise on every coordinate, in floating point",
    ),
)
MECHANISMS.add(
    "discrete-laplace",
    Entry(
        kind=ExactLaplace,
        idealized=ExactLaplace.idealized,
        summary="rounding to a grid, then whole grid steps of two-sided geometric noise",
    ),
)
MECHANISMS.add(
    "one-bit",
    Entry(
        kind=OneBit,
        idealized=OneBit.idealized,
        summary="a coin for a number in an interval, in floating point",
    ),
)
MECHANISMS.add(
    "exact-one-bit",
    Entry(
        kind=ExactOneBit,
        idealized=ExactOneBit.idealized,
        summary="an exactly tossed coin for a number in an interval",
    ),
)
MECHANISMS.add(
    "privunit",
    Entry(
        kind=PrivUnitG,
        idealized=PrivUnitG.idealized,
        summary="a normal vector on the statistic's side, in floating point",
    ),
)
MECHANISMS.add(
    "shortlist",
    Entry(
        kind=Shortlist,
        idealized=Shortlist.idealized,
        summary="one of many candidates, simulated in floating point",
    ),
)
MECHANISMS.add(
    "exact-shortlist",
    Entry(
        kind=ExactShortlist,
        idealized=ExactShortlist.idealized,
        summary="one of many candidates, with an exact coin and an even choice",
    ),
)
