"""What a comparison says about a world of data."""

from __future__ import annotations

import functools

from kerchief.environments.registry import EnvironmentEntry
from kerchief.environments.supervised import Supervised
from kerchief.policies.registry import actions_of


def entry_of(data: Supervised) -> EnvironmentEntry:
    """Data as a world beside those that have a name."""
    problem = data.problem(1)
    return EnvironmentEntry(
        factory=functools.partial(_given, data),
        summary="users and their rewards are given",
        problem=type(problem),
        actions=actions_of(problem),
    )


def _given(data: Supervised, /) -> Supervised:
    return data


def size_of(data: Supervised) -> str:
    """How many users, features and arms there are."""
    return f"{data.rows} users, {data.problem(1).dim} coordinates, {data.count} arms"


def parameters_of(data: Supervised) -> dict[str, object]:
    """How they were declared, in the words of the command line."""
    pairs = data.origin.parameters
    return {name: list(one) if isinstance(one, tuple) else one for name, one in pairs}


def arms_of(data: Supervised) -> str:
    """Where the arms were found, if nobody declared them."""
    label = dict(data.origin.parameters).get("label", "=")
    if "=" in label:
        return ""
    return f"The arms are the labels that column {label!r} holds: what is offered, and so public."


def clipping_of(data: Supervised) -> str:
    """What the declared bounds did to the data; for simulations, since it is not private."""
    told = data.origin
    worst = sorted(told.shares, key=lambda pair: -pair[1])[:3]
    most = ", ".join(f"{name} in {100 * share:.2g} %" for name, share in worst)
    return (
        f"Declared bounds cut {100 * told.clipped:.2g} % of the rows{most and f' ({most})'}; "
        "this number is read off the data and is not private."
    )
