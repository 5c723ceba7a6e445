"""A task: everything that the roles of one run must agree on.

Its name is the hash of its bytes.

A device that knows the name of its task knows every number in it, and so does every role: who may
report what, how much noise is added where, and when sums are released. Nobody can tell one device
another task than the others without another name.
"""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from kerchief_protocol.canonical import pack, read, unpack, write
from kerchief_protocol.errors import CodecError, InvalidValueError
from kerchief_protocol.noise import Bits, Bounds, Coins, Noise
from kerchief_protocol.parties import SIGNING_ROLES, Party
from kerchief_protocol.programs import DisjointModels, Optimist, Phased, Program
from kerchief_protocol.projection import Projection

_TAG = b"kerchief/1 task\0"
_TRUSTS = ("none", "local", "shuffle", "joint", "central")
_KINDS = ("contextual", "context-free", "phased")
# Sums of whole numbers stay below this, whoever sends them.
_MAX_SUM = 2**62
# Bounds are laid out for every label and number.
_MAX_TABLE = 2**24
# A report's label has 16 bits.
_MAX_LABELS = 2**16
MOST_UNIT = 40
"""Letters of the word for whose contribution is protected: it stands within other sentences."""
# Reports are kept by the thousand: a megabyte is more than any of them needs.
_MAX_NUMBERS = 2**18
# Bytes of a nonce.
_NONCE_BYTES = 16


@dataclass(frozen=True, kw_only=True)
class Promise:
    """Privacy guarantee of each user.

    Attributes:
        epsilon: ε; the largest float where nothing is promised.
        delta: δ.
        unit: whose contribution is protected as a whole.
        adjacency: what a neighbour is.
        honest: the part of every cohort whose noise counts, as a fraction; only shuffle trust needs
            other users' noise.
        excluded: the part of a cohort that may be struck out after it has closed, as a fraction.
    """

    epsilon: float
    delta: float
    unit: str = "user"
    adjacency: str = "replace"
    honest: tuple[int, int] = (1, 1)
    excluded: tuple[int, int] = (0, 1)

    def __post_init__(self) -> None:
        """Check the fractions, which noise rests on, and that no promise is below zero."""
        (a, b), (c, d) = self.honest, self.excluded
        if not (self.unit.isprintable() and 0 < len(self.unit) <= MOST_UNIT):
            raise InvalidValueError(
                f"unit is empty, not printable or longer than {MOST_UNIT} letters; give a word"
            )
        if not (self.epsilon >= 0 and 0 <= self.delta < 1):
            raise InvalidValueError(
                f"epsilon is {self.epsilon} and delta {self.delta}; promise at least 0, and a "
                "delta below 1"
            )
        if not (0 < a <= b and c >= 0 and d > 0 and c * b < a * d):
            raise InvalidValueError(
                f"honest is {a}/{b} and excluded {c}/{d}; it must be 0 <= excluded < honest <= 1"
            )

    def counted(self, users: int) -> int:
        """Count the users of a cohort whose noise counts, at least.

        >>> Promise(epsilon=1.0, delta=1e-5, honest=(4, 5), excluded=(1, 100)).counted(300)
        237
        """
        (a, b), (c, d) = self.honest, self.excluded
        return (a * d - c * b) * users // (b * d)


@dataclass(frozen=True, kw_only=True)
class Reward:
    """What happens to a decision whose reward is late or never comes.

    Attributes:
        window_s: seconds until a decision is due; then its report is made, reward or not. With 0
            a decision is due whenever its device is asked, by whatever clock.
        jitter_s: a random delay below this many seconds is added, unless the window is 0.
        default: the reward of a decision that got none.
    """

    window_s: int
    jitter_s: int
    default: float


