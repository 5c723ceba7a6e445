"""What clients of a population sent stands in every table, picture, report and file."""

from __future__ import annotations

import dataclasses
import io

import numpy as np
import polars as pl
import pytest
from matplotlib.lines import Line2D
from tests.comparison.fakes import fake

from kerchief.comparison.comparison import Comparison
from kerchief.comparison.results import HEADINGS, Result, headings_of
from kerchief.reports.figures import draw
from kerchief.reports.parquet import parquet
from kerchief.reports.report import render, side_by_side

PLAN = Comparison(
    policies=("dpe",), trusts=("shuffle",), horizon=500, replicates=2, epsilons=(1.0, 2.0)
)
PLAIN = Comparison(contexts=("ball",), horizon=60, replicates=2, epsilons=(1.0,))


@pytest.fixture(scope="module")
def phased() -> list[Result]:
    """Uniform play sends nothing, all others numbers of 100 bits each."""
    return [
        dataclasses.replace(one, communication={"reals": 7.0 * place, "bits": 700.0 * place})
        for place, one in enumerate(fake(PLAN))
    ]


def test_a_table_has_two_more_columns(phased: list[Result]) -> None:
    headings = headings_of(phased)
    assert headings[6:8] == ("numbers sent", "bits sent")
    assert set(headings) - set(HEADINGS) == {"numbers sent", "bits sent"}
    for place, row in enumerate(phased):
        told = dict(zip(headings, row.texts(), strict=True))
        assert told["numbers sent"] == str(7 * place)
        assert told["bits sent"] == str(700 * place)
    assert headings_of(fake(PLAIN)) == HEADINGS
    assert len(fake(PLAIN)[0].texts()) == len(HEADINGS)


def test_sent_columns_come_last_side_by_side(phased: list[Result]) -> None:
    table = side_by_side(PLAN, phased)
    assert table.headings[-2:] == ("numbers sent", "bits sent")
    assert [line[-2:] for line in table.lines][:2] == [("0", "0"), ("7", "700")]
    assert len(side_by_side(PLAIN, fake(PLAIN)).headings) == 3


def test_long_form_has_both_sent_columns_or_null(phased: list[Result]) -> None:
    table = pl.read_parquet(io.BytesIO(parquet(PLAN, phased)))
    assert table["bits_sent"].unique(maintain_order=True).to_list() == [
        700.0 * place for place in range(len(phased))
    ]
    assert (table["bits_sent"] == 100 * table["reals_sent"]).all()
    other = pl.read_parquet(io.BytesIO(parquet(PLAIN, fake(PLAIN))))
    assert other["bits_sent"].is_null().all()


def test_report_states_bits_sent(phased: list[Result]) -> None:
    text = render(PLAN, phased, b"png")
    assert "bits sent" in text
    assert ">2100<" in text
    assert "bits sent" not in render(PLAIN, fake(PLAIN), b"png")


def _places(line: Line2D) -> list[float]:
    places: list[float] = np.asarray(line.get_xdata(), np.float64).tolist()
    return places


def test_picture_has_panel_of_bits_sent(phased: list[Result]) -> None:
    axes = draw(PLAN, phased).axes
    assert [one.get_xlabel() for one in axes] == ["rounds", "ε asked for", "bits sent"]
    # One point for everybody who sent something.
    places = [_places(line)[0] for line in axes[-1].lines if line.get_marker() == "o"]
    assert places == [row.communication["bits"] for row in phased[1:]]
    assert len(draw(PLAIN, fake(PLAIN)).axes) == 1


def test_players_that_differ_in_numbers_alone_are_joined(phased: list[Result]) -> None:
    player = phased[-1].cell.player
    other = dataclasses.replace(player, numbers=(("growth", 0.5),))
    more = dataclasses.replace(
        phased[-1],
        cell=dataclasses.replace(phased[-1].cell, player=other),
        communication={"reals": 1.0, "bits": 100.0},
    )
    (*_, axes) = draw(PLAN, [*phased, more]).axes
    assert any(sorted(_places(line)) == [100.0, 2800.0] for line in axes.lines)


def test_rewards_stand_beside_regrets_where_they_are_wanted() -> None:
    row = dataclasses.replace(fake(PLAIN)[0], earned=np.array([20.0, 30.0]))
    rounds = int(row.rounds[-1])
    wanted = {"mean": 25.0 / rounds, "se": 5.0 / rounds}
    assert row.to_dict()["reward"] == pytest.approx(wanted)
    headings = headings_of([row], rewarded=True)
    assert set(headings) - set(HEADINGS) == {"reward ± s.e."}
    told = dict(zip(headings, row.texts(rewarded=True), strict=True))
    assert told["reward ± s.e."].startswith(f"{25.0 / rounds:#.3g} ± ")
    assert fake(PLAIN)[0].to_dict()["reward"] is None
