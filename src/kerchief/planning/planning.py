"""What `kerchief plan` is asked: how many users, what they may be like, and whom they trust."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any

from kerchief.comparison.comparison import Comparison
from kerchief.comparison.datasets import WorldOfData, describe_data, rounds_of
from kerchief.comparison.players import Cell
from kerchief.core import validate
from kerchief.core.errors import InvalidValueError
from kerchief.core.problems import AnyProblem, Problem
from kerchief.data.replay import Replay
from kerchief.environments.registry import ENVIRONMENTS
from kerchief.environments.worlds import NOISES
from kerchief.privacy.guarantee import Trust
from kerchief.simulation.run import AnyEnvironment

ANY = "any"
"""The word for all trusts that a policy supports."""

FAMILY = "own"
"""The world without data: users have features, and every arm has a parameter of its own."""

SINGLE, UNIFORM, GREEDY = "single-arm", "uniform", "greedy"

_FEWEST_USERS, _MOST_USERS = 50, 10**8
STRENGTH = (0.25, 1.0)
"""How much arms of the family differ, unless it is said."""

# How often regret is read: as often as leaves the fewest users out of equal segments.
_TICKS = range(30, 101)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Planning:
    """A question of somebody who has users, features and arms.

    Attributes:
        users: how many there are; on data, by default all of them.
        data: a world of data, in place of the fields down to `options`.
        env: the world, a word of `ENVIRONMENTS` in which users bring features.
        dim: length of a feature vector, its constant included; None for the world's own.
        arms: how many; None for the world's own.
        noise: distribution of rewards around their mean, a name in `NOISES`.
        strength: how much arms differ, from 0 to 1: every simulated world draws its own between
            these two.
        options: further options of the world, such as ("radius", 1.0).
        policy: the bandit that learns.
        trusts: under which it may; `any` for all that it supports.
        epsilon: asked for, as is delta.

    >>> asked = Planning(users=1000, dim=3, arms=4, trusts=("joint",))
    >>> [cell.label() for cell in asked.cells(1000)]
    ['uniform', 'single-arm not private', 'own-models not private', 'own-models joint ε=1']
    >>> Planning(users=3)
    Traceback (most recent call last):
    ...
    kerchief_protocol.errors.InvalidValueError: users is 3; it must be at least 50 and at most \
