"""Write the vectors that hold every light device to the library: `python -m tests.vectors.write`.

Real numbers are their 64 bits in 16 hexadecimal digits, big-endian. Random bytes come from
`bytes_of.Bytes`. The files are canonical JSON: running this again must change nothing but what a
change of the library's mathematics changes.
"""

from __future__ import annotations

import dataclasses
import hmac
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from tests.vectors.bytes_of import Bytes

from kerchief.core.contracts import Arms, Clock, Example
from kerchief.core.convex import Ball
from kerchief.core.phases import ANSWERS
from kerchief.core.problems import ContextFreeProblem, PopulationProblem, Problem
from kerchief.core.queries import BoundedScalar, RegressionMoments
from kerchief.core.random import Stream
from kerchief.core.residual_moments import ResidualMoments
from kerchief.deployment.deployment import Deployment, deploy
from kerchief.deployment.population import PopulationLearner
from kerchief.mechanisms.binomial import ExactBinomial, Grid
from kerchief.mechanisms.compass import Compass as SimulatedCompass
from kerchief.mechanisms.exact_gaussian import ExactGaussian
from kerchief.mechanisms.laplace import ExactLaplace
from kerchief.mechanisms.one_bit import OneBit as SimulatedBit
from kerchief.mechanisms.randomized_bits import ExactResponse
from kerchief.mechanisms.shortlist import Shortlist as SimulatedShortlist
from kerchief.policies.context_free.two_point import TwoPoint
from kerchief.policies.disjoint_contexts import DisjointPosterior
from kerchief.policies.ellipsoid import Ellipsoid, Model
from kerchief.policies.glm.online import OnlineGLM
from kerchief.policies.linear.linucb import LinUCB
from kerchief.policies.posterior import PosteriorModel
from kerchief.policies.thompson_sampling import LinearSampling, build_sampling
from kerchief.policies.weighted import RULE, ResidualModel, SurprisedSampling
from kerchief.privacy.calibration import gaussian_noise_multiplier
from kerchief.privacy.guarantee import Guarantee, Trust
from kerchief_protocol.canonical import pack, write
from kerchief_protocol.model import Numbers, Status
from kerchief_protocol.noise import (
    Bits,
    Coins,
    Compass,
    Noise,
    OneBit,
    Rounded,
    Shortlist,
    Statistic,
)
from kerchief_protocol.programs import Answering, Optimist
from kerchief_protocol.projection import Projection
from kerchief_protocol.report import Report

HERE = Path(__file__).parent
Floats = NDArray[np.float64]

_EPSILON, _DELTA = 1.0, 1e-5
_PROMISED = Guarantee(epsilon=_EPSILON, delta=_DELTA, trust=Trust.CENTRAL)


def reals(numbers: Any) -> list[float]:
    """Numbers as a flat list of floats."""
    return [float(one) for one in np.ravel(np.asarray(numbers, np.float64))]


def problems() -> list[Problem]:
    """Public bounds of several sizes, one for each link, and one with a constant coordinate."""
    facts: dict[str, Any] = {"arms": 20, "radius": 1.0, "horizon": 1000}
    return [
        Problem(dim=2, norm=1.0, low=-1.0, high=1.0, link="linear", **facts),
        Problem(dim=5, norm=2.0, low=0.0, high=1.0, link="linear", **facts),
        Problem(dim=5, norm=1.0, low=0.0, high=1.0, link="linear", constant=0.5, **facts),
        Problem(dim=5, norm=1.0, low=0.0, high=1.0, link="logistic", **facts),
        Problem(dim=3, norm=3.0, low=0.0, high=1.0, link="probit", **facts),
        Problem(dim=4, norm=1.0, low=0.0, high=3.0, link="poisson", **facts),
        Problem(dim=8, norm=1.0, low=-2.0, high=2.0, link="linear", **facts),
    ]


def policies() -> list[tuple[Problem, Ellipsoid]]:
    """Every policy that was made light."""
    found: list[tuple[Problem, Ellipsoid]] = []
    for problem in problems():
        if problem.link == "linear":
            found.append((problem, LinUCB.of(problem)))
        if not problem.constant:
            found.append((problem, OnlineGLM.of(problem)))
    return found


