"""Jointly and shuffle private GLM bandits: the family of worlds of the main paper, and beyond."""

from __future__ import annotations

import itertools
from functools import partial

from kerchief.core.links import link_named
from kerchief.environments.worlds import make_environment
from kerchief.experiments.catalogue.worlds import by_contexts, by_number, names
from kerchief.experiments.claims import all_below, all_of, at, falling, rows
from kerchief.experiments.experiment import Setting, Size, enter
from kerchief.experiments.players import ladder, player
from kerchief.simulation.run import AnyEnvironment

__all__ = ["OURS"]

OURS = LOW, MIDDLE, HIGH = ladder("glm", "joint", (0.2, 1.0, 4.0))
FITS = ladder("glm-rare", "joint", (1.0, 4.0))
EXPLORING, LINEAR = (
    player(name, trust="joint", epsilon=4.0) for name in ("glm-rare-explore", "linucb")
)


def _probit(radius: float) -> AnyEnvironment:
    return make_environment(link="probit", dim=3, arms=20, radius=radius)


# Table 2's family of worlds, drawn anew in each replicate, at a delta below 1/horizon.
TREE = player("glm", trust="joint", epsilon=4.0, mechanism="tree")
FRESH = by_number("S", (2.0, 2.5, 3.0), _probit)

enter(
    name="fresh-worlds",
    title="Jointly private GLM bandits in fresh worlds",
    summary="probit rewards, d=3, K=20: a new parameter and new arms in each replicate",
    source="the setting of Sarmasarkar 2026, Section 8",
    settings=FRESH,
    players=(*OURS, TREE, *FITS, EXPLORING, LINEAR),
    full=Size(horizon=5000, replicates=200),
    quick=Size(horizon=800, replicates=8, settings=("S=2",), players=(HIGH,)),
    claims=(
        at(HIGH, "S=2").at_most(45),
        at(MIDDLE, "S=2").at_most(120),
        all_of(
            "at epsilon 0.2 it is far from uniform play in every world",
            [row.below_uniform(times=0.5) for row in rows([LOW], *names(FRESH))],
        ),
        all_of(
            "fits on private triggers: at most 75 at epsilon 4 and 190 at epsilon 1",
            [at(FITS[1], "S=2").at_most(75), at(FITS[0], "S=2").at_most(190)],
        ),
        all_below(
            "sums alone lose less than fits in every world",
            rows([HIGH], *names(FRESH)),
            rows([FITS[1]], *names(FRESH)),
        ),
        all_below(
            "noise that is correlated over time loses less than a tree's",
            rows([HIGH], *names(FRESH)),
            rows([TREE], *names(FRESH)),
        ),
        *(falling(rows(OURS, world)) for world in names(FRESH)),
        at(HIGH, "S=2").below_uniform(times=0.12, quick=True),
    ),
)

# One fixed arm set: no context explores for the bandit, so noise and exploration must share.
enter(
    name="fixed-arms",
    title="Jointly private GLM bandits on a fixed arm set",
    summary="probit rewards, d=3: the same 20 arms for every user of a replicate",
    source="the setting of Sarmasarkar 2026, Section 8, without fresh contexts",
    settings=by_contexts("fixed", link="probit", dim=3, arms=20, radius=2.0),
    players=(*OURS, FITS[1], EXPLORING, LINEAR, player("rs-glincb")),
    full=Size(horizon=5000, replicates=200),
    quick=Size(horizon=800, replicates=8, players=(HIGH,)),
    claims=(
        at(HIGH, "fixed").at_most(75),
        at(MIDDLE, "fixed").at_most(150),
        all_of(
            "far from uniform play at every epsilon",
            [row.below_uniform(times=0.5) for row in rows(OURS, "fixed")],
        ),
        at(HIGH, "fixed").below(at(FITS[1], "fixed")),
        falling(rows(OURS, "fixed")),
        at(HIGH, "fixed").below_uniform(times=0.12, quick=True),
    ),
)

# Regret against epsilon: what each kind of release costs, from a strict promise to a loose one.
EPSILONS = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0)
SUMS_BY, FITS_BY, LINEAR_BY = (
    ladder(name, "joint", EPSILONS) for name in ("glm", "glm-rare", "linucb")
)
LOGISTIC = partial(make_environment, link="logistic", dim=5, arms=20, radius=3.5)

