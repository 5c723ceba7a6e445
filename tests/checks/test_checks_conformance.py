"""Every registered thing keeps every law of its kind."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from kerchief.checks import (
    Case,
    CheckFailed,
    Law,
    Ledgers,
    Protocol,
    World,
    check_ledger,
    check_policy,
    check_registry,
    environment_cases,
    policy_cases,
    protocols,
    yield_environment_checks,
    yield_ledger_checks,
    yield_policy_checks,
    yield_privatizer_checks,
)
from kerchief.core.contracts import BoundedSum, Environment
from kerchief.core.errors import InvalidValue
from kerchief.environments import make_environment
from kerchief.mechanisms.continual import ContinualNoise
from kerchief.mechanisms.doubling import Doubling
from kerchief.policies import POLICIES
from kerchief.privacy import Guarantee, MemoryLedger
from kerchief.privatizers import CONTINUALS, TRUSTS, Every
from kerchief.privatizers.prefix import PrefixSums
from kerchief.privatizers.registry import BEST, Entry


def _protocols() -> Iterator[Protocol]:
    """What every trust builds, and prefix totals with every other kind of continual noise.

    But for epochs that double: a run as short as these uses less than it is charged for, which the
    laws about amounts take for a mistake.
    """
    for trust, entry in TRUSTS.items():
        yield from protocols(trust, entry)
    for kind, entry in CONTINUALS.items():
        if kind in (BEST, "doubling"):
            continue
        name = f"the privatizer of joint with {kind}"
        yield dataclasses.replace(Protocol.of("joint", entry), name=name)


def _parameters(subjects: Iterable[Any], laws: Any) -> list[Any]:
    return [
        pytest.param(law, subject, id=f"{subject}-{name}".replace(" ", "_"))
        for subject in subjects
        for name, law in laws()
    ]


def _daily(world: World) -> bool:
    """Arms that vary and arms that do not, with two links and two noises; all others by night."""
    return world.name in ("linear-ball-bernoulli", "probit-fixed-bounded")


DAILY = (
    "uniform under none",
    "linucb under local",
    "linucb under joint",
)


def _studied(case: Case, law: str) -> bool:
    """All but these bandits, and the search but for one of them: for the night."""
    searched = law == "worst user moves releases by the sensitivity at most"
    return str(case) not in (("linucb under joint",) if searched else DAILY)


@pytest.mark.parametrize(
    ("law", "case"),
    [
        pytest.param(
            law,
            case,
            id=f"{case}-{name}".replace(" ", "_"),
            marks=pytest.mark.nightly if _studied(case, name) else (),
        )
        for case in policy_cases()
        for name, law in yield_policy_checks()
    ],
)
def test_policies(law: Law[Case], case: Case) -> None:
    law(case)


def _nightly(protocol: Protocol) -> bool:
    """Continual noise that is not the default, and fits that keep no promise or stay undeployed."""
    undeployed = ("the fits of none", "the fits of shuffle")
    return " with " in protocol.name or protocol.name in undeployed


@pytest.mark.parametrize(
    ("law", "protocol"),
    _parameters((p for p in _protocols() if not _nightly(p)), yield_privatizer_checks),
)
def test_privatizers(law: Law[Protocol], protocol: Protocol) -> None:
    law(protocol)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("law", "protocol"), _parameters(filter(_nightly, _protocols()), yield_privatizer_checks)
)
def test_other_privatizers(law: Law[Protocol], protocol: Protocol) -> None:
    law(protocol)


def _epochs(query: BoundedSum, noise_multiplier: float, horizon: int) -> PrefixSums:
    """Epochs so short that several of them end within the releases of a law."""
    noise = ContinualNoise.of(
        Doubling(horizon=horizon, first=2),
        noise_multiplier=noise_multiplier,
        sensitivity=query.sensitivity,
    )
    return PrefixSums(query=query, schedule=Every(), noise=noise)


@pytest.mark.nightly
@pytest.mark.parametrize("entry", [CONTINUALS["doubling"], Entry(make=_epochs, summary="short")])
def test_epochs_that_double_have_fresh_noise(entry: Entry) -> None:
    """The one law about noise that does not ask whether all that was paid for is used."""
    law = dict(yield_privatizer_checks())["successive releases differ by fresh noise"]
    law(dataclasses.replace(Protocol.of("joint", entry), name="the privatizer of doubling"))


@pytest.mark.parametrize(
    ("law", "ledgers"), _parameters([Ledgers(open=MemoryLedger)], yield_ledger_checks)
)
def test_ledgers(law: Law[Ledgers], ledgers: Ledgers) -> None:
    law(ledgers)


@pytest.mark.parametrize(
    ("law", "world"), _parameters(filter(_daily, environment_cases()), yield_environment_checks)
)
def test_environments(law: Law[World], world: World) -> None:
    law(world)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("law", "world"),
    _parameters((w for w in environment_cases() if not _daily(w)), yield_environment_checks),
)
def test_all_other_environments(law: Law[World], world: World) -> None:
    law(world)


def test_everything_that_plays_is_registered() -> None:
    check_registry()


@pytest.fixture(scope="module")
def home() -> Environment:
    """The same small world as a case's own, so that its machine code is there already."""
    return make_environment(dim=2, arms=5, fewest=3)


def test_a_policy_by_itself_is_checked_in_its_environment(home: Environment) -> None:
    policy = POLICIES["uniform"].make(home.problem(400), "tuned")
    excused = {"beats uniform play": "it is uniform play"}
    check_policy(policy, environment=home, trusts=["none"], expected_failures=excused)
    with pytest.raises(InvalidValue, match="environment is None"):
        check_policy(policy)


def test_one_report_lists_every_failure() -> None:
    entry = dataclasses.replace(POLICIES["uniform"], summary="", home="linear")
    with pytest.raises(CheckFailed) as caught:
        check_policy(entry)
    assert {failure.law for failure in caught.value.failures} == {
        "documented",
        "beats uniform play",
    }
    assert "breaks 2 laws" in str(caught.value)


def test_an_expected_failure_must_fail() -> None:
    class Fee(MemoryLedger):
        def spent(self) -> Guarantee:
            spent = super().spent()
            return dataclasses.replace(spent, epsilon=spent.epsilon + 1e-4)

    excused = {"nothing costs nothing": "a fee", "overlapping cohorts add up": "a fee"}
    with pytest.raises(CheckFailed) as caught:
        check_ledger(Fee, expected_failures=excused)
    assert not {failure.law for failure in caught.value.failures} & set(excused)
    with pytest.raises(CheckFailed, match="it holds, though"):
        check_ledger(MemoryLedger, expected_failures=excused)
