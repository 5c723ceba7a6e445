"""Plans: what is asked, what is played in time, what is said, and whether it comes true."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import pickle
import re
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import kerchief
from kerchief.cli.main import main
from kerchief.comparison.chunks import Chunk
from kerchief.core.errors import InvalidValueError, KerchiefError
from kerchief.data.replaying import from_logs
from kerchief.data.supervised import from_supervised
from kerchief.planning.advice import Advice
from kerchief.planning.budgeted_runner import Lane, _Run, play
from kerchief.planning.deadline import SlowRun
from kerchief.planning.pilot_runs import SimulatedRuns
from kerchief.planning.plan_config import load_plan, settings
from kerchief.planning.plan_coverage import coverage, simulate_cells
from kerchief.planning.planning import Planning, segments, shorter

SMALL = Planning(users=400, dim=2, arms=3, trusts=("central",), epsilon=8.0, delta=1e-4)


@functools.cache
def played() -> SimulatedRuns:
    """Played once for all tests of a run: what one process has played, the others read."""
    kept = Path(os.environ["JAX_COMPILATION_CACHE_DIR"]) / "planned.pickle"
    if kept.exists():
        found: SimulatedRuns = pickle.loads(kept.read_bytes())
        return found
    made = simulate_cells(SMALL, width=6, chunks=2)
    part = kept.with_suffix(f".{os.getpid()}")
    part.write_bytes(pickle.dumps(made))
    part.replace(kept)
    return made


def shifted(gain: float) -> Advice:
    """The same worlds, in which the private bandit gains so much per user."""
    made = dataclasses.replace(played(), runs=dict(played().runs))
    for cell, chunks in made.runs.items():
        if cell.asked is None:
            continue
        single = next(one for one in made.runs if one.player.policy == "single-arm")
        moved = {}
        for number, part in chunks.items():
            beside = made.runs[single][number].run
            less = gain * beside.rounds[:, None]
            run = dataclasses.replace(part.run, regret=beside.regret - less)
            moved[number] = dataclasses.replace(part, run=run)
        made.runs[cell] = moved
    return Advice(planning=SMALL, played=made)


def test_plan_runs_policy_and_its_baselines() -> None:
    labels = [cell.label() for cell in SMALL.cells(400)]
    assert labels == [
        "uniform",
        "single-arm not private",
        "own-models not private",
        "own-models central ε=8",
    ]
    rows = Advice(planning=SMALL, played=played()).rows
    assert [row.cell.label() for row in rows] == labels
    assert all(row.replicates == 12 for row in rows)
    assert all(row.reward.low <= row.reward.mean <= row.reward.high for row in rows)


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        ({"users": None}, "users"),
        ({"users": 10}, "users"),
        ({"dim": 1}, "dim"),
        ({"arms": 0}, "arms"),
        ({"noise": "poisson"}, "noise"),
        ({"strength": (0.5, 0.2)}, "strength"),
        ({"strength": (0.5, 1.2)}, "strength"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"delta": 0.0}, "delta"),
        ({"delta": 1.5}, "delta"),
        ({"trusts": ("any", "local")}, "trust"),
        ({"trusts": ("none",)}, "trust"),
        ({"trusts": ("nobody",)}, "trust"),
        ({"env": "population"}, "env"),
        ({"env": "linear", "strength": (0.1, 0.2)}, "strength"),
        ({"env": "nowhere"}, "environment"),
        ({"policy": "linucb"}, "own"),
        ({"policy": "uniform", "trusts": ("any",)}, "never learns in private.* such as best"),
        ({"policy": "single-arm", "trusts": ("any",)}, "never learns in private"),
    ],
)
def test_planning_rejects_invalid_settings_in_one_line(wrong: dict[str, Any], word: str) -> None:
    with pytest.raises(KerchiefError, match=word) as found:
        dataclasses.replace(SMALL, **wrong)
    assert "\n" not in str(found.value)


def test_private_greedy_is_planned_with_its_own_baselines() -> None:
    asked = dataclasses.replace(SMALL, policy="greedy", trusts=("joint",))
    labels = [cell.label() for cell in asked.cells(400)]
    assert labels[-1] == "greedy joint ε=8"
    assert labels.count("greedy not private") == 1


@pytest.mark.parametrize(
    ("orders", "said"),
    [("permutation", "in the order of users, so"), ("bootstrap", "in who is drawn, and in which")],
)
def test_plan_states_how_data_environments_differ(orders: str, said: str) -> None:
    people: dict[str, Any] = {"age": [20.0, 70.0] * 30, "plan": ["basic", "gold"] * 30}
    world = from_supervised(people, "plan=basic|gold", features="age=18:90", orders=orders)
    assert said in Planning(data=world).describe_assumptions()


def test_plan_on_logs_describes_draws_without_orders() -> None:
    logs: dict[str, Any] = {
        "age": [20.0, 70.0] * 99,
        "did": ["basic", "gold"] * 99,
        "paid": [1.0, 0.0] * 99,
    }
    columns: dict[str, Any] = {"action": "did=basic|gold", "reward": "paid", "propensity": 0.5}
    world = from_logs(logs, features="age=18:90", reward_range=(0.0, 1.0), **columns)
    said = Planning(data=world).describe_assumptions()
    assert "in which logged decisions are drawn" in said
    assert "orders" not in said


def test_plan_on_few_users_names_a_remedy() -> None:
    """Of logs there are no orders to ask for."""
    logs: dict[str, Any] = {
        "age": [20.0, 70.0] * 30,
        "action": [0, 1] * 30,
        "reward": [1.0, 0.0] * 30,
    }
    world = from_logs(logs, features="age=18:90", reward_range=(0.0, 1.0), propensity=0.5)
    with pytest.raises(
        InvalidValueError, match="for 30 users, and a plan needs 50; give --users 50"
    ):
        Planning(data=world)
    assert Planning(data=world, users=50).count == 50
    few: dict[str, Any] = {"age": [20.0, 70.0] * 9, "clicked": [0, 1] * 9}
    once = from_supervised(few, "clicked", features="age=18:90")
    with pytest.raises(InvalidValueError, match="give --declare orders=bootstrap and --users 50"):
        Planning(data=once)
    drawn = from_supervised(few, "clicked", features="age=18:90", orders="bootstrap")
    with pytest.raises(InvalidValueError, match="give --users 50"):
        Planning(data=drawn)
    assert Planning(data=drawn, users=50).count == 50


def test_a_large_delta_is_warned_of() -> None:
    assert SMALL.warnings() == ()
    (line,) = dataclasses.replace(SMALL, delta=0.01).warnings()
    assert "delta is 0.01" in line


def test_segments_are_equal_and_leave_few_out() -> None:
    for users in (50, 51, 97, 569, 99_999, 100_000, 1_234_567):
        simulated, ticks = segments(users)
        assert simulated % ticks == 0
        assert 0 <= users - simulated <= max(2, users // 50)
    assert shorter(10**7, 0.0316) == 310_000


@pytest.mark.parametrize(
    ("gain", "verdict", "said"),
    [
        (0.05, "personalise", "Personalise:"),
        (-0.05, "one arm", "Do not personalise: play one arm, for"),
    ],
)
def test_the_plain_sentence_follows_from_the_gain(gain: float, verdict: str, said: str) -> None:
    advice = shifted(gain)
    assert advice.verdict == verdict
    assert advice.sentence().startswith(said)
    assert "Left out" not in advice.sentence()
    assert advice.use().startswith("Use " if verdict == "personalise" else "If you try it, use ")
    assert advice.best.gain is not None
    assert advice.best.gain.mean == pytest.approx(gain)
    assert advice.best.better == float(gain > 0)
    (line,) = advice.needs()
    assert ("is never ahead" in line) == (gain < 0)
    assert ("no epsilon up to 8" in line) == (gain < 0)


def test_advice_states_skipped_configurations_and_users() -> None:
    made = dataclasses.replace(played(), left=["own-models local ε=8 was not finished in time"])
    longer = dataclasses.replace(SMALL, users=4000)
    notes = " ".join(Advice(planning=longer, played=made).notes())
    assert "Left out: own-models local" in notes
    assert "the first 400 of 4000 users" in notes
    sentence = Advice(planning=longer, played=made).sentence()
    assert "over the first 400 users" in sentence
    assert sentence.endswith("Left out for lack of time: own-models local ε=8.")


def test_planned_message_sizes_match_a_deployed_device() -> None:
    (row,) = Advice(planning=SMALL, played=played()).private
    task = kerchief.deploy(
        policy="best", problem=SMALL.problem(400), guarantee=row.cell.guarantee
    ).task
    assert row.wire is not None
    assert row.wire.numbers == task.size
    assert row.wire.models == task.cohorts
    learner = kerchief.Learner(kerchief.read_deployment(task))
    assert row.wire.model_bytes == len(learner.model.write())


def test_settings_deploy_what_was_planned(tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"
    file.write_text(settings(shifted(0.05)), encoding="utf-8")
    bandit = kerchief.Bandit(**load_plan(file), window_s=0)
    assert repr(bandit) == "Bandit('own-models', central trust, 0 of 400 users)"
    assert kerchief.load_plan(file)["problem"] == SMALL.problem(400)


def test_settings_do_not_claim_to_deploy_undeployable_policy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Such as a paper's own version: it can be planned, and `Bandit` refuses it."""
    assert shifted(0.05).use() == "Use own-models under central trust"
    monkeypatch.setattr("kerchief.planning.advice.wire_size", lambda *given: None)
    told = "own-models under central trust can be simulated, and not deployed"
    assert shifted(0.05).use().startswith(told)
    assert told in settings(shifted(0.05))
    assert "deploys it" not in settings(shifted(0.05))


