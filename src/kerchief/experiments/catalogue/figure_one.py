"""Figure 1 of the main paper, (a) and (b): regret against epsilon and rounds in its own worlds.

The paper prints curves alone, so the claims are about the order of the methods.
"""

from __future__ import annotations

from functools import partial

from kerchief.environments.recorded import table_two
from kerchief.experiments.claims import all_of, at, at_most, below, falling
from kerchief.experiments.experiment import Experiment, Setting, Size, enter
from kerchief.experiments.players import Player, player

__all__ = ["EPSILONS"]

EPSILONS = (1.0, 2.0, 4.0, 8.0)
OURS = tuple(player("glm", trust="joint", epsilon=epsilon) for epsilon in EPSILONS)
PAPER = tuple(player("glm@paper", trust="joint", epsilon=epsilon) for epsilon in EPSILONS)
RS, GLOC = player("rs-glincb", mode="theory"), player("gloc", mode="theory")


def _figure(
    part: str,
    link: str,
    radius: float,
    horizon: int,
    beside: tuple[Player, ...],
    most: tuple[float, float],
) -> None:
    """Enter one part; `most` is what ours may lose at the least and at the greatest epsilon."""
    world = f"{link} S={radius:g}"
    enter(
        Experiment(
            name=f"figure-one-{part}",
            title=f"Figure 1({part}) of the main paper, in its own world",
            summary=f"regret against epsilon and rounds: {link} rewards, d=5, K=20",
            source="Sarmasarkar 2026, Appendix B",
            settings=(
                Setting(
                    name=world,
                    make=partial(table_two, radius=radius, dim=5, horizon=horizon, link=link),
                ),
            ),
            players=(*OURS, *PAPER, RS, GLOC, *beside),
            delta=0.02,
            full=Size(horizon=horizon, replicates=20),
            quick=Size(horizon=600, replicates=8, players=(OURS[3],)),
            claims=(
                all_of(
                    "ours loses less than a fifth of what the paper's rule loses, at each epsilon",
                    [
                        below(at(ours, world), at(paper, world), times=0.2)
                        for ours, paper in zip(OURS, PAPER, strict=True)
                    ],
                ),
                falling([at(OURS[0], world), at(OURS[3], world)]),
                at_most(at(OURS[0], world), most[0]),
                at_most(at(OURS[3], world), most[1]),
                falling([at(one, world) for one in PAPER]),
                all_of(
                    "ours at epsilon 1 loses less than non-private bandits at theory widths",
                    [below(at(OURS[0], world), at(one, world)) for one in (RS, GLOC, *beside)],
                ),
                below(at(OURS[3], world), at(player("uniform"), world), times=0.17, quick=True),
            ),
        )
    )


_figure("a", "logistic", 3.5, 15_000, (player("ecolog", mode="theory"),), (130, 60))
_figure("b", "probit", 3.0, 5000, (player("glm-ucb", mode="theory"),), (110, 50))
