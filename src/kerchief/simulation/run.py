"""Run a simulation: charge the ledger, play, record regret at ticks, settle."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeGuard

import jax
import numpy as np
from numpy.typing import NDArray

from kerchief.core import validate
from kerchief.core.contracts import Environment, HasBestArm, Oracle
from kerchief.core.errors import InvalidValueError
from kerchief.core.phases import PhasePolicy
from kerchief.core.precision import double_precision
from kerchief.core.problems import AnyProblem, ContextFreeProblem
from kerchief.environments.population import Population
from kerchief.policies import AnyPolicy
from kerchief.privacy.events import NonPrivate
from kerchief.privacy.guarantee import Guarantee
from kerchief.privacy.ledger import Ledger
from kerchief.privacy.receipts import Cohort
from kerchief.privatizers.billing import Receipts, pay, settle
from kerchief.privatizers.channels import channel_of
from kerchief.privatizers.privatizer import Privatizer
from kerchief.simulation.ahead import is_foreseen
from kerchief.simulation.phases import phases_of, play_phases
from kerchief.simulation.recorder import Progress, Recorder, RunRecord, UnsettledRun, ticks_of
from kerchief.simulation.rounds import Contender, play_handed, play_rounds

AnyEnvironment: TypeAlias = Environment | Population
"""A world that is met round by round, or a population, which is met phase by phase."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run(RunRecord):
    """What a simulation recorded.

    Attributes:
        rounds: the ticks: after how many rounds regret was read.
        spent: the guarantee that was really spent, from the ledger.
        seconds: time played, without compilation; arms that others met, too, count in part.
        seconds_alone: the time that it would have taken alone.
        device: the kind of device it ran on.
    """

    rounds: NDArray[np.int64]
    spent: Guarantee
    seconds: float
    seconds_alone: float
    compile_seconds: float
    device: str

    @property
    def microseconds(self) -> float:
        """Time per decision alone, in microseconds."""
        decisions: int = int(self.rounds[-1]) * self.regret.shape[1]
        return 1e6 * self.seconds_alone / decisions


def simulate(
    *,
    policy: AnyPolicy,
    privatizers: Mapping[str, Privatizer],
    environment: AnyEnvironment,
    ledger: Ledger,
    horizon: int,
    replicates: int,
    seed: int,
    first_replicate: int = 0,
    ticks: int = 100,
    progress: Progress | None = None,
) -> Run:
    """Play one policy under one protection in one world, many times over.

    The ledger is charged for the whole run before anything is drawn (or refuses, and nothing is
    played) and settled for what was really used. Replicates are parallel universes of one
    deployment, so they share one bill. A replicate's randomness depends on the seed and its own
    number alone: policies at one seed meet the same worlds, and a run may be cut into chunks of
    replicates.

    Args:
        policy: the bandit.
        privatizers: one for each query, from `protect` or `deployment.build_protected`.
        environment: a world of the problem that the bandit was built for.
        ledger: pays, or refuses with BudgetExceededError.
        horizon: number of rounds.
        replicates: how many independent runs.
        seed: of everything random here; 0 to 2**32 - 1.
        first_replicate: number of the first replicate.
        ticks: how often regret is read.
        progress: called with "compiling" or "playing" and the rounds done so far.

    >>> from kerchief.environments import make_environment
    >>> from kerchief.policies import POLICIES
    >>> from kerchief.privacy import Guarantee, MemoryLedger, Trust
    >>> free = MemoryLedger(Guarantee(epsilon=float("inf"), delta=0.0, trust=Trust.NONE))
    >>> world = make_environment(dim=2, arms=3)
    >>> run = simulate(policy=POLICIES["uniform"].build(world.problem(50), "tuned"),
    ...                privatizers={}, environment=world, ledger=free, horizon=50,
    ...                replicates=4, seed=1, ticks=5)
    >>> run.regret.shape, bool((run.regret[-1] > 0).all())
    ((5, 4), True)
    """
    alone = Contender(policy=policy, privatizers=privatizers, ledger=ledger, progress=progress)
    (run,) = simulate_side_by_side(
        [alone],
        environment=environment,
        horizon=horizon,
        replicates=replicates,
        seed=seed,
        first_replicate=first_replicate,
        ticks=ticks,
    )
    return run


@double_precision
def simulate_side_by_side(
    contenders: Sequence[Contender],
    *,
    environment: AnyEnvironment,
    horizon: int,
    replicates: int,
    seed: int,
    first_replicate: int = 0,
    ticks: int = 100,
) -> list[Run]:
    """Play several policies in one world, each as `simulate` plays it alone, number for number.

    They meet the same arms, which are drawn once where that can be; the seconds that it takes are
    divided among them. All ledgers are charged before anything is drawn.
    """
    sizes = {"horizon": horizon, "replicates": replicates, "ticks": ticks}
    horizon, replicates, ticks = (
        validate.whole(name, size, high=2**31 - 1) for name, size in sizes.items()
    )
    high = 2**32 - replicates
    first_replicate = validate.whole("first replicate", first_replicate, low=0, high=high)
    validate.whole("seed", seed, low=0, high=2**32 - 1)
    for contender in contenders:
        _check_fit(contender.policy, contender.privatizers, environment, horizon)
    receipts = [_charge(contender, horizon) for contender in contenders]
    numbers = np.arange(first_replicate, first_replicate + replicates, dtype=np.uint32)
    recorders = [Recorder(progress=contender.progress or _tell_nobody) for contender in contenders]
    rounds = ticks_of(horizon, ticks)
    play: Callable[..., list[UnsettledRun]] = (
        play_handed if is_foreseen(environment) else _play_in_turn
    )
    results = play(
        contenders,
        environment,
        recorders,
        replicates=jax.device_put(numbers),
        seed=seed,
        rounds=rounds,
    )
    settlements = zip(contenders, receipts, results, recorders, strict=True)
    return [_settle_run(*parts, rounds=rounds) for parts in settlements]


