"""Shuffle-batched linear bandits: as published, and repaired, with one bit and with many."""

from __future__ import annotations

from functools import partial

from kerchief.environments.worlds import make_environment
from kerchief.experiments.claims import all_of, at, at_most, below, falling
from kerchief.experiments.experiment import Experiment, Setting, Size, enter
from kerchief.experiments.players import player

__all__ = ["EXPERIMENT"]

DIMS = (2, 5)
WORLDS = tuple(f"d={dim}" for dim in DIMS)
EPSILONS = (0.2, 1.0, 5.0)
MOST = {"d=2": (700, 250, 215), "d=5": (1500, 400, 285)}
UNIFORM = player("uniform")
MANY, FEW, ONE, COINS = (
    tuple(player("sblb", trust="shuffle", epsilon=e, mechanism=word) for e in EPSILONS)
    for word in ("bits", "byte", "bit", "best")
)
PAPER = tuple(
    player(name, trust="shuffle", epsilon=1.0, mechanism="bit")
    for name in ("sblb@paper", "sblb-fixed@paper")
)

EXPERIMENT = enter(
    Experiment(
        name="sblb",
        title="Shuffle-batched linear bandits, as published and repaired",
        summary="randomized bits behind a shuffler: one bit, many bits, coins",
        source="Garcelon et al. 2022",
        settings=tuple(
            Setting(
                name=world,
                make=partial(make_environment, contexts="orthant", dim=dim, arms=10),
                number=float(dim),
            )
            for world, dim in zip(WORLDS, DIMS, strict=True)
        ),
        players=(*MANY, *FEW, *ONE, *COINS, *PAPER),
        delta=1e-5,
        full=Size(horizon=20_000, replicates=200),
        quick=Size(horizon=2500, replicates=16, settings=("d=2",), players=(MANY[2], COINS[2])),
        claims=(
            *(
                at_most(at(one, world), most)
                for world in WORLDS
                for one, most in zip(MANY, MOST[world], strict=True)
            ),
            *(falling([at(one, world) for one in MANY]) for world in WORLDS),
            all_of(
                "more bits lose less at epsilon 1 and 5",
                [
                    below(at(many, world), at(one, world))
                    for world in WORLDS
                    for many, one in zip(MANY[1:], ONE[1:], strict=True)
                ],
            ),
            all_of(
                "with the paper's widths it loses more than half of what uniform play loses",
                [
                    below(at(UNIFORM, world), at(paper, world), times=2)
                    for world in WORLDS
                    for paper in PAPER
                ],
            ),
            all_of(
                "coins lose no more than bits, up to errors",
                [
                    below(at(coins, world), at(bits, world), times=1.25)
                    for world in WORLDS
                    for coins, bits in zip(COINS[1:], MANY[1:], strict=True)
                ],
            ),
            below(at(MANY[2], "d=2"), at(UNIFORM, "d=2"), times=0.22, quick=True),
        ),
    )
)
