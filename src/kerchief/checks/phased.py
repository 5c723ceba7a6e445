"""What every bandit for populations must do: noise as charged, one release a client, no other way.

A small population is met phase by phase in the engine of `simulation.phases`, many replicates at
once, so that the noise of one phase is drawn often enough: a deviation that is a third too small is
told from the true one with an error of 1e-6. Seeds are fixed.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from kerchief.checks.errors import CheckFailed, Law, expect, laws_of, run_laws
from kerchief.checks.fixture import SEED, promise
from kerchief.checks.leakage import charged_multiplier
from kerchief.checks.search import lengths
from kerchief.checks.statistics import fits_deviation, least_draws
from kerchief.core.phases import Asked, Phase
from kerchief.core.random import Stream
from kerchief.core.struct import struct
from kerchief.environments.population import Population, World
from kerchief.policies.phased import Entry
from kerchief.policies.registry import Mode
from kerchief.privacy import MemoryLedger
from kerchief.privatizers import CohortSums
from kerchief.simulation.phases import (
    Carry,
    Protocol,
    Scene,
    arrange,
    begin,
    learn,
    play,
    simulate_phases,
)

__all__ = ["PhasedCase", "check_phased", "phased_cases", "yield_phased_checks"]

Floats = NDArray[np.float64]

# So little noise that three phases fit, and so many rounds.
_HORIZON, _WIDTH, _EPSILON = 16_000, 160, 20.0
# Among how many clients the two who differ most are searched for.
_CLIENTS = 128
# How near to what was asked the bill comes where it is counted in coins.
_COINS = 0.03
_NONE: Mapping[str, str] = {}


@dataclasses.dataclass(frozen=True, kw_only=True)
class PhasedCase:
    """A bandit for populations under one trust, and the rooms around it.

    Attributes:
        name: how reports call it.
        entry: builds the policy and states its facts.
        trust: a word of `--trust`.
        population: the world, small.
        arrange: gives it its phases and its privatizer.
        play: plays one phase of all replicates.
    """

    name: str
    entry: Entry
    trust: str
    population: Population = dataclasses.field(
        default_factory=lambda: Population.of(
            dim=2, arms=6, clients=_HORIZON, radius=0.8, spread=0.1
        )
    )
    arrange: Callable[..., Protocol] = arrange
    play: Callable[[Scene, Carry, Phase], Carry] = play

    def __str__(self) -> str:
        """The name and the trust."""
        return f"{self.name} under {self.trust}"

    def policy(self, mode: Mode = "tuned") -> Any:
        """A fresh copy, built from public facts alone."""
        return self.entry.make(self.population.problem(_HORIZON), mode)

    def protocol(self, trust: str, mode: Mode = "tuned") -> Protocol:
        """Its phases and its privatizer under a trust."""
        return self.arrange(self.policy(mode), promise(trust, _EPSILON))


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Run:
    """A case on its way through the phases, without a ledger."""

    case: PhasedCase
    privatizer: CohortSums
    mode: Mode
    population: Population

    @property
    def scene(self) -> Scene:
        return Scene(
            policy=self.case.policy(self.mode),
            privatizer=self.privatizer,
            population=self.population,
            seed=jnp.uint32(SEED),
        )

    def begin(self) -> Carry:
        carry: Carry = begin(self.scene, jnp.arange(_WIDTH, dtype=jnp.uint32))
        return carry

    def after(self, carry: Carry, phase: Phase) -> Carry:
        after: Carry = self.case.play(self.scene, carry, jax.tree.map(jnp.int32, phase))
        return after


def phased_cases() -> Iterator[PhasedCase]:
    """Every registered bandit that asks, under each of its trusts."""
    for name, entry in PHASED.items():
        case = PhasedCase(name=name, entry=entry, trust="none")
        if isinstance(case.policy(), Asking):
            yield from (dataclasses.replace(case, trust=trust) for trust in entry.trusts)


def check_phased(
    name: str, trust: str, *, expected_failures: Mapping[str, str] = _NONE, **rooms: Any
) -> None:
    """Hold a registered bandit for populations to every law, under one trust.

    Args:
        name: of the registry.
        trust: a word of `--trust`.
        expected_failures: laws that are known to fail, each with the reason.
        rooms: what `PhasedCase` shall have in place of ours.

    Raises:
        CheckFailed: one or more laws are broken.
    """
    case = PhasedCase(name=name, entry=PHASED[name], trust=trust, **rooms)
    failures = run_laws(case, yield_phased_checks(), expected_failures=expected_failures)
    if failures:
        raise CheckFailed(str(case), failures)


def yield_phased_checks() -> Iterator[tuple[str, Law[PhasedCase]]]:
    """Name and function of every law of a bandit for populations; each takes a `PhasedCase`."""
    return laws_of(
        noise_is_what_was_charged,
        one_client_moves_one_release,
        the_learner_sees_releases_alone,
        without_noise_it_is_the_parent,
        spent_is_no_more_than_promised,
    )


def noise_is_what_was_charged(case: PhasedCase) -> None:
    """Beside the same phase without noise, what a release adds is as large as the event says.

    Under local trust it is as large for each client. Chi-square at 1e-6, and two thirds of the
    deviation are rejected.
    """
    protocol = case.protocol(case.trust)
    noisy, quiet = (
        run.after(run.begin(), protocol.phases[0])
        for run in (_of(case, protocol), _of(case, protocol, silent=True))
    )
    asked = np.asarray(noisy.last.count) > 0
    draws: Floats = np.asarray(noisy.last.total - quiet.last.total)[asked]
    privatizer = _protected(protocol)
    if not privatizer.noises:
        expect(not draws.any(), seen=f"noise of {np.abs(draws).max()}", expected="none")
        return
    if privatizer.noisy_device:
        draws = draws / np.sqrt(np.asarray(noisy.last.count)[asked])[:, None]
    expect(draws.size >= least_draws(), seen=f"{draws.size} draws", expected="enough to tell")
    event = privatizer.charges(protocol.clients)[0].event
    charged = charged_multiplier(event) * privatizer.query.sensitivity
    seen = f"a deviation of {draws.std():.4g} over {draws.size} draws"
    expect(fits_deviation(draws, charged), seen=seen, expected=f"{charged:.4g}, as charged")


def one_client_moves_one_release(case: PhasedCase) -> None:
    """A client with other rewards moves the release of its phase by the sensitivity, and no other.

    The two clients are those whose answers lie farthest apart, of many who saw the best, the worst
    or nothing on each action, or what nobody can see. All else is the same, noise included. The
    phases before are the same; so are those after, once the learner is given the same release.
    """
    protocol = case.protocol(case.trust)
    first, second, third = protocol.phases[:3]
    run = _of(case, protocol)
    # A bandit that settles after one phase asks in that one alone.
    begun, played = run.begin(), run.after(run.begin(), first)
    once = bool(played.done.all())
    now, later = (first, second) if once else (second, third)
    client = int(now.first) + 1
    high, low = (
        _of(case, protocol, population=_with_one_other(case.population, client, saw))
        for saw in _farthest_clients(run, begun if once else played, now)
    )
    early = [run.begin() if once else run.after(run.begin(), first) for run in (high, low)]
    _expect_same(early, "the phase before a client is asked")
    both = [run.after(early[0], now) for run in (high, low)]
    moved = np.sqrt(((both[0].last.total - both[1].last.total) ** 2).sum((1, 2)))
    most = _reach(_protected(protocol))
    seen = f"a release that moves by {float(moved.max()):.4g}"
    expect(moved.max() <= most, seen=seen, expected=f"{most:.4g} at most")
    expect(moved.max() > 0, seen=seen, expected="more than nothing, as the client is asked")
    _expect_same([run.after(both[0], later) for run in (high, low)], "a later phase")


def the_learner_sees_releases_alone(case: PhasedCase) -> None:
    """What the learner knows after a phase is what the release, by itself, makes of its state."""
    protocol = case.protocol(case.trust)
    run = _of(case, protocol)
    carry, policy = run.begin(), case.policy()
    for phase in protocol.phases[:2]:
        after = run.after(carry, phase)
        alone = _learned(policy, carry, after, phase, _protected(protocol).outlook.noisy)
        played = np.asarray(after.releases > carry.releases)
        pairs = zip(jax.tree.leaves(alone), jax.tree.leaves(after.state), strict=True)
        differ = any((np.asarray(a)[played] != np.asarray(b)[played]).any() for a, b in pairs)
        where = f"phase {int(phase.number)}"
        expect(not differ, seen=f"another state after {where}", expected="that of its release")
        carry = after


def without_noise_it_is_the_parent(case: PhasedCase) -> None:
    """With silent noise it plays and keeps what the non-private bandit plays and keeps.

    With widths of the theory, by which no client's answer is clipped.
    """
    plain, protocol = case.protocol("none", "theory"), case.protocol(case.trust, "theory")
    runs = (_of(case, plain, mode="theory"), _of(case, protocol, silent=True, mode="theory"))
    expected, found = (run.begin() for run in runs)
    for phase in plain.phases:
        expected, found = runs[0].after(expected, phase), runs[1].after(found, phase)
    differ = (np.asarray(found.state.allowed) != np.asarray(expected.state.allowed)).any(1)
    seen = f"other survivors in {int(differ.sum())} of {_WIDTH} runs"
    expect(not differ.any(), seen=seen, expected="those of the parent")
    gap = float(np.abs(found.regret - expected.regret).max())
    expect(gap <= 1e-6 * _HORIZON, seen=f"a regret {gap:.4g} away", expected="that of the parent")


def spent_is_no_more_than_promised(case: PhasedCase) -> None:
    """A run is charged what was promised, and hardly less."""
    budget = promise(case.trust, _EPSILON)
    protocol, ledger = case.protocol(case.trust), MemoryLedger(budget)
    simulate_phases(
        policy=case.policy(),
        protocol=protocol,
        population=case.population,
        ledger=ledger,
        horizon=_HORIZON,
        replicates=2,
        seed=SEED,
        ticks=1,
    )
    spent = ledger.spent()
    if case.trust == "none":
        expect(math.isinf(spent.epsilon), seen=spent, expected="no promise")
        return
    near = (1 - _COINS) * _EPSILON <= spent.epsilon <= _EPSILON * (1 + 1e-9)
    expect(near and spent.delta <= budget.delta, seen=spent, expected=f"{budget}, as promised")


def _farthest_clients(run: _Run, carry: Carry, phase: Phase) -> Floats:
    """What two clients saw on each action whose answers, in the first replicate, differ most."""
    policy, query = run.scene.policy, run.privatizer.query
    assert isinstance(policy, Asking)
    one: Carry = jax.tree.map(lambda leaf: jnp.asarray(leaf)[0], carry)
    noisy = run.privatizer.outlook.noisy
    asked: Asked = _asked(policy, one, jax.tree.map(jnp.int32, phase), noisy=noisy)
    rng, size = np.random.default_rng(0), (_CLIENTS, asked.atoms.shape[1])
    saw = rng.choice([-1.0, 0.0, 1.0], size=size)
    saw[:2] = [[1.0], [-1.0]]
    saw[2:16] = rng.choice([1e3, -1e30, np.inf, -np.inf, np.nan], size=(14, size[1]))
    answers = jax.vmap(lambda row: query.encode(policy.answer(asked, 0, row)))(jnp.asarray(saw))
    apart = lengths(np.asarray(answers)[:, None] - np.asarray(answers)[None, :])
    return saw[list(np.unravel_index(int(apart.argmax()), apart.shape))]


@partial(jax.jit, static_argnames="noisy")
def _asked(policy: Asking, carry: Carry, phase: Phase, *, noisy: bool) -> Asked:
    return policy.ask(carry.world.features, carry.state, phase, noisy=noisy)


@struct
class _OneOther(Population):
    """A population in which one client saw something else."""

    client: Array
    saw: Array

    def averages(self, world: World, features: Array, pulls: Array, stream: Stream) -> Array:
        """What one client saw."""
        usual = Population.averages(self, world, features, pulls, stream)
        other = jnp.where(pulls > 0, self.saw.astype(usual.dtype), 0)
        return jnp.where(stream.round == self.client, other, usual)


def _with_one_other(population: Population, client: int, saw: Floats) -> _OneOther:
    return _OneOther(**vars(population), client=jnp.uint32(client), saw=jnp.asarray(saw))


def _of(
    case: PhasedCase,
    protocol: Protocol,
    *,
    silent: bool = False,
    mode: Mode = "tuned",
    population: Population | None = None,
) -> _Run:
    privatizer = _protected(protocol)
    if silent:
        privatizer = privatizer.with_noise(partial(dataclasses.replace, std=0.0))
    return _Run(
        case=case,
        privatizer=privatizer,
        mode=mode,
        population=case.population if population is None else population,
    )


def _protected(protocol: Protocol) -> CohortSums:
    privatizer = protocol.untimed
    expect(privatizer is not None, seen="a protocol that asks nothing", expected="a privatizer")
    assert privatizer is not None
    return privatizer


@partial(jax.jit, static_argnames="noisy")
def _learned(policy: Asking, carry: Carry, after: Carry, phase: Phase, noisy: bool) -> Any:
    def one(carry: Carry, after: Carry) -> Any:
        features = carry.world.features
        asked = policy.ask(features, carry.state, phase, noisy=noisy)
        return learn(policy, features, carry.state, asked, phase, after.last)

    return jax.lax.map(lambda pair: one(*pair), (carry, after))


def _reach(privatizer: CohortSums) -> float:
    """The sensitivity, with a step a coordinate where answers are rounded to a grid."""
    step = max((float(getattr(noise, "grid", 0.0)) for noise in privatizer.noises), default=0.0)
    query = privatizer.query
    return query.sensitivity * (1 + 1e-6) + step * math.sqrt(query.size)


def _expect_same(carries: list[Carry], where: str) -> None:
    first, second = (np.asarray(carry.last.total) for carry in carries)
    same = np.array_equal(first, second)
    expect(same, seen=f"another release in {where}", expected="the same, whatever one client saw")
