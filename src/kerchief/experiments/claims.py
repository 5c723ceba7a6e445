"""Claims: sentences about a table that can fail.

A claim holds only if it would still hold with every number moved against it by some standard
errors. It is judged at the size for which it was made, and never counts as passed at a smaller one.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeAlias

from kerchief.experiments.players import Key, Player
from kerchief.experiments.results import Result, amount

__all__ = [
    "Claim",
    "Finding",
    "Outcome",
    "Results",
    "Verdict",
    "all_of",
    "at",
    "at_least",
    "at_most",
    "below",
    "falling",
    "judge",
    "names_best",
    "no_steeper",
    "paid",
    "slope",
    "within",
]

Results: TypeAlias = Mapping[Key, Result]
Outcome: TypeAlias = Literal["holds", "fails", "not judged"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    """What a claim met: whether it holds, and the numbers that were seen."""

    holds: bool
    seen: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Claim:
    """A sentence about rows, with its test.

    Attributes:
        sentence: what is claimed.
        needs: the rows that it is about.
        test: looks at them.
        quick: whether it must hold at quick size already.
    """

    sentence: str
    needs: tuple[Key, ...]
    test: Callable[[Results], Finding]
    quick: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verdict:
    """What became of a claim.

    Attributes:
        claim: its sentence.
        outcome: `holds`, `fails` or `not judged`.
        seen: the numbers, or why it was not judged.
    """

    claim: str
    outcome: Outcome
    seen: str


def judge(claim: Claim, results: Results, *, large_enough: bool) -> Verdict:
    """Test a claim, if the run has its size and its rows."""
    if not large_enough:
        return Verdict(claim=claim.sentence, outcome="not judged", seen="not judged at this size")
    if any(spot not in results for spot in claim.needs):
        seen = "not all of its rows were finished"
        return Verdict(claim=claim.sentence, outcome="not judged", seen=seen)
    finding = claim.test(results)
    outcome: Outcome = "holds" if finding.holds else "fails"
    return Verdict(claim=claim.sentence, outcome=outcome, seen=finding.seen)


def at(player: Player, world: str) -> Key:
    """The row of a player in a world."""
    return Key(player, world)


def at_most(spot: Key, bound: float, *, errors: float = 2.0, quick: bool = False) -> Claim:
    """The regret is at most the bound."""

    def test(results: Results) -> Finding:
        row = results[spot]
        return Finding(holds=row.regret.mean + errors * _error(row) <= bound, seen=_text(row))

    return Claim(sentence=f"{spot}: at most {amount(bound)}", needs=(spot,), test=test, quick=quick)


def at_least(spot: Key, bound: float, *, errors: float = 2.0, quick: bool = False) -> Claim:
    """The regret is at least the bound."""

    def test(results: Results) -> Finding:
        row = results[spot]
        return Finding(holds=row.regret.mean - errors * _error(row) >= bound, seen=_text(row))

    return Claim(
        sentence=f"{spot}: at least {amount(bound)}", needs=(spot,), test=test, quick=quick
    )


def within(
    spot: Key, printed: float, *, share: float, errors: float = 2.0, quick: bool = False
) -> Claim:
    """The regret is what a paper printed, up to a share of it."""

    def test(results: Results) -> Finding:
        row = results[spot]
        apart = abs(row.regret.mean - printed) + errors * _error(row)
        return Finding(holds=apart <= share * printed, seen=_text(row))

    sentence = f"{spot}: within {100 * share:g} % of the printed {amount(printed)}"
    return Claim(sentence=sentence, needs=(spot,), test=test, quick=quick)


def below(
    lower: Key, upper: Key, *, times: float = 1.0, errors: float = 3.0, quick: bool = False
) -> Claim:
    """One regret is below another, or below a multiple of it."""

    def test(results: Results) -> Finding:
        low, high = results[lower], results[upper]
        error = math.hypot(_error(low), times * _error(high))
        return Finding(
            holds=low.regret.mean + errors * error < times * high.regret.mean,
            seen=f"{_text(low)} against {_text(high)}",
        )

    multiple = "" if times == 1 else f"{times:g} times "
    sentence = f"{lower}: below {multiple}{upper}"
    return Claim(sentence=sentence, needs=(lower, upper), test=test, quick=quick)


def falling(spots: Sequence[Key], *, errors: float = 3.0, quick: bool = False) -> Claim:
    """The regret falls from each row to the next."""

    def test(results: Results) -> Finding:
        steps = [
            below(after, before, errors=errors).test(results).holds
            for before, after in itertools.pairwise(spots)
        ]
        return Finding(holds=all(steps), seen=", ".join(_text(results[spot]) for spot in spots))

    worlds = list(dict.fromkeys(spot.world for spot in spots))
    names = [spot.player.label() if len(worlds) == 1 else str(spot) for spot in spots]
    where = f" on {worlds[0]}" if len(worlds) == 1 else ""
    sentence = f"regret{where} falls: {' > '.join(names)}"
    return Claim(sentence=sentence, needs=tuple(spots), test=test, quick=quick)


def slope(
    spots: Sequence[Key],
    exponent: float,
    *,
    within: float = 0.07,
    errors: float = 2.0,
    quick: bool = False,
) -> Claim:
    """Regret grows with the number of rounds as a power of it, with this exponent.

    The rows are of worlds that differ in their horizons alone.
    """

    def test(results: Results) -> Finding:
        found, error = _slope([results[spot] for spot in spots])
        holds = abs(found - exponent) + errors * error <= within
        return Finding(holds=holds, seen=f"{found:.3f} ± {error:.3f}")

    sentence = f"{_grown(spots)} as rounds^{exponent:.3g}, within {within:g}"
    return Claim(sentence=sentence, needs=tuple(spots), test=test, quick=quick)


def no_steeper(
    spots: Sequence[Key],
    exponent: float,
    *,
    within: float = 0.07,
    errors: float = 2.0,
    quick: bool = False,
) -> Claim:
    """Regret grows no faster than this power of the number of rounds: a bound from above."""

    def test(results: Results) -> Finding:
        found, error = _slope([results[spot] for spot in spots])
        holds = found + errors * error <= exponent + within
        return Finding(holds=holds, seen=f"{found:.3f} ± {error:.3f}")

    sentence = f"{_grown(spots)} no faster than rounds^{exponent:.3g}, within {within:g}"
    return Claim(sentence=sentence, needs=tuple(spots), test=test, quick=quick)


def _grown(spots: Sequence[Key]) -> str:
    worlds = ", ".join(spot.world for spot in spots)
    return f"{spots[0].player.label()} ({worlds}): regret grows"


def _slope(rows: Sequence[Result]) -> tuple[float, float]:
    """The least-squares slope of log regret against log rounds, and its standard error.

    The error follows from those of the means, which are independent up to common worlds.
    """
    places = [math.log(row.cell.horizon) for row in rows]
    mean = sum(places) / len(places)
    square = sum((place - mean) ** 2 for place in places)
    weights = [(place - mean) / square for place in places]
    found = sum(w * math.log(row.regret.mean) for w, row in zip(weights, rows, strict=True))
    shares = [_error(row) / row.regret.mean for row in rows]
    return found, math.hypot(*(w * share for w, share in zip(weights, shares, strict=True)))


def names_best(spot: Key, share: float, *, errors: float = 2.0, quick: bool = False) -> Claim:
    """At least this share of the replicates named the best arm at the end."""

    def test(results: Results) -> Finding:
        row = results[spot]
        found = 0.0 if row.right is None else row.right
        # The error of a share, where every replicate is right too: that of one that is not.
        error = math.sqrt(max(found * (1 - found), 1 / row.replicates) / row.replicates)
        return Finding(holds=found - errors * error >= share, seen=f"{100 * found:.1f} %")

    sentence = f"{spot}: names the best arm in at least {100 * share:g} % of the runs"
    return Claim(sentence=sentence, needs=(spot,), test=test, quick=quick)


def paid(spots: Sequence[Key], *, quick: bool = False) -> Claim:
    """The ledger charged the worst-off user of each protected row no more than was asked for."""

    def test(results: Results) -> Finding:
        rows = [results[spot] for spot in spots]
        broken = [f"{row.cell.key} spent {row.bill()}" for row in rows if not _in_budget(row)]
        return Finding(holds=not broken, seen="; ".join(broken) or f"{len(rows)} rows in budget")

    sentence = "no private row spent more than was asked for"
    return Claim(sentence=sentence, needs=tuple(spots), test=test, quick=quick)


def all_of(sentence: str, claims: Sequence[Claim], *, quick: bool = False) -> Claim:
    """One sentence for many claims: all of them hold."""

    def test(results: Results) -> Finding:
        findings = [(claim.sentence, claim.test(results)) for claim in claims]
        broken = [f"{name}, but {one.seen}" for name, one in findings if not one.holds]
        seen = "; ".join(broken or (one.seen for _, one in findings))
        return Finding(holds=not broken, seen=seen)

    needs = dict.fromkeys(spot for claim in claims for spot in claim.needs)
    return Claim(sentence=sentence, needs=tuple(needs), test=test, quick=quick)


def _error(row: Result) -> float:
    """The standard error; a single replicate tells nothing."""
    return math.inf if row.regret.se is None else row.regret.se


def _in_budget(row: Result) -> bool:
    if row.cell.asked is None or row.spent_epsilon is None or row.spent_delta is None:
        return False
    epsilon, delta = row.cell.asked
    # The ledger searches for epsilon numerically, from above.
    return row.spent_epsilon <= epsilon * (1 + 1e-9) and row.spent_delta <= delta


def _text(row: Result) -> str:
    return row.regret.text()
