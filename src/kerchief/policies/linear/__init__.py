"""Bandits for rewards that are linear in the features."""

from __future__ import annotations

from kerchief.policies.linear import combiner as combiner
from kerchief.policies.linear import elimination as elimination
from kerchief.policies.linear import linucb as linucb
from kerchief.policies.linear import online as online
from kerchief.policies.linear import online_paper as online_paper
from kerchief.policies.linear import pairs as pairs
from kerchief.policies.linear import sblb as sblb
