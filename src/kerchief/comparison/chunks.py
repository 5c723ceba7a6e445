"""The units of work: some replicates of one cell, which can be played anywhere."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

import jax

from kerchief.comparison.fingerprint import fingerprint
from kerchief.comparison.plan import Plan
from kerchief.comparison.players import Cell
from kerchief.comparison.versions import versions
from kerchief.core.contracts import BoundedLoss
from kerchief.core.precision import double_precision
from kerchief.core.problems import AnyProblem
from kerchief.deployment.protected_policy import ProtectedPolicy
from kerchief.policies import POLICIES, PrivacyBudget
from kerchief.privacy.guarantee import Guarantee
from kerchief.privacy.ledger import MemoryLedger
from kerchief.privatizers.bits import BitSums
from kerchief.simulation.ahead import is_foreseen
from kerchief.simulation.recorder import Progress
from kerchief.simulation.rounds import Contender
from kerchief.simulation.run import AnyEnvironment, Run, simulate_side_by_side

MAX_FEATURES = 2**24
"""What one part may hold in arms; a round keeps a handful of such arrays."""

MAX_HISTORY_NUMBERS = 2**28
"""What one part may hold in histories, for policies that ask for fits."""

MAX_REPLICATES = 2**14
"""How many replicates may be mapped over at once: on one kind of CPU, JAX 0.10 was seen to give
wrong numbers in some programs from the 16385th on."""

MAX_GROUP_SIZE = 8
"""How many bandits are played at once where they meet the same arms: what was finished is kept when
all of them are, and more save little."""

_MATRICES = 10
"""So many a replicate keeps at most: under joint trust half of one for each doubling of rounds."""

MAX_REPLICATES_ON_CPU = 64
"""More at once are no faster on a processor, where smaller parts can be shared out."""


@functools.lru_cache(maxsize=1024)
def build_protected_policy(cell: Cell, problem: AnyProblem) -> ProtectedPolicy:
    """The bandit of a cell with its protection, built once.

    Raises:
        KerchiefError: something is unknown, out of its bound, or not to be had in this world.
    """
    # By many small steps, each of which takes an accelerator longer.
    with jax.default_device(jax.devices("cpu")[0]):
        return cell.player.build_protected(problem, cell.player.promise(cell.delta, cell.horizon))


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Chunk:
    """Replicates `first` to `last` (without it) of a cell, with all that playing them needs."""

    cell: Cell
    environment: AnyEnvironment
    seed: int
    first: int
    last: int
    ticks: int

    def play(self, progress: Progress | None = None) -> ChunkResult:
        """Play them, with a ledger of their own: replicates are universes of one deployment."""
        (result,) = play_side_by_side([self], [progress])
        return result

    @double_precision
    def address(self) -> str:
        """A text that is equal for two parts if they are played alike, number for number.

        It covers what was asked for, the code that turns it into numbers, and the kind of device.
        """
        code = (POLICIES[self.cell.player.policy].kinds, versions(), jax.devices()[0].device_kind)
        place = (self.seed, self.first, self.last, self.ticks)
        return fingerprint(self.cell, self.environment, *place, *code)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChunkResult:
    """A part that was played.

    Attributes:
        run: what was recorded.
        noises: for each query, the class of the noise that was drawn; none without protection.
        alone: what one report promises by itself, on its way to the shuffler; None where nothing.
    """

    run: Run
    noises: Mapping[str, str]
    alone: Guarantee | None


def play_side_by_side(
    parts: Sequence[Chunk], progress: Sequence[Progress | None]
) -> list[ChunkResult]:
    """Play parts that `group_chunks` has put together; each comes out as if played alone."""
    first = parts[0]
    horizon, problem = first.cell.horizon, first.environment.problem(first.cell.horizon)
    bandits = [build_protected_policy(part.cell, problem) for part in parts]
    contenders = [
        Contender(
            policy=bandit.policy,
            privatizers=bandit.privatizers,
            ledger=MemoryLedger(part.cell.guarantee),
            progress=callback,
        )
        for part, bandit, callback in zip(parts, bandits, progress, strict=True)
    ]
    runs = simulate_side_by_side(
        contenders,
        environment=first.environment,
        horizon=horizon,
        replicates=first.last - first.first,
        seed=first.seed,
        first_replicate=first.first,
        ticks=first.ticks,
    )
    return [
        ChunkResult(
            run=run, noises=_name_noises(bandit), alone=_find_report_guarantee(bandit, horizon)
        )
        for run, bandit in zip(runs, bandits, strict=True)
    ]


def play_together(
    parts: Sequence[Chunk], progress: Sequence[Progress | None]
) -> Iterator[tuple[Chunk, ChunkResult]]:
    """Play parts side by side; where one of them fails, one by one, and then say which."""
    try:
        results = play_side_by_side(parts, progress)
    except Exception as problem:
        if len(parts) == 1:
            problem.add_note(f"{parts[0].cell.key}, replicates {parts[0].first} and on")
            raise
    else:
        yield from zip(parts, results, strict=True)
        return
    failed: Exception | None = None
    for part, callback in zip(parts, progress, strict=True):
        try:
            yield from play_together([part], [callback])
        except Exception as problem:
            failed = failed or problem
    if failed is not None:
        raise failed


def group_chunks(parts: Iterable[Chunk], *, tasks: int = 1) -> list[list[Chunk]]:
    """Parts that meet the same arms, a few at a time; all others by themselves.

    So few that there can be as many `tasks` in all.
    """
    meetings: dict[Hashable, list[Chunk]] = {}
    for part in parts:
        place = (part.seed, part.first, part.last, part.ticks)
        alike = (id(part.environment), part.cell.horizon, *place)
        meetings.setdefault(alike if is_foreseen(part.environment) else part, []).append(part)
    share = -(-tasks // max(1, len(meetings)))
    return [group for meeting in meetings.values() for group in _split_meeting(meeting, share)]


def _split_meeting(meeting: list[Chunk], tasks: int) -> Iterator[list[Chunk]]:
    """Groups in bounded memory: each keeps the histories and matrices of all its parts."""
    if len(meeting) == 1:
        yield meeting
        return
    limit = max(1, min(MAX_GROUP_SIZE, len(meeting) // tasks))
    problem = meeting[0].environment.problem(meeting[0].cell.horizon)
    replicates = meeting[0].last - meeting[0].first
    group: list[Chunk] = []
    total = 0
    for part in meeting:
        size = replicates * (_count_kept_numbers(part.cell, problem) + _MATRICES * problem.dim**2)
        if group and (len(group) == limit or total + size > MAX_HISTORY_NUMBERS):
            yield group
            group, total = [], 0
        group.append(part)
        total += size
    yield group


def _name_noises(bandit: ProtectedPolicy) -> dict[str, str]:
    noises = {name: privatizer.noises for name, privatizer in bandit.privatizers.items()}
    return {name: type(mechanisms[0]).__name__ for name, mechanisms in noises.items() if mechanisms}


def _find_report_guarantee(bandit: ProtectedPolicy, horizon: int) -> Guarantee | None:
    """Return the guarantee of one report alone, where bits are randomized one by one."""
    for privatizer in bandit.privatizers.values():
        if isinstance(privatizer, BitSums):
            return dataclasses.replace(privatizer.alone, rounds=horizon)
    return None


def split_chunks(plan: Plan, *, ticks: int, width: int) -> Iterator[list[Chunk]]:
    """The parts of each cell, none of more replicates than `width`."""
    for cell in plan.cells():
        world = plan.environment(cell.world)
        yield [
            Chunk(
                cell=cell,
                environment=world,
                seed=plan.seed,
                first=first,
                last=last,
                ticks=ticks,
            )
            for first, last in itertools.pairwise(_edges(plan.replicates, width))
        ]


def _edges(replicates: int, width: int) -> list[int]:
    """Where parts begin and end: of one width where they can be, as each width is compiled.

    >>> _edges(100, 64), _edges(10, 10), _edges(7, 4)
    ([0, 50, 100], [0, 10], [0, 4, 7])
    """
    fewest = -(-replicates // width)
    count = next(
        (divisor for divisor in range(fewest, 2 * fewest) if replicates % divisor == 0), fewest
    )
    return [-(-replicates * i // count) for i in range(count + 1)]


def find_chunk_width(plan: Plan) -> int:
    """How many replicates of a plan play at once: in bounded memory, and few on a processor."""
    worlds = [(cell, plan.environment(cell.world)) for cell in plan.cells()]
    problems = [(cell, world.problem(cell.horizon)) for cell, world in worlds]
    round_size = max(_count_round_numbers(problem) for _, problem in problems)
    history_size = max(_count_kept_numbers(cell, problem) for cell, problem in problems)
    limit = MAX_REPLICATES_ON_CPU if jax.default_backend() == "cpu" else MAX_REPLICATES
    room = min(limit, MAX_FEATURES // round_size, MAX_HISTORY_NUMBERS // max(1, history_size))
    return max(1, min(plan.replicates, room))


def _count_round_numbers(problem: AnyProblem) -> int:
    """How many numbers a replicate looks at in a round: features, weights, or a few matrices."""
    if problem.arms == 0:
        return 4 * problem.dim**2
    return problem.arms * max(1, problem.dim)


def _count_kept_numbers(cell: Cell, problem: AnyProblem) -> int:
    """How many numbers a replicate keeps for the whole run: a history, where it asks for fits."""
    player = cell.player
    promised = PrivacyBudget(epsilon=player.epsilon, delta=cell.delta, trust=player.trust)
    terms = None if cell.asked is None else promised
    queries = POLICIES[player.policy].build(problem, player.mode, terms).queries.values()
    return cell.horizon * sum(query.size for query in queries if isinstance(query, BoundedLoss))
