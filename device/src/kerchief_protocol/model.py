"""The billboard: a public model, in numbers that every device reads alike."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kerchief_protocol.canonical import pack, read_as, write
from kerchief_protocol.errors import CodecError

# How many bytes a number of each type has.
_TYPES = {"<f4": 4, "<f8": 8, "<i4": 4, "<i8": 8, "|b1": 1}
_MAX_BYTES = 2**28
# NumPy's own limit was 32 for long.
_MAX_AXES = 32
# The canonical form has no larger whole numbers; the library counts users in 32 bits.
_MAX_COUNT, _MAX_USERS = 2**53 - 1, 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """An array on the wire.

    Attributes:
        dtype: its type in NumPy's words, little-endian.
        shape: its shape.
        data: its bytes.
    """

    dtype: str
    shape: tuple[int, ...]
    data: bytes

    def __post_init__(self) -> None:
        """Check what a stranger may have sent."""
        if self.dtype not in _TYPES:
            raise CodecError(f"an array is of {self.dtype[:20]!r}; known are {', '.join(_TYPES)}")
        if len(self.shape) > _MAX_AXES:
            raise CodecError(f"an array has {len(self.shape)} axes; the most is {_MAX_AXES}")
        # Each is small before they are multiplied: no product has more digits than the text.
        if not all(0 <= length <= _MAX_BYTES for length in self.shape):
            raise CodecError(f"an array's axis is below 0 or longer than {_MAX_BYTES}")
        number_bytes = _TYPES[self.dtype]
        size, room = (
            number_bytes * math.prod(self.shape),
            number_bytes * math.prod(axis or 1 for axis in self.shape),
        )
        if size != len(self.data) or room > _MAX_BYTES:
            raise CodecError(
                f"an array of shape {f'{self.shape}':.40} has {len(self.data)} bytes; it must have "
                f"as many as its shape says, and at most {_MAX_BYTES}"
            )

    @classmethod
    def of(cls, array: NDArray[np.generic]) -> Numbers:
        """Convert an array to its form on the wire."""
        little = np.ascontiguousarray(array, np.asarray(array).dtype.newbyteorder("<"))
        return cls(dtype=little.dtype.str, shape=np.shape(array), data=little.tobytes())

    @property
    def array(self) -> NDArray[np.generic]:
        """Content as a read-only array."""
        return np.frombuffer(self.data, self.dtype).reshape(self.shape)


@dataclass(frozen=True, kw_only=True)
class Model:
    """Public model that the learner posts.

    Attributes:
        task: whose model it is.
        version: how many were posted before.
        release: how many releases it has taken in.
        round: how many users these speak about.
        length: of the chain that the learner last saw.
        head: of that chain; a device that saw a longer one in a signed model refuses this one.
        arrays: the numbers of the model, by name.
    """

    task: bytes
    version: int
    release: int
    round: int
    length: int
    head: bytes
    arrays: Mapping[str, Numbers]

    def __post_init__(self) -> None:
        """Check the counts, which others may have written."""
        for name in ("version", "release", "round"):
            count, limit = getattr(self, name), _MAX_USERS if name == "round" else _MAX_COUNT
            if type(count) is not int or not 0 <= count <= limit:
                raise CodecError(f"a model's {name} must be a whole number from 0 to {limit}")
        if type(self.length) is not int or type(self.task) is not bytes:
            raise CodecError("a model's length must be a whole number, and its task bytes")
        if type(self.head) is not bytes or len(self.head) != 32:
            raise CodecError("a model's head must be the 32 bytes of a hash")
        if not isinstance(self.arrays, Mapping):
            raise CodecError("a model's arrays must be a mapping from names to arrays")

    def write(self) -> bytes:
        """Write the model as canonical bytes."""
        return write(pack(self))

    @classmethod
    def read(cls, data: bytes) -> Model:
        """Read bytes that `write` returned.

        Raises:
            CodecError: it is something else.
        """
        return read_as(cls, data)

    def __getitem__(self, name: str) -> NDArray[np.generic]:
        """Return one of the model's arrays."""
        return self.arrays[name].array


@dataclass(frozen=True, kw_only=True)
class Question:
    """Question to one user; the answer is a report with the question's id.

    Attributes:
        task: whose question it is.
        id: 16 random bytes.
        action: what is proposed: an arm, or points, one per row.
    """

    task: bytes
    id: bytes
    action: Numbers

    def write(self) -> bytes:
        """Write the question as canonical bytes."""
        return write(pack(self))

    @classmethod
    def read(cls, data: bytes) -> Question:
        """Read bytes that `write` returned.

        Raises:
            CodecError: it is something else.
        """
        return read_as(cls, data)


@dataclass(frozen=True, kw_only=True)
class Status:
    """State of a task that a device needs before it reports.

    Attributes:
        task: whose status it is.
        state: running, or closed.
        epoch: what a report must say.
        label: what a report should say; a device follows it where status and model are signed, or
            where every label brings the same noise (`crediting.md`, Theorem 2a).
    """

    task: bytes
    state: str
    epoch: int
    label: int

    def __post_init__(self) -> None:
        """Check that both fit into the header of a report."""
        for name, limit in (("epoch", 2**32 - 1), ("label", 2**16 - 1)):
            number = getattr(self, name)
            if type(number) is not int or not 0 <= number <= limit:
                raise CodecError(f"a status's {name} must be a whole number from 0 to {limit}")
        if type(self.state) is not str or type(self.task) is not bytes:
            raise CodecError("a status's state must be a text, and its task bytes")

    def write(self) -> bytes:
        """Write the status as canonical bytes."""
        return write(pack(self))

    @classmethod
    def read(cls, data: bytes) -> Status:
        """Read bytes that `write` returned.

        Raises:
            CodecError: it is something else.
        """
        return read_as(cls, data)
