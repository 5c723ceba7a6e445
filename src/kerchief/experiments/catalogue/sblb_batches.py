"""How long a batch of shuffled bits should be, and how many bits it should have."""

from __future__ import annotations

import dataclasses
from functools import partial

from kerchief.core.problems import AnyProblem
from kerchief.environments.worlds import make_environment
from kerchief.experiments.claims import all_of, at, below
from kerchief.experiments.experiment import Experiment, Setting, Size, enter
from kerchief.experiments.players import Player, player
from kerchief.policies import POLICIES, Terms
from kerchief.policies.linear.sblb import Mended
from kerchief.privatizers.protect import Protection, protect
from kerchief.roles.arrange import Arranged

__all__ = ["EXPERIMENT", "Paced", "paced"]


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


WORLD = "d=2"
LENGTHS = (100, 400, 1600, 6400)
EPSILON = 1.0
BY_LENGTH = tuple(paced(length, epsilon=EPSILON, mechanism="bits") for length in LENGTHS)
BY_BITS = tuple(paced(400, epsilon=EPSILON, mechanism=word) for word in ("bit", "byte", "bits"))
GROWING = player("sblb", trust="shuffle", epsilon=EPSILON, mechanism="bits")
UNIFORM = player("uniform")

EXPERIMENT = enter(
    Experiment(
        name="sblb-batches",
        title="Shuffled bits: how many users a batch, how many bits a number",
        summary="equal batches of 100 to 6400 users, 1 to 64 bits, beside batches that grow",
        source="Garcelon et al. 2022, the parameters l and m of Algorithm 1",
        settings=(
            Setting(name=WORLD, make=partial(make_environment, contexts="orthant", dim=2, arms=10)),
        ),
        players=(*BY_LENGTH, *BY_BITS[:2], GROWING),
        delta=1e-5,
        full=Size(horizon=20_000, replicates=200),
        quick=Size(horizon=2500, replicates=16, players=(BY_LENGTH[1],)),
        claims=(
            below(at(BY_LENGTH[1], WORLD), at(UNIFORM, WORLD), times=0.15),
            # Nobody learns before the first batch ends, and every batch has noise of its own.
            all_of(
                "batches of 6400 lose at least twice as much as those of 400 or 1600, or that grow",
                [
                    below(at(one, WORLD), at(BY_LENGTH[3], WORLD), times=0.5)
                    for one in (*BY_LENGTH[1:3], GROWING)
                ],
            ),
            below(at(BY_LENGTH[1], WORLD), at(BY_LENGTH[0], WORLD)),
            below(at(BY_BITS[2], WORLD), at(BY_BITS[0], WORLD), times=0.7),
            below(at(BY_LENGTH[1], WORLD), at(UNIFORM, WORLD), times=0.4, quick=True),
        ),
        panels=("rounds",),
    )
)
