"""Comparisons as the command line declares them, checked whole before anything runs."""

from __future__ import annotations

import dataclasses
import functools
import math
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kerchief.core import validate
from kerchief.core.contracts import Knows, Singles
from kerchief.core.errors import InvalidValue
from kerchief.core.registry import Registry
from kerchief.environments.projected import Projected, Shortened, loss_of
from kerchief.environments.registry import ENVIRONMENTS, EnvironmentEntry
from kerchief.experiments import plugins
from kerchief.experiments.data import (
    WorldOfData,
    entry_of,
    parameters_of,
    rounds_of,
    size_of,
    told_of,
)
from kerchief.experiments.parts import MOST_FEATURES, arranged
from kerchief.experiments.plan import Plan
from kerchief.experiments.players import FLAGS, YARDSTICKS, Cell, Player, needs_telling, player
from kerchief.policies import POLICIES, Mode, PolicyEntry
from kerchief.privacy.guarantee import Trust
from kerchief.privatizers.registry import BEST, CONTINUALS, MECHANISMS_OF
from kerchief.roles.arrange import own_word
from kerchief.simulation.run import AnyEnvironment

_NAMED = ("dim", "arms", "radius", "fewest", "noise")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison(Plan):
    """Policies x trusts x epsilons, in one world or in several that differ in their contexts.

    The fields are the options of `kerchief compare`, which explains them. Those of the world that
    are None are the world's own, and every value is checked: an error is one line.

    Attributes:
        data: a world of data, from `from_supervised` or `from_logs`, in place of all fields down to
            `options`; see `Comparison.on`.
        env: the world, a word of `ENVIRONMENTS`; by default the policies' own.
        contexts: where arms come from, in worlds that have contexts; each is a comparison of its
            own.
        fewest: the fewest arms in a round; None for always `arms`.
        options: further options of the world, such as ("gap", 0.1).
        project: onto how many numbers features are projected before a bandit sees them.
        trusts: the words under which each policy plays; by default all that it supports.
        continual: the word of the noise in rows of joint trust, as `shuffling`, `randomizer` and
            `curator` are of shuffle, local and central trust; None for each policy's own, which is
            `best`, or the paper's for a paper's own version.
        numbers: parameters of the policies that are replaced, such as ("exploration", 1.0).
        epsilons: of the private ones, as is delta.

    >>> small = Comparison(contexts=("ball",), trusts=("local",), epsilons=(1.0,))
    >>> [cell.label() for cell in small.cells()]
    ['uniform', 'greedy not private', 'sampling not private', 'sampling local ε=1']
    >>> Comparison(policies=("dpe",), trusts=("shuffle",), epsilons=(1.0,)).cells()[-1].label()
    'dpe shuffle ε=1'
    >>> Comparison(env="linear", policies=("dpe",))
    Traceback (most recent call last):
    ...
    kerchief_wire.errors.InvalidValue: env is 'linear'; policy 'dpe' plays in population, \
continuum
    """

    data: WorldOfData | None = None
    env: str | None = None
    contexts: tuple[str, ...] = ("ball", "fixed")
    dim: int | None = None
    arms: int | None = None
    radius: float | None = None
    fewest: int | None = None
    noise: str | float | None = None
    options: tuple[tuple[str, Any], ...] = ()
    project: int | None = None
    horizon: int = 10_000
    policies: tuple[str, ...] = ("best",)
    trusts: tuple[str, ...] | None = None
    continual: str | None = None
    shuffling: str | None = None
    randomizer: str | None = None
    curator: str | None = None
    numbers: tuple[tuple[str, float], ...] = ()
    epsilons: tuple[float, ...] = (0.2, 1.0, 10.0)
    delta: float = 1e-5
    replicates: int = 64
    seed: int = 0
    mode: Mode = "tuned"

    def __post_init__(self) -> None:
        """Check every value, and that every cell can be played."""
        validate.plain(self)
        self._check_data()
        self._check_lists()
        self._check_numbers()
        self._check_names()
        for cell in self.cells():
            problem = self.environment(cell.world).problem(self.horizon)
            validate.whole("arms", problem.arms, low=0, high=MOST_FEATURES // max(1, problem.dim))
            try:
                made = arranged(cell, problem)
            except InvalidValue:
                if self.data is None:
                    self._check_world(cell.player.policy)
                raise
            if made.policy.feedback != "phases":
                # Some noise is only refused when its bill is made.
                for privatizer in made.privatizers.values():
                    privatizer.charges(self.horizon)

    @classmethod
    def on(cls, data: WorldOfData, *, horizon: int | None = None, **declared: Any) -> Comparison:
        """A comparison on data, by default of as many rounds as there are users.

        >>> from kerchief.data import from_supervised
        >>> people = {"age": [20, 70, 35, 51], "plan": ["basic", "gold", "basic", "gold"]}
        >>> world = from_supervised(people, "plan", features="age=18:90")
        >>> Comparison.on(world, trusts=("joint",), epsilons=(1.0,)).horizon
        4
        """
        return cls(data=data, horizon=rounds_of(data) if horizon is None else horizon, **declared)

    name, title = "compare", "What privacy costs a bandit"

    @functools.cached_property
    def world(self) -> str:
        """The word of the world: the one that was asked for, or the home of the first policy."""
        if self.data is not None:
            return self.data.origin.name
        if self.env is not None:
            return self.env
        homes = [POLICIES[name].home for name in self.policies]
        return next((home for home in homes if home is not None), "linear")

    @functools.cached_property
    def _names(self) -> tuple[str, ...]:
        """The policies by their own names, where `best` is the one for this world."""
        return tuple(_own_name(one, self._entry) for one in self.policies)

    @property
    def _entry(self) -> EnvironmentEntry:
        """The facts about the world: those of the registry, or of the data."""
        return ENVIRONMENTS[self.world] if self.data is None else entry_of(self.data)

    def lead(self) -> str:
        """The policies and the worlds."""
        options = {name: value for name, value in self._options().items() if name != "contexts"}
        facts = ", ".join(f"{name} {value}" for name, value in options.items() if value is not None)
        world = f"the {self.world} world ({facts})"
        if self.data is not None:
            world = f"{self.world} ({size_of(self.data)})"
        said = [
            own if own == name else f"{name} ({own})"
            for own, name in zip(self._names, self.policies, strict=True)
        ]
        return (
            f"{', '.join(said)} in {world}: "
            f"{self.horizon} rounds, {self.replicates} replicates, seed {self.seed}."
        )

    def caption(self, world: str) -> str:
        """Worlds are named by their contexts, where these have any, and data by their file."""
        if self.data is not None:
            return world
        return f"{world} contexts" if self._contextual else f"{world} world"

    def cells(self) -> tuple[Cell, ...]:
        """Every cell, yardsticks and non-private parents first, none twice."""
        return tuple(
            dict.fromkeys(
                Cell(player=one, world=world, delta=self.delta, horizon=self.horizon)
                for world in (self.contexts if self._contextual else (self.world,))
                for one in self._players()
            )
        )

    def environment(self, world: str) -> AnyEnvironment:
        """The world of one kind of contexts, or the only one."""
        return self._environments[world]

    @functools.cached_property
    def _environments(self) -> Mapping[str, AnyEnvironment]:
        entry, options = self._entry, dict(self._given())
        made: dict[str, Any] = (
            {self.world: entry.make(**options)}
            if not self._contextual
            else {one: entry.make(contexts=one, **options) for one in self.contexts}
        )
        if self.project is None:
            return made
        return {name: Projected.of(world=one, onto=self.project) for name, one in made.items()}

    @functools.cached_property
    def shortened(self) -> Mapping[str, Shortened]:
        """What the projection costs in each world."""
        found = {}
        for name, world in self._environments.items():
            if isinstance(world, Projected):
                found[name] = loss_of(world, horizon=self.horizon, seed=self.seed)
        return found

    def note(self) -> str:
        """What declared bounds did to data; what the projection does, and costs whoever plays."""
        told = [] if self.data is None else list(told_of(self.data))
        told += [
            f"In {self.caption(name)}, features are projected from {one.dim} numbers to "
            f"{one.onto}, and {100 * one.clipped:.0f} % of them are clipped then; the best linear "
            f"rule over them loses {one.lost:.2g} per round, {one.lost * self.horizon:.0f} in all, "
            "with privacy or without."
            for name, one in self.shortened.items()
        ]
        return " ".join(told)

    @property
    def rewarded(self) -> bool:
        """Rewards of data are in units that people know."""
        return self.data is not None

    @property
    def _contextual(self) -> bool:
        return "contexts" in self._entry.options

    def _given(self) -> Mapping[str, Any]:
        """The options of the world that were asked for."""
        named = {name: getattr(self, name) for name in _NAMED}
        return {name: one for name, one in named.items() if one is not None} | dict(self.options)

    def _options(self) -> Mapping[str, Any]:
        """The options of the world as they are played."""
        return {**self._entry.options, **self._given()}

    def parameters(self) -> dict[str, object]:
        """Everything that was chosen, in the words of the command line."""
        options = dict(self._options())
        contexts = {"contexts": list(self.contexts)} if self._contextual else {}
        options.pop("contexts", None)
        if "fewest" in options:
            options["fewest_arms"] = options.pop("fewest") or options["arms"]
            options["reward_noise"] = options.pop("noise")
        shared = ("dim", "arms", "fewest_arms", "radius", "reward_noise")
        further = {name: one for name, one in options.items() if name not in shared}
        world: dict[str, object] = {"env": self.world}
        if self.data is not None:
            world = parameters_of(self.data)
        return {
            **world,
            **contexts,
            **{name: options[name] for name in shared if name in options},
            **_pairs("option", further),
            **({} if self.project is None else {"project": self.project}),
            "horizon": self.horizon,
            "policy": list(self.policies),
            "trust": list(self._trusts()),
            **{flag: self._recorded(trust) for trust, flag in FLAGS.items()},
            **_pairs("number", dict(self.numbers)),
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
        words = ["kerchief", "compare", *plugins.flags()]
        for name, value in self.parameters().items():
            for one in value if isinstance(value, list) else [value]:
                words += [] if one is None else [f"--{name.replace('_', '-')}", str(one)]
        return shlex.join(words)

    def _players(self) -> Iterator[Player]:
        """Who plays in each world, in the order of the table."""
        fitting = (name for name in YARDSTICKS if self._playable(name))
        parents = (POLICIES[name].parent for name in self._names)
        for name in (*fitting, *parents):
            yield player(name, mode=self.mode)
        for name in self._names:
            for trust in self._trusts_of(name):
                for epsilon in (math.inf,) if trust == Trust.NONE else self.epsilons:
                    yield self._player(name, trust, epsilon)

    def _player(self, name: str, trust: str, epsilon: float) -> Player:
        word = self._word(name, Trust(trust)) if trust in FLAGS else None
        one = player(name, trust=trust, epsilon=epsilon, mode=self.mode, mechanism=word)
        return dataclasses.replace(one, numbers=tuple(sorted(dict(self.numbers).items())))

    def _word(self, name: str, trust: Trust) -> str:
        """The noise of a policy's rows of a trust: what was said, or else the policy's own."""
        said: str | None = getattr(self, FLAGS[trust])
        return own_word(POLICIES[name], trust) if said is None else said

    def _words(self, trust: Trust) -> list[str]:
        """The noises of all rows of a trust."""
        return [self._word(name, trust) for name in self._names if trust in self._trusts_of(name)]

    def _recorded(self, trust: Trust) -> str | None:
        """The word that plays the same again; None where policies have different ones."""
        words = set(self._words(trust)) or {getattr(self, FLAGS[trust]) or BEST}
        return words.pop() if len(words) == 1 else None

    def _trusts_of(self, name: str) -> tuple[str, ...]:
        """Under which trusts a policy plays: those asked for, or all under which it is private."""
        if self.trusts is not None:
            return self.trusts
        offered = POLICIES[name].trusts_in(self._entry.problem)
        return tuple(trust for trust in offered if trust != Trust.NONE)

    def _trusts(self) -> tuple[str, ...]:
        """Every trust that is played, in the order of first mention."""
        return tuple(dict.fromkeys(one for name in self._names for one in self._trusts_of(name)))

    def _check_data(self) -> None:
        """Refuse options of made-up worlds beside data."""
        if self.data is None:
            return
        if not isinstance(self.data, WorldOfData):
            raise InvalidValue(
                f"data is a {type(self.data).__name__}; give a world that `from_supervised` makes, "
                "or `from_logs`"
            )
        for name in ("env", *_NAMED, "options", "contexts"):
            if getattr(self, name) != getattr(type(self), name):
                raise InvalidValue(
                    f"{name} is {getattr(self, name)!r}, and data have no such option; leave it out"
                )

    def _check_lists(self) -> None:
        for kind in (
            "contexts",
            "policies",
            "epsilons",
            *(("trusts",) if self.trusts is not None else ()),
        ):
            given = getattr(self, kind)
            if not isinstance(given, tuple) or not given:
                raise InvalidValue(f"{kind} is empty, or no tuple; give at least one")
        for kind in ("options", "numbers"):
            given = getattr(self, kind)
            if not isinstance(given, tuple) or not all(map(_is_pair, given)):
                raise InvalidValue(f"{kind} is no tuple of pairs; give a name and a value each")
        for name, _ in self.options:
            if name in ("contexts", *_NAMED) and getattr(self, name) is not None:
                raise InvalidValue(
                    f"option is {name!r}, which is given by itself too; give it once"
                )

    def _check_numbers(self) -> None:
        longest = (CONTINUALS[word].longest for word in self._words(Trust.JOINT))
        most = min(longest, default=validate.MOST_ROUNDS)
        validate.whole("horizon", self.horizon, high=most)
        validate.whole("replicates", self.replicates, high=10**6)
        validate.whole("seed", self.seed, low=0, high=2**32 - 1)
        # Zero is pure privacy, which some noises keep.
        if validate.at_least("delta", self.delta, 0.0):
            validate.between("delta", self.delta, 0.0, 1.0)
        for epsilon in self.epsilons:
            validate.positive("epsilon", epsilon)
        for name, number in self.numbers:
            validate.at_least(name, number, 0.0)

    def _check_names(self) -> None:
        _known("mode", self.mode, ("tuned", "theory"))
        if not self._contextual and self.contexts != type(self).contexts:
            raise InvalidValue(
                f"contexts is {', '.join(map(repr, self.contexts))}, and the {self.world} world "
                "has none; leave it out"
            )
        for trust in self.trusts or ():
            _known("trust", trust, Trust)
        for said, name in zip(self.policies, self._names, strict=True):
            self._check_policy(said, POLICIES[name], self._trusts_of(name))
        for trust, flag in FLAGS.items():
            word = getattr(self, flag)
            if word is None:
                continue
            MECHANISMS_OF[trust][word]
            if word != BEST and trust not in self._trusts():
                raise InvalidValue(
                    f"{flag} is {word!r}, and no row has {trust.value} trust; leave it out, or add "
                    f"that trust"
                )

    def _playable(self, name: str) -> bool:
        """Whether a policy fits the world, which may have to tell it the best single arm."""
        name = _own_name(name, self._entry)
        told = all(isinstance(one, Singles) for one in self._environments.values())
        return _fits(POLICIES[name], self._entry) and (told or not needs_telling(name))

    def _check_world(self, name: str) -> None:
        known, word = worlds_of(name), self.world
        if word in known:
            return
        homely = [one for one in self.policies if POLICIES[one].home == word]
        if self.env is not None or not homely:
            raise InvalidValue(f"env is {word!r}; policy {name!r} plays in {', '.join(known)}")
        raise InvalidValue(
            f"policy {homely[0]!r} plays in {word!r} where no env is given, and policy {name!r} in "
            f"{', '.join(known)}; compare them apart, or name an env that both play in"
        )

    def _check_policy(self, name: str, policy: PolicyEntry, trusts: tuple[str, ...]) -> None:
        if not self._playable(name):
            if self.data is None:
                self._check_world(name)
            known = filter(self._playable, POLICIES)
            raise InvalidValue(
                f"policy {name!r} does not play on these data; those that do are {', '.join(known)}"
            )
        supported = policy.trusts_in(self._entry.problem)
        for trust in trusts:
            if trust not in supported:
                raise InvalidValue(
                    f"trust is {trust!r}; policy {name!r} supports {', '.join(supported)}"
                )


def worlds_of(name: str) -> tuple[str, ...]:
    """The words of `--env` that a policy plays in.

    >>> worlds_of("two-point-strong"), worlds_of("ecolog")
    (('quadratic', 'kinked', 'drifting', 'reacting'), ('logistic',))
    """
    return tuple(
        word
        for word, world in ENVIRONMENTS.items()
        if _takes(POLICIES[_own_name(name, world)], world)
    )


def _own_name(name: str, world: EnvironmentEntry) -> str:
    return POLICIES.own_name(name, lambda policy: _fits(policy, world))


def _fits(policy: PolicyEntry, world: EnvironmentEntry) -> bool:
    return world.problem in policy.problems and world.actions in policy.actions


def _takes(policy: PolicyEntry, world: EnvironmentEntry) -> bool:
    """Whether it fits, and can be built: some need one link, or losses that are curved."""
    if not _fits(policy, world):
        return False
    try:
        made = world.make()
        built = policy.build(made.problem(Comparison.horizon), "tuned")
    except InvalidValue:
        return False
    return isinstance(made, Singles) or not isinstance(built, Knows)


def _is_pair(one: object) -> bool:
    return isinstance(one, tuple) and len(one) == 2 and isinstance(one[0], str)


def _pairs(flag: str, values: Mapping[str, object]) -> dict[str, object]:
    """A repeatable flag with a name and a value each, as far as there are any."""
    pairs = [f"{name}={value}" for name, value in values.items() if value is not None]
    return {flag: pairs} if pairs else {}


def _known(kind: str, name: str, names: Iterable[str]) -> None:
    """Refuse a word that is not among those of its kind, naming the nearest."""
    words: Registry[str] = Registry(kind)
    for word in names:
        words.add(str(word), str(word))
    words[name]
