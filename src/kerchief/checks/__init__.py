"""The laws as runnable checks, for our own bandits and for yours.

`check_policy`, `check_phased`, `check_context_free`, `check_privatizer`, `check_ledger` and
`check_environment` hold a subject to every law of its kind, on fresh copies, and raise one
`CheckFailed` that lists all failures. The `yield_*` functions give the same laws by name, for a
test runner::

    @pytest.mark.parametrize(("name", "law"), list(yield_ledger_checks()))
    def test_my_ledger(name, law):
        law(Ledgers(open=MyLedger))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kerchief.checks.context_free import check_context_free, yield_plain_checks
from kerchief.checks.context_free_fixture import PlainCase, plain_cases
from kerchief.checks.environment import World, environment_cases, yield_environment_checks
from kerchief.checks.errors import CheckFailed, Failure, Law, run_laws
from kerchief.checks.fixture import Case
from kerchief.checks.ledger import Ledgers, yield_ledger_checks
from kerchief.checks.phased import (
    PhasedCase,
    check_phased,
    phased_cases,
    yield_phased_checks,
)
from kerchief.checks.policy import yield_policy_checks
from kerchief.checks.privatizer import yield_privatizer_checks
from kerchief.checks.protocol import Protocol, protocols
from kerchief.checks.registry import check_registry, policy_cases
from kerchief.core.contracts import Environment, Policy
from kerchief.core.errors import InvalidValue
from kerchief.policies.registry import POLICIES, Entry
from kerchief.privacy import Guarantee
from kerchief.privatizers import TRUSTS
from kerchief.privatizers.registry import Entry as TrustEntry

__all__ = [
    "Case",
    "CheckFailed",
    "Failure",
    "Law",
    "Ledgers",
    "PhasedCase",
    "PlainCase",
    "Protocol",
    "World",
    "check_context_free",
    "check_environment",
    "check_ledger",
    "check_phased",
    "check_policy",
    "check_privatizer",
    "check_registry",
    "environment_cases",
    "phased_cases",
    "plain_cases",
    "policy_cases",
    "protocols",
    "yield_environment_checks",
    "yield_ledger_checks",
    "yield_phased_checks",
    "yield_plain_checks",
    "yield_policy_checks",
    "yield_privatizer_checks",
]

_NONE: Mapping[str, str] = {}


def check_policy(
    subject: str | Entry | Policy,
    *,
    environment: Environment | None = None,
    trusts: Sequence[str] | None = None,
    expected_failures: Mapping[str, str] = _NONE,
) -> None:
    """Hold a policy to every law, under every trust that it declares.

    Args:
        subject: a registered name, an entry, or a policy built for `environment`.
        environment: the world to play in; by default a small copy of the entry's home.
        trusts: the words of `--trust` to check; by default those of the entry.
        expected_failures: laws that are known to fail, each with the reason. A policy defined
            outside this package, for one, cannot be written by the codec.

    Raises:
        CheckFailed: one or more laws are broken.
        InvalidValue: a policy came without the environment it was built for.
    """
    name, entry = _entry(subject, environment)
    for trust in trusts or entry.trusts:
        case = Case.of(
            name, entry, trust, environment=environment, resizable=isinstance(subject, str | Entry)
        )
        _check(case, yield_policy_checks(), expected_failures)


def check_privatizer(
    trust: str,
    entry: TrustEntry | None = None,
    *,
    expected_failures: Mapping[str, str] = _NONE,
) -> None:
    """Hold all privatizers of a trust, of sums and of fits, to every law.

    Args:
        trust: the word of `--trust` that they serve.
        entry: builds them; by default the one registered for that trust.
        expected_failures: laws that are known to fail, each with the reason.

    Raises:
        CheckFailed: one or more laws are broken.
    """
    for protocol in protocols(trust, entry or TRUSTS[trust]):
        _check(protocol, yield_privatizer_checks(), expected_failures)


def check_ledger(
    make_ledger: Callable[[Guarantee], Any], *, expected_failures: Mapping[str, str] = _NONE
) -> None:
    """Hold a kind of ledger to every law.

    Args:
        make_ledger: opens an empty ledger on a budget.
        expected_failures: laws that are known to fail, each with the reason.

    Raises:
        CheckFailed: one or more laws are broken.

    >>> from kerchief.privacy import MemoryLedger
    >>> check_ledger(MemoryLedger)
    """
    _check(Ledgers(open=make_ledger), yield_ledger_checks(), expected_failures)


def check_environment(
    environment: Environment,
    *,
    fewest: int = 1,
    make: Callable[..., object] | None = None,
    expected_failures: Mapping[str, str] = _NONE,
) -> None:
    """Hold a world to every law.

    Args:
        environment: the world.
        fewest: the least number of arms that it allows a user.
        make: its factory, if it has one with the arguments of `make_environment`.
        expected_failures: laws that are known to fail, each with the reason.

    Raises:
        CheckFailed: one or more laws are broken.
    """
    world = World(
        name=type(environment).__name__, environment=environment, fewest=fewest, make=make
    )
    _check(world, yield_environment_checks(), expected_failures)


def _check(subject: Any, laws: Any, expected_failures: Mapping[str, str]) -> None:
    failures = run_laws(subject, laws, expected_failures=expected_failures)
    if failures:
        raise CheckFailed(str(subject), failures)


def _entry(subject: str | Entry | Policy, environment: Environment | None) -> tuple[str, Entry]:
    """The entry of a subject; a policy by itself makes one that builds it and nothing else."""
    if isinstance(subject, str):
        return subject, POLICIES[subject]
    if isinstance(subject, Entry):
        known = [name for name, entry in POLICIES.items() if entry == subject]
        return (known or [subject.kind.__name__])[0], subject
    if environment is None:
        raise InvalidValue("environment is None; give the one that the policy was built for")
    kind = type(subject)
    return kind.__name__, Entry(
        make=lambda problem, mode: subject,
        kind=kind,
        summary=(kind.__doc__ or kind.__name__).splitlines()[0],
        source="given by hand",
        trusts=("none", "local", "shuffle", "joint", "central"),
        parent=kind.__name__,
        home="the given environment",
    )
