"""Audits pass what is sound, come near the claim, and name what is not sound."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from kerchief.audits import Audit, audit, look, one_run
from kerchief.audits.canaries import Telltale, count_canaries
from kerchief.audits.neighbours import neighbours
from kerchief.core.contracts import Clock, Example, Outlook, Problem, Release
from kerchief.core.errors import InvalidValue
from kerchief.core.losses import GLMLoss
from kerchief.core.queries import Regression
from kerchief.core.random import DEVICE, Stream
from kerchief.core.struct import struct
from kerchief.environments.worlds import make_environment
from kerchief.mechanisms.gaussian import Gaussian
from kerchief.policies import POLICIES
from kerchief.privacy import Guarantee, Trust, gaussian_noise_multiplier
from kerchief.privatizers.fits import Fits
from kerchief.privatizers.privatizer import Privatizer
from kerchief.privatizers.registry import protect

RUNS, HORIZON = 8000, 8
FACTS = make_environment(dim=2, arms=2).problem(HORIZON)


def promise(trust: str, epsilon: float) -> Guarantee:
    return Guarantee(epsilon=epsilon, delta=1e-5, trust=Trust(trust), rounds=HORIZON)


def looked(
    trust: str,
    epsilon: float,
    change: Callable[[Privatizer], Privatizer] = lambda one: one,
    facts: Problem = FACTS,
    **numbers: Any,
) -> Audit:
    """Audit LinUCB in a short run, with its protection changed."""
    policy = dataclasses.replace(POLICIES["linucb"].make(facts, "tuned"), **numbers)  # type: ignore[type-var]
    claim = promise(trust, epsilon)
    privatizers = protect(policy, claim, horizon=HORIZON)
    return look(
        name="linucb",
        policy=policy,
        privatizers={name: change(one) for name, one in privatizers.items()},
        facts=facts,
        claim=claim,
        runs=RUNS,
    )


@pytest.mark.parametrize("trust", ["local", "joint", "central"])
@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_a_sound_bandit_is_passed_and_seen(trust: str, epsilon: float) -> None:
    """The bound is below the claim, and at least a tenth of it: the audit is not blind."""
    found = looked(trust, epsilon)
    assert found.kept
    assert 0.1 * epsilon <= found.epsilon_lower <= epsilon


@dataclasses.dataclass(frozen=True, kw_only=True)
class Unclipped(Regression):
    """A query that forgot to clip rewards."""

    def encode(self, record: Any) -> Array:
        wide = dataclasses.replace(self, low=-1e6, high=1e6)
        return Regression.encode(wide, record)


def less_noise(privatizer: Privatizer, share: float) -> Privatizer:
    return privatizer.with_noise(lambda noise: dataclasses.replace(noise, std=share * noise.std))


def test_halved_noise_is_named() -> None:
    """Noise that would do for removal, not for replacement."""
    assert not looked("central", 4.0, lambda one: less_noise(one, 0.4)).kept


def test_noise_that_is_reused_is_named() -> None:
    """The same noise in every round: a difference of two reports shows the first user exactly."""

    @struct
    class Reused:
        idealized: ClassVar[bool] = True
        inner: Gaussian

        @property
        def std(self) -> Any:
            return self.inner.std

        @property
        def sensitivity(self) -> float:
            return self.inner.sensitivity

        def prepare(self, vector: Array, stream: Stream) -> Array:
            return vector

        def add(self, vector: Array, stream: Stream) -> Array:
            return self.inner.add(vector, stream.at(DEVICE, round=0))

        def event(self) -> Any:
            return self.inner.event()

    def change(privatizer: Privatizer) -> Privatizer:
        gaussian = Gaussian.of(
            noise_multiplier=gaussian_noise_multiplier(4.0, 1e-5),
            sensitivity=privatizer.query.sensitivity,
        )
        return dataclasses.replace(privatizer, device=Reused(inner=gaussian))  # type: ignore[type-var]

    found = looked("local", 4.0, change)
    assert not found.kept


def test_a_missing_clip_is_named() -> None:
    """Rewards beyond their bounds move the sums as far as they like."""
    wide = dataclasses.replace(FACTS, low=-20.0, high=20.0)
    policy: Any = POLICIES["linucb"].make(FACTS, "tuned")
    query = Unclipped(**dataclasses.asdict(policy.query))
    claim = promise("central", 4.0)
    faulty = dataclasses.replace(policy, query=query)
    found = look(
        name="linucb",
        policy=faulty,
        privatizers=protect(faulty, claim, horizon=HORIZON),
        facts=wide,
        claim=claim,
        runs=RUNS,
    )
    assert not found.kept


def test_two_messages_paid_for_as_one_are_named() -> None:
    """Everyone's report is sent twice, each time with noise that pays for one."""

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Twice(Regression):
        def encode(self, record: Any) -> Array:
            return 3 * Regression.encode(self, record)

    policy: Any = POLICIES["linucb"].make(FACTS, "tuned")
    faulty = dataclasses.replace(policy, query=Twice(**dataclasses.asdict(policy.query)))
    claim = promise("central", 4.0)
    found = look(
        name="linucb",
        policy=faulty,
        privatizers=protect(faulty, claim, horizon=HORIZON),
        facts=FACTS,
        claim=claim,
        runs=RUNS,
    )
    assert not found.kept


