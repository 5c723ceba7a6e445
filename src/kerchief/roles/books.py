"""A task's books, read off its chain: what was paid, what was drawn, and whether they fit."""

from __future__ import annotations

import dataclasses
import itertools
import struct
from collections.abc import Sequence
from typing import Any

from kerchief.privacy import rules
from kerchief.privacy.guarantee import Guarantee
from kerchief.privacy.ledger import MemoryLedger
from kerchief.privacy.receipts import Charge, Cohort, Receipt
from kerchief.privacy.review import Review, review
from kerchief.roles.deployment import Deployment, guarantee_of
from kerchief_wire import canonical
from kerchief_wire.chain import Line, follow
from kerchief_wire.errors import Fenced
from kerchief_wire.task import Task


@dataclasses.dataclass(frozen=True, kw_only=True)
class Drawn:
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
class Books:
    """What a chain says.

    Attributes:
        task: whose chain it is.
        lines: of the chain.
        receipts: every charge, settled or not.
        drawn: every release that the middle added noise to, or made of a whole cohort.
        epochs: their numbers, in the order in which the task began anew.
        ended: whether it is over.
        head: the hash of the last line, which anyone may keep elsewhere.
    """

    task: Task
    lines: tuple[Line, ...]
    receipts: tuple[Receipt, ...]
    drawn: tuple[Drawn, ...]
    epochs: tuple[int, ...]
    ended: bool
    head: bytes

    @classmethod
    def of(cls, lines: Sequence[Line]) -> Books:
        """Read a chain line by line.

        Raises:
            Fenced: a line is missing, changed or out of place.
        """
        head = follow(lines)
        match lines[0].content:
            case {"config": config, "epoch": int() as first, **rest} if (
                lines[0].kind == "open" and not rest and 0 <= first < 2**32
            ):
                task = Task.read(canonical.write(config))
            case _:
                raise Fenced("the chain does not begin with a task and its first epoch")
        receipts: list[Receipt] = []
        drawn, epochs, ended = [], [first], False
        for line in lines[1:]:
            if ended:
                raise Fenced(f"line {line.number} comes after the end of the task")
            if line.kind == "charge":
                receipts.append(Receipt.from_dict(_value(line.content)))
            elif line.kind == "draw":
                drawn.append(canonical.unpack(Drawn, line.content))
            elif line.kind == "settle":
                _settle(receipts, line)
            elif line.kind == "epoch":
                epochs.append(_epoch(line))
            ended = line.kind == "end"
        return cls(
            task=task,
            lines=tuple(lines),
            receipts=tuple(receipts),
            drawn=tuple(drawn),
            epochs=tuple(epochs),
            ended=ended,
            head=head,
        )

    @property
    def budget(self) -> Guarantee:
        """What each user was promised; a new epoch has new users."""
        return dataclasses.replace(guarantee_of(self.task), rounds=None)

    def spent(self) -> Guarantee:
        """What the worst-off user was charged."""
        return rules.total(guarantee_of(self.task), self.receipts)

    def review(self, visits: int = 1) -> Review:
        """The same by two accountants that share no code."""
        return review(guarantee_of(self.task), self.receipts, visits=visits)

    def check(self, made: Deployment) -> None:
        """See that what was drawn is what was paid for, and no more of it.

        Args:
            made: bandit and noise, built again from the task.

        Raises:
            Fenced: they do not fit.
        """
        at, drawn = 1, 0
        for place, epoch in enumerate(self.epochs):
            begun = [("epoch", {"epoch": epoch})] if place else []
            at = self._passed(at, begun + _bill(made, place))
            while at < len(self.lines) and self.lines[at].kind == "draw":
                self._check_draw(drawn, epoch)
                at, drawn = at + 1, drawn + 1
        if self.ended:
            at = self._passed(at, self.settled(made)) + 1
        if at < len(self.lines):
            raise Fenced(f"line {at} of the chain is out of place")

    def _passed(self, first: int, said: Sequence[tuple[str, Any]]) -> int:
        """The number of the line after those that must begin with this one.

        Raises:
            Fenced: others come here.
        """
        end = first + len(said)
        found = [(line.kind, line.body) for line in self.lines[first:end]]
        if found != [(kind, canonical.write(content)) for kind, content in said]:
            raise Fenced("the receipts are not for the noise that the task draws, or out of place")
        return end

    def _check_draw(self, number: int, epoch: int) -> None:
        one = self.drawn[number]
        wrong = one.release != number or one.cohort != number or one.epoch != epoch
        if wrong or number >= self.task.cohorts or one.users != self.task.need(number):
            raise Fenced(f"draw {number} is not the release that comes next, of a full cohort")

    def settled(self, made: Deployment) -> list[tuple[str, Any]]:
        """Lines that bring the bill down to what was released: a cohort that was not costs nothing.

        Only in the last epoch: of earlier ones another copy may have released more. A device's own
        noise is used as soon as its report has left, whatever became of it.
        """
        last = (len(self.epochs) - 1) * made.task.horizon
        bare = not any(one.noisy_device for one in made.privatizers.values())
        shuffled = made.task.trust == "shuffle"
        # Without a table every cohort has one user.
        ends = [0, *itertools.accumulate(made.task.needs)] if made.task.needs else range(2**31)
        covered = [
            self.epochs.index(one.epoch) * made.task.horizon + ends[one.cohort]
            for one in self.drawn
        ]
        return [
            ("settle", {"receipt": one.number, "used": 0})
            for one in self.receipts
            if bare and not shuffled and one.cohort.first >= last
            if not any(one.cohort.first <= place < one.cohort.last for place in covered)
        ]


