"""Exact statistics: every record's report counts, and what no record gives is refused."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import optimize  # type: ignore[import-untyped]
from tests.deployment.field import build_deployment, field

from kerchief.core.contracts import Example
from kerchief.core.disjoint_moments import DisjointMoments
from kerchief.core.problems import ContextFreeProblem, Problem
from kerchief.core.queries import GramMatrix, RegressionMoments, UnitBallVector
from kerchief.deployment.deployment import deploy
from kerchief.deployment.device_programs import build_disjoint_program
from kerchief.deployment.mechanism_descriptions import describe_statistic
from kerchief.deployment.record_check import RecordCheck
from kerchief.policies.glm.increments import Increments
from kerchief.privacy.guarantee import Guarantee, Trust
from kerchief_device import disjoint_models
from kerchief_device.randomize import randomize
from kerchief_device.record import LINKS, Moments, encode_loss, into_ball
from kerchief_protocol.errors import RejectedError
from kerchief_protocol.noise import Statistic
from kerchief_protocol.programs import Answering, DisjointModels, Library, Optimist, Phased, Program
from kerchief_protocol.task import Task

Floats = NDArray[np.float64]
Wholes = NDArray[np.int64]
UNIT = 2**20
PLAIN = Optimist(
    dim=3,
    arms=3,
    norm=1.0,
    low=0.0,
    high=1.0,
    link="linear",
    linearized=False,
    largest_score=1.0,
    steepest=1.0,
    response_low=0.0,
    response_high=1.0,
    offset=0.0,
    balance=1.0,
    weighted=False,
    reweighed=0,
    choice="bound",
)
WEIGHTED = dataclasses.replace(PLAIN, weighted=True)
PROBLEM = Problem(
    dim=3, arms=3, norm=1.0, radius=1.0, low=0.0, high=1.0, horizon=50, constant=0.5, own=3
)
OWN = build_disjoint_program(
    type("Policy", (), {"query": DisjointMoments.of(PROBLEM)})(),
    PROBLEM,
)


def regression(program: Optimist) -> RegressionMoments:
    """The query that a program reports."""
    return RegressionMoments(
        dim=program.dim,
        norm=program.norm,
        low=program.response_low,
        high=program.response_high,
        offset=program.offset,
        balance=program.balance,
        weighted=program.weighted,
    )


def own_moments(program: DisjointModels) -> DisjointMoments:
    """The query that a program reports."""
    return DisjointMoments(
        dim=program.dim,
        arms=program.arms,
        norm=program.varying,
        low=program.low,
        high=program.high,
        offset=program.offset,
        lever=program.lever,
        weight=program.weight,
        balance=program.balance or 1.0,
        pooled=program.balance > 0,
    )


def task_of(program: Program, noise: Statistic) -> Task:
    """A task of one query, whose devices add no noise."""
    return dataclasses.replace(
        build_deployment("central", horizon=2).task,
        program=program,
        noise=(noise,),
        needs=(2,),
        bandit="phased" if isinstance(program, Phased) else "contextual",
        queries=("moments",),
    )


def check_of(program: Program, query: Any, grid_bits: int = 20) -> tuple[RecordCheck, Statistic]:
    noise = describe_statistic(query, grid_bits)
    return RecordCheck(task_of(program, noise)), noise


def report(noise: Statistic, statistic: Floats) -> Wholes:
    return randomize(noise, statistic, 0, bytes)


def lengths(random: np.random.Generator, norm: float) -> float:
    """Lengths of features: at the bound, beyond it, tiny, subnormal, zero, and between."""
    scales = (1, 2, 1e300, 0.5, 1e-3, 1e-6, 1e-160, 5e-324, 0, *10 ** random.uniform(-7, 0, 3))
    return norm * float(random.choice(scales))


def features(random: np.random.Generator, dim: int, norm: float) -> Floats:
    x = random.normal(size=dim)
    match random.integers(4):
        case 0:
            x = np.eye(dim)[random.integers(dim)]
        case 1:
            x *= 10.0 ** random.uniform(-8, 0, dim)
        case 2:
            x = np.round(2 * x) / 2 + np.eye(dim)[0]
    with np.errstate(over="ignore"):
        return x / (float(np.linalg.norm(x)) or 1.0) * lengths(random, norm)


def optimist(random: np.random.Generator) -> Optimist:
    """Any program: sizes, bounds, offsets, weights, links."""
    low = float(random.normal() * 10 ** random.uniform(-2, 2))
    high = low + float(10 ** random.uniform(-3, 2))
    linearized = bool(random.integers(2))
    return dataclasses.replace(
        PLAIN,
        dim=int(random.choice([1, 2, 3, 5, 9])),
        norm=float(10 ** random.uniform(-3, 3)),
        balance=float(10 ** random.uniform(-2, 2)),
        response_low=low,
        response_high=high,
        offset=float(random.choice([0, low, high, (low + high) / 2, low - 1])),
        weighted=bool(random.integers(2)),
        linearized=linearized,
        link=str(random.choice(list(LINKS))) if linearized else "linear",
    )


def test_every_record_of_moments_counts() -> None:
    random = np.random.default_rng(1)
    for _ in range(400):
        program = optimist(random)
        query, device = regression(program), Moments(program)
        grid_bits = int(random.integers(0, 40)) - math.frexp(query.radius)[1]
        check, noise = check_of(program, query, grid_bits)
        reports = []
        for _ in range(15):
            x, ends = features(random, program.dim, program.norm), (query.low, query.high)
            y = float(random.choice([*ends, query.offset, random.uniform(*ends), -1e9, 1e9]))
            estimate = random.normal(size=program.dim) * 10 ** random.uniform(-9, 9)
            reports.append(report(noise, device.statistic(estimate, x, y)))
            weight = float(random.choice([0, 1, 1e-12, 5e-324, 2, random.uniform(0, 1)]))
            reports.append(report(noise, device.encode(x, y, weight)))
        assert check.could_be_records(np.array(reports)).all(), program


def test_every_record_of_disjoint_models_counts() -> None:
    random = np.random.default_rng(2)
    for _ in range(300):
        low = float(random.normal())
        program = dataclasses.replace(
            OWN,
            dim=int(random.choice([2, 3, 6])),
            arms=int(random.choice([1, 2, 5])),
            varying=float(10 ** random.uniform(-3, 3)),
            low=low,
            high=low + float(10 ** random.uniform(-3, 2)),
            offset=float(random.choice([0.0, low])),
            lever=float(random.choice([0.0, 10 ** random.uniform(-3, 3)])),
            weight=float(10 ** random.uniform(-2, 2)),
            balance=float(random.choice([0.0, 10 ** random.uniform(-2, 2)])),
        )
        query = own_moments(program)
        grid_bits = int(random.integers(0, 40)) - math.frexp(query.radius)[1]
        check, noise = check_of(program, query, grid_bits)
        reports = []
        for _ in range(20):
            z = features(random, program.dim, program.varying)
            y = float(random.choice([program.low, program.high, 0.1, -1e9, 1e9]))
            arm = int(random.integers(program.arms))
            reports.append(report(noise, disjoint_models.encode(program, z, arm, y)))
        assert check.could_be_records(np.array(reports)).all(), program


@pytest.mark.parametrize(
    "query",
    [
        RegressionMoments(dim=4, norm=2.0, low=-1.0, high=3.0, weighted=True),
        GramMatrix(dim=3, norm=1.5, groups=2),
        Increments(dim=3, norm=0.5, steps=4, stride=7.0),
    ],
)
def test_every_record_of_other_queries_counts(query: Any) -> None:
    """Of the library's own devices, which no light program describes."""
    random = np.random.default_rng(3)
    check, noise = check_of(Library(), query)
    count = {GramMatrix: 2, Increments: 5}.get(type(query), 1)
    reports = []
    for _ in range(50):
        weights = random.choice([0, 1, 1e300, -1, 1e-300], count) * 1.0
        record = Example(
            features=jnp.asarray(features(random, query.dim, query.norm)),
            reward=jnp.asarray(random.choice([-1e9, 0.3, 1e9])),
            weight=jnp.asarray(weights if count > 1 else weights[0]),
        )
        reports.append(report(noise, np.asarray(query.encode(record))))
    assert check.could_be_records(np.array(reports)).all()
    assert not check.could_be_records(corner(noise)).any()


