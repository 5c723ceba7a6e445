"""Descriptions of data sets that a comparison plays on."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from kerchief.data.declaration import Declaration
from kerchief.data.declaration_file import read_declarations
from kerchief.data.features import parted, words_of
from kerchief.data.replay import Replay
from kerchief.environments.ranges import RANGED_CONSTANT
from kerchief.environments.registry import EnvironmentEntry
from kerchief.environments.supervised import Supervised
from kerchief.policies.registry import actions_of

_OPTIONS = ("data", "features", "label")
"""Facts of data that have an option of their own; every other is a declaration."""

WorldOfData: TypeAlias = Supervised | Replay
"""Data of people's own, with every arm's reward or with that of the arm that was played."""


def entry_of(data: WorldOfData) -> EnvironmentEntry:
    """Build the registry entry of an environment made of data."""
    problem = data.problem(1)
    return EnvironmentEntry(
        factory=functools.partial(_return_data, data),
        summary="users and their rewards are given",
        problem=type(problem),
        actions=actions_of(problem),
    )


def _return_data(data: WorldOfData, /) -> WorldOfData:
    return data


def size_of(data: WorldOfData) -> str:
    """Describe how many users, features and arms the data have."""
    rows = "logged decisions" if isinstance(data, Replay) else "users"
    return f"{data.rows} {rows}, {data.problem(1).dim} coordinates, {data.count} arms"


def parameters_of(data: WorldOfData) -> dict[str, object]:
    """Return how the data were declared, in the words of the command line."""
    parameters: dict[str, object] = {}
    declarations: list[str] = []
    for name, value in data.origin.parameters:
        texts = list(value) if isinstance(value, tuple) else [value]
        if name in _OPTIONS:
            parameters[name] = texts if isinstance(value, tuple) else value
        else:
            declarations += [f"{name.replace('_', '-')}={text}" for text in texts]
    return parameters | {"declare": declarations}


def rounds_of(data: WorldOfData) -> int:
    """Return the number of users; of logs, the expected number of matches."""
    return data.rounds if isinstance(data, Replay) else data.rows


def describe_data(data: WorldOfData) -> Iterator[str]:
    """Yield sentences on the size of the data, their clipping and their arms.

    The share of clipped rows is not private, so show it in simulations only.
    """
    origin = data.origin
    worst = sorted(origin.shares, key=lambda pair: -pair[1])[:3]
    clipped_shares = ", ".join(f"{name} in {100 * share:.2g} %" for name, share in worst)
    yield (
        f"{origin.name} has {size_of(data)}; declared bounds cut {100 * origin.clipped:.2g} % of "
        f"the rows{clipped_shares and f' ({clipped_shares})'}, a number that is read off the data "
        "and is not private."
    )
    label = dict(origin.parameters).get("label", "=")
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
                'them by their names, as in --declare "action=item=news|sport", and nothing is '
                "counted."
            )
        yield (
            "Logs are replayed: users count whose logged arm is the bandit's choice, by inverse "
            "propensity. Regret is against the best single arm, estimated so, and may be negative."
        )


def declared_facts(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the problem's facts that options declare, without reading the data.

    >>> declared_facts({"features": ["age=18:90", "plan=basic|gold"], "label": "item=news|sport"})
    {'dim': 3, 'constant': 0.5, 'arms': 2}
    >>> declared_facts({"features": ["e*"], "declare": ["norm=3.0"], "label": "item"})
    {'constant': 0.5}
    """
    texts = _list_texts(options.get("declare", []))
    declarations = read_declarations(text for text in texts if not text.endswith(".toml"))
    if any(text.endswith(".toml") for text in texts) or "arm_features" in declarations:
        return {}
    facts: dict[str, Any] = {}
    if options.get("features"):
        bounds = {
            "norm": declarations.get("norm"),
            "intercept": declarations.get("intercept", RANGED_CONSTANT),
        }
        declaration = Declaration.of(options["features"], **bounds)
        if not any("*" in name for name in declaration.names):
            facts["dim"] = declaration.dim
        facts["constant"] = float(declaration.intercept)
    for target in (options.get("label", ""), declarations.get("action", "")):
        _, _, choices = str(target).partition("=")
        if choices:
            facts["arms"] = len(words_of(choices))
    columns = [
        part for text in declarations.get("rewards", ()) for part in parted(text, ",") if part
    ]
    return facts | ({"arms": len(columns)} if columns else {})


def _list_texts(value: object) -> list[str]:
    return [str(text) for text in (value if isinstance(value, list) else [value])]
