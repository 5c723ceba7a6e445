"""Where every promise is proved: the note and the status of all that protects."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, TypeAlias

import kerchief
from kerchief.environments.registry import ENVIRONMENTS
from kerchief.mechanisms.randomized_bits import ExactResponse, Response
from kerchief.mechanisms.registry import MECHANISMS
from kerchief.policies import POLICIES
from kerchief.privatizers.bits import BitSums
from kerchief.privatizers.fits import Fits
from kerchief.privatizers.prefix import PrefixSums
from kerchief.privatizers.shuffled import ShuffledSums
from kerchief.privatizers.shuffled_fits import ShuffledFits
from kerchief.privatizers.sums import CohortSums

Status: TypeAlias = Literal["proved", "certified", "idealized", "for study", "not private"]

# What is proved in the note of something else.
_ELSEWHERE = {
    "GLMLoss": "privatizers/fits.md",
    "Increments": "core/queries.md",
    "ThreeBlocks": "core/queries.md",
    "BoundedScalar": "policies/context_free/base.md",
    "UnitBallVector": "policies/phased/elimination.md",
    "k-point": "policies/context_free/k_point.md",
    "prefix totals in epochs": "privatizers/epochs.md",
}
_CERTIFIED = (Response, ExactResponse, BitSums)
_VALUES = {"values of policies from logs": "data/off_policy.md"}
_PRIVATIZERS: Mapping[str, type] = {
    "cohort totals": CohortSums,
    "prefix totals": PrefixSums,
    "prefix totals in epochs": PrefixSums,
    "shuffled totals, coins": ShuffledSums,
    "shuffled totals, bits": BitSums,
    "fits": Fits,
    "fits behind a shuffler": ShuffledFits,
}

# Steps of the protocol between roles, each with its own note.
_PROTOCOL = {
    "reports and cohorts": "deployment/crediting.md",
    "restarts and copies": "deployment/restarts.md",
    "phases": "deployment/population.md",
    "projected features": "deployment/projection.md",
    "false reports": "deployment/record_check.md",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Proof:
    """One promise of a mechanism, a privatizer, a protocol or a policy, and where it is proved.

    Attributes:
        status: proved in the note, certified by a computation that the note justifies, idealized
            (only a simulation may use it; its exact twin is what people's data meet), for study
            (a paper's own version, not offered), or not private at all.
        note: the proof note, from the package's root. A policy's promise rests on how far its
            queries' statistics can be apart, and on the privatizers; the note is of the former.
    """

    kind: str
    name: str
    status: Status
    note: Path

    def to_dict(self) -> dict[str, object]:
        """One line of a listing."""
        note = self.note.as_posix()
        facts = {"name": self.name, "kind": self.kind, "status": self.status}
        return {**facts, "note": note, "summary": note}


def proofs() -> Iterator[Proof]:
    """Every registered mechanism, every privatizer, the protocol, every registered policy.

    >>> all((_ROOT / proof.note).exists() for proof in proofs())
    True
    """
    for name, mechanism in MECHANISMS.items():
        status: Status = "idealized" if mechanism.idealized else "proved"
        yield _proof("mechanism", name, mechanism.home, status)
    for name, kind in _PRIVATIZERS.items():
        yield _proof("privatizer", name, kind, "proved")
    for name, where in _PROTOCOL.items():
        yield Proof(kind="protocol", name=name, status="proved", note=Path(where))
    for name, where in _VALUES.items():
        yield Proof(kind="release", name=name, status="proved", note=Path(where))
    for name, entry in POLICIES.items():
        problem = ENVIRONMENTS[entry.default_environment or "linear"].make().problem(1000)
        offered: Status = "proved" if entry.deployable else "for study"
        status = offered if entry.trusts != ("none",) else "not private"
        queries = entry.build(problem, "tuned").queries.values()
        # One that asks nothing has nothing to prove.
        for note in dict.fromkeys(_note(type(query), name) for query in queries):
            yield Proof(kind="policy", name=name, status=status, note=note)


_ROOT = Path(kerchief.__file__).parent


def _proof(kind: str, name: str, implementation: type, status: Status) -> Proof:
    if implementation in _CERTIFIED:
        status = "certified"
    return Proof(kind=kind, name=name, status=status, note=_note(implementation, name))


def _note(implementation: type, name: str = "") -> Path:
    """The note of the same name beside the module of a class, or where else it is proved."""
    for key in (name, implementation.__name__):
        if key in _ELSEWHERE:
            return Path(_ELSEWHERE[key])
    return Path(inspect.getfile(implementation)).with_suffix(".md").relative_to(_ROOT)
