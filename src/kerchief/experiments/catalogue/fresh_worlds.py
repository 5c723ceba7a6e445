"""Table 2's family of worlds, drawn anew in each replicate, at a delta below 1/horizon."""

from __future__ import annotations

from functools import partial

from kerchief.environments.worlds import make_environment
from kerchief.experiments.claims import all_of, at, at_most, below, falling
from kerchief.experiments.experiment import Experiment, Setting, Size, enter
from kerchief.experiments.players import player

__all__ = ["EXPERIMENT"]

RADII = (2.0, 2.5, 3.0)
WORLDS = tuple(f"S={radius:g}" for radius in RADII)
LOW, AGGREGATOR, HIGH = OURS = tuple(
    player("glm", trust="joint", epsilon=epsilon) for epsilon in (0.2, 1.0, 4.0)
)
TREE = player("glm", trust="joint", epsilon=4.0, mechanism="tree")
FITS = tuple(player("glm-rare", trust="joint", epsilon=epsilon) for epsilon in (1.0, 4.0))
EXPLORING = player("glm-rare-explore", trust="joint", epsilon=4.0)
LINEAR = player("linucb", trust="joint", epsilon=4.0)

EXPERIMENT = enter(
    Experiment(
        name="fresh-worlds",
        title="Jointly private GLM bandits in fresh worlds",
        summary="probit rewards, d=3, K=20: a new parameter and new arms in each replicate",
        source="the setting of Sarmasarkar 2026, Section 8",
        settings=tuple(
            Setting(
                name=world,
                make=partial(make_environment, link="probit", dim=3, arms=20, radius=radius),
            )
            for world, radius in zip(WORLDS, RADII, strict=True)
        ),
        players=(*OURS, TREE, *FITS, EXPLORING, LINEAR),
        delta=1e-5,
        full=Size(horizon=5000, replicates=200),
        quick=Size(horizon=800, replicates=8, settings=("S=2",), players=(HIGH,)),
        claims=(
            at_most(at(HIGH, "S=2"), 45),
            at_most(at(AGGREGATOR, "S=2"), 120),
            all_of(
                "at epsilon 0.2 it is far from uniform play in every world",
                [below(at(LOW, w), at(player("uniform"), w), times=0.5) for w in WORLDS],
            ),
            all_of(
                "fits on private triggers: at most 75 at epsilon 4 and 190 at epsilon 1",
                [at_most(at(FITS[1], "S=2"), 75), at_most(at(FITS[0], "S=2"), 190)],
            ),
            all_of(
                "sums alone lose less than fits in every world",
                [below(at(HIGH, w), at(FITS[1], w)) for w in WORLDS],
            ),
            all_of(
                "noise that is correlated over time loses less than a tree's",
                [below(at(HIGH, w), at(TREE, w)) for w in WORLDS],
            ),
            *(falling([at(one, world) for one in OURS]) for world in WORLDS),
            below(at(HIGH, "S=2"), at(player("uniform"), "S=2"), times=0.12, quick=True),
        ),
    )
)
