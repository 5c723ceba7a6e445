"""Who can play: a policy with its trust, its epsilon and its numbers, in a world."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import NamedTuple

from kerchief.core.contracts import Oracle
from kerchief.core.errors import InvalidValueError
from kerchief.core.problems import AnyProblem
from kerchief.core.validate import one_of, positive
from kerchief.deployment.protected_policy import (
    NORMAL,
    ProtectedPolicy,
    build_protected,
    choose_mechanism,
    needs_normal,
)
from kerchief.policies import POLICIES, Mode
from kerchief.privacy.guarantee import Guarantee, Trust
from kerchief.privatizers.protect import Protection
from kerchief.privatizers.registry import BEST, MECHANISMS_OF

YARDSTICKS = ("uniform", "greedy", "single-arm")
"""Policies that play without protection, asked for or not, in every plan whose worlds they fit."""


def needs_best_arm(name: str) -> bool:
    """Whether a yardstick must be told which single arm is the best, which few worlds say.

    >>> [needs_best_arm(name) for name in YARDSTICKS]
    [False, False, True]
    """
    return any(issubclass(kind, Oracle) for kind in POLICIES[name].kinds)


FLAGS = {
    Trust.JOINT: "continual",
    Trust.SHUFFLE: "shuffling",
    Trust.LOCAL: "randomizer",
    Trust.CENTRAL: "curator",
}
"""Which flag says the word for a trust's noise."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Player:
    """A policy as it plays: its name, whom users trust, and the numbers that it runs with.

    Its fields are the arguments of `player`, checked; without protection epsilon is infinite.
    """

    policy: str
    trust: Trust = Trust.NONE
    epsilon: float = math.inf
    mode: Mode = "tuned"
    mechanism: str = BEST
    numbers: tuple[tuple[str, float], ...] = ()

    @property
    def name(self) -> str:
        """The policy, and what is special about this one; yardsticks have no widths."""
        mode = [] if self.mode == "tuned" or self.policy in YARDSTICKS else [self.mode]
        return " ".join(
            [self.policy, *mode, *(f"{name}={value:g}" for name, value in self.numbers)]
        )

    @property
    def protection(self) -> str:
        """The trust, and its noise where it is not the default."""
        return str(self.trust) if self.mechanism == BEST else f"{self.trust}, {self.mechanism}"

    def lacks_proof(self, delta: float) -> bool:
        """Whether widths from the theory are played with noise for which they are not proved.

        No normal noise keeps a delta of 0.
        """
        lacks_normal_noise = delta == 0 or self.mechanism not in (BEST, NORMAL)
        return (
            self.mode == "theory"
            and lacks_normal_noise
            and needs_normal(POLICIES[self.policy], self.trust)
        )

    def label(self) -> str:
        """A few words for progress bars, legends and claims.

        >>> player("linucb", trust="joint", epsilon=1, mechanism="tree", exploration=2.0).label()
        'linucb exploration=2 joint, tree ε=1'
        >>> player("linucb", mode="theory").label()
        'linucb theory not private'
        >>> player("single-arm").label()
        'single-arm not private'
        """
        if self.trust is Trust.NONE:
            return self.name if self.policy == "uniform" else f"{self.name} not private"
        return f"{self.name} {self.protection} ε={self.epsilon:g}"

    def promise(self, delta: float, horizon: int) -> Protection:
        """What is promised, and by which noise."""
        private = self.trust is not Trust.NONE
        guarantee = Guarantee(
            epsilon=self.epsilon if private else math.inf,
            delta=delta if private else 0.0,
            trust=self.trust,
            rounds=horizon,
        )
        return Protection(guarantee=guarantee, mechanism=self.mechanism)

    def build_protected(self, problem: AnyProblem, protection: Protection) -> ProtectedPolicy:
        """Build the policy for a problem, and protect it."""
        return build_protected(
            self.policy, problem, protection, mode=self.mode, numbers=dict(self.numbers)
        )

    def word(self, trust: Trust) -> str:
        """The word of the flag of a trust: this player's, if the trust is its own."""
        return self.mechanism if self.trust is trust else BEST

    def parents(self) -> tuple[Player, ...]:
        """The non-private bandit behind a protected one: tuned, and with widths of its own kind."""
        if self.trust is Trust.NONE:
            return ()
        parent, modes = POLICIES[self.policy].parent, dict.fromkeys(("tuned", self.mode))
        return tuple(player(parent, mode=mode) for mode in modes)


def player(
    policy: str,
    *,
    trust: str = "none",
    epsilon: float = math.inf,
    mode: Mode = "tuned",
    mechanism: str | None = None,
    **numbers: float,
) -> Player:
    """Name a player in one line; `best` is the bandit that needs no knowledge of the arms.

    Widths are `tuned`, or from the `theory`. The mechanism is a word of the trust's noise; by
    default the bandit's own, `best` of its trust, or that of the paper for a paper's own
    version. `numbers` are parameters of the policy that are replaced.

    >>> player("linucb", trust="joint", epsilon=1.0, exploration=2.0).numbers
    (('exploration', 2.0),)
    >>> player("linucb@paper", trust="local", epsilon=1.0).label()
    'linucb@paper local, gaussian ε=1'
    """
    if not isinstance(policy, str):
        raise InvalidValueError(f"policy is a {type(policy).__name__}; give a bandit's name")
    for name, value in numbers.items():
        if isinstance(value, str):
            raise InvalidValueError(
                f"{name} is {value!r}, and only numbers are replaced; give a word for the noise as "
                f"mechanism={value!r}"
            )
    trusted = Trust(one_of("trust", trust, tuple(Trust)))
    mechanism_name = choose_mechanism(POLICIES[policy], trusted) if mechanism is None else mechanism
    MECHANISMS_OF[trusted][mechanism_name]
    return Player(
        policy=POLICIES.resolve_alias(policy),
        trust=trusted,
        epsilon=positive("epsilon", epsilon, infinite=True),
        mode=mode,
        mechanism=mechanism_name,
        numbers=tuple(sorted(numbers.items())),
    )


def ladder(
    policy: str, trust: str, epsilons: Iterable[float], *, mechanism: str | None = None
) -> tuple[Player, ...]:
    """Name one policy at several epsilons."""
    return tuple(player(policy, trust=trust, epsilon=e, mechanism=mechanism) for e in epsilons)


class Key(NamedTuple):
    """What a result is found by: a player in a world."""

    player: Player
    world: str

    def __str__(self) -> str:
        """The player and the world, such as "uniform on fixed"."""
        return f"{self.player.label()} on {self.world}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cell:
    """A player in a world, with all that a run needs.

    In a comparison the name of the world may be where arms come from.
    """

    player: Player
    world: str
    delta: float
    horizon: int

    @property
    def key(self) -> Key:
        """What its result is found by."""
        return Key(self.player, self.world)

    @property
    def asked(self) -> tuple[float, float] | None:
        """Epsilon and delta asked for, or None where no privacy is."""
        return None if self.player.trust is Trust.NONE else (self.player.epsilon, self.delta)

    @property
    def guarantee(self) -> Guarantee:
        """The promise."""
        return self.player.promise(self.delta, self.horizon).guarantee

    def label(self) -> str:
        """The player in a few words."""
        return self.player.label()
