"""Algorithm 3, repaired and as printed: surrogate, recursions, bounds, widths and learning."""

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

from kerchief.checks import BANDIT_LAWS, PolicyFixture
from kerchief.core.contracts import Arms, Environment, Example, NoiseInfo, Policy, Tree
from kerchief.core.contracts import Release as Released
from kerchief.core.errors import InvalidValueError
from kerchief.core.problems import Problem
from kerchief.core.queries import RegressionMoments
from kerchief.core.random import Stream
from kerchief.environments import make_environment
from kerchief.mechanisms.gaussian import Gaussian
from kerchief.policies import PrivacyBudget
from kerchief.policies.glm.local_descent import Learner, LocalDescent
from kerchief.policies.glm.local_paper import PrintedDescent, ThreeBlocks, printed_deviation
from kerchief.policies.registry import POLICIES, Mode
from kerchief.privacy import Guarantee, MemoryLedger, Trust
from kerchief.privacy.calibration import gaussian_epsilon
from kerchief.privatizers import Protection, protect
from kerchief.simulation import simulate

Floats = NDArray[np.float64]
Turns = Callable[[Policy, Environment, int], Iterator[tuple[Floats, int, float, Tree]]]
LAWS = {law.name: law for law in BANDIT_LAWS}
WORLD = make_environment(link="logistic", dim=3, arms=6, radius=1.5)
NOISY = {"gradients": NoiseInfo(noisy=True)}


def facts(**changes: Any) -> Problem:
    return dataclasses.replace(WORLD.problem(1000), **changes)


def paper(epsilon: float = math.inf, delta: float = 0.05, **changes: Any) -> PrintedDescent:
    build = POLICIES["glm-local@paper"].build_with_budget
    assert build is not None
    made = build(
        facts(**changes), "tuned", PrivacyBudget(epsilon=epsilon, delta=delta, trust="local")
    )
    assert isinstance(made, PrintedDescent)
    return made


def projected(v: Floats, point: Floats, radius: float) -> Floats:
    """The nearest point of the ball in the norm of V, by bisection on the multiplier."""
    if np.linalg.norm(point) <= radius:
        return point
    low, high = 0.0, 1e9
    for _ in range(200):
        middle = (low + high) / 2
        moved = np.linalg.solve(v + middle * np.eye(len(point)), v @ point)
        low, high = (middle, high) if np.linalg.norm(moved) > radius else (low, middle)
    return np.asarray(moved)


class Reference:
    """The repaired algorithm for logistic rewards without noise, in NumPy."""

    def __init__(self, learner: Learner, mode: Mode, policy: LocalDescent) -> None:
        self.learner, self.mode, self.policy = learner, mode, policy
        self.k = math.exp(-1.5) / (1 + math.exp(-1.5)) ** 2
        self.bound = float(special.expit(1.5)) if mode == "theory" else 0.5
        self.v, self.u, self.iterate = np.eye(3), np.zeros(3), np.zeros(3)
        self.count, self.growth = 0, 0.0

    def step(self) -> float:
        return float(self.policy.stride) * 3 / (math.sqrt(max(1, self.count)) * self.bound)

    def width(self) -> float:
        if self.mode == "tuned":
            return float(self.policy.exploration) * (1.5 + math.sqrt(3))
        first = 1 / self.step() if self.learner == "descent" else self.k
        regret = self.growth + 2 * 2.25 * first
        ratio, half = (0.5 / self.k) ** 2, 0.025
        crude = 4 + 8 * regret / self.k + 16 * ratio * math.log(1 / half)
        crude += 8 * ratio * max(0.0, math.log(8 * ratio) - 1)
        log = math.log(math.sqrt(crude) / half)
        return math.sqrt(1 + 4 * regret / self.k + 8 * ratio * log + 2.25)

    def learn(self, x: Floats, y: float) -> None:
        score = x @ self.iterate
        gradient = float(np.clip(special.expit(score) - y, -self.bound, self.bound)) * x
        self.count += 1
        self.v += np.outer(x, x)
        self.u += score * x
        if self.learner == "descent":
            self.growth += self.step() / 2 * float(gradient @ gradient)
            self.iterate = projected(np.eye(3), self.iterate - self.step() * gradient, 1.5)
            return
        metric = self.k / float(self.policy.stride) * self.v
        newton = np.linalg.solve(metric, gradient)
        self.growth += float(gradient @ newton) / 2
        self.iterate = projected(metric, self.iterate - newton, 1.5)


