"""A folder of results: known to be writable before anything runs, and never holding half a file."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path

from kerchief.core.errors import InvalidValue

__all__ = ["Folder"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Folder:
    """Where results go; make it with `Folder.at`."""

    path: Path

    @classmethod
    def at(cls, path: Path) -> Folder:
        """Create the folder where it is missing and prove that it takes a file.

        Raises:
            InvalidValue: it cannot be created or written.

        >>> Folder.at(Path("/dev/null/results"))
        Traceback (most recent call last):
        ...
        kerchief.core.errors.InvalidValue: out is '/dev/null/results'; it cannot be written \
(Not a directory); choose another folder
        """
        try:
            path.mkdir(parents=True, exist_ok=True)
            probe = path / f".probe-{os.getpid()}"
            probe.write_bytes(b"kerchief")
            probe.unlink()
        except (OSError, ValueError) as problem:
            reason = problem.strerror if isinstance(problem, OSError) else "not a path"
            raise InvalidValue(
                f"out is {str(path)!r}; it cannot be written ({reason}); choose another folder"
            ) from problem
        return cls(path=path)

    def write(self, name: str, fill: Callable[[Path], None]) -> Path:
        """Write a file beside its place, then move it there: readers see the old one or the new.

        Args:
            name: the file's name.
            fill: writes the content to the path that it is given.
        """
        target = self.path / name
        draft = target.with_name(f".{os.getpid()}-{name}")
        try:
            fill(draft)
            draft.replace(target)
        finally:
            draft.unlink(missing_ok=True)
        return target

    def remove(self, name: str) -> None:
        """Remove a file of an earlier run, if there is one."""
        (self.path / name).unlink(missing_ok=True)
