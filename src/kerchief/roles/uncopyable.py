"""What holds raw data of users is in no copy and in no pickle."""

from __future__ import annotations

from typing import NoReturn, SupportsIndex

from kerchief.core.errors import InvalidValue

__all__ = ["Guarded"]


class Guarded:
    """Something that holds what users said, or noise: it cannot be copied or pickled.

    A copy would be a second place to lose it from, and could release the same sums again with
    noise that nobody paid for. What may survive a restart is written by the object itself, where
    anything may.

    >>> import copy
    >>> copy.deepcopy(Guarded())
    Traceback (most recent call last):
    ...
    kerchief.core.errors.InvalidValue: a Guarded holds what users said, and is neither copied nor \
pickled; keep the object, or begin anew from what it saved
    """

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        """Refuse.

        Raises:
            InvalidValue: always.
        """
        raise InvalidValue(
            f"a {type(self).__name__} holds what users said, and is neither copied nor pickled; "
            "keep the object, or begin anew from what it saved"
        )
