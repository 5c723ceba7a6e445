"""The noise that a guarantee needs, and what the alternatives would have cost."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, TypeAlias

import jax.numpy as jnp

from kerchief.core import validate
from kerchief.core.errors import InvalidValue
from kerchief.core.precision import double_precision
from kerchief.core.queries import Regression
from kerchief.environments.worlds import make_environment
from kerchief.mechanisms.binomial import Binomial, ExactBinomial, deviation
from kerchief.mechanisms.blt import BLT
from kerchief.mechanisms.continual import ContinualNoise
from kerchief.mechanisms.exact_gaussian import ExactGaussian
from kerchief.mechanisms.tree import Tree
from kerchief.privacy.calibration import (
    bun_steinke_rho,
    classical_gaussian_noise_multiplier,
    gaussian_noise_multiplier,
    zcdp_rho,
)
from kerchief.privacy.composition import epsilon_at
from kerchief.privacy.events import Event
from kerchief.privacy.guarantee import Guarantee, Trust
from kerchief.privacy.vector_sum import vector_sum
from kerchief.privatizers.randomizers import randomize
from kerchief.privatizers.registry import TRUSTS
from kerchief.privatizers.schedule import At
from kerchief.privatizers.shuffled import ShuffledSums

__all__ = ["Alternative", "Noise", "calibrate"]

# A way's name, what is different, and its deviation over that of the noise used (None: refused).
Other: TypeAlias = tuple[str, str, float | None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Alternative:
    """Another way to keep the same promise.

    Attributes:
        name: the way.
        std: standard deviation of its noise; None where it is refused.
        factor: the standard deviation over that of the noise used.
        note: what is different, or why it is refused.
    """

    name: str
    std: float | None
    factor: float | None
    note: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Noise:
    """What a guarantee costs.

    Attributes:
        guarantee: the promise.
        sensitivity: how far one user can move the statistic.
        size: length of the statistic.
        noise_multiplier: standard deviation over sensitivity.
        std: standard deviation on each coordinate: of one release's own noise, or under joint trust
            of the last, worst prefix.
        releases: how many releases a run makes.
        total_std: standard deviation of the noise in the total over all users.
        twin: the exact discrete mechanism for deployment; under joint trust that of each seed
            vector, under shuffle trust all coins of a cohort.
        twin_std: standard deviation of the twin's noise where `std` is that of this one.
        twin_epsilon: what the twin really costs, at the guarantee's delta.
        alternatives: other ways, each with its factor.
    """

    guarantee: Guarantee
    sensitivity: float
    size: int
    noise_multiplier: float
    std: float
    releases: int
    total_std: float
    twin: ExactGaussian | ExactBinomial
    twin_std: float
    twin_epsilon: float
    alternatives: tuple[Alternative, ...]

    def to_dict(self) -> dict[str, object]:
        """The answer as JSON."""
        return {
            "guarantee": self.guarantee.to_dict(),
            "sensitivity": self.sensitivity,
            "size": self.size,
            "noise_multiplier": self.noise_multiplier,
            "std": self.std,
            "releases": self.releases,
            "total_std": self.total_std,
            "discrete": {
                "grid_bits": self.twin.grid_bits,
                "grid": self.twin.grid,
                "scale": self.twin.scale,
                "std": self.twin_std,
                "epsilon": self.twin_epsilon,
            },
            "alternatives": [dataclasses.asdict(one) for one in self.alternatives],
        }


@double_precision
def calibrate(
    *,
    epsilon: float,
    delta: float,
    trust: str = "local",
    link: str = "linear",
    dim: int = 5,
    radius: float = 1.0,
    horizon: int = 10_000,
    sensitivity: float | None = None,
) -> Noise:
    """Find the noise for LinUCB's statistic (x xᵀ, y x), or for any statistic of known sensitivity.

    Args:
        epsilon: of the guarantee.
        delta: of the guarantee.
        trust: `local`: normal noise on each report, beside other randomizers; `central`: the noise
            of each batch's sum. Every user is in one of them, once, so both need one noise; a run
            adds up its releases.
            `joint`: the correlated noise of every prefix, paid for once. `shuffle`: the coins of
            each cohort, with what rounding at random may add.
        link: how a score becomes an expected reward; it bounds y.
        dim: length of x.
        radius: norm of the parameter; it bounds y where the link does not.
        horizon: number of rounds.
        sensitivity: in place of the one of (x xᵀ, y x).

    Raises:
        KerchiefError: a value is out of its bound.

    >>> answer = calibrate(epsilon=1.0, delta=1e-5)
    >>> round(answer.noise_multiplier, 4), round(answer.std, 4)
    (3.7306, 7.9139)
    """
    validate.at_least("epsilon", epsilon, 1e-9)
    validate.between("delta", delta, 0.0, 1.0)
    validate.one_of("trust", trust, ("local", "shuffle", "joint", "central"))
    problem = make_environment(link=link, dim=dim, radius=radius).problem(
        validate.whole("horizon", horizon, high=validate.MOST_ROUNDS)
    )
    query = Regression.of(problem)
    sensitivity_used = query.sensitivity if sensitivity is None else sensitivity
    validate.positive("sensitivity", sensitivity_used)
    multiplier = gaussian_noise_multiplier(epsilon, delta)
    privatizer = TRUSTS[trust].make(query, multiplier, horizon)
    if isinstance(privatizer, ShuffledSums):
        amount = _shuffled(multiplier, sensitivity_used, privatizer, epsilon, delta)
    else:
        amount = (_continual if trust == Trust.JOINT else _fresh)(
            multiplier, sensitivity_used, query, horizon
        )
    releases = privatizer.schedule.capacity(horizon)
    others = _looser(epsilon, delta, multiplier) + amount.others
    promise = Guarantee(epsilon=epsilon, delta=delta, trust=Trust(trust), rounds=horizon)
    if sensitivity is None:
        others += _coarser(query, epsilon, delta, multiplier * sensitivity_used)
    if sensitivity is None and trust == Trust.LOCAL:
        others = _randomizers(query, promise, amount.std) + others
    return Noise(
        guarantee=promise,
        sensitivity=sensitivity_used,
        size=query.size,
        noise_multiplier=multiplier,
        std=amount.std,
        releases=releases,
        total_std=amount.std * (1.0 if trust == Trust.JOINT else math.sqrt(releases)),
        twin=amount.twin,
        twin_std=amount.twin_std,
        twin_epsilon=epsilon_at([amount.twin_event], delta),
        alternatives=tuple(
            Alternative(name=name, note=note, factor=factor, std=factor and factor * amount.std)
            for name, note, factor in others
        ),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Amount:
    """Noise of one kind, its exact twin, and other noises that would keep the same promise."""

    std: float
    twin: ExactGaussian | ExactBinomial
    twin_std: float
    twin_event: Event
    others: tuple[Other, ...] = ()


def _fresh(multiplier: float, sensitivity_used: float, query: Regression, horizon: int) -> _Amount:
    """Noise drawn anew for every release."""
    twin = ExactGaussian.matching(multiplier, sensitivity_used, query.size)
    return _Amount(
        std=multiplier * sensitivity_used, twin=twin, twin_std=twin.std, twin_event=twin.event()
    )


def _shuffled(
    multiplier: float,
    sensitivity_used: float,
    privatizer: ShuffledSums,
    epsilon: float,
    delta: float,
) -> _Amount:
    """Coins for each cohort, beside a trusted curator's noise and the published constants."""
    largest = max(At(ends=privatizer.ends).sizes)
    size = privatizer.query.size
    noise = Binomial.of(
        noise_multiplier=multiplier, sensitivity=sensitivity_used, dimension=size, users=largest
    )
    twin = noise.exact()
    std = deviation(twin, largest)
    published = "Cheu, Joseph, Mao, Peng 2022"
    try:
        proved = vector_sum(users=privatizer.ends[0], size=size, epsilon=epsilon, delta=delta)
        theorem: Other = ("closed-form constants", published, proved.std * sensitivity_used / std)
    except InvalidValue:
        theorem = ("closed-form constants", "proved below epsilon 15 and delta 1/2 only", None)
    return _Amount(
        std=std,
        twin=twin,
        twin_std=std,
        twin_event=twin.event(),
        others=(
            ("a trusted curator's noise", "central trust", multiplier * sensitivity_used / std),
            theorem,
        ),
    )


