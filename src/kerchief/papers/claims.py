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
from typing import TypeAlias

from kerchief.comparison.players import Key, Player, player
from kerchief.comparison.results import Result, amount
from kerchief.comparison.verdict import RECORDED, Outcome, Recorded, Source, Verdict
from kerchief.core.errors import InvalidValueError
from kerchief.core.validate import one_of

Results: TypeAlias = Mapping[Key, Result]
Truth: TypeAlias = bool | None
"""True or False where the figures are clear beyond their standard errors, else None."""
Finding: TypeAlias = tuple[Truth, str]
"""Whether a claim is true, and the figures that were seen."""

# How far a slope may be off, with two standard errors against it.
_SLOPE_TOLERANCE = 0.07


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
            raise InvalidValueError(
                f"claim {self.sentence!r} is ours and has a recorded verdict, a place or figures; "
                "only a paper's claim has them"
            )
        if self.source == "paper" and not self.place:
            raise InvalidValueError(
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


def judge(claim: Claim, results: Results, *, large_enough: bool, full: bool = True) -> Verdict:
    """Test a claim if the run is large enough and has all of its rows.

    `full` says that the run is at full size. The record of a paper's claim is confirmed by an equal
    verdict. An undecided verdict neither confirms nor contradicts the record below full size; at
    full size it counts as a difference.
    """
    outcome: Outcome = "not judged"
    confirmed = True
    if not large_enough:
        observed = "not judged at this size"
    elif any(key not in results for key in claim.needs):
        observed = "not all of its rows were finished"
    else:
        truth, observed = claim.test(results)
        outcome = _classify_truth(truth, claim.source)
        confirmed = outcome == claim.recorded or (outcome == "undecided" and not full)
    return Verdict(
        claim=claim.sentence,
        source=claim.source,
        place=claim.place,
        outcome=outcome,
        recorded=claim.recorded,
        confirmed=confirmed,
        seen=observed,
    )


def _classify_truth(truth: Truth, source: Source) -> Outcome:
    if truth:
        return "holds"
    if source == "ours":
        return "fails"
    return "undecided" if truth is None else "does not hold here"


def _decide(gap: float, margin: float) -> Truth:
    """Decide whether a gap is at least 0, with a margin against both answers.

    >>> _decide(3.0, 2.0), _decide(-3.0, 2.0), _decide(-1.0, 2.0)
    (True, False, None)
    """
    if gap >= margin:
        return True
    return False if gap < -margin else None


def _combine_truths(truths: Iterable[Truth]) -> Truth:
    """Combine truths: all must be true, and one false truth decides.

    >>> [_combine_truths(truths) for truths in ([True, None, False], [True, None], [True, True])]
    [False, None, True]
    """
    values = list(truths)
    return False if False in values else None if None in values else True


class Row(Key):
    """Row of a player in an environment, about which claims are made."""

    __slots__ = ()

    def at_most(self, bound: float, *, errors: float = 2.0, quick: bool = False) -> Claim:
        """Claim that the regret is at most the bound."""
        statement = f"at most {amount(bound)}"
        return self._claim_about_mean(statement, lambda mean: bound - mean, errors, quick)

    def at_least(self, bound: float, *, errors: float = 2.0, quick: bool = False) -> Claim:
        """Claim that the regret is at least the bound."""
        statement = f"at least {amount(bound)}"
        return self._claim_about_mean(statement, lambda mean: mean - bound, errors, quick)

    def within(
        self, printed: float, *, share: float, errors: float = 2.0, quick: bool = False
    ) -> Claim:
        """Claim that the regret is a paper's printed one, up to a share of it."""
        statement, tolerance = (
            f"within {100 * share:g} % of the printed {amount(printed)}",
            share * printed,
        )
        return self._claim_about_mean(
            statement, lambda mean: tolerance - abs(mean - printed), errors, quick
        )

    def _claim_about_mean(
        self, statement: str, gap: Callable[[float], float], errors: float, quick: bool
    ) -> Claim:
        """Build a claim on the mean regret that holds if the gap is at least 0."""

        def test(row: Result) -> Finding:
            return _decide(
                gap(row.regret.mean), errors * _get_standard_error(row)
            ), row.regret.text()

        return self._claim_about_row(statement, test, quick)

    def _claim_about_row(
        self, statement: str, test: Callable[[Result], Finding], quick: bool
    ) -> Claim:
        """Build a claim about this row alone."""
        sentence = f"{self}: {statement}"
        return Claim(
            sentence=sentence, needs=(self,), test=lambda results: test(results[self]), quick=quick
        )

    def below(
        self, limit: Key | Player, *, times: float = 1.0, errors: float = 3.0, quick: bool = False
    ) -> Claim:
        """Claim that the regret is below that of another row, or a multiple of it.

        A player stands for its row in this row's environment.
        """
        upper = at(limit, self.world) if isinstance(limit, Player) else limit

        def test(results: Results) -> Finding:
            low, high = results[self], results[upper]
            error = math.hypot(_get_standard_error(low), times * _get_standard_error(high))
            is_at_least = _decide(low.regret.mean - times * high.regret.mean, errors * error)
            is_below = None if is_at_least is None else not is_at_least
            return is_below, f"{low.regret.text()} against {high.regret.text()}"

        multiple = "" if times == 1 else f"{times:g} times "
        sentence = f"{self}: below {multiple}{upper}"
        return Claim(sentence=sentence, needs=(self, upper), test=test, quick=quick)

    def below_uniform(
        self, *, times: float = 1.0, errors: float = 3.0, quick: bool = False
    ) -> Claim:
        """Claim that the regret is below a multiple of that of uniform play."""
        return self.below(player("uniform"), times=times, errors=errors, quick=quick)

    def names_best(self, share: float, *, errors: float = 2.0, quick: bool = False) -> Claim:
        """Claim that this share of replicates names the best arm at the end."""

        def test(row: Result) -> Finding:
            right_share = 0.0 if row.right is None else row.right
            margin = errors * _compute_share_error(row, right_share)
            return _decide(right_share - share, margin), f"{100 * right_share:.1f} %"

        statement = f"names the best arm in at least {100 * share:g} % of the runs"
        return self._claim_about_row(statement, test, quick)

    def p95_at_most(self, bound: float, *, errors: float = 2.0, quick: bool = False) -> Claim:
        """Claim that at most one run in twenty loses more than the bound."""

        def test(row: Result) -> Finding:
            margin = 100 * errors * _compute_share_error(row, 0.95)
            low = row.percentile(max(0.0, 95.0 - margin))
            high = row.percentile(min(100.0, 95.0 + margin))
            truth = None if low <= bound < high else high <= bound
            return truth, f"p95 {amount(row.regret.p95)}"

        return self._claim_about_row(f"95th percentile at most {amount(bound)}", test, quick)


class Rows(tuple[Row, ...]):
    """Rows about which one claim each is made."""

    __slots__ = ()

    def at_most(self, bounds: Iterable[float], *, errors: float = 2.0) -> tuple[Claim, ...]:
        """Claim for each row that its regret is at most its own bound."""
        pairs = zip(self, bounds, strict=True)
        return tuple(row.at_most(bound, errors=errors) for row, bound in pairs)

    def below(
        self,
        limits: Key | Player | Iterable[Row],
        *,
        times: float = 1.0,
        errors: float = 3.0,
        quick: bool = False,
    ) -> tuple[Claim, ...]:
        """Claim for each row that its regret is below a multiple of its limit.

        A single row is the limit of all. A player stands for its rows in these environments.
        """
        if isinstance(limits, Key | Player):
            uppers: Iterable[Key | Player] = itertools.repeat(limits, len(self))
        else:
            uppers = limits
        pairs = zip(self, uppers, strict=True)
        return tuple(
            row.below(upper, times=times, errors=errors, quick=quick) for row, upper in pairs
        )

    def above(self, lower: Player, *, times: float = 1.0, errors: float = 3.0) -> tuple[Claim, ...]:
        """Claim for each row that a multiple of its regret is above that of a player there."""
        return tuple(at(lower, row.world).below(row, times=times, errors=errors) for row in self)

    def below_uniform(self, *, times: float = 1.0, errors: float = 3.0) -> tuple[Claim, ...]:
        """Claim for each row that its regret is below a multiple of that of uniform play."""
        return self.below(player("uniform"), times=times, errors=errors)


def at(player: Player, world: str) -> Row:
    """Return the row of a player in an environment."""
    return Row(player, world)


def rows(players: Iterable[Player], *worlds: str) -> Rows:
    """Return the rows of all players, environment by environment."""
    return Rows(
        at(configuration, world) for world, configuration in itertools.product(worlds, players)
    )


def falling(keys: Sequence[Row], *, errors: float = 3.0, quick: bool = False) -> Claim:
    """Claim that the regret falls from each row to the next."""
    steps = [after.below(before, errors=errors) for before, after in itertools.pairwise(keys)]

    def test(results: Results) -> Finding:
        regrets = ", ".join(results[key].regret.text() for key in keys)
        return _combine_truths(step.test(results)[0] for step in steps), regrets

    worlds = list(dict.fromkeys(key.world for key in keys))
    names = [key.player.label() if len(worlds) == 1 else str(key) for key in keys]
    where = f" on {worlds[0]}" if len(worlds) == 1 else ""
    sentence = f"regret{where} falls: {' > '.join(names)}"
    return Claim(sentence=sentence, needs=tuple(keys), test=test, quick=quick)


def slope(keys: Sequence[Key], exponent: float, *, quick: bool = False) -> Claim:
    """Claim that regret grows as this power of the number of rounds.

    The rows are of environments that differ only in their horizons.
    """
    statement = f"as rounds^{exponent:.3g}"
    return _claim_about_slope(
        keys, statement, lambda estimate: _SLOPE_TOLERANCE - abs(estimate - exponent), quick
    )


def no_steeper(keys: Sequence[Key], exponent: float, *, quick: bool = False) -> Claim:
    """Claim that regret grows at most as this power of the number of rounds."""
    statement = f"no faster than rounds^{exponent:.3g}"
    return _claim_about_slope(
        keys, statement, lambda estimate: exponent + _SLOPE_TOLERANCE - estimate, quick
    )


def _claim_about_slope(
    keys: Sequence[Key], statement: str, gap: Callable[[float], float], quick: bool
) -> Claim:
    """Build a claim on the growth of regret that holds if the gap is positive."""

    def test(results: Results) -> Finding:
        regrets = [results[key] for key in keys]
        least = min(row.regret.mean for row in regrets)
        if least <= 0:
            return None, f"a regret is {least:g}, and only positive ones have a logarithm"
        estimate, error = _fit_slope(regrets)
        return _decide(gap(estimate), 2 * error), f"{estimate:.3f} ± {error:.3f}"

    worlds = ", ".join(key.world for key in keys)
    sentence = (
        f"{keys[0].player.label()} ({worlds}): regret grows {statement}, within "
        f"{_SLOPE_TOLERANCE:g}"
    )
    return Claim(sentence=sentence, needs=tuple(keys), test=test, quick=quick)


def _fit_slope(rows: Sequence[Result]) -> tuple[float, float]:
    """Fit the slope of log regret against log rounds, with its standard error.

    The error follows from those of the means, which are independent up to common environments.
    """
    places = [math.log(row.cell.horizon) for row in rows]
    mean = sum(places) / len(places)
    square = sum((place - mean) ** 2 for place in places)
    weights = [(place - mean) / square for place in places]
    estimate = sum(w * math.log(row.regret.mean) for w, row in zip(weights, rows, strict=True))
    shares = [_get_standard_error(row) / row.regret.mean for row in rows]
    return estimate, math.hypot(*(w * share for w, share in zip(weights, shares, strict=True)))


def paid(keys: Sequence[Key], *, quick: bool = False) -> Claim:
    """Claim that no private row was charged more than its budget."""

    def test(results: Results) -> Finding:
        private = [results[key] for key in keys]
        broken = [f"{row.cell.key} spent {row.bill()}" for row in private if not _is_in_budget(row)]
        return not broken, "; ".join(broken) or f"{len(private)} rows in budget"

    sentence = "no private row spent more than was asked for"
    return Claim(sentence=sentence, needs=tuple(keys), test=test, quick=quick)


def all_of(sentence: str, *claims: Claim, quick: bool = False) -> Claim:
    """Claim in one sentence that all of these claims hold."""

    def test(results: Results) -> Finding:
        findings = [(claim.sentence, *claim.test(results)) for claim in claims]
        truth = _combine_truths(holds for _, holds, _ in findings)
        broken = [
            f"{name}, but {figures}" for name, holds, figures in findings if holds is not True
        ]
        return truth, "; ".join(broken or (figures for _, _, figures in findings))

    needs = dict.fromkeys(key for claim in claims for key in claim.needs)
    return Claim(sentence=sentence, needs=tuple(needs), test=test, quick=quick)


def _compute_share_error(row: Result, share: float) -> float:
    """Compute the standard error of a share, as if at least one run differed."""
    return math.sqrt(max(share * (1 - share), 1 / row.replicates) / row.replicates)


def _get_standard_error(row: Result) -> float:
    """Return the standard error, which is infinite for a single replicate."""
    return math.inf if row.regret.se is None else row.regret.se


def _is_in_budget(row: Result) -> bool:
    if row.cell.asked is None or row.spent is None:
        return False
    (epsilon, delta), (spent, spent_delta) = row.cell.asked, row.spent
    # The ledger searches for epsilon numerically, from above.
    return spent <= epsilon * (1 + 1e-9) and spent_delta <= delta
