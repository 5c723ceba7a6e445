"""Fixed policies to evaluate: a single arm, uniform play or a linear model."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from kerchief.core import validate
from kerchief.core.errors import CodecError, InvalidValueError
from kerchief.data.logs import Floats, Logs

_MAX_BYTES = 2**26


@dataclasses.dataclass(frozen=True, kw_only=True)
class OneArm:
    """Plays one arm, or any allowed one where that is not allowed."""

    arm: int

    def __post_init__(self) -> None:
        """Check the number."""
        validate.plain(self)
        validate.whole("arm", self.arm, low=0)

    def chances(self, logs: Logs) -> Floats:
        """Chance 1 for the arm where it is allowed, equal chances elsewhere."""
        validate.whole("arm", self.arm, low=0, high=logs.arms - 1)
        return _spread_chances(
            logs, np.broadcast_to(np.arange(logs.arms) == self.arm, (logs.rows, logs.arms))
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class UniformPlay:
    """Plays all allowed arms with equal chances."""

    def chances(self, logs: Logs) -> Floats:
        """Equal chances for all allowed arms."""
        return _spread_chances(logs, np.ones((logs.rows, logs.arms), bool))


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class LinearModel:
    """Scores arms by their users' features and by their own; as a policy, plays the best.

    Attributes:
        by_arm: arms x features of users: every arm's own parameter; None for none.
        shared: one parameter for the features of arms; None for none.
        intercepts: one number per arm; None for zeros.

    >>> model = LinearModel(by_arm=[[1.0], [-1.0]])
    >>> logs = Logs(contexts=np.array([[0.5], [-0.5]]), actions=np.array([0, 1]), arms=2,
    ...     rewards=np.array([1, 0]), propensities=np.array([0.5, 0.5]), low=0.0, high=1.0)
    >>> model.chances(logs).argmax(axis=1).tolist()
    [0, 1]
    """

    by_arm: Any = None
    shared: Any = None
    intercepts: Any = None

    def __post_init__(self) -> None:
        """Check that all numbers are finite."""
        for name, axes in (("by_arm", 2), ("shared", 1), ("intercepts", 1)):
            value = getattr(self, name)
            if value is None:
                continue
            array = validate.real_array(name, value)
            if array.ndim != axes or not np.isfinite(array).all():
                raise InvalidValueError(
                    f"{name} has shape {array.shape}, or is not finite; it needs {axes} axes"
                )
            object.__setattr__(self, name, array)
        if self.by_arm is None and self.shared is None and self.intercepts is None:
            raise InvalidValueError("the model is empty; give by_arm, shared or intercepts")

    def scores(self, logs: Logs) -> Floats:
        """The predicted reward of every arm, rows x arms."""
        scores = np.zeros((logs.rows, logs.arms))
        if self.by_arm is not None:
            self._check_shape("by_arm", self.by_arm.shape, (logs.arms, logs.dim))
            scores = scores + _multiply_rows(logs.contexts, self.by_arm)
        if self.shared is not None:
            self._check_shape("shared", self.shared.shape, (logs.arm_dim,))
            if logs.arm_features is not None:
                scores = scores + _multiply_rows(logs.arm_features, self.shared[None])[..., 0]
        if self.intercepts is not None:
            self._check_shape("intercepts", self.intercepts.shape, (logs.arms,))
            scores = scores + self.intercepts
        return np.nan_to_num(scores, posinf=1e300, neginf=-1e300)

    def chances(self, logs: Logs) -> Floats:
        """Chance 1 for the allowed arm with the greatest score, the first of several."""
        scores = np.where(logs.choices(), self.scores(logs), -np.inf)
        best: Floats = (np.arange(logs.arms) == scores.argmax(axis=1)[:, None]).astype(np.float64)
        return best

    def _check_shape(self, name: str, shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
        if shape != expected:
            raise InvalidValueError(
                f"{name} of the model has shape {shape}; these logs need {expected}"
            )


def _multiply_rows(features: Floats, parameters: Floats) -> Floats:
    """Multiply rows by parameters so that each product depends on its own row alone.

    A product of matrices adds up in an order that follows from how many rows there are, and so
    from how often others came.
    """
    products = np.zeros((*features.shape[:-1], len(parameters)))
    for place, column in enumerate(parameters.T):
        products += features[..., place, None] * column
    return products


FixedPolicy: TypeAlias = OneArm | UniformPlay | LinearModel | Callable[[Logs], Any]
"""A policy that stays as it is. A function of logs gives the chance of every arm, rows x arms: each
row of it must follow from that row's features, allowed arms and public facts alone."""


# A warning would tell of single rows.
@np.errstate(all="ignore")
def chances_of(policy: FixedPolicy, logs: Logs) -> Floats:
    """The chance of every arm, rows x arms, checked."""
    own = isinstance(policy, OneArm | UniformPlay | LinearModel)
    if not own and not callable(policy):
        raise InvalidValueError(
            f"policy is a {type(policy).__name__}; give OneArm, UniformPlay, a LinearModel, or a "
            "function of logs"
        )
    raw = policy.chances(logs) if own else policy(logs)  # type: ignore[union-attr, operator]
    chances = validate.real_array("chances", raw)
    if chances.shape != (logs.rows, logs.arms):
        raise InvalidValueError(
            f"chances have shape {chances.shape}; give {(logs.rows, logs.arms)}"
        )
    wrong = ~(chances >= 0).all(axis=1) | ~(np.abs(chances.sum(axis=1) - 1) <= 1e-6)
    wrong |= (chances * ~logs.choices()).any(axis=1)
    if wrong.any():
        raise InvalidValueError(
            f"row {int(wrong.argmax()) + 1}: chances are negative, do not add up to 1, or are of "
            "arms that are not allowed"
        )
    return chances


def read_model(path: Path | str) -> LinearModel:
    """Read a JSON object with `by_arm`, `shared` or `intercepts`."""
    try:
        with Path(path).open("rb") as file:
            content = json.loads(file.read(_MAX_BYTES + 1))
    except OSError as error:
        raise CodecError(f"{path} cannot be read ({error.strerror}); give a file") from error
    except (ValueError, RecursionError):
        raise CodecError(f"{Path(str(path)).name!r} is no JSON of a model; write it anew") from None
    if not isinstance(content, dict) or not content.keys() <= {"by_arm", "shared", "intercepts"}:
        raise CodecError("a model has the fields by_arm, shared and intercepts, and no others")
    return LinearModel(**content)


def _spread_chances(logs: Logs, preferred: Any) -> Floats:
    """Spread chances over preferred arms, or all allowed arms if none is preferred."""
    allowed = logs.choices()
    candidates = preferred & allowed
    candidates = np.where(candidates.any(axis=1, keepdims=True), candidates, allowed).astype(
        np.float64
    )
    chances: Floats = candidates / candidates.sum(axis=1, keepdims=True)
    return chances
