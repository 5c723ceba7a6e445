"""Panels of a picture: regret against rounds, epsilon, what clients sent, or a world's number.

A panel is drawn for the lines of one facet, and says where each of them ends.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kerchief.comparison.players import Player
from kerchief.comparison.results import Result
from kerchief.reports.facets import Facet, Line
from kerchief.reports.labels import End
from kerchief.reports.line_styles import GREY, LineStyle, key_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TICKS = 0.13  # of the axis: the least distance of two labels
_MARGIN = 0.06  # of the axis: beside the last epsilon, and the width of the bars at each
_THICK, _THIN = 1.3, 0.9


class Panel(abc.ABC):
    """What one kind of panel shows."""

    title: str
    share: float = 1.0
    """Its width, beside that of others in a row of different ones."""

    @abc.abstractmethod
    def lines(self, cells: Sequence[Result]) -> list[Line]:
        """What is drawn as one line each."""

    @abc.abstractmethod
    def draw(self, axes: Axes, facet: Facet, pen: LineStyle) -> None:
        """Draw the lines, and the horizontal axis."""

    def ends(self, facet: Facet, pen: LineStyle) -> list[End]:
        """Where lines end, with their names here."""
        pairs = zip(facet.lines, facet.names, strict=True)
        lasts = [(line.points[-1], name) for line, name in pairs]
        return [End(name, point.regret.mean, pen.colour(point.cell)) for point, name in lasts]


class OverRounds(Panel):
    """Regret over time: means, two standard errors, and a dash at the final 95th percentile."""

    title, share = "over time", 1.35

    def lines(self, cells: Sequence[Result]) -> list[Line]:
        """One for each cell."""
        return [Line(points=(result,)) for result in cells]

    def draw(self, axes: Axes, facet: Facet, pen: LineStyle) -> None:
        """Draw curves and bands."""
        from matplotlib.ticker import EngFormatter, MaxNLocator

        pen = pen.solid() if facet.one_epsilon else pen
        for line in facet.lines:
            (result,) = line.points
            mean, error = result.curves.mean(axis=1), _errors(result)
            colour, dashes = pen.style(result.cell)
            axes.plot(result.rounds, mean, color=colour, linestyle=dashes, linewidth=_THICK)
            low = np.maximum(mean - 2 * error, mean / 10)
            band: Any = {"color": colour, "alpha": 0.12, "linewidth": 0}
            axes.fill_between(result.rounds, low, mean + 2 * error, **band)
            axes.scatter(result.rounds[-1:], [result.regret.p95], marker="_", s=20, color=colour)
        last = max(int(line.points[0].rounds[-1]) for line in facet.lines)
        axes.set(xlabel="rounds", xlim=(0, last))
        axes.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))


class OverEpsilon(Panel):
    """Final regret at each epsilon; bars stand side by side, so that they can be told apart."""

    title = "the price of ε"

    def lines(self, cells: Sequence[Result]) -> list[Line]:
        """One for each policy and trust, and one without protection for each player."""
        private: dict[tuple[str, str], list[Result]] = {}
        for result in cells:
            if result.cell.asked is not None:
                private.setdefault(key_of(result.cell), []).append(result)
        swept = [
            Line(points=tuple(sorted(points, key=_epsilon)), swept=True)
            for points in private.values()
        ]
        return [Line(points=(result,)) for result in cells if result.cell.asked is None] + swept

    def draw(self, axes: Axes, facet: Facet, pen: LineStyle) -> None:
        """Draw points with bars, and levels without protection."""
        private = [line for line in facet.lines if line.private]
        epsilons = pen.epsilons or (1.0,)
        margin = (2 * epsilons[-1] / epsilons[0]) ** _MARGIN
        for place, line in enumerate(private):
            aside = margin ** ((place + 0.5) / len(private) - 0.5)
            places = [_epsilon(point) * aside for point in line.points]
            _points(axes, places, line.points, color=pen.colour(line.points[0].cell))
        for line in facet.lines:
            if not line.private:
                _level(axes, line.points[0], pen)
        _log_axis(axes, "ε asked for", dict(zip(epsilons, _space_labels(epsilons), strict=True)))
        axes.set_xlim(epsilons[0] / margin, epsilons[-1] * margin)


class OverBits(Panel):
    """Final regret against what clients sent; players that differ in numbers alone are joined."""

    title = "what clients sent"

    def lines(self, cells: Sequence[Result]) -> list[Line]:
        """One for each cell."""
        return [Line(points=(result,)) for result in cells]

    def draw(self, axes: Axes, facet: Facet, pen: LineStyle) -> None:
        """Draw points with bars, and levels of those who sent nothing."""
        cells = [line.points[0] for line in facet.lines]
        senders = sorted((result for result in cells if _bits(result)), key=_bits)
        for alike in dict.fromkeys(map(_without_numbers, senders)):
            points = [result for result in senders if _without_numbers(result) == alike]
            regrets = [point.regret.mean for point in points]
            axes.plot(list(map(_bits, points)), regrets, color=GREY, linewidth=0.8)
            for result in points:
                _points(axes, [_bits(result)], [result], color=pen.colour(result.cell))
        for result in cells:
            if not _bits(result):
                _level(axes, result, pen)
        axes.set(xscale="log", xlabel="bits sent")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class OverWorlds(Panel):
    """Final regret of every player against the number of the world."""

    axis: str
    numbers: Mapping[str, float]

    @property
    def title(self) -> str:  # type: ignore[override]
        """What the numbers are."""
        return f"final regret against {self.axis}"

    def lines(self, cells: Sequence[Result]) -> list[Line]:
        """One for each player, from world to world."""
        players: dict[Player, list[Result]] = {}
        for result in cells:
            players.setdefault(result.cell.player, []).append(result)
        return [
            Line(points=tuple(sorted(points, key=lambda point: self.numbers[point.cell.world])))
            for points in players.values()
        ]

    def draw(self, axes: Axes, facet: Facet, pen: LineStyle) -> None:
        """Draw points with bars."""
        pen = pen.solid() if facet.one_epsilon else pen
        for line in facet.lines:
            colour, dashes = pen.style(line.points[0].cell)
            numbers = [self.numbers[point.cell.world] for point in line.points]
            _points(axes, numbers, line.points, color=colour, linestyle=dashes)
        ticks = sorted(
            {self.numbers[point.cell.world] for line in facet.lines for point in line.points}
        )
        _log_axis(axes, self.axis, dict(zip(ticks, _space_labels(ticks), strict=True)))


def _epsilon(result: Result) -> float:
    return result.cell.guarantee.epsilon


def _bits(result: Result) -> float:
    return result.communication.get("bits", 0.0)


def _without_numbers(result: Result) -> Player:
    return dataclasses.replace(result.cell.player, numbers=())


def _space_labels(places: Sequence[float]) -> list[str]:
    """Label ticks of a logarithmic axis, and leave out labels that would overlap.

    >>> _space_labels([0.2, 0.282965, 1.0, 10.0])
    ['0.2', '', '1', '10']
    """
    width, last, labels = np.log(places[-1] / places[0]), 0.0, list[str]()
    for place in places:
        apart = not any(labels) or np.log(place / last) > _TICKS * width
        last = place if apart else last
        labels.append(f"{place:.3g}" if apart else "")
    return labels


def _level(axes: Axes, result: Result, pen: LineStyle) -> None:
    colour, dashes = pen.style(result.cell)
    axes.axhline(result.regret.mean, color=colour, linestyle=dashes, linewidth=_THIN)


def _points(axes: Axes, places: Sequence[float], cells: Sequence[Result], **style: Any) -> None:
    """A line through final regrets, with bars of two standard errors and a dash at the p95."""
    means, errors = (
        [result.regret.mean for result in cells],
        [2 * _errors(result)[-1] for result in cells],
    )
    style |= {"marker": "o", "markersize": 3, "linewidth": _THICK}
    axes.errorbar(places, means, yerr=errors, elinewidth=_THIN, **style)
    p95 = [result.regret.p95 for result in cells]
    axes.scatter(places, p95, marker="_", s=20, color=style["color"])


def _log_axis(axes: Axes, label: str, ticks: Mapping[float, str]) -> None:
    axes.set(xscale="log", xlabel=label)
    axes.set_xticks(list(ticks), list(ticks.values()))
    axes.set_xticks([], minor=True)


def _errors(result: Result) -> NDArray[np.float64]:
    """Standard errors, which are zero for a single replicate."""
    count = result.replicates
    deviation = result.curves.std(axis=1, ddof=1) if count > 1 else np.zeros(len(result.curves))
    return np.asarray(deviation / np.sqrt(count))
