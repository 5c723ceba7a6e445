"""Trusts: how a query's answers are protected, by the word of `--trust`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from kerchief.core.contracts import BoundedSum, Policy
from kerchief.core.registry import Registry
from kerchief.mechanisms.blt import best_continual
from kerchief.mechanisms.gaussian import Gaussian
from kerchief.privacy.calibration import gaussian_noise_multiplier, share
from kerchief.privacy.guarantee import Guarantee, Trust
from kerchief.privatizers.prefix import PrefixSums
from kerchief.privatizers.privatizer import Privatizer
from kerchief.privatizers.schedule import At, Every
from kerchief.privatizers.sums import CohortSums

__all__ = ["TRUSTS", "Entry", "protect"]

Make = Callable[[BoundedSum, float, int], Privatizer]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
    """A registered privatizer.

    Attributes:
        make: builds it from a query, the noise multiplier it may afford and the horizon.
        summary: one line for listings.
    """

    make: Make
    summary: str


TRUSTS: Registry[Entry] = Registry("trust")


def _none(query: BoundedSum, noise_multiplier: float, horizon: int) -> CohortSums:
    return CohortSums(query=query, schedule=Every(), device=None, middle=None)


def _local(query: BoundedSum, noise_multiplier: float, horizon: int) -> CohortSums:
    noise = Gaussian.of(noise_multiplier=noise_multiplier, sensitivity=query.sensitivity)
    return CohortSums(query=query, schedule=Every(), device=noise, middle=None)


def _joint(query: BoundedSum, noise_multiplier: float, horizon: int) -> PrefixSums:
    noise = best_continual(
        noise_multiplier=noise_multiplier, sensitivity=query.sensitivity, horizon=horizon
    )
    return PrefixSums(query=query, schedule=Every(), noise=noise)


def _central(query: BoundedSum, noise_multiplier: float, horizon: int) -> CohortSums:
    noise = Gaussian.of(noise_multiplier=noise_multiplier, sensitivity=query.sensitivity)
    schedule = At.growing(horizon, first=50, growth=1.5)
    return CohortSums(query=query, schedule=schedule, device=None, middle=noise)


TRUSTS.add("none", Entry(make=_none, summary="no protection: exact sums after every round"))
TRUSTS.add(
    "local",
    Entry(make=_local, summary="each device adds Gaussian noise to its report; no one is trusted"),
)
TRUSTS.add(
    "joint",
    Entry(
        make=_joint,
        summary="a trusted curator releases every prefix total with noise correlated over time",
    ),
)
TRUSTS.add(
    "central",
    Entry(
        make=_central,
        summary="a trusted curator adds Gaussian noise once to the sum of each batch of users",
    ),
)


def protect(policy: Policy, guarantee: Guarantee, *, horizon: int) -> Mapping[str, Privatizer]:
    """Give each of a policy's queries the privatizer that the guarantee's trust asks for.

    All queries share one joint budget: their Gaussians together cost exactly the guarantee, which
    is tighter than splitting epsilon by hand.

    Args:
        policy: the bandit.
        guarantee: what is promised.
        horizon: number of rounds.
    """
    names = tuple(policy.queries)
    if not names:
        return {}
    entry = TRUSTS[guarantee.trust]
    if guarantee.trust is Trust.NONE:
        multipliers = tuple(0.0 for _ in names)
    else:
        whole = gaussian_noise_multiplier(guarantee.epsilon, guarantee.delta)
        multipliers = share(whole, [1.0] * len(names))
    return {
        name: entry.make(policy.queries[name], multiplier, horizon)
        for name, multiplier in zip(names, multipliers, strict=True)
    }
