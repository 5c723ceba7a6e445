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

from kerchief.experiments.facets import Facet, Line
from kerchief.experiments.labels import End
from kerchief.experiments.pens import GREY, Pen, key_of
from kerchief.experiments.players import Player
from kerchief.experiments.results import Result

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
    def draw(self, axes: Axes, facet: Facet, pen: Pen) -> None:
        """Draw the lines, and the horizontal axis."""

    def ends(self, facet: Facet, pen: Pen) -> list[End]:
        """Where lines end, with their names here."""
        pairs = zip(facet.lines, facet.names, strict=True)
        lasts = [(line.points[-1], name) for line, name in pairs]
        return [End(name, one.regret.mean, pen.colour(one.cell)) for one, name in lasts]


class OverRounds(Panel):
    """Regret over time: means, two standard errors, and a dash at the final 95th percentile."""

    title, share = "over time", 1.35

    def lines(self, cells: Sequence[Result]) -> list[Line]:
        """One for each cell."""
        return [Line(points=(one,)) for one in cells]

    def draw(self, axes: Axes, facet: Facet, pen: Pen) -> None:
        """Draw curves and bands."""
        from matplotlib.ticker import EngFormatter, MaxNLocator

        pen = pen.solid() if facet.one_epsilon else pen
        for line in facet.lines:
            (one,) = line.points
            mean, error = one.curves.mean(axis=1), _errors(one)
            colour, dashes = pen.style(one.cell)
            axes.plot(one.rounds, mean, color=colour, linestyle=dashes, linewidth=_THICK)
            low = np.maximum(mean - 2 * error, mean / 10)
            band: Any = {"color": colour, "alpha": 0.12, "linewidth": 0}
            axes.fill_between(one.rounds, low, mean + 2 * error, **band)
            axes.scatter(one.rounds[-1:], [one.regret.p95], marker="_", s=20, color=colour)
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
        for one in cells:
            if one.cell.asked is not None:
                private.setdefault(key_of(one.cell), []).append(one)
        swept = [
            Line(points=tuple(sorted(points, key=_epsilon)), swept=True)
            for points in private.values()
        ]
        return [Line(points=(one,)) for one in cells if one.cell.asked is None] + swept

    def draw(self, axes: Axes, facet: Facet, pen: Pen) -> None:
        """Draw points with bars, and levels without protection."""
        private = [line for line in facet.lines if line.private]
        shown = pen.epsilons or (1.0,)
        margin = (2 * shown[-1] / shown[0]) ** _MARGIN
        for place, line in enumerate(private):
            aside = margin ** ((place + 0.5) / len(private) - 0.5)
            places = [_epsilon(one) * aside for one in line.points]
            _points(axes, places, line.points, color=pen.colour(line.points[0].cell))
        for line in facet.lines:
            if not line.private:
                _level(axes, line.points[0], pen)
        _log_axis(axes, "ε asked for", dict(zip(shown, _spaced(shown), strict=True)))
        axes.set_xlim(shown[0] / margin, shown[-1] * margin)


class OverBits(Panel):
    """Final regret against what clients sent; players that differ in numbers alone are joined."""

    title = "what clients sent"

    def lines(self, cells: Sequence[Result]) -> list[Line]:
        """One for each cell."""
        return [Line(points=(one,)) for one in cells]

    def draw(self, axes: Axes, facet: Facet, pen: Pen) -> None:
        """Draw points with bars, and levels of those who sent nothing."""
        cells = [line.points[0] for line in facet.lines]
        told = sorted((one for one in cells if _bits(one)), key=_bits)
        for alike in dict.fromkeys(map(_without_numbers, told)):
            points = [one for one in told if _without_numbers(one) == alike]
            regrets = [one.regret.mean for one in points]
            axes.plot(list(map(_bits, points)), regrets, color=GREY, linewidth=0.8)
            for one in points:
                _points(axes, [_bits(one)], [one], color=pen.colour(one.cell))
        for one in cells:
            if not _bits(one):
                _level(axes, one, pen)
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
        for one in cells:
            players.setdefault(one.cell.player, []).append(one)
        return [
            Line(points=tuple(sorted(points, key=lambda one: self.numbers[one.cell.world])))
            for points in players.values()
        ]

    def draw(self, axes: Axes, facet: Facet, pen: Pen) -> None:
        """Draw points with bars."""
        pen = pen.solid() if facet.one_epsilon else pen
        for line in facet.lines:
            colour, dashes = pen.style(line.points[0].cell)
            numbers = [self.numbers[one.cell.world] for one in line.points]
            _points(axes, numbers, line.points, color=colour, linestyle=dashes)
        shown = sorted(
            {self.numbers[one.cell.world] for line in facet.lines for one in line.points}
        )
        _log_axis(axes, self.axis, dict(zip(shown, _spaced(shown), strict=True)))


def _epsilon(one: Result) -> float:
    return one.cell.guarantee.epsilon


def _bits(one: Result) -> float:
    return one.communication.get("bits", 0.0)


def _without_numbers(one: Result) -> Player:
    return dataclasses.replace(one.cell.player, numbers=())


def _spaced(places: Sequence[float]) -> list[str]:
    """Labels along a logarithmic axis, without those that would touch the one before.

    >>> _spaced([0.2, 0.282965, 1.0, 10.0])
    ['0.2', '', '1', '10']
    """
    whole, last, labels = np.log(places[-1] / places[0]), 0.0, list[str]()
    for place in places:
        apart = not any(labels) or np.log(place / last) > _TICKS * whole
        last = place if apart else last
        labels.append(f"{place:.3g}" if apart else "")
    return labels


def _level(axes: Axes, one: Result, pen: Pen) -> None:
    colour, dashes = pen.style(one.cell)
    axes.axhline(one.regret.mean, color=colour, linestyle=dashes, linewidth=_THIN)


def _points(axes: Axes, places: Sequence[float], cells: Sequence[Result], **style: Any) -> None:
    """A line through final regrets, with bars of two standard errors and a dash at the p95."""
    means, errors = [one.regret.mean for one in cells], [2 * _errors(one)[-1] for one in cells]
    style |= {"marker": "o", "markersize": 3, "linewidth": _THICK}
    axes.errorbar(places, means, yerr=errors, elinewidth=_THIN, **style)
    p95 = [one.regret.p95 for one in cells]
    axes.scatter(places, p95, marker="_", s=20, color=style["color"])


def _log_axis(axes: Axes, label: str, ticks: Mapping[float, str]) -> None:
    axes.set(xscale="log", xlabel=label)
    axes.set_xticks(list(ticks), list(ticks.values()))
    axes.set_xticks([], minor=True)


def _errors(one: Result) -> NDArray[np.float64]:
    """Standard errors; none are known for a single replicate."""
    count = one.replicates
    spread = one.curves.std(axis=1, ddof=1) if count > 1 else np.zeros(len(one.curves))
    return np.asarray(spread / np.sqrt(count))
