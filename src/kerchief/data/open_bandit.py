"""Logs as the bandit feedback of Open Bandit Pipeline: a dictionary, stored as .npz.

Its keys are n_rounds, n_actions, context, action_context, action, position, reward and pscore. Of
lists with several positions each row is a decision of its own, as it is there. Three keys are ours,
and left out where there is nothing to say: user, context_names and action_context_names.
"""

from __future__ import annotations

import io
import lzma
import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kerchief.core.errors import CodecError
from kerchief.core.validate import whole
from kerchief.data.files import write_file
from kerchief.data.logs import MOST_CELLS, Logs

_REQUIRED_KEYS = ("n_rounds", "n_actions", "context", "action", "reward", "pscore")
_NAME_KEYS = {"names": "context_names", "arm_names": "action_context_names"}
_KEYS = (*_REQUIRED_KEYS, "action_context", "position", "user", *_NAME_KEYS.values())
_MOST_BYTES = 8 * MOST_CELLS
# All that reading an archive that lies about itself was seen to raise.
_ARCHIVE_ERRORS = (
    *(ValueError, TypeError, KeyError, OverflowError, MemoryError, EOFError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error),
)


def from_feedback(feedback: Mapping[str, Any], *, low: float, high: float) -> Logs:
    """Logs from a dictionary of bandit feedback; low and high declare the range of rewards.

    >>> feedback = dict(n_rounds=2, n_actions=2, context=np.ones((2, 1)), action=np.array([0, 1]),
    ...     reward=np.array([1, 0]), pscore=np.array([0.5, 0.5]), position=None)
    >>> from_feedback(feedback, low=0.0, high=1.0).arms
    2
    """
    missing = [name for name in _REQUIRED_KEYS if feedback.get(name) is None]
    if missing:
        raise CodecError(f"the feedback has no {missing[0]}; it needs {', '.join(_REQUIRED_KEYS)}")
    rounds, count = (_read_scalar(name, feedback[name]) for name in ("n_rounds", "n_actions"))
    logs = Logs(
        contexts=feedback["context"],
        actions=feedback["action"],
        rewards=feedback["reward"],
        propensities=feedback["pscore"],
        arms=count,
        low=low,
        high=high,
        arm_features=feedback.get("action_context"),
        users=feedback.get("user"),
        names=_read_names(feedback, _NAME_KEYS["names"]),
        arm_names=_read_names(feedback, _NAME_KEYS["arm_names"]),
    )
    if logs.rows != rounds:
        raise CodecError(
            f"n_rounds is {rounds} and there are {logs.rows} actions; mend one of them"
        )
    return logs


def to_feedback(logs: Logs) -> dict[str, Any]:
    """Convert logs to a dictionary of bandit feedback, which has no key for masks.

    Names of columns are said where they are others than x0, x1 and so on, or z0, z1 of arms.
    """
    if logs.allowed is not None and not logs.allowed.all():
        raise CodecError("some rows do not allow all arms, and bandit feedback cannot say so")
    users = {} if logs.users is None else {"user": logs.users}
    return (
        users
        | _collect_names(logs)
        | {
            "n_rounds": logs.rows,
            "n_actions": logs.arms,
            "context": logs.contexts,
            "action_context": logs.arm_features,
            "action": logs.actions,
            "position": None,
            "reward": logs.rewards,
            "pscore": logs.propensities,
        }
    )


def read_feedback(path: Path | str, *, low: float, high: float) -> Logs:
    """Read a .npz file of bandit feedback; nothing in it is ever executed."""
    return from_feedback(_read_arrays(Path(path)), low=low, high=high)


def write_feedback(logs: Logs, path: Path | str) -> None:
    """Write logs so that `read_feedback` finds the same; bounds are declared anew."""
    arrays = {name: value for name, value in to_feedback(logs).items() if value is not None}
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)
    write_file(path, content.getvalue())


def _collect_names(logs: Logs) -> dict[str, NDArray[np.str_]]:
    """Collect names of columns that differ from the default names."""
    arrays = {}
    for (field, key), letter in zip(_NAME_KEYS.items(), "xz", strict=True):
        names = getattr(logs, field)
        if any(name != f"{letter}{place}" for place, name in enumerate(names)):
            arrays[key] = np.array(names)
            if wrong := set(names) - set(arrays[key].tolist()):
                raise CodecError(
                    f"a feature is called {min(wrong)!r}, and bandit feedback would give it back "
                    "without its last character; rename it"
                )
    return arrays


def _read_names(feedback: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """Read names of columns from a list or an array of texts; none without the key."""
    value = feedback.get(key)
    value = () if value is None else value
    names = value.tolist() if isinstance(value, np.ndarray) else value
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise CodecError(f"{key} of the feedback are no words; give one for every column")
    return tuple(map(str, names))


def _read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with path.open("rb") as file:
            return _load_members(path, file)
    except OSError as error:
        raise CodecError(f"{path} cannot be read ({error.strerror}); give a file") from error
    except _ARCHIVE_ERRORS as error:
        if isinstance(error, CodecError):
            raise
        raise CodecError(
            f"{path.name} is no whole .npz file; it may be cut off: write it anew"
        ) from None


def _load_members(path: Path, file: Any) -> dict[str, NDArray[Any]]:
    """Load the known arrays, once it is clear that they are not too large."""
    with zipfile.ZipFile(file) as box:
        sizes = {entry.filename.removesuffix(".npy"): entry.file_size for entry in box.infolist()}
    if sum(sizes.get(name, 0) for name in _KEYS) > _MOST_BYTES:
        raise CodecError(f"{path.name} holds more than {_MOST_BYTES} bytes; give fewer rows")
    file.seek(0)
    with np.load(file, allow_pickle=False) as box:
        return {name: box[name] for name in _KEYS if name in box.files and _is_plain(box, name)}


def _is_plain(box: Any, name: str) -> bool:
    """Whether a member holds numbers or texts; None, which is pickled, is left out.

    What else is pickled is refused: nobody can see whether it says who came.
    """
    with box.zip.open(f"{name}.npy") as member:
        np.lib.format.read_magic(member)
        shape, _, kind = np.lib.format.read_array_header_1_0(member)
    if kind.kind == "O" and shape == () and name not in _REQUIRED_KEYS:
        return False
    if kind.kind not in "iufbU":
        raise CodecError(
            f"{name} has the kind {kind}, and only numbers and words are read; write it as one of "
            "these, as np.asarray(it, str) does"
        )
    return True


def _read_scalar(name: str, value: Any) -> int:
    is_scalar = isinstance(value, np.ndarray) and value.shape == ()
    return whole(name, value[()] if is_scalar else value)
