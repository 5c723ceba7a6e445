"""The one entry point: hold to the laws whatever is given, from this package or from outside it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from kerchief.audits.specimens import SPECIMENS, Specimen
from kerchief.checks.environment import WorldCase
from kerchief.checks.errors import Law, Report, examine
from kerchief.checks.laws import BANDIT_LAWS, ENVIRONMENT_LAWS, MECHANISM_LAWS, PRIVATIZER_LAWS
from kerchief.checks.ledger import LEDGER_LAWS, Ledgers
from kerchief.checks.mechanism import MechanismCase
from kerchief.checks.mechanism_names import noise_drawn_is_the_word_printed
from kerchief.checks.policy_fixture import PolicyFixture, accepts, other_words, small_home
from kerchief.checks.protocol import privatizer_cases
from kerchief.core.contracts import Feedback
from kerchief.core.errors import InvalidValueError
from kerchief.core.registry import Registry
from kerchief.core.validate import one_of
from kerchief.environments.registry import ENVIRONMENTS
from kerchief.mechanisms.registry import MECHANISMS
from kerchief.policies import POLICIES, AnyPolicy, Mode, PolicyEntry, PrivacyBudget
from kerchief.policies.registry import actions_of
from kerchief.privacy.calibration import gaussian_noise_multiplier
from kerchief.privatizers import TRUSTS
from kerchief.privatizers.registry import PrivatizerEntry
from kerchief.simulation.run import AnyEnvironment

_NONE: Mapping[str, str] = {}
_HOME_NAMES: Mapping[Feedback, str] = {
    "totals": "linear",
    "reports": "chance",
    "phases": "population",
}

# What noises are built from: the epsilon and delta that they keep, and facts of a statistic.
_EPSILON_DELTA = 1.0, 1e-5
_FACTS: Mapping[str, float] = {
    "epsilon": _EPSILON_DELTA[0],
    "delta": _EPSILON_DELTA[1],
    "noise_multiplier": gaussian_noise_multiplier(*_EPSILON_DELTA),
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
        raises: whether broken laws raise `CheckFailedError`.

    Raises:
        InvalidValueError: a policy came without its environment, the subject does not have these
            trusts, or nothing here fits it.

    >>> from kerchief.privacy import MemoryLedger
    >>> check(MemoryLedger).kept
    True
    """
    report = Report(outcomes=())
    for trust in trusts or ():
        one_of("trust", trust, tuple(TRUSTS))
    for case, laws in _find_cases(subject, trusts, environment, thorough):
        if trusts and laws in (ENVIRONMENT_LAWS, MECHANISM_LAWS, LEDGER_LAWS):
            raise InvalidValueError(
                f"trust is {trusts[0]!r}, and only bandits have one; leave it out"
            )
        selected = [law for law in laws if thorough or law.cheap]
        report += examine(case, selected, expected_failures=expected_failures)
    return report.require() if raises else report


def _find_cases(
    subject: Any, trusts: Sequence[str] | None, world: AnyEnvironment | None, thorough: bool
) -> Iterator[Subject]:
    """Turn a subject into cases with the laws of their kind."""
    match subject:
        case str():
            yield from _find_cases(_resolve_name(subject), trusts, world, thorough)
        case PolicyEntry():
            names = [name for name, entry in POLICIES.items() if entry is subject]
            name = (names or [subject.kinds[0].__name__])[0]
            yield from _find_bandit_cases(
                name, subject, trusts, world, thorough, registered=bool(names)
            )
        case PrivatizerEntry():
            names = [name for name, entry in TRUSTS.items() if entry is subject]
            for trust in trusts or names:
                one_of("trust", trust, tuple(names or TRUSTS))
                yield from ((case, PRIVATIZER_LAWS) for case in privatizer_cases(trust, subject))
        case type() if _is_policy(subject):
            entry = _build_entry(subject, _wrap_factory(subject), world)
            yield from _find_bandit_cases(subject.__name__, entry, trusts, world, thorough)
        case type() if hasattr(subject, "add") and hasattr(subject, "event"):
            yield MechanismCase(noise=_build_noise(subject)), MECHANISM_LAWS
        case Specimen():
            yield MechanismCase(noise=subject.make(*_EPSILON_DELTA)), MECHANISM_LAWS
        case _ if _is_unusable_class(subject):
            raise InvalidValueError(
                f"{subject.__name__} is a class of neither bandits, noises nor ledgers; give a "
                "world that is built"
            )
        case _ if _is_policy(subject):
            if world is None:
                raise InvalidValueError(
                    "environment is None; give the one the policy was built for"
                )
            entry = _build_entry(type(subject), lambda problem, mode, terms=None: subject, world)
            name = type(subject).__name__
            yield from _find_bandit_cases(name, entry, trusts, world, thorough, resizable=False)
        case _ if hasattr(subject, "problem") and hasattr(subject, "init"):
            yield WorldCase(name=type(subject).__name__, environment=subject), ENVIRONMENT_LAWS
        case _ if all(hasattr(subject, attribute) for attribute in ("add", "std", "event")):
            yield MechanismCase(noise=subject), MECHANISM_LAWS
        case _ if callable(subject):
            yield Ledgers(open=subject), LEDGER_LAWS
        case _:
            raise InvalidValueError(
                f"a {type(subject).__name__} is no bandit, world, noise or ledger; give one of them"
            )


