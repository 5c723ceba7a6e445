"""Mechanisms by name, for listings and checks."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Protocol

from kerchief.core.registry import Registry
from kerchief.mechanisms.binomial import Binomial, ExactBinomial
from kerchief.mechanisms.blt import BLT
from kerchief.mechanisms.compass import Compass, ExactCompass
from kerchief.mechanisms.continual import ContinualNoise
from kerchief.mechanisms.doubling import Doubling
from kerchief.mechanisms.exact_continual import ExactContinualNoise
from kerchief.mechanisms.exact_gaussian import ExactGaussian
from kerchief.mechanisms.factor import Factor
from kerchief.mechanisms.gaussian import Gaussian
from kerchief.mechanisms.laplace import ExactLaplace, Laplace
from kerchief.mechanisms.one_bit import ExactOneBit, OneBit
from kerchief.mechanisms.privunit import PrivUnitG
from kerchief.mechanisms.randomized_bits import ExactResponse, Response
from kerchief.mechanisms.shortlist import ExactShortlist, Shortlist
from kerchief.mechanisms.toeplitz import SqrtToeplitz
from kerchief.mechanisms.tree import Tree


class _Noise(Protocol):
    idealized: ClassVar[bool]


@dataclasses.dataclass(frozen=True, kw_only=True)
class MechanismEntry:
    """A registered mechanism.

    Attributes:
        factor: how seeds are mixed, for noise on the prefixes of a stream.
    """

    kind: type[_Noise]
    summary: str
    factor: type[Factor] | None = None

    @property
    def idealized(self) -> bool:
        """Whether its noise is floating point, and so for simulation only."""
        return self.kind.idealized

    @property
    def home(self) -> type:
        """The class that the proof note lies beside: of simulated prefixes, that of the factor."""
        return self.factor if self.factor is not None and self.idealized else self.kind


MECHANISMS: Registry[MechanismEntry] = Registry("mechanism", listed=("mechanisms",))


def _enter(name: str, kind: type[_Noise], summary: str, factor: type[Factor] | None = None) -> None:
    MECHANISMS.add(name, MechanismEntry(kind=kind, summary=summary, factor=factor))


def _prefixes(name: str, exact: str, factor: type[Factor], summary: str) -> None:
    _enter(name, ContinualNoise, f"every prefix sum, {summary}; normal seeds", factor)
    _enter(exact, ExactContinualNoise, f"every prefix sum, {summary}; exact seeds", factor)


_enter("gaussian", Gaussian, "independent normal noise on every coordinate, in floating point")
_enter(
    "discrete-gaussian",
    ExactGaussian,
    "rounding to a grid, then whole grid steps of exactly sampled noise",
)
_enter("binomial", Binomial, "random rounding to a grid, then all coins of a cohort in one draw")
_enter("coins", ExactBinomial, "random rounding to a grid, then this device's share of the coins")
_enter("randomized-bits", Response, "bits of a shuffled batch, each kept or replaced by a coin")
_enter("exact-randomized-bits", ExactResponse, "this device's bits, kept or replaced by a coin")
_prefixes("tree", "discrete-tree", Tree, "from a binary tree of blocks")
_prefixes("sqrt-toeplitz", "exact-sqrt-toeplitz", SqrtToeplitz, "near-optimal, for short streams")
_prefixes("blt", "discrete-blt", BLT, "near-optimal, for long streams")
_prefixes("doubling", "discrete-doubling", Doubling, "in epochs that double, for unknown lengths")
_enter("laplace", Laplace, "independent Laplace noise on every coordinate, in floating point")
_enter("discrete-laplace", ExactLaplace, "rounding to a grid, then two-sided geometric noise")
_enter("one-bit", OneBit, "a coin for a number in an interval, in floating point")
_enter("exact-one-bit", ExactOneBit, "an exactly tossed coin for a number in an interval")
_enter("privunit", PrivUnitG, "a normal vector on the statistic's side, in floating point")
_enter("shortlist", Shortlist, "one of many candidates, simulated in floating point")
_enter("exact-shortlist", ExactShortlist, "one of many candidates: an exact coin, an even choice")
_enter("compass", Compass, "one of many directions, read twice, simulated in floating point")
_enter("exact-compass", ExactCompass, "one of many directions: an exact coin, an even choice")