def _continual(
    multiplier: float, sensitivity_used: float, query: Regression, horizon: int
) -> _Amount:
    """Noise correlated over every prefix; of the tree, the worst prefix has the most ones."""
    asked = {"noise_multiplier": multiplier, "sensitivity": sensitivity_used}
    noise = ContinualNoise.of(BLT.of(horizon=horizon), **asked)
    twin = noise.exact(query.size)
    seed: Any = twin.seeds[0]
    std, worst = float(noise.std_at(jnp.int32(horizon))), 2 ** ((horizon + 1).bit_length() - 1) - 1
    tree = ContinualNoise.of(Tree(horizon=horizon), **asked)
    tree_std = float(tree.std_at(jnp.int32(worst)))
    fresh = multiplier * sensitivity_used * math.sqrt(horizon)
    return _Amount(
        std=std,
        twin=seed,
        twin_std=float(twin.std_at(horizon)),
        twin_event=twin.event(),
        others=(
            ("binary tree", "Chan, Shi, Song 2011", tree_std / std),
            ("fresh noise on every prefix", "each user is in all later ones", fresh / std),
        ),
    )


def _randomizers(query: Regression, promise: Guarantee, std: float) -> tuple[Other, ...]:
    """What else a device may do to its report, for any delta; the best of all is the default."""
    found = {
        word: float(randomize({"report": query}, promise, words=(word,))["report"].std) / std
        for word in ("privunit", "shortlist", "laplace")
    }
    least = min(found, key=lambda word: found[word])
    chosen = {least: "the default under local trust"} if found[least] < 1 else {}
    return tuple((word, chosen.get(word, "pure"), factor) for word, factor in found.items())


