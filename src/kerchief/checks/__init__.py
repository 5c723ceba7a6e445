"""The laws as runnable checks, for our own bandits and for yours.

`check` holds whatever it is given to the laws of its kind, on fresh copies, and returns a report;
one `CheckFailedError` lists all that is broken. The laws themselves are in tuples, for a test
runner::

    @pytest.mark.parametrize("law", LEDGER_LAWS, ids=str)
    def test_my_ledger(law):
        law(Ledgers(open=MyLedger))
"""

from __future__ import annotations

from kerchief.checks.check import check
from kerchief.checks.environment import WorldCase, environment_cases
from kerchief.checks.errors import CheckFailedError, Failure, Law, Outcome, Report
from kerchief.checks.laws import BANDIT_LAWS, ENVIRONMENT_LAWS, MECHANISM_LAWS, PRIVATIZER_LAWS
from kerchief.checks.ledger import LEDGER_LAWS, Ledgers
from kerchief.checks.mechanism import MechanismCase
from kerchief.checks.policy_fixture import PolicyFixture, cases
from kerchief.checks.protocol import PrivatizerCase, privatizer_cases
from kerchief.checks.registry import check_registry

__all__ = [
    "BANDIT_LAWS",
    "ENVIRONMENT_LAWS",
    "LEDGER_LAWS",
    "MECHANISM_LAWS",
    "PRIVATIZER_LAWS",
    "CheckFailedError",
    "Failure",
    "Law",
    "Ledgers",
    "MechanismCase",
    "Outcome",
    "PolicyFixture",
    "PrivatizerCase",
    "Report",
    "WorldCase",
    "cases",
    "check",
    "check_registry",
    "environment_cases",
    "privatizer_cases",
]
