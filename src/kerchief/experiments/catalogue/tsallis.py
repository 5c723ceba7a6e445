"""Multi-armed bandits under local trust, where losses are chance and where they are not."""

from __future__ import annotations

from functools import partial

from kerchief.environments.context_free import Alternating, ChanceArms
from kerchief.experiments.claims import all_of, at, at_most, below, falling
from kerchief.experiments.experiment import Experiment, Setting, Size, enter
from kerchief.experiments.players import player

__all__ = ["EXPERIMENT"]

CHANCE, ADVERSARY = WORLDS = ("chance", "adversary")
EPSILONS = (0.5, 1.0, 4.0)
UNIFORM = player("uniform")
TSALLIS = tuple(player("tsallis", trust="local", epsilon=e) for e in EPSILONS)
WEIGHTED, UCB, DROP = (
    player(name, trust="local", epsilon=1.0)
    for name in ("tsallis-iw", "ucb", "successive-elimination")
)
NORMAL = player("tsallis-iw", trust="local", epsilon=1.0, mechanism="gaussian")
PARENT = player("tsallis")

EXPERIMENT = enter(
    Experiment(
        name="tsallis",
        title="Multi-armed bandits under local trust, in both worlds",
        summary="one randomized bit a user: ten arms, gap 0.2, by chance and by an adversary",
        source="Zheng et al. 2020, section B",
        settings=(
            Setting(name=CHANCE, make=partial(ChanceArms.of, arms=10, gap=0.2)),
            Setting(name=ADVERSARY, make=partial(Alternating.of, arms=10, gap=0.2)),
        ),
        players=(*TSALLIS, WEIGHTED, UCB, DROP, NORMAL),
        delta=1e-5,
        full=Size(horizon=40_000, replicates=400),
        quick=Size(horizon=4000, replicates=16, players=(TSALLIS[2], UCB)),
        claims=(
            *(
                at_most(at(one, world), most)
                for world in WORLDS
                for one, most in zip(TSALLIS, (1900, 720, 220), strict=True)
            ),
            *(falling([at(one, world) for one in (*TSALLIS, PARENT)]) for world in WORLDS),
            below(at(TSALLIS[1], ADVERSARY), at(UCB, ADVERSARY), times=0.5),
            all_of(
                "a bit loses less than normal noise",
                [below(at(WEIGHTED, world), at(NORMAL, world), times=0.5) for world in WORLDS],
            ),
            below(at(TSALLIS[2], CHANCE), at(UNIFORM, CHANCE), times=0.4, quick=True),
        ),
    )
)