enter(
    name="epsilon-sweep",
    title="Regret against epsilon under joint trust",
    summary="sums, fits and a linear model at six epsilons, logistic rewards, d=5",
    source="Sarmasarkar 2026, Appendix B, at a delta that protects someone",
    settings=(
        Setting(name="redrawn", make=LOGISTIC),
        Setting(name="fixed", make=partial(LOGISTIC, contexts="fixed")),
    ),
    players=(*SUMS_BY, *FITS_BY, *LINEAR_BY),
    full=Size(horizon=5000, replicates=200),
    quick=Size(horizon=600, replicates=8, settings=("redrawn",), players=(SUMS_BY[5],)),
    claims=(
        *(falling(rows(SUMS_BY, world)) for world in ("redrawn", "fixed")),
        all_below(
            "sums alone lose less than fits at every epsilon, on redrawn arms",
            rows(SUMS_BY, "redrawn"),
            rows(FITS_BY, "redrawn"),
        ),
        at(SUMS_BY[2], "redrawn").at_most(190),
        at(SUMS_BY[4], "redrawn").at_most(75),
        at(SUMS_BY[4], "fixed").at_most(110),
        at(SUMS_BY[5], "redrawn").below_uniform(times=0.18, quick=True),
    ),
)

# Which methods degrade as the link flattens: regret against κ, which grows with the parameter.
FLATTER = by_number(
    "S",
    (1.0, 2.0, 3.0, 4.0),
    _probit,
    place=lambda radius: 1 / link_named("probit").flattest(radius),
)
UCB, GLOC, RS = OTHERS = tuple(
    player(name, mode="theory") for name in ("glm-ucb", "gloc", "rs-glincb")
)

enter(
    name="kappa-sweep",
    title="Regret against κ",
    summary="theory widths with a factor κ become uniform play; the others do not",
    source="Sarmasarkar 2026, Section 8; Sawarni et al. 2024",
    settings=FLATTER,
    players=(HIGH, *OTHERS),
    full=Size(horizon=5000, replicates=50),
    quick=Size(horizon=400, replicates=8, settings=("S=4",), players=(HIGH,)),
    claims=(
        at(UCB, "S=1").below(at(UCB, "S=4"), times=0.8),
        at(GLOC, "S=1").below(at(GLOC, "S=4"), times=0.8),
        all_of(
            "the private bandit does not degrade: a flatter world costs at most a quarter more",
            [
                at(HIGH, flatter).below(at(HIGH, world), times=1.25)
                for world, flatter in itertools.combinations(names(FLATTER), 2)
            ],
        ),
        at(HIGH, "S=1").at_most(60),
        at(HIGH, "S=4").at_most(40),
        all_of(
            "the private bandit loses less than each non-private one at theory widths",
            [at(HIGH, row.world).below(row) for row in rows(OTHERS, *names(FLATTER))],
        ),
        at(HIGH, "S=4").below_uniform(times=0.12, quick=True),
    ),
    panels=(),
    axis="κ",
)

# Algorithm 1 under shuffle trust: a design over what earlier batches leave, beside plain sums.
PARENT = player("glm-batched")
STRICT, LOOSE = ladder("glm-batched", "shuffle", (1.0, 4.0))
PAPER = player("glm-batched@paper", trust="shuffle", epsilon=4.0)
SHUFFLED = player("glm", trust="shuffle", epsilon=1.0)

enter(
    name="shuffle-glm",
    title="Shuffle private GLM bandits: fits to batches, and sums alone",
    summary="probit rewards, d=3, K=20, S=2: Algorithm 1, its parent, and glm",
    source="Sarmasarkar 2026, Algorithms 1 and 7; no experiment with them is printed",
    settings=by_contexts("ball", "fixed", link="probit", dim=3, arms=20, radius=2.0),
    players=(STRICT, LOOSE, PAPER, SHUFFLED, MIDDLE, player("b-glincb")),
    delta=1e-4,
    full=Size(horizon=20_000, replicates=100),
    quick=Size(horizon=2000, replicates=12, settings=("ball",), players=(PARENT, LOOSE)),
    claims=(
        at(STRICT, "ball").at_most(310),
        at(STRICT, "fixed").at_most(340),
        at(LOOSE, "ball").at_most(220),
        falling(rows((STRICT, LOOSE), "ball")),
        at(PARENT, "ball").below(at(STRICT, "ball")),
        at(LOOSE, "ball").below(at(PARENT, "ball"), times=1.25),
        at(LOOSE, "fixed").at_most(260),
        # Redrawn arms explore by themselves, so optimism needs no design there.
        at(SHUFFLED, "ball").below(at(STRICT, "ball")),
        at(MIDDLE, "ball").below(at(SHUFFLED, "ball")),
        all_below(
            "plain noisy descent loses more than two steps in a released metric",
            rows([LOOSE], "ball", "fixed"),
            rows([PAPER], "ball", "fixed"),
        ),
        all_of(
            "far from uniform play",
            [row.below_uniform(times=0.06) for row in rows([STRICT], "ball", "fixed")],
        ),
        at(LOOSE, "ball").below_uniform(times=0.3, quick=True),
    ),
)
