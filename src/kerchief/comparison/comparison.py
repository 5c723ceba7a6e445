"""Comparisons as the command line declares them, checked whole before anything runs."""

from __future__ import annotations

import dataclasses
import functools
import math
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from kerchief.comparison import plugins
from kerchief.comparison.chunks import MAX_FEATURES, build_protected_policy
from kerchief.comparison.compatibility import (
    DEFAULT_HORIZON,
    check_environment,
    is_compatible,
    resolve_name,
)
from kerchief.comparison.datasets import (
    WorldOfData,
    describe_data,
    entry_of,
    parameters_of,
    rounds_of,
    size_of,
)
from kerchief.comparison.option_checks import check_lists, check_name, check_pairs
from kerchief.comparison.plan import Plan
from kerchief.comparison.players import FLAGS, YARDSTICKS, Cell, Player, needs_best_arm, player
from kerchief.core import validate
from kerchief.core.contracts import HasBestArm
from kerchief.core.errors import InvalidValueError
from kerchief.deployment.protected_policy import choose_mechanism
from kerchief.environments.projected import Projected, Shortened, loss_of
from kerchief.environments.registry import ENVIRONMENTS, EnvironmentEntry
from kerchief.policies import POLICIES, Mode, PolicyEntry
from kerchief.privacy.guarantee import Trust
from kerchief.privatizers.registry import BEST, CONTINUALS, MECHANISMS_OF
from kerchief.simulation.run import AnyEnvironment

