"""A chain checked from its file alone, by someone who trusts none of the roles."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
from collections.abc import Sequence
from pathlib import Path

from kerchief.core.errors import FencedError, InvalidValueError
from kerchief.deployment.audit_log import AuditLog, Draw
from kerchief.deployment.deployment import read_deployment
from kerchief.policies import AnyPolicy
from kerchief.privacy.review import Review
from kerchief.stores import open_store
from kerchief_protocol.chain import Line, read_chain


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verification:
    """A chain that is whole, pays for what it draws, and keeps its promise or does not.

    Attributes:
        audit_log: what it says.
        review: what the worst-off user was charged, by two accountants.
    """

    audit_log: AuditLog
    review: Review


def verify(
    lines: Sequence[Line],
    *,
    policy: AnyPolicy | None = None,
    visits: int = 1,
    head: str | None = None,
) -> Verification:
    """Recompute everything that a chain claims.

    Args:
        lines: the chain.
        policy: the bandit, where it is not a registered one.
        visits: how often each user came.
        head: the last hash that was kept elsewhere; the chain must contain it.

    Raises:
        FencedError: a line is missing or changed, noise was not paid for, or the head is not there.
    """
    audit_log = AuditLog.of(lines)
    audit_log.check(read_deployment(audit_log.task, policy=policy))
    if head is not None and head not in {line.hash.hex() for line in lines}:
        raise FencedError(f"the chain does not contain the head {head[:16]}...; it lost a line")
    return Verification(audit_log=audit_log, review=audit_log.review(visits))


def load_chain(place: str) -> tuple[tuple[Line, ...], tuple[bytes, ...] | None]:
    """Read the chain of the one task at a place, and its releases if they are there.

    Args:
        place: a folder of a `Bandit`, a store (a file or a URL), or an exported chain.

    Raises:
        InvalidValueError: there is no chain.
    """
    path = Path(place)
    if path.is_file() and not path.read_bytes()[:16].startswith(b"SQLite format 3"):
        return read_chain(path.read_bytes()), None
    is_present = "://" in place or path.exists()
    if not is_present:
        raise InvalidValueError(f"{place} is not there; give a bandit's folder, a store or a chain")
    store = open_store(str(path / "aggregator.db") if path.is_dir() else place)
    try:
        tasks = store.tasks()
        if len(tasks) != 1:
            raise InvalidValueError(
                f"{place} holds {len(tasks)} tasks; export the chain of one of them"
            )
        with store.read(tasks[0]) as reader:
            return tuple(reader.lines()), tuple(reader.releases(0, 2**31))
    finally:
        store.close()


def check_releases(audit_log: AuditLog, releases: Sequence[bytes]) -> None:
    """See that the releases are those that the chain says were drawn.

    Raises:
        FencedError: one of them is another one.
    """
    draws = bool(audit_log.task.needs) or audit_log.task.trust == "joint"
    if draws and len(releases) != len(audit_log.draw_lines):
        raise FencedError(
            f"there are {len(releases)} releases and {len(audit_log.draw_lines)} draws on the chain"
        )
    payloads = [
        releases[draw.release] if 0 <= draw.release < len(releases) else b""
        for draw in audit_log.draw_lines
    ]
    check_payloads(audit_log.draw_lines, payloads)


def check_payloads(draws: Sequence[Draw], payloads: Sequence[bytes]) -> None:
    """See that releases are those that draws name, one for each of them.

    Raises:
        FencedError: one of them is missing, or another one.
    """
    names = [hashlib.sha256(payload).digest() for payload in payloads]
    for draw, name in itertools.zip_longest(draws, names[: len(draws)]):
        if draw.payload != name:
            raise FencedError(f"release {draw.release} is not the one that was drawn")
