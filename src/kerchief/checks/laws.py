"""All laws, by what they are about; each says which subjects of its kind it is about.

In the order in which a report tells of them. Of a bandit: what it is, what it does to people, what
its noise is, what its engine does, and what it achieves. Laws of ledgers are in `checks.ledger`.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from kerchief.checks import (
    bills,
    deployed,
    engines,
    environment,
    learning,
    mechanism,
    mechanism_names,
    policy,
    privacy_laws,
    privatizer,
    twins,
    worst,
)
from kerchief.checks.environment import WorldCase
from kerchief.checks.errors import Law
from kerchief.checks.mechanism import MechanismCase
from kerchief.checks.policy_fixture import PolicyFixture
from kerchief.checks.protocol import PrivatizerCase


def _collect_laws(*modules: ModuleType) -> tuple[Law[Any], ...]:
    """Every law that these modules define, so that none is forgotten."""
    return tuple(
        law
        for module in modules
        for law in vars(module).values()
        if isinstance(law, Law) and law.body.__module__ == module.__name__
    )


BANDIT_LAWS: tuple[Law[PolicyFixture], ...] = _collect_laws(
    policy, privacy_laws, bills, worst, mechanism_names, engines, deployed, learning
)
ENVIRONMENT_LAWS: tuple[Law[WorldCase], ...] = _collect_laws(environment)
MECHANISM_LAWS: tuple[Law[MechanismCase], ...] = _collect_laws(mechanism)
PRIVATIZER_LAWS: tuple[Law[PrivatizerCase], ...] = _collect_laws(privatizer, twins)
