"""The chain: charges and releases of a task, as hash-linked lines.

Each line holds the hash of the line before it. The last hash is the head: a chain with a line
added, dropped or changed has another head.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kerchief_protocol.canonical import pack, read, read_as, write
from kerchief_protocol.errors import CodecError, FencedError

_TAG = b"kerchief/1 chain\0"
ROOT = bytes(32)
"""What the first line follows."""

KINDS = ("open", "charge", "draw", "epoch", "settle", "end")
"""What lines may say: a task begins, pays, releases, begins anew, is billed, and ends."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of a chain.

    Attributes:
        number: its place, from 0.
        kind: a word of `KINDS`.
        prev: the hash of the line before.
        body: canonical JSON.
    """

    number: int
    kind: str
    prev: bytes
    body: bytes

    @functools.cached_property
    def hash(self) -> bytes:
        """Hash of this line, which the next line must hold."""
        return hashlib.sha256(_TAG + self.prev + self.kind.encode() + b"\0" + self.body).digest()

    @property
    def content(self) -> Any:
        """Body of the line as a tree."""
        return read(self.body)

    def after(self, number: int, head: bytes) -> tuple[int, bytes]:
        """Check this line's place, and return number and hash for the line after it.

        Args:
            number: that this one must have.
            head: the hash that it must hold.

        Raises:
            FencedError: it has others.
        """
        if self.number != number or self.prev != head:
            raise FencedError(
                f"line {self.number} does not follow the chain, which has {number} lines"
            )
        return number + 1, self.hash

    def next(self, kind: str, content: Any) -> Line:
        """Build the line that follows."""
        return Line(number=self.number + 1, kind=kind, prev=self.hash, body=write(content))


def check_chain(lines: Iterable[Line]) -> bytes:
    """Check every line of a chain, and return its head.

    Raises:
        FencedError: a line does not follow the one before.
    """
    head, number = ROOT, -1
    for number, line in enumerate(lines):
        if line.number != number or line.prev != head or line.kind not in KINDS:
            raise FencedError(f"line {number} of the chain does not follow the one before")
        read(line.body)
        head = line.hash
    if number < 0:
        raise FencedError("the chain is empty; it begins with the task")
    return head


def write_chain(lines: Iterable[Line]) -> bytes:
    """Write a chain as text, with one line of canonical JSON per line."""
    rows = (_Row(body=line.body.decode(), kind=line.kind, prev=line.prev) for line in lines)
    return b"".join(write(pack(row)) + b"\n" for row in rows)


def read_chain(data: bytes) -> tuple[Line, ...]:
    """Read a chain that `write_chain` wrote; `check_chain` checks whether it is complete.

    Raises:
        CodecError: it is no exported chain.
    """
    rows = [read_as(_Row, row) for row in data.split(b"\n")[:-1]]
    if data != b"".join(write(pack(row)) + b"\n" for row in rows):
        raise CodecError("the text is no exported chain; every line of it ends with a line break")
    return tuple(
        Line(number=number, kind=row.kind, prev=row.prev, body=row.body.encode())
        for number, row in enumerate(rows)
    )


@dataclass(frozen=True, kw_only=True)
class _Row:
    body: str
    kind: str
    prev: bytes
