"""Who may report: how many reports a client may send, decided before anything is stored.

A client is whatever the operator's own login or token established; kerchief asks nobody for a name.
The aggregator counts a client's reports in the transaction that takes them. The store names each
client by a keyed hash and never by its identifier. The key is random, of one task, and lies in the
same store: it keeps counts of two tasks apart, and it hides identifiers from whoever sees the
counts without the key. Whoever has the whole store can test a guess at an identifier. Counts and
key are deleted when the task closes. Counts outlive an epoch: a new one has new users.
"""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
from collections import Counter
from collections.abc import Sequence
from typing import Protocol, TypeAlias

from kerchief.core.validate import whole
from kerchief.stores.store import Transaction
from kerchief_wire.errors import Fenced, InvalidValue, Refused

Client: TypeAlias = bytes | str | None
"""Who sends a report, as the operator's login established; None where nobody knows."""


class Admission(Protocol):
    """Decides how many reports a client may send."""

    def limit(self, client: bytes | None) -> int | None:
        """How many reports a client may send to one task, over all of its epochs.

        Args:
            client: who sends it, as the operator's login established; None if it did not.

        Returns:
            0 for a client that is not admitted; None for any number.
        """

    def sentence(self) -> str:
        """What the statement says about who is admitted."""


@dataclasses.dataclass(frozen=True)
class AdmitEveryone:
    """Asks nobody who they are: one stranger may send every report of a task."""

    def limit(self, client: bytes | None) -> int | None:
        """Any number."""
        return None

    def sentence(self) -> str:
        """Say what a stranger can do."""
        return (
            "Everyone is admitted, any number of times: one stranger can send every report that "
            "was paid for and, where users share a cohort, fill that of one user."
        )


@dataclasses.dataclass(frozen=True)
class LimitPerClient:
    """Admits the clients that the operator's login established, each for so many reports.

    >>> LimitPerClient(reports=2).limit(b"someone"), LimitPerClient().limit(None)
    (2, 0)
    """

    reports: int = 1

    def __post_init__(self) -> None:
        """Check the number."""
        whole("reports", self.reports)

    def limit(self, client: bytes | None) -> int | None:
        """As many for every client; none for an unknown one."""
        return 0 if client is None else self.reports

    def sentence(self) -> str:
        """Say what is limited, and by whom."""
        times = "once" if self.reports == 1 else f"at most {self.reports} times"
        return (
            f"Each client that the operator's login established is admitted {times}: users must "
            "trust that login not to make up clients."
        )


class Places:
    """Places that clients take in one transaction."""

    def __init__(
        self, at: Transaction, admission: Admission, clients: Sequence[bytes | None]
    ) -> None:
        """Look up how many places these clients took before."""
        self._at, self._taken = at, Counter[bytes]()
        self._limits = {client: admission.limit(client) for client in set(clients)}
        limited = [client for client, limit in self._limits.items() if limit]
        self._names = _names(at, limited) if limited else {}
        self._before = at.clients(self._names.values()) if limited else {}

    def refusal(self, client: bytes | None) -> Refused | None:
        """Why a client may take no place; None if it may."""
        limit = self._limits[client]
        if limit is not None and limit <= 0:
            return Refused("client", "the client is not admitted to this task")
        if self.left(client, 1) <= 0:
            return Refused("spent", f"the client has taken the {limit} places that it may take")
        return None

    def left(self, client: bytes | None, count: int) -> int:
        """How many of so many places a client may still take."""
        limit = self._limits[client]
        if limit is None:
            return count
        name = self._names[client]
        return min(count, limit - self._before.get(name, 0) - self._taken[name])

    def take(self, client: bytes | None, count: int = 1) -> None:
        """Take places for a client."""
        if client in self._names:
            self._taken[self._names[client]] += count

    def close(self) -> None:
        """Store what was taken."""
        if self._taken:
            self._at.count_clients(self._taken)


def assumed(honest: tuple[int, int]) -> str:
    """What shuffle trust assumes about users, of whom such a part must be honest.

    >>> print(assumed((4, 5)))
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
    """Identifiers of clients as bytes, one for each of so many reports.

    Raises:
        InvalidValue: there are more or fewer, or one is neither bytes nor a text.
    """
    if clients is None:
        return [None] * count
    is_list = isinstance(clients, Sequence) and not isinstance(clients, str | bytes)
    if not is_list or len(clients) != count:
        raise InvalidValue(f"clients are not {count} identifiers; give one for each report")
    return [read_client(client) for client in clients]


def read_client(client: Client) -> bytes | None:
    """The identifier of a client as bytes; an empty one is that of nobody.

    Raises:
        InvalidValue: it is neither bytes nor a text.
    """
    if isinstance(client, str):
        client = client.encode("utf-8", "surrogatepass")
    if not isinstance(client, bytes | None):
        raise InvalidValue("a client is neither bytes nor a text; give its identifier, or None")
    return client or None


def _names(at: Transaction, clients: Sequence[bytes | None]) -> dict[bytes | None, bytes]:
    """The names of clients in the store; all unknown ones have one name together."""
    key = at.client_key()
    if key is None:
        raise Fenced("the store has lost the key of its clients; it was changed")
    return {client: hmac.digest(key, client or b"", hashlib.sha256) for client in clients}
