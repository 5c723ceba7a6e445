"""What every bandit without contexts must do: learn from one protected number a user, no more.

The engine of `simulation.context_free` is watched round by round (`checks.context_free_fixture`),
and so are the parties of `roles.questions`. Seeds are fixed; statistical laws err once in a
million.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from kerchief.checks.context_free_fixture import (
    EPSILON,
    EVERYONE,
    HORIZON,
    NOBODY,
    WIDTH,
    PlainCase,
    by_hand,
    plain_cases,
    play,
    played,
    promised,
    proposed,
    scripted,
    stopped,
    walk,
)
from kerchief.checks.errors import CheckFailed, Law, expect, laws_of, run_laws, same
from kerchief.checks.policy import documented, keyword_only_and_frozen
from kerchief.checks.reports import (
    deployed_parties_agree_with_the_simulation,
    first_action,
    noise_is_what_was_charged,
    wild_losses,
)
from kerchief.core.channel import Channel
from kerchief.core.codec import decode, encode
from kerchief.core.errors import BudgetExceeded
from kerchief.policies.context_free import LOSS, ContextFreePolicy
from kerchief.privacy import Guarantee, Ledger, Trust
from kerchief.privacy.rules import ROUNDING
from kerchief.simulation.context_free import Carry, channel_of

__all__ = ["PlainCase", "check_context_free", "plain_cases", "yield_plain_checks"]

_NONE: Mapping[str, str] = {}
_LEARNER = ("init", "propose", "update", "stopped", "recommend")
# Whose loss is another: someone early, so that others come after.
_USER = 5


def check_context_free(
    name: str, trust: str, *, expected_failures: Mapping[str, str] = _NONE, **rooms: Any
) -> None:
    """Hold a registered bandit without contexts to every law, under one trust.

    Args:
        name: of the registry.
        trust: a word of `--trust`.
        expected_failures: laws that are known to fail, each with the reason.
        rooms: what `PlainCase` shall have in place of ours.

    Raises:
        CheckFailed: one or more laws are broken.
    """
    case = PlainCase.of(name, CONTEXT_FREE[name], trust, **rooms)
    failures = run_laws(case, yield_plain_checks(), expected_failures=expected_failures)
    if failures:
        raise CheckFailed(str(case), failures)


def yield_plain_checks() -> Iterator[tuple[str, Law[PlainCase]]]:
    """Name and function of every law of a bandit without contexts; each takes a `PlainCase`."""
    # The first two are the laws of policies: they read a case's entry and its policy.
    shared: Any = (keyword_only_and_frozen, documented)
    return laws_of(
        *shared,
        noise_is_what_was_charged,
        the_learner_sees_reports_alone,
        stopping_is_public,
        losses_are_clipped,
        proposals_stay_inside,
        each_user_pays_once,
        spent_is_what_was_promised,
        refusal_leaves_no_trace,
        without_noise_it_is_the_parent,
        config_and_state_survive_the_codec,
        same_seed_same_run,
        one_replicate_is_a_slice_of_many,
        deployed_parties_agree_with_the_simulation,
    )


def the_learner_sees_reports_alone(case: PlainCase) -> None:
    """A state is what its reports make of it: other losses with the same reports change nothing.

    The learner's functions take what the contract says. The engine's states are those that propose,
    answer, report and update lead to by hand, but for rounding in float32. With scripted reports,
    losses that are all others lead to the same states and the same plays, in every bit; and a user
    whose report comes out the same, whatever the loss, is seen by nobody.
    """
    for name in _LEARNER:
        taken = list(inspect.signature(getattr(case.entry.kind, name)).parameters)
        allowed = list(inspect.signature(getattr(ContextFreePolicy, name)).parameters)
        expect(taken == allowed, seen=f"{name}({', '.join(taken)})", expected=", ".join(allowed))
    if not case.policy().queries:
        return
    _expect_states_of_reports(case)
    usual, other = _scripted_pair(case)
    for round, (now, then) in enumerate(zip(other, usual, strict=True)):
        alike = same((now.state, now.regret), (then.state, then.regret))
        where = f"before round {round}, with other losses and the same reports"
        expect(alike, seen=f"another state or play {where}", expected="the same")
    _expect_unseen(case)


def _expect_states_of_reports(case: PlainCase) -> None:
    kept = _usual(case)
    for round in range(0, HORIZON, 3):
        hand = by_hand(case, kept[round], round)
        pairs = zip(
            jax.tree.leaves(hand.state), jax.tree.leaves(kept[round + 1].state), strict=True
        )
        going = np.asarray(hand.going)
        close = all(
            np.allclose(np.asarray(a)[going], np.asarray(b)[going], rtol=1e-5, atol=1e-5)
            for a, b in pairs
        )
        expect(close, seen=f"another state after round {round}", expected="that of its report")


def _expect_unseen(case: PlainCase) -> None:
    """Where one user's report is the same, all that follows is; what came before always is."""
    usual, extreme = _usual(case), 1e3
    other = walk(case, user=_USER, loss=extreme)
    early = all(same(*pair) for pair in zip(other[: _USER + 1], usual[: _USER + 1], strict=True))
    expect(early, seen="other states before a user came", expected="the same")
    reports = [
        np.asarray(by_hand(case, usual[_USER], _USER, user=user, loss=extreme).report)
        for user in (NOBODY, _USER)
    ]
    alike = (reports[0] == reports[1]).ravel()
    for round in range(_USER + 1, HORIZON + 1):
        now, then = (
            jax.tree.map(lambda leaf: leaf[alike], carry[round]) for carry in (other, usual)
        )
        expect(
            same(now, then),
            seen=f"another state before round {round}, after the same report",
            expected="the same, whatever one user lost",
        )


