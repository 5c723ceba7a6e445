"""Claims: sentences about a table that can fail, of the catalogue and of the papers.

A claim holds only if it would still hold with every number moved against it by some standard
errors. A paper's claim *does not hold here* only if its negation survives the same test; between
the two it is *undecided*. A claim is judged at the size for which it was made, and never counts as
passed at a smaller one.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

from kerchief.core.errors import InvalidValue
from kerchief.core.validate import one_of
from kerchief.experiments.players import Key, Player, player
from kerchief.experiments.results import Result, amount

Results: TypeAlias = Mapping[Key, Result]
Source: TypeAlias = Literal["ours", "paper"]
Recorded: TypeAlias = Literal["holds", "does not hold here"]
Outcome: TypeAlias = Literal["holds", "fails", "does not hold here", "undecided", "not judged"]
Truth: TypeAlias = bool | None
"""True or False where the figures are clear beyond their standard errors, else None."""
Finding: TypeAlias = tuple[Truth, str]
"""Whether a claim is true, and the figures that were seen."""

RECORDED: tuple[Recorded, ...] = ("holds", "does not hold here")

# How far a slope may be off, with two standard errors against it.
_OFF = 0.07


@dataclasses.dataclass(frozen=True, kw_only=True)
class Claim:
    """A sentence about rows of a table, with its test.

    Attributes:
        needs: the rows that the test reads.
        quick: whether the claim is judged at quick size, too.
        source: "ours" for a claim that must hold, "paper" for what a paper claims.
        recorded: the verdict that the full-size run must confirm.
        place: where the paper makes the claim, such as "Table 2"; empty for ours.
        figures: the figures behind the recorded verdict, with the number of runs; empty for ours.
    """

    sentence: str
    needs: tuple[Key, ...]
    test: Callable[[Results], Finding]
    quick: bool = False
    source: Source = "ours"
    recorded: Recorded = "holds"
    place: str = ""
    figures: str = ""

    def __post_init__(self) -> None:
        """Check that the fields of the two sources are not mixed."""
        one_of("recorded", self.recorded, RECORDED)
        if self.source == "ours" and (self.recorded, self.place, self.figures) != ("holds", "", ""):
            raise InvalidValue(
                f"claim {self.sentence!r} is ours and has a recorded verdict, a place or figures; "
                "only a paper's claim has them"
            )
        if self.source == "paper" and not self.place:
            raise InvalidValue(
                f"claim {self.sentence!r} is a paper's and has no place; name the table, the "
                "section or the theorem"
            )

    def from_paper(
        self, place: str, recorded: Recorded, *, figures: str = "", sentence: str | None = None
    ) -> Claim:
        """Attribute the claim to a paper, with the verdict and the figures of a full-size run.

        >>> row = at(player("glm"), "ball")
        >>> row.at_most(10).from_paper("Table 2", "does not hold here", figures="12 ± 0.1").recorded
        'does not hold here'
        """
        return dataclasses.replace(
            self,
            source="paper",
            place=place,
            recorded=recorded,
            figures=figures,
            sentence=self.sentence if sentence is None else sentence,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verdict:
    """The outcome of a claim, with the figures that were seen, or why it was not judged.

    Attributes:
        recorded: the verdict that the catalogue records, which is "holds" for a claim of ours.
        confirmed: False where a claim of ours fails, or a paper's claim has another verdict than
            the recorded one; an undecided one differs at full size alone.
    """

    claim: str
    source: Source
    place: str
    outcome: Outcome
    recorded: Recorded
    confirmed: bool
    seen: str

    def difference(self) -> str:
        """Name the claim and what differs from its record.

        >>> verdict = Verdict(
        ...     claim="privacy is free", source="paper", place="Remark 3", outcome="holds",
        ...     recorded="does not hold here", confirmed=False, seen="5 against 5",
        ... )
        >>> verdict.difference()
        'privacy is free (paper, Remark 3): recorded as does not hold here, and holds'
        """
        if self.source == "ours":
            return self.claim
        return (
            f"{self.claim} (paper, {self.place}): recorded as {self.recorded}, and {self._today()}"
        )

    def _today(self) -> str:
        return "is undecided" if self.outcome == "undecided" else self.outcome


def judge(claim: Claim, results: Results, *, large_enough: bool, full: bool = True) -> Verdict:
    """Test a claim, if the run has its size and its rows; `full` says that the run is at full size.

    The record of a paper's claim is confirmed by the same verdict. An undecided one neither
    confirms nor contradicts it below full size; at full size it counts as a difference.
    """
    outcome: Outcome = "not judged"
    confirmed = True
    if not large_enough:
        seen = "not judged at this size"
    elif any(key not in results for key in claim.needs):
        seen = "not all of its rows were finished"
    else:
        truth, seen = claim.test(results)
        outcome = _outcome(truth, claim.source)
        confirmed = outcome == claim.recorded or (outcome == "undecided" and not full)
    return Verdict(
        claim=claim.sentence,
        source=claim.source,
        place=claim.place,
        outcome=outcome,
        recorded=claim.recorded,
        confirmed=confirmed,
        seen=seen,
    )


def _outcome(truth: Truth, source: Source) -> Outcome:
    if truth:
        return "holds"
    if source == "ours":
        return "fails"
    return "undecided" if truth is None else "does not hold here"


def _decide(gap: float, margin: float) -> Truth:
    """Whether a gap is at least 0, with a margin against each of the two answers.

    >>> _decide(3.0, 2.0), _decide(-3.0, 2.0), _decide(-1.0, 2.0)
    (True, False, None)
    """
    if gap >= margin:
        return True
    return False if gap < -margin else None


def _all(truths: Iterable[Truth]) -> Truth:
    """Whether all are true: one that is false suffices against it.

    >>> _all([True, None, False]), _all([True, None]), _all([True, True])
    (False, None, True)
    """
    known = list(truths)
    return False if False in known else None if None in known else True


class Row(Key):
    """The row of a player in a world, of which something is claimed."""

    __slots__ = ()

    def at_most(self, bound: float, *, errors: float = 2.0, quick: bool = False) -> Claim:
        """The regret is at most the bound."""
        words = f"at most {amount(bound)}"
        return self._claim(words, lambda mean: bound - mean, errors, quick)

    def at_least(self, bound: float, *, errors: float = 2.0, quick: bool = False) -> Claim:
        """The regret is at least the bound."""
        words = f"at least {amount(bound)}"
        return self._claim(words, lambda mean: mean - bound, errors, quick)

    def within(
        self, printed: float, *, share: float, errors: float = 2.0, quick: bool = False
    ) -> Claim:
        """The regret is what a paper printed, up to a share of it."""
        words, most = f"within {100 * share:g} % of the printed {amount(printed)}", share * printed
        return self._claim(words, lambda mean: most - abs(mean - printed), errors, quick)

    def _claim(
        self, words: str, gap: Callable[[float], float], errors: float, quick: bool
    ) -> Claim:
        """A claim about the mean regret, which holds where the gap is at least 0."""

        def test(row: Result) -> Finding:
            return _decide(gap(row.regret.mean), errors * _error(row)), row.regret.text()

        return self._of_row(words, test, quick)

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
            least = _decide(low.regret.mean - times * high.regret.mean, errors * error)
            below = None if least is None else not least
            return below, f"{low.regret.text()} against {high.regret.text()}"

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
            margin = errors * _share_error(row, found)
            return _decide(found - share, margin), f"{100 * found:.1f} %"

        words = f"names the best arm in at least {100 * share:g} % of the runs"
        return self._of_row(words, test, quick)

    def p95_at_most(self, bound: float, *, errors: float = 2.0, quick: bool = False) -> Claim:
        """At most one run in twenty loses more than the bound."""

        def test(row: Result) -> Finding:
            margin = 100 * errors * _share_error(row, 0.95)
            low = row.percentile(max(0.0, 95.0 - margin))
            high = row.percentile(min(100.0, 95.0 + margin))
            truth = None if low <= bound < high else high <= bound
            return truth, f"p95 {amount(row.regret.p95)}"

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
        return _all(step.test(results)[0] for step in steps), seen

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
    return _of_slope(keys, words, lambda found: _OFF - abs(found - exponent), quick)


def no_steeper(keys: Sequence[Key], exponent: float, *, quick: bool = False) -> Claim:
    """Regret grows no faster than this power of the number of rounds: a bound from above."""
    words = f"no faster than rounds^{exponent:.3g}"
    return _of_slope(keys, words, lambda found: exponent + _OFF - found, quick)


def _of_slope(keys: Sequence[Key], words: str, gap: Callable[[float], float], quick: bool) -> Claim:
    """A claim about how fast the regret of one player grows: it holds where the gap is positive."""

    def test(results: Results) -> Finding:
        found, error = _slope([results[key] for key in keys])
        return _decide(gap(found), 2 * error), f"{found:.3f} ± {error:.3f}"

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
        findings = [(claim.sentence, *claim.test(results)) for claim in claims]
        truth = _all(holds for _, holds, _ in findings)
        broken = [f"{name}, but {seen}" for name, holds, seen in findings if holds is not True]
        return truth, "; ".join(broken or (seen for _, _, seen in findings))

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
