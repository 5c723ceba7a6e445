"""Which noise a guarantee's trust, and the words for noise, lead to."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kerchief.core.contracts import Clock, Example, Feedback
from kerchief.core.errors import InvalidValueError, UnknownNameError
from kerchief.core.losses import GLMLoss
from kerchief.core.minimizers import GradientDescent
from kerchief.core.queries import RegressionMoments, UnitBallVector
from kerchief.core.random import Stream
from kerchief.core.residual_moments import ResidualMoments
from kerchief.mechanisms.blt import BLT
from kerchief.mechanisms.compass import Compass, ExactCompass
from kerchief.mechanisms.continual import ContinualNoise
from kerchief.mechanisms.doubling import Doubling
from kerchief.mechanisms.exact_gaussian import ExactGaussian
from kerchief.mechanisms.gaussian import Gaussian
from kerchief.mechanisms.laplace import ExactLaplace, Laplace
from kerchief.mechanisms.one_bit import ExactOneBit, OneBit
from kerchief.mechanisms.privunit import PrivUnitG
from kerchief.mechanisms.shortlist import ExactShortlist, Shortlist
from kerchief.mechanisms.toeplitz import SqrtToeplitz
from kerchief.mechanisms.tree import Tree
from kerchief.privacy import Guarantee, MemoryLedger, Trust
from kerchief.privatizers import (
    CONTINUALS,
    MECHANISMS_OF,
    RANDOMIZERS,
    TRUSTS,
    PrefixSums,
    Protection,
    protect,
)
from kerchief.privatizers.billing import pay

QUERY = RegressionMoments(dim=2, norm=1.0, low=0.0, high=1.0)
KINDS = {
    "best": BLT,
    "blt": BLT,
    "tree": Tree,
    "toeplitz": SqrtToeplitz,
    "doubling": Doubling,
}


@dataclasses.dataclass(frozen=True)
class Asking:
    """As much of a policy as `protect` looks at."""

    queries: Mapping[str, Any]
    feedback: Feedback = "totals"


SUMS: Any = Asking({"a": QUERY, "b": QUERY})


LOSS = GLMLoss(
    link="logistic",
    dim=2,
    norm=1.0,
    low=0.0,
    high=1.0,
    clip=1.0,
    fits=3,
    minimizer=GradientDescent(steps=2, radius=1.0, clip=1.0),
)


def promise(trust: str = "joint") -> Guarantee:
    return Guarantee(epsilon=1.0, delta=1e-6, trust=Trust(trust))


@pytest.mark.parametrize("word", list(KINDS))
def test_every_continual_mechanism_keeps_the_guarantee(word: str) -> None:
    made = protect(SUMS, Protection(guarantee=promise(), mechanism=word), horizon=50)
    for one in made.values():
        assert type(one) is PrefixSums
        (noise,) = one.noises
        assert isinstance(noise, ContinualNoise)
        assert type(noise.factor) is KINDS[word]
    ledger = MemoryLedger(promise())
    pay(made, ledger, horizon=50)
    assert ledger.spent().epsilon == pytest.approx(1.0, rel=1e-6)


def test_continual_mechanisms_are_complete_and_default_to_blt() -> None:
    assert list(CONTINUALS) == list(KINDS)
    assert CONTINUALS["best"] is TRUSTS["joint"]
    assert protect(SUMS, Protection(guarantee=promise()), horizon=50) == protect(
        SUMS, Protection(guarantee=promise(), mechanism="blt"), horizon=50
    )


def test_unknown_mechanism_error_lists_the_choices() -> None:
    with pytest.raises(
        UnknownNameError, match=r"'tre'; did you mean 'tree'\? Known: best, blt, doubling"
    ):
        Protection(guarantee=promise(), mechanism="tre")


@pytest.mark.parametrize("trust", list(Trust))
def test_mechanism_of_another_trust_model_is_rejected(trust: str) -> None:
    own = set(MECHANISMS_OF[Trust(trust)])
    words = {word for known in MECHANISMS_OF.values() for word in known}
    for word in words - own:
        with pytest.raises(UnknownNameError, match=rf"called '{word}'.* [Kk]nown: best"):
            Protection(guarantee=promise(trust), mechanism=word)
    for word in own:
        assert Protection(guarantee=promise(trust), mechanism=word).mechanism == word


def test_a_protection_needs_a_guarantee() -> None:
    with pytest.raises(InvalidValueError, match="guarantee is a float; give a Guarantee"):
        Protection(guarantee=1.0)  # type: ignore[arg-type]


def test_a_fit_needs_a_bounded_history() -> None:
    asking: Any = Asking({"fit": LOSS})
    with pytest.raises(
        InvalidValueError, match=r"'fit' is a fit .* without a horizon has no bound on it"
    ):
        protect(asking, Protection(guarantee=promise(), mechanism="doubling"), horizon=50)
    with pytest.raises(InvalidValueError, match=r"'fit' is a fit .* nobody may hold it"):
        protect(asking, Protection(guarantee=promise("local")), horizon=50)


def local(epsilon: float = 1.0, delta: float = 1e-6) -> Guarantee:
    return Guarantee(epsilon=epsilon, delta=delta, trust=Trust.LOCAL)


RANDOM: dict[str, Any] = {
    "gaussian": (Gaussian, ExactGaussian),
    "laplace": (Laplace, ExactLaplace),
    "privunit": (PrivUnitG, ExactShortlist),
    "shortlist": (Shortlist, ExactShortlist),
}
ONE: Any = Asking({"a": QUERY})


@pytest.mark.parametrize("word", list(RANDOM))
def test_every_randomizer_keeps_the_promise_and_has_its_own_twin(word: str) -> None:
    for asking in (ONE, SUMS):
        made = protect(asking, Protection(guarantee=local(), mechanism=word), horizon=50)
        exact = {name: one.exact() for name, one in made.items()}
        for sums, place in ((made, 0), (exact, 1)):
            assert {type(one.noises[0]) for one in sums.values()} == {RANDOM[word][place]}
            ledger = MemoryLedger(local())
            pay(sums, ledger, horizon=50)
            assert 0.9 < ledger.spent().epsilon <= 1.0


def test_the_best_randomizer_has_the_least_noise() -> None:
    for epsilon, delta in ((0.2, 1e-6), (1.0, 0.4), (5.0, 1e-6), (1.0, 0.0)):
        promise = local(epsilon, delta)
        words = [word for word in RANDOM if delta or word != "gaussian"]
        stds = {
            word: protect(ONE, Protection(guarantee=promise, mechanism=word), horizon=50)["a"]
            .noises[0]
            .std
            for word in words
        }
        best = protect(ONE, Protection(guarantee=promise), horizon=50)["a"].noises[0]
        assert best.std == min(stds.values())
        assert isinstance(best, Gaussian if delta == 0.4 else PrivUnitG)


def central(epsilon: float = 1.0, delta: float = 1e-6) -> Guarantee:
    return Guarantee(epsilon=epsilon, delta=delta, trust=Trust.CENTRAL)


@pytest.mark.parametrize(
    ("query", "epsilon", "delta", "kind"),
    [
        (UnitBallVector(size=1), 1.0, 1e-6, Laplace),
        (UnitBallVector(size=1), 0.2, 0.25, Gaussian),
        (UnitBallVector(size=40), 1.0, 1e-6, Gaussian),
        (UnitBallVector(size=40), 1.0, 0.0, Laplace),
        (UnitBallVector(size=1), 0.0, 0.1, Gaussian),
        (QUERY, 1.0, 1e-6, Laplace),
        (RegressionMoments(dim=5, norm=1.0, low=0.0, high=1.0), 1.0, 1e-6, Gaussian),
    ],
)
def test_a_curator_adds_the_less_noisy_of_two_noises(
    query: Any, epsilon: float, delta: float, kind: type
) -> None:
    """By the promise and the sum's length and sensitivities, and it costs what was promised."""
    asking, promise = Asking({"a": query}), central(epsilon, delta)
    made = protect(asking, Protection(guarantee=promise), horizon=50)
    (noise,) = made["a"].noises
    assert type(noise) is kind
    words = {"gaussian": delta > 0, "laplace": epsilon > 0}
    stds = [
        protect(asking, Protection(guarantee=promise, mechanism=word), horizon=50)["a"].noises[0]
        for word, fits in words.items()
        if fits
    ]
    assert float(noise.std) == min(float(one.std) for one in stds)
    ledger = MemoryLedger(promise)
    pay(made, ledger, horizon=50)
    assert 0.99 * epsilon <= ledger.spent().epsilon <= epsilon


