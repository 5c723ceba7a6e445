"""Linear bandits: what each trust costs, and what the noise of a shuffler is worth."""

from __future__ import annotations

from kerchief.experiments.catalogue.worlds import by_contexts
from kerchief.experiments.claims import all_below, all_of, at, each_at_most, falling, rows
from kerchief.experiments.experiment import Size, enter
from kerchief.experiments.players import ladder, player

__all__ = ["JOINT", "OPTIMISM"]

EPSILONS = (0.2, 1.0, 10.0)
UNIFORM, PARENT = player("uniform"), player("linucb")

# LinUCB at one guarantee under every trust: what each further step of distrust costs.
CURATED, CENTRAL, SHUFFLE, LOCAL = (
    player("linucb", trust=trust, epsilon=1.0) for trust in ("joint", "central", "shuffle", "local")
)
BATCHED = tuple(
    player("elimination", trust=trust, epsilon=1.0) for trust in ("central", "shuffle", "local")
)

enter(
    name="trust-ladder",
    title="The price of trusting fewer people, at one guarantee",
    summary="LinUCB and elimination at epsilon 1 under every trust",
    source="kerchief",
    settings=by_contexts("ball", "fixed", dim=5, arms=20),
    players=(CURATED, CENTRAL, SHUFFLE, LOCAL, *BATCHED),
    full=Size(horizon=10_000, replicates=100),
    quick=Size(horizon=1000, replicates=16, settings=("ball",), players=(PARENT, CURATED)),
    claims=(
        falling(rows((LOCAL, CURATED, PARENT), "fixed")),
        # Optimism that learns in batches plays one arm for long: no better than local trust.
        at(CENTRAL, "fixed").below(at(LOCAL, "fixed"), times=1.3, errors=2),
        # Redrawn arms explore by themselves: there, joint and central are too close to order.
        falling(rows((LOCAL, CENTRAL, PARENT), "ball")),
        at(CURATED, "ball").below(at(CENTRAL, "ball"), times=1.35),
        # Coins are as good as a curator's noise, so the order is one up to errors.
        at(CENTRAL, "ball").below(at(SHUFFLE, "ball"), times=1.2),
        at(BATCHED[0], "fixed").below(at(BATCHED[1], "fixed"), times=2),
        at(SHUFFLE, "ball").below(at(LOCAL, "ball"), times=0.25),
        at(BATCHED[1], "fixed").below(at(BATCHED[2], "fixed"), times=0.5),
        at(BATCHED[1], "fixed").below(at(SHUFFLE, "fixed")),
        at(SHUFFLE, "ball").at_most(450),
        at(CURATED, "ball").at_most(450),
        at(CURATED, "fixed").at_most(600),
        at(PARENT, "ball").below(at(CURATED, "ball"), quick=True),
        at(CURATED, "ball").below_uniform(times=0.5, quick=True),
    ),
    panels=("rounds",),
)

# LinUCB under joint trust, at three epsilons, on redrawn and on fixed arms.
JOINT = ladder("linucb", "joint", EPSILONS)

enter(
    name="joint-linucb",
    title="LinUCB with a trusted curator who publishes after every user",
    summary="what joint trust costs LinUCB at three epsilons",
    source="Shariff and Sheffet 2018",
    settings=by_contexts("intercept", "fixed", dim=5, arms=100),
    players=JOINT,
    full=Size(horizon=20_000, replicates=200),
    quick=Size(horizon=1000, replicates=16, settings=("intercept",), players=JOINT),
    claims=(
        *each_at_most(rows(JOINT, "intercept"), (2600, 820, 150)),
        all_of(
            "every private row stays below uniform play",
            [row.below_uniform() for row in rows(JOINT, "intercept", "fixed")],
        ),
        at(JOINT[2], "intercept").below_uniform(times=0.3, quick=True),
        falling(rows(JOINT, "intercept"), quick=True),
        falling(rows(JOINT, "fixed")),
    ),
)

# LinUCB and batched elimination behind a shuffler, at three epsilons.
OPTIMISM = ladder("linucb", "shuffle", EPSILONS)
DESIGN = ladder("elimination", "shuffle", EPSILONS)

enter(
    name="shuffle-linucb",
    title="Shuffled batches: optimism on redrawn arms, elimination on fixed ones",
    summary="LinUCB and elimination behind a shuffler, growing batches",
    source="Chowdhury and Zhou 2022",
    settings=by_contexts("intercept", "fixed", dim=5, arms=100),
    players=(*OPTIMISM, *DESIGN),
    full=Size(horizon=20_000, replicates=100),
    quick=Size(horizon=1500, replicates=16, settings=("intercept",), players=OPTIMISM[1:]),
    claims=(
        *each_at_most(rows(OPTIMISM, "intercept"), (2300, 540, 210)),
        *each_at_most(rows(DESIGN, "fixed"), (4600, 1080, 420)),
        falling(rows(OPTIMISM, "intercept")),
        falling(rows(DESIGN, "fixed")),
        falling(rows(OPTIMISM[1:], "intercept"), quick=True),
        all_below(
            "on fixed arms elimination loses less than optimism, at epsilon 1 and 10",
            rows(DESIGN[1:], "fixed"),
            rows(OPTIMISM[1:], "fixed"),
        ),
        all_of(
            "every private row stays below uniform play",
            [row.below_uniform() for row in rows((*OPTIMISM, *DESIGN), "intercept", "fixed")],
        ),
        at(OPTIMISM[2], "intercept").below_uniform(times=0.2, quick=True),
    ),
)

# The noise of the shuffled sum beside a curator's and beside the published constants.
CURATOR = player("elimination", trust="central", epsilon=1.0)
COINS, BITS, THEOREM = (
    player("elimination", trust="shuffle", epsilon=1.0, mechanism=word)
    for word in ("best", "byte", "theorem")
)

enter(
    name="shuffle-noise",
    title="Four noises for one promise",
    summary="a curator's noise, coins, randomized bits, and coins by the published constants",
    source="Cheu et al. 2022; `kerchief calibrate --trust shuffle` shows the deviations",
    settings=by_contexts("ball", "fixed", dim=5, arms=20),
    players=(CURATOR, COINS, BITS, THEOREM),
    full=Size(horizon=10_000, replicates=100),
    quick=Size(horizon=1500, replicates=16, settings=("ball",), players=(COINS,)),
    claims=(
        at(CURATOR, "ball").below(at(COINS, "ball"), times=1.15),
        at(COINS, "ball").below(at(CURATOR, "ball"), times=1.25),
        at(COINS, "ball").below(at(BITS, "ball"), times=1.1),
        # The published constants leave nothing to learn from.
        at(UNIFORM, "ball").below(at(THEOREM, "ball"), times=1.25),
        at(COINS, "ball").at_most(550),
        at(COINS, "fixed").at_most(800),
        at(COINS, "ball").below_uniform(times=0.6, quick=True),
    ),
    panels=("rounds",),
)
