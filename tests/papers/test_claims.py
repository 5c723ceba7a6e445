"""Every claim passes when it should, fails when it should, and is judged at its own size alone."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from tests.comparison.fakes import fake_result

from kerchief.comparison.players import Cell, Key, player
from kerchief.comparison.results import Result
from kerchief.core.errors import InvalidValueError
from kerchief.papers.claims import (
    Claim,
    Results,
    all_of,
    at,
    falling,
    judge,
    no_steeper,
    paid,
    rows,
    slope,
)

LOW, HIGH = (at(player("linucb", trust="joint", epsilon=epsilon), "ball") for epsilon in (0.2, 5.0))
UNIFORM = at(player("uniform"), "ball")


def row(key: Key, mean: float, se: float | None = 1.0, *, replicates: int = 10) -> Result:
    cell = Cell(player=key.player, world=key.world, delta=1e-5, horizon=100)
    return fake_result(cell, mean, se, replicates=replicates)


# Ten times as many rounds as of the other rows: regret goes with rounds^-1.1.
LONG = at(LOW.player, "longer ball")
_LONGER = row(LONG, 50.0 * 10**-1.1, 0.2)

ROWS: Results = {
    UNIFORM: row(UNIFORM, 100.0),
    LOW: row(LOW, 50.0),
    HIGH: row(HIGH, 20.0),
    LONG: dataclasses.replace(_LONGER, cell=dataclasses.replace(_LONGER.cell, horizon=1000)),
}


@pytest.mark.parametrize(
    ("passes", "fails"),
    [
        (LOW.at_most(52.0), LOW.at_most(51.9)),
        (LOW.at_most(50.0, errors=0), LOW.at_most(49.9, errors=0)),
        (LOW.at_least(48.0), LOW.at_least(48.1)),
        (LOW.within(55.0, share=0.13), LOW.within(55.0, share=0.12)),
        (LOW.within(45.0, share=0.16), LOW.within(45.0, share=0.15)),
        (LOW.below(UNIFORM), UNIFORM.below(LOW)),
        (LOW.below(UNIFORM, errors=35), LOW.below(UNIFORM, errors=36)),
        (LOW.below(UNIFORM, times=0.6), LOW.below(UNIFORM, times=0.53)),
        (UNIFORM.below(LOW, times=2.2), UNIFORM.below(LOW, times=2.1)),
        (falling([UNIFORM, LOW, HIGH]), falling([UNIFORM, HIGH, LOW])),
        (falling([UNIFORM, LOW], errors=35), falling([UNIFORM, LOW], errors=36)),
        (paid([LOW, HIGH]), paid([LOW, UNIFORM])),
        (
            all_of("both", LOW.at_most(60), HIGH.at_most(60)),
            all_of("both", LOW.at_most(60), HIGH.at_most(10)),
        ),
    ],
)
def test_claims_pass_and_fail(passes: Claim, fails: Claim) -> None:
    assert judge(passes, ROWS, large_enough=True).outcome == "holds"
    assert judge(fails, ROWS, large_enough=True).outcome == "fails"


@pytest.mark.parametrize(
    ("true", "false", "undecided"),
    [
        (LOW.at_most(52.0), LOW.at_most(47.9), LOW.at_most(51.9)),
        (LOW.at_least(48.0), LOW.at_least(52.1), LOW.at_least(51.9)),
        (
            LOW.within(55.0, share=0.13),
            LOW.within(55.0, share=0.05),
            LOW.within(55.0, share=0.1),
        ),
        (LOW.below(UNIFORM), LOW.below(HIGH), LOW.below(UNIFORM, times=0.5)),
        (LOW.p95_at_most(53.0), LOW.p95_at_most(52.0), LOW.p95_at_most(51.0, errors=10)),
        (
            falling([UNIFORM, LOW, HIGH]),
            falling([LOW, UNIFORM, HIGH]),
            falling([UNIFORM, LOW], errors=40),
        ),
        (
            all_of("both", LOW.at_most(60), HIGH.at_most(60)),
            all_of("both", LOW.at_most(51), HIGH.at_most(10)),
            all_of("both", LOW.at_most(51), HIGH.at_most(60)),
        ),
        (
            no_steeper([LOW, LONG], -1.0),
            no_steeper([LOW, LONG], -1.5),
            no_steeper([LOW, LONG], -1.17),
        ),
        (slope([LOW, LONG], -1.1), slope([LOW, LONG], 0.0), slope([LOW, LONG], -1.05)),
    ],
)
def test_paper_claim_is_undecided_within_errors(
    true: Claim, false: Claim, undecided: Claim
) -> None:
    """A paper's claim does not hold only if its negation is clear; ours fails in between, too."""
    for claim, outcome in (
        (true, "holds"),
        (false, "does not hold here"),
        (undecided, "undecided"),
    ):
        of_paper = claim.from_paper("Table 2", "holds")
        assert judge(of_paper, ROWS, large_enough=True).outcome == outcome
    assert judge(undecided, ROWS, large_enough=True).outcome == "fails"


