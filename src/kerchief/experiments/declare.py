"""Comparisons as the command line declares them, checked whole before anything runs."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterable, Iterator

from kerchief.core import validate
from kerchief.core.errors import InvalidValue
from kerchief.core.links import LINKS
from kerchief.core.registry import Registry
from kerchief.environments.worlds import GLMEnvironment, make_environment
from kerchief.experiments.plan import YARDSTICKS, Cell, Plan, Player, Spot, player
from kerchief.experiments.runner import MOST_FEATURES
from kerchief.policies import POLICIES, Mode
from kerchief.privacy.guarantee import Trust
from kerchief.privatizers.registry import BEST, CONTINUALS, RANDOMIZERS, SHUFFLES

__all__ = ["Comparison"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison(Plan):
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
        continual: the noise on prefix totals, for rows of joint trust; others do without.
        shuffling: what devices add to shuffled reports, for rows of shuffle trust.
        randomizer: what devices do to their reports, for rows of local trust.
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
    >>> Comparison(policies=("uniform",), trusts=("shuffle",))
    Traceback (most recent call last):
    ...
    kerchief.core.errors.InvalidValue: trust is 'shuffle'; policy 'uniform' supports none
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
    trusts: tuple[str, ...] = ("local", "shuffle", "joint", "central")
    continual: str = BEST
    shuffling: str = BEST
    randomizer: str = BEST
    epsilons: tuple[float, ...] = (0.2, 1.0, 10.0)
    delta: float = 1e-5
    replicates: int = 64
    seed: int = 0
    mode: Mode = "tuned"

    def __post_init__(self) -> None:
        """Check every value."""
        validate.plain(self)
        self._check_lists()
        self._check_numbers()
        self._check_names()
        for contexts in self.contexts:
            problem = self.environment(contexts).problem(self.horizon)
            for one in self._players():
                one.make(problem, self.delta)
        validate.whole("arms", self.arms, high=MOST_FEATURES // self.dim)

    @property
    def name(self) -> str:
        """The command's own."""
        return "compare"

    @property
    def title(self) -> str:
        """The question that every comparison asks."""
        return "What privacy costs a bandit"

    def lead(self) -> str:
        """The policies and the worlds."""
        return (
            f"{', '.join(self.policies)} on {self.link} rewards: {self.arms} arms in {self.dim} "
            f"dimensions, {self.horizon} rounds, {self.replicates} replicates, seed {self.seed}."
        )

    def caption(self, contexts: str) -> str:
        """Comparisons name worlds by their contexts."""
        return f"{contexts} contexts"

    def cells(self) -> tuple[Cell, ...]:
        """Every cell, yardsticks and non-private parents first, none twice."""
        return tuple(
            dict.fromkeys(
                Cell(
                    spot=Spot(player=one, contexts=contexts), delta=self.delta, horizon=self.horizon
                )
                for contexts in self.contexts
                for one in self._players()
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
            "continual": self.continual,
            "shuffling": self.shuffling,
            "randomizer": self.randomizer,
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

    def _players(self) -> Iterator[Player]:
        """Who plays in each world, in the order of the table."""
        parents = (POLICIES[name].parent for name in self.policies)
        for name in (*YARDSTICKS, *parents):
            yield player(name, mode=self.mode)
        for name in self.policies:
            for trust in self.trusts:
                if trust == Trust.NONE:
                    yield player(name, mode=self.mode)
                    continue
                for epsilon in self.epsilons:
                    yield player(
                        name,
                        trust=trust,
                        epsilon=epsilon,
                        mode=self.mode,
                        continual=self.continual,
                        shuffling=self.shuffling,
                        randomizer=self.randomizer,
                    )

    def _check_lists(self) -> None:
        for kind in ("contexts", "policies", "trusts", "epsilons"):
            given = getattr(self, kind)
            if not isinstance(given, tuple) or not given:
                raise InvalidValue(f"{kind} is empty, or no tuple; give at least one")

    def _check_numbers(self) -> None:
        joint = Trust.JOINT in self.trusts
        longest = CONTINUALS[self.continual].longest if joint else validate.MOST_ROUNDS
        validate.whole("horizon", self.horizon, high=longest)
        validate.whole("replicates", self.replicates, high=10**6)
        validate.whole("seed", self.seed, low=0, high=2**32 - 1)
        validate.between("delta", self.delta, 0.0, 1.0)
        for epsilon in self.epsilons:
            validate.positive("epsilon", epsilon)

    def _check_names(self) -> None:
        _known("env", self.link, LINKS)
        _known("mode", self.mode, ("tuned", "theory"))
        CONTINUALS[self.continual]
        SHUFFLES[self.shuffling]
        RANDOMIZERS[self.randomizer]
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
