"""LinUCB at one guarantee under every trust: what each further step of distrust costs."""

from __future__ import annotations

from functools import partial

from kerchief.environments.worlds import make_environment
from kerchief.experiments.claims import at, at_most, below, falling
from kerchief.experiments.experiment import Experiment, Setting, Size, enter
from kerchief.experiments.players import player

__all__ = ["EXPERIMENT"]

WORLDS = ("ball", "fixed")
UNIFORM, PARENT = player("uniform"), player("linucb")
JOINT, CENTRAL, SHUFFLE, LOCAL = (
    player("linucb", trust=trust, epsilon=1.0) for trust in ("joint", "central", "shuffle", "local")
)
BATCHED = tuple(
    player("elimination", trust=trust, epsilon=1.0) for trust in ("central", "shuffle", "local")
)

EXPERIMENT = enter(
    Experiment(
        name="trust-ladder",
        title="The price of trusting fewer people, at one guarantee",
        summary="LinUCB and elimination at epsilon 1 under every trust",
        source="kerchief",
        settings=tuple(
            Setting(name=world, make=partial(make_environment, contexts=world, dim=5, arms=20))
            for world in WORLDS
        ),
        players=(JOINT, CENTRAL, SHUFFLE, LOCAL, *BATCHED),
        delta=1e-5,
        full=Size(horizon=10_000, replicates=100),
        quick=Size(horizon=1000, replicates=16, settings=("ball",), players=(PARENT, JOINT)),
        claims=(
            falling([at(one, "fixed") for one in (LOCAL, JOINT, PARENT)]),
            # Optimism that learns in batches plays one arm for long: no better than local trust.
            below(at(CENTRAL, "fixed"), at(LOCAL, "fixed"), times=1.3, errors=2),
            # Redrawn arms explore by themselves: there, joint and central are too close to order.
            falling([at(one, "ball") for one in (LOCAL, CENTRAL, PARENT)]),
            below(at(JOINT, "ball"), at(CENTRAL, "ball"), times=1.35),
            # Coins are as good as a curator's noise, so the order is one up to errors.
            below(at(CENTRAL, "ball"), at(SHUFFLE, "ball"), times=1.2),
            below(at(BATCHED[0], "fixed"), at(BATCHED[1], "fixed"), times=2),
            below(at(SHUFFLE, "ball"), at(LOCAL, "ball"), times=0.25),
            below(at(BATCHED[1], "fixed"), at(BATCHED[2], "fixed"), times=0.5),
            below(at(BATCHED[1], "fixed"), at(SHUFFLE, "fixed")),
            at_most(at(SHUFFLE, "ball"), 450),
            at_most(at(JOINT, "ball"), 450),
            at_most(at(JOINT, "fixed"), 600),
            below(at(PARENT, "ball"), at(JOINT, "ball"), quick=True),
            below(at(JOINT, "ball"), at(UNIFORM, "ball"), times=0.5, quick=True),
        ),
        panels=("rounds",),
    )
)
