"""Phased elimination where every round is another client's: what each trust costs.

The paper's appendix proves this setting and draws nothing. The world is that of its own simulation,
smaller, and with clients that are all alike. Greedy play asks as in the paper's main setting, where
a client sees a whole phase.
"""

from __future__ import annotations

from functools import partial

from kerchief.environments.population import Population
from kerchief.experiments.claims import all_of, at, at_most, below, falling
from kerchief.experiments.experiment import Experiment, Setting, Size, enter
from kerchief.experiments.players import player

__all__ = ["EXPERIMENT"]

HORIZON = 100_000
WORLD = "d=10, k=200"
EPSILONS = (0.2, 1.0, 5.0)
CENTRAL, SHUFFLE, LOCAL = (
    tuple(player("pe", trust=trust, epsilon=epsilon) for epsilon in EPSILONS)
    for trust in ("central", "shuffle", "local")
)
PAPER = tuple(
    player("pe@paper", trust=trust, epsilon=5.0) for trust in ("central", "shuffle", "local")
)
CONTEXT_FREE, PUBLISHED, UNIFORM = player("pe"), player("pe@paper"), player("uniform")

EXPERIMENT = enter(
    Experiment(
        name="dp-pe",
        title="Phased elimination where every round is another client's",
        summary="one public action a client, one protected reward: central, shuffle, local",
        source="Li, Zhou, Ji 2022, Appendix C",
        settings=(
            Setting(
                name=WORLD,
                make=partial(Population.of, dim=10, arms=200, clients=HORIZON, spread=0.0),
            ),
        ),
        players=(*CENTRAL, *SHUFFLE, *LOCAL, PUBLISHED, *PAPER),
        delta=1e-5,
        full=Size(horizon=HORIZON, replicates=100),
        quick=Size(horizon=20_000, replicates=8, players=(CENTRAL[2],)),
        claims=(
            at_most(at(CONTEXT_FREE, WORLD), 10_500),
            *(at_most(at(one[1], WORLD), 11_500) for one in (CENTRAL, SHUFFLE)),
            *(falling([at(one, WORLD) for one in ladder]) for ladder in (CENTRAL[:2], LOCAL)),
            all_of(
                "at epsilon 5, central and shuffle trust cost at most a fifth of the regret",
                [
                    below(at(one[2], WORLD), at(CONTEXT_FREE, WORLD), times=1.2)
                    for one in (CENTRAL, SHUFFLE)
                ],
            ),
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
                "local trust costs at least one and a half times as much as shuffle trust",
                [
                    below(at(shuffle, WORLD), at(local, WORLD), times=1 / 1.5)
                    for shuffle, local in zip(SHUFFLE, LOCAL, strict=True)
                ],
            ),
            all_of(
                "our widths lose less than two fifths of what the paper's lose, private or not",
                [
                    below(at(ours, WORLD), at(paper, WORLD), times=0.4)
                    for ours, paper in (
                        (CONTEXT_FREE, PUBLISHED),
                        *zip((CENTRAL[2], SHUFFLE[2], LOCAL[2]), PAPER, strict=True),
                    )
                ],
            ),
            below(at(CENTRAL[2], WORLD), at(UNIFORM, WORLD), times=0.5, quick=True),
        ),
    )
)
