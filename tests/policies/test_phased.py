"""Phased elimination: its schedule, what it asks, its widths, and what it drops.

Each statistical test fails by chance with probability at most 1e-6; seeds are fixed.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from numpy.typing import NDArray

from kerchief.core.errors import InvalidValueError
from kerchief.core.phases import Phase, PhaseQuery
from kerchief.core.problems import PopulationProblem
from kerchief.core.queries import UnitBallVector
from kerchief.policies import POLICIES
from kerchief.policies.baselines import UniformPopulation
from kerchief.policies.phased.elimination import Elimination, State
from kerchief.policies.registry import Mode
from kerchief.privacy import Trust
from kerchief.privacy.calibration import gaussian_delta

Floats = NDArray[np.float64]
CROWD = PopulationProblem(
    dim=4, arms=30, norm=1.0, radius=1.0, low=-1.0, high=1.0, horizon=100_000, clients=100_000,
    spread=0.1,
)  # fmt: skip
PHASE = Phase(number=8, pulls=256, first=0, clients=100)
LARGE = dataclasses.replace(CROWD, dim=20, arms=1000, horizon=10**6)


def sphere(count: int, dim: int, seed: int = 0) -> Floats:
    z = np.random.default_rng(seed).normal(size=(count, dim))
    return np.asarray(z / np.linalg.norm(z, axis=1, keepdims=True))


def policy(problem: PopulationProblem = CROWD, **choices: Any) -> Elimination:
    return Elimination.of(problem, **choices)


@partial(jax.jit, static_argnames="noisy")
def ask(one: Elimination, x: Array, survivors: State, phase: Phase, *, noisy: bool) -> PhaseQuery:
    """Compiled once for each kind of policy."""
    return one.ask(x, survivors, phase, noisy=noisy)


@jax.jit
def own_estimate(one: Elimination, asked: PhaseQuery) -> tuple[Array, Array, Array]:
    solve = asked.decoder[:, : asked.pulls.shape[1]] / jnp.sqrt(asked.reals * 1.0)
    rank = jnp.round(jnp.trace(asked.span)).astype(int)
    return one._estimate(asked.inverse, asked.span, rank, solve)


def state(allowed: list[int] | None = None, count: int = 30) -> State:
    mask = jnp.ones(count, bool)
    if allowed is not None:
        mask = jnp.zeros(count, bool).at[jnp.array(allowed)].set(True)
    return State(allowed=mask, best=jnp.int32(0))


def both_ways(
    one: Elimination, x: Floats, survivors: State, phase: Phase = PHASE
) -> list[PhaseQuery]:
    """What is asked without noise (averages), and by a client's own estimate."""
    asked = ask(one, jnp.asarray(x), survivors, phase, noisy=False)
    encoder, decoder, reals = own_estimate(one, asked)
    return [asked, dataclasses.replace(asked, encoder=encoder[None], decoder=decoder, reals=reals)]


def quiet(clients: int) -> float:
    return 0.0


# The schedule.


def test_the_clients_of_the_papers_setting() -> None:
    problem = dataclasses.replace(LARGE, clients=50_796)
    phases = policy(problem, rule="paper").phases(quiet)
    assert [phase.number for phase in phases] == list(range(1, 19))
    assert sum(phase.clients for phase in phases) == 50_796
    longer = dataclasses.replace(LARGE, horizon=2**20, clients=88_437)
    assert sum(phase.clients for phase in policy(longer, rule="paper").phases(quiet)) == 88_437


def test_a_population_that_is_too_small_is_refused() -> None:
    problem = dataclasses.replace(LARGE, clients=50_795)
    with pytest.raises(
        InvalidValueError, match=r"18 phases ask 50796 clients, .* population has 50795"
    ):
        policy(problem, rule="paper").phases(quiet)
    with pytest.raises(InvalidValueError, match="take a larger population"):
        policy(problem, rule="paper", clients=3000).phases(quiet)


