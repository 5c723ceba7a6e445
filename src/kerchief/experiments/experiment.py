"""Experiments of the catalogue: what is played at which size, what was printed, what is claimed."""

from __future__ import annotations

import dataclasses
import functools
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ParamSpec

from kerchief.core import validate
from kerchief.core.errors import InvalidValue
from kerchief.core.registry import Registry
from kerchief.experiments import plugins
from kerchief.experiments.claims import Claim, Verdict, judge, paid
from kerchief.experiments.plan import Layout, Panel, Plan
from kerchief.experiments.players import YARDSTICKS, Cell, Key, Player, needs_telling, player
from kerchief.experiments.results import Result
from kerchief.policies import POLICIES
from kerchief.simulation.run import AnyEnvironment

Declared = ParamSpec("Declared")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
    """A world of an experiment: a column of the table, such as "fixed" or "S=2".

    Attributes:
        number: its place on the picture's axis of worlds, if there is one.
        horizon: number of rounds here, where worlds differ in it; None for that of the size.
        players: who plays here, beside yardsticks and parents; all where none is named.
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
    """How much is played, and by whom.

    Attributes:
        settings: the worlds by name, in their order; all where none is named.
        players: who plays in them beside the yardsticks; all, and their parents, where none is
            named.
    """

    horizon: int
    replicates: int
    settings: tuple[str, ...] = ()
    players: tuple[Player, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Experiment:
    """An entry of the catalogue: players in worlds.

    Uniform play, greedy play, and at full size the non-private parent of each protected player,
    tuned and with widths of the same kind, always play along and come first. That no private row
    spends more than was asked for is always claimed.

    Attributes:
        full: the size that all claims are made for; `quick` is that of a smoke test.
        sizes: the paper's parameters, or which are smaller here and why.
        claims: ours, which must hold, and the paper's, each with its recorded verdict.
        claimed: what the paper claims of this.
        holds: what holds of that at a true guarantee.
        printed: regrets from the paper's own table.
        panels: what the picture shows of each world.
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
        """Check that every sentence is about something that is played."""
        if not self.claims:
            raise InvalidValue(f"experiment {self.name!r} claims nothing; give it a claim")
        for setting in self.settings:
            if self._worlds().count(setting.name) > 1:
                raise InvalidValue(
                    f"experiment {self.name!r} has two worlds {setting.name!r}; name them apart"
                )
            for one in setting.players:
                if one not in self.players:
                    raise InvalidValue(
                        f"experiment {self.name!r}, {setting.name}: {one.label()} is none of its "
                        "players"
                    )
        self._check_played("printed", self.printed, self.full)
        for claim in self.claims:
            self._check_played(claim.sentence, claim.needs, self.size(quick=claim.quick))
        if not self.panels and self.axis is None:
            raise InvalidValue(f"experiment {self.name!r} draws nothing; give it panels or an axis")
        if self.axis is not None and any(one.number is None for one in self.settings):
            raise InvalidValue(f"experiment {self.name!r} has an axis; give each world its number")

    def lineup(self, size: Size, world: str) -> tuple[Player, ...]:
        """Who plays in a world, in the order of the table."""
        here = self.setting(world).players or self.players
        parents = [parent for one in here for parent in one.parents()]
        absent = set(self.players).difference(here, parents)
        players = [one for one in size.players or (*parents, *here) if one not in absent]
        played = [set(POLICIES[one.policy].actions) for one in self.players]
        # Where arms have models, their numbers say which they are, and one of them is the best.
        told = all("models" in one for one in played)
        fitting = (
            name
            for name in YARDSTICKS
            if all(map(POLICIES[name].actions_among, played)) and (told or not needs_telling(name))
        )
        return tuple(dict.fromkeys([*map(player, fitting), *players]))

    def setting(self, world: str) -> Setting:
        """The world of that name."""
        (found,) = [one for one in self.settings if one.name == world]
        return found

    @property
    def ours(self) -> tuple[Claim, ...]:
        """The claims that must hold."""
        return tuple(claim for claim in self.claims if claim.source == "ours")

    @property
    def of_paper(self) -> tuple[Claim, ...]:
        """The claims of the paper, with their recorded verdicts."""
        return tuple(claim for claim in self.claims if claim.source == "paper")

    def size(self, *, quick: bool) -> Size:
        """The one or the other."""
        return self.quick if quick else self.full

    def keys(self, size: Size) -> tuple[Key, ...]:
        """Every row, world by world."""
        worlds = size.settings or self._worlds()
        return tuple(Key(one, world) for world in worlds for one in self.lineup(size, world))

    def plan(
        self, *, quick: bool = False, replicates: int | None = None, seed: int = 0
    ) -> Reproduction:
        """Make it ready to play, with replicates in place of those of the size.

        Claims that were made for more are then not judged.
        """
        size = self.size(quick=quick)
        return Reproduction(
            experiment=self,
            quick=quick,
            horizon=size.horizon,
            replicates=size.replicates if replicates is None else replicates,
            seed=seed,
        )

    def _worlds(self) -> list[str]:
        return [setting.name for setting in self.settings]

    def _check_played(self, words: str, keys: Iterable[Key], size: Size) -> None:
        played = set(self.keys(size))
        for key in keys:
            if key not in played:
                raise InvalidValue(f"experiment {self.name!r}, {words}: {key} is not played")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reproduction(Plan):
    """An experiment at full or quick size; make it with `Experiment.plan`."""

    experiment: Experiment
    quick: bool

    def __post_init__(self) -> None:
        """Check the numbers; that every player can be built is tested, as it may take minutes."""
        validate.plain(self)
        # Standard errors need two.
        validate.whole("replicates", self.replicates, low=2, high=10**6)
        validate.whole("seed", self.seed, low=0, high=2**32 - 1)

    @property
    def name(self) -> str:
        """The experiment's."""
        return self.experiment.name

    @property
    def title(self) -> str:
        """The experiment's."""
        return self.experiment.title

    def lead(self) -> str:
        """What it shows, where it is from, and its size."""
        size = "quick size" if self.quick else "full size"
        return (
            f"{self.experiment.summary} ({self.experiment.source}): {self.horizon} rounds, "
            f"{self.replicates} replicates, seed {self.seed}, {size}."
        )

    def cells(self) -> tuple[Cell, ...]:
        """Every player in every world where it plays."""
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
        """The world of that name."""
        return self.experiment.setting(world).environment

    def parameters(self) -> dict[str, object]:
        """Everything that was chosen; the rest is in the catalogue."""
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
        """The command line that plays it again."""
        words = ["kerchief", "reproduce", self.name, *plugins.flags()]
        words += ["--quick"] * self.quick
        words += ["--replicates", str(self.replicates), "--seed", str(self.seed)]
        return shlex.join(words)

    def layout(self) -> Layout:
        """What the picture shows."""
        settings = self.experiment.settings
        numbers = {one.name: one.number for one in settings if one.number is not None}
        return Layout(panels=self.experiment.panels, axis=self.experiment.axis, numbers=numbers)

    def printed(self) -> Mapping[Key, float]:
        """The regrets that the paper printed, of those worlds that are played as long as there."""
        alike = self.horizon == self.experiment.full.horizon
        return {
            key: regret
            for key, regret in self.experiment.printed.items()
            if alike or self.experiment.setting(key.world).horizon is not None
        }

    def note(self) -> str:
        """Where the paper's figures are not shown, since they are for another horizon.

        >>> from kerchief.experiments.catalogue import EXPERIMENTS
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
        """The verdict on each claim: ours first, with the privacy cost, then the paper's."""
        rows = {result.cell.key: result for result in results}
        private = [cell.key for cell in self.cells() if cell.asked is not None]
        ours = (*self.experiment.ours, paid(private, quick=True))
        return tuple(
            judge(claim, rows, large_enough=self._large_enough(claim), full=self._full)
            for claim in (*ours, *self.experiment.of_paper)
        )

    def _large_enough(self, claim: Claim) -> bool:
        """Whether the claim was made for this size or a smaller one."""
        least = self.experiment.size(quick=claim.quick)
        return self.horizon >= least.horizon and self.replicates >= least.replicates

    @property
    def _full(self) -> bool:
        """Whether this is the full size, at which an undecided verdict differs from its record."""
        return not self.quick and self.replicates >= self.experiment.full.replicates


EXPERIMENTS: Registry[Experiment] = Registry("experiment", listed=("experiments",))


def _entering(declare: Callable[Declared, Experiment]) -> Callable[Declared, Experiment]:
    def entered(*args: Declared.args, **facts: Declared.kwargs) -> Experiment:
        experiment = declare(*args, **facts)
        return EXPERIMENTS.add(experiment.name, experiment)

    return entered


enter = _entering(Experiment)
"""Declare an experiment and enter it into the catalogue, under its own name."""
