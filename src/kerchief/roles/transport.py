"""How messages travel between roles: as text, to an address, with a reply.

The roles know the `Transport` protocol alone. In one process a message is written and read back by
the codec and handed over; over HTTP the same text would be the body of a request to the address.
"""

from __future__ import annotations

from typing import Protocol

from kerchief.core.codec import decode, encode
from kerchief.core.errors import CodecError
from kerchief.core.registry import Registry
from kerchief.roles.messages import Message

__all__ = ["InProcess", "Role", "Transport"]


class Role(Protocol):
    """One that receives messages."""

    def handle(self, message: Message) -> Message:
        """Act on a message and reply; refuse a kind of message that this role does not take."""


class Transport(Protocol):
    """A way to reach the roles."""

    def send(self, to: str, message: Message) -> Message:
        """Deliver a message to the role at an address and return its reply."""


class InProcess:
    """All roles in one process; still, nothing passes but what the codec can write.

    Attributes:
        messages: how many messages were carried, replies included.
        bytes: how long their texts were, together.

    >>> from kerchief.roles.messages import Done
    >>> class Echo:
    ...     def handle(self, message: Message) -> Message:
    ...         return message
    >>> transport = InProcess()
    >>> transport.register("echo", Echo())
    >>> transport.send("echo", Done()), transport.messages
    (Done(), 2)
    """

    def __init__(self) -> None:
        """Begin with no roles."""
        self.messages = 0
        self.bytes = 0
        self._roles: Registry[Role] = Registry("role")

    def register(self, address: str, role: Role) -> None:
        """Give a role its address."""
        self._roles.add(address, role)

    def send(self, to: str, message: Message) -> Message:
        """Deliver a message and return the reply, both through the codec.

        Args:
            to: the address of a registered role.
            message: what to deliver.

        Returns:
            The role's reply.

        Raises:
            UnknownName: nobody has this address.
        """
        role = self._roles[to]
        return self._carried(role.handle(self._carried(message)))

    def _carried(self, message: Message) -> Message:
        text = encode(message)
        self.messages += 1
        self.bytes += len(text.encode())
        received = decode(text)
        if not isinstance(received, Message):
            raise CodecError(f"a {type(received).__name__} is not a message between roles")
        return received
