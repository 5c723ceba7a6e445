"""All laws of a bandit, in one list: each says which bandits it is about."""

from __future__ import annotations

from kerchief.checks.bills import BILL_LAWS
from kerchief.checks.case import Case
from kerchief.checks.deployed import DEPLOYED_LAWS
from kerchief.checks.drawn import DRAWN_LAWS
from kerchief.checks.engines import ENGINE_LAWS
from kerchief.checks.errors import Law
from kerchief.checks.learning import LEARNING_LAWS
from kerchief.checks.policy import POLICY_LAWS
from kerchief.checks.privacy_laws import PRIVACY_LAWS
from kerchief.checks.words import WORD_LAWS
from kerchief.checks.worst import worst_user_moves_releases_by_the_sensitivity_at_most

__all__ = ["BANDIT_LAWS"]

BANDIT_LAWS: tuple[Law[Case], ...] = (
    *POLICY_LAWS,
    *PRIVACY_LAWS,
    *BILL_LAWS,
    worst_user_moves_releases_by_the_sensitivity_at_most,
    *WORD_LAWS,
    *DRAWN_LAWS,
    *ENGINE_LAWS,
    *DEPLOYED_LAWS,
    *LEARNING_LAWS,
)
"""In the order in which a report tells of them: what a bandit is, what it does to people, what its
noise is, what its engine does, and what it achieves.
"""
