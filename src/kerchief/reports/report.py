"""A self-contained HTML report: picture, tables, promises, and how to run it again."""

from __future__ import annotations

import base64
import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from importlib import resources
from typing import TypeAlias

from kerchief.comparison.plan import Plan
from kerchief.comparison.players import Cell, Player
from kerchief.comparison.results import SENT, Result, amount, headings_of
from kerchief.comparison.versions import machine, versions
from kerchief.privacy.guarantee import Guarantee
from kerchief.reports.extras import require

# Columns of the table that a phone does without.
_MINOR = ("δ", "spent ε, δ", "% uniform", "µs")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Promise:
    """What one trust promises about one thing: in full once, and all others in few sentences."""

    trust: str
    statement: str
    others: tuple[str, ...]


def render(plan: Plan, finished: Sequence[Result], picture: bytes) -> str:
    """Fill the report's template, with the picture as PNG."""
    return page(
        "report.html.j2",
        picture,
        plan=plan,
        finished=finished,
        headlines=headlines(plan, finished),
        headings_of=headings_of,
        minor=_MINOR,
        tables=_by_world(plan, finished),
        beside=side_by_side(plan, finished),
        promises=promises(plan, (row.cell for row in finished)),
        of_one_report=list(of_one_report(plan, finished)),
    )


def page(template: str, picture: bytes, **values: object) -> str:
    """Fill a template of this folder, with the picture as PNG and what it ran on.

    Everything is escaped, and nothing is loaded from elsewhere.
    """
    require("report")
    import jinja2

    folder = resources.files(__package__)
    loader = jinja2.FunctionLoader(lambda name: folder.joinpath(name).read_text(encoding="utf-8"))
    environment = jinja2.Environment(
        autoescape=True,
        loader=loader,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(
        **values,
        picture=base64.b64encode(picture).decode("ascii"),
        versions=versions(),
        machine=machine(),
    )


def headlines(plan: Plan, rows: Sequence[Result]) -> list[str]:
    """For each world, what privacy costs at the strictest and at the loosest epsilon."""
    return [_headline(caption, group) for caption, group in _by_world(plan, rows)]


def _by_world(plan: Plan, rows: Sequence[Result]) -> list[tuple[str, list[Result]]]:
    worlds = itertools.groupby(rows, key=lambda row: row.world)
    return [(plan.caption(world), list(group)) for world, group in worlds]


def _headline(caption: str, rows: Sequence[Result]) -> str:
    epsilons = sorted(row.epsilon for row in rows if row.epsilon is not None)
    costs = [_cost(epsilon, rows) for epsilon in dict.fromkeys(epsilons[:1] + epsilons[-1:])]
    summary = "; ".join(costs) or "no private bandit was played to the end"
    return f"{caption[0].upper()}{caption[1:]}: {summary}."


def _cost(epsilon: float, rows: Sequence[Result]) -> str:
    """The least regret at one epsilon, beside that of the baselines."""
    best = min((row for row in rows if row.epsilon == epsilon), key=lambda row: row.regret.mean)
    costs = [_compare_regret(best, row) for row in rows if _is_yardstick(best, row)]
    return (
        f"at ε = {epsilon:g} the least private regret is {best.regret.text()} "
        f"({best.cell.player.name}, trust: {best.protection})"
        f"{', ' if costs else ''}{' and '.join(costs)}"
    )


def _is_yardstick(best: Result, baseline: Result) -> bool:
    """Uniform play, and the non-private parent with widths of the same kind."""
    if baseline.epsilon is not None:
        return False
    parent, plain = best.cell.player.parents()[0].policy, baseline.cell.player
    alike = plain.policy == parent and plain.mode == best.cell.player.mode
    return plain.policy == "uniform" or (alike and not plain.numbers)


def _compare_regret(best: Result, baseline: Result) -> str:
    """Describe one regret beside that of a baseline."""
    name = baseline.cell.player.name
    source = "uniform play" if name == "uniform" else f"{name} without privacy"
    reference = f"the {amount(baseline.regret.mean)} of {source}"
    if baseline.regret.mean <= 0:
        return f"beside {reference}"
    share = best.regret.mean / baseline.regret.mean
    return f"{100 * share:.1f} % of {reference}" if share < 1 else f"{share:.1f} times {reference}"


Said: TypeAlias = tuple[Guarantee, str]
"""A promise, and what it is about."""


def promises(plan: Plan, cells: Iterable[Cell]) -> list[Promise]:
    """What each private trust promises, in full once and in one sentence for further epsilons."""
    alike: dict[tuple[str, str], list[Guarantee]] = {}
    for guarantee, protected in dict.fromkeys(_collect_guarantees(plan, cells)):
        alike.setdefault((str(guarantee.trust), protected), []).append(guarantee)
    return [
        Promise(
            trust=trust,
            statement=first.statement(protected=protected),
            others=tuple(_sentences((guarantee, protected) for guarantee in further)),
        )
        for (trust, protected), (first, *further) in alike.items()
    ]


def kept_promises(plan: Plan, cells: Iterable[Cell]) -> Iterator[str]:
    """The promises of cells, in one sentence for those that differ in their epsilon alone."""
    return _sentences(_collect_guarantees(plan, cells))


def of_one_report(plan: Plan, finished: Iterable[Result]) -> Iterator[str]:
    """What one report promises by itself, for each player with the number `local`."""
    alone: dict[str, list[Said]] = {}
    for result in finished:
        player = result.cell.player
        if "local" in dict(player.numbers) and result.alone is not None:
            claim = result.alone, plan.protected(result.cell)
            alone.setdefault(f"{player.name} {player.protection}", []).append(claim)
    for name, promised in alone.items():
        for sentence in _sentences(promised):
            yield f"one report of {name} by itself, on its way to the shuffler: {sentence}"


def _collect_guarantees(plan: Plan, cells: Iterable[Cell]) -> Iterator[Said]:
    return ((cell.guarantee, plan.protected(cell)) for cell in cells if cell.asked is not None)


def _sentences(promises: Iterable[Said]) -> Iterator[str]:
    """Promises that differ in their epsilon alone, in one sentence."""
    alike: dict[Said, list[float]] = {}
    for guarantee, protected in dict.fromkeys(promises):
        base = dataclasses.replace(guarantee, epsilon=0.0)
        alike.setdefault((base, protected), []).append(guarantee.epsilon)
    for (base, protected), (first, *further) in alike.items():
        yield dataclasses.replace(base, epsilon=first).sentence(*further, protected=protected)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SideBySide:
    """A table of texts, one per column in each line: the player, the bill, then the worlds."""

    headings: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]

    def pages(self, worlds: int) -> list[SideBySide]:
        """Split the table into several, each with so many worlds."""
        return [
            SideBySide(
                headings=_select_columns(self.headings, start, worlds),
                lines=tuple(_select_columns(line, start, worlds) for line in self.lines),
            )
            for start in range(2, len(self.headings), worlds)
        ]


