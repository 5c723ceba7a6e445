"""The leaderboard: one guarantee, common worlds, ties shown as ties, and nobody left out unsaid."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from tests.comparison.fakes import fake

from kerchief.comparison.players import Player, player
from kerchief.comparison.results import Result
from kerchief.core.errors import InvalidValueError, UnknownNameError
from kerchief.core.problems import Problem
from kerchief.environments import GLMEnvironment
from kerchief.papers.leaderboard import Leaderboard
from kerchief.papers.leaderboard_entries import parent_of, standings
from kerchief.papers.leaderboard_worlds import WORLDS
from kerchief.policies import POLICIES
from kerchief.reports.report import render
from kerchief.reports.tables import markdown

SMALL = Leaderboard.of(
    size="quick", worlds=("chance", "switching"), policies=("ucb", "tsallis", "kl-ucb")
)


PAGE = (Path(__file__).parents[2] / "docs" / "leaderboard.md").read_text("utf-8")


def test_leaderboard_page_names_policies_without_a_row() -> None:
    """A private bandit has a row, or it is named in prose as one that has none."""
    prose = "\n".join(line for line in PAGE.splitlines() if not line.startswith("|"))
    ranked = set(re.findall(r"^\| (?:\d+=?|-) \| ([^ ]+) \|", PAGE, flags=re.MULTILINE))
    private = {name for name, entry in POLICIES.items() if set(entry.trusts) - {"none"}}
    assert ranked <= private
    assert {name for name in private - ranked if f"`{name}`" not in prose} == set()
    (line,) = [line for line in prose.splitlines() if line.startswith("- Not played as they are")]
    assert not ranked.intersection(re.findall(r"`([^`]+)`", line))


def _results(plan: Leaderboard, means: Mapping[str, float], spread: float = 1.0) -> list[Result]:
    """Private bandits lose their means, each with noise of its own; all others lose 20."""
    made = []
    for place, one in enumerate(fake(plan)):
        player = one.cell.player
        mean = means.get(player.policy, 20.0) if one.cell.asked else 20.0
        mean = 100.0 if player.policy == "uniform" else mean
        noise = np.random.default_rng(place).normal(size=plan.replicates) * spread
        curves = np.stack([np.zeros(plan.replicates), mean + noise - noise.mean()])
        rounds = np.array([1, one.cell.horizon])
        made.append(dataclasses.replace(one, curves=curves, rounds=rounds))
    return made


def _places(plan: Leaderboard, results: list[Result]) -> dict[str, str]:
    (board,) = plan.boards(results)
    return {one.player.policy: one.place() for one in board.standings}


def test_a_bandit_that_loses_clearly_less_is_ahead() -> None:
    found = _places(SMALL, _results(SMALL, {"ucb": 30, "tsallis": 50, "kl-ucb": 40}))
    assert found == {"ucb": "1", "kl-ucb": "2", "tsallis": "3"}


def test_a_difference_within_the_noise_is_a_tie() -> None:
    means = {"ucb": 30, "tsallis": 50, "kl-ucb": 30.1}
    assert _places(SMALL, _results(SMALL, means)) == {"ucb": "1=", "kl-ucb": "1=", "tsallis": "3"}
    sharp = _results(SMALL, means, spread=0.01)
    assert _places(SMALL, sharp) == {"ucb": "1", "kl-ucb": "2", "tsallis": "3"}


def test_bandits_stand_in_the_order_of_their_ranks() -> None:
    """One whose regret varies much may be ahead of nobody and behind nobody."""
    rows = _results(SMALL, {"ucb": 30, "tsallis": 34, "kl-ucb": 33}, spread=0.1)
    wild = player("tsallis", trust="local", epsilon=1.0)
    swing = np.where(np.arange(SMALL.replicates) % 2, 20.0, -20.0)
    rows = [
        dataclasses.replace(one, curves=one.curves + np.array([[0.0], [1.0]]) * swing)
        if one.cell.player == wild
        else one
        for one in rows
    ]
    found = _places(SMALL, rows)
    assert list(found.items()) == [("ucb", "1="), ("tsallis", "1="), ("kl-ucb", "2")]


def test_noise_shared_by_all_policies_does_not_cause_ties() -> None:
    """All meet the same draws: what moves everybody alike does not hide a difference."""
    common = 10 * np.sin(np.arange(SMALL.replicates))
    rows = [
        dataclasses.replace(one, curves=one.curves + np.array([[0.0], [1.0]]) * common)
        for one in _results(SMALL, {"ucb": 30, "tsallis": 50, "kl-ucb": 31}, spread=0.01)
    ]
    assert _places(SMALL, rows) == {"ucb": "1", "kl-ucb": "2", "tsallis": "3"}


def test_the_price_is_against_the_same_bandit_without_privacy() -> None:
    (board,) = SMALL.boards(_results(SMALL, {"ucb": 30, "tsallis": 50, "kl-ucb": 40}))
    assert [one.score[0] for one in board.standings] == pytest.approx([0.3, 0.4, 0.5])
    assert [one.price[0] for one in board.standings] == pytest.approx([0.1, 0.2, 0.3])
    assert all(0 < one.score[1] < 0.01 for one in board.standings)
    assert all(one.p95 > one.score[0] for one in board.standings)
    _, prices = SMALL.tables(_results(SMALL, {"ucb": 30, "tsallis": 50, "kl-ucb": 40}))
    assert prices.headings == ("bandit", "chance", "switching")
    assert prices.lines[0][0] == "ucb"
    assert prices.lines[0][1].startswith("1.5 ± ")
    assert prices.lines[0][1].endswith(" (1)")


def test_policy_missing_an_environment_comes_last_without_rank() -> None:
    found = {
        (one.cell.player, one.cell.world): one
        for one in _results(SMALL, {"ucb": 30, "tsallis": 50, "kl-ucb": 40})
    }
    ucb = player("ucb", trust="local", epsilon=1.0)
    del found[ucb, "switching"]
    players = list(dict.fromkeys(one for one, _ in found if one.trust == "local"))
    made = standings(found, players, ["chance", "switching"])
    assert [(one.player.policy, one.place(), one.worlds) for one in made] == [
        ("kl-ucb", "1", 2), ("tsallis", "2", 2), ("ucb", "-", 1)
    ]  # fmt: skip


def test_an_unfinished_world_is_not_counted() -> None:
    rows = _results(SMALL, {"ucb": 30, "tsallis": 50, "kl-ucb": 40})
    half = [one for one in rows if one.cell.world == "chance"]
    (board,) = SMALL.boards([*half, *[one for one in rows if one.cell.world != "chance"][:-1]])
    assert board.worlds == ("chance",)
    assert SMALL.boards(half[:-1]) == []
    assert SMALL.findings([])["standings"] == []


def test_leaderboard_entries_share_guarantee_and_baselines() -> None:
    plan = Leaderboard.of(
        worlds=("redrawn", "population"), policies=("linucb", "dpe", "elimination")
    )
    for world in plan.worlds:
        cells = [cell for cell in plan.cells() if cell.world == world]
        players = [cell.player for cell in cells]
        assert cells[0].player.policy == "uniform"
        assert len(set(players)) == len(players)
        private = [cell for cell in cells if cell.asked]
        assert {cell.asked for cell in private} == {(1.0, 1e-7)}
        assert all(parent_of(cell.player) in players for cell in private)
    trusts = {(cell.player.policy, str(cell.player.trust)) for cell in plan.cells() if cell.asked}
    assert trusts == {
        *(("linucb", trust) for trust in ("local", "shuffle", "joint", "central")),
        *(("elimination", trust) for trust in ("local", "shuffle", "central")),
        *(("dpe", trust) for trust in ("local", "shuffle", "central")),
    }


def test_misfit_policy_is_left_out_with_its_reason() -> None:
    plan = Leaderboard.of(worlds=("quadratic",), policies=("line-search", "two-point"))
    (left,) = plan.left_out
    assert (left.policy, left.trust, left.environment) == ("line-search", "local", "quadratic")
    assert len(left.reason) > 20
    assert {cell.player.policy for cell in plan.cells() if cell.asked} == {"two-point"}
    assert left.reason in {line[-1] for line in plan.tables(fake(plan))[-1].lines}
    assert plan.findings(fake(plan))["left_out"] == [dataclasses.asdict(left)]


def test_leaderboard_environments_cover_all_private_policies() -> None:
    """The environments also span dimensions, arms, horizons and a wrong link."""
    fitting = [
        [name for name, policy in POLICIES.items() if world.takes(policy)]
        for _, world in WORLDS.items()
    ]
    private = {name for name, one in POLICIES.items() if len(one.trusts) > 1}
    assert private <= {name for names in fitting for name in names}
    full = {name: one for name, one in WORLDS.items() if "full" in one.sizes}
    assert full.keys() == dict(WORLDS.items()).keys()
    rounds = {one.horizon or 1000 for one in full.values()}
    problems = [one.environment.problem(5000) for one in full.values()]
    shared = [one for one in problems if type(one) is Problem and not one.own]
    assert {2, 256} <= {one.dim for one in shared}
    assert {2, 1000} <= {one.arms for one in shared}
    assert 10**6 in rounds
    wrong = WORLDS["misspecified"].environment
    assert isinstance(wrong, GLMEnvironment)
    assert (wrong.problem(9).link, wrong.link) == ("linear", "logistic")


def test_the_page_and_the_markdown_show_the_standings() -> None:
    rows = _results(SMALL, {"ucb": 30, "tsallis": 50, "kl-ucb": 30.1})
    page = render(SMALL, rows, b"")
    assert "<caption>arms, local trust</caption>" in page
    assert '<td>1=</td><td class="word">ucb</td>' in page
    assert "standard errors of the difference" in page
    text = markdown(SMALL.tables(rows))
    assert "| 1= | ucb | 30.0 ± " in text


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        ({"worlds": ("nowhere",)}, UnknownNameError, "nowhere"),
        ({"policies": ("uniform",)}, InvalidValueError, "'uniform' is private under no trust"),
        ({"trusts": ("none",)}, InvalidValueError, "trust is 'none'"),
        ({"replicates": 1}, InvalidValueError, "replicates is 1"),
        ({"size": "tiny"}, InvalidValueError, "size is 'tiny'"),
        ({"worlds": ("chance",), "trusts": ("joint",)}, InvalidValueError, "none of these bandits"),
        ({"worlds": "chance"}, InvalidValueError, "worlds is a str; give a tuple"),
    ],
)
def test_leaderboard_rejects_invalid_selection(
    words: dict[str, object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        Leaderboard.of(**words)  # type: ignore[arg-type]


def test_the_command_plays_the_same_again() -> None:
    assert SMALL.command() == (
        "kerchief leaderboard --size quick --env chance --env switching --policy ucb --policy "
        "tsallis --policy kl-ucb --trust local --trust shuffle --trust joint --trust central "
        "--epsilon 1.0 --delta 1e-07 --replicates 12 --seed 0"
    )
    assert isinstance(SMALL.cells()[0].player, Player)
