"""What every privatizer must do: add the noise that was charged, and nothing else.

White-box laws compare the noise with the bill; the black-box audit at the end is only an alarm.
Statistical laws use 30000 copies of 5 coordinates (a trial of the deviation needs 288 draws to err
once in a million both ways) at fixed seeds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from kerchief.checks import schedules, twins
from kerchief.checks.amounts import attack, charged_multiplier, expect_noise_as_charged
from kerchief.checks.errors import Law, expect, laws_of
from kerchief.checks.learning import silenced
from kerchief.checks.protocol import (
    ENDS,
    Protocol,
    drawn_noise,
    records,
    released_by_many,
    statistics,
)
from kerchief.checks.search import Box, Encode, lengths, many, widest, wild_records
from kerchief.checks.statistics import (
    ERROR,
    audited_epsilon,
    fits_deviation,
    normal_bound,
    normality,
)
from kerchief.core.contracts import Example
from kerchief.core.linalg import smat, svec_size
from kerchief.core.random import DEVICE, Stream
from kerchief.privacy import NonPrivate, epsilon_at

__all__ = ["yield_privatizer_checks"]

Floats = NDArray[np.float64]


def yield_privatizer_checks() -> Iterator[tuple[str, Law[Protocol]]]:
    """Name and function of every law of a privatizer; each takes a `Protocol`."""
    yield from laws_of(
        noise_has_mean_zero,
        noise_has_the_stated_deviation,
        noise_is_normal,
        noise_is_what_was_charged,
        charges_compose_to_the_guarantee,
        matrix_noise_is_isometric,
        order_carries_nothing,
        clips_before_noise,
        noise_off_gives_prefix_totals,
    )
    yield from schedules.yield_schedule_checks()
    yield from twins.yield_twin_checks()
    yield from laws_of(audit_finds_no_more_than_promised)


def noise_has_mean_zero(protocol: Protocol) -> None:
    """No coordinate of any release is shifted (normal test, 1e-6 over all coordinates)."""
    for noise in drawn_noise(protocol):
        copies, size = noise.draws.shape
        room = normal_bound(size) * noise.stated / math.sqrt(copies) + 1e-12
        worst = float(np.abs(noise.draws.mean(axis=0)).max())
        expect(worst <= room, seen=f"a mean of {worst}", expected=f"0, within {room}")


def noise_has_the_stated_deviation(protocol: Protocol) -> None:
    """The deviation that a release states is the noise's; 2/3 and 3/2 of it are rejected.

    Chi-square tests on 150000 draws, each erring at most once in a million.
    """
    for noise in drawn_noise(protocol):
        if not protocol.private:
            largest = float(np.abs(noise.draws).max())
            exact = largest <= 1e-12 and noise.stated == 0.0
            expect(exact, seen=f"noise of {largest}", expected="none, as nothing is promised")
            continue
        actual = float(noise.draws.std())
        verdict = [fits_deviation(noise.draws, noise.stated * f) for f in (1.0, 2 / 3, 3 / 2)]
        seen = f"a deviation of {actual}; accepted at 1, 2/3, 3/2 of the stated one: {verdict}"
        expect(verdict == [True, False, False], seen=seen, expected=f"{noise.stated} alone")


def noise_is_normal(protocol: Protocol) -> None:
    """The noise has the shape of a normal law (Kolmogorov-Smirnov on 150000 draws, 1e-6)."""
    for noise in drawn_noise(protocol) if protocol.private else ():
        chance = normality(noise.draws, noise.stated)
        expect(chance >= ERROR, seen=f"a p-value of {chance}", expected=f"at least {ERROR}")


def noise_is_what_was_charged(protocol: Protocol) -> None:
    """The noise that hides one user, over the query's sensitivity, is the charged multiplier.

    White-box: what the noise says of itself. Then what it does, over all releases together.
    """
    privatizer, sensitivity = protocol.build(len(ENDS)), protocol.query.sensitivity
    event = privatizer.charges(len(ENDS))[0].event
    if not protocol.private:
        expect(event == NonPrivate(), seen=event, expected=NonPrivate())
        return
    noise: Any = privatizer.noises[0]
    stated = float(noise.std) / (sensitivity * getattr(noise, "column_norm", 1.0))
    charged = charged_multiplier(event)
    close = math.isclose(stated, charged, rel_tol=1e-9)
    expect(close, seen=f"a multiplier of {stated}", expected=f"{charged}, as charged")
    expect_noise_as_charged(drawn_noise(protocol), event, sensitivity)


def charges_compose_to_the_guarantee(protocol: Protocol) -> None:
    """Every user's own charges compose to the promise, to 1e-6 and never above."""
    charges = protocol.build().charges(protocol.horizon)
    promised = protocol.guarantee
    for user in range(protocol.horizon):
        bill = [c.event for c in charges if c.cohort.first <= user < c.cohort.last]
        cost = epsilon_at(bill, promised.delta)
        close = cost == promised.epsilon or 0 <= promised.epsilon - cost <= 1e-6 * promised.epsilon
        expect(close, seen=f"user {user} pays {cost}", expected=promised.epsilon)


