"""Everything public is fuzzed, and a small run of the fuzzer finds nothing."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from tests.fuzz import hostile
from tests.fuzz.fuzzer import all_targets, fuzz, shares
from tests.fuzz.sessions import BY_HAND
from tests.fuzz.targets import Finding, Target, attempt, constructors, draw, shrunk

from kerchief.cli.index import command
from kerchief.cli.main import main
from kerchief.core.errors import InvalidValueError


@pytest.fixture(scope="module")
def found() -> dict[str, Target]:
    return all_targets()


def commands(group: click.Group, words: tuple[str, ...] = ()) -> Iterator[str]:
    for name, stub in group.commands.items():
        found = command(name) if group is main else stub
        if isinstance(found, click.Group):
            yield from commands(found, (*words, name))
        else:
            yield " ".join((*words, name))


def test_every_public_constructor_is_a_target(found: dict[str, Target]) -> None:
    """One without samples makes `all_targets` fail; one made by hand names a target that exists."""
    public = constructors()
    assert len(public) > 150
    assert public.keys() <= found.keys() | BY_HAND.keys()
    assert BY_HAND.keys() <= public.keys()
    assert set(BY_HAND.values()) <= found.keys()


def test_every_command_is_a_target(found: dict[str, Target]) -> None:
    assert {f"command:{name}" for name in commands(main)} <= found.keys()


@pytest.mark.parametrize("part", range(4))
def test_a_few_hostile_inputs_find_nothing(part: int, found: dict[str, Target]) -> None:
    quick = [target for target in found.values() if target.weight >= 0.5]
    findings = [
        (target.name, what)
        for target in quick[part::4]
        for _, what in fuzz(target, 1, range(15)).findings
    ]
    assert not findings


@pytest.mark.nightly
def test_many_hostile_inputs_find_nothing() -> None:
    root = Path(__file__).parents[2]
    line = [sys.executable, "-m", "tests.fuzz.fuzzer", "--inputs", "200000", "--seed", "2"]
    run = subprocess.run(line, cwd=root, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout[-5000:]


def test_every_target_gets_a_fair_number(found: dict[str, Target]) -> None:
    counts = shares(found, 1_000_000)
    assert min(counts.values()) >= 20
    assert 0.9e6 < sum(counts.values()) < 1.1e6


# The fuzzer itself must be able to find something.


def _target(call: object) -> Target:
    return Target(name="planted", call=call, samples={"x": (1.0,), "y": (2.0,)})  # type: ignore[arg-type]


@pytest.mark.parametrize("fault", ["raises", "warns", "leaves", "says nothing", "hangs"])
def test_planted_faults_are_findings(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.fuzz.targets._LIMIT", 0.05)

    def call(x: float, y: float) -> None:
        import warnings

        if fault == "raises":
            raise ZeroDivisionError
        if fault == "warns":
            warnings.warn("odd", stacklevel=1)
        if fault == "leaves":
            sys.exit(3)
        if fault == "says nothing":
            raise InvalidValueError("")
        while fault == "hangs":
            pass

    with pytest.raises(Finding):
        attempt(_target(call), {"x": 1.0, "y": 2.0})


def test_an_unsound_answer_is_a_finding() -> None:
    def check(answer: float) -> None:
        assert answer == 0

    target = Target(name="planted", call=lambda x: x, samples={"x": (1.0,)}, check=check)
    with pytest.raises(Finding, match="unsound"):
        attempt(target, {"x": 1.0})


def test_a_finding_is_shrunk_to_what_it_needs() -> None:
    def call(x: float, y: float) -> None:
        if x < 0:
            raise ZeroDivisionError

    assert shrunk(_target(call), {"x": 1.0, "y": 2.0}, {"x": -1.0, "y": -2.0}) == {"x": -1.0}


def test_inputs_have_addresses(found: dict[str, Target]) -> None:
    """The same seed and number give the same input; others give others."""
    target = found["core.problems:Problem"]
    inputs = [repr(draw(target, random.Random(f"{seed}/x/3"))) for seed in (0, 0, 1)]
    assert inputs[0] == inputs[1] != inputs[2]


def test_hostile_texts_differ_from_the_sample() -> None:
    dice = random.Random(0)
    sample = '{"budget": {"epsilon": 1.0}, "receipts": [{"first": 0, "last": 9}]}'
    changed = [hostile.text(dice, sample) != sample for _ in range(300)]
    assert sum(changed) > 250
    changed = [hostile.data(dice, sample.encode()) != sample.encode() for _ in range(300)]
    assert sum(changed) > 250
