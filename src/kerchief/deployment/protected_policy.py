"""A bandit and its protection, from a name, a problem and a promise: the one place that does so."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from jax import Array

from kerchief.core.errors import InvalidValueError
from kerchief.core.precision import double_precision
from kerchief.core.problems import AnyProblem
from kerchief.core.validate import between
from kerchief.policies import POLICIES, AnyPolicy, Mode, PolicyEntry, PrivacyBudget, resolve_name
from kerchief.privacy.calibration import gaussian_noise_multiplier
from kerchief.privacy.guarantee import Guarantee, Trust
from kerchief.privatizers.channels import channel_of
from kerchief.privatizers.privatizer import Privatizer
from kerchief.privatizers.protect import Protection, protect
from kerchief.privatizers.registry import BEST

NORMAL = "gaussian"
"""The word of normal noise."""

# The bounds of numbers that are replaced, by their names.
_LEAST, _GREATEST = 1e-12, 1e9
_CHANCES = ("chance", "confidence", "delta")
_DIVISORS = (
    *("firmness", "flattest", "horizon", "length", "local", "pull"),
    *("radius", "regularizer", "ridge", "steepest"),
)
_LIMITS = {"learned": (0.0, 1.0), "slack": (1.0, _GREATEST)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProtectedPolicy:
    """A bandit that is ready to play.

    Attributes:
        policy: the bandit.
        privatizers: what protects each of its queries.
    """

    policy: AnyPolicy
    privatizers: Mapping[str, Privatizer]


@double_precision
def build_protected(
    name: str | PolicyEntry,
    problem: AnyProblem,
    protection: Protection,
    *,
    mode: Mode = "tuned",
    numbers: Mapping[str, float] | None = None,
) -> ProtectedPolicy:
    """Build a bandit for a problem, and protect it.

    What a bandit asks does not depend on the noise, but its steps may: one that hears single
    reports is built again for what those will be like.

    Args:
        name: of a registered bandit, or the entry of any.
        problem: the public facts.
        protection: what is promised, and by which noise; without a word, the bandit's own.
        mode: widths `tuned`, or from the `theory`.
        numbers: parameters of the policy that are replaced.

    Raises:
        KerchiefError: the bandit is unknown, does not play such problems, has no such number, or
            asks what nobody answers under this trust.

    >>> from kerchief.core.problems import ContextFreeProblem
    >>> from kerchief.privacy.guarantee import Guarantee
    >>> problem = ContextFreeProblem(horizon=100, low=0.0, high=1.0, arms=3)
    >>> guarantee = Guarantee(epsilon=1.0, delta=0.0, trust=Trust.LOCAL)
    >>> protected = build_protected("ucb", problem, Protection(guarantee=guarantee))
    >>> round(protected.policy.channel.spread, 3)
    1.082
    """
    entry = POLICIES[resolve_name(name, problem)] if isinstance(name, str) else name
    if not isinstance(entry, PolicyEntry):
        raise InvalidValueError(
            f"the policy is a {type(entry).__name__}; give a name from `kerchief list policies`"
        )
    guarantee = protection.guarantee
    if protection.mechanism is None:
        protection = dataclasses.replace(
            protection, mechanism=choose_mechanism(entry, guarantee.trust)
        )
    terms = terms_of(guarantee)
    private = guarantee.trust is not Trust.NONE
    policy = _build_policy(entry, problem, mode, terms if private else None, numbers or {})
    proved = mode == "theory" and needs_normal(entry, guarantee.trust) and guarantee.delta > 0
    if proved and protection.mechanism == BEST:
        protection = dataclasses.replace(protection, mechanism=NORMAL)
    privatizers = protect(policy, protection, horizon=problem.horizon)
    if policy.feedback == "reports":
        for privatizer in privatizers.values():
            terms_with_channel = dataclasses.replace(terms, channel=channel_of(privatizer))
            policy = _build_policy(entry, problem, mode, terms_with_channel, numbers or {})
    return ProtectedPolicy(policy=policy, privatizers=privatizers)


def terms_of(guarantee: Guarantee) -> PrivacyBudget:
    """Return the privacy budget that a policy may know of a guarantee."""
    epsilon, delta = guarantee.epsilon, guarantee.delta
    normal = math.isfinite(epsilon) and delta > 0
    return PrivacyBudget(
        epsilon=epsilon,
        delta=delta,
        trust=guarantee.trust,
        noise_multiplier=gaussian_noise_multiplier(epsilon, delta) if normal else math.inf,
    )


def needs_normal(entry: PolicyEntry, trust: Trust) -> bool:
    """Whether widths from the theory are proved for normal noise alone.

    Those of bandits that hear single reports are proved for any noise that these bandits take.
    """
    kind: Any = entry.kinds[0]
    return kind.feedback != "reports" and trust in (Trust.LOCAL, Trust.CENTRAL)


def choose_mechanism(entry: PolicyEntry, trust: Trust | str) -> str:
    """Return the name of an entry's default mechanism under a trust model.

    >>> [choose_mechanism(POLICIES[name], "local") for name in ("linucb", "linucb@paper")]
    ['best', 'gaussian']
    """
    return entry.noises.get(trust, BEST)


def _build_policy(
    entry: PolicyEntry,
    problem: AnyProblem,
    mode: Mode,
    terms: PrivacyBudget | None,
    numbers: Mapping[str, float],
) -> AnyPolicy:
    """Build a policy from an entry, with its arguments and replaced numbers."""
    arguments = {name: number for name, number in numbers.items() if name in entry.arguments}
    policy: AnyPolicy = entry.build(problem, mode, terms, **arguments)
    rest = {name: number for name, number in numbers.items() if name not in arguments}
    return _replace_numbers(policy, rest, entry.arguments) if rest else policy


def numbers_of(policy: AnyPolicy) -> dict[str, Any]:
    """Return the numbers of a policy that can be replaced, by their names."""
    instance: Any = policy
    return {
        field.name: getattr(instance, field.name)
        for field in dataclasses.fields(instance)
        if field.metadata.get("number", not field.metadata.get("static"))
        and isinstance(getattr(instance, field.name), int | float | np.ndarray | Array)
    }


def _replace_numbers(
    policy: AnyPolicy, numbers: Mapping[str, float], arguments: tuple[str, ...]
) -> AnyPolicy:
    instance: Any = policy
    current = numbers_of(policy)
    for name, number in numbers.items():
        if name not in current:
            raise InvalidValueError(
                f"parameter is {name!r}; {type(policy).__name__} has "
                f"{', '.join(sorted([*current, *arguments]))}"
            )
        _check_number(instance, name, number, current[name])
    replaced: AnyPolicy = dataclasses.replace(instance, **numbers)
    return replaced


def _check_number(policy: Any, name: str, number: float, own: float) -> None:
    """Refuse what a bandit cannot compute with; `limits` are bounds that it has by its problem."""
    if name in _CHANCES:
        between(name, number, 0.0, 1.0)
        return
    low, high = getattr(policy, "limits", {}).get(name) or _LIMITS.get(name, (0.0, _GREATEST))
    # It is divided by, unless the bandit's own is 0 as well.
    low = _LEAST if name in _DIVISORS and own != 0 else low
    between(name, number, low, high, closed=True)
