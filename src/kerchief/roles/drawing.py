"""What the middle draws in one transaction: releases, lines of the chain, states of the noise."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kerchief.roles.desks import Desk, Kept, hedged, read_secret, write_secret
from kerchief.stores.store import Row, Transaction
from kerchief_device.samplers import Randomness
from kerchief_wire import canonical
from kerchief_wire.chain import Line
from kerchief_wire.report import Release
from kerchief_wire.task import Task

__all__ = ["Drawing", "appended"]

Wholes = NDArray[np.int64]


class Drawing:
    """Draws the releases of one transaction; what they share is read once and written once.

    Attributes:
        row: where the task stands now; `close` writes it.
    """

    def __init__(
        self,
        at: Transaction,
        row: Row,
        *,
        task: Task,
        desks: tuple[Desk, ...],
        source: Randomness | None,
    ) -> None:
        """Before the first release.

        Args:
            at: the transaction.
            row: where the task stands.
            task: whose releases these are.
            desks: of its queries.
            source: of noise; None where it was drawn ahead.
        """
        self.row, self._at = row, at
        self._task, self._desks, self._source = task, desks, source
        self._secret: tuple[int, tuple[Kept, ...]] | None = None
        self._last: bytes | None = None
        self._draws = any(desk.draws for desk in desks)

    def draw(self, fresh: Sequence[Wholes]) -> None:
        """Release the open cohort: its total, the chain's line, the noise's state, together.

        Args:
            fresh: numbers of reports that are not in the store; those of the others are there.
        """
        row, need = self.row, self._task.need(self.row.cohort)
        kept = self._at.bodies(row.cohort) if need > len(fresh) else []
        bodies = [np.frombuffer(body, "<i8") for body in kept] + list(fresh)
        release = Release(
            number=row.releases,
            epoch=row.epoch,
            cohort=row.cohort,
            users=len(bodies),
            previous=self._previous(),
            total=self._noisy(bodies),
        )
        payload = release.write()
        self._last = hashlib.sha256(payload).digest()
        self._at.publish(release.number, payload)
        if kept:
            self._at.forget(row.cohort)
        length, head = row.length, row.head
        if self._task.needs or self._draws:
            body = _said(release, self._last)
            line = Line(number=length, kind="draw", prev=head, body=body)
            self._at.append(line)
            length, head = length + 1, line.hash
        self.row = Row(
            config=row.config,
            state=row.state,
            epoch=row.epoch,
            cohort=row.cohort + 1,
            releases=row.releases + 1,
            length=length,
            head=head,
            witnessed=row.witnessed,
        )

    def close(self) -> Row:
        """Write where the task stands, and the state of the noise."""
        if self._secret is not None and any(desk.running for desk in self._desks):
            self._at.hide(write_secret(*self._secret))
        self._at.change(self.row)
        return self.row

    def _previous(self) -> bytes:
        """A hash of the release before; the task's id for the first."""
        if self._last is None:
            number = self.row.releases
            before = self._at.release(number - 1) if number else None
            self._last = hashlib.sha256(before or b"").digest() if number else self._task.id
        return self._last

    def _noisy(self, bodies: Sequence[Wholes]) -> Wholes:
        """The total of a cohort as it is shown: the state of the noise moves on."""
        total: Wholes = bodies[0] if len(bodies) == 1 else np.add.reduce(bodies, dtype=np.int64)
        if not self._draws:
            return total
        if self._secret is None:
            self._secret = read_secret(self._at.secret() or b"", self._desks)
        drawn, kept = self._secret
        source = self._source and self._hedged(total, self._source)
        pairs = [
            desk.draw(total[part], one, drawn, source)
            for desk, part, one in zip(self._desks, self._task.parts, kept, strict=True)
        ]
        self._secret = drawn + 1, tuple(state for _, state in pairs)
        return np.concatenate([shown for shown, _ in pairs])

    def _hedged(self, total: Wholes, source: Randomness) -> Randomness:
        context = self.row.head + self.row.releases.to_bytes(8, "little") + total.tobytes()
        return hedged(hashlib.sha256(context).digest(), source)


def appended(at: Transaction, row: Row, said: Iterable[tuple[str, Any]]) -> Row:
    """Add lines to the chain; where the task stands then."""
    length, head = row.length, row.head
    for kind, content in said:
        line = Line(number=length, kind=kind, prev=head, body=canonical.write(content))
        at.append(line)
        length, head = length + 1, line.hash
    return dataclasses.replace(row, length=length, head=head)


def _said(release: Release, payload: bytes) -> bytes:
    """What a line says of a release: what `canonical.write` makes of it, in a tenth of the time."""
    return (
        f'{{"cohort":{release.cohort},"epoch":{release.epoch},"payload":"{payload.hex()}",'
        f'"release":{release.number},"users":{release.users}}}'
    ).encode()
