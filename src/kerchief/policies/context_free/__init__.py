"""Bandits without contexts: the learner proposes, a user answers with one protected number."""

from __future__ import annotations

from kerchief.policies.context_free import barrier as barrier
from kerchief.policies.context_free import best_arm as best_arm
from kerchief.policies.context_free import elimination as elimination
from kerchief.policies.context_free import k_point as k_point
from kerchief.policies.context_free import line_search as line_search
from kerchief.policies.context_free import one_point as one_point
from kerchief.policies.context_free import tsallis as tsallis
from kerchief.policies.context_free import two_point as two_point
from kerchief.policies.context_free import ucb as ucb