HOLDS, CONTRADICTED, BETWEEN = LOW.at_most(60), LOW.at_most(10), LOW.at_most(50.5)


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize(
    ("claim", "recorded", "confirmed"),
    [
        (HOLDS, "holds", (True, True)),
        (HOLDS, "does not hold here", (False, False)),
        (CONTRADICTED, "does not hold here", (True, True)),
        (CONTRADICTED, "holds", (False, False)),
        (BETWEEN, "holds", (True, False)),
        (BETWEEN, "does not hold here", (True, False)),
    ],
)
def test_verdict_is_compared_with_the_recorded_one(
    claim: Claim, recorded: Any, confirmed: tuple[bool, bool], *, full: bool
) -> None:
    of_paper = claim.from_paper("Table 2", recorded)
    verdict = judge(of_paper, ROWS, large_enough=True, full=full)
    assert verdict.confirmed is confirmed[full]
    assert judge(of_paper, ROWS, large_enough=False, full=full).confirmed
    assert (verdict.source, verdict.place, verdict.recorded) == ("paper", "Table 2", recorded)


def test_our_claim_fails_at_every_size_where_it_is_undecided() -> None:
    for full in (False, True):
        assert judge(HOLDS, ROWS, large_enough=True, full=full).confirmed
        assert not judge(BETWEEN, ROWS, large_enough=True, full=full).confirmed


def test_sources_of_claims_are_not_mixed() -> None:
    with pytest.raises(
        InvalidValueError, match="recorded is 'false'; choose one of holds, does not"
    ):
        HOLDS.from_paper("Table 2", "false")  # type: ignore[arg-type]
    with pytest.raises(InvalidValueError, match="has no place"):
        HOLDS.from_paper("", "holds")
    for change in ({"recorded": "does not hold here"}, {"place": "Table 2"}, {"figures": "5"}):
        with pytest.raises(InvalidValueError, match="only a paper's claim has them"):
            dataclasses.replace(HOLDS, **change)  # type: ignore[arg-type]


def test_slope_claim_fits_regrets_and_allows_for_their_errors() -> None:
    keys = [at(player("linucb"), f"T={horizon}") for horizon in (100, 1000, 10_000)]

    def grown(exponent: float, share: float) -> Results:
        rows: dict[Key, Result] = {}
        for key in keys:
            horizon = int(key.world[2:])
            one = row(key, 3 * horizon**exponent, share * 3 * horizon**exponent)
            cell = dataclasses.replace(one.cell, horizon=horizon)
            rows[key] = dataclasses.replace(one, cell=cell)
        return rows

    claim = slope(keys, 0.5)
    for exponent, share, outcome in (
        (0.5, 0.0, "holds"),
        (0.569, 0.0, "holds"),
        (0.431, 0.0, "holds"),
        (0.571, 0.0, "fails"),
        (0.429, 0.0, "fails"),
        # The slope of three means, each with error s, has error s / (√2 log 10).
        (0.5, 0.11, "holds"),
        (0.5, 0.12, "fails"),
    ):
        assert judge(claim, grown(exponent, share), large_enough=True).outcome == outcome
    bound = no_steeper(keys, 0.5)
    for exponent, share, outcome in (
        (0.2, 0.0, "holds"),
        (0.569, 0.0, "holds"),
        (0.571, 0.0, "fails"),
        (0.5, 0.12, "fails"),
    ):
        assert judge(bound, grown(exponent, share), large_enough=True).outcome == outcome
    finding = judge(bound, {key: row(key, 0.0, 0.0) for key in keys}, large_enough=True)
    assert finding.outcome == "fails"
    assert "a regret is 0" in finding.seen


def test_a_share_of_right_answers_pays_for_its_error() -> None:
    for right, outcome in ((1.0, "holds"), (0.95, "fails"), (None, "fails")):
        named = dataclasses.replace(row(LOW, 1.0, replicates=400), right=right)
        claim = LOW.names_best(0.95)
        assert judge(claim, {LOW: named}, large_enough=True).outcome == outcome


