"""How the regret of locally private contextual bandits grows: the proved rate, and what is seen."""

from __future__ import annotations

from functools import partial

from kerchief.environments.worlds import make_environment
from kerchief.experiments.claims import at, at_most, below, no_steeper
from kerchief.experiments.experiment import Experiment, Setting, Size, enter
from kerchief.experiments.players import player

__all__ = ["EXPERIMENT"]

HORIZONS = (2000, 20_000, 200_000)
WORLDS = tuple(f"T={horizon}" for horizon in HORIZONS)
UNIFORM = player("uniform")
GREEDY, SUMS, DESCENT = (
    player(name, trust="local", epsilon=4.0) for name in ("glm-greedy", "glm", "glm-descent")
)

EXPERIMENT = enter(
    Experiment(
        name="context-rates",
        title="Contexts under local trust: how regret grows",
        summary="logistic rewards and arms that vary: the square root of rounds, not its cube",
        source="Han et al. 2021; the T^(3/4) of Zheng et al. 2020 for any contexts",
        settings=tuple(
            Setting(
                name=name,
                make=partial(make_environment, link="logistic", dim=3, arms=20),
                number=float(horizon),
                horizon=horizon,
            )
            for name, horizon in zip(WORLDS, HORIZONS, strict=True)
        ),
        players=(GREEDY, SUMS, DESCENT),
        delta=1e-5,
        full=Size(horizon=2000, replicates=32),
        quick=Size(horizon=2000, replicates=8, settings=("T=2000",), players=(GREEDY,)),
        claims=(
            # The proved rates bound from above: rewards and arms that vary are kinder than that.
            no_steeper([at(GREEDY, name) for name in WORLDS], 0.5),
            no_steeper([at(SUMS, name) for name in WORLDS], 0.5),
            no_steeper([at(DESCENT, name) for name in WORLDS], 0.75),
            at_most(at(GREEDY, WORLDS[1]), 300),
            below(at(GREEDY, WORLDS[2]), at(SUMS, WORLDS[2])),
            below(at(GREEDY, WORLDS[0]), at(UNIFORM, WORLDS[0]), times=0.15, quick=True),
        ),
        panels=(),
        axis="rounds",
    )
)