def _edited(folder: Path, *pairs: tuple[str, str]) -> Path:
    """The file of a plan in which some text was replaced."""
    file, text = folder / "plan.toml", settings(shifted(0.05))
    for old, new in pairs:
        assert len(re.findall(f"(?m){old}", text)) == 1
        text = re.sub(f"(?m){old}", new, text)
    file.write_text(text, encoding="utf-8")
    return file


def test_plan_file_states_every_fact_once() -> None:
    lines = [line for line in settings(shifted(0.05)).splitlines() if line[:1] not in ("#", "")]
    names = [line.partition(" = ")[0] for line in lines]
    assert len(names) == len(set(names))
    assert {"policy", "trust", "mechanism", "epsilon", "delta", "horizon", "env"} <= set(names)
    assert not any(line.startswith("[") for line in lines)


EDITED = [
    ("^epsilon = .*", "epsilon = [8.0, 16.0]", r"epsilon is \[8.0, 16.0\] .* leave one"),
    ("^epsilon = .*", "epsilon = -1.0", "epsilon is -1"),
    ("^delta = .*\n", "", "delta is missing"),
    ("^horizon = .*\n", "", "horizon is missing"),
    ("^trust = .*", 'trust = "joint"', "mechanism is 'central=best' .* and trust is 'joint'"),
    ("^trust = .*", "trust = 3", "trust is 3 .* give a name in quotes"),
    ("^policy = .*", "policy = 3", "policy is 3 .* give a name in quotes"),
    ("^policy = .*\n", "", "policy is missing"),
    ("^mode = .*", "mode = 3", "mode is 3 .* give a name in quotes"),
    ("^mechanism = .*", 'mechanism = "central=x"', "is called 'x'"),
    ("^env = .*", 'env = "nowhere"', "no environment is called 'nowhere'"),
    ("^env = .*", "env = 3", "env is 3 .* give a name in quotes"),
    ("^env = .*\n", "", "has neither `env` nor `data`"),
    ("^env = .*", 'env = "chance"', "parameter is 'dim'; this environment has"),
    ("^dim = .*", "dim = 'x'", "dim is 'x'"),
    (r"\Z", "[problem]\narms = 3\n", "arms stands in table 'problem'"),
    (r"\Z", "[problem]\nsize = 3\n", "size stands in table 'problem'"),
    (r"\Z", "[problem]\nhigh = 'x'\n", "high is 'x'"),
    ("^env = ", "problem = 3\nenv = ", "problem is 3 .* give a table"),
    ("^epsilon = .*", "epsilon =", "cannot be read"),
]