def program(problem: Problem, policy: Ellipsoid) -> Optimist:
    """What a device is told of a policy."""
    query, glm = policy.query, isinstance(policy, OnlineGLM)
    surprising = isinstance(policy, SurprisedSampling)
    return Optimist(
        dim=problem.dim,
        arms=problem.arms,
        norm=float(query.norm),
        low=float(problem.low),
        high=float(problem.high),
        link=policy.link if isinstance(policy, OnlineGLM) else "linear",
        linearized=glm,
        largest_score=float(problem.radius * query.norm),
        steepest=float(policy.steepest) if isinstance(policy, OnlineGLM) else 1.0,
        response_low=float(query.low),
        response_high=float(query.high),
        offset=float(query.offset),
        balance=float(query.balance),
        weighted=query.weighted,
        reweighed=RULE if surprising else 0,
        choice="guess" if surprising else "bound",
    )


def surprising() -> list[tuple[Problem, SurprisedSampling]]:
    """Policies that report surprises, at several epsilons: in both forms, of several balances."""
    one = Problem(dim=1, arms=2, norm=1.0, radius=1.0, low=0.1, high=0.7, horizon=1000)
    return [
        (problem, build_sampling(problem, trust="local", epsilon=epsilon))
        for problem in (*problems(), one)
        for epsilon in (0.25, 1.0, 8.0)
    ]


def model_of(dim: int, rng: np.random.Generator) -> Model:
    """A model as a learner might post it."""
    half = rng.normal(size=(dim, dim))
    inverse = np.linalg.inv(half @ half.T + 0.1 * np.eye(dim))
    return Model(
        estimate=jnp.asarray(rng.normal(size=dim) * 0.7, jnp.float32),
        inverse=jnp.asarray(inverse, jnp.float32),
        width=jnp.asarray(rng.uniform(0, 2), jnp.float32),
    )


def rows_of(arms: int, dim: int, norm: float, rng: np.random.Generator) -> Floats:
    """Features within the ball, some of them equal."""
    rows = rng.normal(size=(arms, dim))
    rows *= norm * rng.uniform(0, 1, (arms, 1)) / np.linalg.norm(rows, axis=1, keepdims=True)
    if arms > 2:
        rows[-1] = rows[0]
    return rows


def choices() -> list[dict[str, Any]]:
    """Which arm `Ellipsoid.act` plays."""
    rng, found = np.random.default_rng(1), []
    clock, stream = Clock(round=jnp.int32(0), since={}), Stream.of(seed=0, replicate=0)
    for number in range(70):
        problem = problems()[number % 7]
        policy, model = LinUCB.of(problem), model_of(problem.dim, rng)
        arms = int(rng.integers(1, problem.arms + 1))
        rows = rows_of(arms, problem.dim, problem.norm, rng)
        allowed = rng.uniform(size=arms) < 0.8
        allowed[int(rng.integers(arms))] = True
        if number % 10 == 0:
            rows = np.tile(rows[:1], (arms, 1))
        given = Arms(features=jnp.asarray(rows), allowed=jnp.asarray(allowed))
        found.append(
            {
                "dim": problem.dim,
                "estimate": reals(model.estimate),
                "inverse": reals(model.inverse),
                "width": float(model.width),
                "rows": [reals(row) for row in rows],
                "allowed": [bool(one) for one in allowed],
                "arm": int(policy.act(model, given, clock, stream)),
            }
        )
    return found


