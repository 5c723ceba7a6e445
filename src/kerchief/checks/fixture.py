"""Where policies are put to the test: small fixed settings, so that compiled runs are shared.

Runs by the thousand go through `simulate` and are remembered; runs by hand go one user at a time,
on read-only NumPy arrays, and keep everything.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from kerchief.core.contracts import Environment, Policy
from kerchief.environments import make_environment
from kerchief.policies.registry import Entry, Mode
from kerchief.privacy import Guarantee, Ledger, MemoryLedger, Trust
from kerchief.privatizers import Privatizer, protect
from kerchief.simulation.run import Run, simulate

__all__ = ["HORIZON", "SEED", "SEGMENT", "WIDTH", "Case", "Played", "play", "played", "promise"]

# One horizon, one width and one segment for nearly every run: each needs its own machine code.
HORIZON, SEGMENT, WIDTH, SEED = 400, 50, 64, 20260601
DELTA = 1e-5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """A policy under one trust, and the rooms around it (which planted faults may replace).

    Attributes:
        name: how reports call it.
        entry: builds the policy and states its facts.
        trust: a word of `--trust`.
        environment: its home, small.
        resizable: whether `entry.make` builds for any problem, or for this environment alone.
        protect: gives each query its privatizer.
        simulate: plays it.
        make_ledger: opens a ledger on a budget.
    """

    name: str
    entry: Entry
    trust: str
    environment: Environment
    resizable: bool = True
    protect: Callable[..., Mapping[str, Privatizer]] = protect
    simulate: Callable[..., Run] = simulate
    make_ledger: Callable[[Guarantee], Ledger] = MemoryLedger

    @classmethod
    def of(cls, name: str, entry: Entry, trust: str, **rooms: Any) -> Case:
        """A case in a small copy of the policy's home, with masks."""
        home = rooms.pop("environment", None) or make_environment(
            link=entry.home or "linear", dim=2, arms=5, fewest=3
        )
        return cls(name=name, entry=entry, trust=trust, environment=home, **rooms)

    def __str__(self) -> str:
        """The name and the trust."""
        return f"{self.name} under {self.trust}"

    def policy(self, mode: Mode = "tuned", *, horizon: int = HORIZON) -> Policy:
        """A fresh copy, built from public facts alone."""
        return self.entry.make(self.environment.problem(horizon), mode)

    def privatizers(
        self, epsilon: float, mode: Mode = "tuned", *, horizon: int = HORIZON
    ) -> Mapping[str, Privatizer]:
        """The protection of its queries."""
        policy = self.policy(mode, horizon=horizon)
        return self.protect(policy, promise(self.trust, epsilon), horizon=horizon)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Played:
    """A run and the ledger that paid for it."""

    run: Run
    ledger: Ledger


def promise(trust: str, epsilon: float) -> Guarantee:
    """The guarantee of a run under this trust; no trust promises nothing."""
    if trust == Trust.NONE:
        return Guarantee(epsilon=math.inf, delta=0.0, trust=Trust.NONE)
    return Guarantee(epsilon=epsilon, delta=DELTA, trust=Trust(trust))


def play(
    case: Case,
    *,
    epsilon: float = 20.0,
    horizon: int = HORIZON,
    replicates: int = WIDTH,
    first_replicate: int = 0,
) -> Played:
    """Simulate the case, with its own fresh ledger."""
    ledger = case.make_ledger(promise(case.trust, epsilon))
    run = case.simulate(
        policy=case.policy(),
        privatizers=case.privatizers(epsilon),
        environment=case.environment,
        ledger=ledger,
        horizon=horizon,
        replicates=replicates,
        seed=SEED,
        first_replicate=first_replicate,
        ticks=max(1, horizon // SEGMENT),
    )
    return Played(run=run, ledger=ledger)


played = lru_cache(maxsize=256)(play)
