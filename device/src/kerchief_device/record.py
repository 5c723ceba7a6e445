"""What a device knows of a visit, as the statistic that its report is about.

Sums over coordinates go from left to right, one after the other, so that every language and every
machine gets the same numbers. Only the program and other public numbers decide a branch: the
operations are the same for every record and every posted model (`constant_time.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from kerchief_device.constant_time import clip, density, exp, flush, logistic, normal
from kerchief_protocol.errors import InvalidValueError
from kerchief_protocol.noise import Floats
from kerchief_protocol.programs import Answering, Optimist

# Features that the posted matrix makes no longer than this share of the bound are nearly none; and
# what is no longer than this has no direction.
_TINY = 1e-12

RULE = 3
"""The rule by which surprises are reported here: a task with another one is refused."""


LINKS: dict[str, tuple[Callable[[float], float], Callable[[float], float]]] = {
    "linear": (lambda score: score, lambda score: 1.0),
    "logistic": (logistic, lambda score: logistic(score) * logistic(-score)),
    "probit": (normal, density),
    "poisson": (exp, exp),
}
"""How a score becomes an expected reward, and the slope of that, by the link's name."""


class Moments:
    """A regression's matrix and vector for one visit, as one flat isometric vector.

    >>> program = Optimist(dim=2, arms=3, norm=1.0, low=0.0, high=1.0, link="linear",
    ...     linearized=False, largest_score=1.0, steepest=1.0, response_low=0.0, response_high=1.0,
    ...     offset=0.5, balance=1.0, weighted=False, reweighed=0,
    ...     choice="bound")
    >>> Moments(program).statistic(None, np.array([1.0, 0.0]), 1.0).tolist()
    [1.0, 0.0, 0.0, 0.5, 0.0]
    """

    def __init__(self, program: Optimist) -> None:
        """Lay out the flat form.

        Raises:
            InvalidValueError: the program's link is not known here.
        """
        if program.link not in LINKS:
            raise InvalidValueError(f"link is {program.link[:40]!r}; known are {', '.join(LINKS)}")
        self._program = program
        self._mean, self._slope = LINKS[program.link]
        self._rows, self._columns = np.triu_indices(program.dim)
        self._weights = np.where(self._rows == self._columns, 1.0, math.sqrt(2.0))

    def statistic(self, estimate: Floats | None, features: Floats, reward: float) -> Floats:
        """Encode the statistic of a visit, within public bounds for every input.

        Args:
            estimate: that was posted when the arm was chosen; only rewards that are linearized
                need it.
            features: of the arm that was chosen.
            reward: that it brought.
        """
        response, weight = reward, 1.0
        if self._program.linearized:
            assert estimate is not None
            response, weight = self._linearize(estimate, flush(features), reward)
        return self.encode(features, response, weight)

    def surprise(
        self, weights: Floats, reference: Floats, features: Floats, reward: float
    ) -> Floats:
        """Encode how the reward of a visit differs from the posted reference.

        Features are multiplied by the posted matrix and made as long as they may be; how long they
        were, and how steep the link is there, is their weight. Whatever was posted, it is clipped
        when it is encoded.

        >>> program = Optimist(dim=2, arms=3, norm=1.0, low=0.0, high=1.0, link="linear",
        ...     linearized=False, largest_score=1.0, steepest=1.0, response_low=0.0,
        ...     response_high=1.0, offset=0.5, balance=1.0, weighted=False, reweighed=3,
        ...     choice="guess")
        >>> x, reference = np.array([0.0, 0.5]), np.array([0.0, 0.25])
        >>> Moments(program).surprise(np.diag([1.0, 1.2]), reference, x, 1.0).round(5).tolist()
        [-0.26, 0.0, 0.74, 0.0, 0.3]
        """
        program, bound = self._program, most_surprising(self._program)
        features = flush(features)
        # Nothing is said of overflow: whether a stranger's numbers do depends on the features.
        with np.errstate(all="ignore"):
            # Added up feature by feature, so that every device has the same number.
            mapped = flush((weights * features.reshape(1, len(weights))).cumsum(axis=1)[:, -1])
            length = _compute_norm(mapped)
            expected, slope = self._expect_reward(
                _inner_product(features.tolist(), reference.tolist())
            )
            shortened = bound / (bound + abs(expected))
            weight = shortened * slope * length / program.norm
            beyond = reward - program.offset - self._mean(0.0) - expected
            surprise = beyond * shortened / max(weight, 1.0)
            unit = mapped * (program.norm / max(length, _TINY * program.norm))
        encode = self.encode_apart if apart(program) else self.encode
        return encode(unit, program.offset + surprise, weight)

    def encode_apart(self, features: Floats, response: float, weight: float) -> Floats:
        """Encode direction of features, clipped response and clipped weight as one vector.

        The trace of the matrix tells the weight; features that vanish make a statistic of zeros.

        >>> program = Optimist(dim=2, arms=3, norm=2.0, low=-1.0, high=1.0, link="linear",
        ...     linearized=False, largest_score=1.0, steepest=1.0, response_low=-1.0,
        ...     response_high=1.0, offset=0.0, balance=1.0, weighted=False, reweighed=3,
        ...     choice="guess")
        >>> Moments(program).encode_apart(np.array([0.0, 0.5]), 3.0, 0.5).tolist()
        [-1.0, 0.0, 3.0, 0.0, 2.0]
        """
        program, bound = self._program, most_surprising(self._program)
        with np.errstate(all="ignore"):
            x, there = _direction(features)
            y = min(max(clip(response, -math.inf, math.inf) - program.offset, -bound), bound)
            even = there * (clip(weight, 0.0, 1.0) - 1) / program.dim
            flat = x[self._rows] * x[self._columns] + np.where(self._rows == self._columns, even, 0)
            matrix = program.balance * program.norm**2 * flat * self._weights
            return np.concatenate([matrix, program.norm * y * x])

    def encode(self, features: Floats, response: float, weight: float) -> Floats:
        """Clip the arguments, then write matrix and vector as one isometric vector."""
        program = self._program
        # Nothing is said of underflow, either.
        with np.errstate(all="ignore"):
            x = into_ball(features, program.norm)
            y = clip(response, program.response_low, program.response_high) - program.offset
            scale = program.balance * (clip(weight, 0.0, 1.0) if program.weighted else 1.0)
            matrix = (scale * x)[self._rows] * x[self._columns] * self._weights
            return np.concatenate([matrix, y * x])

    def _expect_reward(self, score: float) -> tuple[float, float]:
        """Return a score's expected reward above that of 0, and its relative slope."""
        if not self._program.linearized:
            return score, 1.0
        bound = self._program.largest_score
        score = min(max(score, -bound), bound)
        return self._mean(score) - self._mean(0.0), self._slope(score) / self._program.steepest

    def _linearize(self, estimate: Floats, x: Floats, reward: float) -> tuple[float, float]:
        """Linearize a reward around the score at the estimate: response and weight."""
        bound = self._program.largest_score
        score = min(max(_inner_product(x.tolist(), estimate.tolist()), -bound), bound)
        slope = self._slope(score)
        return reward - self._mean(score) + slope * score, slope / self._program.steepest