@pytest.mark.parametrize(
    ("learner", "mode"),
    [
        ("descent", "tuned"),
        pytest.param("newton", "theory", marks=pytest.mark.nightly),
        pytest.param("descent", "theory", marks=pytest.mark.nightly),
    ],
)
def test_without_noise_it_is_a_plain_recursion(turns: Turns, learner: Learner, mode: Mode) -> None:
    policy = LocalDescent.of(WORLD.problem(150), learner=learner, mode=mode)
    plain, edge = Reference(learner, mode, policy), 0
    for x, action, reward, model in turns(policy, WORLD, 150):
        np.testing.assert_allclose(model.iterate, plain.iterate, atol=1e-4)
        estimate = np.linalg.solve(plain.v, plain.u)
        np.testing.assert_allclose(model.estimate, estimate, atol=1e-4)
        assert float(model.width) == pytest.approx(plain.width(), rel=1e-4)
        length = np.sqrt(np.einsum("ij,ji->i", x, np.linalg.solve(plain.v, x.T)))
        upper = x @ estimate + plain.width() * length
        assert upper[action] >= upper.max() - 1e-3
        plain.learn(x[action], reward)
        edge += bool(np.linalg.norm(plain.iterate) > 1.5 - 1e-9)
    assert edge > 0


def test_noisy_gram_times_iterate_is_an_unbiased_score_report() -> None:
    """Mean to 5 standard errors, and a covariance below that of a block of its own."""
    policy = LocalDescent.of(facts())
    x, iterate = jnp.array([0.6, -0.3, 0.5]), jnp.array([0.4, 1.0, -0.2])
    record = Example(features=x, reward=jnp.float64(0.3))
    noise = Gaussian(std=2.0, sensitivity=policy.query.sensitivity)
    statistic, many = policy.query.encode(record), 100_000

    def surrogate(round: jax.Array) -> jax.Array:
        report = noise.add(statistic, Stream.of(seed=3, replicate=0).at(0, round=round))
        state = dataclasses.replace(policy.init(NOISY), iterate=iterate)
        release = Released(total=report, count=jnp.int32(1), noise=jnp.float64(2.0))
        return policy.update(state, "gradients", release).moment

    drawn = np.asarray(jax.jit(jax.vmap(surrogate))(jnp.arange(many, dtype=jnp.uint32)))
    deviation, square = 2.0 / policy.query.balance, float(iterate @ iterate)
    error = deviation * math.sqrt(square / many)
    np.testing.assert_allclose(drawn.mean(0), float(x @ iterate) * x, atol=5 * error)
    wanted = deviation**2 / 2 * (square * np.eye(3) + np.outer(iterate, iterate))
    np.testing.assert_allclose(np.cov(drawn.T), wanted, atol=0.04 * deviation**2 * square)


def test_steps_and_ridge_pay_for_the_noise() -> None:
    """A step on numbers worked out by hand; a printed step does not know the noise."""
    policy = LocalDescent.of(facts(), stride=1.0)
    state, count, noise = policy.init(NOISY), 4, 6.0
    gradient = jnp.array([0.0, 0.1, 0.0])
    total = jnp.concatenate([jnp.zeros(6), gradient])
    release = Released(total=total, count=jnp.int32(count), noise=jnp.float64(noise))
    moved = policy.update(state, "gradients", release)
    # A gradient is at most 0.5 long and has noise of 6/√4 a coordinate.
    step = 2 * 1.5 / math.sqrt(4 * (0.25 + 3 * 9))
    np.testing.assert_allclose(moved.iterate, [0, -0.1 * step, 0])
    assert float(moved.growth) == pytest.approx(step / 2 * 0.01)
    wide, narrow = (
        policy.publish(dataclasses.replace(moved, noise=jnp.float64(level))) for level in (6.0, 0.0)
    )
    assert float(wide.inverse[0, 0]) < float(narrow.inverse[0, 0])
    assert float(wide.width) > float(narrow.width)