def matrix_noise_is_isometric(protocol: Protocol) -> None:
    """Off the diagonal the matrix has half the variance, and not the whole (chi-square, 1e-6)."""
    dim = protocol.query.dim
    for noise in drawn_noise(protocol) if protocol.private else ():
        matrices = jax.vmap(lambda row: smat(row, dim))(noise.draws[:, : svec_size(dim)])
        beside = np.asarray(matrices)[:, 0, 1]
        on, off = np.asarray(matrices)[:, 0, 0], beside * math.sqrt(2)
        fair = fits_deviation(off, noise.stated) and fits_deviation(on, noise.stated)
        seen = f"deviations {on.std()} on and {beside.std()} off the diagonal"
        expect(fair, seen=seen, expected=f"{noise.stated} and that over the root of 2")
        expect(not fits_deviation(beside, noise.stated), seen=seen, expected="unlike ones")


def order_carries_nothing(protocol: Protocol) -> None:
    """Reports in any order leave the same tally, bit for bit (they are whole numbers here)."""
    privatizer, rng = protocol.build(), np.random.default_rng(5)
    reports = rng.integers(-1000, 1000, size=(12, protocol.query.size)).astype(np.float64)
    tallies = []
    for order in (np.arange(12), np.arange(12)[::-1], rng.permutation(12)):
        tally = privatizer.open()[1]
        for row in order:
            tally = privatizer.collect(tally, jnp.asarray(reports[row]))
        tallies.append(np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tally)]))
    alike = all(np.array_equal(tally, tallies[0]) for tally in tallies)
    expect(alike, seen="tallies differ", expected="one tally for every order")
    whole = np.array_equal(tallies[0], reports.sum(axis=0))
    expect(whole, seen=tallies[0], expected=f"the sum {reports.sum(axis=0)}")


def clips_before_noise(protocol: Protocol) -> None:
    """With the same noise, no record however wild moves a report farther than the sensitivity."""
    privatizer, query = protocol.build(), protocol.query
    wild, rewards = wild_records(_box(protocol))
    stream = Stream.of(seed=1, replicate=0).at(DEVICE)
    base = np.asarray(privatizer.randomize(records(query, 1)[0], stream))
    report = many(lambda x, y: privatizer.randomize(Example(features=x, reward=y), stream))
    farthest = float(lengths(report(wild, rewards) - base).max())
    bound = query.sensitivity * (1 + 1e-9)
    expect(farthest <= bound, seen=f"a move of {farthest}", expected=f"at most {bound}")


def noise_off_gives_prefix_totals(protocol: Protocol) -> None:
    """With noise of deviation zero every release is the exact sum over everyone so far."""
    users = records(protocol.query, ENDS[-1])
    totals = statistics(protocol.query, users).cumsum(axis=0)
    releases = released_by_many(silenced(protocol.build(len(ENDS))), users, seed=1)
    for end, release in zip(ENDS, releases, strict=True):
        gap = float(np.abs(np.asarray(release.total) - totals[end - 1]).max())
        expect(gap <= 1e-12, seen=f"off by {gap} after {end} users", expected="the exact total")
        count = int(release.count[0])
        expect(count == end, seen=f"a count of {count}", expected=end)


def audit_finds_no_more_than_promised(protocol: Protocol) -> None:
    """The best threshold attacker on the two worst records proves no more than was promised.

    The attacker weighs all releases as their noise deserves. An alarm, not a proof: of 30000 copies
    a third choose the threshold and the rest bound epsilon from below, wrongly with probability
    1e-6. At epsilon 4 it catches noise at a third of what it should be, and misses noise at two
    thirds.
    """
    if not protocol.private:
        return
    _, features, rewards = widest(_encode(protocol), _box(protocol))
    direction = np.subtract(*_encode(protocol)(features, rewards))
    scores = [_scores(protocol, features[i], rewards[i], 100 + i) @ direction for i in (0, 1)]
    proved = audited_epsilon(scores[0], scores[1], protocol.guarantee.delta)
    promised = protocol.guarantee.epsilon
    expect(proved <= promised, seen=f"an attacker proves {proved:.3f}", expected=f"{promised}")


def _scores(protocol: Protocol, features: Floats, reward: float, seed: int) -> Floats:
    """The releases of many copies in which this user comes first, weighed and added up."""
    first = Example(features=jnp.asarray(features), reward=jnp.asarray(reward))
    users = [first, *records(protocol.query, ENDS[-1])[1:]]
    releases = released_by_many(protocol.build(len(ENDS)), users, seed=seed)
    weights = attack(drawn_noise(protocol))
    pairs = zip(weights, releases, strict=True)
    weighed = [weight * np.asarray(release.total, np.float64) for weight, release in pairs]
    total: Floats = np.sum(weighed, axis=0)
    return total


def _encode(protocol: Protocol) -> Encode:
    return many(lambda x, y: protocol.query.encode(Example(features=x, reward=y)))


def _box(protocol: Protocol) -> Box:
    query = protocol.query
    return Box(dim=query.dim, norm=query.norm, low=query.low, high=query.high)
