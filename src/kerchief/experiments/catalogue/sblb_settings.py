"""Table 1 of the shuffle-batched bandits: tuned for the device's promise, or for regret.

With one bit per coordinate and equal batches, one keep parameter decides both what a report tells
by itself and what the sums of a batch tell. Players are named by the second, the ε of the
shuffler's output and of the models made from it; `WIRES` says the first. `BitSums.views` states
all three.
"""

from __future__ import annotations

from functools import partial

from kerchief.environments.worlds import make_environment
from kerchief.experiments.catalogue.sblb_batches import paced
from kerchief.experiments.claims import at, below, falling
from kerchief.experiments.experiment import Experiment, Setting, Size, enter
from kerchief.experiments.players import player

__all__ = ["EXPERIMENT", "LENGTH", "WIRES"]

WORLD = "d=2"
LENGTH = 250
# Tuned for the wire: what is asked of the sums is what a local ε of 1 or of 5 makes of them.
LOCAL = tuple(paced(LENGTH, epsilon=epsilon, mechanism="bit") for epsilon in (0.048, 0.478))
# Tuned for regret: what is asked of the sums is the promise, and the wire gets what is left.
REGRET = paced(LENGTH, epsilon=1.0, mechanism="bit")
# With many bits the wire promises nothing.
BITS = paced(LENGTH, epsilon=1.0, mechanism="bits")
UNIFORM = player("uniform")

WIRES = {LOCAL[0]: 1.0, LOCAL[1]: 5.0, REGRET: 6.4}
"""The local ε of a device's own bits, at most."""

EXPERIMENT = enter(
    Experiment(
        name="sblb-settings",
        title="Shuffled bits, tuned for the device's promise or for regret",
        summary="one bit, batches of 250: a local ε of 1 or 5, or an ε of 1 for the sums",
        source="Garcelon et al. 2022, Table 1 (Corollaries 7 and 8)",
        settings=(
            Setting(name=WORLD, make=partial(make_environment, contexts="orthant", dim=2, arms=10)),
        ),
        players=(*LOCAL, REGRET, BITS),
        delta=1e-5,
        full=Size(horizon=20_000, replicates=200),
        quick=Size(horizon=2500, replicates=16, players=(BITS,)),
        claims=(
            falling([at(one, WORLD) for one in (*LOCAL, BITS)]),
            below(at(REGRET, WORLD), at(LOCAL[0], WORLD), times=0.7),
            below(at(BITS, WORLD), at(REGRET, WORLD), times=0.6),
            # A local ε of 1 leaves next to nothing to learn from.
            below(at(UNIFORM, WORLD), at(LOCAL[0], WORLD), times=2),
            below(at(BITS, WORLD), at(UNIFORM, WORLD), times=0.2),
            below(at(BITS, WORLD), at(UNIFORM, WORLD), times=0.4, quick=True),
        ),
        panels=("rounds",),
    )
)