def answer(program: Answering, losses: Sequence[float] | NDArray[np.generic]) -> float:
    """Reduce the losses of all questions to the one number to report.

    Raises:
        InvalidValueError: there are more or fewer losses than questions, or one is not finite.

    >>> program = Answering(low=-1.0, high=1.0, questions=2, answer="difference")
    >>> answer(program, [0.75, 0.5])
    0.25
    """
    try:
        array = np.asarray(losses)
    except (TypeError, ValueError):
        array = np.empty(0)
    real = array.ndim == 1 and array.dtype.kind in "fiu"
    numbers: list[float] = array.astype(np.float64).tolist() if real else []
    if len(numbers) != program.questions or not all(map(math.isfinite, numbers)):
        raise InvalidValueError(
            f"there are {len(numbers)} losses; give a finite one for each of the "
            f"{program.questions} questions"
        )
    if program.answer == "difference":
        return numbers[0] - numbers[1]
    return numbers[0]


def encode_loss(program: Answering, number: float) -> Floats:
    """Clip a loss, or a difference of losses, to its public bounds.

    >>> encode_loss(Answering(low=0.0, high=1.0, questions=1, answer="loss"), 7.0).tolist()
    [1.0]
    """
    return np.array([clip(number, program.low, program.high)])


def apart(program: Optimist) -> bool:
    """Whether surprises tell of directions and weights apart, not of their product."""
    return program.reweighed > 0 and not program.weighted


def most_surprising(program: Optimist) -> float:
    """Compute how far from zero a surprise may be, on either side."""
    return program.response_high - program.offset


def into_ball(features: Floats, norm: float) -> Floats:
    """Scale a vector into a ball; what is flushed counts as 0."""
    x = flush(features)
    return x * (norm / max(_compute_norm(x), norm))


def _direction(features: Floats) -> tuple[Floats, float]:
    """Return a vector of length one and 1, or zeros and 0 without a direction."""
    x = into_ball(features, 1.0)
    length = _compute_norm(x)
    there = float(length > _TINY)
    return x / max(length, _TINY) * there, there


def _compute_norm(vector: Floats) -> float:
    numbers = vector.tolist()
    return math.sqrt(_inner_product(numbers, numbers))


def _inner_product(first: list[float], second: list[float]) -> float:
    total = 0.0
    for a, b in zip(first, second, strict=True):
        total += a * b
    return total
