"""Build the noise that keeps a guarantee, for the queries of a policy."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

from kerchief.core.contracts import BoundedLoss, BoundedSum, Feedback, Query
from kerchief.core.errors import InvalidValueError
from kerchief.core.phases import PhasePolicy
from kerchief.core.precision import double_precision
from kerchief.core.validate import MOST_ROUNDS, whole
from kerchief.privacy.calibration import gaussian_noise_multiplier, share
from kerchief.privacy.guarantee import Guarantee, Trust
from kerchief.privatizers.bits import BitSums
from kerchief.privatizers.privatizer import Privatizer
from kerchief.privatizers.randomizers import BEST, RANDOMIZERS, randomize
from kerchief.privatizers.registry import (
    CURATORS,
    MECHANISMS_OF,
    TRUSTS,
    PrivatizerEntry,
    reports,
)
from kerchief.privatizers.schedule import At
from kerchief.privatizers.shuffled import ShuffledSums
from kerchief.privatizers.sums import CohortSums


@dataclasses.dataclass(frozen=True, kw_only=True)
class Protection:
    """What is promised to users, and by which noise the promise is kept.

    Attributes:
        guarantee: the promise.
        mechanism: a word of `MECHANISMS_OF` the guarantee's trust; None for the bandit's own, which
            `build_protected` knows: the least noisy, unless its entry names another.

    Raises:
        UnknownNameError: the trust has no such noise.

    >>> promise = Guarantee(epsilon=1.0, delta=1e-6, trust=Trust.JOINT)
    >>> Protection(guarantee=promise, mechanism="tree").mechanism
    'tree'
    >>> Protection(guarantee=promise, mechanism="privunit")
    Traceback (most recent call last):
    ...
    kerchief.core.errors.UnknownNameError: no continual noise is called 'privunit'; known: best, \
