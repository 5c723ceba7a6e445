"""The audit log of a task, read off its chain: what was paid and drawn, and whether they fit."""

from __future__ import annotations

import bisect
import copy
import dataclasses
import itertools
import re
import struct
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from kerchief.deployment.deployment import Deployment, read_guarantee
from kerchief.privacy import rules
from kerchief.privacy.guarantee import Guarantee
from kerchief.privacy.ledger import MemoryLedger
from kerchief.privacy.receipts import Charge, Cohort, Receipt
from kerchief.privacy.review import Review, review
from kerchief_protocol import canonical
from kerchief_protocol.chain import KINDS, ROOT, Line
from kerchief_protocol.errors import CodecError, FencedError
from kerchief_protocol.task import Task

# A draw as `canonical.write` spells it; whole numbers on the wire have at most 16 digits.
_NUMBER = rb"(0|[1-9][0-9]{0,15})"
_DRAW = re.compile(
    rb'\{"cohort":%b,"epoch":%b,"payload":"([0-9a-f]{64})","release":%b,"users":%b\}'
    % ((_NUMBER,) * 4)
)
# A report names its epoch in 32 bits.
_MOST_EPOCH = 2**32


@dataclasses.dataclass(frozen=True, kw_only=True)
class Draw:
    """A line that says that a release was drawn.

    Attributes:
        release: its number.
        epoch: of the task.
        cohort: whose total it is.
        users: how many these are.
        payload: a hash of the release's bytes.
    """

    release: int
    epoch: int
    cohort: int
    users: int
    payload: bytes


@dataclasses.dataclass(frozen=True, kw_only=True)
class Epoch:
    """Where an epoch of a task begins.

    Attributes:
        epoch: its number; no two epochs of a task have the same one.
        cohort: its first one: the one that was open, or 0 where the task begins again.
        release: the number of its first release.
    """

    epoch: int
    cohort: int
    release: int