def stopping_is_public(case: PlainCase) -> None:
    """Who is asked, and when that ends, follows from reports alone; what has stopped stays so.

    With the same reports and other losses the same users are asked. Nothing changes after a stop.
    """
    if not case.policy().queries:
        return
    usual, other = _scripted_pair(case)
    ended = np.zeros(WIDTH, bool)
    for round, (now, then) in enumerate(zip(other, usual, strict=True)):
        alike = same(now.asked, then.asked)
        seen = f"{now.asked.tolist()} users asked before round {round}"
        expect(alike, seen=seen, expected=f"{then.asked.tolist()}, as with other losses")
        over = stopped(case, now)
        expect((over | ~ended).all(), seen="a bandit that goes on", expected="one that has stopped")
        if round:
            before = other[round - 1]
            frozen, kept = (
                jax.tree.map(lambda leaf, at=ended: leaf[at], (one.state, one.asked, one.regret))
                for one in (now, before)
            )
            expect(
                same(frozen, kept), seen=f"a move in round {round}", expected="none after a stop"
            )
        ended = over


def losses_are_clipped(case: PlainCase) -> None:
    """Losses beyond their range, endless or undefined, stay within the sensitivity.

    What leaves the device for any of them lies within the bounds of the query, both of which are
    reached.
    """
    policy, privatizers = case.arranged()
    for privatizer in privatizers.values():
        query = privatizer.query
        found = np.stack([np.asarray(s) for s in _statistics(policy, query)])
        low, high = query.center - query.radius, query.center + query.radius
        seen = f"statistics from {found.min()} to {found.max()}"
        inside = np.isfinite(found).all() and low <= found.min() and found.max() <= high
        expect(inside, seen=seen, expected=f"within [{low}, {high}]")
        expect(np.ptp(found) <= query.sensitivity, seen=seen, expected=f"{query.sensitivity} apart")
        reached = np.ptp(found) >= 0.999 * query.sensitivity
        expect(reached, seen=seen, expected=f"up to {query.sensitivity} apart")


def _statistics(policy: Any, query: Any) -> Iterator[Array]:
    action = jnp.asarray(first_action(policy))
    for losses in wild_losses(action):
        yield query.encode(policy.answer(action, jnp.asarray(losses)))


def proposals_stay_inside(case: PlainCase) -> None:
    """Every proposal and every answer is an arm, or points of the convex set, whatever is reported.

    With ordinary reports, with the least and the greatest of them, and with both in turns; states
    stay finite. Reports without bounds go as far as four deviations.
    """
    for word, kept in _stubborn(case).items():
        for round, carry in enumerate(kept[:-1]):
            for what, action in zip(
                ("proposal", "answer"), proposed(case, carry, round), strict=True
            ):
                outside = _outside(case, action)
                where = f"in round {round}, with {word} reports"
                expect(outside <= 1e-9, seen=f"a {what} {outside} outside {where}", expected="none")