@pytest.mark.parametrize("learner", ["descent", "newton"])
def test_the_proved_width_adds_up(learner: Learner) -> None:
    """Every term of the note, for noise of a given size, from a state made by hand."""
    policy = LocalDescent.of(facts(), learner=learner, mode="theory")
    count, noise, growth, s, k = 400, 3.0, 7.0, 1.5, float(policy.flattest)
    state = dataclasses.replace(
        policy.init(NOISY),
        count=jnp.int32(count),
        noise=jnp.float64(noise),
        growth=jnp.float64(growth),
    )
    log = math.log(12 * 401**2 / 0.05)
    shaken = noise / policy.query.balance
    shake = shaken * (math.sqrt(6) + math.sqrt(2 * log))
    ridge = 1 + 2 * shake
    regret = growth + 2 * s * noise * math.sqrt(2 * log)
    if learner == "descent":
        square = policy.query.high**2 + 3 * noise**2 / count
        regret += 2 * s**2 * math.sqrt(count * square) / (2 * s)
    else:
        regret += 2 * k * s**2 * (ridge + shaken * math.sqrt(2 * log))
    ratio = (0.5 / k) ** 2
    crude = 4 + 8 * regret / k + 16 * ratio * math.log(40) + 8 * ratio * (math.log(8 * ratio) - 1)
    scores = 1 + 4 * regret / k + 8 * ratio * math.log(math.sqrt(crude) * 40)
    # The bound on the scores solves what it was derived from: N ≤ 1 + 2B/k + 2r√(2N ln(√N/α)).
    whole = 1 + scores
    assert whole >= 1 + 2 * regret / k + 2 * math.sqrt(
        2 * ratio * whole * math.log(40 * whole**0.5)
    )
    drift = 4 * (shaken * s) ** 2 * (log + 1.5 * math.log(2)) / (1 + shake)
    width = math.sqrt(scores + ridge * s**2 + 3 * s**2 * shaken * math.sqrt(2 * log) + drift)
    model = policy.publish(state)
    assert float(model.width) == pytest.approx(width, rel=1e-5)
    assert float(model.inverse[0, 0]) == pytest.approx(1 / ridge, rel=1e-5)


def test_printed_constants() -> None:
    policy = paper(2.0, 1e-5)
    sigma = 6 * math.sqrt(2 * math.log(3.75e5)) / 2
    assert policy.deviation == pytest.approx(sigma) == printed_deviation(2.0, 1e-5)
    assert policy.step == pytest.approx(1000**-0.5)
    state = dataclasses.replace(
        policy.init({"blocks": NoiseInfo(noisy=True)}), count=jnp.int32(100)
    )
    model = policy.publish(state)
    ridge = 1 + 2 * sigma * 10 * (4 * math.sqrt(3) + 2 * math.log(2000 / 0.05))
    assert float(model.inverse[0, 0]) == pytest.approx(1 / ridge, rel=1e-5)
    largest, k = float(special.expit(1.5)), float(policy.flattest)
    width = math.sqrt(largest * sigma / k * math.sqrt(300))
    assert float(model.width) == pytest.approx(width, rel=1e-5)


@pytest.mark.parametrize("name", ["glm-local@paper", "glm@author-code"])
def test_a_pure_promise_keeps_every_delta(name: str) -> None:
    """The printed constants divide by delta; with none they are those without a promise."""
    made, plain = (
        POLICIES[name].build(
            facts(), "tuned", PrivacyBudget(epsilon=1.0, delta=delta, trust="local")
        )
        for delta in (0.0, 0.05 if name == "glm-local@paper" else 0.02)
    )
    assert made == plain


def test_printed_version_is_a_plain_recursion(turns: Turns) -> None:
    policy = paper()
    v, u, iterate = np.eye(3), np.zeros(3), np.zeros(3)
    for x, action, reward, model in turns(policy, WORLD, 100):
        np.testing.assert_allclose(model.iterate, iterate, atol=1e-5)
        np.testing.assert_allclose(model.estimate, np.linalg.solve(v, u), atol=1e-5)
        assert float(model.width) == 0
        chosen = x[action]
        score = chosen @ iterate
        v += np.outer(chosen, chosen)
        u += score * chosen
        gradient = (special.expit(score) - reward) * chosen
        iterate = projected(np.eye(3), iterate - gradient / math.sqrt(1000), 1.5)


QUERIES = {
    "two blocks": LocalDescent.of(facts()).query,
    "three blocks": ThreeBlocks(dim=3, norm=2.0, score=1.5, slope=0.7),
}


@pytest.mark.parametrize("name", list(QUERIES))
def test_the_sensitivity_is_reached_and_never_exceeded(name: str) -> None:
    """Random records, and pairs at the angle where the diameter lies."""
    query: Any = QUERIES[name]
    rng = np.random.default_rng(2)
    features = rng.normal(size=(1200, 3))
    features /= np.linalg.norm(features, axis=1, keepdims=True) / query.norm
    features[600:] = -features[:600] + 0.02 * rng.normal(size=(600, 3))
    rewards, weights = rng.choice([-9.0, 9.0], size=(2, 1200))
    rewards[600:], weights[600:] = rewards[:600], weights[:600]

    def encode(x: jax.Array, y: jax.Array, w: jax.Array) -> jax.Array:
        statistic: jax.Array = query.encode(Example(features=x, reward=y, weight=w))
        return statistic

    rows = np.asarray(jax.vmap(encode)(*map(jnp.asarray, (features, rewards, weights))))
    gaps = np.linalg.norm(rows[:, None] - rows[None], axis=-1)
    assert 0.99 * query.sensitivity <= gaps.max() <= query.sensitivity * (1 + 1e-12)
    assert np.linalg.norm(rows - query.center, axis=1).max() <= query.radius * (1 + 1e-12)


