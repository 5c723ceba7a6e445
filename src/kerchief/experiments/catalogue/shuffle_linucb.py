"""LinUCB and batched elimination behind a shuffler, at three epsilons."""

from __future__ import annotations

from functools import partial

from kerchief.environments.worlds import make_environment
from kerchief.experiments.claims import all_of, at, at_most, below, falling
from kerchief.experiments.experiment import Experiment, Setting, Size, enter
from kerchief.experiments.players import player

__all__ = ["EXPERIMENT"]

WORLDS = ("intercept", "fixed")
EPSILONS = (0.2, 1.0, 10.0)
UNIFORM = player("uniform")
OPTIMISM = tuple(player("linucb", trust="shuffle", epsilon=epsilon) for epsilon in EPSILONS)
DESIGN = tuple(player("elimination", trust="shuffle", epsilon=epsilon) for epsilon in EPSILONS)
PRIVATE = [at(one, world) for world in WORLDS for one in (*OPTIMISM, *DESIGN)]

EXPERIMENT = enter(
    Experiment(
        name="shuffle-linucb",
        title="Shuffled batches: optimism on redrawn arms, elimination on fixed ones",
        summary="LinUCB and elimination behind a shuffler, growing batches",
        source="Chowdhury and Zhou 2022",
        settings=tuple(
            Setting(name=world, make=partial(make_environment, contexts=world, dim=5, arms=100))
            for world in WORLDS
        ),
        players=(*OPTIMISM, *DESIGN),
        delta=1e-5,
        full=Size(horizon=20_000, replicates=100),
        quick=Size(horizon=1500, replicates=16, settings=("intercept",), players=OPTIMISM[1:]),
        claims=(
            *(
                at_most(at(one, "intercept"), most)
                for one, most in zip(OPTIMISM, (2300, 540, 210), strict=True)
            ),
            *(
                at_most(at(one, "fixed"), most)
                for one, most in zip(DESIGN, (4600, 1080, 420), strict=True)
            ),
            falling([at(one, "intercept") for one in OPTIMISM]),
            falling([at(one, "fixed") for one in DESIGN]),
            falling([at(one, "intercept") for one in OPTIMISM[1:]], quick=True),
            all_of(
                "on fixed arms elimination loses less than optimism, at epsilon 1 and 10",
                [
                    below(at(one, "fixed"), at(other, "fixed"))
                    for one, other in zip(DESIGN[1:], OPTIMISM[1:], strict=True)
                ],
            ),
            all_of(
                "every private row stays below uniform play",
                [below(spot, at(UNIFORM, spot.world)) for spot in PRIVATE],
            ),
            below(at(OPTIMISM[2], "intercept"), at(UNIFORM, "intercept"), times=0.2, quick=True),
        ),
    )
)
