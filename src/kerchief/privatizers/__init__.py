"""Protocols: who adds which noise to a query's answers. They know no bandit."""

from __future__ import annotations

from kerchief.privatizers.bits import BitSums
from kerchief.privatizers.channels import channel_of
from kerchief.privatizers.prefix import PrefixSums
from kerchief.privatizers.privatizer import Privatizer
from kerchief.privatizers.protect import Protection, protect
from kerchief.privatizers.registry import CONTINUALS, MECHANISMS_OF, RANDOMIZERS, SHUFFLES, TRUSTS
from kerchief.privatizers.schedule import At, Every, OnDemand
from kerchief.privatizers.shuffled import ShuffledSums
from kerchief.privatizers.sums import CohortSums

__all__ = [
    "CONTINUALS",
    "MECHANISMS_OF",
    "RANDOMIZERS",
    "SHUFFLES",
    "TRUSTS",
    "At",
    "BitSums",
    "CohortSums",
    "Every",
    "OnDemand",
    "PrefixSums",
    "Privatizer",
    "Protection",
    "ShuffledSums",
    "channel_of",
    "protect",
]
