"""The form of an experiment expresses what papers show, and is checked whole."""

from __future__ import annotations

import dataclasses
import math
from functools import partial
from typing import Any

import pytest
from tests.comparison.fakes import fake

from kerchief.comparison.players import player
from kerchief.comparison.results import Result
from kerchief.comparison.runner import compare
from kerchief.core.errors import InvalidValueError
from kerchief.environments import make_environment
from kerchief.papers.catalogue.worlds import by_contexts
from kerchief.papers.claims import at
from kerchief.papers.experiment import Experiment, Setting, Size
from kerchief.reports.figures import draw
from kerchief.reports.report import render, side_by_side

PRIVATE = player("linucb", trust="joint", epsilon=4.0)
BOLD = player("linucb", trust="joint", epsilon=4.0, exploration=2.0)
UNIFORM, PARENT = player("uniform"), player("linucb")

# The shape of a paper's table: worlds by their radius, a picture over a number of each.
TABLE = Experiment(
    name="table",
    title="A table",
    summary="a small one",
    source="a paper",
    settings=tuple(
        Setting(
            name=f"S={radius:g}",
            make=partial(make_environment, link="probit", dim=2, arms=3, radius=radius),
            number=kappa,
        )
        for radius, kappa in ((2.0, 18.39), (2.5, 56.44), (3.0, 222.15), (3.5, 1000.0))
    ),
    players=(PRIVATE, BOLD),
    delta=0.02,
    full=Size(horizon=60, replicates=4),
    quick=Size(horizon=30, replicates=2, settings=("S=2", "S=3")),
    claims=(
        at(PRIVATE, "S=2").at_most(1e6),
        at(PRIVATE, "S=2").below(at(UNIFORM, "S=3"), times=1e6, quick=True),
    ),
    printed={at(PRIVATE, "S=2"): 674.17, at(PARENT, "S=2.5"): 1943.23},
    panels=("rounds",),
    axis="κ",
)


@pytest.fixture(scope="module")
def finished() -> list[Result]:
    return fake(TABLE.plan())


def test_yardsticks_and_parents_play_along() -> None:
    labels = [one.label() for one in TABLE.lineup(TABLE.full, TABLE.settings[0].name)]
    assert labels == [
        "uniform",
        "greedy not private",
        "linucb not private",
        "linucb joint ε=4",
        "linucb exploration=2 joint ε=4",
    ]
    assert len(TABLE.plan().cells()) == 4 * 5
    assert len(TABLE.plan(quick=True).cells()) == 2 * 5


@pytest.mark.nightly
def test_a_world_may_have_rounds_of_its_own() -> None:
    world = Setting(name="long", make=TABLE.settings[0].make, number=1.0, horizon=50)
    claims = (at(PRIVATE, "long").at_most(1e6, quick=True),)
    table = dataclasses.replace(
        TABLE,
        settings=(*TABLE.settings, world),
        quick=Size(horizon=30, replicates=2, settings=("S=2", "long"), players=(PRIVATE,)),
        claims=claims,
        printed={},
    )
    plan = table.plan(quick=True)
    assert {cell.world: cell.horizon for cell in plan.cells()} == {"S=2": 30, "long": 50}
    assert {one.cell.world: int(one.rounds[-1]) for one in compare(plan)} == {
        "S=2": 30,
        "long": 50,
    }


def test_numbers_are_replaced(finished: list[Result]) -> None:
    problem = make_environment(link="probit", dim=2, arms=3, radius=2.0).problem(10)
    bold: Any = BOLD.build_protected(problem, BOLD.promise(1e-5, 10)).policy
    assert bold.exploration == 2.0
    rows = {row.cell.key: row for row in finished}
    assert rows[at(PRIVATE, "S=2")].to_dict()["parameters"] == {}
    assert rows[at(BOLD, "S=2")].to_dict()["parameters"] == {"exploration": 2.0}
    free = player("linucb").promise(1e-5, 10)
    with pytest.raises(
        InvalidValueError, match="parameter is 'courage'; LinUCB has confidence, damping"
    ):
        player("linucb", courage=1.0).build_protected(problem, free)
    with pytest.raises(InvalidValueError, match="parameter is 'query'"):
        player("linucb", query=1.0).build_protected(problem, free)
    for wrong in (-1.0, math.nan, math.inf, "x"):
        with pytest.raises(InvalidValueError, match="exploration is"):
            player("linucb", exploration=wrong).build_protected(problem, free)  # type: ignore[arg-type]


def test_the_table_has_a_column_a_world(finished: list[Result]) -> None:
    table = side_by_side(TABLE.plan(), finished)
    assert table.headings == (
        "", "spent ε, δ", "S=2 (printed)", "S=2.5 (printed)", "S=3", "S=3.5"
    )  # fmt: skip
    lines = {line[0]: line for line in table.lines}
    assert lines["linucb joint ε=4"][1] == "4, 0.02"
    assert lines["linucb joint ε=4"][2].endswith(" (674)")
    assert lines["linucb not private"][3].endswith(" (1943)")
    assert "(" not in lines["linucb joint ε=4"][4]
    pages = table.pages(3)
    assert [len(page.headings) for page in pages] == [5, 3]
    assert all(page.lines[0][0] == "uniform" for page in pages)