@pytest.mark.parametrize(("old", "new", "said"), EDITED)
def test_load_plan_rejects_what_is_not_one_bandit(
    old: str, new: str, said: str, tmp_path: Path
) -> None:
    file = _edited(tmp_path, (old, new))
    with pytest.raises(kerchief.KerchiefError, match=said) as caught:
        load_plan(file)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("old", ["^mode = .*\n", "^mechanism = .*\n", "^seed = .*\n"])
def test_load_plan_takes_the_defaults_of_compare(old: str, tmp_path: Path) -> None:
    whole = load_plan(_edited(tmp_path))
    assert load_plan(_edited(tmp_path, (old, ""))) == whole


def test_one_edit_changes_comparison_and_deployment(tmp_path: Path) -> None:
    pairs = (("^dim = 2", "dim = 4"), ("^epsilon = .*", "epsilon = 2.0"), ("base=0.5", "base=0.25"))
    plan = load_plan(_edited(tmp_path, *pairs))
    assert (plan["problem"].dim, plan["guarantee"].epsilon) == (4, 2.0)
    assert plan["problem"].radius < load_plan(_edited(tmp_path))["problem"].radius


def test_bounds_of_a_service_replace_those_of_the_environment(tmp_path: Path) -> None:
    plan = load_plan(_edited(tmp_path, (r"\Z", "[problem]\nhigh = 2.0\nradius = 7.0\n")))
    assert (plan["problem"].high, plan["problem"].radius) == (2.0, 7.0)
    assert plan["problem"].low == SMALL.problem(400).low


