"""Linear bandits: what each trust costs, and what the noise of a shuffler is worth."""

from __future__ import annotations

from kerchief.comparison.players import ladder, player
from kerchief.papers.catalogue.worlds import by_contexts, size
from kerchief.papers.claims import all_of, at, falling, rows
from kerchief.papers.experiment import enter

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
    sizes="No paper prints this: five dimensions, 20 arms, 10000 rounds and epsilon 1 are ours.",
    claimed="Papers on each trust claim T^(3/4), T^(3/5) and √T for local, shuffle and joint "
    "trust, each with widths and guarantees of its own.",
    holds="At one guarantee local trust costs most. On redrawn arms the other trusts are alike; "
    "on fixed ones optimism in batches loses more than twice what joint trust loses.",
    settings=by_contexts(
        "ball",
        "fixed",
        dim=5,
        arms=20,
        players={"ball": (CURATED, CENTRAL, SHUFFLE, LOCAL, *BATCHED[:2])},
    ),
    players=(CURATED, CENTRAL, SHUFFLE, LOCAL, *BATCHED),
    full=size(10_000, 100),
    quick=size(1000, 24, "ball", players=(PARENT, CURATED, CENTRAL, LOCAL)),
    claims=(
        all_of(
            "on fixed arms regret falls from local to joint trust and to none, and optimism in "
            "batches, which plays one arm for long, loses at most 1.3 times what local trust loses",
            falling(rows((LOCAL, CURATED, PARENT), "fixed")),
            at(CENTRAL, "fixed").below(LOCAL, times=1.3, errors=2),
        ),
        # Coins are as good as a curator's noise, so the order is one up to errors.
        all_of(
            "coins are as good as a curator's noise, up to errors",
            at(CENTRAL, "ball").below(SHUFFLE, times=1.2),
            at(SHUFFLE, "ball").below(LOCAL, times=0.25),
            at(BATCHED[0], "fixed").below(BATCHED[1], times=2),
        ),
        all_of(
            "behind a shuffler elimination loses less than optimism and less than local trust",
            at(BATCHED[1], "fixed").below(BATCHED[2], times=0.5),
            at(BATCHED[1], "fixed").below(SHUFFLE),
        ),
        all_of(
            "optimism keeps these bounds, and under joint trust loses less than 1.35 times what it "
            "loses under central trust, on redrawn arms",
            at(CURATED, "ball").below(CENTRAL, times=1.35),
            at(SHUFFLE, "ball").at_most(450),
            at(CURATED, "ball").at_most(450),
            at(CURATED, "fixed").at_most(600),
        ),
        # Redrawn arms explore by themselves: there, joint and central are too close to order.
        falling(rows((LOCAL, CENTRAL, PARENT), "ball"), quick=True),
        at(CURATED, "ball").below(LOCAL, times=0.9, quick=True),
        at(PARENT, "ball").below(CURATED, times=0.6, quick=True),
        at(PARENT, "ball").below(CENTRAL, times=0.6, quick=True),
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
    sizes="Shariff and Sheffet plot other worlds; arms, dimension, rounds and epsilons are those "
    "of the TMLR submission's figure, at a delta of 1e-5.",
    claimed="Joint trust costs a term of √T/ε beside LinUCB's own √T.",
    holds="With continual noise for the exact sensitivity regret at epsilon 10 stays below a tenth "
    "of uniform play, and at 0.2 below three tenths.",
    settings=by_contexts("intercept", "fixed", dim=5, arms=100),
    players=JOINT,
    full=size(20_000, 200),
    quick=size(1000, 16, "intercept", players=(PARENT, *JOINT)),
    claims=(
        all_of("regret keeps these bounds", *rows(JOINT, "intercept").at_most((2600, 820, 150))),
        all_of(
            "every private row stays below uniform play",
            *rows(JOINT, "intercept", "fixed").below_uniform(),
        ),
        falling(rows(JOINT, "fixed")),
        # Privacy has a cost at epsilon 10, and a bounded one.
        at(PARENT, "intercept").below(JOINT[2], times=0.6, quick=True),
        at(JOINT[2], "intercept").below(PARENT, times=7, quick=True),
        falling(rows(JOINT, "intercept"), quick=True),
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
    sizes="100 arms, d = 5 and 20000 rounds are theirs; batches grow here, and elimination, "
    "which they do not have, plays along.",
    claimed="Shuffled batches lose T^(3/5), between local and joint trust.",
    holds="On redrawn arms optimism loses less than a tenth of uniform play at epsilon 1. On fixed "
    "arms it plays one arm for long, and elimination loses less at epsilon 1 and 10.",
    settings=by_contexts(
        "intercept", "fixed", dim=5, arms=100, players={"intercept": (*OPTIMISM, DESIGN[1])}
    ),
    players=(*OPTIMISM, *DESIGN),
    full=size(20_000, 100),
    quick=size(1500, 16, "intercept", players=(PARENT, *OPTIMISM)),
    claims=(
        all_of(
            "both keep these bounds",
            *rows(OPTIMISM, "intercept").at_most((2300, 540, 210)),
            *rows(DESIGN, "fixed").at_most((4600, 1080, 450)),
        ),
        falling(rows(DESIGN, "fixed")),
        all_of(
            "on fixed arms elimination loses less than optimism, at epsilon 1 and 10",
            *rows(DESIGN[1:], "fixed").below(rows(OPTIMISM[1:], "fixed")),
        ),
        all_of(
            "every private row stays below uniform play",
            *(
                row.below_uniform()
                for row in (
                    *rows((*OPTIMISM, DESIGN[1]), "intercept"),
                    *rows((*OPTIMISM, *DESIGN), "fixed"),
                )
            ),
        ),
        falling(rows(OPTIMISM, "intercept"), errors=2.0, quick=True),
        at(OPTIMISM[2], "intercept").below(OPTIMISM[0], times=0.4, quick=True),
        at(PARENT, "intercept").below(OPTIMISM[2], times=0.7, quick=True),
        at(OPTIMISM[2], "intercept").below(PARENT, times=7, quick=True),
    ),
)

# The noise of the shuffled sum beside a curator's and beside the published constants.
CLEAR, CURATOR = player("elimination"), player("elimination", trust="central", epsilon=1.0)
COINS, BITS, THEOREM = (
    player("elimination", trust="shuffle", epsilon=1.0, mechanism=mechanism)
    for mechanism in ("best", "byte", "theorem")
)

enter(
    name="shuffle-noise",
    title="Four noises for one promise",
    summary="a curator's noise, coins, randomized bits, and coins by the published constants",
    source="Cheu et al. 2022; `kerchief calibrate --trust shuffle` shows the deviations",
    sizes="Cheu et al. print no experiment: five dimensions, 20 arms and epsilon 1 are ours.",
    claimed="A shuffled sum has the error of a curator's noise up to logarithms.",
    holds="With exact accounting coins lose at most a quarter more than a curator's noise; with "
    "the published constants nothing is learned.",
    settings=by_contexts("ball", "fixed", dim=5, arms=20, players={"fixed": (CURATOR, COINS)}),
    players=(CURATOR, COINS, BITS, THEOREM),
    full=size(10_000, 100),
    quick=size(1500, 24, "ball", players=(CLEAR, CURATOR, COINS, THEOREM)),
    claims=(
        all_of(
            "coins and a curator's noise are alike, and bits no better",
            at(CURATOR, "ball").below(COINS, times=1.15),
            at(COINS, "ball").below(CURATOR, times=1.25),
            at(COINS, "ball").below(BITS, times=1.1),
        ),
        all_of(
            "coins keep these bounds",
            at(COINS, "ball").at_most(550),
            at(COINS, "fixed").at_most(800),
        ),
        # The published constants leave nothing to learn from.
        at(UNIFORM, "ball").below(THEOREM, times=1.25, quick=True),
        at(COINS, "ball").below(THEOREM, times=0.75, quick=True),
        at(CURATOR, "ball").below(CLEAR, times=2.2, quick=True),
        at(COINS, "ball").below(CURATOR, times=1.35, quick=True),
    ),
    panels=("rounds",),
)
