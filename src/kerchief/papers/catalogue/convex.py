"""Convex losses under local trust: the price of dimension, adversaries, and a line."""

from __future__ import annotations

from functools import partial

from kerchief.comparison.players import ladder
from kerchief.core.convex import Ball
from kerchief.environments.context_free_adversarial import Drifting, Reacting
from kerchief.environments.context_free_convex import Absolute, Quadratic
from kerchief.papers.catalogue.worlds import by_number, names, players, size
from kerchief.papers.claims import all_of, at, falling, rows
from kerchief.papers.experiment import Setting, enter

# Several questions per user: rates in rounds are in `rates.py`, the price of dimension is here.
BALLS = by_number("d", (2, 5, 10), lambda dim: Quadratic.of(domain=Ball(dim=dim)))
SPACES = names(BALLS)
AWARE, CURVED, EVERY_WAY = (
    ladder(name, "local", (1.0, 4.0)) for name in ("two-point", "two-point-strong", "k-point")
)
PRINTED, NORMAL = (
    ladder(name, "local", (1.0, 4.0), mechanism="gaussian")
    for name in ("two-point@paper", "two-point")
)

enter(
    name="two-point",
    title="Two questions per user, or K, under local trust: the price of dimension and epsilon",
    summary="quadratic losses on the unit ball: the noise-aware step beside the printed one",
    source="Zheng et al. 2020, Algorithm 2, Theorem 6 and section 3.2",
    sizes="The paper prints no experiment: dimensions of 2, 5 and 10 and 20000 rounds are ours.",
    claimed="The regret is d³√T/ε² for convex and d³ log T/(με²) for strongly convex losses, and "
    "more than two questions are not much different.",
    holds="Steps that know the noise make it d√T/ε, and the printed one loses more than three "
    "times as much; that is not claimed of d = 10 at epsilon 1. K = 2d questions cost a user "
    "nothing more: where a loss is smooth, slopes at right angles are together no longer than a "
    "gradient, and at kinks the clip makes them so. At d = 5 they save about half at epsilon 1, "
    "and nearly three quarters at 4. Guarantees are not equal: rows with normal noise (the printed "
    "one's, and `two-point` beside it) have a delta of 1e-5, and all others are pure, which is "
    "more.",
    settings=BALLS,
    players=(*AWARE, *CURVED, *EVERY_WAY, *PRINTED, *NORMAL),
    full=size(20_000, 100),
    quick=size(5000, 32, "d=5", players=(NORMAL[0], PRINTED[0], *AWARE, *EVERY_WAY)),
    claims=(
        all_of(
            "the noise-aware step loses less than a third of what the printed one loses, at d=10 "
            "for epsilon 4 alone",
            *rows(NORMAL, "d=2", "d=5").below(rows(PRINTED, "d=2", "d=5"), times=1 / 3),
            at(NORMAL[1], "d=10").below(PRINTED[1], times=1 / 3),
        ),
        all_of(
            "a bit loses less than normal noise",
            *rows(AWARE, *SPACES).below(rows(NORMAL, *SPACES), times=0.7),
        ),
        all_of(
            "bits keep these bounds",
            *rows(AWARE[1:], *SPACES).at_most((210, 490, 940)),
            *rows(AWARE[:1], *SPACES).at_most((440, 1000, 1800)),
            *rows(CURVED[1:], *SPACES).at_most((70, 290, 780)),
        ),
        all_of(
            "2d questions lose less than two, in every dimension",
            *rows(EVERY_WAY, *SPACES).below(rows(AWARE, *SPACES)),
        ),
        falling(rows(AWARE, "d=5"), quick=True),
        falling(rows(EVERY_WAY, "d=5"), quick=True),
        all_of(
            "with five dimensions ten questions lose at most four fifths of what two lose",
            *rows(EVERY_WAY, "d=5").below(rows(AWARE, "d=5"), times=0.8),
            quick=True,
        ),
        at(AWARE[0], "d=5").below(PRINTED[0], times=0.5, quick=True),
    ),
    panels=("epsilon",),
    axis="dimension",
)

