"""Descent by one short report per user: the report, the steps, the bounds and the learning."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import special  # type: ignore[import-untyped]

from kerchief.checks import BANDIT_LAWS, CheckFailedError, PolicyFixture
from kerchief.core.contracts import Arms, Environment, Example, NoiseInfo, Policy, Tree
from kerchief.core.contracts import Release as Released
from kerchief.core.errors import InvalidValueError
from kerchief.core.links import LINKS, get_link
from kerchief.core.problems import Problem
from kerchief.deployment.protected_policy import build_protected
from kerchief.environments import make_environment
from kerchief.policies.glm.greedy_descent import GreedyDescent, Model, ShortResidualMoments
from kerchief.policies.registry import POLICIES, Mode
from kerchief.privacy import Guarantee, MemoryLedger, Trust
from kerchief.privatizers import Protection, protect
from kerchief.simulation import simulate

Floats = NDArray[np.float64]
Turns = Callable[[Policy, Environment, int], Iterator[tuple[Floats, int, float, Tree]]]
LAWS = {law.name: law for law in BANDIT_LAWS}
LOGISTIC = make_environment(link="logistic", dim=3, arms=8, radius=1.5)


def facts(link: str, **changes: Any) -> Problem:
    return dataclasses.replace(LOGISTIC.problem(1000), link=link, **changes)


def posted(theta: list[float], doubt: float) -> Model:
    return Model(iterate=jnp.array(theta, jnp.float64), doubt=jnp.float64(doubt))


@pytest.mark.parametrize("mode", ["tuned", pytest.param("theory", marks=pytest.mark.nightly)])
def test_without_noise_it_is_a_plain_recursion(turns: Turns, mode: Mode) -> None:
    """Steps, projection, doubt, instrument and choice, beside NumPy."""
    policy = GreedyDescent.of(LOGISTIC.problem(300), mode=mode, caution=0.05)
    pull, caution, focus, bonus = (
        float(value) for value in (policy.pull, policy.caution, policy.focus, policy.exploration)
    )
    theta, start, edge = np.zeros(3), 1.0, 0
    for count, (x, action, reward, model) in enumerate(turns(policy, LOGISTIC, 300)):
        doubt = math.sqrt(start / (start + count))
        np.testing.assert_allclose(model.iterate, theta, atol=2e-5)
        assert float(model.doubt) == pytest.approx(doubt, rel=1e-5)
        value = x @ theta + bonus * 1.5 * doubt * np.linalg.norm(x, axis=1)
        assert value[action] >= value.max() - 1e-4
        mean = special.expit(x[action] @ theta)
        surprise = (reward - mean) / max(mean, 1 - mean)
        part = (x[action] @ theta) / max(theta @ theta, 1e-30)
        left = x[action] - focus * part * theta
        start = 1 + caution / (pull * 1.5) ** 2
        theta = theta + surprise * left / np.linalg.norm(left) / (pull * (count + 1 + start))
        edge += bool(np.linalg.norm(theta) > 1.5)
        theta *= min(1, 1.5 / np.linalg.norm(theta))
    assert 0 < edge < 300


def test_the_constants_are_public_bounds() -> None:
    theory, tuned = (GreedyDescent.of(facts("logistic"), mode=m) for m in ("theory", "tuned"))
    flattest = math.exp(-1.5) / (1 + math.exp(-1.5)) ** 2
    assert theory.pull == pytest.approx(flattest / 12)
    assert theory.focus == 0.0
    assert tuned.pull == pytest.approx(0.5 * 0.3 / 3)
    assert GreedyDescent.of(facts("logistic"), mode="theory", diversity=0.5).pull == pytest.approx(
        flattest / 2
    )
    assert GreedyDescent.of(facts("logistic"), focus=0.25).focus == 0.25


def test_a_step_pays_for_the_noise() -> None:
    """t₀ and the step on numbers worked out by hand, with a norm that is not one."""
    policy = GreedyDescent.of(facts("logistic", norm=2.0), pull=0.1, caution=1.0)
    state = policy.init({"surprises": NoiseInfo(noisy=True)})
    total = jnp.array([0.0, 6.0, 0.0])
    release = Released(total=total, count=jnp.int32(4), noise=jnp.float64(8.0))
    state = policy.update(state, "surprises", release)
    # A report has noise of 8/√4 in units of 2: its square is 1 + 3 · 4 = 13.
    start = 1 + 13 / 0.15**2
    assert float(state.start) == pytest.approx(start)
    np.testing.assert_allclose(state.iterate, [0, 3 / (0.1 * (4 + start)), 0])
    assert float(policy.publish(state).doubt) == pytest.approx(math.sqrt(start / (start + 4)))


@pytest.mark.parametrize("link", list(LINKS))
def test_mean_report_vanishes_at_truth_and_else_points_to_it(link: str) -> None:
    """Whatever the instrument is: exact sums over both rewards, so no error but rounding."""
    rng = np.random.default_rng(0)
    low, high = get_link(link).rewards(-1.5, 1.5)
    policy = GreedyDescent.of(facts(link, low=low, high=high), focus=0.0)
    truth = np.array([0.9, -0.6, 0.5])
    for focus in (0.0, 0.9):
        told = dataclasses.replace(policy, focus=focus)
        for _ in range(10):
            x = rng.normal(size=3)
            x /= np.linalg.norm(x)
            at_truth = _mean_report(told, posted(truth.tolist(), 0.3), x, truth)
            np.testing.assert_allclose(at_truth, 0, atol=1e-9)
    away = np.array([-0.2, 0.4, 0.1])
    pulls = [
        _mean_report(policy, posted(away.tolist(), 1.0), x, truth) @ (truth - away)
        for x in rng.normal(size=(20, 3)) / 3
    ]
    assert min(pulls) >= 0
    assert np.mean(pulls) > 0.02


def _mean_report(policy: GreedyDescent, model: Model, x: Floats, truth: Floats) -> Floats:
    """The expected statistic of an arm, over a reward at either end of the range."""
    arms = Arms(features=jnp.asarray(x)[None], allowed=jnp.ones(1, bool))
    mean = float(get_link(policy.link).mean(jnp.float64(x @ truth)))
    chance = (mean - policy.low) / (policy.high - policy.low)
    reports = [
        np.asarray(
            policy.query.encode(
                policy.record(model, arms, jnp.int32(0), jnp.float64(reward))["surprises"]
            )
        )
        for reward in (policy.low, policy.high)
    ]
    return np.asarray((1 - chance) * reports[0] + chance * reports[1])


def test_honest_reports_are_never_cut_and_as_long_as_they_may_be() -> None:
    policy = GreedyDescent.of(facts("logistic", norm=2.0))
    model = posted([0.4, 0.3, -0.5], 0.2)
    rng = np.random.default_rng(1)
    for _ in range(20):
        x = rng.normal(size=3)
        x *= 2 * rng.uniform() / np.linalg.norm(x)
        arms = Arms(features=jnp.asarray(x)[None], allowed=jnp.ones(1, bool))
        sizes = []
        for reward in (0.0, 1.0):
            given = policy.record(model, arms, jnp.int32(0), jnp.float64(reward))["surprises"]
            assert abs(float(given.reward)) <= 1
            assert np.linalg.norm(given.features) == pytest.approx(2.0)
            sizes.append(np.linalg.norm(policy.query.encode(given)))
        assert max(sizes) == pytest.approx(2.0)


@pytest.mark.parametrize("reward", [math.nan, math.inf, -math.inf, 1e300, -1e300])
def test_a_report_stays_in_its_ball_whatever_the_reward(reward: float) -> None:
    policy = GreedyDescent.of(facts("logistic"))
    arms = Arms(features=jnp.array([[1e200, -1e200, 3.0]]), allowed=jnp.ones(1, bool))
    for theta in ([0.0, 0.0, 0.0], [1.0, 0.5, -0.5]):
        given = policy.record(posted(theta, 0.5), arms, jnp.int32(0), jnp.float64(reward))
        report = np.asarray(policy.query.encode(given["surprises"]))
        assert np.linalg.norm(report) <= 1 + 1e-12
    wild = Example(features=jnp.array([jnp.nan, jnp.inf, 9.0]), reward=jnp.float64(reward))
    assert np.linalg.norm(policy.query.encode(wild)) <= 1 + 1e-12


def test_the_sensitivity_is_reached_and_never_exceeded() -> None:
    query = ShortResidualMoments(dim=3, norm=0.5)
    rng = np.random.default_rng(2)
    features, rewards = rng.normal(size=(2000, 3)), 3 * rng.normal(size=2000)
    rows = jax.vmap(lambda x, y: query.encode(Example(features=x, reward=y)))(features, rewards)
    reports = np.asarray(rows)
    gaps = np.linalg.norm(reports[:, None] - reports[None], axis=-1)
    assert 0.99 * query.sensitivity <= gaps.max() <= query.sensitivity * (1 + 1e-12)
    assert np.linalg.norm(reports - query.center, axis=1).max() <= query.radius * (1 + 1e-12)


@pytest.mark.parametrize("name", ["dim", "norm", "importance"])
def test_bounds_are_checked(name: str) -> None:
    with pytest.raises(InvalidValueError, match=name):
        ShortResidualMoments(**({"dim": 2, "norm": 1.0} | {name: 0}))  # type: ignore[arg-type]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Understated(ShortResidualMoments):
    """Claims two thirds of its sensitivity, so that its noise is a third too small."""

    @property
    def sensitivity(self) -> float:
        return 4 / 3 * self.norm


def test_noise_a_third_too_small_is_caught() -> None:
    """By the law of statistics if the sensitivity is to blame, by the bill if the noise is."""
    entry, law = POLICIES["glm-greedy"], LAWS["statistics obey their bound"]
    law(PolicyFixture.of("glm-greedy", entry, "local"))

    def make(problem: Problem, mode: Mode) -> GreedyDescent:
        policy = GreedyDescent.of(problem, mode=mode)
        return dataclasses.replace(policy, query=Understated(dim=problem.dim, norm=problem.norm))

    faint = dataclasses.replace(entry, factory=make)
    with pytest.raises(AssertionError, match="surprises"):
        law(PolicyFixture.of("faint", faint, "local"))
    with pytest.raises(CheckFailedError, match="BudgetExceededError"):
        LAWS["charged is what was promised"](
            PolicyFixture.of("faint", entry, "local", build_protected=_faintly)
        )


def _faintly(*given: Any, **named: Any) -> Any:
    """Two thirds of the noise that the promise asks for."""
    made = build_protected(*given, **named)
    faint = {
        name: privatizer.with_noise(lambda noise: dataclasses.replace(noise, std=2 / 3 * noise.std))
        for name, privatizer in made.privatizers.items()
    }
    return dataclasses.replace(made, privatizers=faint)


def _regret(policy: Policy, world: Environment, promise: Guarantee, horizon: int) -> float:
    run = simulate(
        policy=policy,
        privatizers=protect(policy, Protection(guarantee=promise), horizon=horizon),
        environment=world,
        ledger=MemoryLedger(promise),
        horizon=horizon,
        replicates=16,
        seed=5,
        ticks=1,
    )
    return float(run.regret[-1].mean())


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("link", "trust"), [("logistic", "local"), ("probit", "none"), ("linear", "local")]
)
def test_greedy_descent_has_less_regret_than_uniform(link: str, trust: str) -> None:
    world = make_environment(link=link, dim=2, arms=10, radius=1.5)
    promise = Guarantee(epsilon=10.0, delta=1e-5, trust=Trust(trust))
    if trust == "none":
        promise = Guarantee(epsilon=math.inf, delta=0.0, trust=Trust.NONE)
    lost, guessed = (
        _regret(POLICIES[name].build(world.problem(1500), "tuned"), world, promise, 1500)
        for name in ("glm-greedy", "uniform")
    )
    assert lost < (0.15 if trust == "none" else 0.3) * guessed
