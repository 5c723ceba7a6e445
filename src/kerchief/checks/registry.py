"""Enumeration: nothing that plays may escape the checks by not being entered."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections import Counter
from collections.abc import Iterable, Iterator
from types import ModuleType

from kerchief import policies
from kerchief.checks.errors import CheckFailedError, Failure
from kerchief.checks.policy_fixture import PolicyFixture, small_home
from kerchief.core.errors import KerchiefError
from kerchief.core.registry import Registry
from kerchief.environments.registry import ENVIRONMENTS
from kerchief.policies import POLICIES, PolicyEntry
from kerchief.privacy import Trust
from kerchief.privatizers import MECHANISMS_OF, TRUSTS

_CONTRACTS = (("act", "record", "update"), ("ask", "answer", "update"))


def _load_policy_modules() -> list[ModuleType]:
    """The package of policies, and every module of it."""
    modules = pkgutil.walk_packages(policies.__path__, policies.__name__ + ".")
    return [policies, *(importlib.import_module(module.name) for module in modules)]


def _find_policy_classes(modules: Iterable[ModuleType]) -> Iterator[type]:
    """Every class defined there that fulfils a contract; what bandits share is a base of others."""
    kinds = [
        kind
        for module in modules
        for kind in vars(module).values()
        if inspect.isclass(kind) and kind.__module__ == module.__name__
        if any(all(hasattr(kind, method) for method in contract) for contract in _CONTRACTS)
    ]
    # Whatever has no factory of its own is completed by another one.
    bases = {base for kind in kinds for base in kind.__mro__[1:] if not hasattr(base, "of")}
    return (kind for kind in kinds if kind not in bases)


def check_registry(
    modules: Iterable[ModuleType] | None = None, registry: Registry[PolicyEntry] = POLICIES
) -> None:
    """Every policy class of the modules is registered, and every entry's facts are true.

    Raises:
        CheckFailedError: a class is missing, or an entry says what is not so.

    >>> check_registry()
    """
    registered = {kind for _, entry in registry.items() for kind in entry.kinds}
    missing = [
        k for k in _find_policy_classes(modules or _load_policy_modules()) if k not in registered
    ]
    law = "every policy is registered"
    failures = [Failure(law=law, seen=k.__qualname__, expected="its entry") for k in missing]
    for name, entry in registry.items():
        failures += _find_false_facts(name, entry, registry)
    summaries = Counter(entry.summary for _, entry in registry.items())
    failures += [
        Failure(law="entries are true", seen=f"{count} entries: {text}", expected="one of its own")
        for text, count in summaries.items()
        if count > 1
    ]
    if failures:
        raise CheckFailedError(f"the registry of {registry.kind}", failures)


def _find_false_facts(
    name: str, entry: PolicyEntry, registry: Registry[PolicyEntry]
) -> list[Failure]:
    """List the facts of an entry that do not hold."""
    homes = entry.default_environment is None or entry.default_environment in set(ENVIRONMENTS)
    trusts = bool(entry.trusts) and set(entry.trusts) <= set(TRUSTS)
    has_mechanisms = trusts and all(
        trust in entry.trusts and mechanism in MECHANISMS_OF[Trust(trust)]
        for trust, mechanism in entry.noises.items()
    )
    built_names = {_name_built_class(name, entry, world) for world in _list_worlds(entry) if homes}
    expected_names = {kind.__qualname__ for kind in entry.kinds}
    own = not (entry.deployable and entry.noises)
    facts = {
        f"builds {sorted(expected_names)}": (
            not homes or built_names == expected_names,
            sorted(built_names),
        ),
        "runs under known trusts": (trusts, entry.trusts),
        "names noises of its trusts": (not trusts or has_mechanisms, dict(entry.noises)),
        "has a parent": (entry.parent in set(registry), entry.parent),
        "has a home": (homes, entry.default_environment),
        "is said to be deployable only if it is no paper's own": (own, dict(entry.noises)),
    }
    return [
        Failure(law="entries are true", seen=f"{value}", expected=f"{name} {fact}")
        for fact, (holds, value) in facts.items()
        if not holds
    ]


def _list_worlds(entry: PolicyEntry) -> tuple[str, ...]:
    """List the environments in which an entry builds all its classes."""
    if len(entry.problems) > 1:
        return "linear", "own", "population", "chance", "quadratic"
    home = entry.default_environment or "linear"
    # One that has several for one kind of problem goes by the rewards.
    return (home,) if len(entry.kinds) == 1 else (home, "logistic")


def _name_built_class(name: str, entry: PolicyEntry, world: str) -> str:
    """Return the class that an entry builds in a world, or the error."""
    try:
        policy = (
            PolicyFixture.of(name, entry, "none", environment=small_home(world)).arranged().policy
        )
    except KerchiefError as error:
        return f"{error}"
    return type(policy).__qualname__