def tailed(worst: int, replicates: int = 400) -> Result:
    """So many replicates lose 90 in the second half, where uniform play loses 50; others none."""
    bad = np.arange(replicates) < worst
    curves = np.stack([np.full(replicates, 10.0), 10.0 + 90.0 * bad])
    made = row(LOW, 1.0, replicates=replicates)
    return dataclasses.replace(made, rounds=np.array([50, 100]), curves=curves)


def test_claims_about_the_tail_pay_for_their_error() -> None:
    for worst, outcome in ((2, "holds"), (19, "fails"), (60, "fails")):
        results: Results = {LOW: tailed(worst)}
        assert judge(LOW.p95_at_most(50.0), results, large_enough=True).outcome == outcome


def test_regret_summary_includes_its_tail() -> None:
    regret = tailed(40).regret
    assert (regret.median, regret.p95, regret.max, regret.unconverged) == (10.0, 100.0, 100.0, 0.1)


@pytest.mark.parametrize(
    "change",
    [{"epsilon": 0.21}, {"delta": 2e-5}, {"epsilon": math.inf, "delta": 0.0, "trust": "none"}],
)
def test_a_broken_bill_is_named(change: dict[str, Any]) -> None:
    spent = dataclasses.replace(ROWS[LOW].guarantee, **change)
    broken = dataclasses.replace(ROWS[LOW], guarantee=spent)
    verdict = judge(paid([LOW, HIGH]), {**ROWS, LOW: broken}, large_enough=True)
    assert verdict.outcome == "fails"
    assert "linucb joint ε=0.2 on ball spent" in verdict.seen


def test_a_single_replicate_shows_nothing() -> None:
    alone = {**ROWS, LOW: row(LOW, 1.0, se=None)}
    assert judge(LOW.at_most(1e9), alone, large_enough=True).outcome == "fails"


def test_a_claim_is_not_judged_below_its_size() -> None:
    verdict = judge(LOW.at_most(60), ROWS, large_enough=False)
    assert (verdict.outcome, verdict.seen) == ("not judged", "not judged at this size")


def test_a_claim_is_not_judged_without_its_rows() -> None:
    verdict = judge(LOW.below(UNIFORM), {LOW: ROWS[LOW]}, large_enough=True)
    assert verdict.outcome == "not judged"
    assert "not all of its rows" in verdict.seen


def test_verdict_states_claim_and_observed_values() -> None:
    verdict = judge(LOW.below(UNIFORM, times=0.6), ROWS, large_enough=True)
    assert verdict.claim == "linucb joint ε=0.2 on ball: below 0.6 times uniform on ball"
    assert verdict.seen == "50.0 ± 1.0 against 100 ± 1.0"
    steps = judge(falling([LOW, HIGH]), ROWS, large_enough=True)
    assert steps.claim == "regret on ball falls: linucb joint ε=0.2 > linucb joint ε=5"
    broken = all_of("both", LOW.at_most(60), HIGH.at_most(10))
    seen = judge(broken, ROWS, large_enough=True).seen
    assert seen == "linucb joint ε=5 on ball: at most 10.0, but 20.0 ± 1.0"
    assert set(broken.needs) == {LOW, HIGH}


def test_rows_make_one_claim_for_each_row() -> None:
    both = rows([LOW.player, HIGH.player], "ball")
    assert list(both) == [LOW, HIGH]
    cases = [
        (both.at_most((60, 30)), (LOW.at_most(60), HIGH.at_most(30))),
        (both.below(UNIFORM), (LOW.below(UNIFORM), HIGH.below(UNIFORM))),
        (both.below(UNIFORM.player), (LOW.below(UNIFORM), HIGH.below(UNIFORM))),
        (both.below(reversed(both), times=2), (LOW.below(HIGH, times=2), HIGH.below(LOW, times=2))),
        (both.above(UNIFORM.player), (UNIFORM.below(LOW), UNIFORM.below(HIGH))),
        (
            both.below_uniform(times=0.5),
            (LOW.below_uniform(times=0.5), HIGH.below_uniform(times=0.5)),
        ),
    ]
    for claims, expected in cases:
        assert [claim.sentence for claim in claims] == [claim.sentence for claim in expected]
        assert [claim.test(ROWS) for claim in claims] == [claim.test(ROWS) for claim in expected]