def test_phases_use_disjoint_clients_and_fit_the_horizon() -> None:
    for one in (policy(), policy(rule="paper"), policy(clients=50), policy(mode="theory")):
        phases = one.phases(lambda clients: 0.1 / clients)
        firsts = np.array([phase.first for phase in phases])
        counts = np.array([phase.clients for phase in phases])
        np.testing.assert_array_equal(firsts, np.cumsum(counts) - counts)
        rounds = sum(int(phase.pulls) for phase in phases)
        assert rounds <= CROWD.horizon < rounds + 2 ** (int(phases[-1].number) + 1)


def test_fixed_numbers_of_clients() -> None:
    assert {phase.clients for phase in policy(clients=50).phases(quiet)} == {50}


def test_more_noise_begins_later() -> None:
    starts = [
        policy(LARGE).phases(lambda clients, noise=noise: noise / clients)[0].number  # type: ignore[misc]
        for noise in (0.0, 2.0, 20.0, 200.0)
    ]
    assert starts == sorted(starts)
    assert starts[0] < starts[2] < starts[3]
    # Were all of them too noisy, the longest phases that fit are played.
    assert policy(LARGE).phases(lambda clients: 1e9)[0].number == 18
    assert policy(LARGE, rule="paper").phases(lambda clients: 1e9)[0].number == 1


def test_a_phase_before_the_start_says_nothing() -> None:
    """On actions of a typical world, its width is above a quarter of the largest gap."""
    one = policy(LARGE)
    start = int(one.phases(quiet)[0].number)
    x = sphere(1000, 20)
    for number, says in ((start - 1, False), (start + 1, True)):
        phase = Phase(number=number, pulls=2**number, first=0, clients=one._clients(number))
        asked = ask(one, jnp.asarray(x), one.init({}), phase, noisy=False)
        widths = np.asarray(one._exact_widths(jnp.asarray(x[0] - x), asked, phase, jnp.float64(0)))
        assert (np.median(widths) < 0.5) == says


# What is asked.


@pytest.mark.parametrize("allowed", [None, [3], [3, 8], list(range(10))])
def test_both_answer_encodings_recover_the_parameter(allowed: list[int] | None) -> None:
    x, theta = sphere(30, 4), np.array([0.3, -0.2, 0.4, 0.1])
    x[8] = -x[3] if allowed == [3, 8] else x[8]
    for asked in both_ways(policy(), x, state(allowed)):
        averages = jnp.asarray(x)[asked.atoms[0]] @ theta
        estimate = asked.decoder @ (asked.encoder[0] @ averages)
        np.testing.assert_allclose(estimate, asked.span @ theta, atol=1e-9)
        survivors = np.asarray(state(allowed).allowed)
        np.testing.assert_allclose(x[survivors] @ estimate, x[survivors] @ theta, atol=1e-9)


def test_designs_are_near_optimal_in_whole_plays() -> None:
    one, x = policy(LARGE), sphere(1000, 20)
    asked = ask(one, jnp.asarray(x), one.init({}), PHASE, noisy=True)
    assert ((x @ asked.inverse) * x).sum(1).max() <= 2 * 20 / 256 + 1e-9
    np.testing.assert_array_equal(asked.pulls, np.rint(asked.pulls))
    support = int((asked.pulls > 0).sum())
    assert support <= 40
    assert 256 <= asked.rounds <= 256 + support


def test_fewer_actions_than_dimensions() -> None:
    problem = dataclasses.replace(CROWD, arms=2)
    one, x = policy(problem), sphere(2, 4)
    for asked in both_ways(one, x, one.init({})):
        vector = asked.encoder[0] @ (jnp.asarray(x)[asked.atoms[0]] @ x[0])
        assert vector.shape == (one.query.size,)
        np.testing.assert_allclose(x @ (asked.decoder @ vector), x @ x[0], atol=1e-9)


