"""The one entry point: hold to the laws whatever is given, from this package or from outside it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from kerchief.checks.case import Case, accepts, other_words, small_home
from kerchief.checks.environment import WorldCase
from kerchief.checks.errors import Law, Report, examine
from kerchief.checks.laws import BANDIT_LAWS, ENVIRONMENT_LAWS, MECHANISM_LAWS, PRIVATIZER_LAWS
from kerchief.checks.ledger import LEDGER_LAWS, Ledgers
from kerchief.checks.mechanism import MechanismCase
from kerchief.checks.protocol import privatizer_cases
from kerchief.checks.words import noise_drawn_is_the_word_printed
from kerchief.core.contracts import Feedback
from kerchief.core.errors import InvalidValue
from kerchief.core.validate import one_of
from kerchief.environments.registry import ENVIRONMENTS
from kerchief.policies import POLICIES, AnyPolicy, Mode, PolicyEntry, Terms
from kerchief.policies.registry import actions_of
from kerchief.privatizers import TRUSTS
from kerchief.privatizers.registry import PrivatizerEntry
from kerchief.simulation.run import AnyEnvironment

_NONE: Mapping[str, str] = {}
_HOMES: Mapping[Feedback, str] = {"totals": "linear", "reports": "chance", "phases": "population"}

Subject = tuple[Any, Sequence[Law[Any]]]


def check(
    subject: Any,
    *,
    trusts: Sequence[str] | None = None,
    thorough: bool = False,
    environment: AnyEnvironment | None = None,
    expected_failures: Mapping[str, str] = _NONE,
    raises: bool = True,
) -> Report:
    """Hold a bandit, a world, a noise, a kind of ledger or a privatizer to the laws of its kind.

    Args:
        subject: a name (of a bandit, a world or a trust); an entry of a registry; a class of
            bandits with `of(problem, mode=...)`; a policy, with the environment that it was built
            for; a world; a noise with `add`, `std` and `event`; or whatever opens a ledger on a
            budget.
        trusts: the words of `--trust` to check; by default all under which the bandit can be had.
        thorough: whether to play too; otherwise only the laws that look without playing.
        environment: the world to play in; by default a small copy of the bandit's home.
        expected_failures: laws that are known to fail, each with the reason; one that holds after
            all is a failure.
        raises: whether broken laws raise `CheckFailed`.

    Raises:
        InvalidValue: a policy came without its environment, the subject does not have these trusts,
            or nothing here fits it.

    >>> from kerchief.privacy import MemoryLedger
    >>> check(MemoryLedger).kept
    True
    """
    report = Report(outcomes=())
    for trust in trusts or ():
        one_of("trust", trust, tuple(TRUSTS))
    for case, laws in _subjects(subject, trusts, environment, thorough):
        if trusts and laws in (ENVIRONMENT_LAWS, MECHANISM_LAWS, LEDGER_LAWS):
            raise InvalidValue(f"trust is {trusts[0]!r}, and only bandits have one; leave it out")
        chosen = [law for law in laws if thorough or law.cheap]
        report += examine(case, chosen, expected_failures=expected_failures)
    return report.require() if raises else report


def _subjects(
    subject: Any, trusts: Sequence[str] | None, world: AnyEnvironment | None, thorough: bool
) -> Iterator[Subject]:
    """Whatever is given, as cases with the laws of their kind."""
    match subject:
        case str():
            yield from _subjects(_named(subject), trusts, world, thorough)
        case PolicyEntry():
            known = [name for name, entry in POLICIES.items() if entry is subject]
            name = (known or [subject.kinds[0].__name__])[0]
            yield from _bandits(name, subject, trusts, world, thorough, registered=bool(known))
        case PrivatizerEntry():
            known = [name for name, entry in TRUSTS.items() if entry is subject]
            for trust in trusts or known:
                one_of("trust", trust, tuple(known or TRUSTS))
                yield from ((one, PRIVATIZER_LAWS) for one in privatizer_cases(trust, subject))
        case type() if _plays(subject):
            entry = _entry(subject, _maker(subject), world)
            yield from _bandits(subject.__name__, entry, trusts, world, thorough)
        case _ if _unbuilt(subject):
            raise InvalidValue(
                f"{subject.__name__} is a class of neither bandits nor ledgers; give a world or a "
                "noise that is built"
            )
        case _ if _plays(subject):
            if world is None:
                raise InvalidValue("environment is None; give the one the policy was built for")
            entry = _entry(type(subject), lambda problem, mode, terms=None: subject, world)
            name = type(subject).__name__
            yield from _bandits(name, entry, trusts, world, thorough, resizable=False)
        case _ if hasattr(subject, "problem") and hasattr(subject, "init"):
            yield WorldCase(name=type(subject).__name__, environment=subject), ENVIRONMENT_LAWS
        case _ if all(hasattr(subject, word) for word in ("add", "std", "event")):
            yield MechanismCase(noise=subject), MECHANISM_LAWS
        case _ if callable(subject):
            yield Ledgers(open=subject), LEDGER_LAWS
        case _:
            raise InvalidValue(
                f"a {type(subject).__name__} is no bandit, world, noise or ledger; give one of them"
            )


def _named(name: str) -> Any:
    """What is registered under a name: a bandit, a world, or the privatizers of a trust."""
    if name in set(ENVIRONMENTS):
        return ENVIRONMENTS[name].make()
    return TRUSTS[name] if name in set(TRUSTS) else POLICIES[name]


def _plays(subject: Any) -> bool:
    return hasattr(subject, "feedback") and hasattr(subject, "update")


def _unbuilt(subject: Any) -> bool:
    """Whether it is a class whose objects cannot be made here: no bandit's and no ledger's."""
    return isinstance(subject, type) and not hasattr(subject, "charge")


def _bandits(
    name: str,
    entry: PolicyEntry,
    trusts: Sequence[str] | None,
    world: AnyEnvironment | None,
    thorough: bool,
    *,
    registered: bool = False,
    resizable: bool = True,
) -> Iterator[Subject]:
    rooms: Any = {"environment": world, "resizable": resizable}
    for trust in trusts or entry.trusts:
        one_of("trust", trust, entry.trusts)
        case = Case.of(name, entry, trust, **rooms)
        if trusts or registered or accepts(case):
            yield case, BANDIT_LAWS
            for other in other_words(case) if thorough else ():
                yield other, (noise_drawn_is_the_word_printed,)


def _maker(kind: Any) -> Callable[..., AnyPolicy]:
    """Build from public facts; a class that asks for the channel is told it."""
    hears = "channel" in inspect.signature(kind.of).parameters

    def make(problem: Any, mode: Mode, terms: Terms | None = None) -> AnyPolicy:
        channel = None if terms is None else terms.channel
        told = {"channel": channel} if hears and channel is not None else {}
        made: AnyPolicy = kind.of(problem, mode=mode, **told)
        return made

    return make


def _entry(kind: Any, make: Any, world: AnyEnvironment | None) -> PolicyEntry:
    """The entry of a bandit that is not registered."""
    problem = (world or small_home(_HOMES[kind.feedback])).problem(400)
    return PolicyEntry(
        make=make,
        kinds=(kind,),
        summary=(kind.__doc__ or kind.__name__).splitlines()[0],
        source="given by hand",
        problems=(type(problem),),
        actions=(actions_of(problem),),
        aim="regret",
        trusts=tuple(TRUSTS),
        parent=kind.__name__,
        home=_HOMES[kind.feedback],
        promised=make,
        noises={},
        deployable=False,
    )
