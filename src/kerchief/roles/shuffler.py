"""The shuffler: gathers a batch, permutes it, forwards it, and forgets who sent what."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from kerchief.core.errors import InvalidValue
from kerchief.core.validate import increasing, whole
from kerchief.roles.messages import Answers, Batch, Done, Message, Mixed, Reports
from kerchief.roles.transport import Transport
from kerchief.roles.uncopyable import Guarded

__all__ = ["Mixer", "Shuffler", "permuted"]

T = TypeVar("T")


def permuted(items: Sequence[T]) -> list[T]:
    """A uniformly random order, exactly (Fisher and Yates), from the operating system's generator.

    >>> sorted(permuted([3, 1, 2]))
    [1, 2, 3]
    """
    order = list(items)
    for last in range(len(order) - 1, 0, -1):
        other = secrets.randbelow(last + 1)
        order[last], order[other] = order[other], order[last]
    return order


class Shuffler(Guarded):
    """Stands between devices and curator, and breaks the link between a report and its sender.

    It is trusted for one thing: not to tell the order. It sees reports as the devices randomized
    them. Tickets, which it needs so that a report sent twice counts once, go no further. A batch
    that is not full is never forwarded: it would hide its senders among fewer than was promised.

    >>> from kerchief.roles import InProcess
    >>> shuffler = Shuffler(size=2, transport=InProcess(), to="curator")
    >>> shuffler.handle(Reports(ticket="a", answers={})), shuffler.waiting
    (Done(), 1)
    """

    def __init__(self, *, size: int, transport: Transport, to: str) -> None:
        """Begin with an empty batch.

        Args:
            size: how many visits make a batch.
            transport: carries full batches.
            to: the address they go to.
        """
        self.size = whole("batch size", size)
        self._transport = transport
        self._to = to
        self._tickets: set[str] = set()
        self._batch: list[Answers] = []

    @property
    def waiting(self) -> int:
        """How many visits are in the present, unfinished batch."""
        return len(self._batch)

    def handle(self, message: Message) -> Message:
        """Take in one visit's reports; a full batch leaves at once."""
        if not isinstance(message, Reports):
            raise InvalidValue(f"a shuffler was sent a {type(message).__name__}; it takes Reports")
        if message.ticket in self._tickets:
            return Done()
        self._tickets.add(message.ticket)
        self._batch.append(message.answers)
        if self.waiting == self.size:
            batch = Batch(answers=tuple(permuted(self._batch)))
            self._batch = []
            self._transport.send(self._to, batch)
        return Done()


class Mixer(Guarded):
    """The shuffler of shuffled sums: mixes the bits of a cohort, coordinate by coordinate.

    A report is a bundle of labelled bits, written as how many heads it has. Bits in a uniformly
    random order tell their number of heads and nothing else, so the mixer passes that on: the total
    over the cohort. It is trusted not to show a bundle. A cohort that is not full is never passed
    on: its devices have not tossed all the coins.

    >>> from kerchief.roles import InProcess
    >>> mixer = Mixer(ends=(2, 5), transport=InProcess(), to="curator")
    >>> mixer.handle(Reports(ticket="a", answers={})), mixer.waiting
    (Done(), 1)
    """

    def __init__(self, *, ends: Sequence[int], transport: Transport, to: str) -> None:
        """Begin with an empty cohort.

        Args:
            ends: how many devices have reported when each cohort ends.
            transport: carries full cohorts.
            to: the address they go to.
        """
        self._ends = increasing("ends of cohorts", tuple(ends))
        self._transport = transport
        self._to = to
        self._tickets: set[str] = set()
        self._cohort: list[Answers] = []

    @property
    def waiting(self) -> int:
        """How many visits are in the present, unfinished cohort."""
        return len(self._cohort)

    def handle(self, message: Message) -> Message:
        """Take in one visit's bits; a full cohort leaves at once."""
        if not isinstance(message, Reports):
            raise InvalidValue(f"a mixer was sent a {type(message).__name__}; it takes Reports")
        if message.ticket in self._tickets:
            return Done()
        if self._cohort and _shapes(message.answers) != _shapes(self._cohort[0]):
            raise InvalidValue(f"the reports are to {sorted(message.answers)}; others' differ")
        self._tickets.add(message.ticket)
        self._cohort.append(message.answers)
        if len(self._tickets) in self._ends:
            cohort, self._cohort = self._cohort, []
            totals = {
                name: np.sum([np.asarray(one[name]) for one in cohort], axis=0)
                for name in cohort[0]
            }
            self._transport.send(self._to, Mixed(users=len(cohort), answers=totals))
        return Done()


def _shapes(answers: Answers) -> dict[str, tuple[int, ...]]:
    return {name: np.shape(report) for name, report in answers.items()}
