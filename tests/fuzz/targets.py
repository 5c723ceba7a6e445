"""What is fuzzed: every public constructor, factory, reader, role and command, by enumeration.

A target is a function of named arguments with valid samples of each. An input is a set of arguments
with some of them corrupted. The outcome must be one of our own errors, or an answer that `check`
finds sound; anything else, a warning or a hang included, is a finding.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import math
import pkgutil
import random
import re
import signal
import warnings
from collections.abc import Callable, Container, Iterator, Mapping
from types import FrameType, ModuleType
from typing import Any

import jax
import numpy as np
from tests.fuzz import hostile
from tests.fuzz.samples import CROWD, FACTS, GAME, OWN, PROBLEMS, SAMPLES

import kerchief
import kerchief_device
import kerchief_protocol
from kerchief.core.errors import KerchiefError
from kerchief.core.precision import double_precision
from kerchief.core.problems import ContextFreeProblem, PopulationProblem, Problem
from kerchief.policies import POLICIES, PrivacyBudget

__all__ = ["Finding", "Target", "attempt", "constructors", "draw", "shrunk", "targets"]

Arguments = dict[str, Any]
_LIMIT = 20
"""Seconds of computing after which an input counts as a hang."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Target:
    """Something that strangers call.

    Attributes:
        name: room, module and name.
        call: takes the arguments by name.
        samples: valid values of each argument.
        closed: arguments that are never corrupted, because a type checker guards them.
        held: arguments whose contents are corrupted, and whose kind of container is not.
        check: raises AssertionError unless an answer is sound.
        weight: how many inputs it gets, beside the others.
    """

    name: str
    call: Callable[..., Any]
    samples: Mapping[str, tuple[Any, ...]]
    closed: frozenset[str] = frozenset()
    held: frozenset[str] = frozenset()
    check: Callable[[Any], None] = lambda answer: None
    weight: float = 1.0


class Finding(Exception):
    """A target did what it must not do."""


def draw(target: Target, dice: random.Random) -> tuple[Arguments, Arguments]:
    """Valid arguments, and the same with a few of them corrupted."""
    valid = {name: dice.choice(values) for name, values in target.samples.items()}
    open_ones = [name for name in valid if name not in target.closed]
    wrong = dict(valid)
    if open_ones and dice.random() < 0.97:
        for name in dice.sample(open_ones, min(len(open_ones), dice.choice((1, 1, 1, 2, 3)))):
            change = hostile.inside if name in target.held else hostile.corrupted
            wrong[name] = change(dice, valid[name])
    return valid, wrong


@double_precision
def attempt(target: Target, arguments: Arguments) -> bool:
    """Call a target: whether it answered, or refused with an error of ours.

    Raises:
        Finding: it did neither.
    """
    with warnings.catch_warnings(), _alarm():
        warnings.simplefilter("error")
        try:
            answer = target.call(**arguments)
        except KerchiefError as error:
            if not str(error).strip():
                raise Finding(f"{type(error).__name__} without a message") from error
            return False
        except (Exception, SystemExit) as error:
            raise Finding(f"{type(error).__name__}: {error}"[:500]) from error
        try:
            target.check(answer)
        except (Exception, SystemExit) as error:
            raise Finding(f"unsound answer: {type(error).__name__}: {error}"[:500]) from error
    return True


def shrunk(target: Target, valid: Arguments, wrong: Arguments) -> Arguments:
    """The corrupted arguments that a finding needs: the others are made valid again."""
    for name in valid:
        if wrong[name] is valid[name]:
            continue
        fewer = {**wrong, name: valid[name]}
        try:
            attempt(target, fewer)
        except Finding:
            wrong = fewer
    return {name: value for name, value in wrong.items() if value is not valid[name]} or wrong


class _alarm:
    """Turns a hang into an exception."""

    def __enter__(self) -> None:
        self._before = signal.signal(signal.SIGPROF, _hung)
        signal.setitimer(signal.ITIMER_PROF, _LIMIT)

    def __exit__(self, *error: object) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, self._before)


def _hung(number: int, frame: FrameType | None) -> None:
    raise Finding(f"no answer within {_LIMIT} seconds of computing")


# Enumeration.

_NOT_OURS = ("checks", "audits", "cli", "catalogue")
_OPEN = re.compile(
    r"\b(int|float|str|ArrayLike|NDArray|Floats|Trust|Event|Cohort|object|Any|Tabular|Declared)\b"
)
_HELD = re.compile(r"^(Mapping|Sequence|Iterable)\b")
_COMPILED = re.compile(r"\b(Array|Stream|Tree|Clock|Callable|Factory)\b")
_FUNCTIONS = (
    "core.validate",
    "core.links",
    "core.batches",
    "privacy.receipts",
    "deployment.verify",
    "protocol.canonical",
    "protocol.chain",
)
"""Modules below the rooms whose functions read what strangers write."""
_INSIDE = ("privacy.visits", "privacy.printed", "simulation.run")
_PACKAGES = (kerchief, kerchief_device, kerchief_protocol)
# A database and its statements: what is open there is the name of a store.
_BASES = ("stores.sql", "stores.postgres")


