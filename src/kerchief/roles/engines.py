"""The two ways in which one bandit runs: as one compiled call per step, or role by role."""

from __future__ import annotations

import dataclasses
import functools
import secrets
from collections.abc import Mapping
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from kerchief.core.contracts import Arms, Policy, Tree
from kerchief.core.problems import Problem
from kerchief.core.random import Stream
from kerchief.core.struct import struct
from kerchief.mechanisms.exact_continual import ExactContinualNoise
from kerchief.mechanisms.exact_gaussian import ExactGaussian
from kerchief.privacy.ledger import Ledger
from kerchief.privatizers.billing import Receipts, pay
from kerchief.privatizers.privatizer import Noise, Privatizer
from kerchief.roles.curator import Curator
from kerchief.roles.device import Device
from kerchief.roles.learner import Learner
from kerchief.roles.packing import Packing
from kerchief.roles.pool import Pooled
from kerchief.roles.round import Carry, Round
from kerchief.roles.uncopyable import Guarded
from kerchief.roles.values import check_rows, longest

__all__ = ["Apart", "Compiled", "Engine"]


class Engine(Protocol):
    """Runs one bandit; shapes and rewards were checked before."""

    @property
    def model(self) -> Tree:
        """What is public."""

    def open(self, ledger: Ledger, horizon: int) -> Receipts:
        """Pay for the whole run, before any noise is drawn."""

    def act(self, features: NDArray[np.float64], allowed: NDArray[np.bool_] | None) -> int:
        """Choose among the rows, or raise InvalidValue if one is too long; None allows all."""

    def learn(self, reward: float) -> None:
        """End the round."""

    def snapshot(self) -> Tree:
        """What a restart needs, for the codec; holds nothing random and no pending round."""

    def resume(self, snapshot: Tree) -> None:
        """Go on from a snapshot."""


@struct
class Kept(Carry):
    """A bandit between two calls; the seed's bits are a signed number, like the counters."""

    seed: Array
    round: Array

    @property
    def root(self) -> Stream:
        """Where its randomness begins."""
        return Stream.of(seed=self.seed.astype(jnp.uint32), replicate=0)


class Program:
    """The compiled functions of a round, for arms of one shape; they hold no bandit's memory."""

    def __init__(
        self,
        policy: Policy,
        privatizers: tuple[tuple[str, Privatizer], ...],
        arms: int,
        dim: int,
    ) -> None:
        """Compile everything, before the first user comes."""
        self._round = Round(policy=policy, privatizers=dict(privatizers))
        self._arms, self._dim = arms, dim
        self.begin = jax.jit(self._begun)
        self.choose, self.learn = jax.jit(self._chosen), jax.jit(self._learned)
        self.learn_and_choose = jax.jit(self._learned_and_chosen)
        kept = self.begin(np.uint32(0))
        self.packing = Packing.of(kept)
        packed, facts = self.packing.pack(kept), self.blank()
        self.choose(packed, facts)
        self.learn_and_choose(self.learn(packed, facts), facts, facts)

    def blank(self) -> NDArray[np.float64]:
        """Room for a round's facts: features, which are allowed, the action and the reward."""
        return np.zeros(self._arms * (self._dim + 1) + 2)

    def _begun(self, seed: Array) -> Kept:
        return Kept(seed=seed.astype(jnp.int32), round=jnp.int32(0), **vars(self._round.begin()))

    def _chosen(self, packed: list[Array], facts: Array) -> Array:
        """The action, and the square of the longest row (not a number if some entry is not)."""
        kept, arms = self.packing.unpack(packed), self._offered(facts)
        action = self._round.act(kept, arms, kept.round, kept.root)
        return jnp.stack([action.astype(jnp.float32), (arms.features**2).sum(-1).max()])

    def _learned(self, packed: list[Array], facts: Array) -> list[Array]:
        kept, arms = self.packing.unpack(packed), self._offered(facts)
        action, reward = facts[-2].astype(jnp.int32), facts[-1].astype(jnp.float32)
        kept = self._round.learn(kept, arms, action, reward, kept.round, kept.root)
        for name, due in self._round.wishes(kept, kept.round).items():
            serve = functools.partial(
                self._round.serve, name=name, round=kept.round, root=kept.root
            )
            kept = jax.lax.cond(due, serve, lambda same: same, kept)
        return self.packing.pack(dataclasses.replace(kept, round=kept.round + 1))

    def _learned_and_chosen(
        self, packed: list[Array], facts: Array, offered: Array
    ) -> tuple[list[Array], Array]:
        packed = self._learned(packed, facts)
        return packed, self._chosen(packed, offered)

    def _offered(self, facts: Array) -> Arms:
        size = self._arms * self._dim
        features = facts[:size].reshape(self._arms, self._dim).astype(jnp.float32)
        return Arms(features=features, allowed=facts[size:-2] > 0)


_shared = functools.lru_cache(maxsize=64)(Program)


def _program(policy: Policy, privatizers: Mapping[str, Privatizer], problem: Problem) -> Program:
    """Bandits that differ in their memory alone share one program."""
    parts: Any = (policy, tuple(privatizers.items()), problem.arms, problem.dim)
    try:
        hash(parts)
    except TypeError:
        # A policy with arrays among its parameters cannot be looked up.
        return Program(*parts)
    return _shared(*parts)


