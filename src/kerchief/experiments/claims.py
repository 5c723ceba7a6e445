"""Claims: sentences about a table that can fail.

A claim holds only if it would still hold with every number moved against it by some standard
errors. It is judged at the size for which it was made, and never counts as passed at a smaller one.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

from kerchief.experiments.players import Key, Player, player
from kerchief.experiments.results import Result, amount

Results: TypeAlias = Mapping[Key, Result]
Outcome: TypeAlias = Literal["holds", "fails", "not judged"]
Finding: TypeAlias = tuple[bool, str]
"""Whether a claim holds, and the numbers that were seen."""

# How far a slope may be off, with two standard errors against it.
_OFF = 0.07


@dataclasses.dataclass(frozen=True, kw_only=True)
class Claim:
    """A sentence about the rows that it needs, with its test; `quick` if it holds at quick size."""

    sentence: str
    needs: tuple[Key, ...]
    test: Callable[[Results], Finding]
    quick: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verdict:
    """What became of a claim, and the numbers that were seen, or why it was not judged."""

    claim: str
    outcome: Outcome
    seen: str


def judge(claim: Claim, results: Results, *, large_enough: bool) -> Verdict:
    """Test a claim, if the run has its size and its rows."""
    outcome: Outcome = "not judged"
    if not large_enough:
        seen = "not judged at this size"
    elif any(key not in results for key in claim.needs):
        seen = "not all of its rows were finished"
    else:
        holds, seen = claim.test(results)
        outcome = "holds" if holds else "fails"
    return Verdict(claim=claim.sentence, outcome=outcome, seen=seen)


class Row(Key):
    """The row of a player in a world, of which something is claimed."""

    __slots__ = ()

    def at_most(self, bound: float, *, errors: float = 2.0, quick: bool = False) -> Claim:
        """The regret is at most the bound."""
        words = f"at most {amount(bound)}"
        return self._claim(words, lambda mean, error: mean + errors * error <= bound, quick)

    def at_least(self, bound: float, *, errors: float = 2.0, quick: bool = False) -> Claim:
        """The regret is at least the bound."""
        words = f"at least {amount(bound)}"
        return self._claim(words, lambda mean, error: mean - errors * error >= bound, quick)

    def within(
        self, printed: float, *, share: float, errors: float = 2.0, quick: bool = False
    ) -> Claim:
        """The regret is what a paper printed, up to a share of it."""
        words, most = f"within {100 * share:g} % of the printed {amount(printed)}", share * printed
        return self._claim(
            words, lambda mean, error: abs(mean - printed) + errors * error <= most, quick
        )

    def _claim(self, words: str, holds: Callable[[float, float], bool], quick: bool) -> Claim:
        """A claim about the regret and its standard error."""
        return self._of_row(
            words, lambda row: (holds(row.regret.mean, _error(row)), row.regret.text()), quick
        )

    def _of_row(self, words: str, test: Callable[[Result], Finding], quick: bool) -> Claim:
        """A claim about this row alone."""
        sentence = f"{self}: {words}"
        return Claim(
            sentence=sentence, needs=(self,), test=lambda results: test(results[self]), quick=quick
        )

    def below(
        self, upper: Key, *, times: float = 1.0, errors: float = 3.0, quick: bool = False
    ) -> Claim:
        """The regret is below another, or below a multiple of it."""

        def test(results: Results) -> Finding:
            low, high = results[self], results[upper]
            error = math.hypot(_error(low), times * _error(high))
            holds = low.regret.mean + errors * error < times * high.regret.mean
            return holds, f"{low.regret.text()} against {high.regret.text()}"

        multiple = "" if times == 1 else f"{times:g} times "
        sentence = f"{self}: below {multiple}{upper}"
        return Claim(sentence=sentence, needs=(self, upper), test=test, quick=quick)

    def below_uniform(
        self, *, times: float = 1.0, errors: float = 3.0, quick: bool = False
    ) -> Claim:
        """The regret is below a multiple of that of uniform play in the same world."""
        uniform = at(player("uniform"), self.world)
        return self.below(uniform, times=times, errors=errors, quick=quick)

    def names_best(self, share: float, *, errors: float = 2.0, quick: bool = False) -> Claim:
        """At least this share of the replicates named the best arm at the end."""

        def test(row: Result) -> Finding:
            found = 0.0 if row.right is None else row.right
            return found - errors * _share_error(row, found) >= share, f"{100 * found:.1f} %"

        words = f"names the best arm in at least {100 * share:g} % of the runs"
        return self._of_row(words, test, quick)

    def p95_at_most(self, bound: float, *, errors: float = 2.0, quick: bool = False) -> Claim:
        """At most one run in twenty loses more than the bound."""

        def test(row: Result) -> Finding:
            worse = min(100.0, 95.0 + 100 * errors * _share_error(row, 0.95))
            return row.percentile(worse) <= bound, f"p95 {amount(row.regret.p95)}"

        return self._of_row(f"95th percentile at most {amount(bound)}", test, quick)


def at(player: Player, world: str) -> Row:
    """The row of a player in a world."""
    return Row(player, world)


def rows(players: Iterable[Player], *worlds: str) -> list[Row]:
    """The rows of all these players, world by world."""
    return [at(one, world) for world, one in itertools.product(worlds, players)]


def each_at_most(
    keys: Sequence[Row], bounds: Sequence[float], *, errors: float = 2.0
) -> tuple[Claim, ...]:
    """Every regret is at most its own bound."""
    pairs = zip(keys, bounds, strict=True)
    return tuple(row.at_most(bound, errors=errors) for row, bound in pairs)


def all_below(
    sentence: str,
    lower: Sequence[Row],
    upper: Sequence[Row],
    *,
    times: float = 1.0,
    errors: float = 3.0,
) -> Claim:
    """One sentence for many pairs: in each, one regret is below a multiple of the other."""
    pairs = zip(lower, upper, strict=True)
    return all_of(sentence, [low.below(high, times=times, errors=errors) for low, high in pairs])


def falling(keys: Sequence[Row], *, errors: float = 3.0, quick: bool = False) -> Claim:
    """The regret falls from each row to the next."""
    steps = [after.below(before, errors=errors) for before, after in itertools.pairwise(keys)]

    def test(results: Results) -> Finding:
        seen = ", ".join(results[key].regret.text() for key in keys)
        return all(step.test(results)[0] for step in steps), seen

    worlds = list(dict.fromkeys(key.world for key in keys))
    names = [key.player.label() if len(worlds) == 1 else str(key) for key in keys]
    where = f" on {worlds[0]}" if len(worlds) == 1 else ""
    sentence = f"regret{where} falls: {' > '.join(names)}"
    return Claim(sentence=sentence, needs=tuple(keys), test=test, quick=quick)


def slope(keys: Sequence[Key], exponent: float, *, quick: bool = False) -> Claim:
    """Regret grows with the number of rounds as a power of it, with this exponent.

    The rows are of worlds that differ in their horizons alone.
    """
    words = f"as rounds^{exponent:.3g}"
    return _of_slope(
        keys, words, lambda found, error: abs(found - exponent) + 2 * error <= _OFF, quick
    )


def no_steeper(keys: Sequence[Key], exponent: float, *, quick: bool = False) -> Claim:
    """Regret grows no faster than this power of the number of rounds: a bound from above."""
    words = f"no faster than rounds^{exponent:.3g}"
    return _of_slope(keys, words, lambda found, error: found + 2 * error <= exponent + _OFF, quick)


def _of_slope(
    keys: Sequence[Key], words: str, holds: Callable[[float, float], bool], quick: bool
) -> Claim:
    """A claim about how fast the regret of one player grows, and the standard error of that."""

    def test(results: Results) -> Finding:
        found, error = _slope([results[key] for key in keys])
        return holds(found, error), f"{found:.3f} ± {error:.3f}"

    worlds = ", ".join(key.world for key in keys)
    sentence = f"{keys[0].player.label()} ({worlds}): regret grows {words}, within {_OFF:g}"
    return Claim(sentence=sentence, needs=tuple(keys), test=test, quick=quick)


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


def paid(keys: Sequence[Key], *, quick: bool = False) -> Claim:
    """The ledger charged the worst-off user of each protected row no more than was asked for."""

    def test(results: Results) -> Finding:
        private = [results[key] for key in keys]
        broken = [f"{row.cell.key} spent {row.bill()}" for row in private if not _in_budget(row)]
        return not broken, "; ".join(broken) or f"{len(private)} rows in budget"

    sentence = "no private row spent more than was asked for"
    return Claim(sentence=sentence, needs=tuple(keys), test=test, quick=quick)


def all_of(sentence: str, claims: Sequence[Claim], *, quick: bool = False) -> Claim:
    """One sentence for many claims: all of them hold."""

    def test(results: Results) -> Finding:
        found = [(claim.sentence, *claim.test(results)) for claim in claims]
        broken = [f"{name}, but {seen}" for name, holds, seen in found if not holds]
        return not broken, "; ".join(broken or (seen for _, _, seen in found))

    needs = dict.fromkeys(key for claim in claims for key in claim.needs)
    return Claim(sentence=sentence, needs=tuple(needs), test=test, quick=quick)


def _share_error(row: Result, found: float) -> float:
    """The standard error of a share; where all replicates agree, that of one that does not."""
    return math.sqrt(max(found * (1 - found), 1 / row.replicates) / row.replicates)


def _error(row: Result) -> float:
    """The standard error; a single replicate tells nothing."""
    return math.inf if row.regret.se is None else row.regret.se


def _in_budget(row: Result) -> bool:
    if row.cell.asked is None or row.spent is None:
        return False
    (epsilon, delta), (spent, spent_delta) = row.cell.asked, row.spent
    # The ledger searches for epsilon numerically, from above.
    return spent <= epsilon * (1 + 1e-9) and spent_delta <= delta