# Convex losses by an adversary: one whose losses drift, and one who reacts to what was asked.
PLANE = Ball(dim=2)
STILL, DRIFTS, REACTS = ADVERSARIES = ("still", "drifts", "reacts")
SPHERE, SMOOTH, SHRINKING, TWO, TWO_CURVED = ASKERS = players(
    "one-point",
    "one-point-smooth",
    "one-point-strong",
    "two-point",
    "two-point-strong",
    trust="local",
    epsilon=4.0,
)

enter(
    name="adversarial-convex",
    title="Convex losses by adversaries under local trust",
    summary="quadratic losses that stand still, drift with the rounds, or rise after questions",
    source="Zheng et al. 2020, Theorems 3 and 6, Corollary 4, footnote 2",
    sizes="The paper prints no experiment: the unit disc, 20000 rounds and epsilon 4 are ours.",
    claimed="The bounds hold for any sequence of losses that is fixed before the game; adversaries "
    "who react are left out as ambiguous.",
    holds="A drift, and an adversary whose losses rise after some questions, cost one question per "
    "user at most 2.2 times what the still world costs. Two questions do not notice the second at "
    "all, as a rise cancels in the difference.",
    settings=(
        Setting(name=STILL, make=partial(Quadratic.of, domain=PLANE)),
        Setting(name=DRIFTS, make=partial(Drifting.of, domain=PLANE)),
        Setting(name=REACTS, make=partial(Reacting.of, domain=PLANE)),
    ),
    players=ASKERS,
    full=size(20_000, 100),
    quick=size(5000, 24, STILL, REACTS, players=(SMOOTH, TWO)),
    claims=(
        all_of(
            "with one question adversaries cost at most 2.2 times what the still world costs",
            *(
                at(bandit, world).below(at(bandit, STILL), times=2.2)
                for bandit in (SPHERE, SMOOTH, SHRINKING)
                for world in (DRIFTS, REACTS)
            ),
        ),
        all_of(
            "regret falls with what is known of the losses, in every world",
            *(falling(rows((SPHERE, SMOOTH, SHRINKING, TWO), world)) for world in ADVERSARIES),
        ),
        at(TWO_CURVED, DRIFTS).at_most(150),
        at(TWO, REACTS).below(at(TWO, STILL), times=1.2, errors=1.0, quick=True),
        at(TWO, REACTS).below(SMOOTH, times=0.6, quick=True),
        at(SMOOTH, REACTS).below(at(SMOOTH, STILL), times=2, quick=True),
    ),
    panels=("rounds",),
)

# Stochastic convex losses on a line: what trusting in chance is worth, and what it costs.
LINE, SLOW = "line", "slow drift"
SEARCH, ONE = (ladder(name, "local", (1.0, 4.0)) for name in ("line-search", "one-point"))

enter(
    name="stochastic-convex",
    title="Stochastic convex losses on a line under local trust",
    summary="an interval that shrinks beside descent, where losses are chance and where they drift",
    source="Zheng et al. 2020, Corollary 4; Agarwal et al. 2011",
    sizes="The paper prints no experiment: one dimension and 20000 rounds are ours, as is the "
    "search. The algorithm that it names, for any dimension, is not built.",
    claimed="With Algorithm 2 of Agarwal et al. as the black box the regret is √T/ε where losses "
    "are chance, up to logarithms.",
    holds="On a line the interval loses less than descent at epsilon 1, and grows more slowly "
    "(`line-rates`). Where losses drift slowly it cuts off what later is best, and at "
    "epsilon 4 loses more than descent; two questions per user follow the drift.",
    settings=(
        Setting(name=LINE, make=partial(Absolute.of, domain=Ball(dim=1))),
        Setting(name=SLOW, make=partial(Drifting.of, domain=Ball(dim=1), period=20_000)),
    ),
    players=(*SEARCH, *ONE, TWO),
    full=size(20_000, 100),
    quick=size(20_000, 16, players=(*SEARCH, TWO)),
    claims=(
        at(SEARCH[0], LINE).below(ONE[0]),
        at(SEARCH[1], LINE).at_most(1500, quick=True),
        at(ONE[1], SLOW).below(SEARCH[1], times=0.95),
        at(TWO, SLOW).below(SEARCH[1], times=0.2, quick=True),
        falling(rows(SEARCH, LINE), quick=True),
        at(SEARCH[0], LINE).below_uniform(times=0.35, quick=True),
    ),
    panels=("rounds",),
)
