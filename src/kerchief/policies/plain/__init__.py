"""Bandits without contexts: the server proposes, a user answers with one protected number."""

from __future__ import annotations

from kerchief.policies.plain.barrier import Barrier
from kerchief.policies.plain.best_arm import Halving, LilUCB
from kerchief.policies.plain.contract import LOSS, Channel, Loss, Plain
from kerchief.policies.plain.domain import Anywhere, BestSeen
from kerchief.policies.plain.elimination import SuccessiveElimination
from kerchief.policies.plain.kl_ucb import KLUCB
from kerchief.policies.plain.one_point import OnePoint
from kerchief.policies.plain.registry import PLAIN, Entry
from kerchief.policies.plain.tsallis import Tsallis
from kerchief.policies.plain.two_point import TwoPoint
from kerchief.policies.plain.ucb import UCB
from kerchief.policies.plain.uniform import UniformArms

__all__ = [
    "KLUCB",
    "LOSS",
    "PLAIN",
    "UCB",
    "Anywhere",
    "Barrier",
    "BestSeen",
    "Channel",
    "Entry",
    "Halving",
    "LilUCB",
    "Loss",
    "OnePoint",
    "Plain",
    "SuccessiveElimination",
    "Tsallis",
    "TwoPoint",
    "UniformArms",
]
