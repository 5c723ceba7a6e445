"""From a promise to a task that roles can run apart, and back: what is drawn is what was paid for.

A task holds every number that a role needs. Whoever opens one builds bandit and noise again from
its policy, problem and promise, and compares: a task whose noise is not what its promise needs is
refused, whoever wrote it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import math
import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, get_args

import jax
import numpy as np

from kerchief.core.contracts import Policy
from kerchief.core.errors import InvalidValueError
from kerchief.core.phases import ANSWERS, Phase, PhasePolicy
from kerchief.core.problems import AnyProblem, PopulationProblem
from kerchief.core.projections import projected, projection_of
from kerchief.core.validate import at_least, one_of, whole
from kerchief.deployment.context_free import unpack_problem
from kerchief.deployment.protected_policy import ProtectedPolicy, build_protected, choose_mechanism
from kerchief.deployment.task_building import TaskOptions, build_exact_noises, build_task
from kerchief.policies import POLICIES, AnyPolicy, Mode, resolve_name
from kerchief.policies.context_free.base import ContextFree
from kerchief.privacy.guarantee import Guarantee, Trust
from kerchief.privatizers.privatizer import Privatizer
from kerchief.privatizers.protect import Protection, mean_noise, protect
from kerchief.privatizers.randomizers import BEST
from kerchief.privatizers.schedule import At
from kerchief_protocol import canonical
from kerchief_protocol.errors import FencedError
from kerchief_protocol.model import Numbers
from kerchief_protocol.parties import Party
from kerchief_protocol.projection import Projection
from kerchief_protocol.task import Task

# Seconds for which a signed message is valid, unless the task says otherwise.
_VALID_S = 3600


@dataclasses.dataclass(frozen=True, kw_only=True)
class Deployment:
    """A task with the bandit and the exact noise that it stands for.

    Attributes:
        task: what all roles agree on.
        policy: the bandit.
        privatizers: the exact noise of each of its queries, in the task's order.
        problem: the public bounds, after a projection where there is one.
        guarantee: what each user is promised.
        phases: that may be played, where the bandit goes by phases.
    """

    task: Task
    policy: AnyPolicy
    privatizers: Mapping[str, Privatizer]
    problem: AnyProblem
    guarantee: Guarantee
    phases: tuple[Phase, ...] = ()

    @property
    def by_totals(self) -> Policy:
        """The bandit, where users choose among arms of their own.

        Raises:
            InvalidValueError: it goes by phases.
        """
        if isinstance(self.policy, PhasePolicy):
            raise InvalidValueError(
                "this bandit goes by phases, in which clients are asked and do not choose; use "
                "PopulationLearner, and join on the device"
            )
        return self.policy

    @property
    def by_phases(self) -> PhasePolicy:
        """The bandit, where it goes by phases.

        Raises:
            InvalidValueError: it does not.
        """
        if not isinstance(self.policy, PhasePolicy):
            raise InvalidValueError(f"{type(self.policy).__name__} has no phases; use Learner")
        return self.policy


@dataclasses.dataclass(frozen=True, kw_only=True)
class _PolicySpec:
    """Which bandit a task runs: a registered one by its name, another one by its fingerprint."""

    name: str | None
    mode: str
    mechanism: str
    numbers: Mapping[str, float]
    given: str | None


def deploy(
    *,
    policy: str | AnyPolicy,
    problem: AnyProblem,
    guarantee: Guarantee,
    mode: Mode = "tuned",
    mechanism: str | None = None,
    numbers: Mapping[str, float] | None = None,
    name: str | None = None,
    window_s: int = 86_400,
    jitter_s: int = 0,
    default: float | None = None,
    project: int | Projection | None = None,
    parties: Sequence[Party] = (),
    valid_s: int | None = None,
    in_process: bool = False,
    nonce: bytes | None = None,
) -> Deployment:
    """Make a task.

    Under shuffle trust, name the keys of the aggregator and of the learner in `parties` where
    devices hear of the status and the model over a network. Without both, every report brings as
    much noise as the smallest cohort needs, so that a false status cannot lower it. Totals of large
    cohorts are then much noisier.

    Args:
        policy: a registered bandit's name, `best`, or a bandit.
        problem: the public bounds.
        guarantee: what each user is promised.
        mode: for a bandit given by name: widths from its theorem, or tuned.
        mechanism: which noise keeps the guarantee; the bandit's own if None.
        numbers: parameters of the bandit that are replaced.
        name: what people call the task.
        window_s: seconds until a decision is reported, with its reward or else with the default.
            With 0 it is due whenever its device is asked, by whatever clock.
        jitter_s: a report waits a random time below this many seconds more; 0 without a window.
        default: the reward of a decision that got none; the least one if None. A question that
            got no answer has the greatest loss, or no difference.
        project: onto how many numbers devices map features before anything else, by a public
            random projection; or that projection.
        parties: who signs the status and the model, and their public keys; devices then refuse
            what is not signed.
        valid_s: seconds for which a signed message is valid; an hour if None.
        in_process: all roles run in one process, as in `Bandit`: devices follow the label of the
            status without signatures. Devices elsewhere do not (`Device`).
        nonce: 16 bytes that no other task has; random if None. Anything but None is for tests.

    Raises:
        InvalidValueError: this bandit cannot be deployed so; the reason and the remedy are said.

    >>> from kerchief import Guarantee, Problem
    >>> problem = Problem(dim=2, arms=3, norm=1.0, radius=1.0, low=0.0, high=1.0, horizon=100)
    >>> guarantee = Guarantee(epsilon=1.0, delta=1e-6, trust="local")
    >>> deployment = deploy(policy="linucb", problem=problem, guarantee=guarantee)
    >>> deployment.task.queries, deployment.task.size
    (('moments',), 5)
    """
    if not isinstance(name, str | None):
        raise InvalidValueError(f"name is a {type(name).__name__}; give one short line of text")
    projection = None if project is None else projection_of(problem, project)
    problem = problem if projection is None else projected(problem, projection)
    if isinstance(policy, str):
        policy = resolve_name(policy, problem)
    spec = _PolicySpec(
        name=policy if isinstance(policy, str) else None,
        mode=one_of("mode", mode, get_args(Mode)),
        mechanism=_choose_mechanism(policy, guarantee) if mechanism is None else mechanism,
        numbers={key: at_least(key, number, 0.0) for key, number in (numbers or {}).items()},
        given=None if isinstance(policy, str) else _compute_fingerprint(policy),
    )
    validity_s = _VALID_S if valid_s is None and parties else valid_s
    options = TaskOptions(
        name=name or (policy if isinstance(policy, str) else type(policy).__name__),
        rule={"window_s": window_s, "jitter_s": jitter_s, "default": default},
        nonce=os.urandom(16) if nonce is None else nonce,
        parties=tuple(parties),
        valid_s=0 if validity_s is None else whole("valid_s", validity_s, low=1, high=2**31 - 1),
        in_process=in_process,
        projection=projection,
    )
    return _build_deployment(policy, problem, guarantee, spec, options)


def _choose_mechanism(policy: str | AnyPolicy, guarantee: Guarantee) -> str:
    return choose_mechanism(POLICIES[policy], guarantee.trust) if isinstance(policy, str) else BEST


def read_deployment(task: Task, *, policy: AnyPolicy | None = None) -> Deployment:
    """Build bandit and noise of a task again.

    Args:
        task: what the roles agreed on.
        policy: the bandit, where the task was made for one that is not registered.

    Raises:
        FencedError: the task's noise is not what its promise needs, or the bandit is another one.
        InvalidValueError: the task needs a bandit that was not given.

    >>> from kerchief import Guarantee, Problem
    >>> problem = Problem(dim=2, arms=3, norm=1.0, radius=1.0, low=0.0, high=1.0, horizon=100)
    >>> guarantee = Guarantee(epsilon=1.0, delta=1e-6, trust="local")
    >>> data = deploy(policy="linucb", problem=problem, guarantee=guarantee).task.data
    >>> read_deployment(Task.read(data)).guarantee.epsilon
    1.0
    """
    spec = canonical.unpack(_PolicySpec, task.policy)
    source = spec.name if policy is None else policy
    if source is None:
        raise InvalidValueError("the task was made for a bandit of one's own; give it as policy")
    problem = unpack_problem(task.bandit, task.problem)
    promise = read_guarantee(task)
    if policy is not None:
        spec = dataclasses.replace(spec, given=_compute_fingerprint(policy))
    options = TaskOptions(
        name=task.name,
        rule=vars(task.reward),
        nonce=task.nonce,
        parties=task.parties,
        valid_s=task.valid_s,
        in_process=not task.has_equal_noise,
        projection=task.projection,
    )
    deployment = _build_deployment(source, problem, promise, spec, options)
    if deployment.task.data != task.data:
        raise FencedError(
            "the task's numbers are not what its promise needs with this version of the program; "
            "nothing is drawn for it"
        )
    return deployment


def read_guarantee(task: Task) -> Guarantee:
    """Return the guarantee that a task promises."""
    promise = task.promise
    endless = task.trust == Trust.NONE
    return Guarantee(
        epsilon=math.inf if endless else promise.epsilon,
        delta=promise.delta,
        trust=Trust(task.trust),
        unit=promise.unit,
        adjacency=promise.adjacency,
        rounds=task.horizon,
        honest=promise.honest,
        excluded=promise.excluded,
    )


def _build_deployment(
    source: str | AnyPolicy,
    problem: AnyProblem,
    guarantee: Guarantee,
    spec: _PolicySpec,
    options: TaskOptions,
) -> Deployment:
    guarantee = dataclasses.replace(guarantee, rounds=problem.horizon)
    protection = Protection(guarantee=guarantee, mechanism=spec.mechanism)
    protected = _protect_policy(source, problem, protection, spec)
    phases: tuple[Phase, ...] = ()
    if isinstance(protected.policy, PhasePolicy):
        protected, phases = _plan_phases(protected.policy, protection)
    return assemble_deployment(protected, problem, guarantee, spec, options, phases=phases)


def assemble_deployment(
    protected: ProtectedPolicy,
    problem: AnyProblem,
    guarantee: Guarantee,
    policy_spec: Any,
    options: TaskOptions,
    *,
    phases: tuple[Phase, ...] = (),
) -> Deployment:
    """Build the task of a policy and its protection.

    Args:
        protected: bandit and protection, with simulated noise.
        problem: the public bounds.
        guarantee: what each user is promised.
        policy_spec: which bandit it is, as the task will say.
        options: everything else; the problem is what is left after its projection.
        phases: that may be played, where the bandit goes by phases.
    """
    policy = _check_deployable(protected.policy, problem)
    users = sum(int(phase.clients) for phase in phases) or problem.horizon
    guarantee = dataclasses.replace(guarantee, rounds=users)
    privatizers, needs = build_exact_noises(protected, users, equal=not options.has_trusted_labels)
    return Deployment(
        task=build_task(policy, problem, guarantee, policy_spec, options, privatizers, needs),
        policy=policy,
        privatizers=privatizers,
        problem=problem,
        guarantee=guarantee,
        phases=phases,
    )


def _plan_phases(
    raw_policy: PhasePolicy, protection: Protection
) -> tuple[ProtectedPolicy, tuple[Phase, ...]]:
    """Plan phases whose groups are cohorts, all of them known before the first client.

    Groups have equal sizes, so that no release decides how many clients or coins a sum has
    (`population.md`).
    """
    policy = raw_policy.with_equal_groups()
    privatizers = protect(policy, protection, horizon=policy.problem.horizon)
    if ANSWERS not in privatizers:
        raise InvalidValueError(
            f"{type(policy).__name__} asks nobody within {policy.problem.horizon} rounds: there is "
            "nothing to deploy; plan more rounds, or choose 'dpe'"
        )
    privatizer = privatizers[ANSWERS]
    phases = policy.phases(partial(mean_noise, privatizer))
    needs = [int(phase.clients) // policy.groups for phase in phases for _ in range(policy.groups)]
    if sum(needs) != sum(int(phase.clients) for phase in phases):
        raise InvalidValueError(
            f"the {policy.groups} groups of {type(policy).__name__} have different sizes, which "
            "releases would decide; choose one whose groups are equal, such as 'pe'"
        )
    schedule = At(ends=tuple(itertools.accumulate(needs)))
    return ProtectedPolicy(
        policy=policy, privatizers={ANSWERS: privatizer.with_schedule(schedule)}
    ), phases


def _protect_policy(
    source: str | AnyPolicy, problem: AnyProblem, protection: Protection, spec: _PolicySpec
) -> ProtectedPolicy:
    if not isinstance(source, str):
        if not hasattr(source, "queries"):
            raise InvalidValueError(
                f"a {type(source).__name__} is no policy; give a name, or a policy"
            )
        privatizers = protect(source, protection, horizon=problem.horizon)
        return ProtectedPolicy(policy=source, privatizers=privatizers)
    entry = POLICIES[source]
    if protection.trust not in entry.trusts:
        raise InvalidValueError(
            f"trust is {protection.trust}; {source!r} runs under {', '.join(entry.trusts)}"
        )
    if not entry.deployable:
        raise InvalidValueError(
            f"{source!r} is a paper's own version, for study alone; choose {source.split('@')[0]!r}"
        )
    mode: Any = one_of("mode", spec.mode, get_args(Mode))
    return build_protected(source, problem, protection, mode=mode, numbers=spec.numbers)


def _check_deployable(policy: Any, problem: AnyProblem) -> AnyPolicy:
    is_phased, is_context_free = isinstance(policy, PhasePolicy), isinstance(policy, ContextFree)
    is_population = isinstance(problem, PopulationProblem)
    if (is_population and not is_phased) or (is_context_free and not policy.queries):
        raise InvalidValueError(
            f"{type(policy).__name__} hears {policy.feedback}; these roles decide among a user's "
            "own arms, ask for a loss, or go by phases: choose a policy such as 'linucb' for a "
            "Problem, 'ucb' for a ContextFreeProblem, 'dpe' for a PopulationProblem"
        )
    checked: AnyPolicy = policy
    return checked


def _compute_fingerprint(policy: object) -> str:
    """Hash a policy's class and all its numbers, which identify it in a task."""
    kind = type(policy)
    leaves, form = jax.tree.flatten(policy)
    numbers = [canonical.pack(Numbers.of(np.asarray(leaf))) for leaf in leaves]
    content = canonical.write([f"{kind.__module__}:{kind.__qualname__}", str(form), numbers])
    return hashlib.sha256(content).hexdigest()
