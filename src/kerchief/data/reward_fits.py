"""Model of rewards for doubly robust values: section 4 of `off_policy.md`."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from numpy.typing import NDArray

from kerchief.core.errors import InvalidValueError
from kerchief.core.linalg import svec_size
from kerchief.data.logs import MOST_CELLS, Floats, Logs


@dataclasses.dataclass(frozen=True, kw_only=True)
class RewardFit:
    """Second moments and weighted rewards of every arm, for a ridge regression.

    Features are a user's, shortened to the declared norm and divided by it, and a constant: u, of
    norm 1 at most. A row counts for the arm that was played and for no other.

    Attributes:
        arms: how many there are.
        dim: how many features a user has.
        norm: the declared bound on their norm.
    """

    arms: int
    dim: int
    norm: float

    @classmethod
    def of(cls, logs: Logs) -> RewardFit:
        """The fit of these logs, by public facts alone."""
        if logs.dim and logs.norm is None:
            raise InvalidValueError(
                "estimator dr fits a model of rewards, and the features have no declared bounds; "
                "declare them, as in age=18:90, or give a model of your own"
            )
        fit = cls(arms=logs.arms, dim=logs.dim, norm=logs.norm or 1.0)
        if logs.rows * fit.size > MOST_CELLS:
            raise InvalidValueError(
                f"estimator dr would fit {fit.size} numbers to {logs.rows} rows, which do not fit "
                f"into {MOST_CELLS}; name fewer features, or give a model of your own"
            )
        return fit

    @property
    def length(self) -> int:
        """Length of u."""
        return self.dim + 1

    @property
    def block(self) -> int:
        """How many numbers an arm has."""
        return svec_size(self.length) + self.length

    @property
    def size(self) -> int:
        """How many numbers are released."""
        return self.arms * self.block

    @property
    def sensitivity(self) -> float:
        """The diameter of (u uᵀ, r u), which also bounds statistics of two arms."""
        return math.sqrt(4.5)

    @property
    def taxicab(self) -> float:
        """Sensitivity in the sum of absolute values, where two blocks may differ."""
        return math.sqrt(2 * self.block) * self.sensitivity

    def features(self, contexts: Floats) -> Floats:
        """Compute u for each row."""
        with np.errstate(over="ignore"):
            lengths = np.linalg.norm(contexts, axis=1, keepdims=True)
        short = contexts / np.maximum(lengths, self.norm)
        constant = np.ones((len(contexts), 1))
        parts = [short, constant] if self.dim else [constant * math.sqrt(2)]
        return np.concatenate(parts, axis=1) / math.sqrt(2)

    def rows(self, contexts: Floats, actions: NDArray[np.int64], rewards: Floats) -> Floats:
        """Compute the statistic of each row."""
        u = self.features(contexts)
        first, second = np.triu_indices(self.length)
        scale = np.where(first == second, 1.0, math.sqrt(2))
        own = np.concatenate([u[:, first] * u[:, second] * scale, rewards[:, None] * u], axis=1)
        statistics = np.zeros((len(u), self.arms, self.block))
        statistics[np.arange(len(u)), actions] = own
        return statistics.reshape(len(u), self.size)

    def fitted(self, total: Floats, std: float) -> Floats:
        """A parameter for every arm, from a noisy total and the noise on each of its numbers.

        The ridge is what noise could do to a matrix of this length.
        """
        blocks, ridge = total.reshape(self.arms, self.block), 2 * std * math.sqrt(self.length) + 1.0
        first, second = np.triu_indices(self.length)
        scale = np.where(first == second, 1.0, math.sqrt(0.5))
        grams = np.zeros((self.arms, self.length, self.length))
        grams[:, first, second] = grams[:, second, first] = blocks[:, : len(first)] * scale
        values, vectors = np.linalg.eigh(grams)
        inverse = vectors / (np.maximum(values, 0.0) + ridge)[:, None, :] @ vectors.swapaxes(1, 2)
        parameters: Floats = np.einsum("aij,aj->ai", inverse, blocks[:, len(first) :])
        return parameters

    def guesses(self, parameters: Floats, contexts: Floats) -> Floats:
        """Predict the reward of every row and arm."""
        return self.features(contexts) @ parameters.T
