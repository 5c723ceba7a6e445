"""A folder of results: no half file, no link followed, and one line where the disk is full."""

from __future__ import annotations

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kerchief.comparison.run_folder import Folder
from kerchief.core.errors import InvalidValueError, WriteError


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Folder.at(tmp_path)
    folder.write("results.json", b"old")

    def full(path: Path, content: bytes) -> None:
        path.write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_bytes", full)
        with pytest.raises(WriteError, match=r"\(No space left on device\); what was written bef"):
            folder.write("results.json", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]
    assert (tmp_path / "results.json").read_bytes() == b"old"


def test_links_are_not_written_through(tmp_path: Path) -> None:
    """Neither the file's own name nor the draft's lead out of the folder."""
    secret = tmp_path / "secret"
    secret.write_bytes(b"mine")
    folder = Folder.at(tmp_path / "out")
    (folder.path / "results.json").symlink_to(secret)
    with pytest.raises(InvalidValueError, match=r"is a link.*remove it, or choose another folder"):
        folder.write("results.json", b"new")
    assert secret.read_bytes() == b"mine"
    assert (folder.path / "results.json").is_symlink()


def test_a_draft_is_always_a_new_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where its name was guessed and a link planted there."""
    secret = tmp_path / "secret"
    secret.write_bytes(b"mine")
    folder = Folder.at(tmp_path / "out")
    monkeypatch.setattr("secrets.token_hex", lambda size: "guessed")
    (folder.path / ".guessed-results.json").symlink_to(secret)
    with pytest.raises(WriteError, match="File exists"):
        folder.write("results.json", b"new")
    assert secret.read_bytes() == b"mine"


def test_a_folder_inside_is_fresh_and_goes_again(tmp_path: Path) -> None:
    folder = Folder.at(tmp_path)
    inside = folder.inside("unfinished-")
    assert inside.path.parent == tmp_path
    inside.write("results.json", b"new")
    assert folder.take(inside, "results.json") == tmp_path / "results.json"
    inside.discard()
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]


def test_files_have_the_usual_rights(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_bytes(b"")
    path = Folder.at(tmp_path).write("results.json", b"new")
    assert path.stat().st_mode == plain.stat().st_mode


def test_concurrent_file_claims_have_a_single_winner(tmp_path: Path) -> None:
    folder = Folder.at(tmp_path)
    with ThreadPoolExecutor(8) as several:
        claims = list(several.map(lambda i: folder.claim("rows", b"%d" % i), range(8)))
    assert claims.count(True) == 1
    assert folder.path.joinpath("rows").read_bytes() == b"%d" % claims.index(True)
    assert [one.name for one in tmp_path.iterdir()] == ["rows"]


def test_a_disk_without_hard_links_takes_claims(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "link", refuse)
    assert Folder.at(tmp_path).claim("rows", b"mine")
    assert (tmp_path / "rows").read_bytes() == b"mine"
