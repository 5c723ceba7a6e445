"""What every privatizer must do: add the noise that was charged, and nothing else.

White-box laws compare the noise with the bill; the black-box audit at the end is only an alarm.
Statistical laws use 30000 copies of 5 coordinates (a trial of the deviation needs 288 draws to err
once in a million both ways) at fixed seeds.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from kerchief.audits import look
from kerchief.checks import twins
from kerchief.checks.domains import NOWHERE, Box, encoder, lengths, many, widest
from kerchief.checks.errors import expect, law
from kerchief.checks.leakage import (
    bill,
    charged_multiplier,
    expect_fresh,
    expect_noise_as_charged,
    rounded_sensitivity,
)
from kerchief.checks.learning import silenced
from kerchief.checks.protocol import (
    ENDS,
    PrivatizerCase,
    drawn_noise,
    noises_of,
    records,
    released,
    released_by_many,
    statistics,
    told,
    transcript,
)
from kerchief.checks.statistics import (
    ERROR,
    Floats,
    expect_deviation,
    fits_deviation,
    normal_bound,
    normality,
)
from kerchief.core.linalg import smat, svec_size
from kerchief.core.random import Stream
from kerchief.privacy import NonPrivate, epsilon_at
from kerchief.privatizers import At

# Whose record is replaced: someone in the middle, right before a release.
_PLACE = 3


def _is_private(protocol: PrivatizerCase) -> bool:
    return protocol.private


@law()
def noise_has_mean_zero(protocol: PrivatizerCase) -> None:
    """No coordinate of any release is shifted (normal test, 1e-6 over all coordinates)."""
    for noise in drawn_noise(protocol):
        copies, size = noise.draws.shape
        room = normal_bound(size) * noise.stated / math.sqrt(copies) + protocol.rounding
        worst = float(np.abs(noise.draws.mean(axis=0)).max())
        expect(worst <= room, seen=f"a mean of {worst}", expected=f"0, within {room}")


@law()
def noise_has_the_stated_deviation(protocol: PrivatizerCase) -> None:
    """The deviation that a release states is the noise's; 2/3 and 3/2 of it are rejected.

    Chi-square tests on 150000 draws, each erring at most once in a million.
    """
    for noise in drawn_noise(protocol):
        if not protocol.private:
            largest = float(np.abs(noise.draws).max())
            exact = largest <= protocol.rounding and noise.stated == 0.0
            expect(exact, seen=f"noise of {largest}", expected="none, as nothing is promised")
            continue
        expect_deviation(noise.draws, noise.stated, law=None)


@law(when=_is_private)
def noise_is_normal(protocol: PrivatizerCase) -> None:
    """The noise has the shape of a normal law (Kolmogorov-Smirnov on 150000 draws, 1e-6)."""
    for noise in drawn_noise(protocol):
        chance = normality(noise.draws, noise.stated)
        expect(chance >= ERROR, seen=f"a p-value of {chance}", expected=f"at least {ERROR}")


@law()
def noise_is_what_was_charged(protocol: PrivatizerCase) -> None:
    """The noise that hides one user, over the query's sensitivity, is the charged multiplier.

    White-box: what the noise says of itself. Then what it does, over all releases together.
    """
    privatizer, sensitivity = protocol.brief(), rounded_sensitivity(protocol)
    charge = privatizer.charges(len(ENDS))[0]
    if not protocol.private:
        expect(charge.event == NonPrivate(), seen=charge.event, expected=NonPrivate())
        return
    noise: Any = privatizer.noises[0]
    stated = float(noise.std) / (sensitivity * getattr(noise, "column_norm", 1.0))
    multiplier = charged_multiplier(charge.event)
    close = math.isclose(stated, multiplier, rel_tol=1e-9)
    expect(close, seen=f"a multiplier of {stated}", expected=f"{multiplier}, as charged")
    noises, cost = drawn_noise(protocol), bill([charge])
    alone = charge.capacity if protocol.cohorts else None
    expect_noise_as_charged(noises, cost, sensitivity, turning=protocol.fits, alone=alone)


@law(when=_is_private)
def successive_releases_differ_by_fresh_noise(protocol: PrivatizerCase) -> None:
    """Between two releases there is noise that no earlier one has: as much as one user paid for.

    In simulation and in the exact twin; noise that is used again leaves less, or none. Chi-square
    tests, each erring at most once in a million, on 150000 draws and on 800 of the twin's.
    """
    event = protocol.brief().charges(len(ENDS))[0].event
    deviation = charged_multiplier(event) * rounded_sensitivity(protocol)
    expect_fresh(drawn_noise(protocol), deviation)
    if not twins.refuses(protocol):
        expect_fresh(twins.twin_noise(protocol), deviation)


@law(cheap=True)
def charges_compose_to_the_guarantee(protocol: PrivatizerCase) -> None:
    """Every user's own charges compose to the promise, to 1e-6 and never above.

    Where the noise is a whole number of coins, to 2 %.
    """
    near = 0.02 if protocol.step else 1e-6
    privatizer, last = protocol.build(), protocol.horizon
    charges, promised = privatizer.charges(last), protocol.guarantee
    # Whoever comes after the last cohort is in none.
    if isinstance(privatizer.schedule, At):
        last = min(privatizer.schedule.ends[-1], last)
    for user in range(last):
        event = bill(c for c in charges if c.cohort.first <= user < c.cohort.last)
        cost = epsilon_at([event], promised.delta)
        close = cost == promised.epsilon or 0 <= promised.epsilon - cost <= near * promised.epsilon
        expect(close, seen=f"user {user} pays {cost}", expected=promised.epsilon)


@law(when=lambda protocol: protocol.private and not protocol.fits)
def matrix_noise_is_isometric(protocol: PrivatizerCase) -> None:
    """Off the diagonal a sum's matrix has half the variance, not the whole (chi-square, 1e-6)."""
    dim = protocol.query.dim
    for noise in drawn_noise(protocol):
        matrices = jax.vmap(lambda row: smat(row, dim))(noise.draws[:, : svec_size(dim)])
        off_diagonal = np.asarray(matrices)[:, 0, 1]
        on, off = np.asarray(matrices)[:, 0, 0], off_diagonal * math.sqrt(2)
        fair = fits_deviation(off, noise.stated) and fits_deviation(on, noise.stated)
        observed = f"deviations {on.std()} on and {off_diagonal.std()} off the diagonal"
        expect(fair, seen=observed, expected=f"{noise.stated} and that over the root of 2")
        expect(
            not fits_deviation(off_diagonal, noise.stated), seen=observed, expected="unlike ones"
        )