@pytest.mark.parametrize("reward", [math.nan, math.inf, -math.inf, 1e300, -1e300])
def test_gradients_are_cut_whatever_the_reward(reward: float) -> None:
    """So the promise has no condition: at the bounds of the query, which are those of the noise."""
    arms = Arms(features=jnp.array([[9.0, -9.0, jnp.nan]]), allowed=jnp.ones(1, bool))
    policy: Any
    for policy in (LocalDescent.of(facts()), LocalDescent.of(facts(), mode="theory"), paper()):
        (name,) = policy.queries
        model = policy.publish(policy.init({name: NoiseInfo(noisy=False)}))
        model = dataclasses.replace(model, iterate=jnp.array([1.0, -1.0, 1.0]))
        record = policy.record(model, arms, jnp.int32(0), jnp.float64(reward))[name]
        parts = policy.query.split(policy.query.encode(record))
        bound = (
            policy.query.high if isinstance(policy.query, RegressionMoments) else policy.query.slope
        )
        assert np.linalg.norm(parts[-1]) <= bound * (1 + 1e-12)
        assert np.linalg.norm(parts[0]) <= 1 + 1e-12


def test_the_paper_takes_a_bound_that_rewards_break() -> None:
    """|μ(z) - y| may be above C = sup |μ| where rewards are not binary: 2.5 here."""
    policy = paper(link="linear", low=-1.0, high=1.0)
    assert policy.largest == 1.5
    assert policy.query.slope == 2.5


def test_printed_noise_breaks_the_promise_for_small_means() -> None:
    """At ε = 10, δ = 1e-5 and C = 0.3: rewards 2 apart, as noise in [-1, 1] allows, tell more."""
    epsilon, delta, largest = 10.0, 1e-5, 0.3
    std = largest * printed_deviation(epsilon, delta)
    assert gaussian_epsilon(delta, std / 2) > epsilon
    # Of C = 1 the same two rewards tell less.
    assert gaussian_epsilon(delta, std / largest / 2) < epsilon


def test_in_theory_no_honest_gradient_is_cut() -> None:
    bound = LocalDescent.of(facts(), mode="theory").query.high
    assert bound == pytest.approx(special.expit(1.5))
    assert LocalDescent.of(facts(), mode="tuned").query.high == 0.5


@pytest.mark.parametrize("name", ["dim", "norm", "score", "slope", "importance"])
def test_bounds_are_checked(name: str) -> None:
    given: dict[str, Any] = {"dim": 2, "norm": 1.0, "score": 1.0, "slope": 1.0, name: 0}
    with pytest.raises(InvalidValueError, match=name):
        ThreeBlocks(**given)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Understated(ThreeBlocks):
    """Claims two thirds of its sensitivity, so that its noise is a third too small."""

    @property
    def sensitivity(self) -> float:
        return 2 / 3 * math.sqrt(8)


def test_noise_a_third_too_small_is_caught() -> None:
    """By the law of statistics, for blocks that claim too little; as they are, they pass."""
    entry, law = POLICIES["glm-local@paper"], LAWS["statistics obey their bound"]
    law(PolicyFixture.of("glm-local@paper", entry, "local"))

    def make(problem: Problem, mode: Mode) -> PrintedDescent:
        policy = entry.factory(problem, mode)
        assert isinstance(policy, PrintedDescent)
        fields = {f.name: getattr(policy.query, f.name) for f in dataclasses.fields(policy.query)}
        return dataclasses.replace(policy, query=Understated(**fields))

    with pytest.raises(AssertionError, match="blocks"):
        law(
            PolicyFixture.of(
                "faint", dataclasses.replace(entry, factory=make, build_with_budget=None), "local"
            )
        )


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "trust", "factor"),
    [("glm-descent", "local", 0.5), ("glm-newton", "none", 0.15)],
)
def test_local_descent_has_less_regret_than_uniform(name: str, trust: str, factor: float) -> None:
    world = make_environment(link="logistic", dim=2, arms=10, radius=1.5)
    promise = Guarantee(epsilon=10.0, delta=1e-5, trust=Trust(trust))
    if trust == "none":
        promise = Guarantee(epsilon=math.inf, delta=0.0, trust=Trust.NONE)
    lost = {}
    for player in (name, "uniform"):
        policy = POLICIES[player].build(world.problem(1500), "tuned")
        run = simulate(
            policy=policy,
            privatizers=protect(policy, Protection(guarantee=promise), horizon=1500),
            environment=world,
            ledger=MemoryLedger(promise),
            horizon=1500,
            replicates=16,
            seed=5,
            ticks=1,
        )
        lost[player] = float(run.regret[-1].mean())
    assert lost[name] < factor * lost["uniform"]
