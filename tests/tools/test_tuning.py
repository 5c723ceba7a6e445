"""Recorded searches: what is declared is played, what was found is what bandits play."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.comparison.fakes import fake_result
from tools.tuning import recorded
from tools.tuning.halving import Trial, tune
from tools.tuning.outcome import Outcome
from tools.tuning.recorded import SEARCHES, module
from tools.tuning.scores import gain, score, tail_of
from tools.tuning.search import Search
from tools.tuning.space import drawn

from kerchief.comparison.archive import Archive
from kerchief.comparison.chunks import Chunk
from kerchief.comparison.comparison import Comparison
from kerchief.comparison.results import Result
from kerchief.comparison.run_folder import Folder
from kerchief.comparison.runner import RunState, Watch
from kerchief.comparison.seeds import SEEDS, tuning_seed
from kerchief.core.errors import InvalidValueError, KerchiefError
from kerchief.papers.catalogue import EXPERIMENTS
from kerchief.papers.leaderboard import Leaderboard
from kerchief.planning.planning import Planning
from kerchief.policies import tuned

ROOT = Path(__file__).parents[2]
Play = Callable[[RunState, Watch], Iterator[Result]]


def declared(**changes: Any) -> dict[str, Any]:
    """A small search for the width of UCB, as a file would hold it."""
    world = {"name": "coins", "env": "chance", "options": {"arms": 3}, "horizon": 60}
    return {
        "policy": "ucb",
        "seeds": [11_000, 12_000],
        "space": {"width": [0.25, 0.5, 1.0, 2.0, 4.0]},
        "incumbent": {"width": 1.0},
        "budget": {"candidates": [4, 2], "replicates": [2, 4], "confirm": 6},
        "worlds": [world | {"delta": 1e-5, "trusts": ["none", "local"], "epsilons": [1.0, 4.0]}],
        **changes,
    }


SMALL = Search.of(declared())


def played(regret: Callable[[float, int], float], *, spread: float = 0.1) -> Play:
    """A stand-in for `RunState.results`, where regret follows from the width and the seed."""

    def results(work: RunState, watch: Watch) -> Iterator[Result]:
        for cell in work.plan.cells():
            width = dict(cell.player.numbers).get("width")
            mean = 100.0 if width is None else regret(width, work.plan.seed)
            yield fake_result(cell, mean, spread, replicates=work.plan.replicates)

    return results


def found(monkeypatch: pytest.MonkeyPatch, play: Play, search: Search = SMALL) -> Outcome:
    monkeypatch.setattr(RunState, "results", play)
    return tune(search)


def best_at(width: float) -> Callable[[float, int], float]:
    return lambda mine, seed: 20.0 + abs(np.log(mine / width))


# What is recorded here.


def test_the_numbers_that_bandits_read_are_fresh() -> None:
    text = Path(tuned.__file__).read_text(encoding="utf-8")
    assert text == module(), "policies/tuned.py is stale; run `make tuned`"


@pytest.mark.parametrize("name", list(SEARCHES))
def test_tuned_defaults_match_recorded_search(name: str) -> None:
    assert SEARCHES[name].complaints() == []
    outcome = SEARCHES[name].outcome
    assert outcome is not None
    assert outcome.search.policy == name
    # The file says what follows from its own evaluations.
    assert Path(recorded.FOLDER, f"{name}.json").read_text(encoding="utf-8") == outcome.text()
    rungs = outcome.search.budget
    last = [one for one in outcome.evaluations if one.rung == len(rungs.candidates)]
    (own,) = (one for one in last if one.numbers == dict(outcome.search.incumbent))
    others = [one for one in last if one is not own]
    assert min(others, key=lambda one: (one.p95 > own.p95, one.score)).numbers == outcome.best
    for rung, times in enumerate(rungs.replicates, start=1):
        assert {one.replicates for one in outcome.evaluations if one.rung == rung} == {times}


@pytest.mark.parametrize("name", list(SEARCHES))
def test_tuning_page_matches_recorded_search(name: str) -> None:
    outcome, page = SEARCHES[name].outcome, (ROOT / "docs" / "tuning.md").read_text("utf-8")
    assert outcome is not None
    numbers, best = (
        ", ".join(f"{number} {one:g}" for number, one in sorted(numbers.items()))
        for numbers in (outcome.chosen, outcome.best)
    )
    first, often = outcome.search.budget.candidates[0], outcome.search.budget.confirm
    row = f"| `{name}` | {numbers} | {first} | {often} | {best} | {outcome.verdict()} |"
    assert row in page.splitlines(), f"docs/tuning.md lacks the row {row}"


@pytest.mark.parametrize("name", list(SEARCHES))
def test_bandits_have_no_other_source_of_these_numbers(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = {number: 1.5 * value for number, value in tuned.TUNED[name].items()}
    monkeypatch.setitem(tuned.TUNED, name, other)
    assert SEARCHES[name].played() == [other]
    assert len(SEARCHES[name].complaints()) == 2


def test_reported_results_use_no_tuning_seed() -> None:
    pages = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*")]
    pages += [*ROOT.glob("src/**/*.md"), *ROOT.glob("src/kerchief/papers/catalogue/*.py")]
    texts = [one.read_text("utf-8") for one in pages if one.is_file() and one.stem != "tuning"]
    near = [one for text in texts for one in re.findall(r"(?i)seeds?\b(.{0,30})", text)]
    written = {int(number) for one in near for number in re.findall(r"\d+", one)}
    assert {0, 1000, 7411, 8501} <= written
    plans = [one.plan(quick=True) for _, one in EXPERIMENTS.items()]
    played = {one.seed for one in plans} | {Comparison.seed, Planning.seed}
    played |= {Leaderboard.of(size="quick", worlds=("chance",), policies=("ucb",)).seed}
    assert not (written | played) & set(SEEDS)


def test_results_on_a_tuning_seed_are_warned_about() -> None:
    told = {seed: Comparison(seed=seed, horizon=20).warnings() for seed in (0, SEEDS[0])}
    assert not any("tuned" in one for one in told[0])
    assert any(f"seed is {SEEDS[0]}, on which defaults were tuned" in one for one in told[SEEDS[0]])


@pytest.mark.parametrize("seed", [0, 1000, 9631, SEEDS[-1] + 1])
def test_reported_seeds_are_refused(seed: int) -> None:
    with pytest.raises(InvalidValueError, match=f"seed is {seed}, on which results are reported"):
        tuning_seed(seed)


# How a search goes.


def test_a_clearly_better_candidate_replaces_the_incumbent(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = found(monkeypatch, played(best_at(0.5)))
    assert outcome.beaten
    assert outcome.chosen == outcome.best == {"width": 0.5}
    assert outcome.verdict().startswith("incumbent is replaced: gain +0.0")
    assert outcome.overall.gain == pytest.approx(np.log((20 + np.log(2)) / 20), rel=1e-3)
    assert len(outcome.cells) == 3


def test_rungs_keep_the_best_and_the_incumbent(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = found(monkeypatch, played(best_at(0.25)))
    rungs = {
        rung: [one.numbers["width"] for one in each]
        for rung, each in itertools.groupby(outcome.evaluations, key=lambda one: one.rung)
    }
    assert rungs == {1: [1.0, 0.25, 0.5, 2.0, 4.0], 2: [1.0, 0.25, 0.5]}
    assert outcome.runner_up is not None
    assert outcome.runner_up.numbers == {"width": 0.5}


def test_lucky_candidate_is_not_confirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    lucky = played(lambda width, seed: 10.0 if (width, seed) == (2.0, 11_000) else 20.0)
    outcome = found(monkeypatch, lucky)
    assert outcome.best == {"width": 2.0}
    assert outcome.chosen == {"width": 1.0}
    assert outcome.verdict() == "incumbent stays: gain +0.000 ± 0.000"


def test_a_candidate_that_loses_in_one_cell_is_not_preferred(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def results(work: RunState, watch: Watch) -> Iterator[Result]:
        for one in played(lambda width, seed: 10.0 if width == 2.0 else 20.0)(work, watch):
            harmed = dict(one.cell.player.numbers).get("width") == 2.0 and one.epsilon == 4.0
            yield dataclasses.replace(one, curves=one.curves * (2.5 if harmed else 1.0))

    outcome = found(monkeypatch, results)
    assert outcome.overall.won
    assert outcome.chosen == {"width": 1.0}
    assert "it loses in coins, local ε=4" in outcome.verdict()


def heavy(width: float, *, seed: int) -> Play:
    """This width loses least on average, and on this seed most in one of four runs."""

    def results(work: RunState, watch: Watch) -> Iterator[Result]:
        for one in played(best_at(2.0))(work, watch):
            final = np.where(np.arange(one.replicates) % 4, 1.0, 40.0)[None]
            harmed = dict(one.cell.player.numbers).get("width") == width
            yield (
                dataclasses.replace(one, curves=final) if harmed and work.plan.seed == seed else one
            )

    return results


def test_a_candidate_with_a_heavier_tail_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = found(monkeypatch, heavy(0.5, seed=11_000))
    last = {one.numbers["width"]: one for one in outcome.evaluations if one.rung == 2}
    assert last[0.5].score < last[2.0].score < last[1.0].score
    assert last[0.5].p95 > last[1.0].p95 > last[2.0].p95
    assert outcome.best == outcome.chosen == {"width": 2.0}


def test_candidate_with_late_heavy_tail_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    often = dataclasses.replace(SMALL.budget, confirm=200)
    search = dataclasses.replace(SMALL, budget=often)
    outcome = found(monkeypatch, heavy(2.0, seed=12_000), search)
    assert outcome.best == {"width": 2.0}
    assert outcome.overall.won
    assert outcome.overall.heavier
    assert outcome.chosen == {"width": 1.0}
    assert "; p95 0.4 against 0.221" in outcome.verdict()


def test_held_incumbent_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    held = Search.of(declared(held="figures of it are reported"))
    outcome = found(monkeypatch, played(best_at(0.5)), held)
    assert outcome.beaten
    assert outcome.best == {"width": 0.5}
    assert outcome.chosen == {"width": 1.0}
    assert outcome.verdict().endswith("and held: figures of it are reported")


def test_resumed_search_gives_the_same_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = dataclasses.replace(SMALL.worlds[0], trusts=("local",))
    search = dataclasses.replace(SMALL, worlds=(world,))
    archive = Archive(folder=Folder.at(tmp_path))
    seen: list[float] = []
    first = tune(search, archive=archive, watch=lambda what, share: seen.append(share))
    assert seen == sorted(seen)
    assert 0 < seen[-1] <= 1
    # Uniform play and candidates at two epsilons; a rung takes over the parts of the one before.
    assert len(list(tmp_path.glob("*.npz"))) == (1 + 2 * 5) + (1 + 2 * 3) + 3 * (1 + 2 * 2)
    monkeypatch.setattr(Chunk, "play", lambda *_: pytest.fail("it was played before"))
    assert tune(search, archive=archive) == first
    path = tmp_path / "outcome.json"
    path.write_text(first.text(), encoding="utf-8")
    assert Outcome.read(path) == first


def test_a_search_is_the_same_after_it_was_written() -> None:
    space = {"width": {"low": 0.5, "high": 2.0, "scale": "log"}}
    for one in (SMALL, Search.of(declared(space=space))):
        assert Search.of(one.to_dict()) == one


def test_all_candidates_meet_the_same_draws_in_one_program() -> None:
    trial = Trial(
        horizon=60, replicates=2, seed=SEEDS[0], search=SMALL, candidates=SMALL.candidates()
    )
    cells = trial.cells()
    assert cells[0].player.policy == "uniform"
    lines = [(str(one.player.trust), one.player.epsilon) for one in cells[1:]]
    assert len(list(itertools.groupby(lines))) == 3
    assert trial.warnings() == ()


# Scores.


def test_scores_and_errors_are_those_of_many_draws() -> None:
    generator = np.random.default_rng(7)
    draws = generator.gamma(4.0, 0.1, size=(2000, 2, 50))
    scores = [score(one) for one in draws]
    assert np.mean([one.se for one in scores]) == pytest.approx(
        np.std([one.mean for one in scores]), rel=0.05
    )
    better = draws[0] * np.array([[0.5], [1.0]])
    assert gain(better, draws[0]).mean == pytest.approx(np.log(2) / 2)
    assert gain(better, draws[0]).se == pytest.approx(0.0, abs=1e-12)
    assert gain(draws[0], better).mean == -gain(better, draws[0]).mean
    assert tail_of(better) < tail_of(draws[0])


def test_samples_are_of_the_space_and_of_the_seed() -> None:
    search = Search.of(
        declared(
            space={"width": {"low": 0.1, "high": 10.0, "scale": "log"}},
            budget={"candidates": [200], "replicates": [2], "confirm": 2},
        )
    )
    widths = [one["width"] for one in map(dict, search.candidates())]
    assert len(set(widths)) == 200
    assert 0.1 <= min(widths) < 0.2
    assert 5 < max(widths) <= 10
    assert 70 < sum(one < 1 for one in widths) < 130
    assert drawn(search.space, 200, without=(), seed=12_000) != search.candidates()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seeds": [11_000, 11_000]}, "give two"),
        ({"seeds": [11_000, 0]}, "seed is 0, on which results are reported"),
        ({"policy": "ubc"}, "did you mean 'ucb'"),
        ({"incumbent": {"rate": 1.0}}, "give each number in both"),
        ({"space": {"width": [1.0]}}, "the space holds the incumbent alone"),
        ({"space": {"width": {"low": 1.0}}}, "give a list of values, or a table"),
        ({"space": 3}, "space is 3; give a table"),
        ({"worlds": []}, "worlds is \\[\\]; give a list"),
        ({"more": 1}, "'more' unknown or missing"),
        ({"budget": {"candidates": [4, 2], "replicates": [2, 5], "confirm": 6}}, "multiples"),
        ({"budget": {"candidates": [2, 4], "replicates": [2, 4], "confirm": 6}}, "that fall"),
        ({"budget": {"candidates": [4.5], "replicates": [2], "confirm": 6}}, "a whole number"),
    ],
)
def test_search_rejects_invalid_declaration(changes: Any, message: str) -> None:
    with pytest.raises(KerchiefError, match=message):
        Search.of(declared(**changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"space": {"rate": [1.0, 2.0]}, "incumbent": {"rate": 1.0}},
            "parameter is 'rate'; UCB",
        ),
        ({"space": {"width": [1.0, 1e10]}}, "width is 10000000000.0; it must lie in"),
    ],
)
def test_parameters_no_policy_takes_are_rejected_before_any_run(
    changes: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Chunk, "play", lambda *_: pytest.fail("played"))
    with pytest.raises(InvalidValueError, match=message):
        tune(Search.of(declared(**changes)))
