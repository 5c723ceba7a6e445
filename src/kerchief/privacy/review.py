"""A ledger read again, by two accountants that share no code.

Both price a user's events as if they were fixed in advance. What is reported as spent is at least
the ledger's own price, which goes through a privacy filter where bills may have been chosen by
earlier releases (`composition.md`).

Ours is `composition`; the other is dp-accounting's, with privacy loss distributions where it has an
exact word for every event, and with Rényi divergences where a zCDP bound must stand for one. Two
exact accountants must agree. One that only bounds from above may be looser, never much tighter.
Of those that claim to be exact the larger ε counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from kerchief.core.errors import UnsupportedEventError
from kerchief.privacy.composition import epsilon_at, leaves, to_dp_event
from kerchief.privacy.events import (
    Event,
    Gaussian,
    Laplace,
    NonPrivate,
    RandomizedResponse,
    Repeated,
)
from kerchief.privacy.external import divergence_accountant, dp_events, loss_accountant
from kerchief.privacy.guarantee import Guarantee, Trust
from kerchief.privacy.histories import History, histories
from kerchief.privacy.receipts import Receipt
from kerchief.privacy.visits import visited

_EXACT: set[type[Event]] = {Gaussian, Laplace, RandomizedResponse, NonPrivate}
# The grid of privacy losses, and how far two exact accountants may be apart: the other one rounds
# losses up, by at most a step of its grid in all for these families, and ours is exact.
_GRID = 1e-4
_APART = 5e-3
# Each response is written out for the other accountant.
_MOST_RESPONSES = 10_000
_NO_HISTORY = History(bills=(), reserved=())


@dataclass(frozen=True, kw_only=True)
class Opinion:
    """What another accountant says.

    Attributes:
        exact: whether it knows every event exactly; otherwise it bounds ε from above.
    """

    epsilon: float
    method: str
    exact: bool


@dataclass(frozen=True, kw_only=True)
class Review:
    """What a ledger says on second reading.

    Attributes:
        budget: what was promised to each user.
        visits: how often a user was assumed to come.
        ours: ε of the worst-off user by our accountant, at the budget's δ, as if all events had
            been fixed in advance.
        second: what the other accountant says about that user; None where it has no word for an
            event.
        unequal: whether cohorts differ in what they cost, and not all by normal noise: then visits
            that are spread over them might cost more than all in the dearest.
        spent: the guarantee to report: the ledger's price of the worst-off user, or a larger ε
            of an exact accountant; none at all where nothing bounds it.
    """

    budget: Guarantee
    visits: int
    ours: float
    second: Opinion | None
    spent: Guarantee
    unequal: bool = False

    @property
    def agree(self) -> bool:
        """Whether both readings fit together."""
        if self.second is None or self.second.epsilon == self.ours:
            return True
        slack = _APART * max(1.0, self.ours)
        if self.second.exact:
            return abs(self.second.epsilon - self.ours) <= slack
        return self.second.epsilon >= self.ours - slack

    @property
    def is_proved(self) -> bool:
        """Whether no way to spread the visits over cohorts is known to be left out of the price."""
        return not self.unequal or self.visits == 1 or self.budget.trust is Trust.LOCAL

    @property
    def kept(self) -> bool:
        """Whether what was spent is within what was promised."""
        return self.spent.epsilon <= self.budget.epsilon * (1 + 1e-9)


def review(budget: Guarantee, receipts: Sequence[Receipt], *, visits: int = 1) -> Review:
    """Price a ledger by two accountants, for users who came `visits` times.

    The ledger itself says that they came once.

    Raises:
        UnsupportedEventError: an event that nobody can price, or not for several visits.
    """
    visit = partial(visited, visits=visits, apart=budget.trust is Trust.LOCAL)
    priced = [history.map(visit) for history in histories(receipts)]
    worst = max(priced, key=lambda history: history.price(budget.delta), default=_NO_HISTORY)
    own_epsilon = epsilon_at(worst.events, budget.delta)
    second = second_opinion(worst.events, budget.delta)
    spent = worst.price(budget.delta)
    # A grid of losses rounds up, which is no disagreement: ours is the exact number then.
    if (
        second is not None
        and second.exact
        and second.epsilon - own_epsilon > _APART * max(1.0, own_epsilon)
    ):
        spent = max(spent, second.epsilon)
    nothing = Guarantee(epsilon=math.inf, delta=0.0, trust=Trust.NONE, unit=budget.unit)
    return Review(
        budget=budget,
        visits=visits,
        ours=own_epsilon,
        second=second,
        spent=replace(budget, epsilon=spent) if math.isfinite(spent) else nothing,
        unequal=len({receipt.event for receipt in receipts}) > 1
        and {type(receipt.event) for receipt in receipts} != {Gaussian},
    )


def second_opinion(events: Iterable[Event], delta: float) -> Opinion | None:
    """Return dp-accounting's opinion on events, or None where it has no word for one."""
    counts = leaves(events)
    kinds: set[type[Event]] = {type(event) for event in counts}
    response = RandomizedResponse in kinds
    # It reads randomized response under one relation and Laplace noise under another.
    exact = kinds <= _EXACT and not (response and Laplace in kinds)
    try:
        translations = [
            _translate_event(event, count, exact=exact, response=response)
            for event, count in counts.items()
        ]
    except UnsupportedEventError:
        return None
    accountant = loss_accountant(_GRID, special=not response) if exact else divergence_accountant()
    for translation in translations:
        accountant.compose(translation)
    method = "privacy loss distributions" if exact else "Rényi divergences"
    return Opinion(epsilon=float(accountant.get_epsilon(delta)), method=method, exact=exact)


def _translate_event(event: Event, count: int, *, exact: bool, response: bool) -> object:
    """Translate an event that happens so many times to dp-accounting's language."""
    if exact and isinstance(event, RandomizedResponse):
        if count > _MOST_RESPONSES:
            raise UnsupportedEventError(f"{count} responses are more than can be written out")
        lie_chance = 2.0 * math.exp(-event.epsilon) / (1.0 + math.exp(-event.epsilon))
        response_event = dp_events().RandomizedResponseDpEvent(lie_chance, 2)
        # Its accountant reads a repeated response as a single one, so each is written out.
        return dp_events().ComposedDpEvent([response_event] * count)
    if exact and response and isinstance(event, Gaussian):
        # Where one record is replaced it takes sensitivities to be halves of distances.
        event = Gaussian(noise_multiplier=2 * event.noise_multiplier)
    return to_dp_event(Repeated(event=event, count=count))
