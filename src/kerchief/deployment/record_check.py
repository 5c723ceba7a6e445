"""Whether some record could have made a report: norm and shape of exact statistics, up to rounding.

Where devices add no noise, a report is a statistic. Without this check one false user can send the
corner of the box that holds statistics, which is far beyond all of them. Bounds and proofs:
`record_check.md`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from kerchief_protocol.errors import RejectedError
from kerchief_protocol.noise import Floats, Statistic, Wholes
from kerchief_protocol.programs import Answering, DisjointModels, Optimist, Program
from kerchief_protocol.report import Report
from kerchief_protocol.task import Task

Verdicts: TypeAlias = NDArray[np.bool_]
_Test: TypeAlias = Callable[[Floats], Verdicts]

_ROUNDING = 2.0**-40
"""Error of floating point, relative to the largest number (`queries.md`, section 3)."""
_AT_ONCE = 2**15
"""Numbers that are tested together: temporaries stay in a processor's cache."""


class RecordCheck:
    """Tests reports of one task; reports that carry noise pass.

    >>> from kerchief import Guarantee, Problem, deploy
    >>> problem = Problem(dim=2, arms=3, norm=1.0, radius=1.0, low=0.0, high=1.0, horizon=100)
    >>> guarantee = Guarantee(epsilon=1.0, delta=1e-6, trust="joint")
    >>> check = RecordCheck(deploy(policy="linucb", problem=problem, guarantee=guarantee).task)
    >>> unit = 2**24
    >>> check.could_be_records(unit * np.array([[1, 0, 0, 1, 0], [1, 0, 1, 1, 0]])).tolist()
    [True, False]
    """

    def __init__(self, task: Task) -> None:
        """Prepare the tests of the queries without noise."""
        self._tests: list[tuple[slice, _Test]] = [
            (part, _test_for(task.program, noise))
            for noise, part in zip(task.noise, task.parts, strict=True)
            if isinstance(noise, Statistic)
        ]

    def could_be_records(self, numbers: Wholes) -> Verdicts:
        """Return for each row whether some record could have made this report."""
        verdicts = np.ones(len(numbers), np.bool_)
        step = max(1, _AT_ONCE // numbers.shape[1])
        for first in range(0, len(numbers), step):
            rows = slice(first, first + step)
            for part, test in self._tests:
                verdicts[rows] &= test(numbers[rows, part].astype(np.float64))
        return verdicts

    def refuse_forgeries(
        self, reports: list[Report | RejectedError]
    ) -> list[Report | RejectedError]:
        """Put a refusal in the place of each report that no record could have made."""
        rows = [report.numbers for report in reports if isinstance(report, Report)]
        if not rows or not self._tests:
            return reports
        numbers = np.concatenate(rows).reshape(len(rows), -1)
        verdicts = self.could_be_records(numbers)
        if verdicts.all():
            return reports
        verdict = iter(verdicts.tolist())
        refusal = RejectedError("bounds", "no record within the task's bounds gives this report")
        return [
            report if isinstance(report, RejectedError) or next(verdict) else refusal
            for report in reports
        ]


def _test_for(program: Program, noise: Statistic) -> _Test:
    match program:
        case Optimist(reweighed=0):
            return _Moments(program, noise).test
        case DisjointModels():
            return _Blocks(program, noise).test
        case Answering():
            return _interval(program, noise)
    return _ball(noise)


def _slack(noise: Statistic) -> float:
    """Return how far rounding moves a number, in units of the grid."""
    farthest = max(map(abs, noise.center), default=0) + noise.radius
    return 0.5 + _ROUNDING * farthest


def _ball(noise: Statistic) -> _Test:
    """Test the distance from the center, where only a ball of statistics is public."""
    center = np.array(noise.center, np.float64)
    radius = noise.radius + 2 * math.sqrt(noise.size) * _slack(noise)

    def test(rows: Floats) -> Verdicts:
        within: Verdicts = np.square(rows - center).sum(1) <= radius**2
        return within

    return test


def _interval(program: Answering, noise: Statistic) -> _Test:
    """Test that a number lies between the least and the greatest loss."""
    low, high = np.rint(np.ldexp([program.low, program.high], noise.grid_bits))

    def test(rows: Floats) -> Verdicts:
        within: Verdicts = ((rows >= low) & (rows <= high)).all(1)
        return within

    return test


class _Moments:
    """The test of (b w x xᵀ, y x): a matrix of rank one, and a vector along it.

    The column of the matrix with the largest pivot gives x. Bounds are in units of the grid.
    """

    def __init__(self, program: Optimist, noise: Statistic) -> None:
        """Lay out the flat form, and compute the bounds."""
        dim, unit, self._slack = program.dim, math.ldexp(1.0, noise.grid_bits), _slack(noise)
        rows, columns = np.triu_indices(dim)
        self._vector_start = vector_start = len(rows)
        # Each entry is left times right times weight: numbers of the column. The vector comes last.
        self._left_places = np.concatenate([rows, np.full(dim, dim)])
        self._right_places = np.concatenate([columns, np.arange(dim)])
        weights = np.where(self._left_places == self._right_places, 1.0, math.sqrt(2.0))
        weights[vector_start:] = 1.0
        self._weights = weights[:, None]
        self._diagonal = np.flatnonzero(rows == columns)
        # Places of each column's numbers, then of the vector's number that belongs to its pivot.
        self._places = np.empty((dim + 1, dim), np.intp)
        self._places[rows, columns] = self._places[columns, rows] = np.arange(vector_start)
        self._places[dim] = vector_start + np.arange(dim)
        self._shares = 1 / weights[self._places]
        ends = (program.response_low - program.offset, program.response_high - program.offset)
        largest = max(map(abs, ends))
        smallest = min(map(abs, ends)) if ends[0] * ends[1] > 0 else 0.0
        # A number of the vector is y times the root of a number of the diagonal, and of this.
        root = math.sqrt(unit / program.balance)
        self._smallest = (1 - _ROUNDING) * smallest * root
        self._largest = (1 + _ROUNDING) * largest * root
        self._trace = unit * program.balance * program.norm**2 + dim * self._slack
        self._length = unit * largest * program.norm + math.sqrt(dim) * self._slack
        self._weighted = program.weighted

    def test(self, rows: Floats) -> Verdicts:
        """Return which rows have a matrix of rank one, and a vector that fits it."""
        # One report per column from here on: operations then run along contiguous numbers.
        numbers, slack, vector_start = np.ascontiguousarray(rows.T), self._slack, self._vector_start
        diagonal = numbers.take(self._diagonal, 0)
        column, pivot = diagonal.argmax(0), np.maximum.reduce(diagonal, 0)
        ends = numbers[self._places.take(column, 1), np.arange(len(rows))]
        ends *= self._shares.take(column, 1)
        along = np.abs(ends[-1])
        # Rounding hides the direction of a smaller matrix.
        visible = pivot >= 8 * slack
        inverse = visible / np.maximum(pivot, slack)
        errors = (ends * inverse).take(self._left_places, 0)
        errors *= ends.take(self._right_places, 0)
        errors *= self._weights
        errors -= numbers
        np.abs(errors, out=errors)
        reach = self._reach(pivot)
        allowed_error = np.where(visible, slack * (2.5 + 2.1 * along * inverse), reach)
        verdicts: Verdicts = np.maximum.reduce(errors[:vector_start], 0) <= 14 * slack
        verdicts &= np.maximum.reduce(errors[vector_start:], 0) <= allowed_error
        verdicts &= along <= reach
        verdicts &= np.add.reduce(diagonal, 0) <= self._trace
        if self._smallest:
            verdicts &= along >= self._smallest * np.sqrt(np.maximum(pivot - slack, 0)) - slack
        if self._weighted:
            verdicts &= np.square(numbers[vector_start:]).sum(0) <= self._length**2
        return verdicts

    def _reach(self, pivot: Floats) -> Floats | float:
        """Return the largest number of a vector whose matrix has this pivot."""
        if self._weighted:
            return self._length
        reach: Floats = self._largest * np.sqrt(np.maximum(pivot, 0) + self._slack) + self._slack
        return reach


class _Blocks:
    """The test of one arm's (y u, w u), and the pool h z zᵀ; u is z, then the lever."""

    def __init__(self, program: DisjointModels, noise: Statistic) -> None:
        """Compute the bounds, in units of the grid."""
        self._program, self._slack = program, _slack(noise)
        self._unit = math.ldexp(program.weight, noise.grid_bits)
        self._count = program.dim - (program.lever > 0)
        self._rows, self._columns = np.triu_indices(self._count if program.balance else 0)
        weights = np.where(self._rows == self._columns, 1.0, math.sqrt(2.0))
        self._pool = program.balance / (program.weight * self._unit) * weights
        reach = 2 * program.varying + 3 * (self._slack / self._unit)
        self._apart = self._slack * (1 + math.sqrt(2) * program.balance / program.weight * reach)

    def test(self, rows: Floats) -> Verdicts:
        """Return which rows concern one arm alone, with the same features in every part."""
        program, slack = self._program, self._slack
        pool_start = 2 * program.arms * program.dim
        blocks = rows[:, :pool_start].reshape(-1, 2, program.arms, program.dim)
        is_alone = (blocks != 0).any((1, 3)).sum(1) <= 1
        moments, features = blocks.sum(2).transpose(1, 0, 2)
        index, column = np.arange(len(rows))[:, None], np.abs(features).argmax(1)[:, None]
        pivot, along = features[index, column], moments[index, column]
        sizes = np.abs(pivot) + np.abs(along) + np.abs(moments) + np.abs(features)
        is_along = np.abs(pivot * moments - along * features) <= slack * (sizes + 6 * slack)
        varying, pool = features[:, : self._count], rows[:, pool_start:]
        length = self._unit * program.varying + math.sqrt(self._count) * slack
        is_short = np.square(varying).sum(1) <= length**2
        lever = self._unit * program.lever
        is_levered = (np.abs(features[:, self._count :] - lever) <= slack).all(1)
        expected = varying[:, self._rows] * varying[:, self._columns] * self._pool
        is_pooled = (np.abs(pool - expected) <= self._apart).all(1)
        is_within = self._is_within(moments, features)
        verdicts: Verdicts = (
            is_alone & is_along.all(1) & is_short & is_levered & is_pooled & is_within
        )
        return verdicts

    def _is_within(self, moments: Floats, features: Floats) -> Verdicts:
        """Return which rows have moments that a response within its bounds gives."""
        program = self._program
        low, high = program.low - program.offset, program.high - program.offset
        ends = low * features, high * features
        spare = self._slack * (program.weight + max(abs(low), abs(high)))
        scaled = program.weight * moments
        is_above = (scaled >= np.minimum(*ends) - spare).all(1)
        is_below = (scaled <= np.maximum(*ends) + spare).all(1)
        within: Verdicts = np.logical_and(is_above, is_below)
        return within
