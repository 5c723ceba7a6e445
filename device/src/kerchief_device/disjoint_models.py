"""Disjoint models on a device: the choice of an arm, and the statistic of a visit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kerchief_device.act import first_best, guess, read_reals
from kerchief_device.constant_time import clip
from kerchief_device.record import into_ball
from kerchief_device.source import Randomness
from kerchief_protocol.errors import InvalidValueError
from kerchief_protocol.model import Model
from kerchief_protocol.noise import Floats
from kerchief_protocol.programs import DisjointModels

_MAX_DIM, _MAX_ARMS = 2**12, 2**24


@dataclass(frozen=True, kw_only=True)
class DisjointPosterior:
    """Numbers of a model: per arm an estimate, and a root of its covariance."""

    estimate: Floats
    sample: Floats


class DisjointSampling:
    """Light code of `DisjointModels`, which caches the numbers of the latest model.

    The last number of a visit's features is the number of the arm that was played.
    """

    def __init__(self, program: DisjointModels, source: Randomness) -> None:
        """Take the program, and where scores come from.

        Raises:
            InvalidValueError: a number of it is outside its bounds.
        """
        _check(program)
        self._program, self._source = program, source
        self._cache: tuple[Model, DisjointPosterior] | None = None

    def act(self, model: Model, rows: Floats, mask: NDArray[np.bool_]) -> int:
        """Return the allowed row of the highest score; each arm draws its own score."""
        normals, _ = guess(self._program.arms, self._source)
        return act_on_scores(self._load_model(model), rows, mask, normals)

    def statistics(self, model: Model | None, features: Floats, reward: float) -> Sequence[Floats]:
        """Return the moments of one visit."""
        return (encode(self._program, features[:-1], int(features[-1]), reward),)

    def _load_model(self, model: Model) -> DisjointPosterior:
        cache = self._cache
        if cache is None or cache[0] is not model:
            arms, dim = self._program.arms, self._program.dim
            shapes = {"estimate": (arms, dim), "sample": (arms, dim, dim)}
            self._cache = cache = model, DisjointPosterior(**read_reals(model, shapes))
        return cache[1]


def act_on_scores(
    model: DisjointPosterior, rows: Floats, mask: NDArray[np.bool_] | None, normals: Floats
) -> int:
    """Return the allowed row of the highest score, given one normal number per arm.

    >>> beliefs = DisjointPosterior(estimate=np.zeros((2, 1)), sample=np.ones((2, 1, 1)))
    >>> act_on_scores(beliefs, np.ones((2, 1)), None, np.array([0.3, 0.7]))
    1
    """
    count = len(rows)
    with np.errstate(all="ignore"):
        wide = np.einsum("ki,kij->kj", rows, model.sample[:count])
        value = np.add.reduce(rows * model.estimate[:count], -1)
        value += np.sqrt(np.add.reduce(wide * wide, -1)) * normals[:count]
    return first_best(value, mask)


def encode(program: DisjointModels, features: Floats, arm: int, reward: float) -> Floats:
    """Clip features and reward, then write the arm's blocks, followed by the pool.

    >>> program = DisjointModels(dim=2, arms=2, norm=1.5, varying=1.0, low=0.0, high=1.0,
    ...     offset=0.5, lever=0.5, weight=0.25, balance=2.0)
    >>> encode(program, np.array([1.0, 1.0]), 1, 1.0).tolist()
    [0.0, 0.0, 0.5, 0.25, 0.0, 0.0, 0.25, 0.125, 2.0]
    """
    count = _varying(program)
    z = into_ball(features[:count], program.varying)
    y = clip(reward, program.low, program.high) - program.offset
    u = np.append(z, program.lever) if program.lever else z
    is_played = np.arange(program.arms) == min(max(arm, 0), program.arms - 1)
    blocks = np.where(is_played[:, None], np.stack([y * u, program.weight * u])[:, None], 0.0)
    rows, columns = np.triu_indices(count)
    second_moment = z[rows] * z[columns] * np.where(rows == columns, 1.0, math.sqrt(2.0))
    return np.concatenate([blocks.ravel(), program.balance * second_moment])[: own_size(program)]


def own_size(program: DisjointModels) -> int:
    """Count the numbers of a report."""
    return 2 * program.arms * program.dim + pool_size(program)


def pool_size(program: DisjointModels) -> int:
    """Count the numbers of the second moment of features; 0 where its weight is 0."""
    count = _varying(program)
    return count * (count + 1) // 2 if program.balance else 0


def own_sensitivity(program: DisjointModels) -> float:
    """Compute how far apart the statistics of two visits can be (`disjoint_moments.md`)."""
    ends = (program.low - program.offset, program.high - program.offset)
    largest, longest = max(map(abs, ends)), program.varying**2
    pool_square = 2 * program.balance**2 * longest**2
    two_arms = 2 * (largest**2 + program.weight**2) * (program.lever**2 + longest) + pool_square
    same_arm = max(
        _bound_same_arm(program, reward, other_reward) for reward in ends for other_reward in ends
    )
    return math.sqrt(max(two_arms, same_arm) if program.arms > 1 else same_arm)


def _bound_same_arm(program: DisjointModels, reward: float, other_reward: float) -> float:
    longest, square = program.varying**2, program.balance**2
    pull = reward * other_reward + program.weight**2
    top = -pull / (2 * square) if square else -math.copysign(math.inf, pull)
    t = min(max(top, -longest), longest)
    lengths = (reward**2 + other_reward**2 + 2 * program.weight**2) * longest
    apart = program.lever**2 * (reward - other_reward) ** 2 + lengths + 2 * square * longest**2
    return apart - 2 * square * t**2 - 2 * pull * t


def _varying(program: DisjointModels) -> int:
    return program.dim - (program.lever > 0)


def _check(program: DisjointModels) -> None:
    """Refuse numbers of a task for which sensitivities and bounds do not hold."""
    positive = (program.norm, program.varying, program.weight, program.balance or 1.0)
    real = (*positive, program.low, program.high, program.offset, program.lever)
    if not (
        all(math.isfinite(number) and abs(number) <= 1e100 for number in real)
        and all(number >= 1e-100 for number in positive)
        and program.low <= program.high
        and program.lever >= 0
        and 1 <= program.dim <= _MAX_DIM
        and 1 <= program.arms <= _MAX_ARMS
        and _varying(program) >= 1
    ):
        raise InvalidValueError(
            "a number of the task's program is outside its bounds; norm, varying and weight must "
            "be above 0, balance too or 0, all of them finite, and one feature must vary: make "
            "the task anew"
        )