PROBLEM_OF_DATA = """[problem]
dim = 3
arms = 3
norm = 1.2
radius = 1.0
low = 0.0
high = 1.0
constant = 0.5
link = "linear"
own = 3
"""


def _on_data(folder: Path, line: str, replacement: str, table: str = PROBLEM_OF_DATA) -> Path:
    text = re.sub(
        "(?m)^(env|dim|arms|radius|env-param|contexts) = .*\n", "", settings(shifted(0.05))
    )
    data = ['data = "x.csv"', 'features = ["age=18:90", "plan=a|b"]', 'label = "click=a|b|c"']
    options = "\n".join([*data, 'declare = ["intercept=0.5"]', text])
    file = folder / "plan.toml"
    file.write_text(re.sub(f"(?m)^{line}.*", replacement, options) + table, encoding="utf-8")
    return file


@pytest.mark.parametrize(
    ("line", "replacement", "said"),
    [
        ("features =", 'features = ["age=18:90", "plan=basic|gold"]', ""),
        ("declare =", 'declare = ["intercept=0.5", "norm=3.0"]', "every feature has a range"),
        ("features =", 'features = ["age=18:90"]', "dim is 3 in table .* declare 2"),
        ("features =", 'features = ["age=18"]', "bounds of 'age' are '18'"),
        ("declare =", "", ""),
        ("declare =", 'declare = "users.toml"', ""),
        ("declare =", 'declare = ["intercept=1"]', "constant is 0.5 in table .* declare 1.0"),
        ("label =", 'label = "click"', ""),
        ("label =", 'label = "click=a|b|c|d"', "arms is 3 in table .* declare 4"),
        ("declare =", 'declare = ["rewards=a,b", "rewards=c,d"]', "arms is 3 in .* declare 4"),
    ],
)
def test_declarations_must_match_the_problem(
    line: str, replacement: str, said: str, tmp_path: Path
) -> None:
    file = _on_data(tmp_path, line, replacement)
    with pytest.raises(InvalidValueError, match=said) if said else contextlib.nullcontext():
        assert load_plan(file)["problem"].dim == 3
    if said:
        result = CliRunner().invoke(main, ["compare", "--config", str(file)])
        assert result.exit_code == 2
        assert re.search(said, result.stderr)
        assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "name", [line.partition(" =")[0] for line in PROBLEM_OF_DATA.split("\n")[1:-1]]
)
def test_problem_of_data_is_whole(name: str, tmp_path: Path) -> None:
    """Even a fact that has a default: without `own` all arms would share one model."""
    file = _on_data(tmp_path, "x", "", re.sub(f"(?m)^{name} .*\n", "", PROBLEM_OF_DATA))
    with pytest.raises(InvalidValueError, match=f"{name} is missing in table 'problem'"):
        load_plan(file)


