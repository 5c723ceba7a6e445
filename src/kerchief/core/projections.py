"""Problems whose features a public random projection shortens (`kerchief_protocol.projection`)."""

from __future__ import annotations

import dataclasses

from kerchief.core import validate
from kerchief.core.errors import InvalidValueError
from kerchief.core.problems import AnyProblem, PopulationProblem, Problem
from kerchief_protocol.projection import Projection


def projection_of(problem: AnyProblem, project: int | Projection) -> Projection:
    """The projection of a problem's features, by how many numbers they shall have, or as given.

    Raises:
        InvalidValueError: the problem's features cannot be projected, or not by this one.

    >>> facts = Problem(dim=100, arms=3, norm=1.0, radius=1.0, low=0.0, high=1.0, horizon=100)
    >>> projection_of(facts, 20).onto
    20
    """
    if not isinstance(problem, Problem) or isinstance(problem, PopulationProblem):
        raise InvalidValueError(
            "only users' own features are projected, and this problem has none; leave project out"
        )
    if problem.own not in (0, problem.dim):
        raise InvalidValueError(
            f"own is {problem.own} of {problem.dim}; a projection would mix shared coordinates "
            "with arms' own: leave project out"
        )
    constant = problem.constant != 0
    onto = project.onto if isinstance(project, Projection) else project
    least, greatest = 1 + constant, problem.dim - 1
    if greatest < least:
        remark = ", one of which is the constant" if constant else ""
        raise InvalidValueError(
            f"project is {validate.whole('project', onto)}, and features have {problem.dim} "
            f"number{'s' * (problem.dim > 1)}{remark}: no fewer can be left; leave project out"
        )
    expected = Projection(
        dim=problem.dim,
        onto=validate.whole("project", onto, low=least, high=greatest),
        norm=float(problem.norm),
        seed=project.seed if isinstance(project, Projection) else 0,
        constant=constant,
    )
    if isinstance(project, Projection) and project != expected:
        raise InvalidValueError(f"project is {project}; for this problem it must be {expected}")
    return expected


def projected(problem: AnyProblem, projection: Projection) -> Problem:
    """The problem that is left: features of the same norm, a parameter of the same radius."""
    assert isinstance(problem, Problem)
    own = projection.onto if problem.own else 0
    return dataclasses.replace(problem, dim=projection.onto, own=own)