def test_answers_fill_the_unit_ball_and_no_more() -> None:
    """Opposite corners are 2 apart: the sensitivity is attained, and never exceeded."""
    one, x = policy(), sphere(30, 4)
    query = UnitBallVector(size=one.query.size)
    rng = np.random.default_rng(1)
    asked, own = both_ways(one, x, state())
    corners = rng.choice([-1.0, 1.0], size=(2000, asked.pulls.shape[1]))
    # What lies beyond the bounds is clipped first, and what is not a number counts as zero.
    wild = np.concatenate([corners, 1e9 * corners[:9], np.full_like(corners[:1], np.nan)])
    for way in (asked, own):
        answers = np.asarray(
            [query.encode(one.answer(way, 0, jnp.asarray(row))) for row in wild[-60:]]
        )
        assert np.linalg.norm(answers, axis=1).max() <= 1 + 1e-12
    a = np.asarray(query.encode(one.answer(asked, 0, jnp.asarray(corners[0]))))
    b = np.asarray(query.encode(one.answer(asked, 0, jnp.asarray(-corners[0]))))
    assert np.linalg.norm(a - b) == pytest.approx(query.sensitivity)


def test_averages_need_no_clipping() -> None:
    one, x = policy(), sphere(30, 4)
    asked = ask(one, jnp.asarray(x), state(), PHASE, noisy=False)
    corner = jnp.ones(asked.pulls.shape[1])
    assert jnp.linalg.norm(one.answer(asked, 0, corner)) == pytest.approx(1.0)
    assert asked.reals == (asked.pulls > 0).sum()


@pytest.mark.parametrize("margin", [1.0, 3.0])
def test_few_estimates_are_clipped(margin: float) -> None:
    """At most a share of 2 exp(-t), for normal strays and rewards."""
    one, x = dataclasses.replace(policy(), margin=margin), sphere(30, 4)
    _, own = both_ways(one, x, state())
    rng = np.random.default_rng(2)
    atoms, pulls = x[np.asarray(own.atoms[0])], np.maximum(1, np.asarray(own.pulls[0]))
    thetas = x[0] + 0.1 * rng.normal(size=(20_000, 4))
    averages = thetas @ atoms.T + rng.normal(size=(20_000, len(pulls))) / np.sqrt(pulls)
    lengths = np.linalg.norm(averages @ np.asarray(own.encoder[0]).T, axis=1)
    assert (lengths > 1).mean() <= min(0.1, 2 * math.exp(-margin))
    # And the length is not generous beyond need: half of it would clip nearly everyone.
    assert (lengths > 0.5).mean() > 0.85


def test_the_way_with_less_noise_is_taken() -> None:
    one, x = policy(LARGE), sphere(1000, 20)
    phase = dataclasses.replace(PHASE, pulls=2**12)
    for allowed, numbers in ((None, 20), ([0], 1)):
        survivors = state(allowed, 1000)
        asked = ask(one, jnp.asarray(x), survivors, phase, noisy=True)
        mask = np.asarray(survivors.allowed)
        ways = [*both_ways(one, x, survivors, phase), asked]
        worst = [float(((x[mask] @ way.decoder) ** 2).sum(1).max()) for way in ways]
        assert worst[2] == pytest.approx(min(worst[:2]))
        assert (worst[1] < worst[0]) == (allowed is None)
        assert int(asked.reals) == numbers


# Widths, and what is dropped.


def by_hand(pulls: float, clients: int, length: float, noise: float) -> PhaseQuery:
    """Two orthogonal actions, equally often played, averages asked for."""
    return PhaseQuery(
        atoms=jnp.array([[0, 1]]),
        pulls=jnp.array([[pulls, pulls]]),
        plays=jnp.array([[pulls, pulls]]),
        users=jnp.array([clients]),
        inverse=jnp.eye(2) / pulls,
        span=jnp.eye(2),
        encoder=jnp.eye(2)[None] / length,
        decoder=length * jnp.eye(2),
        reals=jnp.int32(2),
    )


def test_exact_widths_by_hand() -> None:
    problem = dataclasses.replace(CROWD, dim=2, arms=2, spread=0.5)
    one = policy(problem, width=3.0)
    phase, asked = dataclasses.replace(PHASE, clients=10), by_hand(4.0, 10, math.sqrt(2), 0.1)
    apart = jnp.array([[0.0, 0.0], [1.0, -1.0]])
    widths = one._exact_widths(apart, asked, phase, jnp.float64(0.1))
    variance = (0.25 + 0.25) / 10 + 0.1**2 * 2
    np.testing.assert_allclose(widths, [0, 3 * math.sqrt(2 * variance)])