def test_what_claims_nothing_is_refused() -> None:
    """No trust, an unknown trust for the bandit, an unknown bandit."""
    with pytest.raises(InvalidValue, match="claims something under local, shuffle"):
        audit("linucb", trust="none", epsilon=1.0)
    with pytest.raises(InvalidValue, match="claims something under no trust"):
        audit("gloc", trust="local", epsilon=1.0)
    with pytest.raises(InvalidValue, match="asks for no fits"):
        one_run("linucb", epsilon=1.0)


def test_canaries_pass_the_fits_and_see_them() -> None:
    """At epsilon 8 one run proves a good part of it, and not more than was claimed."""
    found = one_run("glm-rare", epsilon=8.0, canaries=1000)
    assert found.kept
    assert found.epsilon_lower > 0.8


@pytest.mark.parametrize("fault", ["noise", "clip"])
def test_canaries_name_faulty_fits(fault: str) -> None:
    """A fifth of the noise; a clip that is not there."""
    claim = Guarantee(epsilon=1.0, delta=1e-5, trust=Trust.JOINT)

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Unbounded(GLMLoss):
        def gradients(self, rows: Array, point: Array) -> Array:
            wide = dataclasses.replace(self, clip=1e9)
            return 8 * GLMLoss.gradients(wide, rows, point)

    kind = Unbounded if fault == "clip" else GLMLoss
    query = kind(
        link="logistic",
        dim=1000,
        norm=1.0,
        low=0.0,
        high=1.0,
        clip=0.5,
        fits=1,
        minimizer=Telltale(steps=2),
    )
    fits = Fits.of(query, noise_multiplier=gaussian_noise_multiplier(1.0, 1e-5), horizon=1000)
    sound = count_canaries(name="sound", fits=fits, claim=claim) if fault == "noise" else None
    if fault == "noise":
        fits = fits.with_noise(lambda noise: dataclasses.replace(noise, std=noise.std / 8))
    assert sound is None or sound.kept
    assert not count_canaries(name=fault, fits=fits, claim=claim).kept


def test_a_trigger_that_reads_exact_data_is_named() -> None:
    """A middle that shifts a release when an exact total is above what the first user decides."""
    policy: Any = POLICIES["linucb"].make(FACTS, "tuned")
    model = policy.publish(policy.init({"moments": Outlook(noisy=True)}))
    first, second = (one.told(policy, model) for one in neighbours(policy, FACTS, model))
    place = int(np.abs(first - second).argmax())
    unit = policy.query.sensitivity
    others = Example(features=jnp.full(2, 0.5 / 2**0.5), reward=jnp.asarray(0.0))
    rest = (HORIZON - 1) * float(policy.query.encode(others)[place])
    between = rest + unit * float(first[place] + second[place]) / 2

    def change(privatizer: Privatizer) -> Privatizer:
        kind: Any = type(privatizer)

        @struct
        class Leaking(kind):  # type: ignore[misc]
            def release(
                self, memory: Any, tally: Any, request: Any, clock: Clock, stream: Stream | None
            ) -> tuple[Release, Any]:
                release, now = super().release(memory, tally, request, clock, stream)
                shift = jnp.where(tally.total[place] > between, 100 * release.noise, 0.0)
                return dataclasses.replace(release, total=release.total + shift), now

        fields = [one.name for one in dataclasses.fields(kind)]
        leaking: Privatizer = Leaking(**{name: getattr(privatizer, name) for name in fields})
        return leaking

    assert not looked("central", 1.0, change).kept


def test_results_speak_plainly() -> None:
    """The words that a program reads."""
    claim = promise("central", 1.0)
    curve: Mapping[str, Any] = {"alarms": jnp.zeros(2), "hits": jnp.ones(2)}
    found = Audit(policy="x", claim=claim, epsilon_lower=1.5, failure=0.05, runs=10, **curve)
    assert found.to_dict() | {"kept": False} == found.to_dict()
    assert {"epsilon_claimed", "epsilon_lower"} < set(found.to_dict())
