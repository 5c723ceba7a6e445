"""How regret under local trust grows with rounds: linear contexts, and arms."""

from __future__ import annotations

from functools import partial

from kerchief.environments.context_free import ChanceArms
from kerchief.environments.worlds import make_environment
from kerchief.experiments.claims import at, at_most, below, no_steeper
from kerchief.experiments.experiment import Experiment, Setting, Size, enter
from kerchief.experiments.players import player

__all__ = ["ARMS", "LINEAR"]

UNIFORM = player("uniform")
LENGTHS = (2000, 20_000, 200_000)
WORLDS = tuple(f"T={horizon}" for horizon in LENGTHS)
LINUCB = player("linucb", trust="local", epsilon=10.0)

LINEAR = enter(
    Experiment(
        name="linear-rates",
        title="Linear contexts under local trust: how regret grows",
        summary="LinUCB at epsilon 10 on arms that vary, beside the proved T^(3/4)",
        source="Zheng et al. 2020, Theorem 10",
        settings=tuple(
            Setting(
                name=name,
                make=partial(make_environment, dim=3, arms=20),
                number=float(horizon),
                horizon=horizon,
            )
            for name, horizon in zip(WORLDS, LENGTHS, strict=True)
        ),
        players=(LINUCB,),
        delta=1e-5,
        full=Size(horizon=2000, replicates=32),
        quick=Size(horizon=2000, replicates=8, settings=("T=2000",), players=(LINUCB,)),
        claims=(
            no_steeper([at(LINUCB, name) for name in WORLDS], 0.75),
            at_most(at(LINUCB, WORLDS[1]), 1200),
            below(at(LINUCB, WORLDS[0]), at(UNIFORM, WORLDS[0]), times=0.12, quick=True),
        ),
        panels=(),
        axis="rounds",
    )
)

DECADES = (4000, 40_000, 400_000)
ROUNDS = tuple(f"T={horizon}" for horizon in DECADES)
TSALLIS = player("tsallis", trust="local", epsilon=4.0)

ARMS = enter(
    Experiment(
        name="arms-rates",
        title="Arms under local trust: how regret grows",
        summary="Tsallis-INF at epsilon 4, losses by chance: log T and not its root",
        source="Zheng et al. 2020, Theorem 11",
        settings=tuple(
            Setting(
                name=name,
                make=partial(ChanceArms.of, arms=10, gap=0.2),
                number=float(horizon),
                horizon=horizon,
            )
            for name, horizon in zip(ROUNDS, DECADES, strict=True)
        ),
        players=(TSALLIS,),
        delta=1e-5,
        full=Size(horizon=4000, replicates=100),
        quick=Size(horizon=4000, replicates=8, settings=("T=4000",), players=(TSALLIS,)),
        claims=(
            below(at(TSALLIS, ROUNDS[1]), at(TSALLIS, ROUNDS[0]), times=2.2),
            below(at(TSALLIS, ROUNDS[2]), at(TSALLIS, ROUNDS[1]), times=2.2),
            at_most(at(TSALLIS, ROUNDS[2]), 450),
            below(at(TSALLIS, ROUNDS[0]), at(UNIFORM, ROUNDS[0]), times=0.4, quick=True),
        ),
        panels=(),
        axis="rounds",
    )
)
