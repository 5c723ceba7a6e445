"""Figure 2(a) and (b) of distributed phased elimination: what each trust costs, over time too.

The paper draws curves alone, at δ = 0.25; the same worlds at δ = 1e-5 are a second entry.
"""

from __future__ import annotations

from kerchief.environments.population import Population
from kerchief.experiments.claims import Claim, all_of, at, at_most, below, falling
from kerchief.experiments.experiment import Experiment, Setting, Size, enter
from kerchief.experiments.players import Player, player

__all__ = ["EPSILONS"]

EPSILONS = (1.0, 5.0, 10.0, 20.0)
WORLD = "d=20, k=1000"
CENTRAL, SHUFFLE, LOCAL = (
    tuple(player("dpe", trust=trust, epsilon=epsilon) for epsilon in EPSILONS)
    for trust in ("central", "shuffle", "local")
)
PAPER = tuple(
    player("dpe@paper", trust=trust, epsilon=10.0) for trust in ("central", "shuffle", "local")
)
CONTEXT_FREE, PUBLISHED, UNIFORM = player("dpe"), player("dpe@paper"), player("uniform")


def _most(one: Player, bound: float) -> Claim:
    return at_most(at(one, WORLD), bound)


def _orders() -> tuple[Claim, ...]:
    """What holds at every delta: the ladder of trusts, and what our widths are worth."""
    return (
        # From epsilon 5 on, central privacy costs too little to order.
        *(falling([at(one, WORLD) for one in ladder]) for ladder in (CENTRAL[::2], LOCAL)),
        all_of(
            "central and shuffle trust cost the same at each epsilon, within a quarter",
            [
                claim
                for one, other in zip(CENTRAL, SHUFFLE, strict=True)
                for claim in (
                    below(at(one, WORLD), at(other, WORLD), times=1.25),
                    below(at(other, WORLD), at(one, WORLD), times=1.25),
                )
            ],
        ),
        all_of(
            "local trust costs at least three times as much as shuffle trust, at each epsilon",
            [
                below(at(shuffle, WORLD), at(local, WORLD), times=1 / 3)
                for shuffle, local in zip(SHUFFLE, LOCAL, strict=True)
            ],
        ),
        all_of(
            "our widths lose less than a fifth of what the paper's lose, under each trust",
            [
                below(at(ours[2], WORLD), at(paper, WORLD), times=0.2)
                for ours, paper in zip((CENTRAL, SHUFFLE, LOCAL), PAPER, strict=True)
            ],
        ),
        below(at(CONTEXT_FREE, WORLD), at(PUBLISHED, WORLD), times=0.3),
        below(at(CENTRAL[2], WORLD), at(UNIFORM, WORLD), times=0.015, quick=True),
    )


def _figure(name: str, delta: float, summary: str, claims: tuple[Claim, ...]) -> None:
    enter(
        Experiment(
            name=name,
            title=f"Distributed phased elimination under every trust, δ = {delta:g}",
            summary=summary,
            source="Li, Zhou, Ji 2022, Figure 2(a) and (b)",
            settings=(Setting(name=WORLD, make=Population.of),),
            players=(*CENTRAL, *SHUFFLE, *LOCAL, PUBLISHED, *PAPER),
            delta=delta,
            full=Size(horizon=1_000_000, replicates=200),
            quick=Size(horizon=100_000, replicates=8, players=(CENTRAL[2],)),
            claims=(*claims, *_orders()),
        )
    )


_figure(
    "dpe-privacy",
    0.25,
    "regret against epsilon and rounds: 20 dimensions, 1000 actions, clients that differ",
    (
        _most(CONTEXT_FREE, 804),
        *(
            below(at(one[2], WORLD), at(CONTEXT_FREE, WORLD), times=1.5)
            for one in (CENTRAL, SHUFFLE)
        ),
        *(_most(one, 1100) for one in (CENTRAL[2], SHUFFLE[2])),
        *(_most(one, 2000) for one in (CENTRAL[0], SHUFFLE[0])),
    ),
)
_figure(
    "dpe-small-delta",
    1e-5,
    "the same at a delta that protects someone",
    (_most(CENTRAL[0], 6000), _most(SHUFFLE[0], 6000)),
)
