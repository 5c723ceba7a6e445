"""Which noise a guarantee's trust and the word for continual noise lead to."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest

from kerchief.core.errors import InvalidValue, UnknownName
from kerchief.core.losses import GLMLoss
from kerchief.core.minimizers import GradientDescent
from kerchief.core.queries import Regression
from kerchief.mechanisms.blt import BLT
from kerchief.mechanisms.doubling import Doubling
from kerchief.mechanisms.toeplitz import SqrtToeplitz
from kerchief.mechanisms.tree import Tree
from kerchief.privacy import Guarantee, MemoryLedger, Trust
from kerchief.privatizers import CONTINUALS, TRUSTS, EpochSums, PrefixSums, protect
from kerchief.privatizers.billing import pay

QUERY = Regression(dim=2, norm=1.0, low=0.0, high=1.0)
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
def test_every_word_has_its_noise_and_keeps_the_promise(word: str) -> None:
    made = protect(SUMS, promise(), horizon=50, continual=word)
    for one in made.values():
        assert type(one) is (EpochSums if word == "doubling" else PrefixSums)
        assert [type(noise) for noise in one.noises] == [KINDS[word]]
    ledger = MemoryLedger(promise())
    pay(made, ledger, horizon=50)
    assert ledger.spent().epsilon == pytest.approx(1.0, rel=1e-6)


def test_the_words_are_all_there_and_the_default_is_the_best() -> None:
    assert list(CONTINUALS) == list(KINDS)
    assert CONTINUALS["best"] is TRUSTS["joint"]
    assert protect(SUMS, promise(), horizon=50) == protect(
        SUMS, promise(), horizon=50, continual="blt"
    )


@pytest.mark.parametrize("trust", ["none", "local", "joint", "central"])
def test_an_unknown_word_is_refused_with_the_choices(trust: str) -> None:
    with pytest.raises(UnknownName, match=r"'tre'; did you mean 'tree'\? Known: best, blt, tree"):
        protect(SUMS, promise(trust), horizon=50, continual="tre")


@pytest.mark.parametrize("trust", ["none", "local", "central"])
def test_other_trusts_do_without_it(trust: str) -> None:
    plain = protect(SUMS, promise(trust), horizon=50)
    assert protect(SUMS, promise(trust), horizon=50, continual="doubling") == plain


def test_a_fit_needs_a_bounded_history() -> None:
    asking: Any = Asking({"fit": LOSS})
    with pytest.raises(
        InvalidValue, match=r"'fit' is a fit .* without a horizon has no bound on it"
    ):
        protect(asking, promise(), horizon=50, continual="doubling")
    with pytest.raises(InvalidValue, match=r"'fit' is a fit .* nobody may hold it"):
        protect(asking, promise("local"), horizon=50)
