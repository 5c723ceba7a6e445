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

_NEEDED = ("n_rounds", "n_actions", "context", "action", "reward", "pscore")
_NAMES = {"names": "context_names", "arm_names": "action_context_names"}
_KNOWN = (*_NEEDED, "action_context", "position", "user", *_NAMES.values())
_MOST_BYTES = 8 * MOST_CELLS
# All that reading an archive that lies about itself was seen to raise.
_BROKEN = (
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
    missing = [name for name in _NEEDED if feedback.get(name) is None]
    if missing:
        raise CodecError(f"the feedback has no {missing[0]}; it needs {', '.join(_NEEDED)}")
    rounds, count = (_scalar(name, feedback[name]) for name in ("n_rounds", "n_actions"))
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
        names=_words(feedback, _NAMES["names"]),
        arm_names=_words(feedback, _NAMES["arm_names"]),
    )
    if logs.rows != rounds:
        raise CodecError(
            f"n_rounds is {rounds} and there are {logs.rows} actions; mend one of them"
        )
    return logs


def to_feedback(logs: Logs) -> dict[str, Any]:
    """The dictionary of these logs; masks have no word in it.

    Names of columns are said where they are others than x0, x1 and so on, or z0, z1 of arms.
    """
    if logs.allowed is not None and not logs.allowed.all():
        raise CodecError("some rows do not allow all arms, and bandit feedback cannot say so")
    more = {} if logs.users is None else {"user": logs.users}
    return (
        more
        | _names(logs)
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
    return from_feedback(_arrays(Path(path)), low=low, high=high)


def write_feedback(logs: Logs, path: Path | str) -> None:
    """Write logs so that `read_feedback` finds the same; bounds are declared anew."""
    kept = {name: value for name, value in to_feedback(logs).items() if value is not None}
    content = io.BytesIO()
    np.savez_compressed(content, **kept)
    write_file(path, content.getvalue())


def _names(logs: Logs) -> dict[str, NDArray[np.str_]]:
    """Names of columns that are not those that columns have anyway."""
    found = {}
    for (field, key), letter in zip(_NAMES.items(), "xz", strict=True):
        names = getattr(logs, field)
        if any(name != f"{letter}{place}" for place, name in enumerate(names)):
            found[key] = np.array(names)
            if wrong := set(names) - set(found[key].tolist()):
                raise CodecError(
                    f"a feature is called {min(wrong)!r}, and bandit feedback would give it back "
                    "without its last character; rename it"
                )
    return found


def _words(feedback: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """Names of columns, as a list or an array of words; none where nothing is said."""
    given = feedback.get(key)
    given = () if given is None else given
    listed = given.tolist() if isinstance(given, np.ndarray) else given
    if not isinstance(listed, list | tuple) or not all(isinstance(one, str) for one in listed):
        raise CodecError(f"{key} of the feedback are no words; give one for every column")
    return tuple(map(str, listed))


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with path.open("rb") as file:
            return _members(path, file)
    except OSError as error:
        raise CodecError(f"{path} cannot be read ({error.strerror}); give a file") from error
    except _BROKEN as error:
        if isinstance(error, CodecError):
            raise
        raise CodecError(
            f"{path.name} is no whole .npz file; it may be cut off: write it anew"
        ) from None


def _members(path: Path, file: Any) -> dict[str, NDArray[Any]]:
    """The arrays that we know, once it is clear that they are not too large."""
    with zipfile.ZipFile(file) as box:
        sizes = {one.filename.removesuffix(".npy"): one.file_size for one in box.infolist()}
    if sum(sizes.get(name, 0) for name in _KNOWN) > _MOST_BYTES:
        raise CodecError(f"{path.name} holds more than {_MOST_BYTES} bytes; give fewer rows")
    file.seek(0)
    with np.load(file, allow_pickle=False) as box:
        return {name: box[name] for name in _KNOWN if name in box.files and _plain(box, name)}


def _plain(box: Any, name: str) -> bool:
    """Whether it is there, as numbers or words; None, which a dictionary may hold, is pickled.

    What else is pickled is refused: nobody can see whether it says who came.
    """
    with box.zip.open(f"{name}.npy") as member:
        np.lib.format.read_magic(member)
        shape, _, kind = np.lib.format.read_array_header_1_0(member)
    if kind.kind == "O" and shape == () and name not in _NEEDED:
        return False
    if kind.kind not in "iufbU":
        raise CodecError(
            f"{name} has the kind {kind}, and only numbers and words are read; write it as one of "
            "these, as np.asarray(it, str) does"
        )
    return True


def _scalar(name: str, given: Any) -> int:
    scalar = isinstance(given, np.ndarray) and given.shape == ()
    return whole(name, given[()] if scalar else given)
