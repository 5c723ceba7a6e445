"""Task building: the numbers of a task, from a bandit with its noise and the task's options."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from kerchief.core.contracts import BoundedLoss
from kerchief.core.errors import InvalidValueError
from kerchief.core.problems import AnyProblem
from kerchief.core.validate import between, whole
from kerchief.deployment.context_free import pack_problem, protect_answers
from kerchief.deployment.device_programs import build_program
from kerchief.deployment.mechanism_descriptions import describe_noise
from kerchief.deployment.protected_policy import ProtectedPolicy
from kerchief.policies import AnyPolicy
from kerchief.policies.context_free.base import ContextFree
from kerchief.privacy.guarantee import Guarantee
from kerchief.privatizers.bits import BitSums
from kerchief.privatizers.prefix import PrefixSums
from kerchief.privatizers.privatizer import Privatizer
from kerchief.privatizers.schedule import At, Every
from kerchief.privatizers.sums import CohortSums
from kerchief_protocol import canonical
from kerchief_protocol.parties import Party
from kerchief_protocol.programs import Answering, Program
from kerchief_protocol.projection import Projection
from kerchief_protocol.task import Promise, Reward, Task

# What a round is made of, by what the bandit hears.
_KINDS = {"totals": "contextual", "reports": "context-free", "phases": "phased"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskOptions:
    """Options of a task: all but its bandit, its problem and its guarantee.

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


def build_exact_noises(
    protected: ProtectedPolicy, users: int, *, equal: bool
) -> tuple[dict[str, Privatizer], tuple[int, ...]]:
    """Build the exact noise of each query, in the task's order, and the sizes of the cohorts.

    Args:
        protected: bandit and protection, with simulated noise.
        users: how many may report.
        equal: every cohort gets the randomized bits of the smallest one.
    """
    privatizers = {
        name: _build_exact_noise(name, protected.policy, protected.privatizers[name])
        for name in sorted(protected.privatizers)
    }
    needs = _compute_cohort_sizes(privatizers, users)
    if equal:
        privatizers = {
            name: privatizer.with_equal_noise(len(needs))
            if isinstance(privatizer, BitSums)
            else privatizer
            for name, privatizer in privatizers.items()
        }
    return privatizers, needs


def build_task(
    policy: AnyPolicy,
    problem: AnyProblem,
    guarantee: Guarantee,
    policy_spec: Any,
    options: TaskOptions,
    privatizers: Mapping[str, Privatizer],
    needs: tuple[int, ...],
) -> Task:
    """Build the task of a policy.

    Args:
        policy: the bandit.
        problem: the public bounds, after the projection of the options.
        guarantee: what each user is promised; its rounds are all users who may report.
        policy_spec: which bandit it is, as the task will say.
        options: everything else that the task says.
        privatizers: exact noise of each query, in the task's order.
        needs: users of each cohort; none where every report is released by itself.
    """
    users = guarantee.rounds
    assert users is not None
    program = build_program(policy, problem, privatizers)
    equal = not options.has_trusted_labels
    return Task(
        name=options.name,
        trust=str(guarantee.trust),
        bandit=_KINDS[policy.feedback],
        promise=_build_promise(guarantee),
        policy=canonical.pack(policy_spec),
        problem=pack_problem(problem),
        program=program,
        queries=tuple(privatizers),
        noise=tuple(
            describe_noise(privatizer, guarantee, needs, users, equal=equal)
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


def _build_promise(guarantee: Guarantee) -> Promise:
    return Promise(
        epsilon=min(guarantee.epsilon, math.nextafter(math.inf, 0)),
        delta=guarantee.delta,
        unit=guarantee.unit,
        adjacency=guarantee.adjacency,
        honest=guarantee.honest,
        excluded=guarantee.excluded,
    )


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


def _build_exact_noise(name: str, policy: AnyPolicy, privatizer: Privatizer) -> Privatizer:
    if isinstance(policy, ContextFree):
        return protect_answers(policy, privatizer).exact()
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
