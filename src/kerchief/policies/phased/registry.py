"""Where bandits that go by phases are entered, beside those that go by rounds."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial

from kerchief.core.population import PopulationProblem
from kerchief.core.registry import Registry
from kerchief.policies.phased.contract import Phased
from kerchief.policies.phased.elimination import Elimination, Rule
from kerchief.policies.phased.uniform import UniformPopulation
from kerchief.policies.registry import Mode

__all__ = ["PHASED", "Entry"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
    """A registered bandit that goes by phases.

    Attributes:
        make: builds it from public facts alone, in either mode.
        summary: one line for listings.
        source: the paper and the algorithm.
        trusts: the words of `--trust` under which it may run.
        parent: the name of the non-private bandit behind it.
    """

    make: Callable[[PopulationProblem, Mode], Phased]
    summary: str
    source: str
    trusts: tuple[str, ...]
    parent: str


PHASED: Registry[Entry] = Registry("policy for populations")

_PAPER = "Li, Zhou, Ji 2022, Algorithm 1"
_ONCE = "Li, Zhou, Ji 2022, Algorithm 3"
_TRUSTS = ("none", "local", "shuffle", "central")


def _even(problem: PopulationProblem, mode: Mode) -> Phased:
    return UniformPopulation(problem=problem)


def _eliminate(
    problem: PopulationProblem,
    mode: Mode,
    *,
    rule: Rule = "exact",
    width: float | None = None,
    clients: int = 0,
    once: bool = False,
) -> Phased:
    return Elimination.of(problem, mode=mode, rule=rule, width=width, clients=clients, once=once)


PHASED.add(
    "uniform",
    Entry(
        make=_even,
        summary="play all actions equally often, and ask nobody",
        source="the yardstick of every comparison",
        trusts=("none",),
        parent="uniform",
    ),
)
PHASED.add(
    "greedy",
    Entry(
        make=partial(_eliminate, width=0.0),
        summary="elimination with no width: one phase, then the action that looked best",
        source="the yardstick of every comparison",
        trusts=_TRUSTS,
        parent="greedy",
    ),
)
PHASED.add(
    "dpe",
    Entry(
        make=_eliminate,
        summary="phased elimination with exact public widths and the cheaper way to answer",
        source=_PAPER,
        trusts=_TRUSTS,
        parent="dpe",
    ),
)
PHASED.add(
    "dpe-fixed-u",
    Entry(
        make=partial(_eliminate, clients=210),
        summary="the same with equally many clients in every phase",
        source="Li, Zhou, Ji 2022, section 7",
        trusts=_TRUSTS,
        parent="dpe-fixed-u",
    ),
)
PHASED.add(
    "dpe@paper",
    Entry(
        make=partial(_eliminate, rule="paper"),
        summary="phased elimination by the paper's widths and schedule, with true noise",
        source=_PAPER,
        trusts=_TRUSTS,
        parent="dpe",
    ),
)
PHASED.add(
    "pe",
    Entry(
        make=partial(_eliminate, once=True),
        summary="phased elimination where every round is another client's, with exact widths",
        source=_ONCE,
        trusts=_TRUSTS,
        parent="pe",
    ),
)
PHASED.add(
    "pe@paper",
    Entry(
        make=partial(_eliminate, rule="paper", once=True),
        summary="the same by the paper's widths and schedule, with true noise",
        source=_ONCE,
        trusts=_TRUSTS,
        parent="pe",
    ),
)
