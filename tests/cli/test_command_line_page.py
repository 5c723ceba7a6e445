"""The page about the command line names all that there is, and nothing that there is not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kerchief.cli.compare import compare
from kerchief.cli.index import COMMANDS, command
from kerchief.comparison.players import FLAGS
from kerchief.environments.contexts import CONTEXTS
from kerchief.environments.registry import ENVIRONMENTS
from kerchief.environments.worlds import NOISES
from kerchief.policies import POLICIES
from kerchief.privacy.guarantee import Trust
from kerchief.privatizers.registry import MECHANISMS_OF

PAGE = Path(__file__, "../../../docs/command_line.md").resolve().read_text(encoding="utf-8")


def _between(first: str, last: str) -> str:
    """The page from one line's beginning on, up to another's."""
    return PAGE.partition(f"\n{first}")[2].partition(f"\n{last}")[0]


def _named(text: str) -> set[str]:
    """What stands in backticks alone."""
    return set(re.findall(r"`([^` ]+)[^`]*`", text))


def _first_cells(table: str) -> set[str]:
    """What the first column names, without its heading."""
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("|")]
    return _named(" ".join(rows[2:]))


COMPARE = _between("## `kerchief compare`", "## `kerchief reproduce`")
REPRODUCE = _between("## `kerchief reproduce`", "## How plans are played")
SHARED = _between("## How plans are played", "## `kerchief audit`")


def test_every_command_is_named() -> None:
    listed = _between("| command |", "```")
    assert set(re.findall(r"^\| `kerchief (\w+)", listed, flags=re.MULTILINE)) == set(COMMANDS)


@pytest.mark.parametrize(("name", "own"), [("compare", COMPARE), ("reproduce", REPRODUCE)])
def test_every_option_is_named_and_no_other(name: str, own: str) -> None:
    known = {flag for one in command(name).params for flag in one.opts if flag.startswith("--")}
    rows = "\n".join(line for line in (own + SHARED).splitlines() if line.startswith("| `--"))
    named = {word for word in _first_cells(f"\n| |\n|-|\n{rows}") if word.startswith("--")}
    assert named == known


def test_every_world_is_named_and_no_other() -> None:
    assert _first_cells(_between("Worlds (`--env`):", "Contexts (")) == set(ENVIRONMENTS)


def test_all_contexts_and_rewards_are_named_and_no_others() -> None:
    assert _first_cells(_between("Contexts (`--contexts`):", "Rewards (")) == set(CONTEXTS)
    assert _named(_between("Rewards (`--reward-noise`)", "#")) == set(NOISES)


@pytest.mark.parametrize("trust", FLAGS)
def test_every_word_of_a_noise_is_named_beside_its_flag(trust: Trust) -> None:
    (row,) = re.findall(rf"^\| `{trust}` \| `--{FLAGS[trust]}` \| (.*)", COMPARE, re.MULTILINE)
    assert _named(row) - {"--delta"} == set(MECHANISMS_OF[trust])


@pytest.mark.parametrize(
    ("flag", "trust"),
    [
        ("--continual", "joint"),
        ("--shuffling", "shuffle"),
        ("--randomizer", "local"),
        ("--curator", "central"),
    ],
)
def test_help_names_every_paper_that_has_a_noise_of_its_own(flag: str, trust: str) -> None:
    (option,) = (one for one in compare.params if flag in one.opts)
    told = str(getattr(option, "help", "")).partition("[default: ")[2]
    papers = {
        name: entry.noises.get(trust)
        for name, entry in POLICIES.items()
        if "@" in name and trust in entry.trusts
    }
    if "for papers' own versions" in told:
        assert set(papers.values()) == {"gaussian"}
    else:
        assert {name for name in papers if name in told} == {n for n, w in papers.items() if w}
        assert all(word is None or word in told for word in papers.values())