def reweighed_records() -> list[dict[str, Any]]:
    """The statistics of surprises, weighted by a posted matrix; of some, without a direction."""
    rng, found, policies = np.random.default_rng(6), [], surprising()
    for number in range(6 * len(policies)):
        problem, policy = policies[number % len(policies)]
        dim = problem.dim
        drawn = rng.normal(size=(dim, dim))
        weights = jnp.asarray(np.eye(dim) + (number % 4) * drawn @ drawn.T, jnp.float32)
        reference = jnp.asarray((number % 2) * rng.normal(size=dim), jnp.float32)
        (row,) = rows_of(1, dim, problem.norm, rng) * (0.0 if number % 19 == 0 else 1.0)
        reward = float(rng.uniform(problem.low, problem.high))
        model = _weighing(weights, reference)
        found.append(
            {
                "program": program(problem, policy),
                "weights": [reals(one) for one in weights],
                "reference": reals(reference),
                "features": reals(row),
                "reward": reward,
                "statistic": reals(_statistic(policy, model, row, reward)),
            }
        )
    return found


def _weighing(weights: jax.Array, reference: jax.Array) -> ResidualModel:
    """A model of which only what weighs reports counts."""
    nothing = jnp.zeros_like(weights)
    return ResidualModel(
        estimate=jnp.zeros_like(reference),
        sample=nothing,
        widen=nothing,
        weights=weights,
        reference=reference,
    )


def guesses() -> list[dict[str, Any]]:
    """Which arm `Sampling.guess` plays."""
    rng, found = np.random.default_rng(4), []
    for number in range(70):
        problem = problems()[number % 7]
        policy, dim = LinearSampling.of(problem), problem.dim
        model = PosteriorModel(
            estimate=jnp.asarray(rng.normal(size=dim) * 0.7, jnp.float32),
            sample=jnp.asarray(rng.normal(size=(dim, dim)) * 0.3, jnp.float32),
            widen=jnp.asarray(rng.normal(size=(dim, dim)) * 0.3, jnp.float32),
        )
        arms = int(rng.integers(1, problem.arms + 1))
        rows = rows_of(arms, dim, problem.norm, rng)
        allowed = rng.uniform(size=arms) < 0.8
        allowed[int(rng.integers(arms))] = True
        given = Arms(features=jnp.asarray(rows), allowed=jnp.asarray(allowed))
        normals, lot = rng.normal(size=dim), float(rng.uniform())
        played = policy.guess(model, given, jnp.asarray(normals), jnp.float64(lot))
        found.append(
            {
                "dim": dim,
                **{name: reals(part) for name, part in vars(model).items()},
                "rows": [reals(row) for row in rows],
                "allowed": [bool(one) for one in allowed],
                "normals": reals(normals),
                "lot": lot,
                "arm": int(played),
            }
        )
    return found


def records() -> list[dict[str, Any]]:
    """The statistic of a visit, also of visits outside all bounds."""
    rng, found = np.random.default_rng(2), []
    for problem, policy in policies():
        told = program(problem, policy)
        for number in range(12):
            model = model_of(problem.dim, rng)
            x = rows_of(1, problem.dim, problem.norm, rng)[0]
            reward = float(rng.uniform(problem.low, problem.high))
            if number == 0:
                x, reward = np.zeros(problem.dim), 0.0
            if number >= 10:
                x, reward = x * 1e3, reward + 10.0 * (-1) ** number
            found.append(
                {
                    "program": told,
                    "estimate": reals(model.estimate),
                    "features": reals(x),
                    "reward": reward,
                    "statistic": reals(_statistic(policy, model, x, reward)),
                }
            )
    return found


def own_problems() -> list[Problem]:
    """Public bounds of arms with models of their own, with and without a constant."""
    facts: dict[str, Any] = {"radius": 1.0, "horizon": 1000, "norm": 1.5}
    return [
        Problem(dim=3, arms=4, low=0.0, high=1.0, constant=0.5, own=3, **facts),
        Problem(dim=2, arms=1, low=0.0, high=1.0, constant=1.0, own=2, **facts),
        Problem(dim=4, arms=7, low=-1.0, high=2.0, own=4, **facts),
    ]