class _Instant:
    """An executor that has played everything before, or gives it up."""

    def __init__(self, slow: Callable[[Chunk], bool]) -> None:
        self.slow = slow

    def submit(self, function: Any, part: bytes, *rest: Any) -> Future[Any]:
        asked, future = pickle.loads(part), Future[Any]()
        known = played().runs.get(asked.cell, {})
        given_up = not known or self.slow(asked)
        future.set_result(SlowRun(seconds=100.0) if given_up else known[0])
        return future


def attempt(slow: Callable[[Chunk], bool]) -> tuple[float | None, SimulatedRuns]:
    executor: Any = _Instant(slow)
    lanes = [Lane(executor=executor, prepare=_nothing) for _ in range(2)]
    run = _Run.of(
        *(SMALL, SMALL.count),
        lanes=lanes,
        start=time.monotonic(),
        seconds=30.0,
        watch=lambda what, past: None,
    )
    return run.finish(), run.outcome


def test_finished_chunks_are_kept_when_further_ones_are_too_slow() -> None:
    share, made = attempt(lambda part: part.first > 0)
    assert share is None
    assert {cell for cell in made.runs} >= set(SMALL.cells(400))
    assert not made.left


def test_plan_cuts_users_when_no_private_run_would_finish() -> None:
    share, _ = attempt(lambda part: part.cell.asked is not None)
    assert share is not None
    assert 0 < share <= 0.5


@pytest.mark.parametrize("label", ["uniform", "own-models not private"])
def test_too_slow_configuration_is_left_out_and_named(label: str) -> None:
    share, made = attempt(lambda part: part.cell.label() == label)
    assert share is None
    assert made.left == [f"{label} was not finished in time"]
    advice = Advice(planning=SMALL, played=made)
    assert label not in [row.cell.label() for row in advice.rows]
    assert f"Left out: {label}" in " ".join(advice.notes())
    assert advice.to_dict()["verdict"] == advice.verdict


def test_plan_intervals_cover_unseen_environments() -> None:
    found = coverage(SMALL, width=6, plans=4, unseen=4, seed=1)
    for cell, held in found.items():
        assert min(held.reward, held.regret) >= 0.8, cell.label()
        assert held.gain is None or held.gain >= 0.8, cell.label()


@pytest.mark.nightly
def test_a_plan_of_worlds_that_are_too_alike_does_not_come_true() -> None:
    """The check can fail: a plan made of weak worlds alone misses the strong ones."""
    weak = simulate_cells(dataclasses.replace(SMALL, strength=(0.0, 0.05)), width=6, chunks=2)
    strong = simulate_cells(dataclasses.replace(SMALL, strength=(0.9, 1.0)), width=6, chunks=2)
    (uniform, *_) = Advice(planning=SMALL, played=weak).rows
    lost = strong.curves(uniform.cell)[-1]
    assert np.mean([uniform.regret.covers(one) for one in lost]) < 0.5


@pytest.mark.nightly
@pytest.mark.parametrize("trust", ["local", "shuffle", "joint", "central"])
def test_plans_come_true_under_every_trust(trust: str) -> None:
    asked = Planning(users=10_000, dim=8, arms=10, trusts=(trust,))
    found = coverage(asked, width=8, plans=8, unseen=8, seed=77)
    for cell, held in found.items():
        assert min(held.reward, held.regret) >= 0.8, cell.label()
        assert held.gain is None or held.gain >= 0.8, cell.label()


@pytest.mark.nightly
def test_a_timed_plan_comes_true() -> None:
    asked = Planning(users=20_000, dim=5, arms=5, trusts=("joint", "central"))
    made = play(asked, seconds=60.0, jobs=2, prepare=_nothing, watch=lambda what, past: None)
    assert made.seconds < 70
    fresh = simulate_cells(dataclasses.replace(asked, seed=5), width=16, chunks=4)
    for row in Advice(planning=asked, played=made).rows:
        rewards = fresh.rewards(row.cell)
        assert np.mean([row.reward.covers(one) for one in rewards]) >= 0.8


def _nothing() -> None:
    """Tests share nothing with the machine that they run on."""


def test_the_page_says_around_what_rewards_lie() -> None:
    asked = dataclasses.replace(SMALL, options=(("base", 0.25), ("radius", 0.25)))
    assert "with means around 0.25" in asked.describe_assumptions()
