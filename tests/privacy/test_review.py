"""A ledger read twice: both readings agree, a wrong one is seen, and returning users pay."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats  # type: ignore[import-untyped]

from kerchief.core.errors import UnsupportedEventError
from kerchief.privacy import Guarantee, Trust, epsilon_at
from kerchief.privacy.events import (
    Binomial,
    Composed,
    DiscreteGaussian,
    Event,
    Gaussian,
    Laplace,
    NonPrivate,
    Nothing,
    RandomizedResponse,
    Repeated,
    Zcdp,
)
from kerchief.privacy.randomized_bits import RandomizedBits
from kerchief.privacy.receipts import Cohort, Receipt
from kerchief.privacy.review import review, second_opinion
from kerchief.privacy.visits import visited

BITS = RandomizedBits(users=10, bits=8, keep=0.5, sensitivity=2.0, dimension=3, tail=1e-9)


def receipts(*events: Event, last: int = 10) -> list[Receipt]:
    cohort = Cohort(first=0, last=last)
    return [
        Receipt(number=i, event=event, cohort=cohort, capacity=1) for i, event in enumerate(events)
    ]


@pytest.mark.parametrize(
    "events",
    [
        (Gaussian(noise_multiplier=3.0),),
        (Gaussian(noise_multiplier=3.0), Gaussian(noise_multiplier=5.0)),
        (Repeated(event=Gaussian(noise_multiplier=20.0), count=16),),
        (Laplace(noise_multiplier=2.0),),
        (RandomizedResponse(epsilon=1.0),),
        (Repeated(event=RandomizedResponse(epsilon=0.1), count=20),),
        (Gaussian(noise_multiplier=4.0), Laplace(noise_multiplier=3.0)),
        (Gaussian(noise_multiplier=4.0), RandomizedResponse(epsilon=0.3)),
    ],
)
def test_two_exact_accountants_agree(events: tuple[Event, ...]) -> None:
    """They share no code, and differ by the grid of one of them."""
    second = second_opinion(events, 1e-5)
    assert second is not None
    assert second.exact
    ours = epsilon_at(events, 1e-5)
    assert math.isclose(second.epsilon, ours, rel_tol=5e-3, abs_tol=5e-4)


def test_a_bound_from_above_is_looser_and_no_disagreement() -> None:
    """Divergences bound discrete noise and zCDP; what is reported is ours."""
    for event in (
        DiscreteGaussian(sensitivity=2.0**18, scale=2**20, dimension=5),
        Zcdp(rho=0.05),
    ):
        promise = Guarantee(epsilon=5.0, delta=1e-5, trust=Trust.CENTRAL)
        read = review(promise, receipts(event))
        assert read.second is not None
        assert not read.second.exact
        assert read.ours - 5e-3 < read.second.epsilon < 1.5 * read.ours
        assert read.agree
        assert read.spent.epsilon == read.ours


def test_adaptive_charges_are_reviewed_by_the_filter() -> None:
    """Both accountants price them as if they were fixed in advance, and agree; more is spent."""
    event = RandomizedResponse(epsilon=0.25)
    paid = [dataclasses.replace(r, bill=r.number) for r in receipts(*[event] * 4)]
    read = review(Guarantee(epsilon=1.0, delta=1e-5, trust=Trust.CENTRAL), paid)
    assert read.agree
    assert read.ours == epsilon_at([event] * 4, 1e-5) < 1.0
    assert (read.spent.epsilon, read.kept) == (1.0, True)
    twice = review(Guarantee(epsilon=2.0, delta=1e-5, trust=Trust.CENTRAL), paid, visits=2)
    assert twice.spent.epsilon == 2.0


def test_event_unknown_to_second_accountant_has_one_reader() -> None:
    """Sums of coins are known to us alone, and this is said."""
    coins = Binomial(sensitivity=100.0, scale=400, dimension=3)
    promise = Guarantee(epsilon=5.0, delta=1e-5, trust=Trust.SHUFFLE)
    read = review(promise, receipts(coins))
    assert read.second is None
    assert read.agree
    assert read.spent.epsilon == epsilon_at([coins], 1e-5)


def test_review_believes_accountant_with_higher_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: an accountant of ours that forgets a third of the cost is named and overruled."""
    promise = Guarantee(epsilon=1.0, delta=1e-5, trust=Trust.LOCAL)
    paid = receipts(Gaussian(noise_multiplier=3.7306))
    honest = review(promise, paid)
    assert honest.agree
    assert honest.kept or math.isclose(honest.spent.epsilon, 1.0, rel_tol=1e-4)
    monkeypatch.setattr(
        "kerchief.privacy.review.epsilon_at",
        lambda events, delta: 2 / 3 * epsilon_at(events, delta),
    )
    planted = review(promise, paid)
    assert not planted.agree
    assert math.isclose(planted.spent.epsilon, 1.0, rel_tol=5e-3)


def test_overspending_shows() -> None:
    """A ledger that someone edited by hand is not kept."""
    promise = Guarantee(epsilon=1.0, delta=1e-5, trust=Trust.LOCAL)
    read = review(promise, receipts(Gaussian(noise_multiplier=2.0)))
    assert not read.kept
    bare = review(promise, receipts(NonPrivate()))
    assert not bare.kept
    assert bare.spent.epsilon == math.inf
    assert bare.agree


