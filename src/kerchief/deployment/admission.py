"""Who may report: how many reports a client may send, decided before anything is stored.

A client is what the operator's own login or token established; kerchief identifies nobody.
The aggregator counts a client's reports in the transaction that takes them. The store names each
client by a keyed hash and never by its identifier. The key is random, of one task, and lies in the
same store. It keeps counts of two tasks apart, and hides identifiers from a reader of the counts
who lacks the key. A reader of the whole store can test a guess at an identifier. Counts and key are
deleted when the task closes. Counts outlive an epoch: a new epoch has new users.
"""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
from collections.abc import Sequence
from typing import Protocol, TypeAlias

from kerchief.core.validate import whole
from kerchief.stores.store import Transaction
from kerchief_protocol.errors import FencedError, InvalidValueError, RejectedError

Client: TypeAlias = bytes | str | None
"""Identifier of who sends a report, from the operator's login; None for an unknown client."""


class Admission(Protocol):
    """Decides how many reports a client may send."""

    def limit(self, client: bytes | None) -> int | None:
        """Return how many reports a client may send to one task, over all of its epochs.

        Args:
            client: identifier from the operator's login; None for an unknown client.

        Returns:
            0 for a client that is not admitted; None for any number.
        """

    def sentence(self) -> str:
        """Describe who is admitted, for the statement."""


@dataclasses.dataclass(frozen=True)
class AdmitEveryone:
    """Admits every client, known or not: one stranger may send every report of a task."""

    def limit(self, client: bytes | None) -> int | None:
        """Return None: any number of reports."""
        return None

    def sentence(self) -> str:
        """Describe what a stranger can do."""
        return (
            "Everyone is admitted, any number of times: one stranger can send every report that "
            "was paid for and, where users share a cohort, fill that of one user."
        )


@dataclasses.dataclass(frozen=True)
class LimitPerClient:
    """Admits clients that the operator's login established, with a limit for each.

    >>> LimitPerClient(reports=2).limit(b"someone"), LimitPerClient().limit(None)
    (2, 0)
    """

    reports: int = 1

    def __post_init__(self) -> None:
        """Check the number."""
        whole("reports", self.reports)

    def limit(self, client: bytes | None) -> int | None:
        """Return the same limit for every known client, and 0 for an unknown client."""
        return 0 if client is None else self.reports

    def sentence(self) -> str:
        """Describe the limit, and whom users must trust to enforce it."""
        times = "once" if self.reports == 1 else f"at most {self.reports} times"
        return (
            f"Each client that the operator's login established is admitted {times}: users must "
            "trust that login not to make up clients."
        )


class Places:
    """Places of clients: how many each may take, and takes in one transaction."""

    def __init__(
        self, transaction: Transaction, admission: Admission, clients: Sequence[bytes | None]
    ) -> None:
        """Look up how many places these clients have taken in earlier transactions."""
        self._transaction = transaction
        self._taken_counts: dict[bytes, int] = {}
        self._limits = {client: admission.limit(client) for client in set(clients)}
        limited = [client for client, limit in self._limits.items() if limit]
        self._names = _names(transaction, limited) if limited else {}
        self._earlier_counts = transaction.clients(self._names.values()) if limited else {}

    def refusal(self, client: bytes | None) -> RejectedError | None:
        """Return why a client may take no place; None if it may."""
        limit = self._limits[client]
        if limit is None:
            return None
        if limit <= 0:
            return RejectedError("client", "the client is not admitted to this task")
        if self.free(client, 1) <= 0:
            return RejectedError("spent", f"the client has used up its limit of {limit}")
        return None

    def free(self, client: bytes | None, count: int) -> int:
        """Return how many of ``count`` places a client may still take."""
        limit = self._limits[client]
        if limit is None:
            return count
        name = self._names[client]
        return min(
            count, limit - self._earlier_counts.get(name, 0) - self._taken_counts.get(name, 0)
        )

    def take(self, client: bytes | None, count: int = 1) -> None:
        """Take places for a client."""
        name = self._names.get(client)
        if name is not None:
            self._taken_counts[name] = self._taken_counts.get(name, 0) + count

    def close(self) -> None:
        """Add the places that were taken to the counts in the store."""
        if self._taken_counts:
            self._transaction.count_clients(self._taken_counts)


def describe_honest_part(honest: tuple[int, int]) -> str:
    """Describe what shuffle trust assumes about users, of whom a part must be honest.

    >>> print(describe_honest_part((4, 5)))
    It assumes that at least 4 in 5 users of every cohort are honest, and that a party whom users \
have reason to believe admitted them.
    """
    part, users = honest
    share = "all" if part == users else f"at least {part} in {users}"
    return (
        f"It assumes that {share} users of every cohort are honest, and that a party whom users "
        "have reason to believe admitted them."
    )


def read_clients(clients: Sequence[Client] | None, count: int) -> list[bytes | None]:
    """Read the identifiers of clients, one for each of ``count`` reports, as bytes.

    Raises:
        InvalidValueError: there are more or fewer, or an identifier is neither bytes nor a text.
    """
    if clients is None:
        return [None] * count
    is_list = isinstance(clients, Sequence) and not isinstance(clients, str | bytes)
    if not is_list or len(clients) != count:
        raise InvalidValueError(f"clients are not {count} identifiers; give one for each report")
    return [read_client(client) for client in clients]


def read_client(client: Client) -> bytes | None:
    """Read a client's identifier as bytes; an empty identifier is an unknown client.

    Raises:
        InvalidValueError: the identifier is neither bytes nor a text.
    """
    if isinstance(client, str):
        client = client.encode("utf-8", "surrogatepass")
    if not isinstance(client, bytes | None):
        raise InvalidValueError(
            "a client is neither bytes nor a text; give its identifier, or None"
        )
    return client or None


def _names(transaction: Transaction, clients: Sequence[bytes | None]) -> dict[bytes | None, bytes]:
    """Compute the names of clients in the store; all unknown clients share a name."""
    key = transaction.client_key()
    if key is None:
        raise FencedError("the store lacks the key under which it names clients; it was changed")
    return {client: hmac.digest(key, client or b"", hashlib.sha256) for client in clients}
