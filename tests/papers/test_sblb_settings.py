"""The settings of Table 1: three promises each, and players on batches of a given length."""

from __future__ import annotations

import math
from typing import Any

import pytest

from kerchief.comparison.players import Key, Player, player
from kerchief.environments import make_environment
from kerchief.papers.catalogue import EXPERIMENTS
from kerchief.papers.catalogue.sblb import (
    COROLLARIES,
    LENGTHS,
    LOCAL,
    REGRET,
    first_term,
    spends,
)
from kerchief.policies.linear.sblb import corollary_keep
from kerchief.privacy import Trust

HORIZON, DELTA = 20_000, 1e-5
PROBLEM = make_environment(contexts="orthant", dim=2, arms=10).problem(HORIZON)


def sums(one: Player) -> Any:
    return one.build_protected(PROBLEM, one.promise(DELTA, HORIZON)).privatizers["moments"]


def test_equal_batches_of_the_length_that_was_named() -> None:
    assert sums(REGRET).ends == tuple(range(250, HORIZON + 1, 250))
    assert REGRET.label() == "sblb length=250 shuffle, bit ε=1"
    assert REGRET.parents() == player("sblb", trust="shuffle", epsilon=1.0).parents()


@pytest.mark.parametrize(
    ("one", "wire", "model"),
    [
        (LOCAL[0], 1.0, 0.074),
        (LOCAL[1], 5.0, 0.49),
        (REGRET, 7.6, 1.0),
        (COROLLARIES[0], 0.65, 0.037),
        (COROLLARIES[1], 0.72, 0.041),
    ],
)
def test_a_setting_makes_three_promises(one: Player, wire: float, model: float) -> None:
    """To the device's wire, of the shuffler's output and of the model; all nearly used up."""
    views = sums(one).views(DELTA)
    assert views["device wire"].trust is Trust.LOCAL
    assert 0.97 * wire <= views["device wire"].epsilon <= wire
    assert views["device wire"].delta == 0
    for view in ("shuffler output", "published model"):
        assert 0.97 * model <= views[view].epsilon <= model


def test_paper_table_understates_privacy_of_7_and_overstates_8() -> None:
    """Joint epsilons: of corollary 7, ε₀^(3/2)/T^(1/4); of corollary 8, at most 1/(27 T^(1/4))."""
    first, second = (sums(one).views(DELTA)["published model"].epsilon for one in COROLLARIES)
    assert first < HORIZON**-0.25
    assert second > 10 / (27 * HORIZON**0.25)
    assert COROLLARIES[0].epsilon == pytest.approx(math.sqrt(math.e - 1))


def test_claims_of_the_paper_name_the_place_that_makes_them() -> None:
    """The joint epsilon of Corollary 7 stands in Table 1; no rate in T is of Corollary 8's p."""
    names = ("sblb", "sblb-settings", "sblb-rates")
    places = [claim.place for name in names for claim in EXPERIMENTS[name].claims if claim.place]
    assert places == ["Appendix C", "Table 1, the row of Corollary 7", "Theorem 10"]


@pytest.mark.parametrize("rounds", LENGTHS)
def test_largest_epsilon_of_corollary_8_has_another_rate(rounds: int) -> None:
    largest = 1 / (27 * rounds**0.25)
    assert rounds ** (2 / 3) / largest ** (1 / 3) == pytest.approx(3 * rounds**0.75)
    d, radius, bits, growth, keep = 2, 1.0, 1, 0.5, corollary_keep(largest, rounds)
    root = math.sqrt((1 + growth) * math.log(1 + rounds / (d * math.sqrt(rounds))))
    printed = 2 * math.sqrt(3) * (radius + bits * d) * rounds**0.75 / math.sqrt(keep) * root
    assert first_term(rounds) == pytest.approx(printed)


def test_claim_about_spent_budget_can_fail() -> None:
    class Row:
        spent = (0.5, DELTA)

    key = Key(REGRET, "d=2")
    results: Any = {key: Row()}
    assert spends(key, low=0.4, high=0.6).test(results) == (True, "0.5")
    assert not spends(key, low=0.6, high=0.7).test(results)[0]
    assert not spends(key, low=0.1, high=0.4).test(results)[0]
