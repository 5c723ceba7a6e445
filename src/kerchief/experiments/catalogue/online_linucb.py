"""Online-to-confidence LinUCB: the figure's setting, with what its printed noise really spends.

The printed noise protects features and rewards one by one. For the pair it is what Gaussian noise
is at another, larger ε: so playing at that ε shows what the printed noise gives, and the ledger
what it costs. Everything else plays at equal, really spent guarantees.
"""

from __future__ import annotations

from functools import partial

from kerchief.environments.worlds import make_environment
from kerchief.experiments.claims import all_of, at, at_most, below, falling
from kerchief.experiments.experiment import Experiment, Setting, Size, enter
from kerchief.experiments.players import player
from kerchief.privacy.printed import printed_epsilon

__all__ = ["EXPERIMENT"]

DELTA = 0.1
WORLDS = ("intercept", "fixed")
UNIFORM, PARENT, PUBLISHED = (
    player("uniform"),
    player("online-linucb"),
    player("online-linucb", mode="theory"),
)
EPSILONS = (0.2, 1.0, 10.0)
ONLINE, MALER, COMBINER, PAIRS, DIRECT = (
    tuple(player(name, trust="local", epsilon=e) for e in EPSILONS)
    for name in ("online-linucb", "online-linucb-maler", "combiner", "linucb-pairs", "linucb")
)
JOINT = tuple(player("linucb", trust="joint", epsilon=e) for e in EPSILONS)
NORMAL = player("online-linucb", trust="local", epsilon=10.0, mechanism="gaussian")
ANYTIME, PAPER = (
    player(name, trust="local", epsilon=10.0)
    for name in ("online-linucb-anytime", "online-linucb@paper")
)
# What the noise printed for epsilon 1 and 10 really spends, for rewards in [0, 1]; that for 0.2 is
# so large that nothing is spent beyond delta.
PRINTED = tuple(
    player(
        "online-linucb",
        trust="local",
        epsilon=printed_epsilon(nominal, DELTA, 1.0),
        mechanism="gaussian",
    )
    for nominal in (1.0, 10.0)
)

PRIVATE = (
    *ONLINE,
    NORMAL,
    *MALER,
    ANYTIME,
    *COMBINER,
    *PAIRS,
    *DIRECT,
    PAPER,
    *JOINT,
    *PRINTED,
)

EXPERIMENT = enter(
    Experiment(
        name="online-linucb",
        title="Online-to-confidence LinUCB under local trust",
        summary="what the printed noise gives and really spends, and all at equal guarantees",
        source="the TMLR submission on LDP linear bandits, Figure 1",
        settings=tuple(
            Setting(name=world, make=partial(make_environment, contexts=world, dim=5, arms=100))
            for world in WORLDS
        ),
        players=PRIVATE,
        delta=DELTA,
        full=Size(
            horizon=20_000,
            replicates=100,
            players=(
                PARENT,
                PUBLISHED,
                player("linucb"),
                player("linucb", mode="theory"),
                *PRIVATE,
            ),
        ),
        quick=Size(horizon=2000, replicates=16, settings=("intercept",), players=(ONLINE[2],)),
        claims=(
            at_most(at(NORMAL, "intercept"), 1416),
            *(
                at_most(at(one, "intercept"), 700)
                for one in (ONLINE[2], MALER[2], COMBINER[2], PAIRS[2])
            ),
            below(at(PAIRS[2], "intercept"), at(ONLINE[2], "intercept")),
            below(at(JOINT[2], "intercept"), at(NORMAL, "intercept"), times=0.5),
            *(
                falling([at(one, "intercept") for one in row], errors=2.0)
                for row in (ONLINE, JOINT)
            ),
            all_of(
                "with the paper's constants it does not learn",
                [below(at(UNIFORM, world), at(PAPER, world), times=1.5) for world in WORLDS],
            ),
            below(at(ONLINE[2], "intercept"), at(UNIFORM, "intercept"), times=0.4, quick=True),
        ),
    )
)
