"""Broken bandits for populations, each of which the very law that it breaks must catch."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import Array

from kerchief.checks import BANDIT_LAWS, CheckFailedError, PolicyFixture
from kerchief.core.contracts import Clock, Release, Start, Tree
from kerchief.core.phases import ANSWERS, Phase
from kerchief.core.queries import UnitBallVector
from kerchief.core.random import Stream
from kerchief.core.struct import struct
from kerchief.deployment.protected_policy import ProtectedPolicy, build_protected
from kerchief.mechanisms.gaussian import Gaussian
from kerchief.mechanisms.one_bit import OneBit
from kerchief.mechanisms.shortlist import Shortlist
from kerchief.policies import POLICIES
from kerchief.policies.phased.elimination import Elimination
from kerchief.privacy import Trust
from kerchief.privatizers import CohortSums, Protection, protect
from kerchief.privatizers.sums import Memory, Tally
from kerchief.simulation.phases import PhaseReplicate, PhaseScene, play

LAWS = {law.name: law for law in BANDIT_LAWS}
_DRAWN, _PRINTED = "noise drawn is the word printed", "noise is of the word printed"
_MOVES, _ALONE = "one client moves one release", "the learner sees releases alone"


@struct
class Weak(Gaussian):
    """Adds two thirds of the noise that it charges for."""

    def add(self, vector: Array, stream: Any) -> Array:
        less = dataclasses.replace(self, std=self.std * 2 / 3)
        return Gaussian.add(less, vector, stream)


@struct
class FaintBit(OneBit):
    """A coin whose two reports are two thirds as far from the center as it states."""

    def add(self, vector: Array, stream: Any) -> Array:
        return OneBit.add(dataclasses.replace(self, std=self.std * 2 / 3), vector, stream)


@struct
class FaintList(Shortlist):
    """Reports two thirds as far from the statistic as it states."""

    def add(self, vector: Array, stream: Any) -> Array:
        return vector + (Shortlist.add(self, vector, stream) - vector) * 2 / 3


@struct
class Biased(CohortSums):
    """Adds a constant to every total."""

    def release(
        self,
        memory: Memory,
        tally: Tally,
        request: Start | None,
        clock: Clock,
        stream: Stream | None,
    ) -> tuple[Release, Memory]:
        release, after = CohortSums.release(self, memory, tally, request, clock, stream)
        return dataclasses.replace(release, total=release.total + 0.3 * release.count), after


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wide(UnitBallVector):
    """Lets answers out of the ball."""

    def encode(self, record: Array) -> Array:
        return 3 * record


@struct
class Twice(Elimination):
    """Asks the clients of the second phase in the third again."""

    def phases(self, noise: Callable[[int], float]) -> tuple[Phase, ...]:
        first, second, third, *rest = Elimination.phases(self, noise)
        return first, second, dataclasses.replace(third, first=second.first), *rest


def _changed(change: Callable[[CohortSums], CohortSums]) -> Any:
    """Protection that is another where something is promised."""

    def arranged(entry: Any, problem: Any, protection: Protection, **named: Any) -> ProtectedPolicy:
        made = build_protected(entry, problem, protection, **named)
        sums: Any = made.privatizers[ANSWERS]
        if protection.trust is Trust.NONE:
            return made
        return dataclasses.replace(made, privatizers={ANSWERS: change(sums)})

    return arranged


def _faint(kind: Any) -> dict[str, Any]:
    """Another kind of noise, in the place of the one that a word names."""
    return {
        "build_protected": _changed(lambda sums: sums.with_noise(lambda noise: kind(**vars(noise))))
    }


def _biased(sums: CohortSums) -> CohortSums:
    return Biased(**vars(sums))


def _wide(sums: CohortSums) -> CohortSums:
    return dataclasses.replace(sums, query=Wide(size=sums.query.size))


def _twice(*given: Any, **named: Any) -> ProtectedPolicy:
    made = build_protected(*given, **named)
    return dataclasses.replace(made, policy=Twice(**vars(made.policy)))


def _dear(entry: Any, problem: Any, protection: Protection, **named: Any) -> ProtectedPolicy:
    """Less noise than was promised."""
    promise = protection.guarantee
    dearer = dataclasses.replace(promise, epsilon=1.1 * promise.epsilon)
    return build_protected(
        entry, problem, dataclasses.replace(protection, guarantee=dearer), **named
    )


def _deaf(entry: Any, problem: Any, protection: Protection, **named: Any) -> ProtectedPolicy:
    """The old fault: whatever the word, Gaussian noise is built."""
    normal = protection.trust is Trust.LOCAL
    word = "gaussian" if normal else protection.mechanism
    return build_protected(entry, problem, dataclasses.replace(protection, mechanism=word), **named)


def _never_by_theorem(
    entry: Any, problem: Any, protection: Protection, **named: Any
) -> ProtectedPolicy:
    """The published constants are asked for, and the best coins are tossed."""
    word = "best" if protection.mechanism == "theorem" else protection.mechanism
    return build_protected(entry, problem, dataclasses.replace(protection, mechanism=word), **named)


def _normal(scene: PhaseScene, carry: PhaseReplicate, phase: Phase) -> PhaseReplicate:
    """The old fault in the engine: the word was kept, and Gaussian noise is drawn."""
    promise = PolicyFixture.of("pe", POLICIES["pe"], "local").promise()
    policy: Any = scene.policy
    normal: Any = protect(policy, Protection(guarantee=promise, mechanism="gaussian"), horizon=1)
    drawn = scene.protection.with_noise(lambda noise: _louder(normal[ANSWERS].device, noise))
    after: PhaseReplicate = play(dataclasses.replace(scene, privatizer=drawn), carry, phase)
    stated = dataclasses.replace(
        after.last,
        noise=after.last.noise * scene.protection.device.std / drawn.device.std,  # type: ignore[union-attr]
    )
    return dataclasses.replace(after, last=stated) if scene.protection.device.std else after  # type: ignore[union-attr]


def _louder(normal: Gaussian, noise: Any) -> Gaussian:
    """Silent where the other one is."""
    return dataclasses.replace(normal, std=normal.std if noise.std else 0.0)


def _peeking(scene: PhaseScene, carry: PhaseReplicate, phase: Phase) -> PhaseReplicate:
    """Whoever is best in truth looks best."""
    after: PhaseReplicate = play(scene, carry, phase)

    def seen(after: PhaseReplicate) -> Tree:
        best = jnp.argmin(scene.environment.losses(after.world)).astype(jnp.int32)
        return dataclasses.replace(after.state, best=best)

    peeked: PhaseReplicate = dataclasses.replace(after, state=jax.vmap(seen)(after))
    return peeked


_LAPLACE: dict[str, Any] = {"trust": "local", "mechanism": "laplace"}
FAULTS: list[tuple[str, dict[str, Any], str]] = [
    ("weak", {"mechanism": "gaussian", **_faint(Weak)}, _DRAWN),
    ("faint bits", {"trust": "local", "mechanism": "one-bit", **_faint(FaintBit)}, _DRAWN),
    ("faint lists", {"trust": "local", "mechanism": "shortlist", **_faint(FaintList)}, _DRAWN),
    ("ignores the word", {"trust": "local", "build_protected": _deaf}, _PRINTED),
    ("never by theorem", {"trust": "shuffle", "build_protected": _never_by_theorem}, _PRINTED),
    ("draws normal noise for every word", {**_LAPLACE, "play_phase": _normal}, _DRAWN),
    ("wide", {"build_protected": _changed(_wide)}, _MOVES),
    ("wide", {"build_protected": _changed(_wide)}, "clipping holds beyond the domain"),
    ("twice", {"build_protected": _twice}, _MOVES),
    ("peeking", {"play_phase": _peeking}, _ALONE),
    ("biased", {"build_protected": _changed(_biased)}, "without noise it is its parent"),
    ("dear", {"build_protected": _dear}, "charged is what was promised"),
]
DAILY = ("weak", "ignores the word", "never by theorem", "dear")


@pytest.mark.parametrize(
    ("rooms", "broken"),
    [
        pytest.param(rooms, law, id=f"{id}-{law}", marks=() if id in DAILY else pytest.mark.nightly)
        for id, rooms, law in FAULTS
    ],
)
def test_a_planted_fault_is_caught_by_its_law(rooms: dict[str, Any], broken: str) -> None:
    case = PolicyFixture.of("pe", POLICIES["pe"], **{"trust": "central", **rooms})
    with pytest.raises(CheckFailedError, match=broken) as caught:
        LAWS[broken](case)
    assert "no error" not in str(caught.value) or "BudgetExceededError" in str(caught.value)


def test_the_laws_of_populations_alone_have_a_planted_fault() -> None:
    contextual, phased = (
        PolicyFixture.of(name, POLICIES[name], "local") for name in ("linucb", "pe")
    )
    own = {law.name for law in BANDIT_LAWS if law.when(phased) and not law.when(contextual)}
    assert own == {_MOVES}
    assert own <= {law for _, _, law in FAULTS}