100000000
    """

    users: int | None = None
    data: WorldOfData | None = None
    env: str = FAMILY
    dim: int | None = None
    arms: int | None = None
    noise: str = "bernoulli"
    strength: tuple[float, float] | None = None
    options: tuple[tuple[str, Any], ...] = ()
    policy: str = "best"
    trusts: tuple[str, ...] = (ANY,)
    epsilon: float = 1.0
    delta: float = 1e-6
    seed: int = 0

    def __post_init__(self) -> None:
        """Check every value, and that every cell can be played."""
        validate.plain(self)
        self._check_kinds()
        if self.users is None and self.data is None:
            raise InvalidValueError("users is not given; give --users N, or data with --data FILE")
        if self.users is not None:
            validate.whole("users", self.users, low=_FEWEST_USERS, high=_MOST_USERS)
        if self.count < _FEWEST_USERS:
            is_permuted = getattr(self.data, "orders", "bootstrap") == "permutation"
            raise InvalidValueError(
                f"the data are enough for {self.count} users, and a plan needs {_FEWEST_USERS}; "
                f"give {'--declare orders=bootstrap and ' * is_permuted}--users {_FEWEST_USERS}, "
                "which draws them anew"
            )
        if self.data is not None:
            self._check_rows(self.data)
        validate.positive("epsilon", self.epsilon)
        validate.between("delta", self.delta, 0.0, 1.0)
        if ANY in self.trusts and len(self.trusts) > 1:
            raise InvalidValueError(f"trust is {ANY!r} and more; give {ANY!r} alone, or the others")
        if str(Trust.NONE) in self.trusts:
            raise InvalidValueError("trust is 'none', which plays along by itself; leave it out")
        if self.data is None:
            self._check_family()
        if all(cell.asked is None for cell in self.cells(self.count)):
            raise InvalidValueError(
                f"policy is {self.policy!r}, which never learns in private: nothing is left to "
                "plan; choose another --policy, such as best"
            )

    def _check_kinds(self) -> None:
        """Refuse what has the wrong form, before it is looked into."""
        if not isinstance(self.trusts, tuple) or not self.trusts:
            raise InvalidValueError("trusts is empty, or no tuple; give at least one, or ('any',)")
        if self.strength is not None and not (
            isinstance(self.strength, tuple) and len(self.strength) == 2
        ):
            raise InvalidValueError(
                f"strength is {self.strength!r}; give the least and the greatest"
            )
        pairs = self.options if isinstance(self.options, tuple) else (None,)
        if not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
            raise InvalidValueError("options is no tuple of pairs; give a name and a value each")
        for name in ("env", "noise", "policy"):
            if not isinstance(getattr(self, name), str):
                raise InvalidValueError(f"{name} is {getattr(self, name)!r}; give a word")
        if not isinstance(self.data, WorldOfData | None):
            raise InvalidValueError(
                f"data is a {type(self.data).__name__}; give a world that `from_supervised` makes, "
                "or `from_logs`"
            )

    def _check_rows(self, data: WorldOfData) -> None:
        if self.count > data.rows and getattr(data, "orders", "bootstrap") == "permutation":
            raise InvalidValueError(
                f"users is {self.count}, and the data have {data.rows}, who come once each; plan "
                "for at most so many, or draw users anew with --declare orders=bootstrap"
            )

    def _check_family(self) -> None:
        entry = ENVIRONMENTS[self.env]
        if entry.problem is not Problem:
            names = ", ".join(
                name for name, environment in ENVIRONMENTS.items() if environment.problem is Problem
            )
            raise InvalidValueError(
                f"env is {self.env!r}, where users bring no features; plan for one of {names}"
            )
        if self.noise not in NOISES:
            raise InvalidValueError(f"noise is {self.noise!r}; choose one of {', '.join(NOISES)}")
        if self.strength is not None and self.env != FAMILY:
            raise InvalidValueError(
                f"strength is {self.strength}, and the {self.env} world has no family; leave it "
                f"out, or plan in the world {FAMILY!r}"
            )
        for name in ("strength", "weakest") if self.env == FAMILY else ():
            if name in dict(self.options):
                raise InvalidValueError(
                    f"parameter is {name!r}, which the strength says; give it as in --env-param "
                    "strength=0.2:0.6"
                )
        low, high = self.strengths
        validate.between("the greater strength", high, 0.0, 1.0, closed=True)
        validate.between("the less strength", low, 0.0, high, closed=True)

    @property
    def count(self) -> int:
        """How many users there are."""
        if self.users is None and self.data is not None:
            return rounds_of(self.data)
        return self.users or 0

    @property
    def strengths(self) -> tuple[float, float]:
        """Between which arms may differ."""
        return STRENGTH if self.strength is None else self.strength

    def comparison(
        self, users: int, *, epsilon: float | None = None, trusts: tuple[str, ...] | None = None
    ) -> Comparison:
        """The candidates as a comparison of so many rounds."""
        return Comparison(
            **self._world(),
            horizon=users,
            policies=(self.policy,),
            trusts=trusts or (None if ANY in self.trusts else self.trusts),
            epsilons=(self.epsilon if epsilon is None else epsilon,),
            delta=self.delta,
            seed=self.seed,
        )

    def _list_parameters(self) -> list[tuple[str, object]]:
        """List the parameters of the environment, as on the command line."""
        family = [("strength", "{:g}:{:g}".format(*self.strengths))] if self.env == FAMILY else []
        return [("noise", self.noise), *family, *self.options]

    def _world(self) -> Mapping[str, Any]:
        if self.data is not None:
            return {"data": self.data}
        options = dict(self.options)
        if self.env == FAMILY:
            low, high = self.strengths
            # Rewards from 0 to 1, around one half.
            usual = {"radius": 0.5, "base": 0.5, "strength": high, "weakest": low}
            options = usual | options
        fields = {"env": self.env, "dim": self.dim, "arms": self.arms, "noise": self.noise}
        arguments: dict[str, Any] = {
            name: options.pop(name) for name in ("radius", "fewest") if name in options
        }
        if "contexts" in ENVIRONMENTS[self.env].options:
            arguments["contexts"] = (str(options.pop("contexts", "ball")),)
        return {**fields, **arguments, "options": tuple(options.items())}

    def cells(self, users: int) -> tuple[Cell, ...]:
        """Who is played: yardsticks, the bandit without privacy, and with it under each trust."""
        cells, is_greedy = self.comparison(users).cells(), self.policy == GREEDY
        return tuple(cell for cell in cells if is_greedy or cell.player.policy != GREEDY)

    def cell_at(self, cell: Cell, epsilon: float) -> Cell:
        """Return a cell with its epsilon replaced."""
        return dataclasses.replace(cell, player=dataclasses.replace(cell.player, epsilon=epsilon))

    @functools.cached_property
    def environment(self) -> AnyEnvironment:
        """The world that is simulated."""
        comparison = self.comparison(self.count)
        return comparison.environment(comparison.cells()[0].world)

    def problem(self, users: int) -> AnyProblem:
        """The public facts of so many users."""
        return self.environment.problem(users)

    def describe_assumptions(self) -> str:
        """What kind of world the answer speaks about."""
        if self.data is not None:
            differ, alternative = _differing(self.data)
            return (
                f"Assumed: users like those of the data. The simulated worlds differ in {differ}, "
                f"so intervals say what {alternative} may bring, not what other people may. These "
                "figures are read off the data and are not private."
            )
        if self.env != FAMILY:
            return (
                f"Assumed: the {self.env} world with its options; each simulated world has a "
                f"parameter of its own. Rewards are {self.noise}."
            )
        low, high = self.strengths
        base = dict(self.options).get("base", 0.5)
        return (
            "Assumed: features of users fill a ball, every arm has a linear model of its own, "
            f"rewards are {self.noise} with means around {base:g}, and the arms of each simulated "
            f"world differ by a strength drawn from {low:g} to {high:g} (1: as much as rewards "
            "allow; 0: all are alike). Where yours differ less, say so with "
            "--env-param strength=LOW:HIGH."
        )

    def data_notes(self) -> tuple[str, ...]:
        """What declared bounds did to data."""
        return () if self.data is None else tuple(describe_data(self.data))

    def warnings(self) -> tuple[str, ...]:
        """What is allowed but should be seen."""
        return self.comparison(self.count).warnings()

    def parameters(self) -> dict[str, object]:
        """Everything that was chosen, in the words of the command line."""
        world = {} if self.data is None else self.comparison(self.count).parameters()
        world_parameters = {
            name: value for name, value in world.items() if name not in _RUN_PARAMETERS
        }
        family: dict[str, object] = {
            "env": self.env,
            "dim": self.problem(1).dim,
            "arms": self.problem(1).arms,
            "env_param": [f"{name}={value}" for name, value in self._list_parameters()],
        }
        return {
            "users": self.count,
            **(family if self.data is None else world_parameters),
            "policy": self.policy,
            "trust": list(self.trusts),
            "epsilon": self.epsilon,
            "delta": self.delta,
            "seed": self.seed,
        }


def _differing(data: WorldOfData) -> tuple[str, str]:
    """In what simulated worlds of the same data differ, and what another one is."""
    if isinstance(data, Replay):
        return "which logged decisions are drawn, and in which order", "another draw of them"
    if data.orders == "bootstrap":
        return "who is drawn, and in which order", "another draw of the same users"
    return "the order of users", "another order"


_RUN_PARAMETERS = frozenset(
    ("horizon", "policy", "trust", "mechanism", "epsilon", "delta", "replicates", "seed", "mode")
)


def segments(users: int) -> tuple[int, int]:
    """How many users are simulated, and how often regret is read, in segments of equal length.

    A shorter last segment would be a program of its own, and compiling that takes longer than the
    few users are worth.

    >>> segments(100_000), segments(569), segments(50)
    ((100000, 100), (568, 71), (50, 50))
    """
    ticks = [count for count in _TICKS if count <= users] or [users]
    best = min(ticks, key=lambda count: (users % count, -count))
    return users - users % best, best


def shorter(users: int, share: float) -> int:
    """A share of users in round numbers, and never none.

    >>> shorter(1_000_000, 0.237)
    230000
    """
    target = max(float(_FEWEST_USERS), users * share)
    unit = 10 ** max(0, math.floor(math.log10(target)) - 1)
    return min(users, int(target // unit * unit))
