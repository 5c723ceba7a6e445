"""A self-contained HTML report: picture, table, promises, and how to run it again."""

from __future__ import annotations

import base64
import dataclasses
import itertools
from collections.abc import Sequence
from importlib import resources

from kerchief.experiments.extras import require
from kerchief.experiments.paper_table import side_by_side, size_note
from kerchief.experiments.plan import Plan
from kerchief.experiments.results import HEADINGS, Result
from kerchief.experiments.versions import machine, versions
from kerchief.privacy.guarantee import Guarantee

__all__ = ["Promise", "headlines", "promises", "render"]

# Columns of the table that a phone does without.
_MINOR = ("δ", "spent ε, δ", "µs")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Promise:
    """What one trust promises: with its limits at the first epsilon, in a line at the others."""

    trust: str
    statement: str
    others: tuple[str, ...]


def render(plan: Plan, finished: Sequence[Result], picture: bytes) -> str:
    """Fill the report's template; everything is escaped, and nothing is loaded from elsewhere.

    The picture is a PNG.

    Raises:
        KerchiefError: jinja2 is not installed.
    """
    require("report")
    import jinja2

    text = resources.files(__package__).joinpath("report.html.j2").read_text(encoding="utf-8")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    planned = len(plan.cells())
    return environment.from_string(text).render(
        title=plan.title,
        lead=plan.lead(),
        complete=len(finished) == planned,
        planned=planned,
        played=len(finished),
        headlines=headlines(plan, finished),
        headings=HEADINGS,
        minor=[heading in _MINOR for heading in HEADINGS],
        note=size_note(plan),
        tables=[
            (plan.caption(world), list(group))
            for world, group in itertools.groupby(finished, key=lambda row: row.world)
        ],
        beside=side_by_side(plan, finished),
        verdicts=plan.verdicts(finished),
        seconds=sum(one.wall_seconds for one in finished),
        picture=base64.b64encode(picture).decode("ascii"),
        promises=promises(plan),
        command=plan.command(),
        parameters=plan.parameters(),
        versions=versions(),
        machine=machine(),
    )


def headlines(plan: Plan, rows: Sequence[Result]) -> list[str]:
    """For each world, which private bandit did best, and what its privacy costs."""
    return [
        _headline(plan.caption(world), list(group))
        for world, group in itertools.groupby(rows, key=lambda row: row.world)
    ]


def _headline(caption: str, rows: Sequence[Result]) -> str:
    private = [row for row in rows if row.epsilon is not None]
    if not private:
        return f"On {caption}, no private bandit was played to the end."
    best = min(private, key=lambda row: row.regret.mean)
    costs = [_beside(best, other) for other in rows if _is_yardstick(best, other)]
    return (
        f"On {caption}, {best.cell.player.name} under {best.cell.player.protection} trust at "
        f"ε = {best.epsilon:g} did best of the private bandits: its regret is {best.regret.text()}"
        f"{', ' if costs else ''}{' and '.join(costs)}."
    )


def _is_yardstick(best: Result, other: Result) -> bool:
    """Uniform play, and the non-private parent with widths of the same kind."""
    if other.epsilon is not None:
        return False
    parent, plain = best.cell.player.parents()[0].policy, other.cell.player
    alike = plain.policy == parent and plain.mode == best.cell.player.mode
    return plain.policy == "uniform" or (alike and not plain.numbers)


def _beside(best: Result, other: Result) -> str:
    """What one regret is beside another."""
    name = other.cell.player.name
    whose = "uniform play" if name == "uniform" else f"{name} without privacy"
    known = f"the {other.regret.text()} of {whose}"
    if other.regret.mean <= 0:
        return f"beside {known}"
    share = best.regret.mean / other.regret.mean
    return f"{100 * share:.1f} % of {known}" if share < 1 else f"{share:.1f} times {known}"


def promises(plan: Plan) -> list[Promise]:
    """The promise of each private trust, in full once and in a line for each further epsilon.

    >>> from kerchief.experiments.declare import Comparison
    >>> [promise.trust for promise in promises(Comparison())]
    ['local', 'shuffle', 'joint', 'central']
    """
    asked = [cell.guarantee for cell in plan.cells() if cell.asked is not None]
    by_trust: dict[str, list[Guarantee]] = {}
    for guarantee in dict.fromkeys(asked):
        by_trust.setdefault(str(guarantee.trust), []).append(guarantee)
    return [
        Promise(
            trust=trust,
            statement=first.statement(),
            others=tuple(other.sentence() for other in others),
        )
        for trust, (first, *others) in by_trust.items()
    ]
