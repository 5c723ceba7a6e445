"""A public random projection: many features become fewer before anything else is done with them.

Every coordinate is added to one of `onto` sums, with a sign. Which and with which is read off
SHA-256, so every language gets the same map. Coordinates are spread evenly over the sums: rows of
the map are orthogonal, and inner products are kept on average over seeds.
"""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kerchief_protocol.errors import InvalidValueError

_TAG = b"kerchief/1 projection\0"
_MAX_DIM = 2**16


@dataclass(frozen=True, kw_only=True)
class Projection:
    """A map from features of `dim` numbers to `onto` numbers within the same norm.

    Attributes:
        dim: how many numbers come in.
        onto: how many go out, fewer than come in.
        norm: bound on the norm of features, before and after.
        seed: public; another one gives another map.
        constant: whether the last number is the same for all, and is passed on as it is.

    >>> halved = Projection(dim=4, onto=2, norm=1.0)
    >>> halved.apply(np.array([[0.5, 0.0, 0.0, 0.5]])).shape
    (1, 2)
    """

    dim: int
    onto: int
    norm: float
    seed: int = 0
    constant: bool = False

    def __post_init__(self) -> None:
        """Check every number: others may have written them."""
        if type(self.constant) is not bool:
            raise InvalidValueError(f"constant is {self.constant!r:.40}; it must be true or false")
        are_integers = all(type(number) is int for number in (self.dim, self.onto, self.seed))
        if not are_integers or not 1 + self.constant <= self.onto < self.dim <= _MAX_DIM:
            raise InvalidValueError(
                f"{self.dim!r:.40} features are projected onto {self.onto!r:.40} numbers; these "
                f"must be at least {1 + self.constant} and fewer than the features, of which "
                f"there may be {_MAX_DIM}"
            )
        if not 0 <= self.seed < 2**53:
            raise InvalidValueError(f"seed is {self.seed}; it must be at least 0 and below 2**53")
        if type(self.norm) not in (int, float) or not 1e-100 <= self.norm <= 1e100:
            raise InvalidValueError(f"norm is {self.norm!r:.40}; it must be from 1e-100 to 1e100")

    def apply(self, features: Any, library: Any = np) -> Any:
        """Map features, and scale those that are too long into the ball.

        Args:
            features: one vector, or one in each row.
            library: NumPy or `jax.numpy`, whichever has made them.

        Raises:
            InvalidValueError: they have another length.
        """
        mapped, length, room = self._map(features, library)
        long = length > room
        scale = library.where(long, room, 1) / library.where(long, length, 1)
        return library.concatenate([mapped * scale, features[..., self._varying :]], axis=-1)

    def clips(self, features: Any, library: Any = np) -> Any:
        """Return which vectors are too long after the map, and are scaled."""
        _, length, room = self._map(features, library)
        return (length > room)[..., 0]

    def _map(self, features: Any, library: Any) -> tuple[Any, Any, Any]:
        """Return mapped features, their length, and the length that the constant allows."""
        if features.shape[-1] != self.dim:
            raise InvalidValueError(
                f"there are {features.shape[-1]} features; the projection takes {self.dim}"
            )
        mapped: Any = 0
        if library is np:
            # From left to right in each sum: the same rounding on every device.
            for places, signs in self._layers:
                mapped = mapped + features[..., places] * signs
        else:
            matrix = library.asarray(self.matrix, features.dtype)
            mapped = features[..., : self._varying] @ matrix
        rest = features[..., self._varying :]
        room = library.maximum(self.norm**2 - (rest * rest).sum(-1, keepdims=True), 0)
        return mapped, library.sqrt((mapped * mapped).sum(-1, keepdims=True)), library.sqrt(room)

    @functools.cached_property
    def matrix(self) -> NDArray[np.int8]:
        """Matrix of the map: a row for each varying number, a column for each sum."""
        matrix = np.zeros((self._varying, self.onto - self.constant), np.int8)
        for places, signs in self._layers:
            matrix[places, np.arange(len(places))] += signs
        return matrix

    @property
    def _varying(self) -> int:
        """How many numbers are mapped."""
        return self.dim - self.constant

    @functools.cached_property
    def _layers(self) -> list[tuple[NDArray[np.int64], NDArray[np.int8]]]:
        """The first coordinate of every sum with its sign, then the second, and so on.

        The last layer may be short: then it adds the first coordinate with the sign 0.
        """
        width = self.onto - self.constant
        hashes = [self._hash_coordinate(place) for place in range(self._varying)]
        order = sorted(range(self._varying), key=hashes.__getitem__)
        sums = [sorted(order[first::width]) for first in range(width)]
        depth = max(map(len, sums))
        places = np.array([members + [0] * (depth - len(members)) for members in sums], np.int64).T
        signs = np.array(
            [
                [1 - 2 * (hashes[coordinate][-1] & 1) for coordinate in members]
                + [0] * (depth - len(members))
                for members in sums
            ],
            np.int8,
        ).T
        return list(zip(places, signs, strict=True))

    def _hash_coordinate(self, place: int) -> bytes:
        """Hash a coordinate: the order of hashes gives its sum, the last bit its sign."""
        numbers = (self.seed, self.dim, self.onto, place)
        return hashlib.sha256(_TAG + b"".join(n.to_bytes(8, "little") for n in numbers)).digest()
