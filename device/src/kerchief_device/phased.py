"""What a client of a phase sees, and what it answers: one vector in the unit ball."""

from __future__ import annotations

import hmac
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kerchief_device.record import into_ball, within
from kerchief_wire.errors import InvalidValue, Refused
from kerchief_wire.model import Model
from kerchief_wire.noise import Floats
from kerchief_wire.task import Phased

_CLIENT = b"kerchief/1 client\0"

_MOST = 2**12
_KINDS = {"f": "real", "i": "whole", "b": "true or false"}


@dataclass(frozen=True, kw_only=True)
class Place:
    """What a client is asked to look at.

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
    """The light code of a `Phased` program."""

    def __init__(self, program: Phased) -> None:
        """Take the program.

        Raises:
            InvalidValue: a number of it is outside its bounds.
        """
        sizes = (program.groups, program.atoms, program.size)
        real = abs(program.low) <= 1e100 and abs(program.high) <= 1e100
        if not (real and program.low <= program.high and all(1 <= one <= _MOST for one in sizes)):
            raise InvalidValue(
                f"rewards are {program.low} to {program.high}, and groups, actions and answers "
                f"{sizes}; these must be 1 to {_MOST}: make the task anew"
            )
        self._program = program

    def act(self, model: Model, rows: Floats, mask: NDArray[np.bool_]) -> int:
        """Nothing is chosen here: the actions of a phase are public."""
        raise InvalidValue("the learner of this task says what is played; call join")

    def place(self, model: Model, label: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Actions and pulls of a group, by the label of its reports.

        Raises:
            Refused: nobody is asked any more.
            InvalidValue: the model is of another phase, or none of this program.
        """
        program = self._program
        if bool(_array(model, "done", (), "b")):
            raise Refused("over", "the bandit has settled and asks nobody any more")
        phase, group = divmod(label, program.groups)
        said = int(_array(model, "phase", (), "i"))
        if said != phase:
            raise InvalidValue(
                f"the model is of phase {said} and reports are taken for phase {phase}; read both "
                "again, in a while"
            )
        shape = (program.groups, program.atoms)
        atoms, pulls = _array(model, "atoms", shape, "i")[group], self._pulls(model)[group]
        return tuple(atoms.tolist()), tuple(pulls.tolist())

    def statistics(self, model: Model | None, features: Floats, reward: float) -> Sequence[Floats]:
        """The client's averages through its group's encoder, clipped before and after.

        Args:
            model: of the phase.
            features: the label, and then the averages, if they came.
            reward: what each average is if they did not.
        """
        assert model is not None
        program, group = self._program, int(features[0]) % self._program.groups
        seen = features[1:] if len(features) > 1 else np.full(program.atoms, reward)
        clipped = [within(one, program.low, program.high) for one in seen.tolist()]
        known = np.where(self._pulls(model)[group] > 0, clipped, 0.0)
        shape = (program.groups, program.size, program.atoms)
        encoder = _array(model, "encoder", shape, "f")[group].astype(np.float64)
        # A stranger's encoder may be so large that products overflow: such numbers count as 0.
        with np.errstate(over="ignore", invalid="ignore"):
            return (into_ball(encoder @ known, 1.0),)

    def _pulls(self, model: Model) -> NDArray[Any]:
        return _array(model, "pulls", (self._program.groups, self._program.atoms), "i")


def averages(program: Phased, value: Any) -> Floats:
    """A client's average reward on each action that it saw.

    Raises:
        InvalidValue: there are more or fewer than actions, or one is not finite.
    """
    try:
        found = np.asarray(value, np.float64)
    except (TypeError, ValueError):
        found = np.empty(0)
    if found.shape != (program.atoms,) or not all(map(math.isfinite, found.tolist())):
        raise InvalidValue(
            f"the averages have shape {found.shape}; give a finite one for each of the "
            f"{program.atoms} actions of the place, and 0 for those without pulls"
        )
    return found


def client_id(secret: bytes, task: bytes) -> bytes:
    """The id of a client's one report in a task: the same for every copy of the client's store.

    Whoever does not have the secret cannot tell ids of one client in two tasks from those of two
    clients (`population.md`, Theorem 2).

    >>> client_id(bytes(32), bytes(32)).hex()
    'c113ca62623340b0c1f5350775f344f5'
    """
    return hmac.digest(secret, _CLIENT + task, "sha256")[:16]


def _array(model: Model, name: str, shape: tuple[int, ...], kind: str) -> NDArray[Any]:
    """An array of a model that a stranger may have written."""
    numbers = model.arrays.get(name)
    if numbers is None or numbers.shape != shape or np.dtype(numbers.dtype).kind != kind:
        found = "no such array" if numbers is None else f"{numbers.dtype} of shape {numbers.shape}"
        raise InvalidValue(
            f"the model's {name} is {found}; it must be {_KINDS[kind]}, of shape {shape}"
        )
    array: NDArray[Any] = numbers.array
    if not np.isfinite(array).all():
        raise InvalidValue(f"the model's {name} is not finite; read the billboard again")
    return array
