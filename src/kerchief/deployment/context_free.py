"""What a task says of a bandit without contexts: its problem, its device, and units of losses."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from kerchief.core.convex import Ball, Box, Domain, Simplex
from kerchief.core.errors import CodecError, InvalidValueError
from kerchief.core.precision import double_precision
from kerchief.core.problems import AnyProblem, ContextFreeProblem, PopulationProblem, Problem
from kerchief.core.queries import BoundedScalar
from kerchief.core.random import Stream
from kerchief.policies.context_free.base import ContextFree
from kerchief.policies.context_free.two_point import TwoPoint
from kerchief.privatizers.privatizer import Privatizer
from kerchief.privatizers.sums import CohortSums
from kerchief_protocol import canonical
from kerchief_protocol.programs import Answering

# What a task may name: anyone can write one.
_DOMAINS: dict[str, type[Domain]] = {"ball": Ball, "box": Box, "simplex": Simplex}
# What noise on one number is measured in.
_LENGTHS = ("std", "sensitivity", "taxicab", "center", "radius")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Facts(ContextFreeProblem):
    """The fields of a problem whose domain is still a tree."""

    domain: Any = None

    def __post_init__(self) -> None:
        """Check nothing yet."""


def pack_problem(problem: AnyProblem) -> Any:
    """A problem as a tree for a task.

    Raises:
        InvalidValueError: its domain is none of those that a task can name.
    """
    tree = canonical.pack(problem)
    domain = problem.domain if isinstance(problem, ContextFreeProblem) else None
    if domain is not None:
        names = [name for name, domain_type in _DOMAINS.items() if type(domain) is domain_type]
        if not names:
            raise InvalidValueError(
                f"the domain is a {type(domain).__name__}; a task knows {', '.join(_DOMAINS)}"
            )
        tree["domain"]["kind"] = names[0]
    return tree


def unpack_problem(bandit: str, tree: Any) -> AnyProblem:
    """Read back what `pack_problem` wrote for a kind of bandit.

    Raises:
        CodecError: the tree is something else.
    """
    if bandit != "context-free":
        return canonical.unpack(PopulationProblem if bandit == "phased" else Problem, tree)
    facts = canonical.unpack(_Facts, tree)
    return ContextFreeProblem(**{**vars(facts), "domain": _read_domain(facts.domain)})


def _read_domain(tree: Any) -> Domain | None:
    match tree:
        case None:
            return None
        case {"kind": str() as kind, **rest} if kind in _DOMAINS:
            return canonical.unpack(_DOMAINS[kind], rest)
    raise CodecError(f"the domain is none of {', '.join(_DOMAINS)}")


def compute_unit(policy: ContextFree) -> float:
    """Return the divisor of a device's number: the distance of its two points, or 1."""
    return float(2 * policy.radius) if isinstance(policy, TwoPoint) else 1.0


def protect_answers(policy: ContextFree, privatizer: Privatizer) -> CohortSums:
    """Return the protection of the number that a device reports: a loss or a difference.

    Noise on a slope and noise on the difference that it is made of are the same, but for the unit.

    Raises:
        InvalidValueError: the bandit asks for something that no device can answer.
    """
    query: Any = privatizer.query
    if not (isinstance(query, BoundedScalar) and isinstance(privatizer, CohortSums)):
        raise InvalidValueError(
            "the bandit asks for no single loss, and devices answer by one number; deploy one that "
            "does, such as 'ucb' for arms and 'two-point' for a domain"
        )
    unit = compute_unit(policy)
    if unit == 1:
        return privatizer
    scaled = dataclasses.replace(query, low=query.low * unit, high=query.high * unit)
    return dataclasses.replace(
        privatizer, query=scaled, device=_scale_noise(privatizer.device, unit), aggregator=None
    )


def build_answering_program(policy: ContextFree, privatizer: Privatizer) -> Answering:
    """Return the program of a device that answers questions.

    Raises:
        InvalidValueError: the bandit's own way to answer is none that a light device knows.
    """
    answers = {ContextFree.answer: "loss", TwoPoint.answer: "difference"}
    answer = answers.get(type(policy).answer)
    if answer is None:
        raise InvalidValueError(
            f"{type(policy).__name__} answers in its own way, and devices know "
            f"{', '.join(answers.values())}; leave `answer` as it is in `ContextFree`"
        )
    query: Any = privatizer.query
    return Answering(low=query.low, high=query.high, questions=_questions(policy), answer=answer)


@double_precision
def _questions(policy: ContextFree) -> int:
    """Return how many points an action has."""
    at = Stream.of(seed=0, replicate=0)
    shape: tuple[int, ...] = jax.eval_shape(
        lambda: policy.propose(policy.init({}), jnp.int32(0), at)
    ).shape
    return shape[0] if shape else 1


def _scale_noise(noise: Any, unit: float) -> Any:
    """Multiply the lengths of noise by a unit."""
    if noise is None:
        return None
    names = [field.name for field in dataclasses.fields(noise) if field.name in _LENGTHS]
    return dataclasses.replace(noise, **{name: getattr(noise, name) * unit for name in names})