def _stubborn(case: PlainCase) -> dict[str, list[Carry]]:
    """Walks with ordinary reports, and with extreme ones."""
    walks = {"ordinary": _usual(case)}
    for privatizer in case.arranged()[1].values():
        channel, center = channel_of(privatizer), float(np.asarray(privatizer.query.center))
        far = 4 * float(channel.spread)
        low, high = (
            (float(channel.low), float(channel.high))
            if channel.low is not None and channel.high is not None
            else (center - far, center + far)
        )
        turns = np.where(np.arange(HORIZON) % 2, low, high)[:, None]
        for word, script in (("least", low), ("greatest", high), ("alternating", turns)):
            walks[word] = walk(case, scripted(case, script))
    return walks


def _outside(case: PlainCase, action: Any) -> float:
    """How far the worst of some actions lies outside; endless where it is not finite."""
    if not np.isfinite(action).all():
        return float("inf")
    domain, problem = case.problem.domain, case.problem
    if domain is None:
        whole = action.dtype.kind == "i"
        return (
            float(max(0, -action.min(), action.max() - problem.arms + 1)) if whole else float("inf")
        )
    points = jnp.asarray(action).reshape(-1, domain.dim)
    return float(np.abs(np.asarray(jax.vmap(domain.project)(points)) - np.asarray(points)).max())


def each_user_pays_once(case: PlainCase) -> None:
    """After a real run all receipts are settled, and whoever was asked paid once.

    A device with its user's own ledger is charged once a question, however often it is asked.
    """
    ledger = case.make_ledger(promised(case))
    asked = int(play(case, ledger=ledger).pulls.max())
    open_ones = [r.number for r in ledger.receipts if r.used is None]
    expect(not open_ones, seen=f"receipts {open_ones} are open", expected="all settled")
    paid = np.zeros(HORIZON, int)
    for receipt in ledger.receipts:
        paid[receipt.cohort.first : receipt.cohort.last] += receipt.used or 0
    policy, privatizers = case.arranged()
    owed = len(privatizers)
    seen = f"those asked pay {paid[:asked].tolist()} times"
    expect((paid[:asked] == owed).all(), seen=seen, expected=f"{owed} each")
    expect(owed or not asked, seen=f"{asked} users were asked", expected="nobody")
    if case.trust != Trust.LOCAL:
        return
    own = case.make_ledger(promised(case, 2.1 * promised(case).epsilon))
    device = case.answerer(policy=policy, privatizer=privatizers[LOSS], ledger=own)
    action = first_action(policy)
    for round, bills in ((0, 1), (0, 1), (1, 2)):
        device.answer(round, action, np.zeros(len(np.atleast_1d(action))))
        seen = f"{len(own.receipts)} charges"
        expect(len(own.receipts) == bills, seen=seen, expected=f"{bills}, one a question")


def spent_is_what_was_promised(case: PlainCase) -> None:
    """A run and a deployment are charged their epsilon to a millionth, and never more."""
    asked = promised(case).epsilon if case.policy().queries else 0.0
    simulated = play(case).spent
    policy, privatizers = case.arranged()
    ledger = case.make_ledger(promised(case))
    server = case.asker(policy=policy, privatizers=privatizers, ledger=ledger)
    for who, spent in (("a run", simulated), ("a server", server.spent())):
        close = spent.epsilon == asked or (
            asked * (1 - 1e-6) <= spent.epsilon <= asked * (1 + ROUNDING)
        )
        right = close and spent.delta <= promised(case).delta
        expect(right, seen=f"{who} spends {spent}", expected=f"epsilon {asked}, to a millionth")


def refusal_leaves_no_trace(case: PlainCase) -> None:
    """What the budget cannot pay is refused before anything is played, asked, drawn or charged."""
    policy, privatizers = case.arranged()
    if not privatizers:
        return
    trust = Trust.CENTRAL if case.trust == Trust.NONE else Trust(case.trust)
    short = Guarantee(epsilon=EPSILON * 2 / 3, delta=promised(case).delta, trust=trust)
    stages: list[str] = []
    parties: dict[str, Callable[[Ledger], object]] = {
        "a run": lambda ledger: play(
            case, ledger=ledger, progress=lambda stage, done: stages.append(stage)
        ),
        "a server": lambda ledger: case.asker(
            policy=policy, privatizers=privatizers, ledger=ledger
        ),
    }
    if case.trust == Trust.LOCAL:
        action = first_action(policy)
        losses = np.zeros(len(np.atleast_1d(action)))
        device = partial(case.answerer, policy=policy, privatizer=privatizers[LOSS])
        parties["a device"] = lambda ledger: device(ledger=ledger).answer(0, action, losses)
    for who, party in parties.items():
        ledger = case.make_ledger(short)
        seen = f"{who}: refused: {_refused(party, ledger)}; played: {stages}"
        expect(seen.endswith("True; played: []"), seen=seen, expected="a refusal before play")
        left = f"{who} leaves {len(ledger.receipts)} receipts"
        expect(not ledger.receipts, seen=left, expected="no trace")