_ENVIRONMENT_FIELDS = ("dim", "arms", "radius", "fewest", "noise")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison(Plan):
    """Policies x trust models x epsilons in one or several environments.

    The fields are the options of `kerchief compare`, which explains them. An option of the
    environment that is None has the environment's own value. Every value is checked; an error
    message is one line.

    Attributes:
        data: data from `from_supervised` or `from_logs`, in place of all fields down to `options`;
            see `Comparison.on`.
        env: the environment, a name in `ENVIRONMENTS`; by default the policies' own.
        contexts: sources of arms, in environments that have contexts; each is a comparison of its
            own.
        fewest: the fewest arms in a round; None for always `arms`.
        options: further options of the environment, such as ("gap", 0.1).
        project: number of coordinates onto which features are projected before a bandit sees them.
        trusts: the trust models of each policy; by default all that it supports.
        continual: the mechanism in rows of joint DP, as `shuffling`, `randomizer` and `curator` are
            of shuffle, local and central DP; None for each policy's own, which is `best`, or the
            paper's for a paper's own version.
        numbers: parameters of the policies that are replaced, such as ("exploration", 1.0).
        epsilons: of the private rows, as is delta.

    >>> small = Comparison(contexts=("ball",), trusts=("local",), epsilons=(1.0,))
    >>> [cell.label() for cell in small.cells()]
    ['uniform', 'greedy not private', 'sampling not private', 'sampling local ε=1']
    >>> Comparison(policies=("dpe",), trusts=("shuffle",), epsilons=(1.0,)).cells()[-1].label()
    'dpe shuffle ε=1'
    >>> Comparison(env="linear", policies=("dpe",))
    Traceback (most recent call last):
    ...
    kerchief_protocol.errors.InvalidValueError: env is 'linear'; policy 'dpe' plays in population, \
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
    horizon: int = DEFAULT_HORIZON
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
            validate.whole("arms", problem.arms, low=0, high=MAX_FEATURES // max(1, problem.dim))
            try:
                bandit = build_protected_policy(cell, problem)
            except InvalidValueError:
                if self.data is None:
                    self._check_environment(cell.player.policy)
                raise
            if bandit.policy.feedback != "phases":
                # Some noise is only refused when its bill is made.
                for privatizer in bandit.privatizers.values():
                    privatizer.charges(self.horizon)

    @classmethod
    def on(cls, data: WorldOfData, *, horizon: int | None = None, **fields: Any) -> Comparison:
        """Build a comparison on data, by default with one round per user.

        >>> from kerchief.data import from_supervised
        >>> people = {"age": [20, 70, 35, 51], "plan": ["basic", "gold", "basic", "gold"]}
        >>> world = from_supervised(people, "plan", features="age=18:90")
        >>> Comparison.on(world, trusts=("joint",), epsilons=(1.0,)).horizon
        4
        """
        return cls(data=data, horizon=rounds_of(data) if horizon is None else horizon, **fields)

    name, title = "compare", "What privacy costs a bandit"

    @functools.cached_property
    def world(self) -> str:
        """Name of the environment: `env`, or the home of the first policy."""
        if self.data is not None:
            return self.data.origin.name
        if self.env is not None:
            return self.env
        homes = [POLICIES[name].default_environment for name in self.policies]
        return next((home for home in homes if home is not None), "linear")

    @functools.cached_property
    def _own_names(self) -> tuple[str, ...]:
        """Names of the policies, with `best` resolved for this environment."""
        return tuple(resolve_name(name, self._entry) for name in self.policies)

    @property
    def _entry(self) -> EnvironmentEntry:
        """Registry entry of the environment, or one built from the data."""
        return ENVIRONMENTS[self.world] if self.data is None else entry_of(self.data)

    def lead(self) -> str:
        """Describe the policies and the environment in one sentence."""
        options = {name: value for name, value in self._get_options().items() if name != "contexts"}
        facts = ", ".join(f"{name} {value}" for name, value in options.items() if value is not None)
        world = f"the {self.world} world ({facts})"
        if self.data is not None:
            world = f"{self.world} ({size_of(self.data)})"
        labels = [
            own if own == name else f"{name} ({own})"
            for own, name in zip(self._own_names, self.policies, strict=True)
        ]
        return (
            f"{', '.join(labels)} in {world}: "
            f"{self.horizon} rounds, {self.replicates} replicates, seed {self.seed}."
        )

    def caption(self, world: str) -> str:
        """Name an environment by its contexts if it has any, or data by their file."""
        if self.data is not None:
            return world
        return f"{world} contexts" if self._has_contexts else f"{world} world"

    def cells(self) -> tuple[Cell, ...]:
        """Return each cell once, baselines and non-private counterparts first."""
        return tuple(
            dict.fromkeys(
                Cell(player=configuration, world=world, delta=self.delta, horizon=self.horizon)
                for world in (self.contexts if self._has_contexts else (self.world,))
                for configuration in self._generate_players()
            )
        )

    def environment(self, world: str) -> AnyEnvironment:
        """Return the environment with these contexts, or the only one."""
        return self._environments[world]

    @functools.cached_property
    def _environments(self) -> Mapping[str, AnyEnvironment]:
        entry, options = self._entry, dict(self._get_chosen_options())
        environments: dict[str, Any] = (
            {self.world: entry.make(**options)}
            if not self._has_contexts
            else {contexts: entry.make(contexts=contexts, **options) for contexts in self.contexts}
        )
        if self.project is None:
            return environments
        return {
            name: Projected.of(world=environment, onto=self.project)
            for name, environment in environments.items()
        }

    @functools.cached_property
    def shortened(self) -> Mapping[str, Shortened]:
        """Cost of the projection in each environment."""
        projections = {}
        for name, world in self._environments.items():
            if isinstance(world, Projected):
                projections[name] = loss_of(world, horizon=self.horizon, seed=self.seed)
        return projections

    def note(self) -> str:
        """Describe the clipping of data, and the projection with its cost."""
        sentences = [] if self.data is None else list(describe_data(self.data))
        sentences += [
            f"In {self.caption(name)}, features are projected from {projection.dim} numbers to "
            f"{projection.onto}, and {100 * projection.clipped:.0f} % of them are clipped then; "
            f"the best linear rule over them loses {projection.lost:.2g} per round, "
            f"{projection.lost * self.horizon:.0f} in all, with privacy or without."
            for name, projection in self.shortened.items()
        ]
        return " ".join(sentences)

    @property
    def rewarded(self) -> bool:
        """Whether rewards are in the units of people's own data."""
        return self.data is not None

    @property
    def _has_contexts(self) -> bool:
        return "contexts" in self._entry.options

    def _get_chosen_options(self) -> Mapping[str, Any]:
        """Return the options of the environment that were chosen."""
        fields = {name: getattr(self, name) for name in _ENVIRONMENT_FIELDS}
        return {name: value for name, value in fields.items() if value is not None} | dict(
            self.options
        )

    def _get_options(self) -> Mapping[str, Any]:
        """Return all options of the environment, with defaults."""
        return {**self._entry.options, **self._get_chosen_options()}

    def parameters(self) -> dict[str, object]:
        """Return every choice, in the words of the command line."""
        options = dict(self._get_options())
        contexts = {"contexts": list(self.contexts)} if self._has_contexts else {}
        options.pop("contexts", None)
        common = ("dim", "arms", "radius")
        further = {name: value for name, value in options.items() if name not in common}
        further["project"] = self.project
        world: dict[str, object] = {"env": self.world}
        if self.data is not None:
            world = parameters_of(self.data)
        return {
            **world,
            **contexts,
            **{name: options[name] for name in common if name in options},
            **_format_pairs("env_param", further),
            "horizon": self.horizon,
            "policy": list(self.policies),
            "trust": list(self._list_trusts()),
            **_format_pairs("mechanism", self._map_common_mechanisms()),
            **_format_pairs("param", dict(self.numbers)),
            "epsilon": list(self.epsilons),
            "delta": self.delta,
            "replicates": self.replicates,
            "seed": self.seed,
            "mode": self.mode,
        }

    def command(self) -> str:
        """Return the command line that runs this comparison again.

        >>> Comparison(contexts=("fixed",)).command()[:48]
        'kerchief compare --env linear --contexts fixed -'
        """
        arguments = ["kerchief", *plugins.flags(), "compare"]
        for name, value in self.parameters().items():
            for argument in value if isinstance(value, list) else [value]:
                arguments += (
                    [] if argument is None else [f"--{name.replace('_', '-')}", str(argument)]
                )
        return shlex.join(arguments)

    def _generate_players(self) -> Iterator[Player]:
        """Yield the players of each environment, in the order of the table."""
        fitting = (name for name in YARDSTICKS if self._is_playable(name))
        parents = (POLICIES[name].parent for name in self._own_names)
        for name in (*fitting, *parents):
            yield player(name, mode=self.mode)
        for name in self._own_names:
            for trust in self._get_trusts(name):
                for epsilon in (math.inf,) if trust == Trust.NONE else self.epsilons:
                    yield self._build_player(name, trust, epsilon)

    def _build_player(self, name: str, trust: str, epsilon: float) -> Player:
        mechanism = self._choose_mechanism(name, Trust(trust)) if trust in FLAGS else None
        configuration = player(
            name, trust=trust, epsilon=epsilon, mode=self.mode, mechanism=mechanism
        )
        return dataclasses.replace(configuration, numbers=tuple(sorted(dict(self.numbers).items())))

    def _choose_mechanism(self, name: str, trust: Trust) -> str:
        """Return the chosen mechanism for a trust model, or the policy's own."""
        mechanism: str | None = getattr(self, FLAGS[trust])
        return choose_mechanism(POLICIES[name], trust) if mechanism is None else mechanism

    def _list_mechanisms(self, trust: Trust) -> list[str]:
        """List the mechanisms of all rows of a trust model."""
        return [
            self._choose_mechanism(name, trust)
            for name in self._own_names
            if trust in self._get_trusts(name)
        ]

    def _find_common_mechanism(self, trust: Trust) -> str | None:
        """Return the mechanism that all policies share, or None if they differ."""
        mechanisms = set(self._list_mechanisms(trust))
        return mechanisms.pop() if len(mechanisms) == 1 else None

    def _map_common_mechanisms(self) -> dict[str, object]:
        """Map each trust model with rows to the mechanism that its rows share."""
        return {
            trust.value: self._find_common_mechanism(trust)
            for trust in FLAGS
            if trust in self._list_trusts()
        }

    def _get_trusts(self, name: str) -> tuple[str, ...]:
        """Return a policy's trust models: the chosen ones, or all private ones."""
        if self.trusts is not None:
            return self.trusts
        offered = POLICIES[name].trusts_in(self._entry.problem)
        return tuple(trust for trust in offered if trust != Trust.NONE)

    def _list_trusts(self) -> tuple[str, ...]:
        """List every trust model of the comparison, in the order of first mention."""
        return tuple(
            dict.fromkeys(trust for name in self._own_names for trust in self._get_trusts(name))
        )

    def _check_data(self) -> None:
        """Refuse options of simulated environments beside data."""
        if self.data is None:
            return
        if not isinstance(self.data, WorldOfData):
            raise InvalidValueError(
                f"data is a {type(self.data).__name__}; give a world that `from_supervised` makes, "
                "or `from_logs`"
            )
        for name in ("env", *_ENVIRONMENT_FIELDS, "options", "contexts"):
            if getattr(self, name) != getattr(type(self), name):
                raise InvalidValueError(
                    f"{name} is {getattr(self, name)!r}, and data have no such option; leave it out"
                )

    def _check_lists(self) -> None:
        lists = ["contexts", "policies", "epsilons"]
        if self.trusts is not None:
            lists.append("trusts")
        check_lists({name: getattr(self, name) for name in lists})
        check_pairs({"options": self.options, "numbers": self.numbers})
        for name, _ in self.options:
            if name in ("contexts", *_ENVIRONMENT_FIELDS) and getattr(self, name) is not None:
                raise InvalidValueError(
                    f"parameter is {name!r}, which is given by itself too; give it once"
                )

    def _check_numbers(self) -> None:
        longest = (
            CONTINUALS[mechanism].longest for mechanism in self._list_mechanisms(Trust.JOINT)
        )
        max_rounds = min(longest, default=validate.MOST_ROUNDS)
        validate.whole("horizon", self.horizon, high=max_rounds)
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
        check_name("mode", self.mode, ("tuned", "theory"))
        if not self._has_contexts and self.contexts != type(self).contexts:
            raise InvalidValueError(
                f"contexts is {', '.join(map(repr, self.contexts))}, and the {self.world} world "
                "has none; leave it out"
            )
        for trust in self.trusts or ():
            check_name("trust", trust, Trust)
        for requested_name, name in zip(self.policies, self._own_names, strict=True):
            self._check_policy(requested_name, POLICIES[name], self._get_trusts(name))
        for trust, flag in FLAGS.items():
            mechanism = getattr(self, flag)
            if mechanism is None:
                continue
            MECHANISMS_OF[trust][mechanism]
            if mechanism != BEST and trust not in self._list_trusts():
                raise InvalidValueError(
                    f"mechanism is '{trust.value}={mechanism}', and no row has {trust.value} "
                    f"trust; leave it out, or add that trust"
                )

    def _is_playable(self, name: str) -> bool:
        """Whether a policy fits the environment, which names the best arm if it must."""
        name = resolve_name(name, self._entry)
        has_best_arm = all(
            isinstance(environment, HasBestArm) for environment in self._environments.values()
        )
        return is_compatible(POLICIES[name], self._entry) and (
            has_best_arm or not needs_best_arm(name)
        )

    def _check_environment(self, name: str) -> None:
        """Refuse a policy that does not play in the environment."""
        check_environment(name, self.world, policies=self.policies, is_chosen=self.env is not None)

    def _check_policy(self, name: str, policy: PolicyEntry, trusts: tuple[str, ...]) -> None:
        if not self._is_playable(name):
            if self.data is None:
                self._check_environment(name)
            playable = filter(self._is_playable, POLICIES)
            raise InvalidValueError(
                f"policy {name!r} does not play on these data; those that do are "
                f"{', '.join(playable)}"
            )
        supported = policy.trusts_in(self._entry.problem)
        for trust in trusts:
            if trust not in supported:
                raise InvalidValueError(
                    f"trust is {trust!r}; policy {name!r} supports {', '.join(supported)}"
                )


def _format_pairs(flag: str, values: Mapping[str, object]) -> dict[str, object]:
    """Format options as a repeatable flag with a name and a value each."""
    pairs = [f"{name}={value}" for name, value in values.items() if value is not None]
    return {flag: pairs} if pairs else {}