def _modules() -> Iterator[ModuleType]:
    for package in _PACKAGES:
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            words = {*found.name.split("."), _short(found.name)}
            if not words & {*_NOT_OURS, *_BASES, "__main__"}:
                yield importlib.import_module(found.name)


def _short(module: str) -> str:
    return module.removeprefix("kerchief.").removeprefix("kerchief_")


def constructors() -> dict[str, Callable[..., Any]]:
    """Every public way to make something: classes that check themselves, factories, functions.

    Classes without a check are records, and structs are rebuilt by JAX around tracers: what they
    are given is checked by their factories. Functions on JAX arrays run inside compiled code.
    """
    found: dict[str, Callable[..., Any]] = {}
    rooms = {name: getattr(room, "__all__", ()) for name, room in _rooms()}
    offered = {id(getattr(room, name)) for _, room in _rooms() for name in rooms[room.__name__]}
    for module in _modules():
        for name, thing in list(vars(module).items()):
            where = _short(module.__name__)
            if name.startswith("_") or getattr(thing, "__module__", None) != module.__name__:
                continue
            if inspect.isclass(thing):
                found |= {f"{where}:{what}": make for what, make in _makers(thing)}
            elif inspect.isfunction(thing) and (
                id(thing) in offered or where in (*_FUNCTIONS, *_INSIDE)
            ):
                found[f"{where}:{name}"] = thing
    return {name: make for name, make in found.items() if not _compiled(make)}


def _rooms() -> Iterator[tuple[str, ModuleType]]:
    for module in (*_PACKAGES, *_modules()):
        if hasattr(module, "__path__"):
            yield module.__name__, module


def _makers(kind: type) -> Iterator[tuple[str, Callable[..., Any]]]:
    protocol = getattr(kind, "_is_protocol", False)
    if issubclass(kind, BaseException) or protocol or inspect.isabstract(kind):
        return
    if hasattr(kind, "__post_init__") or (
        "__init__" in vars(kind) and not dataclasses.is_dataclass(kind)
    ):
        yield kind.__name__, kind
    # A class with factories of its own does not offer those of the class that it extends.
    own = [name for name in vars(kind) if isinstance(vars(kind)[name], classmethod)]
    for name in own or dir(kind):
        if not name.startswith("_") and isinstance(inspect.getattr_static(kind, name), classmethod):
            yield f"{kind.__name__}.{name}", getattr(kind, name)


def _parameters(make: Callable[..., Any]) -> list[inspect.Parameter]:
    given = inspect.signature(make).parameters.values()
    return [one for one in given if one.kind is not inspect.Parameter.VAR_KEYWORD]


def _compiled(make: Callable[..., Any]) -> bool:
    """Whether it takes what only compiled code has; a role takes streams and is no such thing."""
    plain_class = inspect.isclass(make) and not dataclasses.is_dataclass(make)
    return not plain_class and any(
        _COMPILED.search(str(one.annotation)) for one in _parameters(make)
    )


def _constructor(name: str, make: Callable[..., Any]) -> Target:
    """A target whose samples come from the names of its parameters."""
    facts = [facts for room, facts in PROBLEMS.items() if name.startswith(room)]
    own = {**({"problem": facts[0]} if facts else {}), **OWN.get(name, {})}
    samples: dict[str, tuple[Any, ...]] = {}
    closed, held = set(_GUARDED.get(name, ())), set()
    for one in _parameters(make):
        if one.name not in own and one.name not in SAMPLES:
            raise KeyError(f"{name} has a parameter {one.name!r} without a sample in samples.py")
        samples[one.name] = own.get(one.name) or SAMPLES[one.name]
        if not _OPEN.search(str(one.annotation)):
            closed.add(one.name)
        if _HELD.search(str(one.annotation)):
            held.add(one.name)
    return Target(
        name=name,
        call=make,
        samples=samples,
        closed=frozenset(closed),
        held=frozenset(held),
        check=_UNCHECKED.get(name, sound),
        weight=_WEIGHTS.get(name, 1.0) if closed < set(samples) else 0.02,
    )


def sound(answer: Any) -> None:
    """No number of an answer is NaN, in its fields or in what it says about itself."""
    for leaf in jax.tree.leaves(answer):
        _not_nan("a leaf", leaf)
    if dataclasses.is_dataclass(answer) and not isinstance(answer, type):
        for field in dataclasses.fields(answer):
            _not_nan(field.name, getattr(answer, field.name))
        if (getattr(answer, "dim", None) or 1) <= 64:
            for name in ("size", "sensitivity", "radius", "taxicab", "center", "std"):
                if hasattr(type(answer), name):
                    _not_nan(name, getattr(answer, name))