def own_models() -> list[dict[str, Any]]:
    """Arms with models of their own: which is played, what is reported, and how far apart."""
    rng, found = np.random.default_rng(7), []
    for number in range(45):
        problem = own_problems()[number % 3]
        made = deploy(policy="best", problem=problem, guarantee=_PROMISED)
        policy: Any = made.policy
        arms, dim, count = problem.arms, problem.dim, int(rng.integers(1, problem.arms + 1))
        model = DisjointPosterior(
            estimate=jnp.asarray(rng.normal(size=(arms, dim)) * 0.7, jnp.float32),
            sample=jnp.asarray(rng.normal(size=(arms, dim, dim)) * 0.3, jnp.float32),
        )
        rows = rows_of(count, dim, problem.norm, rng) * (1e3 if number >= 39 else 1.0)
        allowed = rng.uniform(size=arms) < 0.8
        allowed[int(rng.integers(count))] = True
        allowed[count:] = False
        normals, reward = rng.normal(size=arms), float(rng.uniform(-2, 3))
        padded = Arms(
            features=jnp.zeros((arms, dim)).at[:count].set(rows), allowed=jnp.asarray(allowed)
        )
        arm = policy.guess(model, padded, jnp.asarray(normals))
        record = policy.record(model, padded, arm, jnp.float64(reward))["moments"]
        found.append(
            {
                "program": made.task.program,
                "estimate": reals(model.estimate),
                "sample": reals(model.sample),
                "rows": [reals(row) for row in rows],
                "allowed": [bool(one) for one in allowed[:count]],
                "normals": reals(normals),
                "arm": int(arm),
                "reward": reward,
                "statistic": reals(jax.jit(policy.query.encode)(record)),
                "sensitivity": policy.query.sensitivity,
                "taxicab": policy.query.taxicab,
            }
        )
    return found


def _statistic(policy: Any, model: Any, x: Floats, reward: float) -> Floats:
    arms = Arms(features=jnp.asarray(x[None]), allowed=jnp.ones(1, bool))
    record = policy.record(model, arms, jnp.int32(0), jnp.float64(reward))["moments"]
    return np.asarray(jax.jit(policy.query.encode)(record))


def projections() -> list[dict[str, Any]]:
    """Features as the library projects them: every length, with a constant and without."""
    rng, found = np.random.default_rng(11), []
    for dim, onto, constant in ((3, 2, True), (7, 3, False), (20, 10, False), (130, 32, True)):
        for seed in (0, 5, 2**53 - 1):
            through = Projection(dim=dim, onto=onto, norm=2.0, seed=seed, constant=constant)
            rows = rows_of(4, dim, 2.0, rng)
            mapped = through.apply(jnp.asarray(rows, jnp.float64), jnp)
            found.append(
                {
                    "projection": through,
                    "rows": [reals(row) for row in rows],
                    "mapped": [reals(row) for row in mapped],
                }
            )
    return found


def answers() -> list[dict[str, Any]]:
    """The one number that a question is answered with, also from losses outside all bounds."""
    problem = ContextFreeProblem(
        horizon=100, low=0.0, high=2.0, domain=Ball(dim=3), lipschitz=2.0, convexity=0.0
    )
    two = TwoPoint.paper(problem)
    apart = float(2 * two.radius)
    found = []
    for losses in ([0.25, 0.5], [2.0, 2.0 - 2**-40], [0.0, 2.0], [7.0, -7.0]):
        answer = two.answer(jnp.zeros((2, 3)), jnp.asarray(losses))
        slope = two.queries["loss"].encode(answer)
        far = apart * problem.lipschitz
        told = Answering(low=-far, high=far, questions=2, answer="difference")
        found.append({"program": told, "losses": losses, "statistic": reals(apart * slope)})
        told = Answering(low=0.0, high=2.0, questions=1, answer="loss")
        number = BoundedScalar.of(problem).encode(jnp.asarray(losses[:1])[0])
        found.append({"program": told, "losses": losses[:1], "statistic": reals(number)})
    return found


def bounds() -> list[dict[str, Any]]:
    """How far apart statistics can be."""
    found = []
    for problem, policy in [*policies(), *surprising()]:
        asked = policy.query
        fallback = math.sqrt(asked.size) * asked.sensitivity
        found.append(
            {
                "program": program(problem, policy),
                "sensitivity": asked.sensitivity,
                "taxicab": getattr(asked, "taxicab", fallback),
            }
        )
    return found


