"""Regret against epsilon: what each kind of release costs, from a strict promise to a loose one."""

from __future__ import annotations

from functools import partial

from kerchief.environments.worlds import make_environment
from kerchief.experiments.claims import all_of, at, at_most, below, falling
from kerchief.experiments.experiment import Experiment, Setting, Size, enter
from kerchief.experiments.players import player

__all__ = ["EXPERIMENT"]

EPSILONS = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0)
OURS = tuple(player("glm", trust="joint", epsilon=epsilon) for epsilon in EPSILONS)
FITS = tuple(player("glm-rare", trust="joint", epsilon=epsilon) for epsilon in EPSILONS)
LINEAR = tuple(player("linucb", trust="joint", epsilon=epsilon) for epsilon in EPSILONS)
WORLDS = ("redrawn", "fixed")

EXPERIMENT = enter(
    Experiment(
        name="epsilon-sweep",
        title="Regret against epsilon under joint trust",
        summary="sums, fits and a linear model at six epsilons, logistic rewards, d=5",
        source="Sarmasarkar 2026, Appendix B, at a delta that protects someone",
        settings=tuple(
            Setting(
                name=world,
                make=partial(
                    make_environment,
                    link="logistic",
                    contexts="ball" if world == "redrawn" else "fixed",
                    dim=5,
                    arms=20,
                    radius=3.5,
                ),
            )
            for world in WORLDS
        ),
        players=(*OURS, *FITS, *LINEAR),
        delta=1e-5,
        full=Size(horizon=5000, replicates=200),
        quick=Size(horizon=600, replicates=8, settings=("redrawn",), players=(OURS[5],)),
        claims=(
            *(falling([at(one, world) for one in OURS]) for world in WORLDS),
            all_of(
                "sums alone lose less than fits at every epsilon, on redrawn arms",
                [
                    below(at(a, "redrawn"), at(b, "redrawn"))
                    for a, b in zip(OURS, FITS, strict=True)
                ],
            ),
            at_most(at(OURS[2], "redrawn"), 190),
            at_most(at(OURS[4], "redrawn"), 75),
            at_most(at(OURS[4], "fixed"), 110),
            below(at(OURS[5], "redrawn"), at(player("uniform"), "redrawn"), times=0.18, quick=True),
        ),
    )
)