def _not_nan(name: str, value: Any) -> None:
    if isinstance(value, float | np.ndarray | np.generic | jax.Array):
        number = np.asarray(value)
        assert number.dtype.kind != "f" or not np.isnan(number).any(), f"{name} is NaN"


_CHECKS = ("at_least", "between", "increasing", "one_of", "or_default", "positive", "whole")

# Registries.


def _policy(name: str) -> Target:
    def build(*, mode: Any, epsilon: float, delta: float, private: bool, **facts: Any) -> Any:
        terms = PrivacyBudget(epsilon=epsilon, delta=delta, trust="local") if private else None
        if POLICIES[name].actions == ("models",):
            facts["own"] = facts["dim"]
        return POLICIES[name].build(Problem(**facts), mode, terms)

    return Target(
        name=f"policy:{name}",
        call=build,
        samples={
            **FACTS,
            "mode": ("tuned", "theory"),
            "epsilon": (1.0, 0.1),
            "delta": (1e-5,),
            "private": (True, False),
        },
        closed=frozenset({"mode", "private", "epsilon", "delta"}),
        check=_sound_policy,
        weight=_WEIGHTS.get(f"policy:{name}", 0.5),
    )


def _phased(name: str) -> Target:
    def build(*, mode: Any, **facts: Any) -> Any:
        return POLICIES[name].build(PopulationProblem(**facts), mode)

    return Target(
        name=f"phased policy:{name}",
        call=build,
        samples={**CROWD, "mode": ("tuned", "theory")},
        closed=frozenset({"mode"}),
        check=_sound_policy,
        weight=0.5,
    )


def _plain(name: str, actions: str) -> Target:
    def build(*, mode: Any, channel: Any, **facts: Any) -> Any:
        terms = PrivacyBudget(epsilon=1.0, delta=0.0, trust="local", channel=channel)
        return POLICIES[name].build(ContextFreeProblem(**facts), mode, terms)

    on = (
        {"arms": (3, 2)}
        if actions == "arms"
        else {"domain": SAMPLES["domain"], "lipschitz": (2.0,)}
    )
    return Target(
        name=f"plain policy:{name} {actions}",
        call=build,
        samples={**GAME, **on, "mode": ("tuned", "theory"), "channel": SAMPLES["channel"]},
        closed=frozenset({"mode", "channel", "domain"}),
        check=_sound_policy,
        weight=0.5,
    )


def _sound_policy(policy: Any) -> None:
    sound(policy)
    for query in policy.queries.values():
        assert math.isfinite(query.sensitivity), "endless sensitivity"
        assert query.sensitivity > 0, "no sensitivity"


_WEIGHTS = {
    "privatizers.bits:BitSums.of": 0.001,
    "data.off_policy:off_policy_value": 0.05,
    "data.replay:Replay.of": 0.1,
    "data.replaying:from_logs": 0.1,
    "data.supervised:from_supervised": 0.2,
    "comparison.comparison:Comparison": 0.03,
    "comparison.comparison:Comparison.on": 0.03,
    "papers.leaderboard:Leaderboard": 0.03,
    "papers.leaderboard:Leaderboard.of": 0.03,
    "planning.planning:Planning": 0.03,
    "mechanisms.exact_continual:ExactContinualNoise.matching": 0.02,
    "privacy.calibration:zcdp_rho": 0.1,
    "privacy.composition:delta_at": 0.1,
    "privacy.composition:epsilon_at": 0.2,
    "privacy.rules:worst_case": 0.05,
    "environments.recorded:Recorded.of": 0.2,
    "environments.recorded:table_two": 0.05,
    "mechanisms.privunit:PrivUnitG.of": 0.1,
    "mechanisms.shortlist:Shortlist.of": 0.1,
    "mechanisms.compass:Compass.of": 0.05,
    "policy:glm": 0.2,
    "policy:b-glincb": 0.2,
    "policy:glm-descent": 0.05,
    "policy:glm-batched": 0.1,
}
"""Of targets that take more than a fraction of a millisecond."""
_UNCHECKED: dict[str, Callable[[Any], None]] = dict.fromkeys(
    ("core.validate:real_array",), lambda answer: None
)
"""Answers that may hold NaN, which a later check refuses."""
_GUARDED = {
    **{f"core.validate:{name}": ("name", "low", "high", "allowed", "default") for name in _CHECKS},
    "core.validate:real_array": ("name", "kind"),
}
"""What only our own code gives: the bounds of a check."""


def targets(by_hand: Container[str]) -> dict[str, Target]:
    """All targets by name, but for constructors that have one made by hand."""
    made = [
        _constructor(name, make) for name, make in constructors().items() if name not in by_hand
    ]
    for name, entry in POLICIES.items():
        made += [_policy(name)] if Problem in entry.problems else []
        made += [_phased(name)] if PopulationProblem in entry.problems else []
        if ContextFreeProblem in entry.problems:
            made += [_plain(name, actions) for actions in entry.actions]
    return {one.name: one for one in made}
