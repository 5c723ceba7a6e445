"""What every policy must achieve: statistical laws, sized so that each errs once in a million.

Seeds are fixed and paired: policies at one seed meet the same worlds, so differences are sharp.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from kerchief.checks.errors import expect, law
from kerchief.checks.policy_fixture import (
    PolicyFixture,
    asks,
    by_totals,
    play,
    played,
    policy_of,
    private,
)
from kerchief.checks.statistics import ERROR, Floats, at_most_as_often, student_bound
from kerchief.core.contracts import BoundedLoss
from kerchief.deployment.protected_policy import ProtectedPolicy, terms_of
from kerchief.mechanisms.binomial import Binomial
from kerchief.mechanisms.compass import Compass
from kerchief.mechanisms.one_bit import OneBit
from kerchief.mechanisms.privunit import PrivUnitG
from kerchief.mechanisms.shortlist import Shortlist
from kerchief.policies import POLICIES, Mode, PolicyEntry
from kerchief.privacy import MemoryLedger, Trust
from kerchief.privatizers import CohortSums, Privatizer
from kerchief.privatizers.channels import channel_of
from kerchief.simulation.loop import advance, begin
from kerchief.simulation.run import Run

_COPIES, _STEP, _STEPS = 256, 25, 8
# Whose reports are no sum of statistic and noise.
_UNSUMMED = (PrivUnitG, Shortlist, Compass, OneBit)


def _has_exact_parent(case: PolicyFixture) -> bool:
    """Not greedy play in a population: without a width, rounding breaks ties in another way."""
    return asks(case) and not (case.feedback == "phases" and case.name == "greedy")


@law(when=_has_exact_parent)
def without_noise_it_is_its_parent(case: PolicyFixture) -> None:
    """With noise of deviation zero it plays as its non-private parent on the same schedule does.

    Up to rounding: 1e-4 of regret in every replicate, and a millionth of the rounds. The parent's
    fits take the same few steps, and both are built for what is left of the noise. Phases have the
    widths of the theory, by which no client's answer is clipped.
    """
    mode: Mode = "theory" if case.feedback == "phases" else "tuned"
    bandit = case.arranged(mode=mode)
    quiet = {name: silenced(p) for name, p in bandit.privatizers.items()}
    plain = {name: bare(p) for name, p in bandit.privatizers.items()}
    own = case.entry.parent == case.name or case.entry.parent not in set(POLICIES)
    parent = case.entry if own else POLICIES[case.entry.parent]
    regret = _measure_regret(
        case,
        ProtectedPolicy(policy=_build_policy(case, case.entry, mode, quiet), privatizers=quiet),
    )
    parent_regret = _measure_regret(
        case, ProtectedPolicy(policy=_build_policy(case, parent, mode, plain), privatizers=plain)
    )
    gap, room = float(np.abs(regret - parent_regret).max()), max(1e-4, 1e-6 * case.size.horizon)
    expect(gap <= room, seen=f"regrets differ by up to {gap}", expected="those of the parent")


def _build_policy(case: PolicyFixture, entry: PolicyEntry, mode: Any, privatizers: Any) -> Any:
    """Build the policy with the public facts of silent noise."""
    terms = terms_of(case.promise())
    for privatizer in privatizers.values() if case.feedback == "reports" else ():
        terms = dataclasses.replace(terms, channel=channel_of(privatizer))
    has_terms = case.trust != Trust.NONE or case.feedback == "reports"
    return entry.build(case.problem, mode, terms if has_terms else None)


def _measure_regret(case: PolicyFixture, bandit: ProtectedPolicy) -> Floats:
    free = dataclasses.replace(case, trust=str(Trust.NONE)).promise()
    return play(case, bandit, ledger=MemoryLedger(free)).run.regret


@law(when=lambda case: case.entry.default_environment is not None)
def beats_uniform_play(case: PolicyFixture) -> None:
    """On its home its regret is below uniform play's, by a paired t test at level 1e-6.

    One whose aim is the best arm names it more often than a guess would (exact binomial, 1e-6).

    A policy that is no better passes with probability 1e-6; one whose mean advantage is less than
    about seven of its standard errors over 64 replicates may fail.
    """
    entry, world = POLICIES["uniform"], case.environment
    yardstick = PolicyFixture.of("uniform", entry, str(Trust.NONE), environment=world)
    run = played(case, epsilon=20.0).run
    if case.entry.aim == "best arm":
        _expect_names_the_best(run, case.problem.arms)
        return
    gain = played(yardstick).run.regret[-1] - run.regret[-1]
    score, bound = _compute_t_score(gain)
    observed = f"a mean gain of {gain.mean():.4g}, t {score:.2f}"
    expect(score > bound, seen=observed, expected=f"t above {bound:.2f}")


def _expect_names_the_best(run: Run, arms: int) -> None:
    assert run.right is not None
    right, count = int(run.right.sum()), len(run.right)
    observed = f"the best of {arms} arms named in {right} of {count} runs"
    expect(
        not at_most_as_often(right, count, 1 / arms), seen=observed, expected="more than a guess"
    )


@law(when=private)
def more_privacy_does_not_help(case: PolicyFixture) -> None:
    """Regret at epsilon 0.5 is not below regret at epsilon 20, by a paired t test at level 1e-6.

    If the two are equal in law, it errs with probability 1e-6.
    """
    dear, cheap = (played(case, epsilon=epsilon).run.regret[-1] for epsilon in (20.0, 0.5))
    score, bound = _compute_t_score(dear - cheap)
    observed = f"regret {cheap.mean():.4g} at 0.5, {dear.mean():.4g} at 20, t {score:.2f}"
    expect(score < bound, seen=observed, expected=f"t below {bound:.2f}")


@law(when=lambda case: by_totals(case) and hasattr(policy_of(case), "confidence"))
def confidence_sets_cover_the_truth(case: PolicyFixture) -> None:
    """In theory mode the truth leaves the posted set, at any time, as rarely as promised.

    Exact binomial test over 256 runs, where releases come after every round. If the promise holds,
    it errs with probability 1e-6. A policy whose sets are points, such as a greedy one, promises
    nothing.
    """
    bandit: Any = case.arranged(4.0, mode="theory", horizon=_STEP * _STEPS)
    late = case.trust in (Trust.CENTRAL, Trust.SHUFFLE)
    outside = None if late else _find_misses(case, bandit)
    if outside is None:
        return
    failures, promised = int(outside.sum()), float(bandit.policy.confidence)
    observed = f"the truth was outside in {failures} of {_COPIES} runs"
    fair = at_most_as_often(failures, _COPIES, promised)
    expect(fair, seen=observed, expected=f"a chance of {promised} (exact binomial, {ERROR})")


def _find_misses(case: PolicyFixture, bandit: Any) -> NDArray[np.bool_] | None:
    """Whether each run's posted set, read every few rounds, ever missed; None without sets."""
    policy, scene = bandit.policy, case.scene(bandit)
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
    """Copy a privatizer with noise of deviation zero and no other change."""
    return privatizer.with_noise(partial(dataclasses.replace, std=0.0))