def _refused(party: Callable[[Ledger], object], ledger: Ledger) -> bool:
    try:
        party(ledger)
    except BudgetExceeded:
        return True
    return False


def without_noise_it_is_the_parent(case: PlainCase) -> None:
    """With silent noise, and built for what is left of it, it plays as its non-private parent does.

    Regret is the same to 1e-6 in every replicate, and so is the number of users asked.
    """
    parent = dataclasses.replace(case, entry=CONTEXT_FREE[case.entry.parent], trust=str(Trust.NONE))
    silence = partial(dataclasses.replace, std=0.0)
    quiet = {name: one.with_noise(silence) for name, one in case.arranged()[1].items()}
    problem = case.problem
    clear = channel_of(quiet[LOSS]) if quiet else Channel.clear(low=problem.low, high=problem.high)
    free = case.make_ledger(promised(parent))
    found = play(case, (case.entry.make(problem, "tuned", clear), quiet), ledger=free)
    expected = play(parent)
    gap = float(np.abs(found.regret - expected.regret).max())
    expect(gap <= 1e-6, seen=f"regrets differ by up to {gap}", expected="those of the parent")
    asked = np.array_equal(found.pulls, expected.pulls)
    expect(asked, seen=f"{found.pulls} users asked", expected=f"{expected.pulls}")


def config_and_state_survive_the_codec(case: PlainCase) -> None:
    """Written and read back a policy is equal to itself, and a run goes on as if never stopped."""
    for mode in ("tuned", "theory"):
        if mode == "theory" and case.randomizer == "laplace":
            continue
        policy = case.policy(mode)
        restored = decode(encode(policy))
        expect(restored == policy, seen=restored, expected=policy)
    kept, half = _usual(case), HORIZON // 2
    state = decode(encode(kept[half].state))
    carry = dataclasses.replace(kept[half], state=state)
    rest = walk(case, start=carry, rounds=range(half, HORIZON))
    alike = same(rest[-1], kept[-1])
    expect(alike, seen="another end of the run", expected="that of the run without a pause")


def same_seed_same_run(case: PlainCase) -> None:
    """Two runs at one seed agree in every bit, whatever global generators do in between."""
    first, second = (_disturbed(case, disturbance) for disturbance in (1, 2))
    alike = same((first.regret, first.pulls), (second.regret, second.pulls))
    expect(alike, seen="another regret", expected="the same bits")


def _disturbed(case: PlainCase, disturbance: int) -> Any:
    state = np.random.get_state()  # noqa: NPY002 - the global generator is what is tested
    try:
        np.random.seed(disturbance)  # noqa: NPY002
        return play(case)
    finally:
        np.random.set_state(state)  # noqa: NPY002


def one_replicate_is_a_slice_of_many(case: PlainCase) -> None:
    """A replicate has the same regret among others and alone, up to rounding."""
    many, half = played(case).regret[-1], WIDTH // 2
    shifted = play(case, first_replicate=half).regret[-1]
    alone = play(case, replicates=1).regret[-1]
    for who, found, wanted in (
        ("among others", shifted[:half], many[half:]),
        ("alone", alone, many[:1]),
    ):
        close = np.allclose(found, wanted, rtol=1e-6, atol=1e-6)
        expect(close, seen=f"regrets {found} {who}", expected=f"{wanted}")


_usual = lru_cache(maxsize=32)(walk)


@lru_cache(maxsize=32)
def _scripted_pair(case: PlainCase) -> tuple[list[Carry], list[Carry]]:
    """Two runs with the same reports, those of a usual run; in the other all losses are others."""
    kept = _usual(case)
    reports = [by_hand(case, kept[round], round).report for round in range(HORIZON)]
    told = scripted(case, np.stack([np.asarray(one)[:, 0] for one in reports]))
    return walk(case, told), walk(case, told, user=EVERYONE, loss=7.0)
