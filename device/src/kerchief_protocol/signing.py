"""Signed messages: a status, a question or a model, with its time of issue and a signature.

The signature is Ed25519 over a context string, the time of issue as 8 bytes (little-endian) and the
message's canonical bytes. The context string differs for every kind of message, so a signature of
one kind is invalid for another kind. A message holds the id of its task.

The library `cryptography` is imported only here, and only when a message is signed or verified.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from kerchief_protocol.errors import CodecError, InvalidValueError, KerchiefError
from kerchief_protocol.model import Model, Question, Status
from kerchief_protocol.task import Task

Message = TypeVar("Message", Model, Question, Status)

_HEAD = struct.Struct("<4sQ64s")
_MAGIC, _SIGNATURE_BYTES = b"kcs1", 64
# Clocks of servers and devices may differ by this many seconds.
_TOLERANCE_S = 60


class _Kind(NamedTuple):
    """Who signs a kind of message, and under which context string."""

    role: str
    context: bytes


_KINDS: dict[type[Any], _Kind] = {
    Status: _Kind("aggregator", b"kerchief/1 status\0"),
    Question: _Kind("aggregator", b"kerchief/1 question\0"),
    Model: _Kind("learner", b"kerchief/1 model\0"),
}


@dataclass(frozen=True, kw_only=True)
class Signed:
    """A message with its time of issue and a signature.

    Attributes:
        issued: time of issue, in whole seconds since 1970.
        signature: 64 bytes.
        message: canonical bytes of the message.
    """

    issued: int
    signature: bytes = field(repr=False)
    message: bytes = field(repr=False)

    def __post_init__(self) -> None:
        """Check the time of issue and the size of the signature."""
        if not 0 <= self.issued < 2**64 or len(self.signature) != _SIGNATURE_BYTES:
            raise CodecError(
                f"the time of issue is {self.issued} and the signature has {len(self.signature)} "
                f"bytes; give seconds since 1970, and {_SIGNATURE_BYTES} bytes"
            )

    def write(self) -> bytes:
        """Encode the signed message as bytes."""
        return _HEAD.pack(_MAGIC, self.issued, self.signature) + self.message

    @classmethod
    def read(cls, data: bytes) -> Signed:
        """Decode bytes that `write` gave; `verify_message` checks the signature.

        Raises:
            CodecError: the bytes are not a signed message.
        """
        if not isinstance(data, bytes) or len(data) < _HEAD.size or data[:4] != _MAGIC:
            raise CodecError("the bytes are no signed message of this protocol")
        _, issued, signature = _HEAD.unpack_from(data)
        return cls(issued=issued, signature=signature, message=data[_HEAD.size :])


class Signer:
    """Signs the messages of one role of a task.

    >>> from kerchief import Guarantee, Learner, Problem, deploy
    >>> from kerchief_device import Device
    >>> from kerchief_protocol.parties import Party
    >>> private = bytes(range(32))  # of an example; draw your own with `new_key`
    >>> party = Party(role="learner", operator="Example Ltd", keys=(public_key(private),))
    >>> problem = Problem(dim=2, arms=3, norm=1.0, radius=1.0, low=0.0, high=1.0, horizon=100)
    >>> guarantee = Guarantee(epsilon=1.0, delta=1e-6, trust="local")
    >>> deployment = deploy(policy="linucb", problem=problem, guarantee=guarantee,
    ...                     parties=(party,), valid_s=3600)
    >>> device, model = Device(deployment.task), Learner(deployment).model
    >>> signer = Signer(deployment.task, private)
    >>> device.decide(signer.sign(model), [[1.0, 0.0], [0.6, 0.8]]).arm in (0, 1)
    True
    >>> device.decide(model, [[1.0, 0.0], [0.6, 0.8]])
    Traceback (most recent call last):
    ...
    kerchief_protocol.errors.InvalidValueError: the model has no signature, and the task names \
