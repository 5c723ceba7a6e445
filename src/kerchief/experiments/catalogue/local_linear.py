"""Linear bandits under local trust: what the randomizer and the report are worth."""

from __future__ import annotations

from functools import partial

from kerchief.environments.worlds import make_environment
from kerchief.experiments.claims import all_of, at, at_most, below, falling
from kerchief.experiments.experiment import Experiment, Setting, Size, enter
from kerchief.experiments.players import player

__all__ = ["EXPERIMENT"]

WORLDS = ("intercept", "fixed")
EPSILONS = (0.2, 1.0, 10.0)
UNIFORM, PARENT = player("uniform"), player("linucb")
NORMAL, BEST = (
    tuple(player("linucb", trust="local", epsilon=e, mechanism=word) for e in EPSILONS)
    for word in ("gaussian", "best")
)
PAIRS = tuple(player("linucb-pairs", trust="local", epsilon=e) for e in EPSILONS)
PAPER = player("linucb@paper", trust="local", epsilon=10.0)

EXPERIMENT = enter(
    Experiment(
        name="local-linear",
        title="Linear bandits under local trust",
        summary="reports of products and of pairs, with normal noise and the best randomizer",
        source="the arms of the TMLR submission on LDP linear bandits; Zheng et al. 2020, "
        "Algorithm 5",
        settings=tuple(
            Setting(name=world, make=partial(make_environment, contexts=world, dim=5, arms=100))
            for world in WORLDS
        ),
        players=(*NORMAL, *BEST, *PAIRS, PAPER),
        delta=1e-5,
        full=Size(horizon=20_000, replicates=100),
        quick=Size(horizon=2000, replicates=16, settings=("intercept",), players=(PAIRS[2],)),
        claims=(
            *(
                at_most(at(one, "intercept"), most, errors=1.0)
                for one, most in zip(BEST, (8000, 4500, 1200), strict=True)
            ),
            at_most(at(PAIRS[2], "intercept"), 400),
            *(falling([at(one, "intercept") for one in row]) for row in (NORMAL, BEST, PAIRS)),
            all_of(
                "the best randomizer loses less than normal noise, at epsilon 1 and 10",
                [
                    below(at(best, "intercept"), at(normal, "intercept"), errors=2.0)
                    for best, normal in zip(BEST[1:], NORMAL[1:], strict=True)
                ],
            ),
            below(at(PAIRS[2], "intercept"), at(BEST[2], "intercept"), times=0.6),
            # With the printed width nothing is learned, at the largest epsilon either.
            below(at(UNIFORM, "intercept"), at(PAPER, "intercept"), times=1.25),
            all_of(
                "nobody does worse than uniform play, up to errors",
                [
                    below(at(one, world), at(UNIFORM, world), times=1.1, errors=2.0)
                    for world in WORLDS
                    for one in (*NORMAL, *BEST, *PAIRS)
                ],
            ),
            below(at(PAIRS[2], "intercept"), at(UNIFORM, "intercept"), times=0.2, quick=True),
        ),
    )
)
