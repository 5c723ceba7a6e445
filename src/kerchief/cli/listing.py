"""Listings of what the command line can name, such as policies and trusts."""

from __future__ import annotations

import inspect
from collections.abc import Callable

from kerchief.checks.proofs import proofs
from kerchief.comparison.compatibility import worlds_of
from kerchief.core.problems import PopulationProblem, Problem
from kerchief.deployment.protected_policy import numbers_of
from kerchief.environments.contexts import CONTEXTS
from kerchief.environments.registry import ENVIRONMENTS
from kerchief.environments.worlds import NOISES
from kerchief.mechanisms.registry import MECHANISMS
from kerchief.papers.catalogue import EXPERIMENTS
from kerchief.policies import POLICIES, PolicyEntry
from kerchief.policies.registry import paper_keys
from kerchief.privatizers.registry import TRUSTS

Line = dict[str, object]

LISTINGS: dict[str, Callable[[], list[Line]]] = {}


def _register_listing(kind: str) -> Callable[[Callable[[], list[Line]]], Callable[[], list[Line]]]:
    """Register a listing under its name."""

    def register(listing: Callable[[], list[Line]]) -> Callable[[], list[Line]]:
        LISTINGS[kind] = listing
        return listing

    return register


@_register_listing("policies")
def _list_policies() -> list[Line]:
    """List policies, with the trust models under which they may run."""
    return [
        {
            "name": name,
            "kind": _describe_kind(entry),
            "trusts": list(entry.trusts),
            "source": paper_keys(entry.source),
            "summary": entry.summary,
            "variant_of": entry.variant_of,
            "environments": list(worlds_of(name)),
            "parent": entry.parent,
            "citation": entry.source,
            "parameters": _list_parameters(entry),
            "noises": dict(entry.noises),
        }
        for name, entry in sorted(POLICIES.items())
    ]


@_register_listing("environments")
def _list_environments() -> list[Line]:
    """List environments with their options, contexts and reward noises."""
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
    choices: list[Line] = [
        {"option": option, "name": name, "summary": _read_first_line(definition)}
        for option, registry in (("--contexts", CONTEXTS), ("--env-param noise", NOISES))
        for name, definition in registry.items()
    ]
    return worlds + choices


@_register_listing("mechanisms")
def _list_mechanisms() -> list[Line]:
    """List mechanisms, and whether they are fit for deployment."""
    noises = {True: "idealized", False: "exact"}
    return [
        {"name": name, "noise": noises[entry.idealized], "summary": entry.summary}
        for name, entry in MECHANISMS.items()
    ]


@_register_listing("trusts")
def _list_trusts() -> list[Line]:
    """List trust models, with the policies that support them."""
    return [
        {
            "name": name,
            "policies": sorted(
                policy for policy, policy_entry in POLICIES.items() if name in policy_entry.trusts
            ),
            "summary": entry.summary,
        }
        for name, entry in TRUSTS.items()
    ]


@_register_listing("experiments")
def _list_experiments() -> list[Line]:
    """List the experiments of the catalogue."""
    return [
        {
            "name": name,
            "summary": entry.summary,
            "source": paper_keys(entry.source),
            "citation": entry.source,
        }
        for name, entry in EXPERIMENTS.items()
    ]


@_register_listing("proofs")
def _list_proofs() -> list[Line]:
    """List the proof of every guarantee, and what it covers."""
    return [proof.to_dict() for proof in proofs()]


def _list_parameters(entry: PolicyEntry) -> list[str]:
    """List the parameters that `--param` can set."""
    world = ENVIRONMENTS[entry.default_environment or "linear"].make()
    policy = entry.build(world.problem(1000), "tuned")
    return sorted([*numbers_of(policy), *entry.arguments])


def _describe_kind(entry: PolicyEntry) -> str:
    """Describe which kind of problem a policy plays."""
    if len(entry.problems) > 1:
        return "any"
    kinds = {Problem: "contextual", PopulationProblem: "population"}
    return kinds.get(entry.problems[0], "context-free")


def _read_first_line(definition: object) -> str:
    """Return the first sentence of a docstring, without its full stop."""
    return (inspect.getdoc(definition) or "").partition("\n")[0].removesuffix(".")
