"""A folder of results: known to be writable before anything runs, and never holding half a file."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

from kerchief.core.errors import InvalidValue, WriteFailed

Stamp: TypeAlias = tuple[int, int, int]
"""What tells one version of a file from another, without reading it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Folder:
    """Where results go; make it with `Folder.at`."""

    path: Path

    @classmethod
    def at(cls, path: Path) -> Folder:
        """Create the folder where it is missing and prove that it takes a file.

        >>> Folder.at(Path("/dev/null/results"))
        Traceback (most recent call last):
        ...
        kerchief_wire.errors.InvalidValue: out is '/dev/null/results'; it cannot be written \
(Not a directory); choose another folder
        """
        try:
            path.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=path) as probe:
                probe.write(b"kerchief")
        except (OSError, ValueError) as problem:
            reason = problem.strerror if isinstance(problem, OSError) else "not a path"
            raise InvalidValue(
                f"out is {str(path)!r}; it cannot be written ({reason}); choose another folder"
            ) from problem
        return cls(path=path)

    def inside(self, prefix: str) -> Folder:
        """A fresh folder in this one, under a name that nobody can have put there before."""
        with self._told():
            return Folder(path=Path(tempfile.mkdtemp(prefix=prefix, dir=self.path)))

    def check(self, name: str) -> Path:
        """The path of a file, where neither a link nor a folder may be."""
        path = self._unlinked(name)
        if path.is_dir():
            raise InvalidValue(
                f"{str(path)!r} is a folder, and a file would stand there; remove it, or choose "
                "another one"
            )
        return path

    def _unlinked(self, name: str) -> Path:
        """A path that must not be a link: what it leads to is not ours to replace."""
        path = self.path / name
        if path.is_symlink():
            raise InvalidValue(
                f"{str(path)!r} is a link, and results are not written through links; remove it, "
                "or choose another folder"
            )
        return path

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Whoever else wants to be alone here waits: what is seen is so until it is written.

        On a disk without locks nobody waits.
        """
        with self._told():
            handle = os.open(self.path, os.O_RDONLY)
        try:
            with contextlib.suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def stamp(self, name: str) -> Stamp | None:
        """Changes when a file is written anew, whoever does it; None where there is none."""
        try:
            found = (self.path / name).stat()
        except OSError:
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns

    def write(self, name: str, content: bytes) -> Path:
        """Write a file beside its place, then move it there: readers see the old one or the new.

        Raises:
            InvalidValue: there is a link or a folder of that name.
            WriteFailed: the disk is full, or takes no file any more; the old one is as it was.
        """
        target = self.check(name)
        with self._draft(name, content) as draft:
            draft.replace(target)
            _sync(self.path)
        return target

    def claim(self, name: str, content: bytes) -> bool:
        """Write a file unless there is one, however many try it at once; whether it is ours.

        Raises:
            InvalidValue: there is a link or a folder of that name.
            WriteFailed: as for `write`.
        """
        target = self.check(name)
        with self._draft(name, content) as draft:
            try:
                os.link(draft, target)
            except FileExistsError:
                return False
            except OSError:  # a disk without hard links, where whoever comes last has it
                draft.replace(target)
            _sync(self.path)
        return True

    @contextlib.contextmanager
    def _draft(self, name: str, content: bytes) -> Iterator[Path]:
        """What is written, beside its place, until it was moved there or is not wanted."""
        draft = self.path / f".{secrets.token_hex(8)}-{name}"
        with self._told():
            try:
                # Made new: a file or a link that waits under this name is an error.
                os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
                draft.write_bytes(content)
                _sync(draft)
                yield draft
            finally:
                draft.unlink(missing_ok=True)

    def discard(self) -> None:
        """Remove the folder with all that is in it."""
        with self._told():
            shutil.rmtree(self.path)

    def take(self, other: Folder, name: str) -> Path:
        """Move a file here from another folder on the same disk."""
        target = self.check(name)
        with self._told():
            (other.path / name).replace(target)
        return target

    def remove(self, name: str) -> None:
        """Remove a file of an earlier run, if there is one."""
        with self._told():
            (self.path / name).unlink(missing_ok=True)

    def inner(self, name: str) -> Folder:
        """A folder inside this one, which must not be a link."""
        return Folder.at(self._unlinked(name))

    def check_inner(self, name: str) -> None:
        """Refuse a link where a folder inside this one is, or will be."""
        self._unlinked(name)

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """Turn what the system says into one line with a remedy."""
        try:
            yield
        except OSError as problem:
            raise WriteFailed(
                f"results cannot be written to {str(self.path)!r} ({problem.strerror or problem}); "
                "what was written before is still there; make room, or choose another folder"
            ) from problem


def _sync(path: Path) -> None:
    """Let the disk have what was written, before anything else is done."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
