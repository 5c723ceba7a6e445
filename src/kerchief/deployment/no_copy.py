"""Forbids copying and pickling objects that hold users' data."""

from __future__ import annotations

from typing import NoReturn, SupportsIndex

from kerchief.core.errors import InvalidValueError


class NoCopy:
    """Base of objects that hold users' data or noise: they cannot be copied or pickled.

    A copy is one more place from which data can leak, and it could release the same sums again with
    noise that nobody paid for. What may survive a restart, the object itself writes (`save`).

    >>> import copy
    >>> copy.deepcopy(NoCopy())
    Traceback (most recent call last):
    ...
    kerchief_protocol.errors.InvalidValueError: a NoCopy holds what users said, and is neither \
copied nor pickled; keep the object, or begin anew from what it saved
    """

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        """Refuse.

        Raises:
            InvalidValueError: always.
        """
        raise InvalidValueError(
            f"a {type(self).__name__} holds what users said, and is neither copied nor pickled; "
            "keep the object, or begin anew from what it saved"
        )
