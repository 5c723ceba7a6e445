"""Bandits without contexts: the server proposes, a user answers with one protected number."""

from __future__ import annotations

from kerchief.policies.context_free.barrier import Barrier
from kerchief.policies.context_free.best_arm import Halving, LilUCB
from kerchief.policies.context_free.contract import LOSS, Channel, ContextFreePolicy, Loss
from kerchief.policies.context_free.domain import Anywhere, BestSeen
from kerchief.policies.context_free.elimination import SuccessiveElimination
from kerchief.policies.context_free.kl_ucb import KLUCB
from kerchief.policies.context_free.one_point import OnePoint
from kerchief.policies.context_free.registry import CONTEXT_FREE, Entry
from kerchief.policies.context_free.tsallis import Tsallis
from kerchief.policies.context_free.two_point import TwoPoint
from kerchief.policies.context_free.ucb import UCB
from kerchief.policies.context_free.uniform import UniformArms

__all__ = [
    "CONTEXT_FREE",
    "KLUCB",
    "LOSS",
    "UCB",
    "Anywhere",
    "Barrier",
    "BestSeen",
    "Channel",
    "ContextFreePolicy",
    "Entry",
    "Halving",
    "LilUCB",
    "Loss",
    "OnePoint",
    "SuccessiveElimination",
    "Tsallis",
    "TwoPoint",
    "UniformArms",
]
