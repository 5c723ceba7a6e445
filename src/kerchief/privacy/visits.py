"""What a user pays who comes more than once.

A user who comes k times has k records, and all of them may be replaced together. Where each visit
is a report with noise of its own (local trust), that is k events. Where records are summed before
the noise is added, the worst is that all k fall into one sum, which then moves k times as far. For
Gaussians the squares of k inverse multipliers add up to k in different sums, against k² in one.
Sums of randomized bits hide k reports by cutting the batch into k parts (`randomized_bits.md`).

>>> from kerchief.privacy.events import Gaussian
>>> visited(Gaussian(noise_multiplier=6.0), visits=3, apart=False)
Gaussian(noise_multiplier=2.0)
"""

from __future__ import annotations

from dataclasses import replace

from kerchief.core.errors import InvalidValueError, UnsupportedEventError
from kerchief.core.validate import whole
from kerchief.privacy import events
from kerchief.privacy.events import Event
from kerchief.privacy.randomized_bits import RandomizedBits

# Accountants compose so many in seconds, and nobody is promised anything after so many.
_MOST_VISITS = 10_000


def visited(event: Event, *, visits: int, apart: bool) -> Event:
    """Return the event of a user who takes part `visits` times.

    With `apart` each visit has noise of its own.
    """
    if not isinstance(event, Event):
        raise InvalidValueError(f"event is a {type(event).__name__}; it must be an event")
    visits = whole("visits", visits, high=_MOST_VISITS)
    if apart:
        return events.Repeated(event=event, count=visits)
    match event:
        case events.Nothing() | events.NonPrivate():
            return event
        case events.Gaussian() | events.Laplace():
            return replace(event, noise_multiplier=event.noise_multiplier / visits)
        case events.DiscreteGaussian() | events.Binomial():
            return replace(event, sensitivity=event.sensitivity * visits)
        case events.RandomizedResponse():
            return replace(event, epsilon=event.epsilon * visits)
        case RandomizedBits():
            part = replace(event, users=max(1, event.users // visits))
            return events.Repeated(event=part, count=visits)
        case events.Zcdp():
            # Bun and Steinke 2016, proposition 1.9.
            return replace(event, rho=event.rho * visits**2)
        case events.Repeated():
            return replace(event, event=visited(event.event, visits=visits, apart=False))
        case events.Composed():
            parts = (visited(part, visits=visits, apart=False) for part in event.events)
            return replace(event, events=tuple(parts))
    if visits == 1:
        return event
    raise UnsupportedEventError(
        f"nothing is known about {visits} records of one user in {event!r}; let users come once"
    )
