"""Bandits without contexts under local trust: arms, the best of them, and points of a ball."""

from __future__ import annotations

from functools import partial

from kerchief.core.convex import Ball
from kerchief.environments.context_free import Alternating, ChanceArms, CountedArms
from kerchief.environments.context_free_convex import Quadratic
from kerchief.experiments.catalogue.worlds import by_number, names
from kerchief.experiments.claims import all_below, all_of, at, each_at_most, falling, rows
from kerchief.experiments.experiment import Setting, Size, enter
from kerchief.experiments.players import ladder, player

__all__ = ["LIL", "TSALLIS"]

EPSILONS = (0.5, 1.0, 4.0)

# Multi-armed bandits, where losses are chance and where they are not.
WORLDS = CHANCE, ADVERSARY = ("chance", "adversary")
TSALLIS = ladder("tsallis", "local", EPSILONS)
WEIGHTED, UCB, DROP = (
    player(name, trust="local", epsilon=1.0)
    for name in ("tsallis-iw", "ucb", "successive-elimination")
)
NOISY = player("tsallis-iw", trust="local", epsilon=1.0, mechanism="gaussian")

enter(
    name="tsallis",
    title="Multi-armed bandits under local trust, in both worlds",
    summary="one randomized bit per user: ten arms, gap 0.2, by chance and by an adversary",
    source="Zheng et al. 2020, section B",
    settings=(
        Setting(name=CHANCE, make=partial(ChanceArms.of, arms=10, gap=0.2)),
        Setting(name=ADVERSARY, make=partial(Alternating.of, arms=10, gap=0.2)),
    ),
    players=(*TSALLIS, WEIGHTED, UCB, DROP, NOISY),
    full=Size(horizon=40_000, replicates=400),
    quick=Size(horizon=4000, replicates=16, players=(TSALLIS[2], UCB)),
    claims=(
        *each_at_most(rows(TSALLIS, *WORLDS), 2 * (1900, 720, 220)),
        *(falling(rows((*TSALLIS, player("tsallis")), world)) for world in WORLDS),
        at(TSALLIS[1], ADVERSARY).below(at(UCB, ADVERSARY), times=0.5),
        all_below(
            "a bit loses less than normal noise",
            rows([WEIGHTED], *WORLDS),
            rows([NOISY], *WORLDS),
            times=0.5,
        ),
        at(TSALLIS[2], CHANCE).below_uniform(times=0.4, quick=True),
    ),
)

# How many users it takes to name the best arm. In this table "regret" is the number of users who
# were asked.
ASKED = "users asked"
LIL, HALVING = (ladder(name, "local", EPSILONS) for name in ("lil-ucb", "halving"))
STRICT, MIDDLE, LOOSE = NEEDED = rows(LIL, ASKED)
PARENT = player("lil-ucb")

enter(
    name="best-arm",
    title="Naming the best arm under local trust",
    summary="users asked until the best of ten arms is known, gap 0.2, against epsilon",
    source="Zheng et al. 2020, Theorem 12",
    settings=(Setting(name=ASKED, make=partial(CountedArms.of, arms=10, gap=0.2)),),
    players=(*LIL, *HALVING),
    full=Size(horizon=80_000, replicates=200),
    quick=Size(horizon=20_000, replicates=16, players=(PARENT, LIL[2])),
    claims=(
        *(row.names_best(0.95) for row in rows((*LIL, *HALVING), ASKED)),
        falling(rows((*LIL, PARENT), ASKED)),
        *each_at_most(NEEDED, (52_000, 14_000, 3200)),
        # Users needed go with the variance of a report: 1/(4 τ²), τ = tanh(ε/2).
        all_of(
            "users grow with the variance of a report, within a fifth",
            [
                STRICT.below(MIDDLE, times=1.2 * 3.561),
                MIDDLE.below(STRICT, times=1.2 / 3.561),
                MIDDLE.below(LOOSE, times=1.2 * 4.352),
                LOOSE.below(MIDDLE, times=1.2 / 4.352),
            ],
        ),
        LOOSE.below_uniform(times=0.25, quick=True),
    ),
    panels=("epsilon",),
)

# Two questions per user: rates in rounds are in `rates.py`, the price of dimension is here.
BALLS = by_number("d", (2, 5, 20), lambda dim: Quadratic.of(domain=Ball(dim=dim)))
SPACES = names(BALLS)
AWARE, CURVED = (ladder(name, "local", (1.0, 4.0)) for name in ("two-point", "two-point-strong"))
PRINTED, NORMAL = (
    ladder(name, "local", (1.0, 4.0), mechanism="gaussian")
    for name in ("two-point@paper", "two-point")
)

enter(
    name="two-point",
    title="Two questions per user under local trust: the price of dimension and epsilon",
    summary="quadratic losses on the unit ball: the noise-aware step beside the printed one",
    source="Zheng et al. 2020, Algorithm 2",
    settings=BALLS,
    players=(*AWARE, *CURVED, *PRINTED, *NORMAL),
    full=Size(horizon=100_000, replicates=100),
    quick=Size(
        horizon=5000, replicates=16, settings=("d=5",), players=(NORMAL[0], PRINTED[0], AWARE[0])
    ),
    claims=(
        all_of(
            "the noise-aware step loses less than a third of what the printed one loses",
            [
                normal.below(printed, times=1 / 3)
                for normal, printed in zip(
                    rows(NORMAL, *SPACES), rows(PRINTED, *SPACES), strict=True
                )
                if normal != at(NORMAL[0], "d=20")
            ],
        ),
        all_below(
            "a bit loses less than normal noise",
            rows(AWARE, *SPACES),
            rows(NORMAL, *SPACES),
            times=0.7,
        ),
        *each_at_most(rows(AWARE[1:], *SPACES), (520, 1300, 4900)),
        *each_at_most(rows(AWARE[:1], *SPACES), (1060, 2700, 9700)),
        *each_at_most(rows(CURVED[1:], *SPACES), (100, 450, 3800)),
        at(AWARE[0], "d=5").below(at(PRINTED[0], "d=5"), times=0.5, quick=True),
        at(AWARE[0], "d=5").below_uniform(times=0.3, quick=True),
    ),
    panels=("epsilon",),
    axis="dimension",
)
