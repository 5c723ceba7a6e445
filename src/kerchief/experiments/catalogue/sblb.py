"""Shuffle-batched linear bandits: as published and repaired, their bits, batches and promises."""

from __future__ import annotations

import dataclasses

from kerchief.core.problems import AnyProblem
from kerchief.environments.worlds import make_environment
from kerchief.experiments.catalogue.worlds import by_number, names
from kerchief.experiments.claims import all_below, all_of, at, each_at_most, falling, rows
from kerchief.experiments.experiment import Size, enter
from kerchief.experiments.players import Player, ladder, player
from kerchief.policies import POLICIES, Terms
from kerchief.policies.linear.sblb import Mended
from kerchief.privatizers.protect import Protection, protect
from kerchief.roles.arrange import Arranged

__all__ = ["LENGTH", "LOCAL", "REGRET", "WIRES", "Paced", "paced"]

SETTINGS = by_number(
    "d", (2, 5), lambda dim: make_environment(contexts="orthant", dim=dim, arms=10)
)
WORLDS = WORLD, _ = names(SETTINGS)
UNIFORM = player("uniform")

# As published, and repaired, with one bit and with many.
MANY, FEW, ONE, COINS = (
    ladder("sblb", "shuffle", (0.2, 1.0, 5.0), mechanism=word)
    for word in ("bits", "byte", "bit", "best")
)
PAPER = tuple(
    player(name, trust="shuffle", epsilon=1.0, mechanism="bit")
    for name in ("sblb@paper", "sblb-fixed@paper")
)

enter(
    name="sblb",
    title="Shuffle-batched linear bandits, as published and repaired",
    summary="randomized bits behind a shuffler: one bit, many bits, coins",
    source="Garcelon et al. 2022",
    settings=SETTINGS,
    players=(*MANY, *FEW, *ONE, *COINS, *PAPER),
    full=Size(horizon=20_000, replicates=200),
    quick=Size(horizon=2500, replicates=16, settings=("d=2",), players=(MANY[2], COINS[2])),
    claims=(
        *each_at_most(rows(MANY, *WORLDS), (700, 250, 215, 1500, 400, 285)),
        *(falling(rows(MANY, world)) for world in WORLDS),
        all_below(
            "more bits lose less at epsilon 1 and 5",
            rows(MANY[1:], *WORLDS),
            rows(ONE[1:], *WORLDS),
        ),
        all_of(
            "with the paper's widths it loses more than half of what uniform play loses",
            [at(UNIFORM, row.world).below(row, times=2) for row in rows(PAPER, *WORLDS)],
        ),
        all_below(
            "coins lose no more than bits, up to errors",
            rows(COINS[1:], *WORLDS),
            rows(MANY[1:], *WORLDS),
            times=1.25,
        ),
        at(MANY[2], "d=2").below_uniform(times=0.22, quick=True),
    ),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Paced(Player):
    """The repaired shuffle-batched bandit on equal batches; their length is one of its numbers."""

    def arrange(self, problem: AnyProblem, protection: Protection) -> Arranged:
        """Build it from public facts alone, give it its batches, and protect it."""
        length, promise = int(dict(self.numbers)["length"]), protection.guarantee
        terms = Terms(epsilon=promise.epsilon, delta=promise.delta)
        usual = POLICIES[self.policy].build(problem, self.mode, terms)
        assert isinstance(usual, Mended)
        batches = tuple(range(length, problem.horizon + 1, length))
        policy = dataclasses.replace(usual, query=dataclasses.replace(usual.query, batches=batches))
        privatizers = protect(policy, protection, horizon=problem.horizon)
        return Arranged(policy=policy, privatizers=privatizers)


def paced(length: int, *, epsilon: float, mechanism: str) -> Paced:
    """Name it: so many users per batch, and the word for its bits."""
    usual = player("sblb", trust="shuffle", epsilon=epsilon, mechanism=mechanism, length=length)
    return Paced(**vars(usual))


# How long a batch of shuffled bits should be, and how many bits it should have.
BY_LENGTH = tuple(paced(length, epsilon=1.0, mechanism="bits") for length in (100, 400, 1600, 6400))
BIT, BYTE = (paced(400, epsilon=1.0, mechanism=word) for word in ("bit", "byte"))
GROWING = MANY[1]

enter(
    name="sblb-batches",
    title="Shuffled bits: how many users per batch, how many bits per number",
    summary="equal batches of 100 to 6400 users, 1 to 64 bits, beside batches that grow",
    source="Garcelon et al. 2022, the parameters l and m of Algorithm 1",
    settings=SETTINGS[:1],
    players=(*BY_LENGTH, BIT, BYTE, GROWING),
    full=Size(horizon=20_000, replicates=200),
    quick=Size(horizon=2500, replicates=16, players=(BY_LENGTH[1],)),
    claims=(
        at(BY_LENGTH[1], WORLD).below_uniform(times=0.15),
        # Nobody learns before the first batch ends, and every batch has noise of its own.
        all_of(
            "batches of 6400 lose at least twice as much as those of 400 or 1600, or that grow",
            [
                row.below(at(BY_LENGTH[3], WORLD), times=0.5)
                for row in rows((*BY_LENGTH[1:3], GROWING), WORLD)
            ],
        ),
        at(BY_LENGTH[1], WORLD).below(at(BY_LENGTH[0], WORLD)),
        at(BY_LENGTH[1], WORLD).below(at(BIT, WORLD), times=0.7),
        at(BY_LENGTH[1], WORLD).below_uniform(times=0.4, quick=True),
    ),
    panels=("rounds",),
)

# Table 1: tuned for the device's promise, or for regret.
#
# With one bit per coordinate and equal batches, one keep parameter decides both what a report tells
# by itself and what the sums of a batch tell. Players are named by the second, the ε of the
# shuffler's output and of the models made from it; `WIRES` says the first. `BitSums.views` states
# all three.
LENGTH = 250
# Tuned for the wire: what is asked of the sums is what a local ε of 1 or of 5 makes of them.
LOCAL = tuple(paced(LENGTH, epsilon=epsilon, mechanism="bit") for epsilon in (0.048, 0.478))
# Tuned for regret: what is asked of the sums is the promise, and the wire gets what is left.
REGRET = paced(LENGTH, epsilon=1.0, mechanism="bit")
# With many bits the wire promises nothing.
BITS = paced(LENGTH, epsilon=1.0, mechanism="bits")

WIRES = {LOCAL[0]: 1.0, LOCAL[1]: 5.0, REGRET: 6.4}
"""The local ε of a device's own bits, at most."""

enter(
    name="sblb-settings",
    title="Shuffled bits, tuned for the device's promise or for regret",
    summary="one bit, batches of 250: a local ε of 1 or 5, or an ε of 1 for the sums",
    source="Garcelon et al. 2022, Table 1 (Corollaries 7 and 8)",
    settings=SETTINGS[:1],
    players=(*LOCAL, REGRET, BITS),
    full=Size(horizon=20_000, replicates=200),
    quick=Size(horizon=2500, replicates=16, players=(BITS,)),
    claims=(
        falling(rows((*LOCAL, BITS), WORLD)),
        at(REGRET, WORLD).below(at(LOCAL[0], WORLD), times=0.7),
        at(BITS, WORLD).below(at(REGRET, WORLD), times=0.6),
        # A local ε of 1 leaves next to nothing to learn from.
        at(UNIFORM, WORLD).below(at(LOCAL[0], WORLD), times=2),
        at(BITS, WORLD).below_uniform(times=0.2),
        at(BITS, WORLD).below_uniform(times=0.4, quick=True),
    ),
    panels=("rounds",),
)
