"""Which policies play in which environments."""

from __future__ import annotations

from collections.abc import Sequence

from kerchief.core.contracts import HasBestArm, Oracle
from kerchief.core.errors import InvalidValueError
from kerchief.environments.registry import ENVIRONMENTS, EnvironmentEntry
from kerchief.policies import POLICIES, PolicyEntry

DEFAULT_HORIZON = 10_000
"""Number of rounds of a comparison by default."""


def check_environment(
    name: str, environment: str, *, policies: Sequence[str], is_chosen: bool
) -> None:
    """Refuse a policy that does not play in an environment.

    Args:
        name: of the policy.
        environment: of the comparison.
        policies: all that are compared; without `env` the first of them that has a home chose it.
        is_chosen: whether `env` was given.
    """
    environments = worlds_of(name)
    if environment in environments:
        return
    native_policies = [
        policy for policy in policies if POLICIES[policy].default_environment == environment
    ]
    if is_chosen or not native_policies:
        raise InvalidValueError(
            f"env is {environment!r}; policy {name!r} plays in {', '.join(environments)}"
        )
    raise InvalidValueError(
        f"policy {native_policies[0]!r} plays in {environment!r} where no env is given, and "
        f"policy {name!r} in {', '.join(environments)}; compare them apart, or name an env "
        "that both play in"
    )


def worlds_of(name: str) -> tuple[str, ...]:
    """Return the names for `--env` of the environments that a policy plays in.

    >>> worlds_of("two-point-strong"), worlds_of("ecolog")
    (('quadratic', 'kinked', 'drifting', 'reacting'), ('logistic',))
    """
    return tuple(
        environment
        for environment, world in ENVIRONMENTS.items()
        if _can_play(POLICIES[resolve_name(name, world)], world)
    )


def resolve_name(name: str, world: EnvironmentEntry) -> str:
    """Return the name of a policy, with `best` resolved for an environment."""
    return POLICIES.resolve_alias(name, lambda policy: is_compatible(policy, world))


def is_compatible(policy: PolicyEntry, world: EnvironmentEntry) -> bool:
    """Whether a policy takes the problem and the actions of an environment."""
    return world.problem in policy.problems and world.actions in policy.actions


def _can_play(policy: PolicyEntry, world: EnvironmentEntry) -> bool:
    """Whether a policy fits an environment and can be built for its problem.

    Some policies need one link function, curved losses or an environment that names the best arm.
    """
    if not is_compatible(policy, world):
        return False
    try:
        environment = world.make()
        instance = policy.build(environment.problem(DEFAULT_HORIZON), "tuned")
    except InvalidValueError:
        return False
    return isinstance(environment, HasBestArm) or not isinstance(instance, Oracle)
