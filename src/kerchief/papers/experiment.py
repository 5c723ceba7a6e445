"""Experiments of the catalogue with their sizes, printed figures and claims."""

from __future__ import annotations

import dataclasses
import functools
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ParamSpec

from kerchief.comparison import plugins
from kerchief.comparison.plan import Layout, Panel, Plan
from kerchief.comparison.players import YARDSTICKS, Cell, Key, Player, needs_best_arm, player
from kerchief.comparison.results import Result
from kerchief.comparison.verdict import Verdict
from kerchief.core import validate
from kerchief.core.errors import InvalidValueError
from kerchief.core.registry import Registry
from kerchief.papers.claims import Claim, judge, paid
from kerchief.policies import POLICIES
from kerchief.simulation.run import AnyEnvironment

Declared = ParamSpec("Declared")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
    """Environment of an experiment: a column of the table, such as "fixed".

    Attributes:
        number: its place on the picture's axis of environments, if there is one.
        horizon: number of rounds here, where environments differ in it; None for that of the size.
        players: players here, beside baselines and non-private counterparts; all if empty.
    """

    name: str
    make: Callable[[], AnyEnvironment]
    number: float | None = None
    horizon: int | None = None
    players: tuple[Player, ...] = ()

    @functools.cached_property
    def environment(self) -> AnyEnvironment:
        """The environment, built when it is first needed."""
        return self.make()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Size:
    """Horizon, replicates and players of a run.

    Attributes:
        settings: names of the environments, in their order; all if empty.
        players: players beside the baselines; all, and their non-private counterparts, if empty.
    """

    horizon: int
    replicates: int
    settings: tuple[str, ...] = ()
    players: tuple[Player, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Experiment:
    """Entry of the catalogue: players in environments, with claims about their regret.

    Baselines always play too and come first: uniform play, greedy play and, at full size, the
    non-private counterpart of each protected player, tuned and with widths of the same kind. Every
    experiment also claims that no private row spends more than its budget.

    Attributes:
        full: the size that all claims are made for; `quick` is that of a smoke test.
        sizes: the paper's parameters, or which are smaller here and why.
        claims: ours, which must hold, and the paper's, each with its recorded verdict.
        claimed: what the paper claims.
        holds: which part of that holds at a proved guarantee.
        printed: regrets from the paper's own table.
        panels: what the picture shows of each environment.
        axis: what the numbers of settings are; with it, the picture shows regret against them.
    """

    name: str
    title: str
    summary: str
    source: str
    settings: tuple[Setting, ...]
    players: tuple[Player, ...]
    delta: float = 1e-5
    full: Size
    quick: Size
    claims: tuple[Claim, ...]
    sizes: str = ""
    claimed: str = ""
    holds: str = ""
    printed: Mapping[Key, float] = dataclasses.field(default_factory=dict)
    panels: tuple[Panel, ...] = ("rounds", "epsilon")
    axis: str | None = None

    def __post_init__(self) -> None:
        """Check that every claim is about a row that is played."""
        if not self.claims:
            raise InvalidValueError(f"experiment {self.name!r} claims nothing; give it a claim")
        for setting in self.settings:
            if self._list_worlds().count(setting.name) > 1:
                raise InvalidValueError(
                    f"experiment {self.name!r} has two worlds {setting.name!r}; name them apart"
                )
            for configuration in setting.players:
                if configuration not in self.players:
                    raise InvalidValueError(
                        f"experiment {self.name!r}, {setting.name}: {configuration.label()} is "
                        "none of its players"
                    )
        self._check_played("printed", self.printed, self.full)
        for claim in self.claims:
            self._check_played(claim.sentence, claim.needs, self.size(quick=claim.quick))
        if not self.panels and self.axis is None:
            raise InvalidValueError(
                f"experiment {self.name!r} draws nothing; give it panels or an axis"
            )
        if self.axis is not None and any(setting.number is None for setting in self.settings):
            raise InvalidValueError(
                f"experiment {self.name!r} has an axis; give each world its number"
            )

    def lineup(self, size: Size, world: str) -> tuple[Player, ...]:
        """Return the players of an environment, in the order of the table."""
        here = self.setting(world).players or self.players
        parents = [parent for configuration in here for parent in configuration.parents()]
        absent = set(self.players).difference(here, parents)
        players = [
            configuration
            for configuration in size.players or (*parents, *here)
            if configuration not in absent
        ]
        action_kinds = [
            set(POLICIES[configuration.policy].actions) for configuration in self.players
        ]
        # Where arms have models, their numbers say which they are, and one of them is the best.
        has_best_arm = all("models" in kinds for kinds in action_kinds)
        fitting = (
            name
            for name in YARDSTICKS
            if all(map(POLICIES[name].actions_among, action_kinds))
            and (has_best_arm or not needs_best_arm(name))
        )
        return tuple(dict.fromkeys([*map(player, fitting), *players]))

    def setting(self, world: str) -> Setting:
        """Return the setting with the name of this environment."""
        (setting,) = [setting for setting in self.settings if setting.name == world]
        return setting

    @property
    def ours(self) -> tuple[Claim, ...]:
        """Claims that must hold."""
        return tuple(claim for claim in self.claims if claim.source == "ours")

    @property
    def of_paper(self) -> tuple[Claim, ...]:
        """Claims of the paper, with their recorded verdicts."""
        return tuple(claim for claim in self.claims if claim.source == "paper")

    def size(self, *, quick: bool) -> Size:
        """Return the quick size or the full size."""
        return self.quick if quick else self.full

    def keys(self, size: Size) -> tuple[Key, ...]:
        """Return the keys of all rows, environment by environment."""
        worlds = size.settings or self._list_worlds()
        return tuple(
            Key(configuration, world)
            for world in worlds
            for configuration in self.lineup(size, world)
        )

    def plan(
        self, *, quick: bool = False, replicates: int | None = None, seed: int = 0
    ) -> Reproduction:
        """Build a plan of this experiment, optionally with other replicates.

        Claims that were made for more replicates are then not judged.
        """
        size = self.size(quick=quick)
        return Reproduction(
            experiment=self,
            quick=quick,
            horizon=size.horizon,
            replicates=size.replicates if replicates is None else replicates,
            seed=seed,
        )

    def _list_worlds(self) -> list[str]:
        return [setting.name for setting in self.settings]

    def _check_played(self, subject: str, keys: Iterable[Key], size: Size) -> None:
        played_keys = set(self.keys(size))
        for key in keys:
            if key not in played_keys:
                raise InvalidValueError(f"experiment {self.name!r}, {subject}: {key} is not played")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reproduction(Plan):
    """Plan of an experiment at full or quick size; see `Experiment.plan`."""

    experiment: Experiment
    quick: bool

    def __post_init__(self) -> None:
        """Check the numbers; tests check that every player can be built."""
        validate.plain(self)
        # Standard errors need two.
        validate.whole("replicates", self.replicates, low=2, high=10**6)
        validate.whole("seed", self.seed, low=0, high=2**32 - 1)

    @property
    def name(self) -> str:
        """Name of the experiment."""
        return self.experiment.name

    @property
    def title(self) -> str:
        """Title of the experiment."""
        return self.experiment.title

    def lead(self) -> str:
        """Describe what the experiment shows, its source and its size."""
        size = "quick size" if self.quick else "full size"
        return (
            f"{self.experiment.summary} ({self.experiment.source}): {self.horizon} rounds, "
            f"{self.replicates} replicates, seed {self.seed}, {size}."
        )

    def cells(self) -> tuple[Cell, ...]:
        """Return every player in every environment where it plays."""
        return tuple(
            Cell(
                player=key.player,
                world=key.world,
                delta=self.experiment.delta,
                horizon=self.experiment.setting(key.world).horizon or self.horizon,
            )
            for key in self.experiment.keys(self.experiment.size(quick=self.quick))
        )

    def environment(self, world: str) -> AnyEnvironment:
        """Return the environment of this name."""
        return self.experiment.setting(world).environment

    def parameters(self) -> dict[str, object]:
        """Return every choice that the catalogue does not make."""
        return {
            "experiment": self.name,
            "quick": self.quick,
            "contexts": list(dict.fromkeys(cell.world for cell in self.cells())),
            "horizon": self.horizon,
            "delta": self.experiment.delta,
            "replicates": self.replicates,
            "seed": self.seed,
        }

    def command(self) -> str:
        """Return the command line that runs the experiment again."""
        arguments = ["kerchief", *plugins.flags(), "reproduce", self.name]
        arguments += ["--quick"] * self.quick
        arguments += ["--replicates", str(self.replicates), "--seed", str(self.seed)]
        return shlex.join(arguments)

    def layout(self) -> Layout:
        """Return what the picture shows."""
        settings = self.experiment.settings
        numbers = {
            setting.name: setting.number for setting in settings if setting.number is not None
        }
        return Layout(panels=self.experiment.panels, axis=self.experiment.axis, numbers=numbers)

    def printed(self) -> Mapping[Key, float]:
        """Return the paper's regrets for environments at the paper's horizon."""
        alike = self.horizon == self.experiment.full.horizon
        return {
            key: regret
            for key, regret in self.experiment.printed.items()
            if alike or self.experiment.setting(key.world).horizon is not None
        }

    def note(self) -> str:
        """Say where the paper's figures are left out, being for another horizon.

        >>> from kerchief.papers.catalogue import EXPERIMENTS
        >>> EXPERIMENTS["table-two"].plan(quick=True).note()
        'The paper printed its figures for 5000 rounds; they are not shown beside 2000.'
        """
        if len(self.printed()) == len(self.experiment.printed):
            return ""
        return (
            f"The paper printed its figures for {self.experiment.full.horizon} rounds; they are "
            f"not shown beside {self.horizon}."
        )

    def verdicts(self, results: Sequence[Result]) -> tuple[Verdict, ...]:
        """Judge each claim: ours, then the privacy cost, then the paper's."""
        rows = {result.cell.key: result for result in results}
        private = [cell.key for cell in self.cells() if cell.asked is not None]
        own_claims = (*self.experiment.ours, paid(private, quick=True))
        return tuple(
            judge(claim, rows, large_enough=self._is_large_enough(claim), full=self._is_full)
            for claim in (*own_claims, *self.experiment.of_paper)
        )

    def _is_large_enough(self, claim: Claim) -> bool:
        """Whether the run has at least the size for which the claim was made."""
        least = self.experiment.size(quick=claim.quick)
        return self.horizon >= least.horizon and self.replicates >= least.replicates

    @property
    def _is_full(self) -> bool:
        """Whether this is the full size, where an undecided verdict is a difference."""
        return not self.quick and self.replicates >= self.experiment.full.replicates


EXPERIMENTS: Registry[Experiment] = Registry("experiment", listed=("experiments",))


def _add_to_catalogue(declare: Callable[Declared, Experiment]) -> Callable[Declared, Experiment]:
    def declare_and_add(*args: Declared.args, **facts: Declared.kwargs) -> Experiment:
        experiment = declare(*args, **facts)
        return EXPERIMENTS.add(experiment.name, experiment)

    return declare_and_add


enter = _add_to_catalogue(Experiment)
"""Declare an experiment and enter it into the catalogue, under its own name."""
