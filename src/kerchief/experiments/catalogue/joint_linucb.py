"""LinUCB under joint trust, at three epsilons, on redrawn and on fixed arms."""

from __future__ import annotations

from functools import partial

from kerchief.environments.worlds import make_environment
from kerchief.experiments.claims import all_of, at, at_most, below, falling
from kerchief.experiments.experiment import Experiment, Setting, Size, enter
from kerchief.experiments.players import player

__all__ = ["EXPERIMENT"]

WORLDS = ("intercept", "fixed")
UNIFORM = player("uniform")
LOW, AGGREGATOR, HIGH = JOINT = tuple(
    player("linucb", trust="joint", epsilon=epsilon) for epsilon in (0.2, 1.0, 10.0)
)
PRIVATE = [at(one, world) for world in WORLDS for one in JOINT]

EXPERIMENT = enter(
    Experiment(
        name="joint-linucb",
        title="LinUCB with a trusted curator who publishes after every user",
        summary="what joint trust costs LinUCB at three epsilons",
        source="Shariff and Sheffet 2018",
        settings=tuple(
            Setting(name=world, make=partial(make_environment, contexts=world, dim=5, arms=100))
            for world in WORLDS
        ),
        players=JOINT,
        delta=1e-5,
        full=Size(horizon=20_000, replicates=200),
        quick=Size(horizon=1000, replicates=16, settings=("intercept",), players=JOINT),
        claims=(
            at_most(at(LOW, "intercept"), 2600),
            at_most(at(AGGREGATOR, "intercept"), 820),
            at_most(at(HIGH, "intercept"), 150),
            all_of(
                "every private row stays below uniform play",
                [below(spot, at(UNIFORM, spot.world)) for spot in PRIVATE],
            ),
            below(at(HIGH, "intercept"), at(UNIFORM, "intercept"), times=0.3, quick=True),
            falling([at(one, "intercept") for one in JOINT], quick=True),
            falling([at(one, "fixed") for one in JOINT]),
        ),
    )
)
