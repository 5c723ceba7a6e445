"""What a comparison leaves on disk: results after every cell, picture and report at the end."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from kerchief.experiments.compare import Finished
from kerchief.experiments.declare import Comparison
from kerchief.experiments.extras import require_report
from kerchief.experiments.figures import picture
from kerchief.experiments.folder import Folder
from kerchief.experiments.report import render
from kerchief.experiments.rows import make_rows
from kerchief.experiments.table import write_table
from kerchief.experiments.versions import machine, versions

__all__ = ["Outputs"]

_TABLE, _ROWS, _PICTURE, _REPORT = "results.parquet", "results.json", "compare.png", "report.html"


@dataclasses.dataclass(kw_only=True)
class Outputs:
    """The finished cells of one comparison, and their files; make it with `Outputs.at`."""

    comparison: Comparison
    folder: Folder
    finished: list[Finished] = dataclasses.field(default_factory=list)
    files: dict[str, Path] = dataclasses.field(default_factory=dict)

    @classmethod
    def at(cls, path: Path, comparison: Comparison) -> Outputs:
        """Check that everything can be written, before anything runs.

        Raises:
            KerchiefError: the folder cannot be written, or a library for reports is missing.
        """
        require_report()
        return cls(comparison=comparison, folder=Folder.at(path))

    def keep(self, finished: Finished) -> None:
        """Write the results so far: an interrupted run leaves these files whole."""
        if not self.finished:
            # Files of an earlier run must not stand beside the results of this one.
            self.folder.remove(_PICTURE)
            self.folder.remove(_REPORT)
        self.finished.append(finished)
        self.files["table"] = self.folder.write(
            _TABLE, lambda path: write_table(self.comparison, self.finished, path)
        )
        self._write_rows()

    def close(self) -> None:
        """Draw the picture and write the report of whatever was finished."""
        if not self.finished:
            return
        image = picture(self.finished)
        page = render(self.comparison, self.finished, image)
        self.files["picture"] = self.folder.write(_PICTURE, lambda path: _bytes(path, image))
        self.files["report"] = self.folder.write(_REPORT, lambda path: _bytes(path, page.encode()))
        self._write_rows()

    def document(self) -> dict[str, object]:
        """Rows, parameters, versions and files, as one JSON object.

        A null in a row's epsilon or delta means that nothing bounds it; `private` says the same.
        """
        return {
            "rows": [row.to_dict() for row in make_rows(self.finished)],
            "complete": len(self.finished) == len(self.comparison.cells()),
            "parameters": self.comparison.parameters(),
            "command": self.comparison.command(),
            "versions": versions(),
            "machine": machine(),
            "files": {name: str(path) for name, path in self.files.items()},
        }

    def _write_rows(self) -> None:
        self.files["rows"] = self.folder.path / _ROWS
        text = json.dumps(self.document(), indent=2, allow_nan=False) + "\n"
        self.folder.write(_ROWS, lambda path: _bytes(path, text.encode()))


def _bytes(path: Path, content: bytes) -> None:
    path.write_bytes(content)