def query() -> RegressionMoments:
    """The query that noise is drawn for."""
    return LinUCB.of(problems()[1]).query


def coins(needs: tuple[int, ...]) -> tuple[Coins, ExactBinomial]:
    """The coins of a calibrated sum, all users honest."""
    asked = query()
    grid = Grid.of(
        noise_multiplier=gaussian_noise_multiplier(_EPSILON, _DELTA),
        sensitivity=asked.sensitivity,
        dimension=asked.size,
        users=max(needs),
    )
    exact = ExactBinomial(
        step=grid.step, scale=grid.scale, sensitivity=asked.sensitivity, dimension=asked.size
    )
    wire = Coins(
        size=asked.size,
        step_bits=exact.grid_bits - 1,
        levels=exact.levels,
        scale=exact.scale,
        coins=tuple(exact.coins(0, need) for need in needs),
    )
    return wire, exact


def shortlist(epsilon: float = _EPSILON) -> tuple[Shortlist, SimulatedShortlist]:
    """A calibrated shortlist."""
    asked = query()
    simulated = SimulatedShortlist.of(
        epsilon=epsilon, center=asked.center, radius=asked.radius, size=asked.size
    )
    exact = simulated.exact()
    wire = Shortlist(
        units=exact.units,
        candidates=exact.candidates,
        listed=exact.listed,
        center=exact.center,
        radius=exact.radius,
        factor=float(simulated.factor),
        grid_bits=26 - math.frexp(exact.std)[1],
    )
    return wire, simulated


def compass(epsilon: float = _EPSILON) -> tuple[Compass, SimulatedCompass]:
    """A calibrated compass."""
    policy = LinearSampling.of(problems()[1], trust="local", epsilon=_EPSILON)
    assert isinstance(policy.query, ResidualMoments)
    simulated = SimulatedCompass.of(epsilon=epsilon, query=policy.query)
    return simulated.exact().wire, simulated


def _box(statistic_bits: int) -> tuple[tuple[int, ...], int]:
    asked = query()
    center = np.rint(np.ldexp(asked.center, statistic_bits)).astype(np.int64)
    return tuple(center.tolist()), math.ceil(math.ldexp(asked.radius, statistic_bits)) + 1


Draw = Callable[[Floats, Bytes], NDArray[Any]]


def noises() -> list[tuple[Noise, int, Draw]]:
    """Each kind of noise, a label, and what the library makes of a statistic."""
    asked = query()
    gaussian = ExactGaussian.matching(
        gaussian_noise_multiplier(_EPSILON, _DELTA), asked.sensitivity, asked.size
    )
    laplace = ExactLaplace.of(epsilon=_EPSILON, taxicab=asked.taxicab, dimension=asked.size)
    needs = (300, 357, 2979)
    table, exact = coins(needs)
    found: list[tuple[Noise, int, Draw]] = [
        (_on_grid(gaussian), 0, lambda x, _: gaussian.prepare(x) / gaussian.grid),
        (_noise("gaussian", gaussian), 0, lambda x, s: gaussian.add(x, s) / gaussian.grid),
        (_noise("laplace", laplace), 0, lambda x, s: laplace.add(x, s) / laplace.grid),
        *((table, label, _share(exact, need)) for label, need in enumerate(needs)),
    ]
    for label, keep in enumerate((0.5, 0.0625)):
        response = ExactResponse(
            keep=keep,
            tail=1e-9,
            users=1000,
            bits=64,
            bound=4.0,
            sensitivity=asked.sensitivity,
            dimension=asked.size,
        )
        units = (2**19, 2**16)
        bits = Bits(size=asked.size, bits=64, bound=4.0, keep=units)
        found.append((bits, label, _report(response)))
    return found


def _on_grid(noise: ExactGaussian) -> Statistic:
    center, radius = _box(noise.grid_bits)
    return Statistic(grid_bits=noise.grid_bits, center=center, radius=radius)


def _noise(law: str, noise: ExactGaussian | ExactLaplace) -> Rounded:
    center, radius = _box(noise.grid_bits)
    return Rounded(
        law=law, grid_bits=noise.grid_bits, scale=noise.scale, center=center, radius=radius
    )


