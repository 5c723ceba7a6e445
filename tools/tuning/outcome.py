"""What a search has found, as it is stored."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from tools.tuning.scores import ERRORS, OBJECTIVE
from tools.tuning.search import Search

from kerchief.core.errors import InvalidValueError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
    """A candidate's score in a rung: all rungs play the same seed, the later ones more of it."""

    rung: int
    numbers: Mapping[str, float]
    replicates: int
    score: float
    se: float
    p95: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Match:
    """The best candidate beside the incumbent in one cell, or over all, on the second seed.

    Attributes:
        best: the candidate's mean regret over that of uniform play; over all, the geometric mean.
        incumbent: the same of the incumbent.
        gain: how much less the logarithm of `best` is than that of `incumbent`.
        se: its standard error, of the difference on the same draws.
        best_p95: the 95th percentile in place of the mean.
        incumbent_p95: the same of the incumbent.
    """

    cell: str
    best: float
    incumbent: float
    gain: float
    se: float
    best_p95: float
    incumbent_p95: float

    @property
    def heavier(self) -> bool:
        """Whether it loses more in its worst runs."""
        return self.best_p95 > self.incumbent_p95

    @property
    def won(self) -> bool:
        """Whether the candidate is clearly better."""
        return self.gain > ERRORS * self.se and self.gain > 0

    @property
    def lost(self) -> bool:
        """Whether it is clearly worse."""
        return self.gain < -ERRORS * self.se and self.gain < 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of a search.

    Attributes:
        search: as it was declared.
        evaluations: every candidate in every rung, the incumbent first.
        best: the candidate that was confirmed, or not.
        overall: it beside the incumbent, over all cells.
        cells: the same in each.
        versions: of what played.
    """

    search: Search
    evaluations: tuple[Evaluation, ...]
    best: Mapping[str, float]
    overall: Match
    cells: tuple[Match, ...]
    versions: Mapping[str, str]

    @property
    def beaten(self) -> bool:
        """Whether the incumbent is: clearly over all cells, and by no heavier tail."""
        return self.overall.won and not self._list_objections()

    def _list_objections(self) -> list[str]:
        """Why a candidate that gains over all cells is still not preferred."""
        worse = [match.cell for match in self.cells if match.lost]
        tails = f"p95 {self.overall.best_p95:.3g} against {self.overall.incumbent_p95:.3g}"
        return [f"it loses in {cell}" for cell in worse] + [tails] * self.overall.heavier

    @property
    def chosen(self) -> Mapping[str, float]:
        """The numbers to play with."""
        return self.best if self.beaten and not self.search.held else dict(self.search.incumbent)

    @property
    def runner_up(self) -> Evaluation | None:
        """The candidate that came next to the best, of those that came furthest."""
        own = dict(self.search.incumbent)
        rivals = [
            evaluation
            for evaluation in self.evaluations
            if evaluation.numbers not in (self.best, own)
        ]
        return min(
            rivals, key=lambda evaluation: (-evaluation.rung, evaluation.score), default=None
        )

    def verdict(self) -> str:
        """One sentence.

        >>> Outcome.read(Path(__file__).with_name("searches") / "ucb.json").verdict()[:9]
        'incumbent'
        """
        margin = f"{self.overall.gain:+.3f} ± {self.overall.se:.3f}"
        if not self.beaten:
            why = [f"gain {margin}", *(self._list_objections() if self.overall.won else [])]
            return f"incumbent stays: {'; '.join(why)}"
        if self.search.held:
            return f"incumbent is beaten (gain {margin}) and held: {self.search.held}"
        return f"incumbent is replaced: gain {margin}"

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "policy": self.search.policy,
            "chosen": dict(self.chosen),
            "verdict": self.verdict(),
            "objective": OBJECTIVE,
            "rule": f"the incumbent stays unless the best candidate gains more than {ERRORS:g} "
            "standard errors over all cells, loses as much in none, and has no heavier tail",
            "best": dict(self.best),
            "runner_up": self.runner_up and dataclasses.asdict(self.runner_up),
            "overall": dataclasses.asdict(self.overall),
            "cells": [dataclasses.asdict(match) for match in self.cells],
            "evaluations": [dataclasses.asdict(evaluation) for evaluation in self.evaluations],
            "search": self.search.to_dict(),
            "versions": dict(self.versions),
        }

    def text(self) -> str:
        """The file: one line for each evaluation, so that changes can be read."""
        lines = [
            f" {json.dumps(name)}: {_format_json(value)}" for name, value in self.to_dict().items()
        ]
        return "{\n" + ",\n".join(lines) + "\n}\n"

    @classmethod
    def read(cls, path: Path) -> Self:
        """What was stored.

        Raises:
            InvalidValueError: the file cannot be read, or holds no outcome.
        """
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            return cls(
                search=Search.of(document["search"]),
                evaluations=tuple(Evaluation(**fields) for fields in document["evaluations"]),
                best=document["best"],
                overall=Match(**document["overall"]),
                cells=tuple(Match(**fields) for fields in document["cells"]),
                versions=document["versions"],
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            reason = " ".join(str(error).split())
            raise InvalidValueError(
                f"{str(path)!r} holds no outcome of a search ({reason}); play the search again"
            ) from error


def _format_json(value: object) -> str:
    if not isinstance(value, list):
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    lines = [f"  {json.dumps(entry, ensure_ascii=False, allow_nan=False)}" for entry in value]
    return "[\n" + ",\n".join(lines) + "\n ]"
