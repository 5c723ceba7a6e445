"""Which methods degrade as the link flattens: regret against κ, which grows with the parameter."""

from __future__ import annotations

import itertools
from functools import partial

from kerchief.core.links import link_named
from kerchief.environments.worlds import make_environment
from kerchief.experiments.claims import all_of, at, at_most, below
from kerchief.experiments.experiment import Experiment, Setting, Size, enter
from kerchief.experiments.players import player

__all__ = ["EXPERIMENT"]

RADII = (1.0, 2.0, 3.0, 4.0)
WORLDS = tuple(f"S={radius:g}" for radius in RADII)
OURS = player("glm", trust="joint", epsilon=4.0)
UCB, GLOC, RS = (player(name, mode="theory") for name in ("glm-ucb", "gloc", "rs-glincb"))

EXPERIMENT = enter(
    Experiment(
        name="kappa-sweep",
        title="Regret against κ",
        summary="theory widths with a factor κ become uniform play; the others do not",
        source="Sarmasarkar 2026, Section 8; Sawarni et al. 2024",
        settings=tuple(
            Setting(
                name=world,
                make=partial(make_environment, link="probit", dim=3, arms=20, radius=radius),
                number=1 / link_named("probit").flattest(radius),
            )
            for world, radius in zip(WORLDS, RADII, strict=True)
        ),
        players=(OURS, UCB, GLOC, RS),
        delta=1e-5,
        full=Size(horizon=5000, replicates=50),
        quick=Size(horizon=400, replicates=8, settings=("S=4",), players=(OURS,)),
        claims=(
            below(at(UCB, "S=1"), at(UCB, "S=4"), times=0.8),
            below(at(GLOC, "S=1"), at(GLOC, "S=4"), times=0.8),
            all_of(
                "the private bandit does not degrade: a flatter world costs at most a quarter more",
                [
                    below(at(OURS, flatter), at(OURS, world), times=1.25)
                    for world, flatter in itertools.combinations(WORLDS, 2)
                ],
            ),
            at_most(at(OURS, "S=1"), 60),
            at_most(at(OURS, "S=4"), 40),
            all_of(
                "the private bandit loses less than each non-private one at theory widths",
                [below(at(OURS, w), at(one, w)) for w in WORLDS for one in (UCB, GLOC, RS)],
            ),
            below(at(OURS, "S=4"), at(player("uniform"), "S=4"), times=0.12, quick=True),
        ),
        panels=(),
        axis="κ",
    )
)