def side_by_side(plan: Plan, rows: Sequence[Result]) -> SideBySide:
    """Arrange rows by player and world; what was spent is that of the worst world.

    For populations, what clients sent follows, world by world.
    """
    worlds = list(dict.fromkeys(row.world for row in rows))
    by_player: dict[Player, dict[str, Result]] = {}
    for row in rows:
        by_player.setdefault(row.cell.player, {})[row.world] = row
    printed = {key.world for key in plan.printed()}
    headings = [f"{world} (printed)" if world in printed else world for world in worlds]
    phased = [world for world in worlds if any(r.communication for r in rows if r.world == world)]
    where = {world: f"{world}: " if len(worlds) > 1 else "" for world in phased}
    headings += [f"{where[world]}{heading}" for world in phased for heading in SENT.values()]
    lines = []
    for player, results in by_player.items():
        worst = max(results.values(), key=lambda row: row.spent or (0.0, 0.0))
        communication = [
            text for world in phased for text in _list_communication(results.get(world))
        ]
        regrets = (_text(plan, results.get(world)) for world in worlds)
        lines.append((player.label(), worst.bill(), *regrets, *communication))
    return SideBySide(headings=("", "spent ε, δ", *headings), lines=tuple(lines))


def _text(plan: Plan, row: Result | None) -> str:
    if row is None:
        return "-"
    printed = plan.printed().get(row.cell.key)
    return row.regret.text() + ("" if printed is None else f" ({amount(printed)})")


def _list_communication(row: Result | None) -> tuple[str, ...]:
    return ("-",) * len(SENT) if row is None else row.sent()


def _select_columns(texts: tuple[str, ...], start: int, worlds: int) -> tuple[str, ...]:
    """Label and bill, then a few worlds."""
    return texts[:2] + texts[start : start + worlds]
