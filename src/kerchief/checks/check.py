"""The one entry point: hold to the laws whatever is given, from this package or from outside it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from kerchief.audits.specimens import SPECIMENS, Specimen
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
from kerchief.core.registry import Registry
from kerchief.core.validate import one_of
from kerchief.environments.registry import ENVIRONMENTS
from kerchief.mechanisms.registry import MECHANISMS
from kerchief.policies import POLICIES, AnyPolicy, Mode, PolicyEntry, Terms
from kerchief.policies.registry import actions_of
from kerchief.privacy.calibration import gaussian_noise_multiplier
from kerchief.privatizers import TRUSTS
from kerchief.privatizers.registry import PrivatizerEntry
from kerchief.simulation.run import AnyEnvironment

_NONE: Mapping[str, str] = {}
_HOMES: Mapping[Feedback, str] = {"totals": "linear", "reports": "chance", "phases": "population"}

# What noises are built from: the epsilon and delta that they keep, and facts of a statistic.
_PROMISED = 1.0, 1e-5
_FACTS: Mapping[str, float] = {
    "epsilon": _PROMISED[0],
    "delta": _PROMISED[1],
    "noise_multiplier": gaussian_noise_multiplier(*_PROMISED),
    "sensitivity": 2.0,
    "taxicab": 2.0,
    "center": 0.0,
    "radius": 1.0,
    "dimension": 1,
    "size": 1,
}

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
        subject: a name (of a bandit, a world, a noise or a trust); an entry of a registry; a class
            of bandits with `of(problem, mode=...)`; a policy, with the environment that it was
            built for; a world; a noise with `add`, `std` and `event`, or a class of noises that is
            built from some of `epsilon`, `delta`, `noise_multiplier`, `sensitivity`, `taxicab`,
            `center`, `radius`, `dimension` and `size`; or whatever opens a ledger on a budget.
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
        case type() if hasattr(subject, "add") and hasattr(subject, "event"):
            yield MechanismCase(noise=_noise(subject)), MECHANISM_LAWS
        case Specimen():
            yield MechanismCase(noise=subject.make(*_PROMISED)), MECHANISM_LAWS
        case _ if _unbuilt(subject):
            raise InvalidValue(
                f"{subject.__name__} is a class of neither bandits, noises nor ledgers; give a "
                "world that is built"
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
    """What is registered under a name: a bandit, a world, a noise, or a trust's privatizers."""
    if name in MECHANISMS and name not in SPECIMENS:
        raise InvalidValue(
            f"{name!r} is a noise without a specimen, which laws and audits look at; enter "
            "one with kerchief.audits.specimens.SPECIMENS.add"
        )
    known: Registry[Callable[[], Any]] = Registry(
        "bandit, world, noise or trust",
        listed=("policies", "environments", "mechanisms", "trusts"),
    )
    for registry in (POLICIES, SPECIMENS, TRUSTS):
        for word in registry:
            known.add(word, partial(registry.__getitem__, word))
    for word, world in ENVIRONMENTS.items():
        known.add(word, world.make)
    return known[POLICIES.own_name(name)]()


def _noise(kind: Any) -> Any:
    """One noise of a class: as audits build it, or by the facts that its `of` asks for."""
    for name, entry in MECHANISMS.items():
        if entry.kind is kind:
            return SPECIMENS[name].make(*_PROMISED)
    make = getattr(kind, "of", kind)
    asked = inspect.signature(make).parameters.values()
    needs = [one.name for one in asked if one.default is one.empty]
    for name in needs:
        if name not in _FACTS:
            raise InvalidValue(
                f"{kind.__name__} needs {name!r}, and only {', '.join(_FACTS)} are known here; "
                "give a noise that is built"
            )
    return make(**{name: _FACTS[name] for name in needs})


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