def test_printed_deviation_exposes_most_clients_in_paper_setting() -> None:
    """Theorem 4.2 at ε = 10, δ = 0.25: the deviation over the sensitivity is √(2 ln 5)/10."""
    assert gaussian_delta(10.0, math.sqrt(2 * math.log(1.25 / 0.25)) / 10) == pytest.approx(
        0.79, abs=0.005
    )


def test_paper_width_by_hand() -> None:
    one = policy(LARGE, rule="paper")
    asked = dataclasses.replace(by_hand(4.0, 10, 1.0, 0.1), reals=jnp.int32(25))
    phase = dataclasses.replace(PHASE, clients=100, pulls=50)
    tail = math.sqrt(2 * math.log(1000 * 10**6))
    support = 4 * 20 * math.log(math.log(20)) + 16
    inner = math.sqrt(40 / 5000) + 0.1 / 10 + 2 * (5 * 0.01) * math.sqrt(support * 20)
    width = one._paper_width(jnp.zeros((1, 20)), asked, phase, jnp.float64(0.01))
    assert float(width) == pytest.approx(2 * inner * tail)


@pytest.mark.parametrize("noise", [0.0, 0.001, 0.1])
def test_the_papers_width_is_never_smaller(noise: float) -> None:
    paper = policy(LARGE, rule="paper")
    exact = policy(LARGE, width=math.sqrt(2 * math.log(1000 * 10**6)))
    x = jnp.asarray(sphere(1000, 20))
    for number in (3, 8, 14):
        phase = Phase(number=number, pulls=2**number, first=0, clients=50)
        asked = ask(paper, x, paper.init({}), phase, noisy=True)
        widths = exact._exact_widths(x[0] - x, asked, phase, jnp.float64(noise))
        assert widths.max() <= paper._paper_width(x[0] - x, asked, phase, jnp.float64(noise))


def test_the_width_of_theory_is_the_union_bound() -> None:
    one = policy(LARGE, mode="theory")
    chance = 1000 * 20 * math.exp(-(float(one.width) ** 2) / 2)
    assert chance == pytest.approx(1e-6)


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_widths_are_the_deviation_of_leads(noise: float) -> None:
    """In both ways of answering, simulated with normal rewards: to 6 %, in 5000 phases."""
    one, x = dataclasses.replace(policy(), margin=30.0), sphere(30, 4)
    rng = np.random.default_rng(4)
    phase, theta = dataclasses.replace(PHASE, clients=5, pulls=40), 0.5 * x[0]
    for asked in both_ways(one, x, state(), phase):
        atoms, pulls = x[np.asarray(asked.atoms[0])], np.maximum(1, np.asarray(asked.pulls[0]))
        thetas = theta + 0.1 * rng.normal(size=(5000, 5, 4))
        averages = thetas @ atoms.T + rng.normal(size=(5000, 5, len(pulls))) / np.sqrt(pulls)
        seen = np.where(np.asarray(asked.pulls[0]) > 0, averages, 0)
        answers = seen @ np.asarray(asked.encoder[0]).T
        mean = answers.mean(1) + noise * rng.normal(size=(5000, answers.shape[2]))
        estimates = mean @ np.asarray(asked.decoder).T
        apart = x[3] - x[[5, 9, 20]]
        widths = np.asarray(one._exact_widths(jnp.asarray(apart), asked, phase, jnp.float64(noise)))
        spread = ((estimates - theta) @ apart.T).std(0)
        np.testing.assert_allclose(spread, widths / float(one.width), rtol=0.06)