def test_a_curator_of_several_sums_shares_normal_noise() -> None:
    numbers: Any = Asking({"a": UnitBallVector(size=1), "b": UnitBallVector(size=1)})
    made = dict(protect(numbers, Protection(guarantee=central()), horizon=50))
    # So does one of a single sum whose epsilon Laplace noise does not take.
    tiny = Asking({"a": UnitBallVector(size=1)})
    made |= {"tiny": protect(tiny, Protection(guarantee=central(1e-7)), horizon=50)["a"]}
    assert {type(one.noises[0]) for one in made.values()} == {Gaussian}
    with pytest.raises(InvalidValueError, match=r"delta is 0\.0"):
        protect(numbers, Protection(guarantee=central(1.0, 0.0)), horizon=50)


def test_a_single_number_may_be_one_bit() -> None:
    number: Any = Asking({"a": UnitBallVector(size=1)})
    for epsilon, kind in ((0.2, OneBit), (1.0, OneBit), (20.0, Laplace)):
        assert isinstance(
            protect(number, Protection(guarantee=local(epsilon)), horizon=50)["a"].noises[0], kind
        )
    made = protect(number, Protection(guarantee=local(), mechanism="one-bit"), horizon=50)["a"]
    assert isinstance(made.exact().noises[0], ExactOneBit)
    with pytest.raises(
        InvalidValueError, match=r"one-bit does not fit .* a RegressionMoments of .*; choose 'best'"
    ):
        protect(ONE, Protection(guarantee=local(), mechanism="one-bit"), horizon=50)