def test_the_worst_off_user_is_read() -> None:
    """Cohorts without common users are not added up."""
    event = Gaussian(noise_multiplier=4.0)
    paid = [
        Receipt(number=i, event=event, cohort=Cohort(first=10 * i, last=10 * i + 10), capacity=1)
        for i in range(3)
    ]
    promise = Guarantee(epsilon=2.0, delta=1e-5, trust=Trust.CENTRAL)
    assert math.isclose(review(promise, paid).ours, epsilon_at([event], 1e-5))
    assert review(promise, []).ours == 0.0


def test_visits_under_local_trust_are_reports_of_their_own() -> None:
    """K reports are k events: for Gaussians a root of k, not k."""
    promise = Guarantee(epsilon=9.0, delta=1e-5, trust=Trust.LOCAL)
    paid = receipts(Gaussian(noise_multiplier=6.0))
    four = review(promise, paid, visits=4)
    assert math.isclose(four.ours, epsilon_at([Gaussian(noise_multiplier=3.0)], 1e-5))


def test_visits_to_one_sum_move_it_further() -> None:
    """K records in one sum: the noise is k times smaller beside them."""
    promise = Guarantee(epsilon=99.0, delta=1e-5, trust=Trust.CENTRAL)
    paid = receipts(Gaussian(noise_multiplier=6.0))
    four = review(promise, paid, visits=4)
    assert math.isclose(four.ours, epsilon_at([Gaussian(noise_multiplier=1.5)], 1e-5))


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (Nothing(), Nothing()),
        (Laplace(noise_multiplier=6.0), Laplace(noise_multiplier=2.0)),
        (RandomizedResponse(epsilon=0.5), RandomizedResponse(epsilon=1.5)),
        (Zcdp(rho=0.1), Zcdp(rho=0.9)),
        (
            DiscreteGaussian(sensitivity=2.0, scale=9, dimension=1),
            DiscreteGaussian(sensitivity=6.0, scale=9, dimension=1),
        ),
        (
            Binomial(sensitivity=2.0, scale=9, dimension=1),
            Binomial(sensitivity=6.0, scale=9, dimension=1),
        ),
        (
            Composed(events=(Repeated(event=Laplace(noise_multiplier=6.0), count=2),)),
            Composed(events=(Repeated(event=Laplace(noise_multiplier=2.0), count=2),)),
        ),
    ],
)
def test_three_records_in_one_sum(event: Event, expected: Event) -> None:
    """What each event becomes for a user with three records."""
    got = visited(event, visits=3, apart=False)
    assert type(got) is type(expected)
    for leaf, wanted in zip(_numbers(got), _numbers(expected), strict=True):
        assert math.isclose(leaf, wanted)
    assert visited(event, visits=1, apart=False) == event


def _numbers(event: Event) -> list[float]:
    """All numbers of an event, inner events included."""
    if isinstance(event, Composed):
        return [number for part in event.events for number in _numbers(part)]
    if isinstance(event, Repeated):
        return [event.count, *_numbers(event.event)]
    return list(dataclasses.astuple(event))


def test_repeat_visits_without_proof_are_rejected() -> None:
    """An event of somebody's own, of which no more is known than what one record costs."""

    class Own(Event):
        pass

    one = Own()
    assert visited(one, visits=1, apart=False) == one
    with pytest.raises(UnsupportedEventError, match="let users come once"):
        visited(one, visits=2, apart=False)


def test_three_records_in_randomized_bits_are_one_in_each_third() -> None:
    third = dataclasses.replace(BITS, users=3)
    assert visited(BITS, visits=3, apart=False) == Repeated(event=third, count=3)
    alone = dataclasses.replace(BITS, users=1)
    assert visited(BITS, visits=11, apart=False) == Repeated(event=alone, count=11)


@pytest.mark.parametrize("visits", [1, 2, 5, 40])
def test_cost_of_several_records_covers_exact_sums(visits: int) -> None:
    """One bit per report, all records of a user turned around, and any bits of the others."""
    event = RandomizedBits(users=40, bits=1, keep=0.25, sensitivity=2.0, dimension=1, tail=1e-9)
    epsilon = epsilon_at([visited(event, visits=visits, apart=False)], 1e-5)
    high, low = (1 + event.keep) / 2, (1 - event.keep) / 2

    def sums(ones: int) -> NDArray[np.float64]:
        laws = (stats.binom.pmf(range(n + 1), n, p) for n, p in ((ones, high), (40 - ones, low)))
        return np.convolve(*laws)

    for others in range(40 - visits + 1):
        truth, other = sums(others + visits), sums(others)
        assert np.maximum(truth - math.exp(epsilon) * other, 0.0).sum() <= 1e-5
        assert np.maximum(other - math.exp(epsilon) * truth, 0.0).sum() <= 1e-5


def test_review_prices_randomized_bits_for_returning_users() -> None:
    budget = Guarantee(epsilon=1.0, delta=1e-5, trust=Trust.SHUFFLE)
    event = dataclasses.replace(BITS, users=3000, keep=0.0625)
    once, thrice = (review(budget, receipts(event), visits=k).ours for k in (1, 3))
    assert 0 < 2 * once < thrice < 4 * once
