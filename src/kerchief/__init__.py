"""Differentially private bandits: the influence of any one user's data is bounded.

Importing kerchief imports nothing else and changes nothing: each name below is fetched when it is
first asked for, and JAX is in 64-bit mode only while one of our functions runs.

>>> import kerchief
>>> kerchief.Guarantee(epsilon=1.0, delta=1e-6, trust="local").trust
<Trust.LOCAL: 'local'>
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kerchief_protocol.lazy import fetching

# The public names, for type checkers and editors; `_HOMES` says the same to Python.
if TYPE_CHECKING:
    from kerchief.checks.check import check as check
    from kerchief.comparison import compare as compare
    from kerchief.core.contracts import Environment as Environment
    from kerchief.core.contracts import Policy as Policy
    from kerchief.core.errors import BudgetExceededError as BudgetExceededError
    from kerchief.core.errors import CapacityExceededError as CapacityExceededError
    from kerchief.core.errors import CodecError as CodecError
    from kerchief.core.errors import DelayedLearningWarning as DelayedLearningWarning
    from kerchief.core.errors import FencedError as FencedError
    from kerchief.core.errors import InvalidValueError as InvalidValueError
    from kerchief.core.errors import KerchiefError as KerchiefError
    from kerchief.core.errors import RejectedError as RejectedError
    from kerchief.core.errors import UnknownNameError as UnknownNameError
    from kerchief.core.errors import UnsupportedEventError as UnsupportedEventError
    from kerchief.core.errors import WeakGuaranteeWarning as WeakGuaranteeWarning
    from kerchief.core.errors import WriteError as WriteError
    from kerchief.core.problems import ContextFreeProblem as ContextFreeProblem
    from kerchief.core.problems import PopulationProblem as PopulationProblem
    from kerchief.core.problems import Problem as Problem
    from kerchief.data import Logs as Logs
    from kerchief.data import from_logs as from_logs
    from kerchief.data import from_supervised as from_supervised
    from kerchief.data import off_policy_value as off_policy_value
    from kerchief.data import read_logs as read_logs
    from kerchief.deployment import Aggregator as Aggregator
    from kerchief.deployment import Bandit as Bandit
    from kerchief.deployment import Decision as Decision
    from kerchief.deployment import Device as Device
    from kerchief.deployment import Learner as Learner
    from kerchief.deployment import deploy as deploy
    from kerchief.deployment import read_deployment as read_deployment
    from kerchief.environments import make_environment as make_environment
    from kerchief.planning.plan_config import load_plan as load_plan
    from kerchief.policies import POLICIES as POLICIES
    from kerchief.privacy import Guarantee as Guarantee
    from kerchief.privacy import Ledger as Ledger
    from kerchief.privacy import MemoryLedger as MemoryLedger
    from kerchief.privacy import Trust as Trust
    from kerchief.privatizers import Protection as Protection
    from kerchief.privatizers import protect as protect
    from kerchief.reports import read_results as read_results
    from kerchief.simulation import simulate as simulate

_HOMES = {
    "POLICIES": "policies",
    "Bandit": "deployment",
    "BudgetExceededError": "core.errors",
    "CapacityExceededError": "core.errors",
    "CodecError": "core.errors",
    "ContextFreeProblem": "core.problems",
    "Decision": "deployment",
    "DelayedLearningWarning": "core.errors",
    "Device": "deployment",
    "Environment": "core.contracts",
    "FencedError": "core.errors",
    "Guarantee": "privacy",
    "InvalidValueError": "core.errors",
    "KerchiefError": "core.errors",
    "Learner": "deployment",
    "Ledger": "privacy",
    "Logs": "data",
    "MemoryLedger": "privacy",
    "Aggregator": "deployment",
    "Policy": "core.contracts",
    "PopulationProblem": "core.problems",
    "Problem": "core.problems",
    "Protection": "privatizers",
    "RejectedError": "core.errors",
    "Trust": "privacy",
    "UnknownNameError": "core.errors",
    "UnsupportedEventError": "core.errors",
    "WeakGuaranteeWarning": "core.errors",
    "WriteError": "core.errors",
    "check": "checks.check",
    "compare": "comparison",
    "deploy": "deployment",
    "read_deployment": "deployment",
    "from_logs": "data",
    "from_supervised": "data",
    "make_environment": "environments",
    "off_policy_value": "data",
    "load_plan": "planning.plan_config",
    "protect": "privatizers",
    "read_logs": "data",
    "read_results": "reports",
    "simulate": "simulation",
}

__all__ = list(_HOMES)

__version__ = "0.1.0"

if not TYPE_CHECKING:
    __getattr__ = fetching("kerchief", {name: f"kerchief.{home}" for name, home in _HOMES.items()})


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
