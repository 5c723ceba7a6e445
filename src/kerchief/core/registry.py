"""Registries: algorithms are entered where they are defined, and found by name."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from kerchief.core.errors import UnknownNameError

T = TypeVar("T")

# An error names all that is known, or the nearest few where there is more than one line holds.
_MOST_NAMED = 24
_FEW_NAMES = 6


class Registry(Generic[T]):
    """Named entries of one kind.

    >>> colours: Registry[str] = Registry("colour")
    >>> colours.add("red", "#f00")
    '#f00'
    >>> colours["rad"]
    Traceback (most recent call last):
    ...
    kerchief.core.errors.UnknownNameError: no colour is called 'rad'; did you mean 'red'? Known: red
    """

    def __init__(self, kind: str, *, listed: tuple[str, ...] = ()) -> None:
        """Name the kind of thing that is registered, and the listings that show all of them."""
        self.kind, self._listings = kind, listed
        self._entries: dict[str, T] = {}
        self._aliases: dict[str, tuple[str, ...]] = {}

    def add(self, name: str, entry: T) -> T:
        """Enter one thing under a name that is still free."""
        if name in self._entries or name in self._aliases:
            raise ValueError(
                f"two entries of kind {self.kind} are called {name!r}; give one another name"
            )
        self._entries[name] = entry
        return entry

    def entry(self, name: str) -> Callable[[T], T]:
        """Decorate a definition with its name."""
        return lambda entry: self.add(name, entry)

    def add_alias(self, word: str, *names: str) -> None:
        """Let a word stand for the first of these entries that fits; it is no entry of its own.

        >>> colours: Registry[str] = Registry("colour")
        >>> colours.add_alias("warm", "red", "gold")
        >>> colours.add("red", "#f00"), colours.add("gold", "#fd0"), colours["warm"]
        ('#f00', '#fd0', '#f00')
        >>> colours.resolve_alias("warm"), colours.resolve_alias("warm", lambda one: "d" in one)
        ('red', 'gold')
        """
        self._aliases[word] = names

    def resolve_alias(self, name: str, fits: Callable[[T], bool] = lambda entry: True) -> str:
        """The entry's own name, where a word for some may have been given: the first that fits."""
        names = self._aliases.get(name) if isinstance(name, str) else None
        if names is None:
            return name
        return next((candidate for candidate in names if fits(self._entries[candidate])), names[0])

    def __getitem__(self, name: str) -> T:
        """Find a thing, or say which names are near."""
        name = self.resolve_alias(name)
        if not isinstance(name, str):
            raise UnknownNameError(
                f"a {type(name).__name__} is no name of a {self.kind}; give a text"
            )
        if name not in self._entries:
            near = self._nearest(name)
            listing = self._list_names(near[1:_FEW_NAMES])
            hint = (
                f"did you mean {near[0]!r}? {listing}" if near else listing[0].lower() + listing[1:]
            )
            raise UnknownNameError(f"no {self.kind} is called {name[:80]!r}; {hint}")
        return self._entries[name]

    def _list_names(self, near: list[str]) -> str:
        """All names, or where there are many the next near ones and where all of them are."""
        if len(self) <= _MOST_NAMED or not self._listings:
            return f"Known: {', '.join(sorted((*self._aliases, *self._entries)))}"
        also = f"Also near: {', '.join(near)}. " if near else ""
        return (
            f"{also}All {len(self)}: "
            f"{', '.join(f'kerchief list {listing}' for listing in self._listings)}"
        )

    def _nearest(self, name: str) -> list[str]:
        """Names that are like it, the most like first: in other letters, cut short or misspelt."""
        every = (*self._aliases, *self._entries)
        bare_name, bare = (
            _bare(name),
            {_bare(candidate): candidate for candidate in reversed(every)},
        )
        extensions = [
            candidate
            for candidate in reversed(bare)
            if bare_name and candidate.startswith(bare_name)
        ]
        longer = sorted(
            (candidate for candidate in bare if candidate and bare_name.startswith(candidate)),
            key=len,
        )
        like = difflib.get_close_matches(bare_name, list(bare), n=_FEW_NAMES)
        near = [
            *([bare_name] if bare_name in bare else []),
            *like[:1],
            *extensions,
            *reversed(longer),
            *like,
        ]
        return [bare[candidate] for candidate in dict.fromkeys(near)]

    def __iter__(self) -> Iterator[str]:
        """Names, in the order of registration."""
        return iter(self._entries)

    def __len__(self) -> int:
        """How many entries there are."""
        return len(self._entries)

    def __repr__(self) -> str:
        """The kind and the names."""
        return f"Registry({self.kind}: {', '.join(self)})"

    def items(self) -> Iterator[tuple[str, T]]:
        """Names and entries."""
        return iter(self._entries.items())


def _bare(name: str) -> str:
    """A name without what people write differently: capitals, hyphens, underscores, spaces.

    >>> _bare(" Lin_UCB-Pairs ")
    'linucbpairs'
    """
    return "".join(letter for letter in name.casefold() if letter not in "-_ \t\n")
