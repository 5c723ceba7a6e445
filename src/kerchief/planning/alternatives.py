"""Other ways to keep a promise: looser accounting, coarser releases, other protocols."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from functools import partial

from kerchief.core.errors import InvalidValueError
from kerchief.core.linalg import svec_size
from kerchief.core.queries import RegressionMoments
from kerchief.planning.protected_statistic import Ball, ProtectedStatistic, Query
from kerchief.privacy.amplification import unshuffled_epsilon
from kerchief.privacy.calibration import (
    bun_steinke_rho,
    classical_gaussian_noise_multiplier,
    zcdp_rho,
)
from kerchief.privacy.events import Gaussian
from kerchief.privacy.guarantee import Guarantee, Trust
from kerchief.privatizers.bits import BitSums
from kerchief.privatizers.registry import BEST

# Trusts whose default may be noise of another price than a Gaussian's.
_CHOOSING = (Trust.LOCAL, Trust.CENTRAL)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Alternative:
    """One way to keep the promise: its noise, also over that of the noise used, or a refusal.

    Attributes:
        std: standard deviation of its noise; None, as is `factor`, where it is refused.
        note: what is different, or why it is refused.
    """

    name: str
    std: float | None
    factor: float | None
    note: str
    used: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class View:
    """What a shuffle protocol promises, as epsilons, against each of three onlookers.

    Attributes:
        wire: whoever reads one user's report on its way to the shuffler: a local promise without
            delta, or None where there is none.
        sums: whoever sees all that leaves the shuffler.
        models: whoever reads the posted models, which are made from those sums.
    """

    name: str
    wire: float | None
    sums: float
    models: float


def build_view(mechanism: str, statistic: ProtectedStatistic) -> View | None:
    """Return the guarantees of a shuffle mechanism, or None where it is refused."""
    promise = statistic.promise
    try:
        privatizer = statistic.protected(mechanism)
    except InvalidValueError:
        return None
    if not isinstance(privatizer, BitSums):
        return View(name=mechanism, wire=None, sums=promise.epsilon, models=promise.epsilon)
    wire, sums, models = (
        guarantee.epsilon for guarantee in privatizer.views(promise.delta).values()
    )
    return View(name=mechanism, wire=wire, sums=sums, models=models)


def measure_alternative(
    name: str,
    compute_std: Callable[[], float],
    reference_std: float,
    *,
    note: str,
    times: float = 1.0,
) -> Alternative:
    """Return an alternative with the computed deviation `times` a factor, or its refusal."""
    try:
        std = times * compute_std()
    except InvalidValueError as error:
        return Alternative(name=name, std=None, factor=None, note=str(error))
    return Alternative(name=name, std=std, factor=std / reference_std, note=note)


def gaussian_multiplier(statistic: ProtectedStatistic) -> float | None:
    """Return the noise multiplier of one Gaussian release with the guarantee, if any has it."""
    if statistic.promise.delta == 0:
        return None
    (noise,) = _replace_trust(statistic, Trust.CENTRAL).protected("gaussian").noises
    event = noise.event()
    assert isinstance(event, Gaussian)
    return event.noise_multiplier


def list_alternatives(statistic: ProtectedStatistic, reference_std: float) -> Iterator[Alternative]:
    """Yield the alternatives to the noise used; all of them need a delta above 0."""
    multiplier = gaussian_multiplier(statistic)
    if multiplier is None:
        return
    yield from _loosen_accounting(statistic, reference_std, multiplier)
    curator = _replace_trust(statistic, Trust.CENTRAL)
    match statistic.promise.trust:
        case Trust.SHUFFLE:
            yield measure_alternative(
                "a trusted curator's noise", curator.std, reference_std, note="central trust"
            )
            yield _amplify_reports(statistic, reference_std)
        case Trust.JOINT:
            note, root = "each user is in all later ones", math.sqrt(statistic.horizon)
            name = "fresh noise on every prefix"
            fresh = partial(curator.std, "gaussian")
            yield measure_alternative(name, fresh, reference_std, note=note, times=root)
    if isinstance(statistic.query, RegressionMoments):
        yield from _coarsen_releases(statistic, statistic.query, reference_std)


def _loosen_accounting(
    statistic: ProtectedStatistic, reference_std: float, multiplier: float
) -> Iterator[Alternative]:
    """The trust's noise of Gaussian price, with looser accounting."""
    unit_std = statistic.std(_choose_mechanism(statistic)) / multiplier
    kind = "Gaussian noise; " if statistic.promise.trust in _CHOOSING else ""
    for name, source, rule in (
        ("zCDP, tight", "Canonne, Kamath, Steinke 2020", partial(_compute_zcdp_noise, zcdp_rho)),
        ("zCDP, loose", "Bun, Steinke 2016", partial(_compute_zcdp_noise, bun_steinke_rho)),
        ("classical Gaussian", "Dwork, Roth 2014", classical_gaussian_noise_multiplier),
    ):
        compute = partial(rule, statistic.promise.epsilon, statistic.promise.delta)
        yield measure_alternative(name, compute, reference_std, note=kind + source, times=unit_std)