class Compiled(Guarded):
    """Every step one call of compiled code, for simulated noise and for none.

    What a call costs here is its entry, not its arithmetic: so the memory is a few vectors, a
    round's facts are one, the arms' lengths are measured where the arm is chosen, and learning
    waits for the next decision (or for someone to look) to share its call.
    """

    def __init__(
        self,
        *,
        policy: Policy,
        privatizers: Mapping[str, Privatizer],
        problem: Problem,
        seed: int | None,
    ) -> None:
        """Begin one policy under one protection; without a seed its coins are secret."""
        self._privatizers, self._problem = dict(privatizers), problem
        self._most = longest(problem) ** 2
        self._seed = np.uint32(secrets.randbits(32) if seed is None else seed)
        self._program = _program(policy, privatizers, problem)
        self._packed = self._program.packing.pack(self._program.begin(self._seed))
        self._facts, self._spare = self._program.blank(), self._program.blank()
        self._waiting = False

    @property
    def model(self) -> Tree:
        """What is public."""
        return self._kept().model

    def open(self, ledger: Ledger, horizon: int) -> Receipts:
        """Pay for the whole run."""
        return pay(self._privatizers, ledger, horizon=horizon)

    def act(self, features: NDArray[np.float64], allowed: NDArray[np.bool_] | None) -> int:
        """Choose among the rows; the rest of the arms is masked."""
        facts, count, problem = self._spare, len(features), self._problem
        size = problem.arms * problem.dim
        if count < problem.arms:
            facts[:] = 0.0
        facts[: count * problem.dim] = features.ravel()
        facts[size : size + count] = 1.0 if allowed is None else allowed
        # Going by NumPy costs a sixth of reading a JAX array item by item.
        action, length = np.asarray(self._chosen(facts)).tolist()
        if not length <= self._most:
            check_rows(features, problem)
        facts[-2] = action
        # Only now: arms that were refused must not displace a pending decision.
        self._facts, self._spare = facts, self._facts
        return int(action)

    def learn(self, reward: float) -> None:
        """Note the reward; what follows from it shares the next call."""
        self._facts[-1] = reward
        self._waiting = True

    def snapshot(self) -> Tree:
        """The carry, without its seed and without the present cohort."""
        kept = self._kept()
        return {name: getattr(kept, name) for name in vars(kept) if name not in ("seed", "tally")}

    def resume(self, snapshot: Tree) -> None:
        """Go on from a carry, with this engine's own seed and an empty cohort."""
        fresh = self._program.begin(self._seed)
        self._packed = self._program.packing.pack(dataclasses.replace(fresh, **snapshot))

    def _chosen(self, offered: NDArray[np.float64]) -> Array:
        """Choose; learn first, if a reward waits."""
        chosen: Array
        if self._waiting:
            self._waiting = False
            step = self._program.learn_and_choose
            self._packed, chosen = step(self._packed, self._facts, offered)
        else:
            chosen = self._program.choose(self._packed, offered)
        return chosen

    def _kept(self) -> Kept:
        if self._waiting:
            self._waiting = False
            self._packed = self._program.learn(self._packed, self._facts)
        kept: Kept = self._program.packing.unpack([np.asarray(part) for part in self._packed])
        return kept


class Apart(Guarded):
    """Device, curator and learner side by side in one process, for exact noise.

    The statistic is encoded in float64 by compiled code, the noise is added on the host, from a
    pool that was filled before, and the learner's update is compiled again.
    """

    def __init__(
        self,
        *,
        policy: Policy,
        privatizers: Mapping[str, Privatizer],
        problem: Problem,
        ledger: Ledger,
    ) -> None:
        """Set up the roles; nothing is charged before `open`."""
        pooled = {name: one.with_noise(_pooled) for name, one in privatizers.items()}
        self._device = Device(policy=policy, privatizers=pooled)
        self._curator = Curator(privatizers=pooled, ledger=ledger, horizon=problem.horizon)
        self._learner = Learner.beside(self._curator.release, policy=policy, privatizers=pooled)
        # Not for privacy: the coins that a policy tosses to explore.
        self._stream = Stream.of(seed=secrets.randbits(32), replicate=0)
        self._problem = problem

    @property
    def model(self) -> Tree:
        """What is public."""
        return jax.tree.map(np.asarray, self._learner.model)

    def open(self, ledger: Ledger, horizon: int) -> Receipts:
        """Pay for the whole run."""
        return self._curator.open()

    def act(self, features: NDArray[np.float64], allowed: NDArray[np.bool_] | None) -> int:
        """Choose among the rows, on the device."""
        check_rows(features, self._problem)
        arms, dim = self._problem.arms, self._problem.dim
        padded, mask = np.zeros((arms, dim)), np.zeros(arms, np.bool_)
        padded[: len(features)] = features
        mask[: len(features)] = True if allowed is None else allowed
        return self._device.act(self._learner.post(), _arms(padded, mask), self._stream)

    def learn(self, reward: float) -> None:
        """Report, collect, release and update."""
        self._curator.collect(self._device.reports(reward, None).answers)
        self._learner.tick()

    def snapshot(self) -> Tree:
        """What the curator and the learner remember."""
        desks, learner = dict(self._curator.desks), dict(self._learner.snapshot())
        return {"desks": desks, "users": self._curator.users, "learner": learner}

    def resume(self, snapshot: Tree) -> None:
        """Go on from a snapshot; the ledger already holds the receipts."""
        self._curator.resume(snapshot["desks"], users=snapshot["users"])
        self._learner.resume(snapshot["learner"])


def _arms(features: Any, allowed: Any) -> Arms:
    return Arms(features=features, allowed=allowed)


def _pooled(noise: Noise) -> Noise:
    """The same exact noise, drawn in bulk."""
    match noise:
        case ExactGaussian():
            return Pooled(noise)
        case ExactContinualNoise():
            seeds: Any = tuple(map(_pooled, noise.seeds))
            return dataclasses.replace(noise, seeds=seeds)
    return noise