class ChainReader:
    """Reads a chain page by page, and keeps its receipts and epochs.

    With a deployment it checks that every release was paid for; without one it only follows the
    chain.

    Attributes:
        receipts: every charge, settled or not.
        epochs: where each of them begins, in order.
        draws: how many releases are on the chain.
        last_draw: the number of the line of the last release; -1 before the first.
        ended: whether the task is over.
        length: how many lines were read.
        head: the hash of the last of them.
    """

    def __init__(self, deployment: Deployment | None = None) -> None:
        """Begin before the first line.

        Args:
            deployment: bandit and noise, built again from the task; None to check nothing.
        """
        self._deployment = deployment
        self._task = None if deployment is None else deployment.task
        self._expected: deque[tuple[str, bytes]] = deque()
        self.receipts: list[Receipt] = []
        self.epochs: list[Epoch] = []
        self.draws, self.last_draw, self.ended = 0, -1, False
        self.length, self.head = 0, ROOT

    @property
    def task(self) -> Task:
        """Task of the chain."""
        if self._task is None:
            raise FencedError("the chain is empty; it begins with the task")
        return self._task

    @property
    def cohort(self) -> int:
        """Open cohort, where the chain names every release."""
        return self.epochs[-1].cohort + self.draws - self.epochs[-1].release

    @property
    def names_releases(self) -> bool:
        """Whether the chain has a line for every release: not if devices alone add noise."""
        return bool(self.task.needs) or self.task.trust == "joint"

    def read(self, lines: Iterable[Line]) -> list[Draw]:
        """Read the next lines, and return the draws among them.

        Raises:
            FencedError: a line is missing, changed, out of place, or not paid for.
        """
        draws = []
        for line in lines:
            if line.number != self.length or line.prev != self.head or line.kind not in KINDS:
                raise FencedError(f"line {self.length} of the chain does not follow the one before")
            if self.ended:
                raise FencedError(f"line {line.number} comes after the end of the task")
            if line.kind == "draw":
                draws.append(self._draw(line))
            else:
                self._read_rare(line)
            self.length, self.head = self.length + 1, line.hash
        return draws

    def finish(self) -> None:
        """Check that nothing is missing after the last line.

        Raises:
            FencedError: charges of the last epoch are missing.
        """
        if self._expected:
            raise FencedError(
                "the receipts are not for the noise that the task draws, or out of place"
            )

    @property
    def budget(self) -> Guarantee:
        """Guarantee of each user; a new epoch has new users."""
        return dataclasses.replace(read_guarantee(self.task), rounds=None)

    def spent(self) -> Guarantee:
        """Return what the worst-off user was charged."""
        return rules.total(read_guarantee(self.task), self.receipts)

    def review(self, visits: int = 1) -> Review:
        """Price the worst-off user's charges by two accountants that share no code."""
        return review(read_guarantee(self.task), self.receipts, visits=visits)

    def list_settlements(self, deployment: Deployment) -> list[tuple[str, Any]]:
        """Return the lines that settle cohorts without a release, which cost nothing.

        Only in the last epoch: of earlier ones another copy may have released more. A device's own
        noise is used as soon as its report has left, whatever became of it.
        """
        if any(privatizer.noisy_device for privatizer in deployment.privatizers.values()):
            return []
        last = (len(self.epochs) - 1) * deployment.task.horizon
        # Without a table every cohort has one user.
        needs = deployment.task.needs
        ends = [0, *itertools.accumulate(needs)] if needs else range(2**31)
        covered = ends[self.epochs[-1].cohort : self.cohort]
        return [
            ("settle", {"receipt": receipt.number, "used": 0})
            for receipt in self.receipts
            if deployment.task.trust != "shuffle" and receipt.cohort.first >= last
            if not _any_within(covered, receipt.cohort.first - last, receipt.cohort.last - last)
        ]

    def snapshot(self) -> ChainReader:
        """Copy what was read so far; the original may read on."""
        copied = copy.copy(self)
        copied.receipts, copied.epochs = self.receipts.copy(), self.epochs.copy()
        copied._expected = self._expected.copy()
        return copied

    def _draw(self, line: Line) -> Draw:
        match = _DRAW.fullmatch(line.body)
        if self._task is None or match is None:
            raise FencedError(f"line {line.number} draws no release")
        cohort, epoch, payload, release, users = match.groups()
        draw = Draw(
            release=int(release),
            epoch=int(epoch),
            cohort=int(cohort),
            users=int(users),
            payload=bytes.fromhex(payload.decode()),
        )
        if self._deployment is not None:
            self._check_draw(draw)
        self.draws, self.last_draw = self.draws + 1, line.number
        return draw

    def _check_draw(self, draw: Draw) -> None:
        self.finish()
        task, cohort = self.task, self.cohort
        expected = (self.draws, cohort, self.epochs[-1].epoch)
        is_next = self.names_releases and (draw.release, draw.cohort, draw.epoch) == expected
        if not is_next or cohort >= task.cohorts or draw.users != task.need(cohort):
            raise FencedError(f"draw {self.draws} is not the next release of a full cohort")

    def _read_rare(self, line: Line) -> None:
        """Read a line of any other kind: there are few of them."""
        content = line.content
        if (line.kind == "open") != (self.length == 0):
            raise FencedError("the chain does not begin with a task, or holds two")
        if self._deployment is not None:
            self._check_rare(line, content)
        if line.kind == "open":
            self._open(content)
        elif line.kind == "charge":
            self.receipts.append(Receipt.from_dict(_decode_reals(content)))
        elif line.kind == "settle":
            _settle_receipt(self.receipts, line.number, content)
        elif line.kind == "epoch":
            self._begin_epoch(line.number, content)
        self.ended = line.kind == "end"

    def _check_rare(self, line: Line, content: Any) -> None:
        """Check that a line that is no draw is the line that must come here."""
        assert self._deployment is not None
        if line.kind == "open":
            epoch = content.get("epoch") if isinstance(content, dict) else None
            if type(epoch) is not int or line.body != encode_opening(self.task, epoch):
                raise FencedError("the chain is that of another task")
            self._expected += [
                (line.kind, line.body),
                *_encode_lines(_list_charge_lines(self._deployment, 0)),
            ]
        elif line.kind == "epoch":
            self.finish()
            bill = _encode_lines(_list_charge_lines(self._deployment, len(self.epochs)))
            self._expected += [(line.kind, line.body), *bill]
        elif not self._expected:
            releases = content.get("releases") if isinstance(content, dict) else None
            fits = releases == self.draws if self.names_releases else type(releases) is int
            end = ("end", {"releases": releases if fits else self.draws})
            self._expected += _encode_lines([*self.list_settlements(self._deployment), end])
        if (line.kind, line.body) != self._expected.popleft():
            raise FencedError(
                "the receipts are not for the noise that the task draws, or out of place"
            )

    def _open(self, content: Any) -> None:
        match content:
            case {"config": config, "epoch": int() as first, **rest} if (
                not rest and type(first) is int and 0 <= first < _MOST_EPOCH
            ):
                self._task = self._task or Task.read(canonical.write(config))
                self.epochs.append(Epoch(epoch=first, cohort=0, release=0))
            case _:
                raise FencedError("the chain does not begin with a task and its first epoch")

    def _begin_epoch(self, number: int, content: Any) -> None:
        """Begin an epoch under a new number, at the open cohort or at the first one."""
        try:
            epoch, last = canonical.unpack(Epoch, content), self.epochs[-1]
        except CodecError:
            raise FencedError(f"line {number} begins no epoch") from None
        numbers = {earlier.epoch for earlier in self.epochs}
        if not 0 <= epoch.epoch < _MOST_EPOCH or epoch.epoch in numbers:
            raise FencedError(f"line {number} begins epoch {epoch.epoch}, which is no new number")
        passed = epoch.release - last.release
        is_at_end = epoch.release == self.draws if self.names_releases else passed >= 0
        if not is_at_end or epoch.cohort not in (0, last.cohort + passed):
            raise FencedError(
                f"line {number} begins an epoch at another place than the end of the last epoch"
            )
        self.epochs.append(epoch)


