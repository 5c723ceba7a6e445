"""The folder of a bandit: its files, and what a copy or a restored backup of it would do."""

from __future__ import annotations

import os
from pathlib import Path

from kerchief.core.errors import InvalidValueError
from kerchief.deployment.deployment import Deployment
from kerchief.deployment.statements import describe_restores
from kerchief.privacy.guarantee import Trust
from kerchief.stores.sqlite import SQLiteStore
from kerchief_protocol.errors import FencedError
from kerchief_protocol.task import Task

RESTORABLE = (
    "the witness lies in the bandit's own folder; a backup of that folder that is restored may go "
    "unnoticed, and voids the guarantee. Pass `witness=` a file on another disk."
)
"""Warning of a folder that `is_restorable`."""


def aggregator_path(folder: Path) -> Path:
    """Path of the aggregator's store in a folder."""
    return folder / "aggregator.db"


def read_task(folder: Path) -> Task:
    """Read the task of the bandit in a folder.

    Raises:
        InvalidValueError: there is no bandit.
        FencedError: its file was changed.
    """
    path = aggregator_path(folder)
    if not os.path.exists(path) and os.path.exists(folder / "middle.db"):
        raise InvalidValueError(
            f"{folder} was written by an earlier version, as middle.db; this version calls it "
            "aggregator.db and reads no earlier store: make a new bandit"
        )
    store = SQLiteStore(path) if os.path.exists(path) else None
    if store is None or len(store.tasks()) != 1:
        raise InvalidValueError(f"{folder} holds no bandit; give the folder that one was made in")
    (id,) = store.tasks()
    with store.read(id) as reader:
        row = reader.row()
    store.close()
    if row is None or Task.read(row.config).id != id:
        raise FencedError(f"the bandit in {folder} has no task any more; its file was changed")
    return Task.read(row.config)


def resolve_witness(folder: Path | None, witness: str | Path | None) -> Path | None:
    """Return the path of the witness, by default in the folder; None for a bandit in memory."""
    if witness is None:
        return None if folder is None else folder / "witness"
    if folder is None:
        raise InvalidValueError("witness is given without a path; a bandit in memory needs none")
    return Path(witness)


def is_restorable(deployment: Deployment, folder: Path | None, witness: Path | None) -> bool:
    """Return whether folder and witness can be restored together, with users in two releases.

    Under local trust a witness sees no difference, as the aggregator draws nothing.
    """
    is_exempt = deployment.guarantee.trust in (Trust.NONE, Trust.LOCAL)
    if folder is None or witness is None or is_exempt:
        return False
    # A head replaces the file itself, so a link in its place leads nowhere.
    return Path(os.path.realpath(witness.parent)).is_relative_to(os.path.realpath(folder))


def describe_backups(deployment: Deployment, folder: Path, witness: Path | None) -> str:
    """State what becomes of the guarantee where a backup of the folder is restored."""
    if deployment.guarantee.trust is Trust.LOCAL:
        return (
            "Restoring a backup of the folder may go unnoticed: decisions that wait in the "
            "backup are reported again with new noise, and their costs add up."
        )
    if is_restorable(deployment, folder, witness):
        return (
            "The witness lies in the bandit's folder: restoring a backup of the folder may go "
            "unnoticed and voids the guarantee."
        )
    return describe_restores("folder")


def check_place(folder: Path, *, renew: bool) -> None:
    """Check that the folder is where its bandit lives: the store of a copy is another file.

    Args:
        folder: of the bandit.
        renew: remember this file from now on.

    Raises:
        FencedError: it is another file.
    """
    place, file = folder / "place", str(os.stat(aggregator_path(folder)).st_ino)
    # A kill as it was written has left it empty.
    if renew or not place.exists() or not place.read_text():
        place.write_text(file)
    if place.read_text() != file:
        raise FencedError(
            f"{folder} was copied or restored, and the original may still go on; go on with that "
            "one, or open this one with renew=True for new users"
        )


def create(folder: Path) -> None:
    """Create the folder of a new bandit.

    Raises:
        InvalidValueError: it exists already, or cannot be created.
    """
    try:
        folder.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        raise InvalidValueError(
            f"{folder} exists already; open the bandit in it with Bandit.open, or choose another "
            "path"
        ) from None
    except (OSError, ValueError) as fault:
        raise InvalidValueError(
            f"no folder can be made there: {fault}; choose another path"
        ) from fault