def test_residuals_are_protected_by_the_compass() -> None:
    asking: Any = Asking({"a": ResidualMoments(dim=5, norm=1.0, most=1.0)})
    for word in ("best", "compass"):
        made = protect(asking, Protection(guarantee=local(4.0), mechanism=word), horizon=50)["a"]
        assert isinstance(made.noises[0], Compass)
        assert isinstance(made.exact().noises[0], ExactCompass)
        ledger = MemoryLedger(local(4.0))
        pay({"a": made}, ledger, horizon=50)
        assert 3.99 < ledger.spent().epsilon <= 4.0
    with pytest.raises(
        InvalidValueError, match=r"compass does not fit .* a RegressionMoments of .* choose 'best'"
    ):
        protect(ONE, Protection(guarantee=local(), mechanism="compass"), horizon=50)


def test_importance_shares_epsilon() -> None:
    light, heavy = UnitBallVector(size=2), UnitBallVector(size=2, importance=3.0)
    asking: Any = Asking({"light": light, "heavy": heavy})
    made: Any = protect(asking, Protection(guarantee=local(1.0), mechanism="privunit"), horizon=50)
    costs = {name: one.charges(50)[0].event.epsilon for name, one in made.items()}
    assert costs == pytest.approx({"light": 0.25, "heavy": 0.75}, rel=1e-9)


def test_a_randomizer_that_cannot_keep_the_promise_is_refused() -> None:
    with pytest.raises(InvalidValueError, match="delta is 0"):
        protect(ONE, Protection(guarantee=local(1.0, 0.0), mechanism="gaussian"), horizon=50)
    with pytest.raises(InvalidValueError, match="epsilon is 0"):
        protect(ONE, Protection(guarantee=local(0.0), mechanism="privunit"), horizon=50)
    assert isinstance(
        protect(ONE, Protection(guarantee=local(0.0)), horizon=50)["a"].noises[0], Gaussian
    )
    with pytest.raises(UnknownNameError, match="no randomizer is called 'gauss'"):
        Protection(guarantee=local(), mechanism="gauss")
    assert list(RANDOMIZERS) == ["best", *RANDOM, "compass", "one-bit"]


@pytest.mark.parametrize("word", [*RANDOM, "best"])
def test_reports_of_every_randomizer_add_up_to_the_truth(word: str) -> None:
    made: Any = protect(ONE, Protection(guarantee=local(4.0), mechanism=word), horizon=50)["a"]
    record = Example(features=jnp.array([0.6, 0.8]), reward=jnp.float64(1.0))
    truth = np.asarray(QUERY.encode(record))
    at: Any = jax.vmap(
        lambda copy: made.randomize(
            record, Clock(round=jnp.int32(0), since={}), Stream.of(seed=1, replicate=copy).at(4)
        )
    )
    reports = np.asarray(jax.jit(at)(jnp.arange(20_000, dtype=jnp.uint32)))
    room = 5 * float(made.noises[0].std) / 20_000**0.5
    assert (np.abs(reports.mean(0) - truth) < room).all()
