"""One fixed arm set: no context explores for the bandit, so noise and exploration must share."""

from __future__ import annotations

from functools import partial

from kerchief.environments.worlds import make_environment
from kerchief.experiments.claims import all_of, at, at_most, below, falling
from kerchief.experiments.experiment import Experiment, Setting, Size, enter
from kerchief.experiments.players import player

__all__ = ["EXPERIMENT"]

LOW, AGGREGATOR, HIGH = OURS = tuple(
    player("glm", trust="joint", epsilon=epsilon) for epsilon in (0.2, 1.0, 4.0)
)
FITS = player("glm-rare", trust="joint", epsilon=4.0)
EXPLORING = player("glm-rare-explore", trust="joint", epsilon=4.0)
LINEAR = player("linucb", trust="joint", epsilon=4.0)

EXPERIMENT = enter(
    Experiment(
        name="fixed-arms",
        title="Jointly private GLM bandits on a fixed arm set",
        summary="probit rewards, d=3: the same 20 arms for every user of a replicate",
        source="the setting of Sarmasarkar 2026, Section 8, without fresh contexts",
        settings=(
            Setting(
                name="fixed",
                make=partial(
                    make_environment, link="probit", contexts="fixed", dim=3, arms=20, radius=2.0
                ),
            ),
        ),
        players=(*OURS, FITS, EXPLORING, LINEAR, player("rs-glincb")),
        delta=1e-5,
        full=Size(horizon=5000, replicates=200),
        quick=Size(horizon=800, replicates=8, players=(HIGH,)),
        claims=(
            at_most(at(HIGH, "fixed"), 75),
            at_most(at(AGGREGATOR, "fixed"), 150),
            all_of(
                "far from uniform play at every epsilon",
                [
                    below(at(one, "fixed"), at(player("uniform"), "fixed"), times=0.5)
                    for one in OURS
                ],
            ),
            below(at(HIGH, "fixed"), at(FITS, "fixed")),
            falling([at(one, "fixed") for one in OURS]),
            below(at(HIGH, "fixed"), at(player("uniform"), "fixed"), times=0.12, quick=True),
        ),
    )
)
