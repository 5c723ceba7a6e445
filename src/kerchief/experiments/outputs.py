"""What a plan leaves on disk: results after every cell, picture and report at the end."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from kerchief.experiments.claims import Verdict
from kerchief.experiments.compare import Finished
from kerchief.experiments.extras import require_report
from kerchief.experiments.figures import picture
from kerchief.experiments.folder import Folder
from kerchief.experiments.plan import Plan
from kerchief.experiments.report import render
from kerchief.experiments.rows import Row, make_rows
from kerchief.experiments.table import write_table
from kerchief.experiments.versions import machine, versions

__all__ = ["Outputs"]

_TABLE, _ROWS, _REPORT = "results.parquet", "results.json", "report.html"


@dataclasses.dataclass(kw_only=True)
class Outputs:
    """The finished cells of one plan, and their files; make it with `Outputs.at`."""

    plan: Plan
    folder: Folder
    finished: list[Finished] = dataclasses.field(default_factory=list)
    files: dict[str, Path] = dataclasses.field(default_factory=dict)

    @classmethod
    def at(cls, path: Path, plan: Plan) -> Outputs:
        """Check that everything can be written, before anything runs.

        Raises:
            KerchiefError: the folder cannot be written, or a library for reports is missing.
        """
        require_report()
        return cls(plan=plan, folder=Folder.at(path))

    def keep(self, finished: Finished) -> None:
        """Write the results so far: an interrupted run leaves these files whole."""
        if not self.finished:
            # Files of an earlier run must not stand beside the results of this one.
            self.folder.remove(self._picture)
            self.folder.remove(_REPORT)
        self.finished.append(finished)
        self.files["table"] = self.folder.write(
            _TABLE, lambda path: write_table(self.plan, self.finished, path)
        )
        self._write_rows()

    def close(self) -> None:
        """Draw the picture and write the report of whatever was finished."""
        if not self.finished:
            return
        image = picture(self.plan, self.finished)
        page = render(self.plan, self.finished, image)
        self.files["picture"] = self.folder.write(self._picture, lambda path: _bytes(path, image))
        self.files["report"] = self.folder.write(_REPORT, lambda path: _bytes(path, page.encode()))
        self._write_rows()

    def document(self) -> dict[str, object]:
        """Rows, claims, parameters, versions and files, as one JSON object.

        A null in a row's epsilon or delta means that nothing bounds it; `private` says the same.
        `printed` is the regret in a paper's own table, and there are claims in the catalogue alone.
        """
        printed = self.plan.printed()
        return {
            "rows": [
                row.to_dict() | {"printed": printed.get(row.cell.spot)} for row in self.rows()
            ],
            "claims": [dataclasses.asdict(verdict) for verdict in self.verdicts()],
            "complete": len(self.finished) == len(self.plan.cells()),
            "seconds": self.seconds,
            "parameters": self.plan.parameters(),
            "command": self.plan.command(),
            "versions": versions(),
            "machine": machine(),
            "files": {name: str(path) for name, path in self.files.items()},
        }

    def rows(self) -> list[Row]:
        """The table of what was finished."""
        return make_rows(self.finished)

    def verdicts(self) -> tuple[Verdict, ...]:
        """What became of the plan's claims, if it makes any."""
        return self.plan.verdicts(self.rows())

    @property
    def seconds(self) -> float:
        """Wall time of all finished cells, compilation included."""
        return sum(one.wall_seconds for one in self.finished)

    @property
    def _picture(self) -> str:
        return f"{self.plan.name}.png"

    def _write_rows(self) -> None:
        self.files["rows"] = self.folder.path / _ROWS
        text = json.dumps(self.document(), indent=2, allow_nan=False) + "\n"
        self.folder.write(_ROWS, lambda path: _bytes(path, text.encode()))


def _bytes(path: Path, content: bytes) -> None:
    path.write_bytes(content)