def _share(noise: ExactBinomial, users: int) -> Draw:
    return lambda x, s: noise.share(x, place=0, users=users, randomness=s) / noise.grid


def _report(noise: ExactResponse) -> Draw:
    return lambda x, s: noise.report(x, randomness=s)


def draws() -> list[dict[str, Any]]:
    """Whole numbers of every kind of noise."""
    rng, found = np.random.default_rng(3), []
    asked, policy = query(), LinUCB.of(problems()[1])
    for number, (noise, label, draw) in enumerate(noises()):
        for place in range(3):
            x = rows_of(1, asked.dim, asked.norm, rng)[0]
            statistic = _statistic(policy, model_of(asked.dim, rng), x, float(place == 1))
            found.append(_case(noise, label, statistic, f"{number}/{place}", draw))
    return found + single_numbers()


def single_numbers() -> list[dict[str, Any]]:
    """One bit for one number."""
    found = []
    for number, epsilon in enumerate((0.1, 1.0, 8.0)):
        exact = SimulatedBit.of(epsilon=epsilon, center=0.5, radius=0.5).exact()
        low, high = exact.reports
        noise = OneBit(bias=exact.bias, center=0.5, radius=0.5, low=low, high=high)

        def draw(x: Floats, source: Bytes, high: float = high, exact: Any = exact) -> NDArray[Any]:
            return np.asarray(exact.add(x, source) == high)

        for place in range(8):
            statistic = np.array([place / 7])
            found.append(_case(noise, 0, statistic, f"bit/{number}/{place}", draw))
    return found


def _case(noise: Noise, label: int, statistic: Floats, seed: str, draw: Draw) -> dict[str, Any]:
    numbers = np.asarray(draw(statistic, Bytes(seed)), np.float64)
    assert (numbers == np.rint(numbers)).all()
    return {
        "noise": noise,
        "label": label,
        "statistic": reals(statistic),
        "seed": seed,
        "numbers": [int(one) for one in numbers],
    }


def shortlists() -> list[dict[str, Any]]:
    """What reports of a shortlist are on average, and how far from it they are at the most."""
    rng, found, policy = np.random.default_rng(4), [], LinUCB.of(problems()[1])
    for epsilon in (1.0, 4.0):
        noise, simulated = shortlist(epsilon)
        x = rows_of(1, 5, policy.query.norm, rng)[0]
        statistic = _statistic(policy, model_of(5, rng), x, 1.0)
        found.append(
            {
                "noise": noise,
                "epsilon": simulated.exact().event().epsilon,
                "statistic": reals(statistic),
                "deviation": float(simulated.std),
            }
        )
    return found


def compasses() -> list[dict[str, Any]]:
    """What reports of a compass are on average, and how far from it they are.

    A report's numbers are those of the matrix and then those of the vector. `deviation` is the root
    of the mean square deviation of the ones or of the others, whichever is greater, where the coins
    are certain: where the response is the greatest on either side and the weight is 0 or 1.
    """
    rng, found = np.random.default_rng(8), []
    for epsilon in (1.0, 4.0):
        noise, simulated = compass(epsilon)
        for response, weight in ((1.0, 1.0), (-1.0, 0.0), (0.25, 0.625)):
            x = rng.normal(size=noise.dim)
            reward = simulated.query.offset + simulated.query.most * response
            told = Example(
                features=jnp.asarray(x), reward=jnp.asarray(reward), weight=jnp.asarray(weight)
            )
            found.append(
                {
                    "noise": noise,
                    "epsilon": simulated.exact().event().epsilon,
                    "statistic": reals(simulated.query.encode(told)),
                    "certain": abs(response) == 1,
                    "deviation": float(simulated.std),
                }
            )
    return found


def _population(policy: str, trust: str) -> Deployment:
    facts = PopulationProblem(
        dim=2,
        arms=4,
        norm=1.0,
        radius=1.0,
        low=-1.0,
        high=1.0,
        horizon=1000,
        clients=3000,
        spread=0.1,
    )
    promised = Guarantee(epsilon=8.0, delta=1e-4, trust=Trust(trust))
    return deploy(
        policy=policy,
        problem=facts,
        guarantee=promised,
        window_s=0,
        default=0.125,
        nonce=bytes(range(16)),
    )