def test_every_answer_counts() -> None:
    program = Answering(low=-0.3, high=0.7, questions=1, answer="loss")
    problem = ContextFreeProblem(arms=2, horizon=10, low=-0.3, high=0.7)
    task = deploy(
        policy="ucb",
        problem=problem,
        guarantee=Guarantee(epsilon=math.inf, delta=0.0, trust=Trust.NONE),
    ).task
    (noise,), check = task.noise, RecordCheck(task)
    assert isinstance(noise, Statistic)
    losses = (-9.0, -0.3, 0.0, 5e-324, 1 / 3, 0.7, 9.0)
    reports = np.array([report(noise, encode_loss(program, loss)) for loss in losses])
    assert check.could_be_records(reports).all()
    ends = np.array([reports.min(0) - 1, reports.max(0) + 1])
    assert not check.could_be_records(ends).any()


def test_every_client_of_a_phase_counts() -> None:
    program, random = Phased(low=0.0, high=1.0, groups=1, atoms=2, size=5), np.random.default_rng(4)
    check, noise = check_of(program, UnitBallVector(size=5))
    vectors = [into_ball(features(random, 5, 1.0), 1.0) for _ in range(100)]
    assert check.could_be_records(np.array([report(noise, vector) for vector in vectors])).all()
    assert not check.could_be_records(corner(noise)).any()


