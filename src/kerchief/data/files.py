"""CSV and Parquet files, read and written as a whole or not at all."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import secrets
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from kerchief.core.errors import InvalidValueError, KerchiefError, WriteError
from kerchief.core.installing import format_install_command

if TYPE_CHECKING:
    import polars as pl


def read_file(path: Path) -> tuple[dict[str, NDArray[Any]], str]:
    """Read the columns of a CSV, TSV or Parquet file, and its SHA-256 digest.

    Columns of texts stay texts: which of them are numbers is declared.
    """
    kind = path.suffixes[-1].lower() if path.suffixes else ""
    if kind not in (".csv", ".tsv", ".parquet"):
        raise InvalidValueError(
            f"data is {str(path)!r}; give a file that ends in .csv, .tsv, .parquet"
        )
    if importlib.util.find_spec("polars") is None:
        raise KerchiefError(
            f"files cannot be read without polars: run {format_install_command('report')}"
        )
    try:
        content = path.read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a path"
        raise InvalidValueError(f"data is {str(path)!r}; it cannot be read ({reason})") from error
    return columns_of(path, content), hashlib.sha256(content).hexdigest()


def columns_of(path: Path, content: bytes) -> dict[str, NDArray[Any]]:
    """Parse the content of a file of this name to columns."""
    kind = path.suffix.lower()
    frame = (
        _parse_parquet(path, content) if kind == ".parquet" else _parse_text(path, content, kind)
    )
    names = [name.strip() for name in frame.columns]
    check_names(path.name, names)
    return {
        name: series.to_numpy() for name, series in zip(names, frame.iter_columns(), strict=True)
    }


def write_file(path: Path | str, content: bytes) -> None:
    """Write a draft of a file, then move it to its path in one step.

    A file that is replaced keeps its rights, and the draft is never open to more people than it.

    Raises:
        WriteError: its folder is missing, or takes no file.
    """
    place = Path(path).resolve()
    draft = place.with_name(f".{secrets.token_hex(8)}-{place.name}")
    try:
        try:
            _write_draft(draft, place, content)
            draft.replace(place)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise WriteError(
            f"path is {str(path)!r}; it cannot be written ({error.strerror}); choose a folder that "
            "is there and takes files"
        ) from error


def _write_draft(draft: Path, place: Path, content: bytes) -> None:
    """Write a new file that has the rights of the old one before it has content."""
    old_status = place.stat() if place.exists() else None
    handle = os.open(
        draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if old_status is None else 0o600
    )
    with os.fdopen(handle, "wb") as file:
        if old_status is not None:
            draft.chmod(_rights(handle, old_status))
        file.write(content)


def _rights(handle: int, old_status: os.stat_result) -> int:
    """Mode of the old file, without group rights where the group cannot be kept."""
    mode = stat.S_IMODE(old_status.st_mode) & 0o777
    try:
        os.chown(handle, old_status.st_uid, old_status.st_gid)
    except PermissionError:
        return mode if os.fstat(handle).st_gid == old_status.st_gid else mode & ~0o070
    return mode


def _parse_parquet(path: Path, content: bytes) -> pl.DataFrame:
    import polars as pl

    try:
        return pl.read_parquet(content)
    # Polars panics where footers lie, and its panics are no exceptions of Python's.
    except BaseException as error:
        let_pass(error)
        raise InvalidValueError(
            f"{path.name} is no whole Parquet file; it may be cut off: write it anew"
        ) from None


def _parse_text(path: Path, content: bytes, kind: str) -> pl.DataFrame:
    """Parse a text file, with all columns as texts."""
    import polars as pl

    _check_ends(path, content)
    separator = "\t" if kind == ".tsv" else ","
    try:
        frame = pl.read_csv(content, infer_schema=False, separator=separator)
        header = pl.read_csv(
            content, infer_schema=False, separator=separator, has_header=False, n_rows=1
        ).row(0)
    except BaseException as error:
        let_pass(error)
        raise InvalidValueError(
            f"{path.name} cannot be read as {kind[1:].upper()}: it is empty or cut off, is not in "
            "UTF-8, or has a row longer than its heading"
        ) from None
    names = ["" if cell is None else str(cell).strip() for cell in header]
    check_names(path.name, names)
    if len(names) == frame.width:
        # Polars leaves quotes of a heading as they were written, twice each.
        frame.columns = names
    # The last word may be half of one, which would then be a label, or another number.
    if frame.height and not content.endswith((b"\n", b"\r")):
        raise InvalidValueError(
            f"{path.name} ends within row {frame.height}, as if it were cut off: write it anew, or "
            "end it with a new line if it is whole"
        )
    return frame


def _check_ends(path: Path, content: bytes) -> None:
    r"""Refuse lines that end in \r alone: all of them would be the heading."""
    heading = re.sub(rb'"[^"]*"', b"", content.partition(b"\n")[0])
    if b"\r" in heading.strip(b"\r"):
        raise InvalidValueError(
            f"{path.name} has lines that end in \\r alone, as on old Macs; write it anew with "
            "lines that end in \\n or \\r\\n"
        )


def let_pass(error: BaseException) -> None:
    """Raise interrupts and memory errors again, which are no matter of the data."""
    if isinstance(error, KeyboardInterrupt | SystemExit | MemoryError):
        raise error


def check_names(name: str, columns: Sequence[str]) -> None:
    """Refuse a table in which two columns have one name."""
    repeated = [column for place, column in enumerate(columns) if column in columns[:place]]
    if repeated:
        raise InvalidValueError(f"{name} has two columns called {repeated[0]!r}; rename one")
