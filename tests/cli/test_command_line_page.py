"""The page about the command line names all that there is, and nothing that there is not."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from kerchief.cli.index import COMMANDS, command
from kerchief.comparison.players import FLAGS
from kerchief.data.declaration_file import KEYS
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
    assert _first_cells(_between("Environments (`--env`):", "Contexts (")) == set(ENVIRONMENTS)


def test_all_contexts_and_rewards_are_named_and_no_others() -> None:
    assert _first_cells(_between("Contexts (`--contexts`):", "Rewards (")) == set(CONTEXTS)
    assert _named(_between("Rewards (`--env-param noise=NAME`)", "#")) == set(NOISES)


def test_every_key_of_a_declaration_is_named_and_no_other() -> None:
    table = _between("| key of `--declare`", "Environments (")
    first = [line.split("|")[1] for line in table.splitlines()[1:] if line.startswith("|")]
    named = _named(" ".join(first))
    assert {name.replace("-", "_") for name in named} == set(KEYS)


MECHANISMS = _between("### Mechanisms", "## `kerchief reproduce`")


@pytest.mark.parametrize("trust", FLAGS)
def test_every_mechanism_is_named_beside_its_trust_model(trust: Trust) -> None:
    (row,) = re.findall(rf"^\| `{trust}` \| (.*)", MECHANISMS, re.MULTILINE)
    assert _named(row) - {"--delta"} == set(MECHANISMS_OF[trust])


@pytest.mark.parametrize("trust", FLAGS)
def test_page_names_every_paper_with_noise_of_its_own(trust: Trust) -> None:
    (row,) = re.findall(rf"^\| {trust} \| (.*)", MECHANISMS, re.MULTILINE)
    papers = {
        name: entry.noises.get(trust)
        for name, entry in POLICIES.items()
        if "@" in name and trust in entry.trusts
    }
    if trust is Trust.SHUFFLE:
        assert {name for name in papers if name in row} == {n for n, w in papers.items() if w}
    assert all(f"`{noise}`" in row for noise in papers.values() if noise)


def test_commands_have_few_options() -> None:
    counts = {name: _count_options(command(name)) for name in COMMANDS}
    assert sum(counts.values()) <= 120
    assert counts["compare"] <= 35


def _count_options(entry: click.Command) -> int:
    subcommands = entry.commands.values() if isinstance(entry, click.Group) else ()
    own = sum(isinstance(parameter, click.Option) for parameter in entry.params)
    return own + sum(map(_count_options, subcommands))