blt, doubling, toeplitz, tree
    """

    guarantee: Guarantee
    mechanism: str | None = None

    def __post_init__(self) -> None:
        """Refuse a word that this trust does not have."""
        if not isinstance(self.guarantee, Guarantee):
            raise InvalidValueError(
                f"guarantee is a {type(self.guarantee).__name__}; give a Guarantee"
            )
        MECHANISMS_OF[self.trust][self.word]

    @property
    def trust(self) -> Trust:
        """Whom users must trust."""
        return self.guarantee.trust

    @property
    def word(self) -> str:
        """The noise for a bandit that has none of its own."""
        return BEST if self.mechanism is None else self.mechanism


class Asking(Protocol):
    """Whatever poses queries: a bandit of any kind."""

    @property
    def feedback(self) -> Feedback:
        """What it hears."""

    @property
    def queries(self) -> Mapping[str, Query]:
        """The questions."""


@double_precision
def protect(policy: Asking, protection: Protection, *, horizon: int) -> Mapping[str, Privatizer]:
    """Give each of a policy's queries the privatizer that keeps the protection.

    All queries share one joint budget: their Gaussians together cost exactly the guarantee, which
    is tighter than splitting epsilon by hand.

    Args:
        policy: the bandit.
        protection: what is promised, and by which noise.
        horizon: number of rounds. A bandit that goes by phases has its own number of clients.

    Raises:
        InvalidValueError: a query cannot be answered this way; the word is never silently ignored.

    >>> from kerchief.core.problems import Problem
    >>> from kerchief.policies import POLICIES
    >>> facts = Problem(dim=2, arms=3, norm=1.0, radius=1.0, low=0.0, high=1.0, horizon=100)
    >>> promise = Guarantee(epsilon=1.0, delta=1e-6, trust=Trust.LOCAL)
    >>> policy = POLICIES["linucb"].build(facts, "tuned")
    >>> made = protect(policy, Protection(guarantee=promise, mechanism="laplace"), horizon=100)
    >>> [type(noise).__name__ for noise in made["moments"].noises]
    ['Laplace']
    """
    whole("horizon", horizon, high=MOST_ROUNDS)
    if not policy.queries:
        return {}
    _check_local(policy.queries, protection)
    if protection.trust is Trust.SHUFFLE:
        _check_delta(protection.guarantee)
    match policy.feedback:
        case "phases":
            assert isinstance(policy, PhasePolicy)
            return _phases(policy, protection)
        case "reports":
            return _single_reports(policy, protection, horizon)
    return _answers(policy, protection, horizon)


def mean_noise(privatizer: Privatizer, clients: int) -> float:
    """Standard deviation of the noise on the mean of that many answers, without rounding."""
    assert isinstance(privatizer, CohortSums)
    device, aggregator = (
        0.0 if noise is None else float(noise.std)
        for noise in (privatizer.device, privatizer.aggregator)
    )
    return math.hypot(device * math.sqrt(clients), aggregator) / clients


def _check_local(queries: Mapping[str, Query], protection: Protection) -> None:
    """Refuse a promise about single reports where no noise would keep it."""
    local = min(float(getattr(query, "local", math.inf)) for query in queries.values())
    coded = protection.trust is Trust.SHUFFLE and protection.word in ("bits", "byte", "bit")
    if not coded and protection.trust is not Trust.NONE and math.isfinite(local):
        raise InvalidValueError(
            f"local is {local}, a promise about one report that only bits behind a shuffler keep; "
            "choose shuffling 'bit', 'byte' or 'bits' under shuffle trust, or leave it out"
        )


def _check_delta(guarantee: Guarantee) -> None:
    """Refuse a promise that only pure noise would keep."""
    if guarantee.delta == 0:
        raise InvalidValueError(
            f"delta is 0.0, and this noise of {guarantee.trust.value} trust needs one above 0; "
            "choose one, or trust 'local' or 'central' with pure noise"
        )


def _answers(policy: Asking, protection: Protection, horizon: int) -> Mapping[str, Privatizer]:
    """Running totals and fits, whose noise shares one budget."""
    guarantee, mechanism, queries = protection.guarantee, protection.word, policy.queries
    if protection.trust is Trust.LOCAL:
        return _randomized(queries, guarantee, mechanism)
    if protection.trust is Trust.CENTRAL and CURATORS[mechanism].words:
        return _curated(policy, protection, horizon)
    entry = MECHANISMS_OF[protection.trust][mechanism]
    if entry.build_for_guarantee is not None:
        name, query = _only_sum(queries, mechanism)
        return {
            name: _cover_honest_part(
                entry.build_for_guarantee(query, guarantee, horizon), guarantee
            )
        }
    makers = {name: _maker(entry, name, query) for name, query in queries.items()}
    multipliers = _multipliers(queries, guarantee)
    return {
        name: _cover_honest_part(make(multiplier, horizon), guarantee)
        for (name, make), multiplier in zip(makers.items(), multipliers, strict=True)
    }


def _curated(policy: Asking, protection: Protection, horizon: int) -> Mapping[str, Privatizer]:
    """The less noisy of a curator's words that keep the promise, by public numbers alone.

    Normal noise needs a delta, and Laplace noise a single sum and an epsilon that its exact twin
    can keep. Where none fits, normal noise says why.
    """
    promise, names = protection.guarantee, CURATORS[protection.word].words
    (query, *further) = policy.queries.values()
    pure = not further and not isinstance(query, BoundedLoss) and 1e-6 <= promise.epsilon <= 1e6
    fitting = [
        name
        for name in names
        if (pure if CURATORS[name].build_for_guarantee else promise.delta > 0)
    ] or names[:1]
    alternatives = [
        _answers(policy, dataclasses.replace(protection, mechanism=name), horizon)
        for name in fitting
    ]
    return min(
        alternatives,
        key=lambda alternative: max(
            float(privatizer.noises[0].std) for privatizer in alternative.values()
        ),
    )


def _cover_honest_part(privatizer: Privatizer, guarantee: Guarantee) -> Privatizer:
    """Coins enough that those of the honest part of a cohort suffice."""
    if guarantee.counted(10**12) == 10**12 or isinstance(privatizer, BitSums):
        return privatizer
    if not isinstance(privatizer, ShuffledSums):
        raise InvalidValueError(
            f"honest is {guarantee.honest}, and only coins and bits can be tossed by a part of the "
            "users; choose a policy that asks for sums alone"
        )
    return dataclasses.replace(privatizer, counted=guarantee.counted(10**12) / 10**12)


def _multipliers(queries: Mapping[str, Query], guarantee: Guarantee) -> tuple[float, ...]:
    """The noise multiplier of each query, by its importance."""
    if guarantee.trust is Trust.NONE:
        return tuple(0.0 for _ in queries)
    _check_delta(guarantee)
    total = gaussian_noise_multiplier(guarantee.epsilon, guarantee.delta)
    return share(total, [query.importance for query in queries.values()])


def _randomized(
    queries: Mapping[str, Any], guarantee: Guarantee, mechanism: str
) -> Mapping[str, Privatizer]:
    """Reports that every device protects by itself."""
    for name, query in queries.items():
        if isinstance(query, BoundedLoss):
            _maker(TRUSTS[Trust.LOCAL], name, query)
    noises = randomize(queries, guarantee, words=RANDOMIZERS[mechanism].words or (mechanism,))
    return {name: reports(queries[name], noise) for name, noise in noises.items()}


def _single_reports(
    policy: Asking, protection: Protection, horizon: int
) -> Mapping[str, Privatizer]:
    """Reports that are heard one by one, and never added up.

    One bit is the least noisy for numbers that spread over their interval, and the only noise with
    bounds, which many of these bandits need: it is the best here, where a report is one number.
    """
    if protection.trust not in (Trust.NONE, Trust.LOCAL):
        raise InvalidValueError(
            f"trust is {protection.trust.value!r}, and this bandit learns from single reports, not "
            "from sums; choose trust 'local' or 'none'"
        )
    single = all(query.size == 1 for query in policy.queries.values())
    if protection.trust is Trust.LOCAL and protection.word == BEST and single:
        protection = dataclasses.replace(protection, mechanism="one-bit")
    privatizers = _answers(policy, protection, horizon)
    return {name: _release_singly(privatizer) for name, privatizer in privatizers.items()}


def _release_singly(privatizer: Privatizer) -> CohortSums:
    assert isinstance(privatizer, CohortSums)
    return dataclasses.replace(privatizer, running=False)


def _phases(policy: PhasePolicy, protection: Protection) -> Mapping[str, Privatizer]:
    """Totals over the clients of each phase, none of whom is in another.

    Phases depend on the noise of a mean over their clients, so the noise comes first. Clients are
    numbered in the order in which they are asked: nobody is asked twice, and phases compose in
    parallel.

    Raises:
        InvalidValueError: this trust or word has no such sums, or the population is too small.
    """
    if protection.trust is Trust.JOINT:
        raise InvalidValueError(
            "trust is 'joint', which releases every prefix total, and phases ask for one total "
            "each; choose trust 'central'"
        )
    if protection.trust is Trust.SHUFFLE and protection.word not in (BEST, "theorem"):
        raise InvalidValueError(
            f"shuffling is {protection.word!r}, whose noise depends on the size of every "
            f"cohort, and phases are only known once the noise is; leave it at {BEST!r}"
        )
    build = _theorem_by_phases if protection.word == "theorem" else _answers_by_phases
    name, privatizer = build(policy, protection)
    phases = policy.phases(partial(mean_noise, privatizer))
    ends = tuple(itertools.accumulate(int(phase.clients) for phase in phases))
    return {name: privatizer.with_schedule(At(ends=ends))} if ends else {}


def _answers_by_phases(policy: PhasePolicy, protection: Protection) -> tuple[str, Privatizer]:
    ((name, privatizer),) = _answers(policy, protection, policy.problem.clients).items()
    return name, privatizer


def _theorem_by_phases(policy: PhasePolicy, protection: Protection) -> tuple[str, Privatizer]:
    """The published coins for all sizes that a phase has.

    Phases depend on the noise and these coins, by a little, on the sizes of the phases: sizes are
    taken in until none is new. Answers are in a ball around 0, whose radius is what the theorem
    calls the norm.
    """
    guarantee, sizes = protection.guarantee, {2}
    name, query = _only_sum(policy.queries, protection.word)
    while True:
        shuffled = ShuffledSums.by_theorem(
            query,
            epsilon=guarantee.epsilon,
            delta=guarantee.delta,
            schedule=At(ends=tuple(itertools.accumulate(sorted(sizes)))),
            norm=query.radius,
        )
        privatizer = _cover_honest_part(shuffled, guarantee)
        phase_sizes = {
            int(phase.clients) for phase in policy.phases(partial(mean_noise, privatizer))
        }
        if phase_sizes <= sizes:
            return name, privatizer
        sizes |= phase_sizes


def _only_sum(queries: Mapping[str, Query], mechanism: str) -> tuple[str, BoundedSum]:
    """Return the only sum of a policy, for a protocol that takes the whole guarantee."""
    (name, query), *further = queries.items()
    if further or isinstance(query, BoundedLoss):
        raise InvalidValueError(
            f"{mechanism!r} answers one sum, and the policy asks for {list(queries)}; "
            f"leave it at {BEST!r}"
        )
    return name, query


def _maker(entry: PrivatizerEntry, name: str, query: Query) -> Callable[[float, int], Privatizer]:
    if not isinstance(query, BoundedLoss):
        return partial(entry.make, query)
    if entry.fit is None:
        raise InvalidValueError(
            f"{name!r} is a fit to the history of all users: {entry.unfit}, or a policy that asks "
            f"for sums alone"
        )
    return partial(entry.fit, query)