class AuditLog(ChainReader):
    """What a whole chain says, with all of its lines.

    Attributes:
        lines: of the chain.
        draw_lines: every release that the aggregator added noise to, or made of a whole cohort.
    """

    lines: tuple[Line, ...] = ()
    draw_lines: tuple[Draw, ...] = ()

    @classmethod
    def of(cls, lines: Sequence[Line]) -> AuditLog:
        """Read a chain line by line.

        Raises:
            FencedError: a line is missing, changed or out of place.
        """
        audit_log = cls()
        audit_log.lines, audit_log.draw_lines = tuple(lines), tuple(audit_log.read(lines))
        assert audit_log.task
        return audit_log

    def check(self, deployment: Deployment) -> None:
        """See that what was drawn is what was paid for, and no more of it.

        Args:
            deployment: bandit and noise, built again from the task.

        Raises:
            FencedError: they do not fit.
        """
        reader = ChainReader(deployment)
        reader.read(self.lines)
        reader.finish()


def encode_opening(task: Task, epoch: int) -> bytes:
    """The body of a chain's first line: the task, and the number of its first epoch."""
    return canonical.write({"config": canonical.read(task.data), "epoch": epoch})


def list_charges(deployment: Deployment, epoch: int) -> list[Charge]:
    """What the epoch of this place in their order may cost: its users have places of their own."""
    first = epoch * deployment.task.horizon
    return [
        dataclasses.replace(
            bill, cohort=Cohort(first=bill.cohort.first + first, last=bill.cohort.last + first)
        )
        for privatizer in deployment.privatizers.values()
        for bill in privatizer.charges(deployment.task.horizon)
    ]


def charge_epoch(deployment: Deployment, epoch: int) -> list[tuple[str, Any]]:
    """Lines that pay for the epoch of this place in their order.

    Raises:
        BudgetExceededError: the promise does not pay for the noise.
    """
    ledger = MemoryLedger(dataclasses.replace(deployment.guarantee, rounds=None))
    ledger.charge_all(list_charges(deployment, epoch))
    return _list_charge_lines(deployment, epoch)


def _list_charge_lines(deployment: Deployment, epoch: int) -> list[tuple[str, Any]]:
    """List the lines that the charges of an epoch must be."""
    bills = list_charges(deployment, epoch)
    numbered = enumerate(bills, start=epoch * len(bills))
    return [
        ("charge", _encode_reals(Receipt(number=n, **vars(charge)).to_dict()))
        for n, charge in numbered
    ]


def _encode_lines(lines: Iterable[tuple[str, Any]]) -> list[tuple[str, bytes]]:
    return [(kind, canonical.write(content)) for kind, content in lines]


def _any_within(places: Sequence[int], first: int, last: int) -> bool:
    """Return whether one of these increasing places lies in [first, last)."""
    return bisect.bisect_left(places, first) < bisect.bisect_left(places, last)


def _settle_receipt(receipts: list[Receipt], line: int, content: Any) -> None:
    match content:
        case {"receipt": int() as number, "used": int() as count, **rest} if not rest:
            if 0 <= number < len(receipts) and receipts[number].used is None:
                receipts[number] = dataclasses.replace(receipts[number], used=count)
                return
    raise FencedError(f"line {line} settles no open receipt")


def _encode_reals(value: Any) -> Any:
    """Encode a tree of plain values, with each real as its bits."""
    if isinstance(value, float):
        return {"real": struct.pack(">d", value).hex()}
    if isinstance(value, dict):
        return {key: _encode_reals(element) for key, element in value.items()}
    return (
        [_encode_reals(element) for element in value] if isinstance(value, list | tuple) else value
    )


def _decode_reals(tree: Any) -> Any:
    match tree:
        case {"real": str() as bits, **rest} if not rest:
            return canonical.unpack(float, bits)
        case dict():
            return {key: _decode_reals(element) for key, element in tree.items()}
        case list():
            return [_decode_reals(element) for element in tree]
    return tree
