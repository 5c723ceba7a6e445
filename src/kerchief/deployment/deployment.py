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
import jax.numpy as jnp
import numpy as np

from kerchief.core.contracts import BoundedLoss, NoiseInfo, Policy
from kerchief.core.errors import InvalidValueError
from kerchief.core.links import link_named
from kerchief.core.phases import ANSWERS, Phase, PhasePolicy, PhaseQuery
from kerchief.core.precision import double_precision
from kerchief.core.problems import AnyProblem, PopulationProblem, Problem
from kerchief.core.projections import projected, projection_of
from kerchief.core.residual_moments import ResidualMoments
from kerchief.core.validate import at_least, between, one_of, whole
from kerchief.deployment.context_free import answering, in_losses, packed, unpacked
from kerchief.deployment.protected_policy import ProtectedPolicy, build_protected, choose_mechanism
from kerchief.mechanisms.binomial import ExactBinomial
from kerchief.mechanisms.compass import ExactCompass
from kerchief.mechanisms.exact_continual import ExactContinualNoise
from kerchief.mechanisms.exact_gaussian import ExactGaussian
from kerchief.mechanisms.laplace import ExactLaplace
from kerchief.mechanisms.one_bit import ExactOneBit
from kerchief.mechanisms.shortlist import ExactShortlist
from kerchief.policies import POLICIES, AnyPolicy, Mode, named
from kerchief.policies.context_free.base import ContextFree
from kerchief.policies.disjoint_models import DisjointSampling
from kerchief.policies.glm.online import OnlineGLM
from kerchief.policies.linear.linucb import LinUCB
from kerchief.policies.sampling import Sampling
from kerchief.policies.weighted import RULE, GLMSampling, LinearSampling, SurprisedSampling
from kerchief.privacy.guarantee import Guarantee, Trust
from kerchief.privatizers.bits import BitSums
from kerchief.privatizers.prefix import PrefixSums
from kerchief.privatizers.privatizer import Privatizer
from kerchief.privatizers.protect import Protection, mean_noise, protect
from kerchief.privatizers.randomizers import BEST
from kerchief.privatizers.schedule import At, Every
from kerchief.privatizers.shuffled import ShuffledSums
from kerchief.privatizers.sums import CohortSums
from kerchief_protocol import canonical
from kerchief_protocol import noise as wire
from kerchief_protocol.errors import FencedError
from kerchief_protocol.model import Numbers
from kerchief_protocol.parties import Party
from kerchief_protocol.programs import Answering, DisjointModels, Library, Optimist, Phased, Program
from kerchief_protocol.projection import Projection
from kerchief_protocol.task import Promise, Reward, Task

