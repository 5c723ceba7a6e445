"""What a device runs for a task: light code, or the code of the library."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from kerchief_device.act import (
    Ellipsoid,
    PosteriorModel,
    act,
    act_on_a_guess,
    beliefs,
    ellipsoid,
    guess,
)
from kerchief_device.disjoint_models import DisjointSampling, own_size
from kerchief_device.phased import Survey
from kerchief_device.record import RULE, Moments, encode_loss
from kerchief_device.source import Randomness
from kerchief_protocol.errors import InvalidValueError
from kerchief_protocol.model import Model
from kerchief_protocol.noise import Floats
from kerchief_protocol.programs import Answering, DisjointModels, Optimist, Phased
from kerchief_protocol.task import Task

_MAX_DIM = 2**12


class Code(Protocol):
    """How arms are chosen, and how a visit becomes statistics."""

    def act(self, model: Model, rows: Floats, mask: NDArray[np.bool_]) -> int:
        """Choose one of the allowed rows."""

    def statistics(self, model: Model | None, features: Floats, reward: float) -> Sequence[Floats]:
        """Return the statistic of each query, clipped to its public bounds.

        Args:
            model: that chose; None where a question was answered.
            features: of the arm that was played; its number follows them where arms have models
                of their own.
            reward: that it brought.
        """


class Optimism:
    """Light code of an `Optimist`, which caches the numbers of the latest model."""

    def __init__(self, program: Optimist, source: Randomness) -> None:
        """Take the program, and where guesses come from.

        Raises:
            InvalidValueError: a number of it is outside its bounds.
        """
        _check_optimist(program)
        self._program, self._source, self._moments = program, source, Moments(program)
        self._cache: tuple[Model, Ellipsoid | PosteriorModel] | None = None

    def act(self, model: Model, rows: Floats, mask: NDArray[np.bool_]) -> int:
        """Return the allowed row of the highest upper bound, or the best under a guess."""
        posterior = self._load_model(model)
        if isinstance(posterior, Ellipsoid):
            return act(posterior, rows, mask)
        return act_on_a_guess(posterior, rows, mask, *guess(self._program.dim, self._source))

    def statistics(self, model: Model | None, features: Floats, reward: float) -> Sequence[Floats]:
        """Return the moments of one visit."""
        program, moments = self._program, self._moments
        if model is None or not (program.linearized or program.reweighed):
            return (moments.statistic(None, features, reward),)
        posterior = self._load_model(model)
        if (
            not isinstance(posterior, PosteriorModel)
            or posterior.weights is None
            or posterior.reference is None
        ):
            return (moments.statistic(posterior.estimate, features, reward),)
        return (moments.surprise(posterior.weights, posterior.reference, features, reward),)

    def _load_model(self, model: Model) -> Ellipsoid | PosteriorModel:
        cache = self._cache
        if cache is None or cache[0] is not model:
            self._cache = cache = model, self._read_model(model)
        return cache[1]

    def _read_model(self, model: Model) -> Ellipsoid | PosteriorModel:
        program = self._program
        if program.choice == "bound":
            return ellipsoid(model, program.dim)
        return beliefs(model, program.dim, reweighed=program.reweighed > 0)


class LossReports:
    """The light code of `Answering`."""

    def __init__(self, program: Answering) -> None:
        """Take the program.

        Raises:
            InvalidValueError: it asks for an answer that is not known here.
        """
        fewest = {"loss": 1, "difference": 2}.get(program.answer)
        if fewest is None or program.questions < fewest or not program.low < program.high:
            raise InvalidValueError(
                f"the task asks {program.questions} questions for {program.answer[:20]!r} between "
                f"{program.low} and {program.high}; known are loss, and difference of two"
            )
        self._program = program

    def act(self, model: Model, rows: Floats, mask: NDArray[np.bool_]) -> int:
        """Raise InvalidValueError: the learner proposes the action, and none is chosen."""
        raise InvalidValueError("the learner of this task proposes the action; call asked")

    def statistics(self, model: Model | None, features: Floats, reward: float) -> Sequence[Floats]:
        """Return the clipped number."""
        return (encode_loss(self._program, reward),)


def code_for(task: Task, source: Randomness) -> Code:
    """Build the light code of a task, which draws guesses from a source.

    Raises:
        InvalidValueError: its policy was not made light, or the report's length is not its own.
    """
    code: Code
    match task.program:
        case Optimist() as program:
            code, size = Optimism(program, source), program.dim * (program.dim + 3) // 2
        case DisjointModels() as program:
            code, size = DisjointSampling(program, source), own_size(program)
        case Answering() as program:
            code, size = LossReports(program), 1
        case Phased() as program:
            code, size = Survey(program, **_bounds(task)), program.size
        case _:
            raise InvalidValueError(
                "the policy of this task was not made light; give code, as the library does"
            )
    if task.size != size or len(task.queries) != 1:
        raise InvalidValueError(
            f"the task's reports have {task.size} numbers for {len(task.queries)} queries; its "
            f"program makes {size} for one: make the task anew"
        )
    return code


def _bounds(task: Task) -> dict[str, int]:
    """Read the numbers of actions and rounds of a task's problem, which bound a phase."""
    problem: dict[str, Any] = task.problem if isinstance(task.problem, dict) else {}
    bounds = {name: problem.get(name) for name in ("arms", "horizon")}
    sizes = {name: n for name, n in bounds.items() if type(n) is int and n > 0}
    if len(sizes) < len(bounds):
        raise InvalidValueError(
            "the task's problem has no whole numbers of arms and of rounds (horizon), which bound "
            "what a phase may ask: make the task anew"
        )
    return sizes


def _check_optimist(program: Optimist) -> None:
    """Refuse numbers of a task for which sensitivities and bounds do not hold."""
    if program.reweighed not in (0, RULE):
        raise InvalidValueError(
            f"surprises of this task are reported by rule {program.reweighed}, and those of this "
            f"device by rule {RULE}: make the task anew, or update the device"
        )
    positive = (program.norm, program.balance, program.steepest)
    is_ordered = program.low <= program.high and program.response_low <= program.response_high
    real = (*positive, program.low, program.high, program.response_low, program.response_high)
    if not (
        all(math.isfinite(number) and abs(number) <= 1e100 for number in (*real, program.offset))
        and all(number >= 1e-100 for number in positive)
        and is_ordered
        and program.largest_score >= 0
        and program.choice in ("bound", "guess")
        and (program.reweighed == 0 or _reweighs(program))
        and 1 <= program.dim <= _MAX_DIM
        and program.arms >= 1
    ):
        raise InvalidValueError(
            "a number of the task's program is outside its bounds; norm, balance and steepest "
            "must be above 0, intervals in order, all of them finite, arms chosen by bound or "
            "guess, and only what is guessed reweighed, with rewards to report above the offset: "
            "make the task anew"
        )


def _reweighs(program: Optimist) -> bool:
    """Whether the program can report surprises."""
    return program.choice == "guess" and program.response_high > program.offset