def opened(task: Task, epoch: int) -> bytes:
    """The body of a chain's first line: the task, and the number of its first epoch."""
    return canonical.write({"config": canonical.read(task.data), "epoch": epoch})


def charges(made: Deployment, epoch: int) -> list[Charge]:
    """What the epoch of this place in their order may cost: its users have places of their own."""
    first = epoch * made.task.horizon
    return [
        dataclasses.replace(
            bill, cohort=Cohort(first=bill.cohort.first + first, last=bill.cohort.last + first)
        )
        for privatizer in made.privatizers.values()
        for bill in privatizer.charges(made.task.horizon)
    ]


def charged(made: Deployment, epoch: int) -> list[tuple[str, Any]]:
    """Lines that pay for the epoch of this place in their order.

    Raises:
        BudgetExceeded: the promise does not pay for the noise.
    """
    ledger = MemoryLedger(dataclasses.replace(made.guarantee, rounds=None))
    ledger.charge_all(charges(made, epoch))
    return _bill(made, epoch)


def _bill(made: Deployment, epoch: int) -> list[tuple[str, Any]]:
    """The lines that an epoch's charges must be, and no others."""
    bills = charges(made, epoch)
    numbered = enumerate(bills, start=epoch * len(bills))
    return [("charge", _tree(Receipt(number=n, **vars(one)).to_dict())) for n, one in numbered]


def _epoch(line: Line) -> int:
    match line.content:
        case {"epoch": int() as epoch, **rest} if not rest:
            return epoch
    raise Fenced(f"line {line.number} begins no epoch")


def _settle(receipts: list[Receipt], line: Line) -> None:
    match line.content:
        case {"receipt": int() as number, "used": int() as used, **rest} if not rest:
            if 0 <= number < len(receipts) and receipts[number].used is None:
                receipts[number] = dataclasses.replace(receipts[number], used=used)
                return
    raise Fenced(f"line {line.number} settles no open receipt")


def _tree(value: Any) -> Any:
    """Plain values with reals as their bits."""
    if isinstance(value, float):
        return {"real": struct.pack(">d", value).hex()}
    if isinstance(value, dict):
        return {key: _tree(one) for key, one in value.items()}
    return [_tree(one) for one in value] if isinstance(value, list | tuple) else value


def _value(tree: Any) -> Any:
    match tree:
        case {"real": str() as bits, **rest} if not rest:
            return canonical.unpack(float, bits)
        case dict():
            return {key: _value(one) for key, one in tree.items()}
        case list():
            return [_value(one) for one in tree]
    return tree