def corner(noise: Statistic) -> Wholes:
    """The corner of the box that is farthest from zero."""
    center = np.array(noise.center, np.int64)
    far: Wholes = center + np.where(center < 0, -1, 1) * noise.radius
    return far[None]


def forged(program: Optimist, matrix: Any, vector: Any) -> Wholes:
    """A report with this matrix and this vector."""
    rows, columns = np.triu_indices(program.dim)
    weights = np.where(rows == columns, 1.0, math.sqrt(2.0))
    flat = program.balance * np.asarray(matrix, np.float64)[rows, columns] * weights
    steps: Floats = np.rint(UNIT * np.concatenate([flat, np.asarray(vector, np.float64)]))
    return steps.astype(np.int64)


X = np.array([0.6, 0.0, 0.8])
RANK_ONE = np.outer(X, X)
ODD = np.array([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]) / 2


@pytest.mark.parametrize("program", [PLAIN, WEIGHTED])
@pytest.mark.parametrize(
    ("name", "matrix", "vector"),
    [
        ("two visits", (np.eye(3) + RANK_ONE) / 3, 0.5 * X),
        ("rank two", np.diag([0.5, 0.5, 0.0]), np.zeros(3)),
        ("negative", -RANK_ONE, np.zeros(3)),
        ("indefinite", ODD, np.zeros(3)),
        ("a vector aside", RANK_ONE, [0.0, 0.5, 0.0]),
        ("a vector a little aside", RANK_ONE, 0.5 * X + [0.0, 1e-4, 0.0]),
        ("too long", 1.01 * RANK_ONE, 0.5 * X),
        ("too large a reward", RANK_ONE, 1.01 * X),
        ("a vector without features", np.zeros((3, 3)), 1.01 * X),
    ],
)
def test_statistic_that_no_record_gives_is_rejected(
    program: Optimist, name: str, matrix: Any, vector: Any
) -> None:
    check, noise = check_of(program, regression(program))
    numbers = forged(program, matrix, vector)
    assert noise.bounds(0).hold(numbers), name
    assert not check.could_be_records(numbers[None]).any(), name
    assert check.could_be_records(forged(program, RANK_ONE, 0.5 * X)[None]).all()


def test_the_weight_belongs_to_the_matrix_alone() -> None:
    """With weights a matrix may be smaller than its vector; without, it may not."""
    numbers = forged(PLAIN, 0.01 * RANK_ONE, 0.5 * X)[None]
    for program, counts in ((PLAIN, False), (WEIGHTED, True)):
        check, _ = check_of(program, regression(program))
        assert check.could_be_records(numbers).all() == counts


def test_response_with_a_least_size_is_checked() -> None:
    program = dataclasses.replace(PLAIN, response_low=0.5)
    check, _ = check_of(program, regression(program))
    small, large = (forged(program, RANK_ONE, y * X)[None] for y in (0.49, 0.51))
    assert not check.could_be_records(small).any()
    assert check.could_be_records(large).all()


