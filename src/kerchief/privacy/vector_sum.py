"""The closed-form constants of the shuffled vector sum, as published: valid, and very loose.

A. Cheu, M. Joseph, J. Mao, B. Peng, ICLR 2022; the constants as in F. Li, X. Zhou, B. Ji,
"Differentially private linear bandits with partial distributed feedback", WiOpt 2022, equations
(22) and (60). Outside its range we refuse. What such coins really cost is in `privacy.binomial`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from kerchief.core.errors import InvalidValueError
from kerchief.core.validate import at_least, between, whole


@dataclass(frozen=True, kw_only=True)
class VectorSum:
    """How each of so many users writes a vector of Euclidean norm at most 1.

    A coordinate in [-1, 1] is rounded at random to so many levels, and gets so many fair coins.
    """

    users: int
    size: int
    levels: int
    coins: int

    @property
    def std(self) -> float:
        """Standard deviation of the coins in a coordinate of the sum, for norm at most 1.

        >>> round(vector_sum(users=1000, size=15, epsilon=1.0, delta=1e-6).std)
        3893
        """
        return math.sqrt(self.users * self.coins) / self.levels

    @property
    def bits(self) -> int:
        """Number of bits that a user sends."""
        return self.size * (self.levels + self.coins)


def vector_sum(*, users: int, size: int, epsilon: float, delta: float) -> VectorSum:
    """The constants that are proved to be (ε, δ)-private in the shuffle model.

    >>> vector_sum(users=1000, size=15, epsilon=16.0, delta=1e-6)
    Traceback (most recent call last):
    ...
    kerchief_protocol.errors.InvalidValueError: epsilon is 16.0, and the theorem is proved below \
15.0; choose a smaller one, or shuffling 'best'
    """
    n, s = whole("users", users, low=2), whole("size", size, high=2**24)
    epsilon = _check_epsilon(epsilon, below=15.0)
    delta = between("delta", delta, 1e-300, 0.5)
    log = math.log(4 * s / delta)
    share = epsilon / (18 * math.sqrt(math.log(2 / delta)))
    levels = math.ceil(max(share * math.sqrt(n) / (6 * math.sqrt(5 * log)), math.sqrt(s), 10))
    coins = math.ceil(180 * levels**2 * log / (share**2 * n))
    return VectorSum(users=n, size=s, levels=levels, coins=coins)


def scalar_sum(*, users: int, epsilon: float, delta: float) -> VectorSum:
    """The constants for one number in [-1, 1]: a better bound than a vector of length 1.

    >>> scalar_sum(users=400, epsilon=1.0, delta=1e-5).levels
    40
    """
    n = whole("users", users, low=2)
    epsilon = _check_epsilon(epsilon, below=30.0)
    log = math.log(2 / between("delta", delta, 1e-300, 0.5))
    levels = math.ceil(2 * math.sqrt(n))
    share = epsilon / 2
    coins = math.ceil(180 * levels**2 * log / (share**2 * n))
    if n * coins < 14 * log:
        raise InvalidValueError(
            f"{n} users toss {coins} coins each; the theorem needs {math.ceil(14 * log)} in all: "
            "wait for a larger cohort"
        )
    return VectorSum(users=n, size=1, levels=levels, coins=coins)


def _check_epsilon(epsilon: float, *, below: float) -> float:
    """Return the epsilon if the theorem is proved for it."""
    epsilon = at_least("epsilon", epsilon, 1e-9)
    if epsilon >= below:
        raise InvalidValueError(
            f"epsilon is {epsilon}, and the theorem is proved below {below}; choose a smaller one, "
            "or shuffling 'best'"
        )
    return epsilon
