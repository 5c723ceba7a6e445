"""The noise of the shuffled sum beside a curator's and beside the published constants."""

from __future__ import annotations

from functools import partial

from kerchief.environments.worlds import make_environment
from kerchief.experiments.claims import at, at_most, below
from kerchief.experiments.experiment import Experiment, Setting, Size, enter
from kerchief.experiments.players import player

__all__ = ["EXPERIMENT"]

WORLDS = ("ball", "fixed")
UNIFORM = player("uniform")
CURATOR, COINS, BITS, THEOREM = (
    player("elimination", trust="central", epsilon=1.0),
    *(
        player("elimination", trust="shuffle", epsilon=1.0, mechanism=word)
        for word in ("best", "byte", "theorem")
    ),
)

EXPERIMENT = enter(
    Experiment(
        name="shuffle-noise",
        title="Four noises for one promise",
        summary="a curator's noise, coins, randomized bits, and coins by the published constants",
        source="Cheu et al. 2022; `kerchief calibrate --trust shuffle` shows the deviations",
        settings=tuple(
            Setting(name=world, make=partial(make_environment, contexts=world, dim=5, arms=20))
            for world in WORLDS
        ),
        players=(CURATOR, COINS, BITS, THEOREM),
        delta=1e-5,
        full=Size(horizon=10_000, replicates=100),
        quick=Size(horizon=1500, replicates=16, settings=("ball",), players=(COINS,)),
        claims=(
            below(at(CURATOR, "ball"), at(COINS, "ball"), times=1.15),
            below(at(COINS, "ball"), at(CURATOR, "ball"), times=1.25),
            below(at(COINS, "ball"), at(BITS, "ball"), times=1.1),
            # The published constants leave nothing to learn from.
            below(at(UNIFORM, "ball"), at(THEOREM, "ball"), times=1.25),
            at_most(at(COINS, "ball"), 550),
            at_most(at(COINS, "fixed"), 800),
            below(at(COINS, "ball"), at(UNIFORM, "ball"), times=0.6, quick=True),
        ),
        panels=("rounds",),
    )
)