Change = Callable[[Wholes, DisjointModels], None]


def _other_arm(numbers: Wholes, program: DisjointModels) -> None:
    numbers[program.dim] += 1


def _longer(numbers: Wholes, program: DisjointModels) -> None:
    numbers[: 2 * program.arms * program.dim] *= 2


def _aside(numbers: Wholes, program: DisjointModels) -> None:
    numbers[1] += UNIT // 100


def _pool(numbers: Wholes, program: DisjointModels) -> None:
    numbers[-1] += UNIT // 100


def _lever(numbers: Wholes, program: DisjointModels) -> None:
    numbers[(program.arms + 1) * program.dim - 1] += UNIT // 100


def _reward(numbers: Wholes, program: DisjointModels) -> None:
    numbers[: program.dim] = (numbers[: program.dim] * 1.01).astype(np.int64)


@pytest.mark.parametrize("change", [_other_arm, _longer, _aside, _pool, _lever, _reward])
def test_report_of_disjoint_models_has_one_arm_and_context(change: Change) -> None:
    check, noise = check_of(OWN, own_moments(OWN))
    z = np.array([0.6, 0.5, 0.5]) * OWN.varying
    numbers = report(noise, disjoint_models.encode(OWN, z, 0, OWN.high))
    assert check.could_be_records(numbers[None]).all()
    change(numbers, OWN)
    assert noise.bounds(0).hold(numbers)
    assert not check.could_be_records(numbers[None]).any()


def distance(program: Optimist, numbers: Wholes, start: Floats) -> float:
    """How far a report is from the nearest statistic, in steps of the grid."""
    query, dim = regression(program), program.dim
    rows, columns = np.triu_indices(dim)
    weights = np.where(rows == columns, 1.0, math.sqrt(2.0))

    def apart(record: Floats) -> Floats:
        x, y, w = record[:dim], record[dim], record[dim + 1] if program.weighted else 1.0
        x = x * min(1.0, query.norm / max(float(np.linalg.norm(x)), 1e-300))
        y, w = min(max(y, query.low), query.high) - query.offset, min(max(w, 0.0), 1.0)
        flat = np.concatenate([query.balance * w * x[rows] * x[columns] * weights, y * x])
        found: Floats = UNIT * flat - numbers
        return found

    ends = [optimize.least_squares(apart, sign * start, xtol=1e-15) for sign in (1, -1)]
    return min(math.sqrt(2 * one.cost) for one in ends)


@pytest.mark.parametrize("program", [PLAIN, WEIGHTED])
def test_accepted_report_is_near_a_statistic(program: Optimist) -> None:
    """No farther than the note's bound, however a report is bent to pass."""
    random = np.random.default_rng(6)
    check, _ = check_of(program, regression(program))
    bound = program.dim * 0.5 * (83 + 17)
    passed = 0
    for _ in range(2000):
        x = random.normal(size=3) * 10 ** random.uniform(-3, 0)
        x /= max(1.0, float(np.linalg.norm(x)))
        y, w = random.uniform(), random.uniform() if program.weighted else 1.0
        true = forged(program, w * np.outer(x, x), y * x)
        bent = true + np.rint(random.normal(size=true.size) * 10 ** random.uniform(0, 3))
        if not check.could_be_records(bent[None].astype(np.int64)).all():
            continue
        passed += 1
        assert distance(program, bent.astype(np.int64), np.array([*x, y, w])) <= bound
    assert passed > 100


@pytest.mark.parametrize("trust", ["none", "joint", "central"])
def test_aggregator_rejects_corner_of_the_box(trust: str) -> None:
    place = field(trust)
    (noise,) = place.task.noise
    assert isinstance(noise, Statistic)
    good, bad = place.report(), place.forged(corner(noise)[0])
    taken, refused, again = place.aggregator.take([good, bad, good])
    assert taken is None
    assert again is None
    assert isinstance(refused, RejectedError)
    assert refused.word == "bounds"


@pytest.mark.parametrize("trust", ["local", "shuffle"])
def test_noisy_reports_are_held_to_their_box_alone(trust: str) -> None:
    place = field(trust)
    bounds = place.task.bounds(place.aggregator.status().label)
    assert place.aggregator.take([place.forged(bounds.high)]) == (None,)
