"""Reports and releases: little-endian whole numbers behind a header of fixed length.

A report is bound to its task, epoch and label by its header, has the same length as every other
report of its task, and says nothing about when it was made.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from kerchief_protocol.errors import CodecError, RejectedError
from kerchief_protocol.noise import Wholes
from kerchief_protocol.task import Task

_PLAIN = 1
_HEADER = struct.Struct("<4sBBHI32s16s")
_RELEASE = struct.Struct("<4sIIQQQ32s")
_INTEGERS = np.dtype("<i8")


@dataclass(frozen=True, kw_only=True)
class Report:
    """What one device sends about one visit.

    Attributes:
        label: the cohort that it was made for, which says how much noise it brings.
        epoch: of the task; a report of an earlier one may have been released already.
        id: 16 random bytes, so that a report that is sent twice counts once.
        numbers: of all queries, one after another.
    """

    label: int
    epoch: int
    id: bytes
    numbers: Wholes = field(repr=False)

    def write(self, task: Task) -> bytes:
        """Write the report as bytes."""
        head = _HEADER.pack(b"kch1", _PLAIN, 0, self.label, self.epoch, task.id, self.id)
        return head + self.numbers.astype("<i8", copy=False).tobytes()

    @classmethod
    def read(cls, data: bytes, task: Task) -> Report:
        """Read a stranger's report strictly.

        Raises:
            RejectedError: it is not a report of this task, or not within its bounds.
        """
        report = cls._read_unbounded(data, task)
        if not task.within(report.numbers, report.label):
            raise RejectedError("bounds", "a number of the report is outside its public bounds")
        return report

    @classmethod
    def read_all(cls, reports: Iterable[bytes], task: Task) -> list[Report | RejectedError]:
        """Read strangers' reports strictly, checking the bounds of all of them together."""
        payloads, read = list(reports), list[Report | RejectedError]()
        stacks: dict[int, list[Wholes]] = {}
        for data in payloads:
            try:
                report = cls._read_unbounded(data, task)
            except RejectedError as refusal:
                read.append(refusal)
                continue
            read.append(report)
            stacks.setdefault(report.label, []).append(report.numbers)
        if all(task.within(np.array(stack), label) for label, stack in stacks.items()):
            return read
        return [_read_or_refuse(data, task) for data in payloads]

    @classmethod
    def _read_unbounded(cls, data: bytes, task: Task) -> Report:
        """Read a report without checking the bounds of its numbers."""
        if not isinstance(data, (bytes, bytearray)):
            raise RejectedError("malformed", "the report is not made of bytes")
        if len(data) != (length := _HEADER.size + 8 * task.size):
            raise RejectedError(
                "length", f"the report has {len(data)} bytes; this task's have {length}"
            )
        magic, kind, zero, label, epoch, name, id = _HEADER.unpack_from(data)
        if magic != b"kch1" or kind != _PLAIN or zero:
            raise RejectedError("malformed", "the report's header is not one of this protocol")
        if name != task.id:
            raise RejectedError("task", "the report belongs to another task")
        if label >= task.labels:
            raise RejectedError("label", f"label is {label}; the task has {task.labels}")
        numbers = np.frombuffer(data, _INTEGERS, offset=_HEADER.size)
        return cls(label=label, epoch=epoch, id=id, numbers=numbers)


@dataclass(frozen=True, kw_only=True)
class Release:
    """Noisy total of one cohort, which the aggregator publishes once.

    Attributes:
        number: its place among the task's releases, from 0.
        epoch: of the task.
        cohort: whose release it is.
        users: how many users the cohort has.
        previous: a hash of the release before; the task's id for the first.
        total: of all queries, one after another: the cohort's noisy total, or under joint trust
            the noisy running total of the epoch.
    """

    number: int
    epoch: int
    cohort: int
    users: int
    previous: bytes
    total: Wholes

    def write(self) -> bytes:
        """Write the release as bytes."""
        (data,), _ = write_releases(
            self.total[None],
            number=self.number,
            epoch=self.epoch,
            cohort=self.cohort,
            users=[self.users],
            previous=self.previous,
        )
        return data

    @classmethod
    def read(cls, data: bytes) -> Release:
        """Read bytes that `write` returned.

        Raises:
            CodecError: it is something else.
        """
        if len(data) < _RELEASE.size:
            raise CodecError(f"a release has at least {_RELEASE.size} bytes; these are {len(data)}")
        magic, size, epoch, number, cohort, users, previous = _RELEASE.unpack_from(data)
        if magic != b"kcr1" or len(data) != _RELEASE.size + 8 * size:
            raise CodecError("the bytes are no release of this protocol")
        total = np.frombuffer(data, "<i8", offset=_RELEASE.size)
        return cls(
            number=number, epoch=epoch, cohort=cohort, users=users, previous=previous, total=total
        )


def write_releases(
    totals: Wholes, *, number: int, epoch: int, cohort: int, users: Sequence[int], previous: bytes
) -> tuple[list[bytes], list[bytes]]:
    """Encode releases of consecutive cohorts; return their bytes and their hashes.

    Each release holds the hash of the release before it.

    Args:
        totals: one row for each cohort.
        number: of the first release.
        epoch: of the task.
        cohort: the first one.
        users: how many each cohort has.
        previous: a hash of the release before the first.
    """
    size, payloads, hashes = totals.shape[1], list[bytes](), list[bytes]()
    rows = zip(totals.astype("<i8", copy=False), users, strict=True)
    for place, (total, cohort_users) in enumerate(rows):
        head = (size, epoch, number + place, cohort + place, cohort_users, previous)
        payloads.append(_RELEASE.pack(b"kcr1", *head) + total.tobytes())
        previous = hashlib.sha256(payloads[-1]).digest()
        hashes.append(previous)
    return payloads, hashes


def _read_or_refuse(data: bytes, task: Task) -> Report | RejectedError:
    try:
        return Report.read(data, task)
    except RejectedError as refusal:
        return refusal
