"""How many users it takes to name the best arm, under local trust.

In this table "regret" is the number of users who were asked.
"""

from __future__ import annotations

from functools import partial

from kerchief.environments.context_free import CountedArms
from kerchief.experiments.claims import all_of, at, at_most, below, falling, names_best
from kerchief.experiments.experiment import Experiment, Setting, Size, enter
from kerchief.experiments.players import player

__all__ = ["EXPERIMENT"]

WORLD = "users asked"
EPSILONS = (0.5, 1.0, 4.0)
LIL = tuple(player("lil-ucb", trust="local", epsilon=e) for e in EPSILONS)
HALVING = tuple(player("halving", trust="local", epsilon=e) for e in EPSILONS)
PARENT, UNIFORM = player("lil-ucb"), player("uniform")

EXPERIMENT = enter(
    Experiment(
        name="best-arm",
        title="Naming the best arm under local trust",
        summary="users asked until the best of ten arms is known, gap 0.2, against epsilon",
        source="Zheng et al. 2020, Theorem 12",
        settings=(Setting(name=WORLD, make=partial(CountedArms.of, arms=10, gap=0.2)),),
        players=(*LIL, *HALVING),
        delta=1e-5,
        full=Size(horizon=80_000, replicates=200),
        quick=Size(horizon=20_000, replicates=16, players=(PARENT, LIL[2])),
        claims=(
            *(names_best(at(one, WORLD), 0.95) for one in (*LIL, *HALVING)),
            falling([at(one, WORLD) for one in (*LIL, PARENT)]),
            *(
                at_most(at(one, WORLD), most)
                for one, most in zip(LIL, (52_000, 14_000, 3200), strict=True)
            ),
            # Users needed go with the variance of a report: 1/(4 τ²), τ = tanh(ε/2).
            all_of(
                "users grow with the variance of a report, within a fifth",
                [
                    below(at(LIL[0], WORLD), at(LIL[1], WORLD), times=1.2 * 3.561),
                    below(at(LIL[1], WORLD), at(LIL[0], WORLD), times=1.2 / 3.561),
                    below(at(LIL[1], WORLD), at(LIL[2], WORLD), times=1.2 * 4.352),
                    below(at(LIL[2], WORLD), at(LIL[1], WORLD), times=1.2 / 4.352),
                ],
            ),
            below(at(LIL[2], WORLD), at(UNIFORM, WORLD), times=0.25, quick=True),
        ),
        panels=("epsilon",),
    )
)
