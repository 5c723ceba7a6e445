"""Protocols: who adds which noise to a query's answers. They know no bandit."""

from __future__ import annotations

from kerchief.privatizers.prefix import PrefixSums
from kerchief.privatizers.privatizer import Privatizer
from kerchief.privatizers.registry import TRUSTS, protect
from kerchief.privatizers.schedule import At, Every, OnDemand
from kerchief.privatizers.sums import CohortSums

__all__ = [
    "TRUSTS",
    "At",
    "CohortSums",
    "Every",
    "OnDemand",
    "PrefixSums",
    "Privatizer",
    "protect",
]
