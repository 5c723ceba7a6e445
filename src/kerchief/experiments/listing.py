"""What can be named on the command line: policies, worlds, mechanisms, trusts, experiments."""

from __future__ import annotations

import inspect
from collections.abc import Callable

from kerchief.core.problems import PopulationProblem, Problem
from kerchief.environments.contexts import CONTEXTS
from kerchief.environments.registry import ENVIRONMENTS
from kerchief.environments.worlds import NOISES
from kerchief.experiments.catalogue import EXPERIMENTS
from kerchief.experiments.declare import worlds_of
from kerchief.experiments.proofs import proofs
from kerchief.mechanisms.registry import MECHANISMS
from kerchief.policies import POLICIES, PolicyEntry
from kerchief.policies.registry import paper_keys
from kerchief.privatizers.registry import TRUSTS
from kerchief.roles.arrange import numbers_of

Line = dict[str, object]

LISTINGS: dict[str, Callable[[], list[Line]]] = {}


def _lists(kind: str) -> Callable[[Callable[[], list[Line]]], Callable[[], list[Line]]]:
    """Enter a listing under its name."""

    def entered(listing: Callable[[], list[Line]]) -> Callable[[], list[Line]]:
        LISTINGS[kind] = listing
        return listing

    return entered


@_lists("policies")
def _policies() -> list[Line]:
    """Bandits, with the trusts under which they may run."""
    return [
        {
            "name": name,
            "kind": _kind(entry),
            "trusts": list(entry.trusts),
            "summary": entry.summary,
            "worlds": list(worlds_of(name)),
            "parent": entry.parent,
            "source": paper_keys(entry.source),
            "citation": entry.source,
            "numbers": _numbers(entry),
            "noises": dict(entry.noises),
        }
        for name, entry in sorted(POLICIES.items())
    ]


@_lists("environments")
def _environments() -> list[Line]:
    """Worlds with their own options, and the words for contexts and rewards."""
    worlds: list[Line] = [
        {
            "option": "--env",
            "name": name,
            "summary": entry.summary,
            "problem": entry.problem.__name__,
            "options": list(entry.options),
        }
        for name, entry in ENVIRONMENTS.items()
    ]
    words: list[Line] = [
        {"option": option, "name": name, "summary": _first_line(thing)}
        for option, things in (("--contexts", CONTEXTS), ("--reward-noise", NOISES))
        for name, thing in things.items()
    ]
    return worlds + words


@_lists("mechanisms")
def _mechanisms() -> list[Line]:
    """Sources of noise, and whether they are fit for deployment."""
    noises = {True: "idealized", False: "exact"}
    return [
        {"name": name, "noise": noises[entry.idealized], "summary": entry.summary}
        for name, entry in MECHANISMS.items()
    ]


@_lists("trusts")
def _trusts() -> list[Line]:
    """Protections, with the policies that support them."""
    return [
        {
            "name": name,
            "policies": sorted(policy for policy, one in POLICIES.items() if name in one.trusts),
            "summary": entry.summary,
        }
        for name, entry in TRUSTS.items()
    ]


@_lists("experiments")
def _experiments() -> list[Line]:
    """The catalogue, with what each entry shows."""
    return [
        {
            "name": name,
            "summary": entry.summary,
            "source": paper_keys(entry.source),
            "citation": entry.source,
        }
        for name, entry in EXPERIMENTS.items()
    ]


@_lists("proofs")
def _proofs() -> list[Line]:
    """Where every promise is proved, and how far."""
    return [proof.to_dict() for proof in proofs()]


def _numbers(entry: PolicyEntry) -> list[str]:
    """What `--number` can set."""
    world = ENVIRONMENTS[entry.home or "linear"].make()
    made = entry.build(world.problem(1000), "tuned")
    return sorted([*numbers_of(made), *entry.arguments])


def _kind(entry: PolicyEntry) -> str:
    """How people meet a bandit."""
    if len(entry.problems) > 1:
        return "any"
    kinds = {Problem: "contextual", PopulationProblem: "population"}
    return kinds.get(entry.problems[0], "context-free")


def _first_line(thing: object) -> str:
    """The first sentence of a docstring, without its full stop."""
    return (inspect.getdoc(thing) or "").partition("\n")[0].removesuffix(".")
