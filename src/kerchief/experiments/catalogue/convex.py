"""Bandit convex optimisation under local trust: rates in rounds, and the price of dimension."""

from __future__ import annotations

from functools import partial

from kerchief.core.convex import Ball
from kerchief.environments.context_free_convex import Absolute, Quadratic
from kerchief.experiments.claims import all_of, at, at_most, below, falling, slope
from kerchief.experiments.experiment import Experiment, Setting, Size, enter
from kerchief.experiments.players import player

__all__ = ["RATES"]

HORIZONS = (2000, 20_000, 200_000)
RATES = tuple(f"T={horizon}" for horizon in HORIZONS)
UNIFORM = player("uniform")
ONE, TWO, SMOOTH, STRONG, TWO_STRONG = (
    player(name, trust="local", epsilon=4.0)
    for name in (
        "one-point",
        "two-point",
        "one-point-smooth",
        "one-point-strong",
        "two-point-strong",
    )
)


def _lengths(world: type[Absolute | Quadratic]) -> tuple[Setting, ...]:
    return tuple(
        Setting(
            name=name,
            make=partial(world.of, domain=Ball(dim=2)),
            number=float(horizon),
            horizon=horizon,
        )
        for name, horizon in zip(RATES, HORIZONS, strict=True)
    )


enter(
    Experiment(
        name="convex-rates",
        title="Convex losses under local trust: how regret grows",
        summary="one question and two questions a user, losses without curvature",
        source="Zheng et al. 2020, Corollaries 4 and 5",
        settings=_lengths(Absolute),
        players=(ONE, TWO),
        delta=1e-5,
        full=Size(horizon=2000, replicates=100),
        quick=Size(horizon=2000, replicates=16, settings=("T=2000",)),
        claims=(
            slope([at(ONE, name) for name in RATES], 0.75),
            slope([at(TWO, name) for name in RATES], 0.5),
            at_most(at(ONE, RATES[-1]), 15_000),
            at_most(at(TWO, RATES[-1]), 1500),
            below(at(TWO, RATES[0]), at(UNIFORM, RATES[0]), times=0.12, quick=True),
        ),
        panels=(),
        axis="rounds",
    )
)
enter(
    Experiment(
        name="smooth-rates",
        title="Smooth losses under local trust: how regret grows",
        summary="one question and two questions a user, losses with curvature",
        source="Zheng et al. 2020, Corollaries 4 and 5",
        settings=_lengths(Quadratic),
        players=(SMOOTH, STRONG, TWO_STRONG),
        delta=1e-5,
        full=Size(horizon=2000, replicates=100),
        quick=Size(horizon=2000, replicates=16, settings=("T=2000",)),
        claims=(
            slope([at(SMOOTH, name) for name in RATES], 2 / 3),
            slope([at(STRONG, name) for name in RATES], 0.5),
            # log T has no slope: regret grows by the same amount from decade to decade.
            below(at(TWO_STRONG, RATES[2]), at(TWO_STRONG, RATES[1]), times=1.7),
            falling([at(one, RATES[2]) for one in (SMOOTH, STRONG, TWO_STRONG)]),
            at_most(at(SMOOTH, RATES[-1]), 6000),
            at_most(at(STRONG, RATES[-1]), 2000),
            at_most(at(TWO_STRONG, RATES[-1]), 200),
            below(at(TWO_STRONG, RATES[0]), at(UNIFORM, RATES[0]), times=0.1, quick=True),
        ),
        panels=(),
        axis="rounds",
    )
)

DIMS = (2, 5, 20)
SPACES = tuple(f"d={dim}" for dim in DIMS)
EPSILONS = (1.0, 4.0)
AWARE, CURVED, PRINTED, NORMAL = (
    tuple(player(name, trust="local", epsilon=e, mechanism=word) for e in EPSILONS)
    for name, word in (
        ("two-point", "best"),
        ("two-point-strong", "best"),
        ("two-point@paper", "gaussian"),
        ("two-point", "gaussian"),
    )
)

enter(
    Experiment(
        name="two-point",
        title="Two questions a user under local trust: the price of dimension and epsilon",
        summary="quadratic losses on the unit ball: the noise-aware step beside the printed one",
        source="Zheng et al. 2020, Algorithm 2",
        settings=tuple(
            Setting(name=name, make=partial(Quadratic.of, domain=Ball(dim=dim)), number=float(dim))
            for name, dim in zip(SPACES, DIMS, strict=True)
        ),
        players=(*AWARE, *CURVED, *PRINTED, *NORMAL),
        delta=1e-5,
        full=Size(horizon=100_000, replicates=100),
        quick=Size(
            horizon=5000,
            replicates=16,
            settings=("d=5",),
            players=(NORMAL[0], PRINTED[0], AWARE[0]),
        ),
        claims=(
            all_of(
                "the noise-aware step loses less than a third of what the printed one loses",
                [
                    below(at(normal, name), at(printed, name), times=1 / 3)
                    for name in SPACES
                    for normal, printed in zip(NORMAL, PRINTED, strict=True)
                    if (name, normal.epsilon) != ("d=20", 1.0)
                ],
            ),
            all_of(
                "a bit loses less than normal noise",
                [
                    below(at(bit, name), at(normal, name), times=0.7)
                    for name in SPACES
                    for bit, normal in zip(AWARE, NORMAL, strict=True)
                ],
            ),
            *(
                at_most(at(AWARE[1], name), most)
                for name, most in zip(SPACES, (520, 1300, 4900), strict=True)
            ),
            *(
                at_most(at(AWARE[0], name), most)
                for name, most in zip(SPACES, (1060, 2700, 9700), strict=True)
            ),
            *(
                at_most(at(CURVED[1], name), most)
                for name, most in zip(SPACES, (100, 450, 3800), strict=True)
            ),
            below(at(AWARE[0], "d=5"), at(PRINTED[0], "d=5"), times=0.5, quick=True),
            below(at(AWARE[0], "d=5"), at(UNIFORM, "d=5"), times=0.3, quick=True),
        ),
        panels=("epsilon",),
        axis="dimension",
    )
)