def test_a_stopped_run_has_a_partial_table(finished: list[Result]) -> None:
    plan = TABLE.plan()
    rows = finished[:6]
    assert side_by_side(plan, rows).lines[1][3] == "-"
    outcomes = [verdict.outcome for verdict in plan.verdicts(rows)]
    assert outcomes == ["holds", "not judged", "not judged"]


def test_a_world_may_have_players_of_its_own() -> None:
    first, *others = TABLE.settings
    small = dataclasses.replace(
        TABLE, settings=(dataclasses.replace(first, players=(PRIVATE,)), *others)
    )
    labels = [one.label() for one in small.lineup(small.full, first.name)]
    assert labels == ["uniform", "greedy not private", "linucb not private", "linucb joint ε=4"]
    assert len(small.plan().cells()) == 4 * 5 - 1
    with pytest.raises(InvalidValueError, match="S=2: linucb joint ε=9 is none of its players"):
        dataclasses.replace(
            TABLE,
            settings=(
                dataclasses.replace(first, players=(player("linucb", trust="joint", epsilon=9.0),)),
                *others,
            ),
        )
    with pytest.raises(InvalidValueError, match="is not played"):
        dataclasses.replace(TABLE, settings=(dataclasses.replace(first, players=(BOLD,)), *others))
    with pytest.raises(InvalidValueError, match="has two worlds 'S=2'; name them apart"):
        dataclasses.replace(TABLE, settings=(first, *TABLE.settings))
    with pytest.raises(InvalidValueError, match="players are for fixd; no world is of that kind"):
        by_contexts("fixed", players={"fixd": (PRIVATE,)}, dim=2, arms=3)


def test_parents_that_a_size_names_play_in_every_world() -> None:
    first, *others = TABLE.settings
    wide = player("linucb", mode="theory")
    size = dataclasses.replace(TABLE.full, players=(PARENT, wide, PRIVATE, BOLD))
    small = dataclasses.replace(
        TABLE, full=size, settings=(dataclasses.replace(first, players=(PRIVATE,)), *others)
    )
    assert small.lineup(size, first.name)[2:] == (PARENT, wide, PRIVATE)
    assert small.lineup(size, others[0].name)[2:] == (PARENT, wide, PRIVATE, BOLD)


def test_the_picture_has_an_axis_of_worlds(finished: list[Result]) -> None:
    panels = draw(TABLE.plan(), finished).axes
    assert len(panels) == 1 + 4
    assert panels[0].get_xlabel() == "κ"
    assert {text.get_text() for text in panels[0].texts} == {
        one.label() for one in TABLE.lineup(TABLE.full, TABLE.settings[0].name)
    }
    only = dataclasses.replace(TABLE, panels=())
    assert len(draw(only.plan(), finished).axes) == 1


def test_the_report_shows_printed_values_and_claims(finished: list[Result]) -> None:
    page = render(TABLE.plan(), finished, b"png")
    for words in (
        "A table",
        "(674)",
        "holds",
        "S=2.5 (printed)",
        "<span>reproduce</span> <span>table",
    ):
        assert words in page


def test_claims_are_judged_at_their_size_alone() -> None:
    def outcomes(**size: Any) -> list[str]:
        plan = TABLE.plan(**size)
        return [verdict.seen for verdict in plan.verdicts([])]

    small, missing = "not judged at this size", "not all of its rows were finished"
    assert outcomes() == [missing, missing, missing]
    assert outcomes(quick=True) == [small, missing, missing]
    assert outcomes(replicates=3) == [small, missing, missing]
    assert outcomes(quick=True, replicates=100) == [small, missing, missing]


def test_a_large_delta_is_warned_of() -> None:
    (warning,) = TABLE.plan().warnings()
    assert "delta is 0.02" in warning


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"claims": ()}, "claims nothing"),
        ({"panels": (), "axis": None}, "draws nothing"),
        ({"claims": (at(PRIVATE, "S=9").at_most(1),)}, "linucb joint ε=4 on S=9 is not played"),
        ({"claims": (at(PRIVATE, "S=2.5").at_most(1, quick=True),)}, "is not played"),
        ({"printed": {at(player("greedy", trust="local"), "S=2"): 1.0}}, "is not played"),
        ({"settings": (Setting(name="S=2", make=make_environment),)}, "is not played"),
    ],
)
def test_a_wrong_declaration_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidValueError, match=words):
        dataclasses.replace(TABLE, **change)


def test_an_axis_needs_numbers() -> None:
    settings = tuple(dataclasses.replace(one, number=None) for one in TABLE.settings)
    with pytest.raises(InvalidValueError, match="give each world its number"):
        dataclasses.replace(TABLE, settings=settings)


@pytest.mark.parametrize("change", [{"replicates": 1}, {"replicates": 10**7}, {"seed": -1}])
def test_bad_sizes_are_refused(change: dict[str, int]) -> None:
    (name,) = change
    with pytest.raises(InvalidValueError, match=f"{name} is"):
        TABLE.plan(**change)  # type: ignore[arg-type]