def _looser(epsilon: float, delta: float, multiplier: float) -> tuple[Other, ...]:
    """The same release, with looser accounting."""
    ways: tuple[tuple[str, str, Callable[[float, float], float]], ...] = (
        ("zCDP, tight", "Canonne, Kamath, Steinke 2020", lambda e, d: _of_rho(zcdp_rho(e, d))),
        ("zCDP, loose", "Bun, Steinke 2016", lambda e, d: _of_rho(bun_steinke_rho(e, d))),
        ("classical Gaussian", "Dwork, Roth 2014", classical_gaussian_noise_multiplier),
    )
    return tuple(_other(name, note, rule, epsilon, delta, multiplier) for name, note, rule in ways)


def _coarser(query: Regression, epsilon: float, delta: float, std: float) -> tuple[Other, ...]:
    """Other ways to release (x xᵀ, y x), with exact accounting."""
    reward = max(abs(query.low), abs(query.high))
    half = gaussian_noise_multiplier(epsilon / 2, delta / 2)
    whole = gaussian_noise_multiplier(epsilon, delta)
    naive = 2 * query.norm * math.hypot(query.norm, reward)
    matrix, vector = half * math.sqrt(2) * query.norm**2, half * 2 * reward * query.norm
    return (
        ("naive sensitivity", f"twice the largest norm, {naive:.4g}", whole * naive / std),
        ("split: on the matrix", "epsilon/2, delta/2 each", matrix / std),
        ("split: on the vector", "epsilon/2, delta/2 each", vector / std),
    )


def _other(
    name: str,
    note: str,
    rule: Callable[[float, float], float],
    epsilon: float,
    delta: float,
    multiplier: float,
) -> Other:
    """What a rule would have cost, or why it is refused."""
    try:
        return name, note, rule(epsilon, delta) / multiplier
    except InvalidValue:
        return name, "proved up to epsilon 1 only", None


def _of_rho(rho: float) -> float:
    return math.sqrt(0.5 / rho)
