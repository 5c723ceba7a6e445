"""State and model of posterior sampling: sums over cohorts, and the posterior from them."""

from __future__ import annotations

import dataclasses
from typing import TypeVar

from jax import Array

from kerchief.core.contracts import Separate
from kerchief.core.struct import static, struct


@struct
class Sums:
    """The learner's memory: what closed cohorts told, and the total that the next one adds to.

    Attributes:
        precision: of the parameter, from closed cohorts.
        pull: the precision times the estimate, likewise.
        total: as last released.
        count: how many users that has.
        noise: the deviation of its noise.
        closed_total: the same three when the last cohort was closed.
        closed_count: see there.
        closed_noise: see there.
        separate: whose noise is their own; where nobody's is, no cohort is closed.
    """

    precision: Array
    pull: Array
    total: Array
    count: Array
    noise: Array
    closed_total: Array
    closed_count: Array
    closed_noise: Array
    separate: Separate = static()


@struct
class PosteriorModel:
    """The billboard: the estimate, and how far devices stray from it.

    Attributes:
        estimate: of the parameter.
        sample: a square root of the covariance that guesses are drawn with.
        widen: the same for directions in which a random width is enough.
    """

    estimate: Array
    sample: Array
    widen: Array


SumsKind = TypeVar("SumsKind", bound=Sums)


def begin_cohort(state: SumsKind, precision: Array, pull: Array) -> SumsKind:
    """Store the sums of all closed cohorts, and begin the next cohort."""
    return dataclasses.replace(
        state,
        precision=precision,
        pull=pull,
        closed_total=state.total,
        closed_count=state.count,
        closed_noise=state.noise,
    )
