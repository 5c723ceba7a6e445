"""Enumeration: nothing that plays may escape the checks by not being entered."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterable, Iterator
from types import ModuleType

from kerchief import policies
from kerchief.checks.errors import CheckFailed, Failure
from kerchief.checks.fixture import Case
from kerchief.core.links import LINKS
from kerchief.core.registry import Registry
from kerchief.policies.registry import POLICIES, Entry
from kerchief.privatizers import TRUSTS

__all__ = ["check_registry", "policy_cases", "policy_classes", "policy_modules"]


def policy_modules(package: ModuleType = policies) -> Iterator[ModuleType]:
    """Every module of a package of policies."""
    yield package
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        yield importlib.import_module(found.name)


def policy_classes(modules: Iterable[ModuleType]) -> Iterator[type]:
    """Every class defined there that acts, reports and updates: what bandits share does not."""
    for module in modules:
        for kind in vars(module).values():
            whole = all(hasattr(kind, word) for word in ("act", "record", "update"))
            plays = inspect.isclass(kind) and whole
            if plays and kind.__module__ == module.__name__:
                yield kind


def policy_cases(registry: Registry[Entry] = POLICIES) -> Iterator[Case]:
    """Every registered policy under every trust it declares."""
    for name, entry in registry.items():
        for trust in entry.trusts:
            yield Case.of(name, entry, trust)


def check_registry(
    modules: Iterable[ModuleType] | None = None, registry: Registry[Entry] = POLICIES
) -> None:
    """Every policy class is registered, and every entry's facts are true.

    Args:
        modules: where to look for policy classes; by default all of `kerchief.policies`.
        registry: where they must be entered.

    Raises:
        CheckFailed: a class is missing, or an entry names what does not exist.

    >>> check_registry()
    """
    known = {entry.kind for _, entry in registry.items()}
    missing = [k for k in policy_classes(modules or policy_modules()) if k not in known]
    law = "every policy is registered"
    failures = [Failure(law=law, seen=k.__qualname__, expected="its entry") for k in missing]
    for name, entry in registry.items():
        failures += _untrue(name, entry, registry)
    if failures:
        raise CheckFailed(f"the registry of {registry.kind}", failures)


def _untrue(name: str, entry: Entry, registry: Registry[Entry]) -> list[Failure]:
    """What an entry says that is not so."""
    built = type(Case.of(name, entry, "none").policy())
    facts = {
        f"{name} is built by its entry": (built is entry.kind, built.__qualname__),
        f"{name} runs under known trusts": (
            bool(entry.trusts) and set(entry.trusts) <= set(TRUSTS),
            entry.trusts,
        ),
        f"{name} has a parent": (entry.parent in set(registry), entry.parent),
        f"{name} has a home": (entry.home is None or entry.home in LINKS, entry.home),
    }
    return [
        Failure(law="entries are true", seen=f"{seen}", expected=fact)
        for fact, (holds, seen) in facts.items()
        if not holds
    ]
