"""Backups of a bandit's folder that are restored in place, as people restore them."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.deployment.field import ARMS, bandit, field, kill, reopened

from kerchief.core.errors import WeakGuaranteeWarning
from kerchief.deployment.aggregator import Aggregator
from kerchief.deployment.bandit import Bandit
from kerchief.deployment.release_batch import ReleaseBatch
from kerchief.stores import FileWitness
from kerchief.stores.sqlite import SQLiteStore
from kerchief_protocol.errors import FencedError

DRAWING = ("shuffle", "joint", "central")
"""Trusts whose releases are lines of the chain."""
TOOLS = {
    "cp": ("cp -a b backup", "cp -a backup/. b"),
    "cp anew": ("cp -a b backup", "rm -r b && cp -a backup b"),
    "tar": ("tar -cf b.tar b", "tar -xf b.tar"),
    "tar anew": ("tar -cf b.tar b", "rm -r b && tar -xf b.tar"),
}


def run(command: str, folder: Path) -> None:
    subprocess.run(command, shell=True, cwd=folder, check=True)


def serve(service: Bandit, visits: int) -> None:
    for _ in range(visits):
        service.reward(service.decide(ARMS).id, 0.5)
    service.expire()


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("trust", DRAWING)
def test_a_witness_elsewhere_notices_a_restored_backup(
    trust: str, tool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is drawn: whoever is in the open cohort is in one release."""
    backup, restore = TOOLS[tool]
    service = bandit(trust)
    serve(service, 49)
    service.save(tmp_path / "b", witness=tmp_path / "witness")
    service.close()
    run(backup, tmp_path)
    with reopened(tmp_path / "b") as service:
        serve(service, 1)
        assert service.users == 50
    run(restore, tmp_path)

    def fill(*args: object) -> None:
        raise AssertionError("a release was drawn")

    monkeypatch.setattr(ReleaseBatch, "fill", fill)
    with pytest.raises(FencedError):
        reopened(tmp_path / "b")


def restarted(trust: str, path: Path, witness: Path | None, *, is_saved: bool) -> str:
    """The statement of a bandit that was made or saved there, and opened again."""
    service = bandit(trust) if is_saved else bandit(trust, path=path, witness=witness)
    if is_saved:
        service.save(path, witness=witness)
    service.close()
    with Bandit.open(path, witness=witness) as again:
        return again.statement()


@pytest.mark.parametrize("is_saved", [False, True])
@pytest.mark.parametrize("trust", DRAWING)
def test_a_witness_in_the_folder_is_warned_about(
    trust: str, is_saved: bool, tmp_path: Path
) -> None:
    for path, inside in ((tmp_path / "a", None), (tmp_path / "b", "../b/witness")):
        witness = None if inside is None else path / inside
        with pytest.warns(
            WeakGuaranteeWarning, match="Pass `witness=` a file on another disk"
        ) as caught:
            statement = restarted(trust, path, witness, is_saved=is_saved)
        assert len(caught) == 1
        assert "may go unnoticed and voids the guarantee" in statement


def test_a_statement_says_what_a_restored_backup_does(tmp_path: Path) -> None:
    for trust in DRAWING:
        path = tmp_path / trust
        statement = restarted(trust, path, tmp_path / f"{trust}.witness", is_saved=False)
        assert (
            "noticed if anything was released since. Restoring the witness with it may" in statement
        )
    statement = restarted("local", tmp_path / "local", None, is_saved=False)
    assert "Restoring a backup of the folder may go unnoticed" in statement
    assert "Restoring" not in bandit("joint").statement()
    assert "Restoring" not in restarted("none", tmp_path / "none", None, is_saved=True)


def test_witness_linked_into_the_folder_raises_warning(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    path, witness = tmp_path / "link" / "b", tmp_path / "disk" / "b" / "witness"
    with pytest.warns(WeakGuaranteeWarning, match="a file on another disk"):
        service = bandit("central", path=path, witness=witness)
    assert "may go unnoticed and voids the guarantee" in service.statement()


@pytest.mark.parametrize("trust", DRAWING)
def test_a_aggregator_says_whether_a_restored_store_is_noticed(trust: str, tmp_path: Path) -> None:
    """Without a witness each restored copy releases the same users with other noise."""
    lone = field(trust, store=SQLiteStore(tmp_path / "store.db"))
    lone.serve(49)
    last = lone.report()
    lone.store.close()
    releases = set()
    for copy in ("first", "second"):
        run(f"cp store.db {copy}", tmp_path)
        store = SQLiteStore(tmp_path / copy)
        aggregator = Aggregator(lone.deployment, store=store)
        assert aggregator.take([last]) == (None,)
        releases.add(aggregator.releases()[-1])
        assert "The store has no witness" in aggregator.statement()
        store.close()
    assert len(releases) == (1 if trust == "shuffle" else 2)
    witness = FileWitness(tmp_path / "witness")
    watched = field(trust, store=SQLiteStore(tmp_path / "watched.db"), witness=witness)
    assert "noticed if anything was released since" in watched.aggregator.statement()
    assert "Restoring" not in field("local").aggregator.statement()


def test_a_local_decision_of_a_restored_backup_is_reported_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the statement says: two reports of one record, with noise of their own."""
    sent, take = list[bytes](), Aggregator.take

    def watched(aggregator: Aggregator, reports: list[bytes]) -> Any:
        sent.extend(reports)
        return take(aggregator, reports)

    monkeypatch.setattr(Aggregator, "take", watched)
    service = bandit("local", path=tmp_path / "b")
    service.reward(service.decide(ARMS).id, 1.0)
    kill(service)
    run(TOOLS["cp"][0], tmp_path)
    for _ in range(2):
        with reopened(tmp_path / "b") as service:
            assert service.expire() == 1
        run(TOOLS["cp"][1], tmp_path)
    assert len(set(sent)) == len(sent) == 2