@dataclass(frozen=True, kw_only=True)
class Task:
    """One run: public, immutable, and the same for everyone.

    Attributes:
        kerchief: version of the protocol.
        name: free text, printable.
        trust: whom users trust.
        bandit: what a round is made of: contextual, context-free, phased.
        promise: what each user is promised.
        policy: which bandit, with every number of it.
        problem: the public bounds.
        program: what a device does.
        queries: the names of the sums, in the order in which a report holds them.
        noise: of each of them.
        needs: users of each cohort; empty where every report is a cohort of its own.
        horizon: how many users may report.
        reward: what happens to late ones.
        nonce: 16 random bytes, so that two runs with equal parameters are two tasks.
        parties: who signs which messages; absent from the bytes where nobody does.
        valid_s: seconds after its issue for which a signed message is valid; absent where nobody
            signs.
        projection: what devices do to features before anything else; its bytes name none where
            there is none.

    Raises:
        InvalidValueError: the numbers do not fit together.
    """

    kerchief: int = 1
    name: str
    trust: str
    bandit: str
    promise: Promise
    policy: Any
    problem: Any
    program: Program
    queries: tuple[str, ...]
    noise: tuple[Noise, ...]
    needs: tuple[int, ...]
    horizon: int
    reward: Reward
    nonce: bytes
    parties: tuple[Party, ...] = ()
    valid_s: int = 0
    projection: Projection | None = None

    def __post_init__(self) -> None:
        """Check what anyone can check."""
        if self.kerchief != 1:
            raise InvalidValueError(
                f"the protocol is version {self.kerchief}; this program speaks 1"
            )
        if not (self.name.isprintable() and 0 < len(self.name) <= 200):
            raise InvalidValueError("name is empty, long or not printable; give one short line")
        if self.trust not in _TRUSTS or self.bandit not in _KINDS:
            raise InvalidValueError(f"trust is {self.trust[:20]!r} and bandit {self.bandit[:20]!r}")
        if len(self.queries) != len(self.noise) or len(set(self.queries)) != len(self.queries):
            raise InvalidValueError("there must be one noise for each query, by different names")
        if not 0 < self.horizon < 2**31 or any(need < 1 for need in self.needs):
            raise InvalidValueError(f"horizon is {self.horizon}; it and every cohort need users")
        if sum(self.needs) > self.horizon:
            raise InvalidValueError(
                f"the cohorts have {sum(self.needs)} users, and horizon is {self.horizon}; sums "
                "and charges are for so many: plan more, or smaller cohorts"
            )
        if any(noise.size < 1 for noise in self.noise) or self.size > _MAX_NUMBERS:
            raise InvalidValueError(
                f"a report has {self.size} numbers; every query needs one at least, and all of "
                f"them together at most {_MAX_NUMBERS}"
            )
        if len(self.nonce) != _NONCE_BYTES:
            raise InvalidValueError(f"the nonce has {len(self.nonce)} bytes; give {_NONCE_BYTES}")
        self._check_parties()
        self._check_phases()
        self._check_projection()
        if self.size * max(1, len(self.needs)) > _MAX_TABLE:
            raise InvalidValueError(
                f"{len(self.needs)} cohorts of reports of {self.size} numbers are more than a "
                f"device should lay out; the most is {_MAX_TABLE} in all"
            )
        self._check_labels()
        self._check_sums()

    @classmethod
    def read(cls, data: bytes) -> Task:
        """Read a task from canonical bytes.

        Raises:
            CodecError: they are not canonical, or something else.
            InvalidValueError: the numbers do not fit together.
        """
        tree = read(data)
        if isinstance(tree, dict):
            if any(tree.get(name, tree) == absent for name, absent in _ABSENT.items()):
                raise CodecError(
                    f"a task names none of {', '.join(_ABSENT)} where it has none; make it anew"
                )
            tree = {**_ABSENT, **tree}
        return unpack(cls, tree)

    @functools.cached_property
    def data(self) -> bytes:
        """The task as canonical bytes."""
        tree = pack(self)
        return write({key: field for key, field in tree.items() if field != _ABSENT.get(key, tree)})

    @functools.cached_property
    def id(self) -> bytes:
        """The task's name: a hash of its bytes."""
        return hashlib.sha256(_TAG + self.data).digest()

    @functools.cached_property
    def size(self) -> int:
        """How many numbers a report has."""
        return sum(noise.size for noise in self.noise)

    @property
    def cohorts(self) -> int:
        """How many cohorts there are."""
        return len(self.needs) or self.horizon

    def need(self, cohort: int) -> int:
        """Return how many reports a cohort needs."""
        return self.needs[cohort] if self.needs else 1

    @functools.cached_property
    def labels(self) -> int:
        """How many labels reports may have."""
        return max(1, len(self.needs))

    def label(self, cohort: int) -> int:
        """Return the label of a report for a cohort."""
        return cohort if self.needs else 0

    def enters(self, label: int, cohort: int) -> bool:
        """Whether a report of a label may enter a cohort: it must bring enough noise."""
        if not self.needs:
            return label == 0
        # Under a phased program, what another group answers means something else.
        if label == cohort or isinstance(self.program, Phased):
            return label == cohort
        return all(_has_enough_noise(noise, label, cohort) for noise in self.noise)

    def keys(self, role: str) -> tuple[bytes, ...]:
        """Return the public keys of a role; none where its messages are not signed."""
        return self._keys.get(role, ())

    @functools.cached_property
    def _keys(self) -> dict[str, tuple[bytes, ...]]:
        """The public keys of all parties of each role."""
        keys: dict[str, tuple[bytes, ...]] = {}
        for party in self.parties:
            keys[party.role] = keys.get(party.role, ()) + party.keys
        return keys

    @property
    def has_signed_labels(self) -> bool:
        """Whether both messages that decide a report's label are signed: status and model."""
        return all(self.keys(role) for role in SIGNING_ROLES)

    @functools.cached_property
    def noisiest_label(self) -> int | None:
        """A label whose reports bring at least the noise of every other label.

        None where there is no such label, or where a report of one label cannot stand for another.
        """
        tables = [noise.coins for noise in self.noise if isinstance(noise, Coins)]
        cohorts = range(len(self.needs))
        label = max(cohorts, key=lambda cohort: [table[cohort] for table in tables], default=0)
        return label if all(self.enters(label, cohort) for cohort in cohorts) else None

    @functools.cached_property
    def has_equal_noise(self) -> bool:
        """Whether a report brings the same noise whatever its label is."""
        tables = [
            noise.coins if isinstance(noise, Coins) else noise.keep
            for noise in self.noise
            if isinstance(noise, Coins | Bits)
        ]
        return all(len(set(table)) <= 1 for table in tables)

    @functools.cached_property
    def parts(self) -> tuple[slice, ...]:
        """Where each query's numbers are in a report."""
        ends = np.cumsum([noise.size for noise in self.noise]).tolist()
        return tuple(
            slice(end - noise.size, end) for end, noise in zip(ends, self.noise, strict=True)
        )

    def bounds(self, label: int) -> Bounds:
        """Return the bounds of all numbers of a report, without the parity."""
        return self._bounds[label]

    def within(self, numbers: Any, label: int) -> bool:
        """Whether the numbers of a report, or of one report per row, are within bounds."""
        bounds = self._bounds[label]
        if bounds.odd is None and any(isinstance(noise, Coins) for noise in self.noise):
            pairs = zip(self.noise, self.parts, strict=True)
            return all(noise.bounds(label).hold(numbers[..., part]) for noise, part in pairs)
        return bounds.hold(numbers)

    @functools.cached_property
    def _bounds(self) -> tuple[Bounds, ...]:
        labels = range(self.labels)
        return tuple(
            _join_bounds([noise.bounds(label) for noise in self.noise]) for label in labels
        )

    def _check_parties(self) -> None:
        """Refuse parties whose messages could be mistaken for another's, or never expire."""
        keys = [key for party in self.parties for key in party.keys]
        roles = [party.role for party in self.parties]
        if len(set(roles)) < len(roles) or len(set(keys)) < len(keys):
            raise InvalidValueError(
                "a role or a public key occurs twice among the parties; name each role once, with "
                "keys of its own"
            )
        if not (0 < self.valid_s < 2**31 if self.parties else self.valid_s == 0):
            raise InvalidValueError(
                f"valid_s is {self.valid_s} with {len(self.parties)} parties; it must be 1 to "
                "2**31 - 1 seconds where messages are signed, and 0 where none is"
            )

    def _check_projection(self) -> None:
        """Refuse a projection whose output does not fit the program."""
        projection, program = self.projection, self.program
        if projection is None:
            return
        target = (projection.onto, projection.norm)
        if isinstance(program, Optimist | DisjointModels):
            target = (program.dim, program.norm)
        if self.bandit != "contextual" or target != (projection.onto, projection.norm):
            raise InvalidValueError(
                f"the projection leads to {projection.onto} numbers of norm {projection.norm:g}, "
                f"and a {self.bandit} bandit takes {target[0]} of norm {target[1]:g}: make the "
                "task anew"
            )

    def _check_phases(self) -> None:
        """Refuse phases without whole groups: a label would not say what was asked."""
        is_phased = isinstance(self.program, Phased)
        groups = max(1, self.program.groups) if isinstance(self.program, Phased) else 1
        has_whole_groups = not is_phased or (len(self.needs) > 0 and len(self.needs) % groups == 0)
        if (
            is_phased != (self.bandit == "phased")
            or not has_whole_groups
            or len(self.needs) > _MAX_LABELS
        ):
            raise InvalidValueError(
                f"a {self.bandit} bandit with the program {self.program.kind!r} has "
                f"{len(self.needs)} cohorts, {groups} in a phase; phases have whole groups and a "
                f"program of their own, and a task at most {_MAX_LABELS} cohorts"
            )

    def _check_labels(self) -> None:
        """Refuse a table with too few coins: privacy rests on it."""
        for noise in self.noise:
            if not isinstance(noise, Coins | Bits):
                continue
            table = noise.coins if isinstance(noise, Coins) else noise.keep
            if len(table) != len(self.needs) or not table:
                raise InvalidValueError("a table by label must have one entry for each cohort")
            if isinstance(noise, Coins):
                for coins, need in zip(noise.coins, self.needs, strict=True):
                    if coins * self.promise.counted(need) < 4 * noise.scale**2:
                        raise InvalidValueError(
                            f"{coins} coins of {self.promise.counted(need)} users are fewer than "
                            f"the {4 * noise.scale**2} that the noise needs"
                        )

    def _check_sums(self) -> None:
        """Refuse a task whose sums could overflow: then none has to be tested for it."""
        largest = max((bounds.largest for bounds in self._bounds), default=1)
        if largest * self.horizon >= _MAX_SUM:
            raise InvalidValueError(
                f"{self.horizon} reports of up to {largest} could reach 2**62; use fewer users, "
                "less noise or a coarser grid"
            )


# Fields that are absent from the bytes of a task, and what they are then.
_ABSENT: dict[str, Any] = {"parties": [], "projection": None, "valid_s": 0}


def _has_enough_noise(noise: Any, label: int, cohort: int) -> bool:
    """Whether a label's noise suffices in a cohort: enough coins, or the same bits."""
    if isinstance(noise, Coins):
        return noise.coins[cohort] <= noise.coins[label]
    return not isinstance(noise, Bits) or noise.keep[label] == noise.keep[cohort]


def _join_bounds(bounds: list[Bounds]) -> Bounds:
    odd = {part.odd for part in bounds}
    return Bounds(
        low=np.concatenate([part.low for part in bounds] or [np.zeros(0, np.int64)]),
        high=np.concatenate([part.high for part in bounds] or [np.zeros(0, np.int64)]),
        odd=odd.pop() if len(odd) == 1 else None,
    )
