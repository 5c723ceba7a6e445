"""The files that a command writes into a folder once, and replaces only where it is told to."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from kerchief.comparison.run_folder import Folder, Stamp
from kerchief.core.errors import InvalidValueError, WriteError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Place:
    """Where the files of one command go; make it with `Place.at`, before anything is played.

    Attributes:
        folder: that of the files.
        names: the files by their words.
        what: the word for all of them together.
        before: tells whether somebody writes them meanwhile.
    """

    folder: Folder
    names: Mapping[str, str]
    what: str
    before: tuple[Stamp | None, ...]

    @classmethod
    def at(
        cls, path: Path | None, names: Mapping[str, str], *, what: str, force: bool
    ) -> Place | None:
        """Where nothing stands under these names, unless it may be replaced; None without a path.

        >>> Place.at(None, {"picture": "audit.png"}, what="audit", force=True)
        Traceback (most recent call last):
        ...
        kerchief_protocol.errors.InvalidValueError: force is given without a folder; give --out \
FOLDER too, or leave --force out
        """
        if path is None:
            if force:
                raise InvalidValueError(
                    "force is given without a folder; give --out FOLDER too, or leave --force out"
                )
            return None
        folder = Folder.at(path)
        existing = [name for name in names.values() if folder.check(name).exists()]
        if existing and not force:
            raise InvalidValueError(
                f"{str(path)!r} holds an earlier {what} ({', '.join(existing)}); choose another "
                "--out, or replace it with --force"
            )
        return cls(folder=folder, names=names, what=what, before=_stamps(folder, names))

    def write(self, contents: Mapping[str, bytes]) -> dict[str, Path]:
        """Write the files, by their words, unless somebody else has come first.

        Of an earlier time nothing stays beside them.

        Raises:
            WriteError: somebody has, or the disk is full.
        """
        with self.folder.alone():
            if _stamps(self.folder, self.names) != self.before:
                raise WriteError(
                    f"another {self.what} was written to {str(self.folder.path)!r} meanwhile, and "
                    f"is left as it is; {self.what} again with another --out"
                )
            for name in self.names.keys() - contents.keys():
                self.folder.remove(self.names[name])
            return {
                name: self.folder.write(self.names[name], content)
                for name, content in contents.items()
            }


def _stamps(folder: Folder, names: Mapping[str, str]) -> tuple[Stamp | None, ...]:
    return tuple(folder.stamp(name) for name in names.values())
