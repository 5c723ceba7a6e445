"""Enumeration: nothing that plays may escape the checks by not being entered."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections import Counter
from collections.abc import Iterable, Iterator
from types import ModuleType

from kerchief import policies
from kerchief.checks.case import Case, small_home
from kerchief.checks.errors import CheckFailed, Failure
from kerchief.core.errors import KerchiefError
from kerchief.core.registry import Registry
from kerchief.environments.registry import ENVIRONMENTS
from kerchief.policies import POLICIES, PolicyEntry
from kerchief.privacy import Trust
from kerchief.privatizers import MECHANISMS_OF, TRUSTS

_CONTRACTS = (("act", "record", "update"), ("ask", "answer", "update"))


def _policy_modules() -> list[ModuleType]:
    """The package of policies, and every module of it."""
    found = pkgutil.walk_packages(policies.__path__, policies.__name__ + ".")
    return [policies, *(importlib.import_module(one.name) for one in found)]


def _policy_classes(modules: Iterable[ModuleType]) -> Iterator[type]:
    """Every class defined there that fulfils a contract; what bandits share is a base of others."""
    found = [
        kind
        for module in modules
        for kind in vars(module).values()
        if inspect.isclass(kind) and kind.__module__ == module.__name__
        if any(all(hasattr(kind, word) for word in words) for words in _CONTRACTS)
    ]
    # Whatever has no factory of its own is completed by another one.
    bases = {base for kind in found for base in kind.__mro__[1:] if not hasattr(base, "of")}
    return (kind for kind in found if kind not in bases)


def check_registry(
    modules: Iterable[ModuleType] | None = None, registry: Registry[PolicyEntry] = POLICIES
) -> None:
    """Every policy class of the modules is registered, and every entry's facts are true.

    Raises:
        CheckFailed: a class is missing, or an entry says what is not so.

    >>> check_registry()
    """
    known = {kind for _, entry in registry.items() for kind in entry.kinds}
    missing = [k for k in _policy_classes(modules or _policy_modules()) if k not in known]
    law = "every policy is registered"
    failures = [Failure(law=law, seen=k.__qualname__, expected="its entry") for k in missing]
    for name, entry in registry.items():
        failures += _untrue(name, entry, registry)
    summaries = Counter(entry.summary for _, entry in registry.items())
    failures += [
        Failure(law="entries are true", seen=f"{count} entries: {text}", expected="one of its own")
        for text, count in summaries.items()
        if count > 1
    ]
    if failures:
        raise CheckFailed(f"the registry of {registry.kind}", failures)


def _untrue(name: str, entry: PolicyEntry, registry: Registry[PolicyEntry]) -> list[Failure]:
    """What an entry says that is not so."""
    homes = entry.home is None or entry.home in set(ENVIRONMENTS)
    trusts = bool(entry.trusts) and set(entry.trusts) <= set(TRUSTS)
    words = trusts and all(
        trust in entry.trusts and word in MECHANISMS_OF[Trust(trust)]
        for trust, word in entry.noises.items()
    )
    built = {_built(name, entry, world) for world in _worlds(entry) if homes}
    wanted = {kind.__qualname__ for kind in entry.kinds}
    own = not (entry.deployable and entry.noises)
    facts = {
        f"builds {sorted(wanted)}": (not homes or built == wanted, sorted(built)),
        "runs under known trusts": (trusts, entry.trusts),
        "names noises of its trusts": (not trusts or words, dict(entry.noises)),
        "has a parent": (entry.parent in set(registry), entry.parent),
        "has a home": (homes, entry.home),
        "is said to be deployable only if it is no paper's own": (own, dict(entry.noises)),
    }
    return [
        Failure(law="entries are true", seen=f"{seen}", expected=f"{name} {fact}")
        for fact, (holds, seen) in facts.items()
        if not holds
    ]


def _worlds(entry: PolicyEntry) -> tuple[str, ...]:
    """Where all its classes are built: what plays everywhere, in a world of every kind."""
    if len(entry.problems) > 1:
        return "linear", "own", "population", "chance", "quadratic"
    home = entry.home or "linear"
    # One that has several for one kind of problem goes by the rewards.
    return (home,) if len(entry.kinds) == 1 else (home, "logistic")


def _built(name: str, entry: PolicyEntry, world: str) -> str:
    """The class that is built for a world."""
    try:
        made = Case.of(name, entry, "none", environment=small_home(world)).arranged().policy
    except KerchiefError as error:
        return f"{error}"
    return type(made).__qualname__
