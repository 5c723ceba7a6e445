"""How a bandit must treat people: blind learner, public times, bounded statistics."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from kerchief.checks.domains import answered, widest_of, wildest_of
from kerchief.checks.errors import expect, law, same
from kerchief.checks.policy_fixture import PolicyFixture, asks, by_rounds, policy_of, private
from kerchief.checks.reference_runner import (
    expect_same_facts,
    expect_same_public,
    expect_same_times,
    kept_turns,
    other_data,
    with_one_other,
)
from kerchief.core.contracts import Arms, Clock, NoiseInfo, Policy, Stops
from kerchief.core.phases import Phase, PhasePolicy
from kerchief.core.random import Stream
from kerchief.policies.context_free.base import ContextFree

_LEARNER: dict[type, tuple[str, ...]] = {
    Policy: ("init", "due", "request", "update", "refreshes", "publish"),
    ContextFree: ("propose", "ready", "memo", "learn", "recommend"),
    Stops: ("is_stopped",),
    PhasePolicy: ("phases", "init", "ask", "update", "is_settled", "finish"),
}
# What `mechanisms.exact_gaussian` sets aside for arithmetic in float64; float32 serves
# simulation only.
_ROUNDING = {np.float64: 2.0**-40, np.float32: 1e-6}


@law(cheap=True)
def learner_is_blind(case: PolicyFixture) -> None:
    """The learner's functions take what the contract says, and the device's leave nothing behind.

    A device that has chosen and recorded has not changed the policy: there is nothing on it that a
    learner could find later.
    """
    policy = policy_of(case)
    phases = case.feedback == "phases"
    for contract, names in _LEARNER.items():
        # Whatever goes by rounds is a policy, derived from it or not.
        applies = contract is Policy or isinstance(policy, contract)
        for name in names if applies and (contract is PhasePolicy) == phases else ():
            parameters = list(inspect.signature(getattr(type(policy), name)).parameters)
            allowed = list(inspect.signature(getattr(contract, name)).parameters)
            observed = f"{name}({', '.join(parameters)})"
            expect(parameters == allowed, seen=observed, expected=", ".join(allowed))
    if asks(case):
        bandit = case.arranged()
        before = dict(vars(bandit.policy))
        device = partial(_one_phase if phases else _one_round, bandit.policy, case.environment)
        outlook = {name: privatizer.outlook for name, privatizer in bandit.privatizers.items()}
        jax.eval_shape(partial(device, outlook), jnp.uint32(1))
        leftovers = [
            name for name, value in vars(bandit.policy).items() if before.get(name) is not value
        ]
        expect(
            not leftovers, seen=f"{leftovers} left on the policy by a device", expected="nothing"
        )


def _one_round(policy: Any, world: Any, outlook: Mapping[str, NoiseInfo], seed: Array) -> Any:
    """All that a device does, traced."""
    stream = Stream.of(seed=seed, replicate=0)
    clock = Clock(round=jnp.int32(0), since=dict.fromkeys(outlook, jnp.int32(1)))
    truth, model = world.init(stream), policy.publish(policy.init(outlook))
    arms = world.arms(truth, clock, stream)
    action = policy.act(model, arms, clock, stream)
    return policy.record(model, arms, action, world.reward(truth, arms, action, clock, stream))


def _one_phase(policy: Any, world: Any, outlook: Mapping[str, NoiseInfo], seed: Array) -> Any:
    """All that a client does, traced."""
    stream = Stream.of(seed=seed, replicate=0)
    truth, state = world.init(stream), policy.init(outlook)
    phase = Phase(number=jnp.int32(1), pulls=jnp.int32(2), first=jnp.int32(0), clients=jnp.int32(9))
    design = policy.ask(truth.features, state, phase, noisy=True)
    averages = world.averages(truth, truth.features[design.atoms[0]], design.pulls[0], stream)
    return policy.answer(design, 0, averages)


@law(when=lambda case: by_rounds(case) and asks(case))
def same_releases_lead_to_the_same_models(case: PolicyFixture) -> None:
    """Other data that led to the same releases leads to the same models."""
    pairs = enumerate(zip(kept_turns(case), other_data(case), strict=True))
    differ = [round for round, (usual, changed) in pairs if not same(usual.model, changed.model)]
    observed = f"other models in rounds {differ}"
    expect(not differ, seen=observed, expected="those of the same releases")


@law(when=lambda case: by_rounds(case) and asks(case))
def due_times_are_public(case: PolicyFixture) -> None:
    """Other data with the same releases ask, ask for the same, post and stop at the same times."""
    expect_same_times(other_data(case), kept_turns(case))


@law(when=lambda case: by_rounds(case) and private(case))
def one_user_shows_in_releases_alone(case: PolicyFixture) -> None:
    """One user who sees or loses something else changes nothing public but noisy releases.

    The user meets no arms to speak of, the longest ones, or each turned round: where a policy
    explores for some users, one of them explores and another does not. Where users bring no arms,
    the losses are others. All else, noise included, is the same. Then due times, requests, models
    and everyone else's actions must be the same, and so must times, counts and noise levels of what
    is released.
    """
    usual = kept_turns(case)
    for change, options in _CHANGES[case.feedback].items():
        rerun = with_one_other(case, **options)
        for round, name, release in rerun.told:
            if rerun.privatizers[name].outlook.noisy:
                expect_same_facts(name, release, usual[round].releases[name])
        expect_same_public(rerun.turns, usual, f"one user's {change}")


def _make_axes(features: Array) -> Array:
    """As many unit vectors, along one axis after another."""
    count, dim = features.shape
    return jnp.eye(dim, dtype=features.dtype)[jnp.arange(count) % dim]


def _replace_features(change: Callable[[Array], Array]) -> Callable[[Arms], Arms]:
    return lambda arms: Arms(features=change(arms.features), allowed=arms.allowed)


def _alternate_losses(size: float, losses: Any) -> Any:
    """Losses of this size with a sign for each question, in turns."""
    return (size * (-1.0) ** np.arange(losses.shape[0])).astype(losses.dtype)


_CHANGES: dict[str, dict[str, Any]] = {
    "totals": {
        "arms none to speak of": {"show": _replace_features(lambda features: 0 * features)},
        "arms longest": {"show": _replace_features(_make_axes)},
        "arms turned": {"show": _replace_features(lambda features: -features[:, ::-1])},
    },
    "reports": {
        f"losses of {size}": {"earn": partial(_alternate_losses, size)}
        for size in (1e3, -1e3, np.nan)
    },
}


@law(when=asks, cheap=True)
def statistics_obey_their_bound(case: PolicyFixture) -> None:
    """No two records of the domain are farther apart than the sensitivity, and some nearly are.

    For a loss it is their gradients that are held apart, at points near and far.
    """
    for name, (query, domain) in answered(case).items():
        distance, _ = widest_of(query, domain)
        observed = f"{name}: {distance} from two records of the domain"
        bound = query.sensitivity * (1 + _ROUNDING[np.float64])
        expect(distance <= bound, seen=observed, expected=f"at most {query.sensitivity}")
        expect(
            distance >= 0.99 * query.sensitivity,
            seen=observed,
            expected=f"near {query.sensitivity}",
        )


@law(when=asks, cheap=True)
def clipping_holds_beyond_the_domain(case: PolicyFixture) -> None:
    """Features of norm 10 or 1e30, rewards of 1e9, NaN and infinities stay within the bound.

    So do weights, losses, answers and, for a loss, the points at which gradients are taken.
    """
    for name, (query, domain) in answered(case).items():
        for kind, rounding in _ROUNDING.items():
            distance = wildest_of(query, domain, kind)
            observed = f"{name}: {distance} from wild records in {kind.__name__}"
            bound = query.sensitivity
            expect(distance <= bound * (1 + rounding), seen=observed, expected=f"at most {bound}")