@law()
def order_carries_nothing(protocol: PrivatizerCase) -> None:
    """Reports in any order lead to the same release, with the same noise, up to rounding."""
    privatizer, rng = protocol.build(), np.random.default_rng(5)
    encoded = statistics(protocol.query, records(protocol.query, 12))
    root = Stream.of(seed=1, replicate=0)
    totals = []
    for order in (np.arange(12), np.arange(12)[::-1], rng.permutation(12)):
        release = released(protocol, privatizer, encoded[order], (12,), root)[0]
        totals.append(np.asarray(told(protocol, release)))
    gap = max(float(np.abs(total - totals[0]).max()) for total in totals)
    room = (protocol.rounding * (1 + float(np.abs(totals[0]).max())) + protocol.step) * 12
    expect(gap <= room, seen=f"releases that differ by {gap}", expected="one for every order")


@law(when=lambda protocol: protocol.private or not protocol.fits)
def one_user_moves_a_release_by_the_sensitivity_at_most(protocol: PrivatizerCase) -> None:
    """With the same noise, whatever one user sends moves each sum by the sensitivity at most.

    The user is replaced by wild records, by ordinary ones and by one that says nothing. A release
    whose noise, or whose time, depends on the record is moved by the noise itself.
    """
    privatizer, query, box = protocol.brief(), protocol.query, _build_box(protocol)
    users = records(query, ENDS[-1])

    def encode_transcript(row: Array, point: Array) -> Array:
        changed = [*users[:_PLACE], box.record(row), *users[_PLACE + 1 :]]
        return transcript(protocol, privatizer, changed).ravel()

    ordinary = np.stack([np.append(user.features, user.reward) for user in users])
    rows = np.concatenate([ordinary, 0 * ordinary, box.wild()])
    transcripts = many(encode_transcript)(rows, NOWHERE)
    moves = (transcripts - transcripts[_PLACE]).reshape(len(rows), -1, protocol.width)
    farthest, bound = float(lengths(moves).max()), rounded_sensitivity(protocol) * (1 + 1e-9)
    room = bound + protocol.rounding * (1 + float(np.abs(transcripts[_PLACE]).max())) * 12
    expect(farthest <= room, seen=f"a move of {farthest}", expected=f"at most {bound}")


@law()
def noise_off_gives_the_truth(protocol: PrivatizerCase) -> None:
    """With noise of deviation zero every sum that is told is the exact one, over all so far."""
    users = records(protocol.query, ENDS[-1])
    encoded = statistics(protocol.query, users)
    quiet = silenced(protocol.brief())
    releases = released_by_many(protocol, quiet, users, seed=1)
    starts = (0, *ENDS) if protocol.cohorts else (0,) * len(ENDS)
    for start, end, release in zip(starts, ENDS, releases, strict=False):
        errors = [noise.draws for noise in noises_of(protocol, encoded, end, release)]
        gap = float(np.abs(errors).max())
        near = gap <= protocol.rounding
        expect(near, seen=f"off by {gap} after {end} users", expected="the exact sum")
        count = int(release.count[0])
        expect(count == end - start, seen=f"a count of {count}", expected=end - start)


@law(when=_is_private)
def audit_finds_no_more_than_promised(protocol: PrivatizerCase) -> None:
    """The best threshold attacker on the two worst records proves no more than was promised.

    The attacker weighs all releases as their noise deserves. An alarm, not a proof: of 30000 copies
    half train the test and the others bound epsilon from below, wrongly with probability 1e-6. At
    epsilon 4 it catches noise at a third of what it should be, and misses noise at two thirds.
    """
    box, start = _build_box(protocol), protocol.start
    point = NOWHERE if start is None else np.asarray(start.point)
    _, pair = widest(encoder(protocol.query, box), box, point)
    first_views, second_views = (
        _draw_views(protocol, row, seed) for seed, row in enumerate(pair, start=100)
    )
    audit = look(
        name=str(protocol),
        claim=protocol.guarantee,
        views=(first_views, second_views),
        failure=ERROR,
    )
    observed = f"an attacker proves {audit.epsilon_lower:.3f}"
    expect(audit.kept, seen=observed, expected=f"{protocol.guarantee.epsilon}")


def _draw_views(protocol: PrivatizerCase, row: Floats, seed: int) -> Floats:
    """Draw the sums of many copies in which this user comes first.

    Axes are copy, sum and number.
    """
    users = [_build_box(protocol).record(jnp.asarray(row)), *records(protocol.query, ENDS[-1])[1:]]
    releases = released_by_many(protocol, protocol.brief(), users, seed=seed)
    return np.concatenate([np.asarray(told(protocol, release)) for release in releases], axis=1)


def _build_box(protocol: PrivatizerCase) -> Box:
    query = protocol.query
    return Box(dim=query.dim, norm=query.norm, low=query.low, high=query.high)
