"""What a comparison plays: the declaration, checked whole before anything runs, and its cells."""

from __future__ import annotations

import dataclasses
import math
import shlex
from collections.abc import Iterable, Iterator

from kerchief.core import validate
from kerchief.core.errors import InvalidValue
from kerchief.core.links import LINKS
from kerchief.core.registry import Registry
from kerchief.environments.worlds import GLMEnvironment, make_environment
from kerchief.mechanisms.blt import MAX_HORIZON
from kerchief.policies import POLICIES, Mode
from kerchief.privacy.guarantee import Guarantee, Trust

__all__ = ["YARDSTICKS", "Cell", "Comparison", "delta_warnings"]

YARDSTICKS = ("uniform", "greedy")
"""Policies that play without protection in every comparison, asked for or not."""

# What one chunk of replicates may hold in arms; a round keeps a handful of arrays of this size.
_MOST_FEATURES = 2**24


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cell:
    """One line of the table: a policy under a guarantee, meeting one kind of contexts."""

    contexts: str
    policy: str
    guarantee: Guarantee

    @property
    def trust(self) -> str:
        """The word of `--trust`."""
        return str(self.guarantee.trust)

    @property
    def asked(self) -> tuple[float, float] | None:
        """Epsilon and delta asked for, or None where no privacy is."""
        if self.guarantee.trust is Trust.NONE:
            return None
        return self.guarantee.epsilon, self.guarantee.delta

    def label(self) -> str:
        """A few words for progress bars and legends.

        >>> Cell(contexts="ball", policy="linucb",
        ...      guarantee=Guarantee(epsilon=1.0, delta=1e-5, trust=Trust.LOCAL)).label()
        'linucb local ε=1'
        """
        if self.asked is None:
            return self.policy if self.policy == "uniform" else f"{self.policy} not private"
        return f"{self.policy} {self.trust} ε={self.asked[0]:g}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
    """Policies x trusts x epsilons, in worlds that differ in their contexts alone.

    Attributes:
        link: how a score becomes an expected reward (`--env`).
        contexts: where arms come from; each is a comparison of its own.
        dim: length of a feature vector.
        arms: the most arms in a round.
        radius: norm of the unknown parameter.
        fewest: the fewest arms in a round; None for always `arms`.
        noise: how rewards fall around their mean.
        horizon: number of rounds.
        policies: bandits by name.
        trusts: the words under which each of them plays.
        epsilons: of the private ones.
        delta: of the private ones.
        replicates: independent runs of each cell.
        seed: of everything random.
        mode: widths `tuned`, or from the `theory`.

    Raises:
        KerchiefError: a value is out of its bound or a name is unknown, in one line.

    >>> small = Comparison(contexts=("ball",), trusts=("local",), epsilons=(1.0,))
    >>> [cell.label() for cell in small.cells()]
    ['uniform', 'greedy not private', 'linucb not private', 'linucb local ε=1']
    >>> Comparison(trusts=("shuffle",))
    Traceback (most recent call last):
    ...
    kerchief.core.errors.InvalidValue: trust is 'shuffle'; policy 'linucb' supports none, local, \
joint, central
    """

    link: str = "linear"
    contexts: tuple[str, ...] = ("ball", "fixed")
    dim: int = 5
    arms: int = 20
    radius: float = 1.0
    fewest: int | None = None
    noise: str = "bernoulli"
    horizon: int = 10_000
    policies: tuple[str, ...] = ("linucb",)
    trusts: tuple[str, ...] = ("local", "joint", "central")
    epsilons: tuple[float, ...] = (0.2, 1.0, 10.0)
    delta: float = 1e-5
    replicates: int = 64
    seed: int = 0
    mode: Mode = "tuned"

    def __post_init__(self) -> None:
        """Check every value."""
        self._check_numbers()
        self._check_names()
        for contexts in self.contexts:
            problem = self.environment(contexts).problem(self.horizon)
            for name in self.policies:
                POLICIES[name].make(problem, self.mode)
        validate.whole("arms", self.arms, high=_MOST_FEATURES // self.dim)

    def cells(self) -> tuple[Cell, ...]:
        """Every cell, yardsticks and non-private parents first, none twice."""
        return tuple(
            dict.fromkeys(
                Cell(contexts=contexts, policy=policy, guarantee=guarantee)
                for contexts in self.contexts
                for policy, guarantee in self._entries()
            )
        )

    def environment(self, contexts: str) -> GLMEnvironment:
        """The world of one kind of contexts."""
        return make_environment(
            link=self.link,
            contexts=contexts,
            dim=self.dim,
            arms=self.arms,
            radius=self.radius,
            fewest=self.fewest,
            noise=self.noise,
        )

    def width(self) -> int:
        """How many replicates may play at once in bounded memory."""
        return max(1, min(self.replicates, _MOST_FEATURES // (self.arms * self.dim)))

    def warnings(self) -> tuple[str, ...]:
        """What is allowed but should not pass unseen, a line each."""
        return delta_warnings(self.delta, self.horizon) if self._private() else ()

    def parameters(self) -> dict[str, object]:
        """Everything that was chosen, in the words of the command line."""
        return {
            "env": self.link,
            "contexts": list(self.contexts),
            "dim": self.dim,
            "arms": self.arms,
            "fewest_arms": self.arms if self.fewest is None else self.fewest,
            "radius": self.radius,
            "reward_noise": self.noise,
            "horizon": self.horizon,
            "policy": list(self.policies),
            "trust": list(self.trusts),
            "epsilon": list(self.epsilons),
            "delta": self.delta,
            "replicates": self.replicates,
            "seed": self.seed,
            "mode": self.mode,
        }

    def command(self) -> str:
        """The command line that runs this comparison again.

        >>> Comparison(contexts=("fixed",)).command()[:48]
        'kerchief compare --env linear --contexts fixed -'
        """
        words = ["kerchief", "compare"]
        for name, value in self.parameters().items():
            for one in value if isinstance(value, list) else [value]:
                words += [f"--{name.replace('_', '-')}", str(one)]
        return shlex.join(words)

    def _entries(self) -> Iterator[tuple[str, Guarantee]]:
        """Policies and guarantees, in the order of the table."""
        parents = (POLICIES[name].parent for name in self.policies)
        for name in (*YARDSTICKS, *parents):
            yield name, self._guarantee(Trust.NONE, math.inf)
        for name in self.policies:
            for trust in self.trusts:
                for epsilon in (math.inf,) if trust == Trust.NONE else self.epsilons:
                    yield name, self._guarantee(Trust(trust), epsilon)

    def _guarantee(self, trust: Trust, epsilon: float) -> Guarantee:
        delta = 0.0 if trust is Trust.NONE else self.delta
        return Guarantee(epsilon=epsilon, delta=delta, trust=trust, rounds=self.horizon)

    def _private(self) -> bool:
        return any(trust != Trust.NONE for trust in self.trusts)

    def _check_numbers(self) -> None:
        most = MAX_HORIZON if Trust.JOINT in self.trusts else 2**31 - 1
        validate.whole("horizon", self.horizon, high=most)
        validate.whole("replicates", self.replicates, high=10**6)
        validate.whole("seed", self.seed, low=0, high=2**32 - 1)
        validate.between("delta", self.delta, 0.0, 1.0)
        for epsilon in self.epsilons:
            validate.positive("epsilon", epsilon)

    def _check_names(self) -> None:
        _known("env", self.link, LINKS)
        _known("mode", self.mode, ("tuned", "theory"))
        for kind in ("contexts", "policies", "trusts", "epsilons"):
            if not getattr(self, kind):
                raise InvalidValue(f"{kind} is empty; give at least one")
        for trust in self.trusts:
            _known("trust", trust, Trust)
        for name in self.policies:
            _check_trusts(name, self.trusts)


def _check_trusts(name: str, trusts: tuple[str, ...]) -> None:
    supported = POLICIES[name].trusts
    for trust in trusts:
        if trust not in supported:
            raise InvalidValue(
                f"trust is {trust!r}; policy {name!r} supports {', '.join(supported)}"
            )


def _known(kind: str, name: str, names: Iterable[str]) -> None:
    """Refuse a word that is not among those of its kind, naming the nearest."""
    words: Registry[str] = Registry(kind)
    for word in names:
        words.add(str(word), str(word))
    words[name]


def delta_warnings(delta: float, horizon: int) -> tuple[str, ...]:
    """A line, if delta is so large that the promise means little.

    >>> delta_warnings(1e-5, 1000)
    ()
    """
    if delta < 1 / horizon:
        return ()
    return (
        f"delta is {delta:g}, which is not below 1/horizon = {1 / horizon:g}: such a promise would "
        "allow to publish one user's data outright; choose a smaller delta",
    )