keys of the learner; pass a signed model
    """

    def __init__(
        self, task: Task, private_key: bytes, *, clock: Callable[[], float] = time.time
    ) -> None:
        """Find the role that a key stands for.

        Args:
            task: names the roles and their public keys.
            private_key: 32 bytes of an Ed25519 key.
            clock: seconds since 1970.

        Raises:
            InvalidValueError: the task does not name this key.
            KerchiefError: the library `cryptography` is missing.
        """
        public = public_key(private_key)
        roles = [party.role for party in task.parties if public in party.keys]
        if not roles:
            raise InvalidValueError(
                f"the public key {public.hex()[:16]}... is not in the task; deploy a task that "
                "names it in `parties`"
            )
        self.role, self._task = roles[0], task
        self._key, self._clock = _read_private(private_key), clock

    def sign(self, message: Model | Question | Status) -> Signed:
        """Sign a message with the present time.

        Raises:
            InvalidValueError: the message is of another task, or not one that this role sends, or
                the clock gives no time since 1970.
        """
        kind = _KINDS[type(message)]
        if message.task != self._task.id or kind.role != self.role:
            raise InvalidValueError(
                f"the {self.role}'s key of task {self._task.id.hex()[:16]} does not sign a "
                f"{_name(type(message))} of the {kind.role} of task {message.task.hex()[:16]}; "
                "sign with the key of that role"
            )
        now, data = self._clock(), message.write()
        if not 0 <= now < 2**53:
            raise InvalidValueError(f"the clock gives {now}; it must give seconds since 1970")
        issued = int(now)
        signature: bytes = self._key.sign(_signed_bytes(kind.context, issued, data))
        return Signed(issued=issued, signature=signature, message=data)


def verify_message(
    task: Task,
    kind: type[Message],
    message: Message | Signed,
    clock: Callable[[], float],
    previous: tuple[Signed, Message] | None = None,
) -> Message:
    """Check a message's task, and its signature where the task names keys.

    Args:
        task: names the public keys of each role.
        kind: of message that is expected.
        message: as it arrived.
        clock: seconds since 1970; read only where the message is signed.
        previous: the last signed message and its content: this signature is not checked again.

    Returns:
        The message.

    Raises:
        InvalidValueError: the message is of another kind or task, is not signed by a key of its
            role, or was issued too long ago or in the future.
        CodecError: the message is signed and does not decode.
        KerchiefError: the library `cryptography` is missing.

    >>> from kerchief_protocol.model import Status
    >>> Signed.read(Signed(issued=7, signature=bytes(64), message=b"{}").write()).issued
    7
    """
    role = _KINDS[kind].role
    keys = task.keys(role)
    if isinstance(message, Signed):
        if not keys:
            raise InvalidValueError(
                f"the {_name(kind)} is signed, and the task names no keys of the {role}; pass the "
                "message itself"
            )
        if previous is None or previous[0] is not message:
            previous = message, _open(task, kind, message)
        now = clock()
        if not now - task.valid_s <= message.issued <= now + _TOLERANCE_S:
            raise InvalidValueError(
                f"the {_name(kind)} was issued at {message.issued}, and it is {now:.0f}; it is "
                f"valid for {task.valid_s} seconds: fetch it again, and check the clock"
            )
        message = previous[1]
    elif keys:
        raise InvalidValueError(
            f"the {_name(kind)} has no signature, and the task names keys of the {role}; pass a "
            f"signed {_name(kind)}"
        )
    if not isinstance(message, kind):
        raise InvalidValueError(
            f"the {_name(kind)} is a {type(message).__name__:.40}; pass what "
            f"`{kind.__name__}.read` gives"
        )
    if message.task != task.id:
        raise InvalidValueError(
            f"the {_name(kind)} is of task {message.task.hex()[:16]}; this device takes part in "
            f"{task.id.hex()[:16]}: fetch that task's {_name(kind)}"
        )
    return message


def _open(task: Task, kind: type[Message], signed: Signed) -> Message:
    """Check a message's signature, then decode its content."""
    role, context = _KINDS[kind]
    data = _signed_bytes(context, signed.issued, signed.message)
    if not any(_is_valid(key, signed.signature, data) for key in task.keys(role)):
        raise InvalidValueError(
            f"the {_name(kind)} is not signed by a key of the task's {role}; fetch it again"
        )
    return kind.read(signed.message)


def new_key() -> bytes:
    """Draw a private key: 32 random bytes, to be kept secret.

    >>> len(public_key(new_key()))
    32
    """
    return os.urandom(32)


def public_key(private_key: bytes) -> bytes:
    """Compute the public key of a private key: 32 bytes, for `Party.keys`.

    Raises:
        InvalidValueError: the private key does not have 32 bytes.
        KerchiefError: the library `cryptography` is missing.
    """
    public: bytes = _read_private(private_key).public_key().public_bytes_raw()
    return public


def _signed_bytes(context: bytes, issued: int, message: bytes) -> bytes:
    return context + issued.to_bytes(8, "little") + message


def _is_valid(key: bytes, signature: bytes, data: bytes) -> bool:
    library = _library()
    try:
        library.Ed25519PublicKey.from_public_bytes(key).verify(signature, data)
    except (library.InvalidSignature, ValueError):
        return False
    return True


def _read_private(key: bytes) -> Any:
    if not isinstance(key, bytes) or len(key) != 32:
        raise InvalidValueError("the private key is not 32 bytes long; draw one with new_key()")
    return _library().Ed25519PrivateKey.from_private_bytes(key)


def _library() -> Any:
    """Import what signatures need from `cryptography`."""
    try:
        from cryptography import exceptions
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ModuleNotFoundError as fault:
        raise KerchiefError(
            "signatures need the library cryptography, which is not installed; run "
            "pip install 'kerchief-device[sign]'"
        ) from fault
    return _Library(
        ed25519.Ed25519PublicKey, ed25519.Ed25519PrivateKey, exceptions.InvalidSignature
    )


class _Library(NamedTuple):
    Ed25519PublicKey: Any
    Ed25519PrivateKey: Any
    InvalidSignature: type[Exception]


def _name(kind: type[Any]) -> str:
    return kind.__name__.lower()
