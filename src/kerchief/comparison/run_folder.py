"""Folder of results that is writable from the start and holds no partial file."""

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

from kerchief.core.errors import InvalidValueError, WriteError

Stamp: TypeAlias = tuple[int, int, int]
"""What tells one version of a file from another, without reading it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Folder:
    """Folder for results; make it with `Folder.at`."""

    path: Path

    @classmethod
    def at(cls, path: Path) -> Folder:
        """Create the folder where it is missing and prove that it takes a file.

        >>> Folder.at(Path("/dev/null/results"))
        Traceback (most recent call last):
        ...
        kerchief_protocol.errors.InvalidValueError: out is '/dev/null/results'; it cannot be \
written (Not a directory); choose another folder
        """
        try:
            path.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=path) as probe:
                probe.write(b"kerchief")
        except (OSError, ValueError) as problem:
            reason = problem.strerror if isinstance(problem, OSError) else "not a path"
            raise InvalidValueError(
                f"out is {str(path)!r}; it cannot be written ({reason}); choose another folder"
            ) from problem
        return cls(path=path)

    def inside(self, prefix: str) -> Folder:
        """Create a fresh folder in this one, under an unpredictable name."""
        with self._report_errors():
            return Folder(path=Path(tempfile.mkdtemp(prefix=prefix, dir=self.path)))

    def check(self, name: str) -> Path:
        """Return the path of a file; refuse a link or a folder in its place."""
        path = self._refuse_link(name)
        if path.is_dir():
            raise InvalidValueError(
                f"{str(path)!r} is a folder, and a file would stand there; remove it, or choose "
                "another one"
            )
        return path

    def _refuse_link(self, name: str) -> Path:
        """Return the path of a name, and refuse a link in its place."""
        path = self.path / name
        if path.is_symlink():
            raise InvalidValueError(
                f"{str(path)!r} is a link, and results are not written through links; remove it, "
                "or choose another folder"
            )
        return path

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Lock the folder until the block ends; others wait.

        What the block reads stays true until it writes. On a disk without locks nobody waits.
        """
        with self._report_errors():
            handle = os.open(self.path, os.O_RDONLY)
        try:
            with contextlib.suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def stamp(self, name: str) -> Stamp | None:
        """Return a stamp that changes with each write of a file; None without a file."""
        try:
            status = (self.path / name).stat()
        except OSError:
            return None
        return status.st_ino, status.st_size, status.st_mtime_ns

    def write(self, name: str, content: bytes) -> Path:
        """Write a file atomically: readers see the old content or the new.

        Raises:
            InvalidValueError: there is a link or a folder of that name.
            WriteError: the disk is full, or takes no file any more; the old one is as it was.
        """
        target = self.check(name)
        with self._write_draft(name, content) as draft:
            draft.replace(target)
            _sync(self.path)
        return target

    def claim(self, name: str, content: bytes) -> bool:
        """Write a file unless it exists, and return whether this call wrote it.

        Several processes may try at once.

        Raises:
            InvalidValueError: there is a link or a folder of that name.
            WriteError: as for `write`.
        """
        target = self.check(name)
        with self._write_draft(name, content) as draft:
            try:
                os.link(draft, target)
            except FileExistsError:
                return False
            except OSError:  # a disk without hard links, where whoever comes last has it
                draft.replace(target)
            _sync(self.path)
        return True

    @contextlib.contextmanager
    def _write_draft(self, name: str, content: bytes) -> Iterator[Path]:
        """Write content to a draft beside its place, removed when the block ends."""
        draft = self.path / f".{secrets.token_hex(8)}-{name}"
        with self._report_errors():
            try:
                # Made new: a file or a link that waits under this name is an error.
                os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
                draft.write_bytes(content)
                _sync(draft)
                yield draft
            finally:
                draft.unlink(missing_ok=True)

    def discard(self) -> None:
        """Remove the folder with its contents."""
        with self._report_errors():
            shutil.rmtree(self.path)

    def take(self, other: Folder, name: str) -> Path:
        """Move a file here from another folder on the same disk."""
        target = self.check(name)
        with self._report_errors():
            (other.path / name).replace(target)
        return target

    def remove(self, name: str) -> None:
        """Remove a file of an earlier run, if there is one."""
        with self._report_errors():
            (self.path / name).unlink(missing_ok=True)

    def inner(self, name: str) -> Folder:
        """Create or open a folder inside this one, which must not be a link."""
        return Folder.at(self._refuse_link(name))

    def check_inner(self, name: str) -> None:
        """Refuse a link where a folder inside this one is, or will be."""
        self._refuse_link(name)

    @contextlib.contextmanager
    def _report_errors(self) -> Iterator[None]:
        """Turn an error of the system into one line with a remedy."""
        try:
            yield
        except OSError as problem:
            raise WriteError(
                f"results cannot be written to {str(self.path)!r} ({problem.strerror or problem}); "
                "what was written before is still there; make room, or choose another folder"
            ) from problem


def _sync(path: Path) -> None:
    """Flush a file or folder to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
