"""Programs of devices: what a task asks of a device, derived from the bandit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from kerchief.core.contracts import NoiseInfo
from kerchief.core.errors import InvalidValueError
from kerchief.core.links import get_link
from kerchief.core.phases import ANSWERS, Phase, PhasePolicy, PhaseQuery
from kerchief.core.precision import double_precision
from kerchief.core.problems import AnyProblem, Problem
from kerchief.core.residual_moments import ResidualMoments
from kerchief.deployment.context_free import build_answering_program
from kerchief.policies import AnyPolicy
from kerchief.policies.context_free.base import ContextFree
from kerchief.policies.disjoint_models import DisjointSampling
from kerchief.policies.glm.online import OnlineGLM
from kerchief.policies.linear.linucb import LinUCB
from kerchief.policies.sampling import Sampling
from kerchief.policies.thompson_sampling import GLMSampling, LinearSampling
from kerchief.policies.weighted import RULE, SurprisedSampling
from kerchief.privatizers.privatizer import Privatizer
from kerchief_protocol.programs import DisjointModels, Library, Optimist, Phased, Program


def build_program(
    policy: AnyPolicy, problem: AnyProblem, privatizers: Mapping[str, Privatizer]
) -> Program:
    """Build the program of a light device, or mark one that needs the whole library."""
    if isinstance(policy, PhasePolicy):
        return _build_phased_program(policy)
    if isinstance(policy, ContextFree):
        return build_answering_program(policy, *privatizers.values())
    if type(policy) is DisjointSampling:
        return build_disjoint_program(policy, problem)
    if type(policy) not in (LinUCB, OnlineGLM, LinearSampling, GLMSampling):
        return Library()
    assert isinstance(problem, Problem)
    linearized = isinstance(policy, OnlineGLM)
    query: Any = policy.queries["moments"]
    get_link(problem.link)
    return Optimist(
        dim=problem.dim,
        arms=problem.arms,
        norm=problem.norm,
        low=problem.low,
        high=problem.high,
        link=problem.link if linearized else "linear",
        linearized=linearized,
        largest_score=float(policy.radius) * query.norm if isinstance(policy, OnlineGLM) else 0.0,
        steepest=float(policy.steepest) if isinstance(policy, OnlineGLM) else 1.0,
        response_low=query.low,
        response_high=query.high,
        offset=query.offset,
        balance=query.balance,
        weighted=query.weighted,
        reweighed=_choose_weight_rule(policy, privatizers["moments"].outlook),
        choice="guess" if isinstance(policy, Sampling) else "bound",
    )


def _choose_weight_rule(policy: AnyPolicy, outlook: NoiseInfo) -> int:
    """Return the rule by which surprises are reported, or 0."""
    if not isinstance(policy, SurprisedSampling):
        return 0
    if policy.weighs(outlook):
        return RULE
    if isinstance(policy.query, ResidualMoments):
        raise InvalidValueError(
            "the bandit was built to report surprises, which are for reports that each have noise "
            "of their own; build it for the trust that is asked for, or give its name"
        )
    return 0


def build_disjoint_program(policy: DisjointSampling, problem: AnyProblem) -> DisjointModels:
    """Build the program of a device that draws a score per arm."""
    assert isinstance(problem, Problem)
    query = policy.query
    return DisjointModels(
        dim=query.dim,
        arms=query.arms,
        norm=problem.norm,
        varying=query.norm,
        low=query.low,
        high=query.high,
        offset=query.offset,
        lever=query.lever,
        weight=query.weight,
        balance=query.pool,
    )


@double_precision
def _build_phased_program(policy: PhasePolicy) -> Phased:
    problem = policy.problem
    first = Phase(number=1, pulls=1, first=0, clients=policy.groups)

    def ask() -> PhaseQuery:
        return policy.ask(
            jnp.zeros((problem.arms, problem.dim)), policy.init({}), first, noisy=True
        )

    questions = jax.eval_shape(ask)
    return Phased(
        low=problem.low,
        high=problem.high,
        groups=policy.groups,
        atoms=questions.atoms.shape[1],
        size=policy.queries[ANSWERS].size,
    )
