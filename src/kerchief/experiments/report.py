"""A self-contained HTML report: picture, table, promises, and how to run it again."""

from __future__ import annotations

import base64
import dataclasses
import itertools
from collections.abc import Sequence
from importlib import resources

from kerchief.experiments.compare import Finished
from kerchief.experiments.extras import require_report
from kerchief.experiments.paper_table import beside
from kerchief.experiments.plan import Plan
from kerchief.experiments.rows import HEADINGS, make_rows
from kerchief.experiments.versions import machine, versions
from kerchief.privacy.guarantee import Guarantee

__all__ = ["Promise", "promises", "render"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Promise:
    """What one trust promises.

    Attributes:
        trust: the word of `--trust`.
        statement: the promise and its limits, at the first epsilon.
        others: the promise in a line each, at the other epsilons.
    """

    trust: str
    statement: str
    others: tuple[str, ...]


def render(plan: Plan, finished: Sequence[Finished], picture: bytes) -> str:
    """Fill the report's template; everything is escaped, and nothing is loaded from elsewhere.

    Args:
        plan: what was declared.
        finished: what was played.
        picture: the figure as PNG.

    Raises:
        KerchiefError: jinja2 is not installed.
    """
    require_report()
    import jinja2

    text = resources.files(__package__).joinpath("report.html.j2").read_text(encoding="utf-8")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    planned, rows = len(plan.cells()), make_rows(finished)
    return environment.from_string(text).render(
        title=plan.title,
        lead=plan.lead(),
        complete=len(finished) == planned,
        planned=planned,
        played=len(finished),
        headings=HEADINGS,
        tables=[
            (plan.caption(contexts), list(group))
            for contexts, group in itertools.groupby(rows, key=lambda row: row.contexts)
        ],
        beside=beside(plan, rows),
        verdicts=plan.verdicts(rows),
        seconds=sum(one.wall_seconds for one in finished),
        picture=base64.b64encode(picture).decode("ascii"),
        promises=promises(plan),
        command=plan.command(),
        parameters=plan.parameters(),
        versions=versions(),
        machine=machine(),
    )


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
