"""How a bandit must treat people: blind learner, bounded statistics, public times, fair bills."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from kerchief.checks.case import (
    DELTA,
    Case,
    asks,
    by_reports,
    by_rounds,
    play,
    played,
    policy_of,
    private,
)
from kerchief.checks.domains import first_action, queries_of, widest_of, wildest_of
from kerchief.checks.errors import expect, law, same
from kerchief.checks.player import (
    TURNS,
    expect_same_public,
    expect_same_times,
    kept_turns,
    other_data,
    with_one_other,
)
from kerchief.core.contracts import Arms, BoundedLoss, Clock, Policy, Stops
from kerchief.core.errors import BudgetExceeded
from kerchief.core.phases import Phase, PhasePolicy
from kerchief.core.random import Stream
from kerchief.policies.context_free.base import ContextFree
from kerchief.privacy import Cohort, Gaussian, Guarantee, Ledger, Trust, gaussian_noise_multiplier
from kerchief.privacy.rules import ROUNDING
from kerchief.privatizers import At, Privatizer
from kerchief.privatizers.billing import pay
from kerchief.roles.arrange import Arranged

__all__ = ["PRIVACY_LAWS", "users_of"]

# How near to what was asked a charge comes: in general, and where it is counted in coins.
_MILLIONTH, _COINS = 1e-6, 0.03

Floats = NDArray[np.float64]

_LEARNER: dict[type, tuple[str, ...]] = {
    Policy: ("init", "due", "request", "update", "refreshes", "publish"),
    ContextFree: ("propose", "learn", "recommend"),
    Stops: ("stopped",),
    PhasePolicy: ("phases", "init", "ask", "update", "settled", "finish"),
}
# What `mechanisms.discrete_gaussian` sets aside for arithmetic in float64; float32 serves
# simulation only.
_ROUNDING = {np.float64: 2.0**-40, np.float32: 1e-6}


@law(cheap=True)
def learner_is_blind(case: Case) -> None:
    """The learner's functions take what the contract says, and the device's leave nothing behind.

    A device that has chosen and recorded has not changed the policy: there is nothing on it that a
    learner could find later.
    """
    policy = policy_of(case)
    phases = case.feedback == "phases"
    for contract, names in _LEARNER.items():
        kept = (contract is PhasePolicy) == phases and isinstance(
            policy, contract if contract is not Policy else object
        )
        for name in names if kept else ():
            taken = list(inspect.signature(getattr(type(policy), name)).parameters)
            allowed = list(inspect.signature(getattr(contract, name)).parameters)
            seen = f"{name}({', '.join(taken)})"
            expect(taken == allowed, seen=seen, expected=", ".join(allowed))
    if asks(case):
        made = case.arranged()
        before = dict(vars(made.policy))
        jax.eval_shape(partial(_one_phase if phases else _one_round, case, made), jnp.uint32(1))
        left = sorted(
            name for name, one in vars(made.policy).items() if before.get(name) is not one
        )
        expect(not left, seen=f"{left} left on the policy by a device", expected="nothing")


def _one_round(case: Case, made: Arranged, seed: Any) -> Any:
    """All that a device does, traced."""
    policy, world, stream = (
        _any(made.policy),
        _any(case.environment),
        Stream.of(seed=seed, replicate=0),
    )
    outlook = {name: p.outlook for name, p in made.privatizers.items()}
    clock = Clock(round=jnp.int32(0), since=dict.fromkeys(outlook, jnp.int32(1)))
    truth, model = world.init(stream), policy.publish(policy.init(outlook))
    arms = world.arms(truth, clock, stream)
    action = policy.act(model, arms, clock, stream)
    return policy.record(model, arms, action, world.reward(truth, arms, action, clock, stream))


def _one_phase(case: Case, made: Arranged, seed: Any) -> Any:
    """All that a client does, traced."""
    policy, world, stream = (
        _any(made.policy),
        _any(case.environment),
        Stream.of(seed=seed, replicate=0),
    )
    truth, state = (
        world.init(stream),
        policy.init({n: p.outlook for n, p in made.privatizers.items()}),
    )
    phase = Phase(number=jnp.int32(1), pulls=jnp.int32(2), first=jnp.int32(0), clients=jnp.int32(9))
    asked = policy.ask(truth.features, state, phase, noisy=True)
    seen = world.averages(truth, truth.features[asked.atoms[0]], asked.pulls[0], stream)
    return policy.answer(asked, 0, seen)


def _any(thing: Any) -> Any:
    return thing


@law(when=lambda case: by_rounds(case) and asks(case))
def same_releases_lead_to_the_same_models(case: Case) -> None:
    """Other data that led to the same releases leads to the same models."""
    first, other = kept_turns(case), other_data(case)
    differ = [i for i in range(TURNS) if not same(first[i].model, other[i].model)]
    expect(
        not differ, seen=f"other models in rounds {differ}", expected="those of the same releases"
    )


@law(when=lambda case: by_rounds(case) and asks(case))
def due_times_are_public(case: Case) -> None:
    """Other data with the same releases ask, ask for the same, post and stop at the same times."""
    expect_same_times(other_data(case), kept_turns(case))


@law(when=lambda case: by_rounds(case) and private(case))
def one_user_shows_in_releases_alone(case: Case) -> None:
    """One user who sees or loses something else changes nothing public but noisy releases.

    The user meets no arms to speak of, the longest ones, or each turned round: where a policy
    explores for some users, one of them explores and another does not. Where users bring no arms,
    the losses are others. All else, noise included, is the same. What carries noise is given to the
    learner as the other run had it; what carries none stays as it is, since nothing hides it. Then
    due times, requests, models and everyone else's actions must be the same, and so must times,
    counts and noise levels of what is released.
    """
    usual = kept_turns(case)
    for word, other in _OTHERS[case.feedback].items():
        seen = with_one_other(case, **other)
        for round, name, release in seen.told:
            wanted, noisy = usual[round].releases[name], seen.privatizers[name].outlook.noisy
            facts = [(int(one.count), float(one.noise)) for one in (release, wanted)]
            alike = not noisy or facts[0] == facts[1]
            expect(alike, seen=f"{name}: users and noise {facts[0]}", expected=facts[1])
        expect_same_public(seen.turns, usual, f"one user's {word}")


def _none_to_speak_of(arms: Arms) -> Arms:
    return Arms(features=0 * arms.features, allowed=arms.allowed)


def _longest(arms: Arms) -> Arms:
    count, dim = arms.features.shape
    unit = jnp.eye(dim, dtype=arms.features.dtype)
    return Arms(features=unit[jnp.arange(count) % dim], allowed=arms.allowed)


def _turned(arms: Arms) -> Arms:
    return Arms(features=-arms.features[:, ::-1], allowed=arms.allowed)


def _lost(size: float, losses: Any) -> Any:
    """Losses of this size with a sign for each question, in turns."""
    return (size * (-1.0) ** np.arange(losses.shape[0])).astype(losses.dtype)


_OTHERS: dict[str, dict[str, Any]] = {
    "totals": {
        "arms none to speak of": {"show": _none_to_speak_of},
        "arms longest": {"show": _longest},
        "arms turned": {"show": _turned},
    },
    "reports": {
        f"losses of {size}": {"earn": partial(_lost, size)} for size in (1e3, -1e3, np.nan)
    },
}


@law(when=asks, cheap=True)
def statistics_obey_their_bound(case: Case) -> None:
    """No two records of the domain are farther apart than the sensitivity, and some nearly are.

    For a loss it is their gradients that are held apart, at points near and far.
    """
    for name, query in queries_of(case).items():
        found, _ = widest_of(case, name)
        seen = f"{name}: {found} from two records of the domain"
        bound = query.sensitivity * (1 + _ROUNDING[np.float64])
        expect(found <= bound, seen=seen, expected=f"at most {query.sensitivity}")
        expect(found >= 0.99 * query.sensitivity, seen=seen, expected=f"near {query.sensitivity}")


@law(when=asks, cheap=True)
def clipping_holds_beyond_the_domain(case: Case) -> None:
    """Features of norm 10 or 1e30, rewards of 1e9, NaN and infinities stay within the bound.

    So do weights, losses, answers and, for a loss, the points at which gradients are taken.
    """
    for name, query in queries_of(case).items():
        for kind, rounding in _ROUNDING.items():
            found = wildest_of(case, name, kind)
            seen = f"{name}: {found} from wild records in {kind.__name__}"
            bound = query.sensitivity
            expect(found <= bound * (1 + rounding), seen=seen, expected=f"at most {bound}")


@law(when=asks)
def each_user_pays_once(case: Case) -> None:
    """After a real run all receipts are settled and each user paid once for each query in use.

    A query is in use once it was released, or, where devices add their own noise, reported. For a
    fit with noise each user pays once for every gradient sum that might have been asked for.
    """
    done, made = played(case), case.arranged()
    open_ones = [r.number for r in done.ledger.receipts if r.used is None]
    expect(not open_ones, seen=f"receipts {open_ones} are open", expected="all settled")
    most = {name: int(count.max()) for name, count in done.run.releases.items()}
    paid = np.zeros(users_of(case, made), int)
    for receipt in done.ledger.receipts:
        paid[receipt.cohort.first : receipt.cohort.last] += receipt.used or 0
    paid = paid[: _covered(case, made, most)]
    owed = sum(_owed(p, most[name]) for name, p in made.privatizers.items())
    seen = f"users pay {paid.min()} to {paid.max()} times"
    expect((paid == owed).all(), seen=seen, expected=f"{owed}: what was in use")


def users_of(case: Case, made: Arranged) -> int:
    """How many users may report: one each round, or the clients of all phases."""
    if case.feedback != "phases":
        return case.size.horizon
    return max((_ends(p)[-1] for p in made.privatizers.values()), default=1)


def _ends(privatizer: Privatizer) -> tuple[int, ...]:
    return privatizer.schedule.ends if isinstance(privatizer.schedule, At) else ()


def _covered(case: Case, made: Arranged, most: dict[str, int]) -> int:
    """How many users a run spoke about: a last cohort that is too short is left out."""
    if case.feedback == "reports":
        return max(most.values())
    if case.feedback == "phases":
        return max(_ends(p)[most[name] - 1] for name, p in made.privatizers.items())
    return _reached(case, made)


def _reached(case: Case, made: Arranged) -> int:
    """How many users a run may speak about."""
    last = [_ends(p)[-1] if _ends(p) else case.size.horizon for p in made.privatizers.values()]
    return max(last, default=case.size.horizon)


def _owed(privatizer: Privatizer, releases: int) -> int:
    if isinstance(privatizer.query, BoundedLoss) and privatizer.outlook.noisy:
        fits = 1 if isinstance(privatizer.schedule, At) else privatizer.query.fits
        return fits * privatizer.query.minimizer.steps
    return int(privatizer.noisy_device or releases > 0)


@law(cheap=True)
def charged_is_what_was_promised(case: Case) -> None:
    """A run is charged its epsilon to a millionth, and never more.

    To a few hundredths where the noise is a whole number of coins. Without queries that is nothing.
    """
    made, ledger = case.arranged(), case.make_ledger(case.promise())
    pay(made.privatizers, ledger, horizon=users_of(case, made))
    _expect_close(case, ledger.spent().epsilon, "charged")


@law()
def spent_is_no_more_than_promised(case: Case) -> None:
    """A run spends no more than its epsilon; what was paid for and used up is spent."""
    done = played(case)
    spent, asked = done.run.spent.epsilon, _asked(case)
    if all(receipt.used == receipt.capacity for receipt in done.ledger.receipts):
        _expect_close(case, spent, "spent")
    expect(spent <= asked * (1 + ROUNDING), seen=f"epsilon {spent}", expected=f"at most {asked}")


def _asked(case: Case) -> float:
    return case.promise().epsilon if asks(case) else 0.0


def _expect_close(case: Case, epsilon: float, word: str) -> None:
    asked, near = _asked(case), _COINS if case.trust == Trust.SHUFFLE else _MILLIONTH
    close = epsilon == asked or asked * (1 - near) <= epsilon <= asked * (1 + ROUNDING)
    seen = f"epsilon {epsilon} was {word}"
    expect(close, seen=seen, expected=f"{asked}, to {near} and not above")


@law(when=asks, cheap=True)
def refusal_leaves_no_trace(case: Case) -> None:
    """What the budget cannot pay is refused before anything is played, and nothing is charged.

    Once with a budget a third too small, once with one that only the last user has spent. So are
    the server and the device of a deployment that hears reports.
    """
    made, epsilon, delta = case.arranged(case.size.epsilon), case.size.epsilon, case.promise().delta
    trust = Trust.CENTRAL if case.trust == Trust.NONE else Trust(case.trust)
    for party in _parties(case, made):
        short = Guarantee(epsilon=epsilon * 2 / 3, delta=delta or DELTA, trust=trust)
        if trust is Trust.LOCAL:
            short = Guarantee(epsilon=epsilon * 2 / 3, delta=delta, trust=trust)
        _expect_refusal(party, case.make_ledger(short))
    if delta or case.trust == Trust.NONE:
        late = case.make_ledger(Guarantee(epsilon=epsilon, delta=DELTA, trust=trust))
        full = Gaussian(noise_multiplier=gaussian_noise_multiplier(epsilon, DELTA))
        last = _reached(case, made)
        late.charge(full, cohort=Cohort(first=last - 1, last=last))
        _expect_refusal(_parties(case, made)[0], late)


Party = Callable[[Ledger, Callable[[str, int], None]], object]


def _parties(case: Case, made: Arranged) -> list[Party]:
    """A run; and the server and the device, where one user is asked at a time."""

    def run(ledger: Ledger, progress: Callable[[str, int], None]) -> object:
        return play(case, made, ledger=ledger, replicates=1, progress=progress)

    if not by_reports(case):
        return [run]

    def server(ledger: Ledger, progress: Callable[[str, int], None]) -> object:
        return case.asker(made, ledger=ledger)

    def device(ledger: Ledger, progress: Callable[[str, int], None]) -> object:
        action = first_action(made.policy)
        losses = np.zeros(len(np.atleast_1d(action)))
        return case.answerer(made, ledger=ledger).answer(0, action, losses)

    return [run, server, device] if case.trust == Trust.LOCAL else [run, server]


def _expect_refusal(party: Party, ledger: Ledger) -> None:
    before, stages, refused = ledger.receipts, list[str](), False
    try:
        party(ledger, lambda stage, done: stages.append(stage))
    except BudgetExceeded:
        refused = True
    expect(refused and not stages, seen=f"refused: {refused}; played: {stages}", expected="refusal")
    left = len(ledger.receipts) - len(before)
    expect(ledger.receipts == before, seen=f"{left} receipts were left", expected="no trace")


PRIVACY_LAWS = (
    learner_is_blind,
    same_releases_lead_to_the_same_models,
    due_times_are_public,
    one_user_shows_in_releases_alone,
    statistics_obey_their_bound,
    clipping_holds_beyond_the_domain,
    each_user_pays_once,
    charged_is_what_was_promised,
    spent_is_no_more_than_promised,
    refusal_leaves_no_trace,
)
