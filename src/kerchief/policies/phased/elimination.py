"""Phased elimination, distributed or with another client in each round: one bandit for every trust.

F. Li, X. Zhou, B. Ji, "Differentially private linear bandits with partial distributed feedback"
(2022; DP-DPE, Algorithm 1): a phase plays a near-optimal design on the actions that survive, asks
fresh clients how they fared, and drops what is clearly worse than the best. A client is asked once,
so phases compose in parallel; each asks more clients than the one before.

With `once` it is the ordinary linear bandit (DP-PE, their Algorithm 3), in which every round is
another client's: a client plays one action, which is public, and is asked for that reward alone.
The sum of the rewards of each action is released, with noise of its own.

The same functions are the non-private bandit and its central, shuffle and local versions: the
policy sees the noise level of the mean answer and nothing else of the protection. `elimination.md`
has the proofs, and says where it departs from the paper: exact widths, the cheaper of two ways to
answer, phases that are not played, and what is played at last.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal, Self, TypeAlias

import jax
import jax.numpy as jnp
from jax import Array

from kerchief.core.contracts import NoiseInfo
from kerchief.core.design import Design, near_optimal
from kerchief.core.errors import InvalidValueError
from kerchief.core.phases import ANSWERS, Phase, PhasePolicy, PhaseQuery
from kerchief.core.problems import PopulationProblem
from kerchief.core.queries import UnitBallVector
from kerchief.core.struct import static, struct
from kerchief.core.validate import MOST_ROUNDS, or_default, whole
from kerchief.policies.registry import Mode, register

Rule: TypeAlias = Literal["exact", "paper"]

# Encoder, decoder, and how many numbers are sent.
_Coding: TypeAlias = tuple[Array, Array, Array]

# The most actions that a design plays, over the number of dimensions.
_ATOMS_PER_DIM = 2

# An action this far outside the span of the design was not learned about; its square.
_OUTSIDE = 1e-9


@struct
class State:
    """What the learner knows: the actions that survive, and which of them looks best."""

    allowed: Array
    best: Array


@struct
class Elimination(PhasePolicy):
    """Elimination in phases on near-optimal designs.

    Attributes:
        width: z, how many standard deviations an action must lag to be dropped; 0 is greedy.
        growth: α, phase l asks ⌈2^(αl)⌉ clients.
        clients: how many every phase asks, if above 0, whatever the growth (DPE-FixedU).
        margin: t, a client's own estimate is clipped to a length that it exceeds with a chance of
            at most 2 exp(-t).
        hope: a phase is played if its width is below this share of the largest possible gap.
        rule: `exact` widths and what goes with them, or the `paper`'s.
        once: whether every round is another client's (DP-PE); then growth, clients and margin mean
            nothing.
        even: with `once`, whether all groups of a phase have equally many clients, whatever the
            design: their sizes are then known before the first client.

    >>> problem = PopulationProblem(dim=2, arms=5, norm=1.0, radius=1.0, low=-1.0, high=1.0,
    ...                             horizon=1000, clients=600, spread=0.1)
    >>> policy = Elimination.of(problem, rule="paper")
    >>> [(phase.pulls, phase.clients) for phase in policy.phases(lambda clients: 0.0)][-2:]
    [(128, 49), (256, 85)]
    >>> alone = Elimination.of(problem, rule="paper", once=True)
    >>> [(phase.pulls, phase.clients) for phase in alone.phases(lambda clients: 0.0)]
    [(17, 21), (34, 38), (68, 72), (136, 140), (272, 276)]
    """

    query: UnitBallVector = static()
    problem: PopulationProblem = static()
    rule: Rule = static()
    once: bool = static()
    even: bool = static(default=False)
    width: float | Array
    growth: float | Array
    clients: float | Array
    margin: float | Array
    hope: float | Array

    @classmethod
    def of(
        cls,
        problem: PopulationProblem,
        *,
        mode: Mode = "tuned",
        rule: Rule = "exact",
        width: float | None = None,
        clients: int = 0,
        once: bool = False,
    ) -> Self:
        """Build it from public facts alone; `width` is z in place of the mode's."""
        theory = mode == "theory"
        # In theory the best action is dropped in some phase with a chance of at most 1/T.
        phases = math.ceil(math.log2(problem.horizon + 1))
        union = math.sqrt(2 * math.log(problem.arms * phases * problem.horizon))
        usual = union if theory else 4.75
        return cls(
            query=UnitBallVector(size=1 if once else _ATOMS_PER_DIM * problem.dim),
            problem=problem,
            rule=rule,
            once=once,
            width=or_default("width", width, usual),
            growth=0.8,
            clients=float(whole("clients", clients, low=0, high=MOST_ROUNDS)),
            margin=math.log(2 * problem.clients * problem.horizon) if theory else 1.0,
            hope=0.5,
        )

    @property
    def queries(self) -> Mapping[str, UnitBallVector]:
        """The only query, one vector per client."""
        return {ANSWERS: self.query}

    @property
    def limits(self) -> Mapping[str, tuple[float, float]]:
        """Bounds of its numbers: a phase asks 2^(growth l) clients, or so many."""
        return {"growth": (0.0, 2.0), "clients": (0.0, MOST_ROUNDS)}

    @property
    def groups(self) -> int:
        """All clients of a phase together, or those of each action."""
        return self._atoms if self.once else 1

    def with_equal_groups(self) -> Self:
        """Return the policy with groups of equal sizes, where a group is one action's."""
        return dataclasses.replace(self, even=self.once)

    def phases(self, noise: Callable[[int], float]) -> tuple[Phase, ...]:
        """Plan all phases that fit before the horizon if no play is rounded up.

        Where every round is another client's, all that fit even if every play is rounded up. A
        population that is too small to ask everyone at most once is refused.
        """
        if float(self.clients) % 1:
            raise InvalidValueError(f"clients is {self.clients}; nobody is asked in part: round it")
        number = 1 if self.rule == "paper" else self._start(noise)
        phases: list[Phase] = []
        rounds = first = 0
        while rounds + self._length(number) <= self.problem.horizon:
            pulls, clients = self._pulls(number), self._clients(number)
            phases.append(Phase(number=number, pulls=pulls, first=first, clients=clients))
            rounds, first, number = rounds + self._length(number), first + clients, number + 1
        if first > self.problem.clients:
            raise InvalidValueError(
                f"{len(phases)} phases ask {first} clients, each of them once, and the population "
                f"has {self.problem.clients}; take a larger population, fewer rounds or less growth"
            )
        return tuple(phases)

    def init(self, outlook: Mapping[str, NoiseInfo]) -> State:
        """Every action survives."""
        return State(allowed=jnp.ones(self.problem.arms, bool), best=jnp.int32(0))

    def ask(self, features: Array, state: State, phase: Phase, *, noisy: bool) -> PhaseQuery:
        """Assign a design on the survivors, in whole plays, and its questions to clients."""
        x, design = features.astype(jnp.float64), self._design(features, state)
        weights, atoms = jax.lax.top_k(design.weights, self._atoms)
        plays = jnp.ceil(phase.pulls * weights)
        if self.even:
            # The actions of the design in turn, beginning with the heaviest.
            atoms = atoms[jnp.arange(self._atoms) % jnp.maximum(1, (weights > 0).sum())]
            plays = jnp.full_like(plays, phase.clients // self._atoms)
        weighted = x[atoms] * plays[:, None]
        inverse, span = _inverse(weighted.T @ x[atoms], design), design.basis.T @ design.basis
        if self.once:
            return self._one_reward(atoms, plays, inverse, span, inverse @ weighted.T)
        encoder, decoder, reals = averages = self._averages(plays, inverse @ weighted.T)
        if noisy and self.rule == "exact":
            # Without noise the two ways say the same, and averages never have to be clipped.
            survivors = jnp.where(state.allowed[:, None], x, 0)
            estimates = self._estimate(inverse, span, design.rank, inverse @ weighted.T)
            better = _find_largest_variance(survivors, estimates) < _find_largest_variance(
                survivors, averages
            )
            encoder, decoder, reals = (
                jnp.where(better, by_estimate, by_average)
                for by_estimate, by_average in zip(estimates, averages, strict=True)
            )
        return PhaseQuery(
            atoms=atoms[None],
            pulls=plays[None],
            plays=plays[None],
            users=jnp.asarray(phase.clients, jnp.int32)[None],
            encoder=encoder[None],
            decoder=decoder,
            inverse=inverse,
            span=span,
            reals=reals,
        )

    def answer(self, asked: PhaseQuery, group: Array | int, averages: Array) -> Array:
        """The client's averages, clipped to the public bounds, through the encoder."""
        clipped = jnp.clip(averages, self.problem.low, self.problem.high)
        return asked.encoder[group].astype(averages.dtype) @ clipped

    def update(
        self,
        features: Array,
        state: State,
        asked: PhaseQuery,
        phase: Phase,
        mean: Array,
        noise: Array,
    ) -> State:
        """Drop every action that lags the best by more than its width."""
        x = features.astype(jnp.float64)
        scores = jnp.where(state.allowed, x @ (asked.decoder @ mean), -jnp.inf)
        best = jnp.argmax(scores)
        rule = self._exact_widths if self.rule == "exact" else self._paper_width
        lags = scores[best] - scores > rule(x[best] - x, asked, phase, noise)
        is_in_span = ((x - x @ asked.span) ** 2).sum(1) < _OUTSIDE
        return State(allowed=state.allowed & ~(lags & is_in_span), best=best.astype(jnp.int32))

    def is_settled(self, state: State) -> Array:
        """Whether one action is left; the paper goes on asking."""
        return (state.allowed.sum() == 1) & (self.rule == "exact")

    def finish(self, features: Array, state: State) -> Array:
        """Play the action that looks best; the paper goes on with its design."""
        if self.rule == "paper":
            return self._design(features, state).weights
        return jax.nn.one_hot(state.best, self.problem.arms, dtype=jnp.float64)

    def _design(self, features: Array, state: State) -> Design:
        """Compute a design on at most twice as many actions as dimensions."""
        return near_optimal(features, state.allowed, most_steps=self.problem.dim)

    def _one_reward(
        self, atoms: Array, plays: Array, inverse: Array, span: Array, solve: Array
    ) -> PhaseQuery:
        """T(x) clients play x, once each, and send that reward: one number, at most B."""
        return PhaseQuery(
            atoms=atoms[:, None],
            pulls=jnp.ones_like(plays)[:, None],
            plays=plays[:, None],
            users=plays.astype(jnp.int32),
            encoder=jnp.full((atoms.shape[0], 1, 1), 1 / self._bound),
            decoder=self._bound * solve,
            inverse=inverse,
            span=span,
            reals=jnp.int32(1),
        )

    def _averages(self, plays: Array, solve: Array) -> _Coding:
        """A client sends its average on each atom: s numbers, the vector at most B√s long."""
        is_played = plays > 0
        length = self._bound * jnp.sqrt(is_played.sum().astype(jnp.float64))
        rest = self.query.size - plays.shape[0]
        encoder = jnp.pad(jnp.diag(is_played / length), ((0, rest), (0, 0)))
        return encoder, jnp.pad(length * solve, ((0, 0), (0, rest))), is_played.sum()

    def _estimate(self, inverse: Array, span: Array, rank: Array, solve: Array) -> _Coding:
        """A client sends its own least-squares estimate: as many numbers as the span has.

        It is clipped to a length that all but few estimates keep (`elimination.md`, section 2).
        """
        scatter = self._reward**2 * inverse + self.problem.spread**2 * span
        largest, radius, t = jnp.linalg.eigvalsh(scatter)[-1], self.problem.radius, self.margin
        along = 2 * radius * jnp.sqrt(2 * largest * t)
        around = 2 * jnp.sqrt((scatter**2).sum() * t) + 2 * largest * t
        length = jnp.sqrt(radius**2 + along + jnp.trace(scatter) + around)
        rest = self.query.size - self.problem.dim
        encoder = jnp.pad(solve / length, ((0, rest), (0, 0)))
        return encoder, jnp.pad(length * span, ((0, 0), (0, rest))), rank

    def _exact_widths(
        self, apart: Array, assignment: PhaseQuery, phase: Phase, noise: Array
    ) -> Array:
        """Compute z standard deviations of the estimated lead of one action over another."""
        covariance = self._reward**2 * assignment.inverse
        if not self.once:
            covariance = (covariance + self.problem.spread**2 * assignment.span) / phase.clients
        total = covariance + (noise**2 * assignment.decoder) @ assignment.decoder.T
        return self.width * jnp.sqrt(((apart @ total) * apart).sum(1))

    def _paper_width(
        self, apart: Array, assignment: PhaseQuery, phase: Phase, noise: Array
    ) -> Array:
        """Compute twice W of the paper's equation 3 or 54, with the true noise."""
        dim, problem = self.problem.dim, self.problem
        if self.once:
            support = (assignment.users > 0).sum()
            sums = self._bound * (noise * assignment.users).max()
            inner = (
                jnp.sqrt(2 * dim / phase.pulls) + 2 * dim * sums * jnp.sqrt(support) / phase.pulls
            )
        else:
            average = self._bound * noise.max() * jnp.sqrt(assignment.reals.astype(jnp.float64))
            inner = jnp.sqrt(2 * dim / (phase.clients * phase.pulls))
            inner += problem.spread / jnp.sqrt(phase.clients)
            inner += 2 * average * math.sqrt(self._support * dim)
        return 2 * inner * math.sqrt(2 * math.log(problem.arms * problem.horizon))

    def _start(self, noise: Callable[[int], float]) -> int:
        """The first phase whose width, on a balanced design, is below the largest gap."""
        problem, number = self.problem, 1
        while (
            2 ** (number + 2) <= problem.horizon
            and float(self.width) * math.sqrt(self._balanced(number, noise))
            >= float(self.hope) * problem.radius * problem.norm
        ):
            number += 1
        return number

    def _balanced(self, number: int, noise: Callable[[int], float]) -> float:
        """Compute the variance of an action's score in a phase, for a balanced design."""
        problem, clients, pulls = self.problem, self._clients(number), self._pulls(number)
        leverage: float = self._reward**2 * 2 * problem.dim / pulls
        if self.once:
            return (
                leverage
                + (self._bound * noise(max(1, pulls // (_ATOMS_PER_DIM * problem.dim)))) ** 2
            )
        estimate = problem.radius**2 + problem.dim * (problem.spread**2 + leverage)
        answers = min(_ATOMS_PER_DIM * problem.dim * self._bound**2, estimate)
        return (leverage + problem.spread**2) / clients + noise(clients) ** 2 * answers

    def _pulls(self, number: int) -> int:
        """h, which doubles; in DP-PE, the paper begins with its bound on the support."""
        if self.once and self.rule == "paper":
            return math.ceil(self._support) << (number - 1)
        return 1 << number

    def _clients(self, number: int) -> int:
        """Return how many clients a phase asks.

        Where every round is another's, it is the most that the phase may ask.
        """
        if self.even:
            return -(-self._pulls(number) // self._atoms) * self._atoms
        if self.once:
            return self._pulls(number) + self._atoms
        return int(self.clients) or math.ceil(2 ** (float(self.growth) * number))

    def _length(self, number: int) -> int:
        """How many rounds a phase is planned for."""
        return self._clients(number) if self.once else self._pulls(number)

    @property
    def _atoms(self) -> int:
        """The most actions that a design plays."""
        return min(_ATOMS_PER_DIM * self.problem.dim, self.problem.arms)

    @property
    def _support(self) -> float:
        """S, the paper's bound on the number of actions that a design plays."""
        dim = self.problem.dim
        return 4 * dim * math.log(math.log(max(dim, 3))) + 16

    @property
    def _bound(self) -> float:
        """B: no reward is larger."""
        return max(abs(self.problem.low), abs(self.problem.high))

    @property
    def _reward(self) -> float:
        """Sub-Gaussian constant of a reward."""
        return (self.problem.high - self.problem.low) / 2


def _inverse(matrix: Array, design: Design) -> Array:
    """The inverse within the span of the design."""
    beyond = jnp.diag((jnp.arange(matrix.shape[0]) >= design.rank).astype(matrix.dtype))
    inner = design.basis @ matrix @ design.basis.T + beyond
    inverse: Array = design.basis.T @ jnp.linalg.inv(inner) @ design.basis
    return inverse


def _find_largest_variance(survivors: Array, coding: _Coding) -> Array:
    """The largest variance that unit noise gives the score of a survivor."""
    return ((survivors @ coding[1]) ** 2).sum(1).max()


_register = partial(register, kind=Elimination, default_environment="population")
_register(
    "dpe",
    summary="Phased elimination with exact confidence widths and a chosen set of arms",
    source="Li, Zhou, Ji 2022, Algorithm 1, repaired",
)
_register(
    "dpe-fixed-u",
    factory=partial(Elimination.of, clients=210),
    summary="Phased elimination with equally many clients in every phase",
    variant_of="dpe",
    source="Li, Zhou, Ji 2022, section 7, repaired",
)
_printed = partial(_register, noises={"local": "gaussian", "central": "gaussian"})
_printed(
    "dpe@paper",
    factory=partial(Elimination.of, rule="paper"),
    summary="Phased elimination with the paper's widths and schedule",
    source="Li, Zhou, Ji 2022, Algorithm 1",
)
_register(
    "pe",
    factory=partial(Elimination.of, once=True),
    summary="Phased elimination with another client in every round",
    variant_of="dpe",
    source="Li, Zhou, Ji 2022, Algorithm 3, repaired",
)
_printed(
    "pe@paper",
    factory=partial(Elimination.of, rule="paper", once=True),
    summary="Phased elimination with another client in every round, as printed",
    source="Li, Zhou, Ji 2022, Algorithm 3",
)
