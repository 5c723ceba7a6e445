"""What a client of a phase sees, and what it answers: one vector in the unit ball."""

from __future__ import annotations

import hmac
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kerchief_device.act import read_arrays
from kerchief_device.constant_time import flush
from kerchief_device.record import into_ball
from kerchief_protocol.errors import InvalidValueError, RejectedError
from kerchief_protocol.model import Model
from kerchief_protocol.noise import Floats
from kerchief_protocol.programs import Phased

_CLIENT = b"kerchief/1 client\0"

_LARGEST_SIZE = 2**12


@dataclass(frozen=True, kw_only=True)
class Place:
    """Actions of a phase that a client is asked to play, and how often.

    Attributes:
        id: names the place when the averages come; it never leaves the device.
        label: of the client's group, among the groups of all phases.
        atoms: the actions that the client sees, by number.
        pulls: how often it sees each of them; 0 for those that only fill up.
    """

    id: str
    label: int
    atoms: tuple[int, ...]
    pulls: tuple[int, ...]


class Survey:
    """Light code of a `Phased` program, which caches the arrays of the latest model."""

    def __init__(self, program: Phased, *, arms: int, horizon: int) -> None:
        """Take the program, and the problem's numbers of actions and of rounds.

        Raises:
            InvalidValueError: a number of it is outside its bounds.
        """
        sizes = (program.groups, program.atoms, program.size)
        real = abs(program.low) <= 1e100 and abs(program.high) <= 1e100
        if not (
            real
            and program.low <= program.high
            and all(1 <= size <= _LARGEST_SIZE for size in sizes)
        ):
            raise InvalidValueError(
                f"rewards are {program.low} to {program.high}, and groups, actions and answers "
                f"{sizes}; these must be 1 to {_LARGEST_SIZE}: make the task anew"
            )
        self._program, self._arms, self._horizon = program, arms, horizon
        self._cache: tuple[Model, dict[str, NDArray[Any]]] | None = None

    def act(self, model: Model, rows: Floats, mask: NDArray[np.bool_]) -> int:
        """Raise InvalidValueError: the actions of a phase are public, and none is chosen."""
        raise InvalidValueError("the learner of this task says what is played; call join")

    def place(self, model: Model, label: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return actions and pulls of a group, by the label of its reports.

        Raises:
            RejectedError: nobody is asked any more.
            InvalidValueError: the model is of another phase, or none of this program.
        """
        program, arrays = self._program, self._load_arrays(model)
        if bool(arrays["done"]):
            raise RejectedError("over", "the bandit has settled and asks nobody any more")
        phase, group = divmod(label, program.groups)
        if int(arrays["phase"]) != phase:
            raise InvalidValueError(
                f"the model is of phase {int(arrays['phase'])} and reports are taken for phase "
                f"{phase}; read both again, in a while"
            )
        atoms, pulls = arrays["atoms"][group].tolist(), arrays["pulls"][group].tolist()
        if not all(0 <= atom < self._arms for atom in atoms):
            raise InvalidValueError(
                f"the model asks about actions outside 0 to {self._arms - 1}, the actions of this "
                "task; read the billboard again"
            )
        if not all(pull >= 0 for pull in pulls) or sum(pulls) > self._horizon:
            raise InvalidValueError(
                f"the model's pulls are below 0, or together above the {self._horizon} rounds of "
                "this task; read the billboard again"
            )
        return tuple(atoms), tuple(pulls)

    def statistics(self, model: Model | None, features: Floats, reward: float) -> Sequence[Floats]:
        """Encode the client's averages for its group, clipped before and after.

        Args:
            model: of the phase.
            features: the label, and then the averages, or the default for each of them.
            reward: is among the features.
        """
        assert model is not None
        program, arrays = self._program, self._load_arrays(model)
        group = int(features[0]) % program.groups
        clipped = np.minimum(np.maximum(flush(features[1:]), program.low), program.high)
        observed = np.where(arrays["pulls"][group] > 0, clipped, 0.0)
        return (into_ball(arrays["encoder"][group] @ observed, 1.0),)

    def _load_arrays(self, model: Model) -> dict[str, NDArray[Any]]:
        """Read the arrays that a phase posts, each in the form that the program states."""
        cache = self._cache
        if cache is None or cache[0] is not model:
            program = self._program
            public = (program.groups, program.atoms)
            arrays = read_arrays(
                model,
                {
                    "phase": ("i", ()),
                    "done": ("b", ()),
                    "atoms": ("i", public),
                    "pulls": ("i", public),
                    "encoder": ("f", (program.groups, program.size, program.atoms)),
                },
            )
            arrays["encoder"] = flush(arrays["encoder"].astype(np.float64))
            self._cache = cache = model, arrays
        return cache[1]


def averages(program: Phased, value: Any) -> Floats:
    """Convert a client's average reward on each of its actions.

    Raises:
        InvalidValueError: there are more or fewer than actions, or one is not finite.
    """
    try:
        vector = np.asarray(value, np.float64)
    except (TypeError, ValueError):
        vector = np.empty(0)
    if vector.shape != (program.atoms,) or not all(map(math.isfinite, vector.tolist())):
        raise InvalidValueError(
            f"the averages have shape {vector.shape}; give a finite one for each of the "
            f"{program.atoms} actions of the place, and 0 for those without pulls"
        )
    return vector


def client_id(secret: bytes, task: bytes) -> bytes:
    """Derive the id of a client's one report in a task, equal for copies of its store.

    Without the secret nobody can tell ids of one client in two tasks from those of two clients
    (`population.md`, Theorem 2).

    >>> client_id(bytes(32), bytes(32)).hex()
    'c113ca62623340b0c1f5350775f344f5'
    """
    return hmac.digest(secret, _CLIENT + task, "sha256")[:16]