# What a round is made of, by what the bandit hears.
_KINDS = {"totals": "contextual", "reports": "context-free", "phases": "phased"}
# Seconds for which a signed message is valid, unless the task says otherwise.
_VALID_S = 3600
# The finest grid of exact sums where no noise decides it.
_FINEST = 40


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskOptions:
    """What a task says besides its bandit, its problem and its guarantee.

    Attributes:
        name: what people call the task.
        rule: window_s, jitter_s and default, as `deploy` takes them.
        nonce: 16 random bytes, so that two runs with equal parameters are two tasks.
        parties: who signs the status and the model.
        valid_s: seconds for which these are valid.
        in_process: whether all roles run in one process, where no status can be false.
        projection: what devices do to features before anything else.
    """

    name: str
    rule: Mapping[str, Any]
    nonce: bytes
    parties: tuple[Party, ...] = ()
    valid_s: int = 0
    in_process: bool = False
    projection: Projection | None = None

    @property
    def has_trusted_labels(self) -> bool:
        """Whether devices may follow the label in a status: cohorts may then differ in noise."""
        roles = {party.role for party in self.parties}
        return self.in_process or roles == {"aggregator", "learner"}


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

    >>> problem = Problem(dim=2, arms=3, norm=1.0, radius=1.0, low=0.0, high=1.0, horizon=100)
    >>> guarantee = Guarantee(epsilon=1.0, delta=1e-6, trust=Trust.LOCAL)
    >>> deployment = deploy(policy="linucb", problem=problem, guarantee=guarantee)
    >>> deployment.task.queries, deployment.task.size
    (('moments',), 5)
    """
    if not isinstance(name, str | None):
        raise InvalidValueError(f"name is a {type(name).__name__}; give one short line of text")
    projection = None if project is None else projection_of(problem, project)
    problem = problem if projection is None else projected(problem, projection)
    if isinstance(policy, str):
        policy = named(policy, problem)
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


def deployed(task: Task, *, policy: AnyPolicy | None = None) -> Deployment:
    """Build bandit and noise of a task again.

    Args:
        task: what the roles agreed on.
        policy: the bandit, where the task was made for one that is not registered.

    Raises:
        FencedError: the task's noise is not what its promise needs, or the bandit is another one.
        InvalidValueError: the task needs a bandit that was not given.

    >>> problem = Problem(dim=2, arms=3, norm=1.0, radius=1.0, low=0.0, high=1.0, horizon=100)
    >>> guarantee = Guarantee(epsilon=1.0, delta=1e-6, trust=Trust.LOCAL)
    >>> data = deploy(policy="linucb", problem=problem, guarantee=guarantee).task.data
    >>> deployed(Task.read(data)).guarantee.epsilon
    1.0
    """
    spec = canonical.unpack(_PolicySpec, task.policy)
    source = spec.name if policy is None else policy
    if source is None:
        raise InvalidValueError("the task was made for a bandit of one's own; give it as policy")
    problem = unpacked(task.bandit, task.problem)
    promise = guarantee_of(task)
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


def guarantee_of(task: Task) -> Guarantee:
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
    return assembled(protected, problem, guarantee, spec, options, phases=phases)


def assembled(
    made: ProtectedPolicy,
    problem: AnyProblem,
    guarantee: Guarantee,
    asked: Any,
    options: TaskOptions,
    *,
    phases: tuple[Phase, ...] = (),
) -> Deployment:
    """Build the task of a policy and its protection.

    Args:
        made: bandit and protection, with simulated noise.
        problem: the public bounds.
        guarantee: what each user is promised.
        asked: which bandit was asked for, as the task will say.
        options: everything else; the problem is what is left after its projection.
        phases: that may be played, where the bandit goes by phases.
    """
    policy = _check_deployable(made.policy, problem)
    users = sum(int(phase.clients) for phase in phases) or problem.horizon
    guarantee = dataclasses.replace(guarantee, rounds=users)
    privatizers = {
        privatizer: _build_exact_noise(privatizer, policy, made.privatizers[privatizer])
        for privatizer in sorted(made.privatizers)
    }
    needs = _compute_cohort_sizes(privatizers, users)
    if not options.has_trusted_labels:
        privatizers = {
            name: privatizer.evened(len(needs)) if isinstance(privatizer, BitSums) else privatizer
            for name, privatizer in privatizers.items()
        }
    program = _build_program(policy, problem, privatizers)
    task = Task(
        name=options.name,
        trust=str(guarantee.trust),
        bandit=_KINDS[policy.feedback],
        promise=Promise(
            epsilon=min(guarantee.epsilon, math.nextafter(math.inf, 0)),
            delta=guarantee.delta,
            unit=guarantee.unit,
            adjacency=guarantee.adjacency,
            honest=guarantee.honest,
            excluded=guarantee.excluded,
        ),
        policy=canonical.pack(asked),
        problem=packed(problem),
        program=program,
        queries=tuple(privatizers),
        noise=tuple(
            _describe_noise(privatizer, guarantee, needs, users, options)
            for privatizer in privatizers.values()
        ),
        needs=needs,
        horizon=users,
        reward=_build_reward_rule(problem, program, **options.rule),
        nonce=options.nonce,
        parties=options.parties,
        valid_s=options.valid_s,
        projection=options.projection,
    )
    return Deployment(
        task=task,
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
    policy = raw_policy.evened()
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


def _build_reward_rule(
    problem: AnyProblem, program: Program, window_s: int, jitter_s: int, default: float | None
) -> Reward:
    low, high, fallback = problem.low, problem.high, problem.low
    if isinstance(program, Answering):
        low, high = program.low, program.high
        fallback = high if program.answer == "loss" else 0.0
    chosen_default = fallback if default is None else default
    reward = Reward(
        window_s=whole("window_s", window_s, low=0, high=2**31),
        jitter_s=whole("jitter_s", jitter_s, low=0, high=2**31),
        default=between("default", chosen_default, low, high, closed=True),
    )
    if reward.jitter_s and not reward.window_s:
        raise InvalidValueError(
            f"jitter_s is {jitter_s} and window_s is 0; only a window has a delay after it. Set "
            "`window_s`, or leave `jitter_s` out."
        )
    return reward


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


def _build_exact_noise(name: str, policy: AnyPolicy, privatizer: Privatizer) -> Privatizer:
    if isinstance(policy, ContextFree):
        return in_losses(policy, privatizer).exact()
    if isinstance(privatizer.query, BoundedLoss) or not isinstance(
        privatizer, CohortSums | PrefixSums
    ):
        raise InvalidValueError(
            f"{name!r} is a fit to the records of many users, which somebody would have to keep "
            "between two releases; choose a policy that asks for sums alone, such as 'glm', or "
            "'glm-batched-sums' for batches behind a shuffler"
        )
    return privatizer.exact()


def _compute_cohort_sizes(privatizers: Mapping[str, Privatizer], horizon: int) -> tuple[int, ...]:
    """Return the size of each cohort; none where every report is released by itself."""
    schedules = {privatizer.schedule for privatizer in privatizers.values()}
    if schedules <= {Every()}:
        return ()
    if len(schedules) > 1 or not all(isinstance(schedule, At) for schedule in schedules):
        raise InvalidValueError(
            "the bandit's queries are released at different times; choose one that asks for sums "
            "over the same users, such as 'linucb'"
        )
    (schedule,) = schedules
    assert isinstance(schedule, At)
    ends = tuple(end for end in schedule.ends if end <= horizon)
    if not ends:
        raise InvalidValueError(
            f"the first batch ends after {schedule.ends[:1]} users and the horizon is {horizon}: "
            "nothing would ever be released; plan more users"
        )
    return At(ends=ends).sizes


def _build_program(
    policy: AnyPolicy, problem: AnyProblem, privatizers: Mapping[str, Privatizer]
) -> Program:
    """Build the program of a light device, or mark one that needs the whole library."""
    if isinstance(policy, PhasePolicy):
        return _build_phased_program(policy)
    if isinstance(policy, ContextFree):
        return answering(policy, *privatizers.values())
    if type(policy) is DisjointSampling:
        return _build_disjoint_program(policy, problem)
    if type(policy) not in (LinUCB, OnlineGLM, LinearSampling, GLMSampling):
        return Library()
    assert isinstance(problem, Problem)
    linearized = isinstance(policy, OnlineGLM)
    query: Any = policy.queries["moments"]
    link_named(problem.link)
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


def _build_disjoint_program(policy: DisjointSampling, problem: AnyProblem) -> DisjointModels:
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


def _describe_noise(
    privatizer: Privatizer,
    guarantee: Guarantee,
    needs: tuple[int, ...],
    horizon: int,
    options: TaskOptions,
) -> wire.Noise:
    """Describe the noise of one query in the words of the wire."""
    query = privatizer.query
    if isinstance(privatizer, BitSums):
        first = privatizer.batches[0]
        keep_units = tuple(
            round(batch.keep * wire.KEEP_UNITS) for batch in privatizer.batches[: len(needs)]
        )
        return wire.Bits(size=query.size, bits=first.bits, bound=first.bound, keep=keep_units)
    if isinstance(privatizer, ShuffledSums):
        return _describe_coins(privatizer.coins, guarantee, needs, options)
    if isinstance(privatizer, PrefixSums):
        assert isinstance(privatizer.noise, ExactContinualNoise)
        return _describe_statistic(query, _compute_grid_bits(privatizer.noise.grid))
    assert isinstance(privatizer, CohortSums)
    if privatizer.device is not None:
        return _describe_device_noise(privatizer.device, query)
    if isinstance(privatizer.aggregator, ExactGaussian | ExactLaplace):
        return _describe_statistic(query, privatizer.aggregator.grid_bits)
    return _describe_statistic(query, _compute_finest_grid_bits(query, horizon))


def _describe_coins(
    noise: ExactBinomial, guarantee: Guarantee, needs: tuple[int, ...], options: TaskOptions
) -> wire.Coins:
    """Describe coins of which the honest part of each cohort suffices (`crediting.md`).

    Every cohort gets those of the smallest one where a device cannot trust the label of a status.
    """
    coins = tuple(-(-noise.trials // max(1, guarantee.counted(need))) for need in needs)
    if not options.has_trusted_labels:
        coins = (max(coins),) * len(coins)
    return wire.Coins(
        size=noise.dimension,
        step_bits=_compute_grid_bits(noise.step),
        levels=noise.levels,
        scale=noise.scale,
        coins=coins,
    )


def _describe_device_noise(noise: Any, query: Any) -> wire.Noise:
    match noise:
        case ExactShortlist():
            return wire.Shortlist(
                units=noise.units,
                candidates=noise.candidates,
                listed=noise.listed,
                center=noise.center,
                radius=noise.radius,
                factor=noise.factor,
                grid_bits=_compute_grid_bits(noise.grid),
            )
        case ExactCompass():
            return noise.wire
        case ExactOneBit():
            low, high = noise.reports
            return wire.OneBit(
                bias=noise.bias, center=noise.center, radius=noise.radius, low=low, high=high
            )
        case ExactGaussian() | ExactLaplace():
            law = "gaussian" if isinstance(noise, ExactGaussian) else "laplace"
            statistic = _describe_statistic(query, noise.grid_bits)
            return wire.Rounded(
                law=law,
                grid_bits=noise.grid_bits,
                scale=noise.scale,
                center=statistic.center,
                radius=statistic.radius,
            )
    raise InvalidValueError(
        f"{type(noise).__name__} has no form on the wire; choose another mechanism"
    )


def _describe_statistic(query: Any, grid_bits: int) -> wire.Statistic:
    """Describe a box that holds every statistic, in whole units of the grid."""
    center = np.broadcast_to(np.asarray(query.center, np.float64), (query.size,))
    units = np.rint(np.ldexp(center, grid_bits)).astype(np.int64)
    radius = math.ceil(math.ldexp(query.radius, grid_bits)) + 1
    return wire.Statistic(grid_bits=grid_bits, center=tuple(units.tolist()), radius=radius)


def _compute_finest_grid_bits(query: Any, horizon: int) -> int:
    """Return the bits of the finest grid for which exact sums have room."""
    largest = (float(np.abs(query.center).max()) + query.radius) * horizon
    return min(_FINEST, 60 - math.frexp(largest)[1])


def _compute_grid_bits(grid: float) -> int:
    mantissa, exponent = math.frexp(grid)
    assert mantissa == 0.5
    return 1 - exponent


def _compute_fingerprint(policy: object) -> str:
    """Hash a policy's class and all its numbers, which identify it in a task."""
    kind = type(policy)
    leaves, form = jax.tree.flatten(policy)
    numbers = [canonical.pack(Numbers.of(np.asarray(leaf))) for leaf in leaves]
    content = canonical.write([f"{kind.__module__}:{kind.__qualname__}", str(form), numbers])
    return hashlib.sha256(content).hexdigest()