def _resolve_name(name: str) -> Any:
    """Look up a bandit, world, noise or trust by its registered name."""
    if name in MECHANISMS and name not in SPECIMENS:
        raise InvalidValueError(
            f"{name!r} is a noise without a specimen, which laws and audits look at; enter "
            "one with kerchief.audits.specimens.SPECIMENS.add"
        )
    subjects: Registry[Callable[[], Any]] = Registry(
        "bandit, world, noise or trust",
        listed=("policies", "environments", "mechanisms", "trusts"),
    )
    for registry in (POLICIES, SPECIMENS, TRUSTS):
        for key in registry:
            subjects.add(key, partial(registry.__getitem__, key))
    for key, world in ENVIRONMENTS.items():
        subjects.add(key, world.make)
    return subjects[POLICIES.resolve_alias(name)]()


def _build_noise(kind: Any) -> Any:
    """Build a noise of a class, as audits do or from what its `of` asks for."""
    for name, entry in MECHANISMS.items():
        if entry.kind is kind:
            return SPECIMENS[name].make(*_EPSILON_DELTA)
    make = getattr(kind, "of", kind)
    parameters = inspect.signature(make).parameters.values()
    needs = [parameter.name for parameter in parameters if parameter.default is parameter.empty]
    for name in needs:
        if name not in _FACTS:
            raise InvalidValueError(
                f"{kind.__name__} needs {name!r}, and only {', '.join(_FACTS)} are known here; "
                "give a noise that is built"
            )
    return make(**{name: _FACTS[name] for name in needs})


def _is_policy(subject: Any) -> bool:
    return hasattr(subject, "feedback") and hasattr(subject, "update")


def _is_unusable_class(subject: Any) -> bool:
    """Whether a subject is a class of neither bandits nor ledgers."""
    return isinstance(subject, type) and not hasattr(subject, "charge")


def _find_bandit_cases(
    name: str,
    entry: PolicyEntry,
    trusts: Sequence[str] | None,
    world: AnyEnvironment | None,
    thorough: bool,
    *,
    registered: bool = False,
    resizable: bool = True,
) -> Iterator[Subject]:
    options: Any = {"environment": world, "resizable": resizable}
    for trust in trusts or entry.trusts:
        one_of("trust", trust, entry.trusts)
        case = PolicyFixture.of(name, entry, trust, **options)
        if trusts or registered or accepts(case):
            yield case, BANDIT_LAWS
            for variant in other_words(case) if thorough else ():
                yield variant, (noise_drawn_is_the_word_printed,)


def _wrap_factory(kind: Any) -> Callable[..., AnyPolicy]:
    """Wrap a factory so that it gets the report distribution if it takes one."""
    needs_channel = "channel" in inspect.signature(kind.of).parameters

    def make(problem: Any, mode: Mode, terms: PrivacyBudget | None = None) -> AnyPolicy:
        channel = None if terms is None else terms.channel
        options = {"channel": channel} if needs_channel and channel is not None else {}
        policy: AnyPolicy = kind.of(problem, mode=mode, **options)
        return policy

    return make


def _build_entry(kind: Any, make: Any, world: AnyEnvironment | None) -> PolicyEntry:
    """Build the entry of a bandit that is not registered."""
    problem = (world or small_home(_HOME_NAMES[kind.feedback])).problem(400)
    return PolicyEntry(
        factory=make,
        kinds=(kind,),
        summary=(kind.__doc__ or kind.__name__).splitlines()[0],
        source="given by hand",
        problems=(type(problem),),
        actions=(actions_of(problem),),
        aim="regret",
        trusts=tuple(TRUSTS),
        parent=kind.__name__,
        default_environment=_HOME_NAMES[kind.feedback],
        build_with_budget=make,
        noises={},
        deployable=False,
    )
