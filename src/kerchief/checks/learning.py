"""What every policy must achieve: statistical laws, sized so that each errs once in a million.

Seeds are fixed and paired: policies at one seed meet the same worlds, so differences are sharp.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from functools import partial

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from kerchief.checks.errors import Law, expect, laws_of
from kerchief.checks.fixture import HORIZON, SEED, SEGMENT, WIDTH, Case, played, promise
from kerchief.checks.statistics import ERROR, at_most_as_often, student_bound
from kerchief.core.contracts import BoundedLoss, Policy
from kerchief.policies import POLICIES
from kerchief.privacy import MemoryLedger, Trust
from kerchief.privatizers import CohortSums, Privatizer
from kerchief.simulation.loop import Scene, advance, begin

__all__ = ["yield_learning_checks"]

Floats = NDArray[np.float64]

_COPIES, _STEP, _STEPS = 256, 25, 8


def yield_learning_checks() -> Iterator[tuple[str, Law[Case]]]:
    """Name and function of every statistical law of a policy."""
    return laws_of(
        without_noise_it_is_its_parent,
        beats_uniform_play,
        more_privacy_does_not_help,
        confidence_sets_cover_the_truth,
    )


def without_noise_it_is_its_parent(case: Case) -> None:
    """With noise of deviation zero it plays as its non-private parent on the same schedule does.

    Up to rounding: 1e-4 of regret in every replicate. The parent's fits take the same few steps.
    """
    own = case.entry.parent == case.name
    kin = case.entry if own else POLICIES[case.entry.parent]
    parent = kin.make(case.environment.problem(HORIZON), "tuned")
    private = case.privatizers(20.0)
    quiet = _regret(case, case.policy(), {name: silenced(p) for name, p in private.items()})
    plain = _regret(case, parent, {name: _bare(p) for name, p in private.items()})
    gap = float(np.abs(quiet - plain).max())
    expect(gap <= 1e-4, seen=f"regrets differ by up to {gap}", expected="those of the parent")


def beats_uniform_play(case: Case) -> None:
    """On its home its regret is below uniform play's, by a paired t test at level 1e-6.

    A policy that is no better passes with probability 1e-6; one whose mean advantage is less than
    about seven of its standard errors over 64 replicates may fail.
    """
    if case.entry.home is None:
        return
    yardstick = dataclasses.replace(
        case, name="uniform", entry=POLICIES["uniform"], trust=str(Trust.NONE)
    )
    gain = played(yardstick).run.regret[-1] - played(case).run.regret[-1]
    score, bound = _score(gain), student_bound(WIDTH)
    seen = f"a mean gain of {gain.mean():.4g}, t {score:.2f}"
    expect(score > bound, seen=seen, expected=f"t above {bound:.2f}")


def more_privacy_does_not_help(case: Case) -> None:
    """Regret at epsilon 0.5 is not below regret at epsilon 20, by a paired t test at level 1e-6.

    If the two are equal in law, it errs with probability 1e-6.
    """
    dear, cheap = played(case).run.regret[-1], played(case, epsilon=0.5).run.regret[-1]
    score = _score(dear - cheap)
    bound = student_bound(WIDTH)
    seen = f"regret {cheap.mean():.4g} at 0.5, {dear.mean():.4g} at 20, t {score:.2f}"
    expect(score < bound, seen=seen, expected=f"t below {bound:.2f}")


def confidence_sets_cover_the_truth(case: Case) -> None:
    """In theory mode the truth leaves the posted set, at any time, as rarely as promised.

    Exact binomial test over 256 runs, where releases come after every round. If the promise holds,
    it errs with probability 1e-6. A policy whose sets are points, such as a greedy one, promises
    nothing.
    """
    policy = case.policy("theory", horizon=_STEP * _STEPS)
    if case.trust in (Trust.CENTRAL, Trust.SHUFFLE) or not hasattr(policy, "confidence"):
        return
    outside = _ever_outside(case, policy)
    if outside is None:
        return
    failures, promised = int(outside.sum()), float(policy.confidence)
    seen = f"the truth was outside in {failures} of {_COPIES} runs"
    fair = at_most_as_often(failures, _COPIES, promised)
    expect(fair, seen=seen, expected=f"a chance of {promised} (exact binomial, {ERROR})")


def _ever_outside(case: Case, policy: Policy) -> NDArray[np.bool_] | None:
    """Whether each run's posted set, read every few rounds, ever missed; None without sets."""
    horizon = _STEP * _STEPS
    scene = Scene(
        policy=policy,
        privatizers=dict(case.privatizers(4.0, "theory", horizon=horizon)),
        environment=case.environment,
        seed=jnp.uint32(SEED),
    )
    first = policy.publish(policy.init({n: p.outlook for n, p in scene.privatizers.items()}))
    if not hasattr(first, "inverse") or not np.asarray(first.width).any():
        return None
    carry = begin(scene, jnp.arange(_COPIES, dtype=jnp.uint32))
    outside = np.zeros(_COPIES, bool)
    for step in range(_STEPS):
        carry = advance(scene, carry, jnp.int32(step * _STEP), length=_STEP)
        gap = np.asarray(carry.world.parameter - carry.model.estimate, np.float64)
        shape = np.asarray(carry.model.inverse, np.float64)
        square = (gap * np.linalg.solve(shape, gap[..., None])[..., 0]).sum(-1)
        outside |= square > np.asarray(carry.model.width, np.float64) ** 2
    return outside


def silenced(privatizer: Privatizer) -> Privatizer:
    """The same protocol and the same code, with noise of deviation zero."""
    return privatizer.with_noise(partial(dataclasses.replace, std=0.0))


def _bare(privatizer: Privatizer) -> Privatizer:
    """No protection, on the same schedule; without steps of its own a fit would be another one."""
    query, schedule = privatizer.query, privatizer.schedule
    if isinstance(query, BoundedLoss):
        return silenced(privatizer)
    return CohortSums(query=query, schedule=schedule, device=None, aggregator=None)


def _regret(case: Case, policy: Policy, privatizers: Mapping[str, Privatizer]) -> Floats:
    return case.simulate(
        policy=policy,
        privatizers=privatizers,
        environment=case.environment,
        ledger=MemoryLedger(promise(Trust.NONE, 0.0)),
        horizon=HORIZON,
        replicates=WIDTH,
        seed=SEED,
        ticks=HORIZON // SEGMENT,
    ).regret


def _score(gain: Floats) -> float:
    """Student's t of paired differences; zero where there are none at all."""
    deviation = float(gain.std(ddof=1))
    return float(gain.mean()) / deviation * len(gain) ** 0.5 if deviation else 0.0