def test_actions_lagging_beyond_the_width_are_dropped() -> None:
    problem = dataclasses.replace(CROWD, dim=2, arms=3, spread=0.0)
    x = jnp.array([[1.0, 0.0], [0.0, 1.0], [0.7, 0.7]])
    one, asked = policy(problem, width=1.0), by_hand(25.0, 4, 1.0, 0.0)
    phase = dataclasses.replace(PHASE, clients=4)
    # The score of an action has deviation 1/√(25·4) = 0.1, and the lead of 0 over 1 has 0.1414.
    for second, survives in ((0.35, True), (0.37, True), (0.355, True), (0.34, False)):
        after = one.update(x, one.init({}), asked, phase, jnp.array([0.5, second]), jnp.float64(0))
        assert int(after.best) == (2 if second > 0.2143 else 0)
        lead = 0.7 * (0.5 + second) - second
        wide = 0.1 * math.sqrt(0.7**2 + 0.3**2)
        assert bool(after.allowed[1]) == (lead <= wide), survives
    dropped = one.update(x, state([0, 1], 3), asked, phase, jnp.array([0.5, 0.35]), jnp.float64(0))
    assert dropped.allowed.tolist() == [True, False, False]
    kept = one.update(x, state([0, 1], 3), asked, phase, jnp.array([0.5, 0.37]), jnp.float64(0))
    assert kept.allowed.tolist() == [True, True, False]


def test_actions_without_information_are_kept() -> None:
    problem = dataclasses.replace(CROWD, dim=2, arms=2)
    asked = dataclasses.replace(
        by_hand(25.0, 4, 1.0, 0.0),
        inverse=jnp.diag(jnp.array([0.04, 0.0])),
        span=jnp.diag(jnp.array([1.0, 0.0])),
        decoder=jnp.diag(jnp.array([1.0, 0.0])),
    )
    one = policy(problem, width=0.0)
    after = one.update(
        jnp.eye(2), one.init({}), asked, PHASE, jnp.array([0.5, 0.0]), jnp.float64(0)
    )
    assert after.allowed.tolist() == [True, True]


def test_greedy_keeps_one_action() -> None:
    one = POLICIES["greedy"].build(CROWD, "tuned")
    assert isinstance(one, Elimination)
    x = jnp.asarray(sphere(30, 4))
    asked = ask(one, x, one.init({}), PHASE, noisy=False)
    mean = asked.encoder[0] @ (x[asked.atoms[0]] @ x[7])
    after = one.update(x, one.init({}), asked, PHASE, mean, jnp.float64(0.1))
    assert after.allowed.sum() == 1
    assert bool(one.is_settled(after))
    np.testing.assert_array_equal(one.finish(x, after), jax.nn.one_hot(7, 30))


def test_the_paper_goes_on_with_its_design() -> None:
    one, x = policy(rule="paper"), jnp.asarray(sphere(30, 4))
    alone = state([5])
    assert not bool(one.is_settled(alone))
    shares = one.finish(x, state([5, 6, 7, 8, 9]))
    assert float(shares.sum()) == pytest.approx(1)
    assert float(shares[5:10].sum()) == pytest.approx(1)
    assert (shares > 0).sum() >= 4


def test_uniform_policy_has_no_queries_or_phases() -> None:
    one = POLICIES["uniform"].build(CROWD, "tuned")
    assert one.queries == {}
    assert one.phases(quiet) == ()
    np.testing.assert_allclose(one.finish(jnp.zeros((30, 4)), ()), 1 / 30)


@pytest.mark.parametrize("name", [name for name, entry in POLICIES.items() if entry.plays(CROWD)])
def test_entries_are_true(name: str) -> None:
    entry = POLICIES[name]
    assert entry.parent in set(POLICIES)
    assert POLICIES[entry.parent].parent == entry.parent
    assert set(entry.trusts) <= set(Trust)
    modes: tuple[Mode, Mode] = ("tuned", "theory")
    tuned, theory = (entry.build(CROWD, mode) for mode in modes)
    assert (tuned == theory) == (name in ("uniform",))
    assert entry.summary
    assert entry.source


def test_no_learner_function_takes_a_record() -> None:
    """What clients saw is an argument of `answer` alone."""
    public = {"self", "outlook", "features", "state", "asked", "phase", "mean", "noise", "noisy"}
    learner = ("phases", "init", "finish")
    for kind, names in (
        (Elimination, (*learner, "ask", "update", "is_settled")),
        (UniformPopulation, learner),
    ):
        for name in names:
            assert set(inspect.signature(getattr(kind, name)).parameters) <= public
    device = set(inspect.signature(Elimination.answer).parameters)
    assert device == {"self", "asked", "group", "averages"}
