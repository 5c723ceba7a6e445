"""How regret under local trust grows with rounds: the proved rate, and what is seen."""

from __future__ import annotations

from functools import partial

from kerchief.core.convex import Ball
from kerchief.environments.context_free import ChanceArms
from kerchief.environments.context_free_convex import Absolute, Quadratic
from kerchief.environments.worlds import make_environment
from kerchief.experiments.catalogue.worlds import by_rounds
from kerchief.experiments.claims import at, falling, no_steeper, rows, slope
from kerchief.experiments.experiment import Size, enter
from kerchief.experiments.players import player

__all__ = ["ROUNDS"]

ROUNDS = (2000, 20_000, 200_000)
WORLDS = FIRST, SECOND, LAST = tuple(f"T={rounds}" for rounds in ROUNDS)

# Every picture here shows regret against rounds.
_enter = partial(enter, panels=(), axis="rounds")

# Contexts, logistic and linear.
GREEDY, SUMS, DESCENT = (
    player(name, trust="local", epsilon=4.0) for name in ("glm-greedy", "glm", "glm-descent")
)
LINUCB = player("linucb", trust="local", epsilon=10.0)

_enter(
    name="context-rates",
    title="Contexts under local trust: how regret grows",
    summary="logistic rewards and arms that vary: the square root of rounds, not its cube",
    source="Han et al. 2021; the T^(3/4) of Zheng et al. 2020 for any contexts",
    settings=by_rounds(ROUNDS, make_environment, link="logistic", dim=3, arms=20),
    players=(GREEDY, SUMS, DESCENT),
    full=Size(horizon=2000, replicates=32),
    quick=Size(horizon=2000, replicates=8, settings=(FIRST,), players=(GREEDY,)),
    claims=(
        # The proved rates bound from above: rewards and arms that vary are kinder than that.
        no_steeper(rows([GREEDY], *WORLDS), 0.5),
        no_steeper(rows([SUMS], *WORLDS), 0.5),
        no_steeper(rows([DESCENT], *WORLDS), 0.75),
        at(GREEDY, SECOND).at_most(300),
        at(GREEDY, LAST).below(at(SUMS, LAST)),
        at(GREEDY, FIRST).below_uniform(times=0.15, quick=True),
    ),
)
_enter(
    name="linear-rates",
    title="Linear contexts under local trust: how regret grows",
    summary="LinUCB at epsilon 10 on arms that vary, beside the proved T^(3/4)",
    source="Zheng et al. 2020, Theorem 8",
    settings=by_rounds(ROUNDS, make_environment, dim=3, arms=20),
    players=(LINUCB,),
    full=Size(horizon=2000, replicates=32),
    quick=Size(horizon=2000, replicates=8, settings=(FIRST,), players=(LINUCB,)),
    claims=(
        no_steeper(rows([LINUCB], *WORLDS), 0.75),
        at(LINUCB, SECOND).at_most(1200),
        at(LINUCB, FIRST).below_uniform(times=0.12, quick=True),
    ),
)

# Arms: log T has no slope, and regret grows by the same amount from decade to decade.
TSALLIS = player("tsallis", trust="local", epsilon=4.0)

_enter(
    name="arms-rates",
    title="Arms under local trust: how regret grows",
    summary="Tsallis-INF at epsilon 4, losses by chance: log T and not its root",
    source="Zheng et al. 2020, Theorem 11",
    settings=by_rounds((4000, 40_000, 400_000), ChanceArms.of, arms=10, gap=0.2),
    players=(TSALLIS,),
    full=Size(horizon=4000, replicates=100),
    quick=Size(horizon=4000, replicates=8, settings=("T=4000",), players=(TSALLIS,)),
    claims=(
        at(TSALLIS, "T=40000").below(at(TSALLIS, "T=4000"), times=2.2),
        at(TSALLIS, "T=400000").below(at(TSALLIS, "T=40000"), times=2.2),
        at(TSALLIS, "T=400000").at_most(450),
        at(TSALLIS, "T=4000").below_uniform(times=0.4, quick=True),
    ),
)

# Convex losses, with and without curvature.
ONE, TWO = (player(name, trust="local", epsilon=4.0) for name in ("one-point", "two-point"))
SMOOTH, STRONG, TWO_STRONG = (
    player(name, trust="local", epsilon=4.0)
    for name in ("one-point-smooth", "one-point-strong", "two-point-strong")
)

_enter(
    name="convex-rates",
    title="Convex losses under local trust: how regret grows",
    summary="one question and two questions per user, losses without curvature",
    source="Zheng et al. 2020, Theorems 3 and 6",
    settings=by_rounds(ROUNDS, Absolute.of, domain=Ball(dim=2)),
    players=(ONE, TWO),
    full=Size(horizon=2000, replicates=100),
    quick=Size(horizon=2000, replicates=16, settings=(FIRST,)),
    claims=(
        slope(rows([ONE], *WORLDS), 0.75),
        slope(rows([TWO], *WORLDS), 0.5),
        at(ONE, LAST).at_most(15_000),
        at(TWO, LAST).at_most(1500),
        at(TWO, FIRST).below_uniform(times=0.12, quick=True),
    ),
)
_enter(
    name="smooth-rates",
    title="Smooth losses under local trust: how regret grows",
    summary="one question and two questions per user, losses with curvature",
    source="Zheng et al. 2020, Corollary 4 and Theorem 6",
    settings=by_rounds(ROUNDS, Quadratic.of, domain=Ball(dim=2)),
    players=(SMOOTH, STRONG, TWO_STRONG),
    full=Size(horizon=2000, replicates=100),
    quick=Size(horizon=2000, replicates=16, settings=(FIRST,)),
    claims=(
        slope(rows([SMOOTH], *WORLDS), 2 / 3),
        slope(rows([STRONG], *WORLDS), 0.5),
        # log T has no slope.
        at(TWO_STRONG, LAST).below(at(TWO_STRONG, SECOND), times=1.7),
        falling(rows((SMOOTH, STRONG, TWO_STRONG), LAST)),
        at(SMOOTH, LAST).at_most(6000),
        at(STRONG, LAST).at_most(2000),
        at(TWO_STRONG, LAST).at_most(200),
        at(TWO_STRONG, FIRST).below_uniform(times=0.1, quick=True),
    ),
)
