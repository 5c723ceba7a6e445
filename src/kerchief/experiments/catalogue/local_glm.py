"""Generalized linear bandits under local trust, as published, repaired, and with short reports."""

from __future__ import annotations

from functools import partial

from kerchief.environments.worlds import make_environment
from kerchief.experiments.claims import Claim, all_of, at, at_most, below, falling
from kerchief.experiments.experiment import Experiment, Setting, Size, enter
from kerchief.experiments.players import Player, player

__all__ = ["EXPERIMENT"]

WORLDS = ("d=3", "d=5", "fixed, d=3")
EPSILONS = (1.0, 4.0, 10.0)
ASKED = {"d=3": (2428, 946, 439), "d=5": (2838, 1971, 1115)}
UNIFORM = player("uniform")
GREEDY, SUMS, DESCENT = (
    tuple(player(name, trust="local", epsilon=e) for e in EPSILONS)
    for name in ("glm-greedy", "glm", "glm-descent")
)
PAPER = player("glm-local@paper", trust="local", epsilon=10.0)


def _half_of_what_was_asked(row: tuple[Player, ...]) -> tuple[Claim, ...]:
    return tuple(
        at_most(at(one, world), most / 2)
        for world, bounds in ASKED.items()
        for one, most in zip(row, bounds, strict=True)
    )


EXPERIMENT = enter(
    Experiment(
        name="local-glm",
        title="Generalized linear bandits under local trust",
        summary="logistic rewards: one short report a user, sums, and gradient descent",
        source="Zheng et al. 2020, Algorithm 3; Han et al. 2021",
        settings=tuple(
            Setting(
                name=world,
                make=partial(
                    make_environment, link="logistic", contexts=contexts, dim=dim, arms=20
                ),
            )
            for world, contexts, dim in zip(
                WORLDS, ("ball", "ball", "fixed"), (3, 5, 3), strict=True
            )
        ),
        players=(*GREEDY, *SUMS, *DESCENT, PAPER),
        delta=1e-5,
        full=Size(horizon=20_000, replicates=100),
        quick=Size(horizon=2000, replicates=16, settings=("d=3",), players=(GREEDY[2],)),
        claims=(
            *_half_of_what_was_asked(GREEDY),
            *(falling([at(one, "d=3") for one in row]) for row in (GREEDY, SUMS, DESCENT)),
            all_of(
                "as published it loses at least three times as much, at epsilon 10",
                [
                    below(at(row[2], "d=3"), at(PAPER, "d=3"), times=1 / 3)
                    for row in (GREEDY, SUMS, DESCENT)
                ],
            ),
            # A report of gradients alone rests on contexts that vary.
            below(at(SUMS[2], "fixed, d=3"), at(GREEDY[2], "fixed, d=3")),
            below(at(GREEDY[2], "d=3"), at(UNIFORM, "d=3"), times=0.15, quick=True),
        ),
    )
)
