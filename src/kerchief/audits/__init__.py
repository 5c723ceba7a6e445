"""Audits from outside: how much a protected bandit can be seen to tell about one person.

An audit proves no promise. It is an alarm: it runs two populations that differ in one user, many
times each, looks for the difference in everything that was released, and turns how well it can tell
them apart into an ε that the truth cannot be below, at a stated confidence. If that is above what
was claimed, the claim is false.

Every registered mechanism, and every deployable bandit under every trust that it claims, can be
audited: `entries` lists them all.
"""

from __future__ import annotations

from kerchief.audits.audit import Audit, look
from kerchief.audits.bounds import guess_lower, one_run_lower
from kerchief.audits.canaries import one_run
from kerchief.audits.subjects import KINDS, Subject, entries, find

__all__ = [
    "KINDS",
    "Audit",
    "Subject",
    "entries",
    "find",
    "guess_lower",
    "look",
    "one_run",
    "one_run_lower",
]
