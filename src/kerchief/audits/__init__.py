"""Audits from outside: how much a protected bandit can be seen to tell about one person.

An audit proves no promise. It is an alarm: it runs two populations that differ in one user, many
times each, looks for the difference in everything that was released, and turns how well it can tell
them apart into an ε that the truth cannot be below, at a stated confidence. If that is above what
was claimed, the claim is false.
"""

from __future__ import annotations

from kerchief.audits.audit import Audit, audit, look
from kerchief.audits.bounds import one_run_lower, two_sample_lower
from kerchief.audits.canaries import OneRun, one_run

__all__ = [
    "Audit",
    "OneRun",
    "audit",
    "look",
    "one_run",
    "one_run_lower",
    "two_sample_lower",
]