def _charge(contender: Contender, horizon: int) -> Receipts:
    """Let the ledger pay for all that may be released."""
    if isinstance(contender.policy, Oracle):
        # What it is told may be what all users have told somebody.
        contender.ledger.charge(NonPrivate(), cohort=Cohort(first=0, last=horizon))
    users = _count_users(contender.policy, contender.privatizers, horizon)
    return pay(contender.privatizers, contender.ledger, horizon=horizon, users=users)


def _settle_run(
    contender: Contender,
    receipts: Receipts,
    result: UnsettledRun,
    recorder: Recorder,
    *,
    rounds: NDArray[np.int64],
) -> Run:
    """Settle the ledger for what was really used."""
    release_counts = {name: int(counts.max()) for name, counts in result.releases.items()}
    settle(
        contender.privatizers,
        contender.ledger,
        receipts,
        users=result.users,
        covered=result.covered,
        releases=release_counts,
    )
    return Run(
        rounds=rounds,
        regret=result.regret,
        releases=result.releases,
        spent=contender.ledger.spent(),
        seconds=recorder.seconds + recorder.shared_seconds / recorder.sharing,
        seconds_alone=recorder.seconds + recorder.shared_seconds,
        compile_seconds=recorder.compile_seconds,
        device=jax.devices()[0].platform,
        communication=result.communication,
        right=result.right,
        earned=result.earned,
    )


def _play_in_turn(
    contenders: Sequence[Contender],
    environment: AnyEnvironment,
    recorders: Sequence[Recorder],
    **meeting: Any,
) -> list[UnsettledRun]:
    """Play the contenders one after the other, by rounds or by phases."""
    results = []
    for contender, recorder in zip(contenders, recorders, strict=True):
        play: Callable[..., UnsettledRun] = (
            play_phases if _is_by_phases(contender.policy) else play_rounds
        )
        results.append(
            play(contender.policy, contender.privatizers, environment, recorder=recorder, **meeting)
        )
    return results


def _tell_nobody(stage: str, rounds: int) -> None:
    pass


def _is_by_phases(policy: AnyPolicy) -> TypeGuard[PhasePolicy]:
    return policy.feedback == "phases"


def _count_users(policy: AnyPolicy, privatizers: Mapping[str, Privatizer], horizon: int) -> int:
    """How many users may report: one each round, or the clients of all phases."""
    if not _is_by_phases(policy):
        return horizon
    return max(1, sum(int(phase.clients) for phase in phases_of(policy, privatizers)))


def _check_fit(
    policy: AnyPolicy,
    privatizers: Mapping[str, Privatizer],
    environment: AnyEnvironment,
    horizon: int,
) -> None:
    """Refuse, before anything is charged, what cannot be played together."""
    if isinstance(policy, Oracle) and not isinstance(environment, HasBestArm):
        raise InvalidValueError(
            "the policy is told which arm is best on average, and this world does not say; give it "
            "a method `single`, or leave the policy out"
        )
    for name, privatizer in privatizers.items():
        if privatizer.outlook.noisy and not privatizer.idealized:
            raise InvalidValueError(
                f"the noise of {name!r} is exact; simulate with idealized noise, or deploy it"
            )
        if policy.feedback == "reports":
            channel_of(privatizer)
    if _is_by_phases(policy) != isinstance(environment, Population):
        raise InvalidValueError(
            f"{type(policy).__name__} hears {policy.feedback} and the world is a "
            f"{type(environment).__name__}; bandits that hear phases play in a Population"
        )
    if policy.feedback == "reports":
        problem = environment.problem(horizon)
        if not isinstance(problem, ContextFreeProblem):
            raise InvalidValueError(
                f"{type(policy).__name__} hears reports and the world poses a "
                f"{type(problem).__name__}, where users' choices are private; "
                "play it in a world that poses a ContextFreeProblem"
            )
    policy_problem: AnyProblem | None = getattr(policy, "problem", None)
    if policy_problem is not None and policy_problem.horizon != horizon:
        raise InvalidValueError(
            f"the bandit was built for {policy_problem.horizon} rounds and the run has {horizon}; "
            f"build it from the problem of {horizon} rounds"
        )
    if policy.feedback != "phases" and set(privatizers) != set(policy.queries):
        raise InvalidValueError(
            f"the bandit asks for {list(policy.queries)} and {list(privatizers)} are protected; "
            "use the privatizers that `protect` gives for it"
        )
