"""What a comparison says about a world of data."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from kerchief.data.declaration import Declaration
from kerchief.data.features import parted, words_of
from kerchief.data.replay import Replay
from kerchief.environments.ranges import RANGED_CONSTANT
from kerchief.environments.registry import EnvironmentEntry
from kerchief.environments.supervised import Supervised
from kerchief.policies.registry import actions_of

WorldOfData: TypeAlias = Supervised | Replay
"""Data of people's own, with every arm's reward or with that of the arm that was played."""


def entry_of(data: WorldOfData) -> EnvironmentEntry:
    """Data as a world beside those that have a name."""
    problem = data.problem(1)
    return EnvironmentEntry(
        factory=functools.partial(_given, data),
        summary="users and their rewards are given",
        problem=type(problem),
        actions=actions_of(problem),
    )


def _given(data: WorldOfData, /) -> WorldOfData:
    return data


def size_of(data: WorldOfData) -> str:
    """How many users, features and arms there are."""
    rows = "logged decisions" if isinstance(data, Replay) else "users"
    return f"{data.rows} {rows}, {data.problem(1).dim} coordinates, {data.count} arms"


def parameters_of(data: WorldOfData) -> dict[str, object]:
    """How they were declared, in the words of the command line."""
    pairs = data.origin.parameters
    return {name: list(one) if isinstance(one, tuple) else one for name, one in pairs}


def rounds_of(data: WorldOfData) -> int:
    """As many rounds as there are users; of logs, as many as agree with a bandit on average."""
    return data.rounds if isinstance(data, Replay) else data.rows


def told_of(data: WorldOfData) -> Iterator[str]:
    """Sentences: how large they are, what declared bounds did to them, and where arms come from.

    What was clipped is for simulations alone, since it is not private.
    """
    told = data.origin
    worst = sorted(told.shares, key=lambda pair: -pair[1])[:3]
    most = ", ".join(f"{name} in {100 * share:.2g} %" for name, share in worst)
    yield (
        f"{told.name} has {size_of(data)}; declared bounds cut {100 * told.clipped:.2g} % of the "
        f"rows{most and f' ({most})'}, a number that is read off the data and is not private."
    )
    label = dict(told.parameters).get("label", "=")
    if "=" not in label:
        yield f"The arms are the labels in column {label!r}: what is offered, and so public."
    if isinstance(data, Replay):
        if data.known:
            yield (
                "Who came is not looked at: every logged decision stands for a user of its own, "
                "who is what is protected here."
            )
        if data.counted is not None:
            yield (
                f"Arms were counted in {data.counted}: what is offered, and so public; declare "
                'them by their names, as in --action "item=news|sport", and nothing is counted.'
            )
        yield (
            "Logs are replayed: users count whose logged arm is the bandit's choice, by inverse "
            "propensity. Regret is against the best single arm, estimated so, and may be negative."
        )


def declared_facts(options: Mapping[str, Any]) -> dict[str, Any]:
    """The facts that options declare where users alone have features, without reading the data.

    >>> declared_facts({"features": ["age=18:90", "plan=basic|gold"], "label": "item=news|sport"})
    {'dim': 3, 'constant': 0.5, 'arms': 2}
    >>> declared_facts({"features": ["e*"], "norm": 3.0, "label": "item"})
    {'constant': 0.5}
    """
    if {"declare", "arm-features"} & options.keys():
        return {}
    found: dict[str, Any] = {}
    if options.get("features"):
        bounds = {
            "norm": options.get("norm"),
            "intercept": options.get("intercept", RANGED_CONSTANT),
        }
        declared = Declaration.of(options["features"], **bounds)
        if not any("*" in name for name in declared.names):
            found["dim"] = declared.dim
        found["constant"] = float(declared.intercept)
    for name in ("label", "action"):
        _, _, words = str(options.get(name, "")).partition("=")
        if words:
            found["arms"] = len(words_of(words))
    columns = options.get("rewards", [])
    texts = columns if isinstance(columns, list) else [str(columns)]
    if texts:
        found["arms"] = sum(len([one for one in parted(str(text), ",") if one]) for text in texts)
    return found
