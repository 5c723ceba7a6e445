"""Random bytes that every language can make: SHA-256 of a seed and a counter, block by block."""

from __future__ import annotations

import hashlib

__all__ = ["Bytes"]


class Bytes:
    """A source that gives the same bytes to whoever knows the seed.

    Block number i is the SHA-256 of the seed and of i as 8 bytes, little-endian; the blocks one
    after another are the stream, and each call takes the next bytes of it.

    >>> source = Bytes("a")
    >>> source(2) + source(40) == Bytes("a")(42)
    True
    """

    def __init__(self, seed: str) -> None:
        self._seed, self._block, self._left = seed.encode(), 0, b""

    def __call__(self, count: int) -> bytes:
        parts, length = [self._left], len(self._left)
        while length < count:
            block = hashlib.sha256(self._seed + self._block.to_bytes(8, "little")).digest()
            parts.append(block)
            length += len(block)
            self._block += 1
        data = b"".join(parts)
        self._left = data[count:]
        return data[:count]