def _coarsen_releases(
    statistic: ProtectedStatistic, query: RegressionMoments, reference_std: float
) -> Iterator[Alternative]:
    """Other ways to release (x xᵀ, y x), by the trust's noise of Gaussian price."""
    promise, reward = statistic.promise, max(abs(query.low), abs(query.high))
    naive = 2 * query.norm * math.hypot(query.norm, reward)
    compute, note = (
        partial(_compute_ball_noise, statistic, query.size, naive),
        f"twice the largest norm, {naive:.4g}",
    )
    yield measure_alternative("naive sensitivity", compute, reference_std, note=note)
    halved = dataclasses.replace(promise, epsilon=promise.epsilon / 2, delta=promise.delta / 2)
    half, note = dataclasses.replace(statistic, promise=halved), "epsilon/2, delta/2 each"
    matrix = partial(_compute_ball_noise, half, svec_size(query.dim), math.sqrt(2) * query.norm**2)
    vector = partial(_compute_ball_noise, half, query.dim, 2 * reward * query.norm)
    yield measure_alternative("split: on the matrix", matrix, reference_std, note=note)
    yield measure_alternative("split: on the vector", vector, reference_std, note=note)


def _amplify_reports(statistic: ProtectedStatistic, reference_std: float) -> Alternative:
    """The sum of a cohort's locally private reports, which a shuffler mixes.

    Every report is as little noisy as the promise allows for one that is hidden among the cohort's.
    """
    promise, users = statistic.promise, statistic.horizon
    alone = unshuffled_epsilon(promise.epsilon, users, promise.delta)
    local = Guarantee(epsilon=alone, delta=0.0, trust=Trust.LOCAL, rounds=users)
    reports = dataclasses.replace(statistic, promise=local)
    note = f"each device alone has epsilon {alone:.4g}, and is mixed with {users - 1} others"
    times = math.sqrt(users)
    return measure_alternative(
        "shuffled local reports", reports.std, reference_std, note=note, times=times
    )


def _compute_ball_noise(statistic: ProtectedStatistic, size: int, diameter: float) -> float:
    query: Query = Ball(size=size, diameter=diameter, batches=statistic.query.batches)
    return dataclasses.replace(statistic, query=query).std(_choose_mechanism(statistic))


def _choose_mechanism(statistic: ProtectedStatistic) -> str:
    """The noise of a trust whose price is a Gaussian's."""
    return "gaussian" if statistic.promise.trust in _CHOOSING else BEST


def _replace_trust(statistic: ProtectedStatistic, trust: Trust) -> ProtectedStatistic:
    promise = dataclasses.replace(statistic.promise, trust=trust)
    return dataclasses.replace(statistic, promise=promise)


def _compute_zcdp_noise(
    rho: Callable[[float, float], float], epsilon: float, delta: float
) -> float:
    return math.sqrt(0.5 / rho(epsilon, delta))
