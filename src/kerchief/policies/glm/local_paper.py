"""The locally private GLM bandit as it is printed: for study, not for deployment.

Zheng et al. 2020, Algorithm 3: a device reports x xᵀ, z x and e x, with z = ⟨x, θ'⟩ the score that
the iterate θ' gives and e = μ(z) - y; the server takes gradient steps of 1/√T, and plays by the
regression of the scores on the arms with a ridge of 2Υ_t and a squared width of Cσ√(dt)/k. An order
of magnitude in the paper is taken with a factor of one here: C bounds μ, k its least slope, σ is
the printed deviation 6√(2 ln(3.75/δ))/ε and Υ_t = σ√t (4√d + 2 ln(2T/α)).

Some things are *not* taken over. The noise: `protect` gives the same promise its true noise, where
the paper splits epsilon three ways. The bound on the gradient: the paper takes |e| for at most C,
which is false where rewards are not binary, and its promise with it; here e is cut, always, to the
greatest |μ(z) - y| that the public bounds allow. And the matrix without any ridge before the first
user, which cannot be inverted: one is added to every ridge, and eigenvalues are floored at a tenth
of it. `local_descent` is the repaired bandit.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import ClassVar

import jax.numpy as jnp
from jax import Array

from kerchief.core.contracts import Arms, Example, NoiseInfo, Release, Tree
from kerchief.core.linalg import inverse, invert_floored, smat, svec, svec_size
from kerchief.core.links import get_link
from kerchief.core.minimizers import project_to_ball
from kerchief.core.precision import double_precision
from kerchief.core.problems import Problem
from kerchief.core.queries import clip_features, finite
from kerchief.core.struct import static, struct
from kerchief.core.validate import between
from kerchief.policies import ellipsoid
from kerchief.policies.ellipsoid import Totals, cast_model
from kerchief.policies.glm.increments import ArmSum
from kerchief.policies.glm.local_descent import Model
from kerchief.policies.registry import Mode, register


@dataclasses.dataclass(frozen=True, kw_only=True)
class ThreeBlocks(ArmSum):
    """The sums of x xᵀ, z x and e x over users, each in units of its own bound.

    A record's weight is z. It is clipped to the size of `score`, and e to that of `slope`.
    """

    score: float
    slope: float

    def __post_init__(self) -> None:
        """Check the bounds: privacy rests on them."""
        super().__post_init__()
        between("score", self.score, 1e-9, 1e18, closed=True)
        between("slope", self.slope, 1e-9, 1e9, closed=True)

    @property
    def size(self) -> int:
        """Length of the statistic."""
        return svec_size(self.dim) + 2 * self.dim

    @property
    def sensitivity(self) -> float:
        """Exact diameter of the statistics under replacement.

        The last two blocks are one pair u = (z, e) with ‖u‖² at most 2, so the proof of
        `core/queries.md` holds with ‖u‖ for |y|: at q = 2 the diameter is 2√2, for opposite x.

        >>> round(ThreeBlocks(dim=3, norm=1.0, score=1.0, slope=0.7).sensitivity ** 2, 6)
        8.0
        """
        return math.sqrt(8)

    @property
    def radius(self) -> float:
        """Radius of three blocks, each of length one."""
        return math.sqrt(3)

    def encode(self, record: Example) -> Array:
        """Clip x, z and e, each to its bound, and write the blocks side by side."""
        x = clip_features(record.features, self.norm) / self.norm
        score = jnp.clip(finite(jnp.asarray(record.weight)) / self.score, -1, 1)
        slope = jnp.clip(finite(record.reward) / self.slope, -1, 1)
        return jnp.concatenate([svec(x[:, None] * x[None, :]), score * x, slope * x])

    def split(self, total: Array) -> tuple[Array, Array, Array]:
        """The sums of x xᵀ, z x and e x, from a total."""
        boundary = svec_size(self.dim)
        matrix, scores, slopes = (
            total[:boundary],
            total[boundary : boundary + self.dim],
            total[boundary + self.dim :],
        )
        return (
            smat(matrix, self.dim) * self.norm**2,
            scores * (self.norm * self.score),
            slopes * (self.norm * self.slope),
        )


@struct
class State(ellipsoid.State):
    """The latest release, and the iterate."""

    iterate: Array


@struct
class PrintedDescent(Totals):
    """Algorithm 3 with its printed step, ridge and width.

    Attributes:
        flattest: k, the least slope over all scores.
        largest: C, the greatest expected reward, in size.
        step: of the descent.
        deviation: σ as printed; it sets ridge and width, not the noise.
        log: ln(2T/α).
    """

    question: ClassVar[str] = "blocks"
    query: ThreeBlocks = static()
    link: str = static()
    radius: float | Array
    flattest: float | Array
    largest: float | Array
    step: float | Array
    deviation: float | Array
    log: float | Array

    def init(self, outlook: Mapping[str, NoiseInfo]) -> State:
        """Before any user: empty sums, and an iterate of zero."""
        zero = jnp.zeros(self.query.dim, jnp.float64)
        return State(**vars(super().init(outlook)), iterate=zero)

    def update(self, state: State, name: str, release: Release) -> State:
        """Take one step along the newest gradient."""
        gradient = self.query.split(release.total - state.total)[2]
        new_iterate = project_to_ball(state.iterate - self.step * gradient, self.radius)
        return State(**vars(super().update(state, name, release)), iterate=new_iterate)

    def publish(self, state: State) -> Model:
        """The regression of the scores, with the printed ridge and width."""
        gram, moment, _ = self.query.split(state.total)
        count = jnp.asarray(state.count).astype(jnp.float64)
        shake = self.deviation * jnp.sqrt(count) * (4 * math.sqrt(self.query.dim) + 2 * self.log)
        ridge = 1 + 2 * shake
        matrix = gram + ridge * jnp.eye(self.query.dim)
        inverted = invert_floored(matrix, 0.1 * ridge) if state.noisy else inverse(matrix)
        square = self.largest * self.deviation / self.flattest * jnp.sqrt(self.query.dim * count)
        estimate, width = inverted @ moment, jnp.sqrt(square)
        return cast_model(
            Model(estimate=estimate, inverse=inverted, width=width, iterate=state.iterate)
        )

    def record(self, model: Model, arms: Arms, action: Array, reward: Array) -> Mapping[str, Tree]:
        """Report the arm, its score at the posted iterate and the slope of its loss."""
        x = arms.features[action]
        score = jnp.clip(x @ model.iterate, -self.query.score, self.query.score)
        slope = get_link(self.link).mean(score) - reward
        return {"blocks": Example(features=x, reward=slope, weight=score)}


def printed_deviation(epsilon: float, delta: float) -> float:
    """The σ of Algorithm 3: three blocks at a third of epsilon and delta each.

    >>> round(printed_deviation(1.0, 0.1), 2), printed_deviation(math.inf, 0.1)
    (16.15, 0.0)
    """
    return 6 * math.sqrt(2 * math.log(3.75 / delta)) / epsilon


_FAILURE = 0.05


@double_precision
def _build_with_budget(
    problem: Problem, *, mode: Mode, epsilon: float = math.inf, delta: float = _FAILURE
) -> PrintedDescent:
    """Build the algorithm for a privacy guarantee, which sets ridge and width.

    A promise whose delta is 0 keeps every delta: the printed deviation is then that of the default.
    """
    delta = delta or _FAILURE
    link, largest_score = get_link(problem.link), problem.radius * problem.norm
    lowest, highest = (float(link.mean(jnp.float64(z))) for z in (-largest_score, largest_score))
    return PrintedDescent(
        query=ThreeBlocks(
            dim=problem.dim,
            norm=problem.norm,
            score=largest_score,
            slope=max(problem.high - lowest, highest - problem.low),
        ),
        link=problem.link,
        radius=problem.radius,
        flattest=1 / link.kappa(largest_score),
        largest=max(abs(lowest), abs(highest)),
        step=1 / math.sqrt(problem.horizon),
        deviation=printed_deviation(epsilon, delta),
        log=math.log(2 * problem.horizon / _FAILURE),
    )


register(
    "glm-local@paper",
    PrintedDescent,
    summary="A locally private GLM bandit with the printed step, ridge and width",
    source="Zheng et al. 2020, Algorithm 3",
    trusts=("none", "local"),
    default_environment="logistic",
    build_with_budget=_build_with_budget,
    noises={"local": "gaussian"},
)
