"""A self-contained HTML report: picture, table, promises, and how to run it again."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Sequence
from importlib import resources

from kerchief.experiments.compare import Finished
from kerchief.experiments.declare import Comparison
from kerchief.experiments.extras import require_report
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


def render(comparison: Comparison, finished: Sequence[Finished], picture: bytes) -> str:
    """Fill the report's template; everything is escaped, and nothing is loaded from elsewhere.

    Args:
        comparison: what was declared.
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
    planned = len(comparison.cells())
    return environment.from_string(text).render(
        title="What privacy costs a bandit",
        lead=_lead(comparison),
        complete=len(finished) == planned,
        planned=planned,
        headings=HEADINGS,
        rows=make_rows(finished),
        picture=base64.b64encode(picture).decode("ascii"),
        promises=promises(comparison),
        command=comparison.command(),
        parameters=comparison.parameters(),
        versions=versions(),
        machine=machine(),
    )


def promises(comparison: Comparison) -> list[Promise]:
    """The promise of each private trust, in full once and in a line for each further epsilon.

    >>> [promise.trust for promise in promises(Comparison())]
    ['local', 'joint', 'central']
    """
    asked = [cell.guarantee for cell in comparison.cells() if cell.asked is not None]
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


def _lead(comparison: Comparison) -> str:
    return (
        f"{', '.join(comparison.policies)} on {comparison.link} rewards: {comparison.arms} arms in "
        f"{comparison.dim} dimensions, {comparison.horizon} rounds, "
        f"{comparison.replicates} replicates, seed {comparison.seed}."
    )
