"""Parties of a task: who plays which role, and the public keys that sign its messages."""

from __future__ import annotations

from dataclasses import dataclass

from kerchief_protocol.errors import InvalidValueError

SIGNING_ROLES = ("aggregator", "learner")
"""Roles whose messages may be signed."""
# Bytes of a public key, and the most keys of one party.
_KEY_BYTES, _MAX_KEYS = 32, 3
# Ed25519 (RFC 8032): the field's prime, and the heights y of the eight points of low order, under
# which anyone can sign.
_PRIME = 2**255 - 19
_OCTAVE = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7
_LOW_ORDER = (0, 1, _PRIME - 1, _OCTAVE, _PRIME - _OCTAVE)


@dataclass(frozen=True, kw_only=True)
class Party:
    """Who plays a role of a task, and the public keys that sign its messages.

    Attributes:
        role: aggregator or learner.
        operator: name of the person or organization that plays it, one printable line.
        keys: one to three Ed25519 public keys of 32 bytes; a signature by any of them is valid.
            A key of low order is refused, since it would let anyone sign.
    """

    role: str
    operator: str
    keys: tuple[bytes, ...]

    def __post_init__(self) -> None:
        """Check role, name and sizes."""
        if self.role not in SIGNING_ROLES:
            raise InvalidValueError(f"role is {self.role[:20]!r}; it must be aggregator or learner")
        if not (self.operator.isprintable() and 0 < len(self.operator) <= 200):
            raise InvalidValueError("operator is empty, long or not printable; give one short line")
        sizes = [len(key) for key in self.keys]
        if not 1 <= len(sizes) <= _MAX_KEYS or set(sizes) != {_KEY_BYTES}:
            raise InvalidValueError(
                f"the {self.role} has keys of {sizes[:4]} bytes; give 1 to {_MAX_KEYS} Ed25519 "
                f"public keys of {_KEY_BYTES} bytes"
            )
        heights = [int.from_bytes(key, "little") % 2**255 for key in self.keys]
        if any(height >= _PRIME or height in _LOW_ORDER for height in heights):
            raise InvalidValueError(
                f"a key of the {self.role} is of low order, so anyone could sign with it, or is no "
                "canonical Ed25519 key; give one of `public_key`"
            )