def summed(privatizer: Privatizer) -> Privatizer:
    """Silence noise that replaces a statistic instead of being added to it."""
    unsummed = any(isinstance(noise, _UNSUMMED) for noise in privatizer.noises)
    return silenced(privatizer) if unsummed else privatizer


def most_moved(privatizer: Privatizer, *, rounding: float) -> float:
    """Compute the sensitivity, plus a step per coordinate that is rounded at random."""
    steps = [float(noise.step) for noise in privatizer.noises if isinstance(noise, Binomial)]
    query: Any = privatizer.query
    width = query.dim if isinstance(query, BoundedLoss) else query.size
    return float(query.sensitivity * (1 + rounding) + max(steps, default=0.0) * width**0.5)


def bare(privatizer: Privatizer) -> Privatizer:
    """Strip the protection of a privatizer and keep its schedule.

    A fit keeps its protocol, with silent noise: without its own steps it would be another fit.
    """
    query, schedule = privatizer.query, privatizer.schedule
    if isinstance(query, BoundedLoss):
        return silenced(privatizer)
    running = getattr(privatizer, "running", True)
    return CohortSums(query=query, schedule=schedule, device=None, aggregator=None, running=running)


def _compute_t_score(gain: Floats) -> tuple[float, float]:
    """Student's t of paired differences, zero where there are none, and how far it may stray."""
    deviation = float(gain.std(ddof=1))
    score = float(gain.mean()) / deviation * len(gain) ** 0.5 if deviation else 0.0
    return score, student_bound(len(gain))