def clients() -> list[dict[str, Any]]:
    """All messages of clients of phases, from the task to the report.

    A device takes 8 random bytes when it joins, and all others for its noise. A shortlist is drawn
    from normal numbers, in which languages differ: its report is left out.
    """
    rng, found = np.random.default_rng(6), list[dict[str, Any]]()
    actions = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8], [-0.6, 0.8]])
    for policy in ("dpe", "pe"):
        for trust in ("local", "shuffle", "central"):
            made = _population(policy, trust)
            learner = PopulationLearner(made, actions)
            atoms = np.shape(learner.query.pulls)[1]
            for label in (0, made.by_phases.groups - 1, made.by_phases.groups):
                for seen in (rng.uniform(-1, 1, atoms), rng.uniform(-9, 9, atoms), None):
                    seed = f"{policy}/{trust}/{len(found)}"
                    found.append(_client(made, learner, label, seen, seed))
    return found


def _client(
    made: Deployment, learner: PopulationLearner, label: int, seen: Floats | None, seed: str
) -> dict[str, Any]:
    """One client; in a phase that has not begun, it is asked what the first one asks."""
    task, groups, secret = made.task, made.by_phases.groups, Bytes(f"secret {seed}")(32)
    group, now = label % groups, Numbers.of(np.asarray(np.int64(label // groups)))
    model = dataclasses.replace(learner.model, arrays={**learner.model.arrays, "phase": now})
    status = Status(task=task.id, state="running", epoch=label, label=label)
    pulls = np.asarray(learner.query.pulls)[group]
    averages = np.where(pulls > 0, task.reward.default if seen is None else seen, 0.0)
    record = made.by_phases.answer(learner.query, group, jnp.asarray(averages))
    statistic = np.asarray(made.privatizers[ANSWERS].query.encode(record))
    id = hmac.digest(secret, b"kerchief/1 client\0" + task.id, "sha256")[:16]
    source = Bytes(seed)
    source(8)
    numbers = _whole(made, label, statistic, source)
    report = None
    if numbers is not None:
        report = Report(label=label, epoch=label, id=id, numbers=numbers).write(task).hex()
    return {
        "task": task.data.decode(),
        "name": task.id.hex(),
        "model": model.write().decode(),
        "status": status.write().decode(),
        "secret": secret.hex(),
        "seed": seed,
        "atoms": np.asarray(learner.query.atoms)[group].tolist(),
        "pulls": [int(one) for one in pulls],
        "averages": None if seen is None else reals(averages),
        "statistic": reals(statistic),
        "id": id.hex(),
        "report": report,
    }


def _whole(
    made: Deployment, label: int, statistic: Floats, source: Bytes
) -> NDArray[np.int64] | None:
    """The numbers that the library's own noise makes of a statistic."""
    privatizer: Any = made.privatizers[ANSWERS]
    noise = privatizer.device or privatizer.aggregator
    match made.task.noise[0]:
        case Shortlist():
            return None
        case Coins():
            drawn = _share(noise, min(made.task.needs))(statistic, source)
        case Statistic():
            drawn = noise.prepare(statistic) / noise.grid
        case _:
            drawn = noise.add(statistic, source) / noise.grid
    assert (drawn == np.rint(drawn)).all()
    return np.asarray(drawn, np.int64)


def main() -> None:
    """Write all files."""
    files = {
        "act": choices,
        "guess": guesses,
        "record": records,
        "reweighed": reweighed_records,
        "own": own_models,
        "projection": projections,
        "answer": answers,
        "sensitivity": bounds,
        "noise": draws,
        "shortlist": shortlists,
        "compass": compasses,
        "client": clients,
    }
    with jax.enable_x64(True):
        for name, make in files.items():
            (HERE / f"{name}.json").write_bytes(write(pack(make())))


if __name__ == "__main__":
    main()
