"""A witness notices a store that went back, and two copies that both go on."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kerchief.stores import FileWitness, NoWitness, StoreWitness, Witness, open_store
from kerchief_protocol.errors import FencedError, StoreError

_TASK, _A, _B, _C = (bytes([n]) * 32 for n in range(4))


@pytest.fixture(params=["file", "memory", "sqlite", "postgres"])
def witness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Witness]:
    if request.param == "file":
        yield FileWitness(tmp_path / "witness")
        return
    if request.param == "postgres":
        where = request.getfixturevalue("cluster").database()
    else:
        where = ":memory:" if request.param == "memory" else str(tmp_path / "witness.db")
    store = open_store(where)
    yield StoreWitness(store)
    store.close()


def test_heads_follow_each_other(witness: Witness) -> None:
    assert witness.read(_TASK) is None
    witness.swap(_TASK, None, _A)
    witness.swap(_TASK, _A, _B)
    assert witness.read(_TASK) == _B
    assert witness.read(_A) is None
    witness.swap(_A, None, _C)
    assert witness.read(_TASK) == _B


def test_repeated_head_is_accepted_by_the_witness(witness: Witness) -> None:
    witness.swap(_TASK, None, _A)
    witness.swap(_TASK, None, _A)
    witness.swap(_TASK, _C, _A)
    assert witness.read(_TASK) == _A


@pytest.mark.parametrize("expected", [None, _A, _C])
def test_a_store_that_went_back_is_fenced(witness: Witness, expected: bytes | None) -> None:
    witness.swap(_TASK, None, _A)
    witness.swap(_TASK, _A, _B)
    with pytest.raises(FencedError, match="rolled back or copied"):
        witness.swap(_TASK, expected, b"new" * 8)
    assert witness.read(_TASK) == _B


def test_a_witness_that_forgot_is_no_witness(witness: Witness) -> None:
    with pytest.raises(FencedError):
        witness.swap(_TASK, _A, _B)


def test_only_one_of_eight_copies_advances_the_witness(witness: Witness) -> None:
    witness.swap(_TASK, None, _A)
    fenced: list[int] = []

    def go_on(number: int) -> None:
        try:
            witness.swap(_TASK, _A, bytes([100 + number]) * 32)
        except FencedError:
            fenced.append(number)

    threads = [threading.Thread(target=go_on, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = set(range(8)) - set(fenced)
    assert len(fenced) == 7
    assert witness.read(_TASK) == bytes([100 + winner]) * 32


def test_no_witness_accepts_any_swap() -> None:
    nobody: Witness = NoWitness()
    nobody.swap(_TASK, _A, _B)
    assert nobody.read(_TASK) is None


@pytest.mark.parametrize("text", ["", "[]", '{"00": 1}', '{"zz":"00"}', "{}\n"])
def test_damaged_witness_file_raises_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "witness").write_text(text)
    with pytest.raises(StoreError, match="the witness"):
        FileWitness(tmp_path / "witness").read(_TASK)


def test_unwritable_witness_file_raises_error(tmp_path: Path) -> None:
    witness = FileWitness(tmp_path / "no" / "folder")
    with pytest.raises(StoreError, match="the witness"):
        witness.swap(_TASK, None, _A)


def test_a_file_is_replaced_whole_and_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    witness = FileWitness(tmp_path / "witness")
    witness.swap(_TASK, None, _A)
    before = (tmp_path / "witness").read_bytes()

    def fail(file: int) -> None:
        raise OSError("the disk is gone")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StoreError, match="disk is gone"):
        witness.swap(_TASK, _A, _B)
    assert (tmp_path / "witness").read_bytes() == before
    monkeypatch.undo()
    witness.swap(_TASK, _A, _B)
    assert FileWitness(tmp_path / "witness").read(_TASK) == _B
