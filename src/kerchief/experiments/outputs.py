"""What a plan leaves on disk: results after every cell, picture and report at the end.

A folder that holds a finished run keeps it until another one is finished: until then the new files
grow in a folder of their own inside it, and stay there if the run is interrupted.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from kerchief.experiments.claims import Verdict
from kerchief.experiments.extras import NEEDS, Extra, missing, require
from kerchief.experiments.figures import picture
from kerchief.experiments.folder import Folder
from kerchief.experiments.plan import Plan
from kerchief.experiments.report import render
from kerchief.experiments.results import Result
from kerchief.experiments.table import parquet
from kerchief.experiments.versions import machine, versions

_ROWS = "results.json"


@dataclasses.dataclass(kw_only=True)
class Outputs:
    """The finished cells of one plan, and their files; make it with `Outputs.at`.

    Attributes:
        folder: where the files shall be.
        draft: where they grow: the same, or a fresh folder inside it.
        wanted: what is written besides the rows.
        finished: the cells so far.
        files: what was written, and where it lies now.
    """

    plan: Plan
    folder: Folder
    draft: Folder
    wanted: tuple[Extra, ...]
    finished: list[Result] = dataclasses.field(default_factory=list)
    files: dict[str, Path] = dataclasses.field(default_factory=dict)

    @classmethod
    def at(cls, path: Path, plan: Plan, *, needed: bool = True) -> Outputs:
        """Check that everything can be written, before anything runs.

        A missing library is an error where it is `needed`; else its outputs are not written.
        """
        if needed:
            require(*NEEDS)
        folder = Folder.at(path)
        made = cls(
            plan=plan,
            folder=folder,
            draft=folder,
            wanted=tuple(one for one in NEEDS if not missing(one)),
        )
        for name in made._names().values():
            folder.check(name)
        return made

    def keep(self, finished: Result) -> None:
        """Write the results so far: an interrupted run leaves these files whole."""
        if not self.finished:
            self._begin()
        self.finished.append(finished)
        if "table" in self.wanted:
            self._write("table", parquet(self.plan, self.finished))
        self._write_rows()

    def close(self) -> None:
        """Draw the picture and write the report of whatever was finished, and put all in place."""
        if not self.finished:
            return
        image = picture(self.plan, self.finished) if "picture" in self.wanted else b""
        if image:
            self._write("picture", image)
        if "report" in self.wanted:
            self._write("report", render(self.plan, self.finished, image).encode())
        if self.complete and self.draft != self.folder:
            self._swap()
        else:
            self._write_rows()

    @property
    def complete(self) -> bool:
        """Whether every cell was played."""
        return len(self.finished) == len(self.plan.cells())

    def document(self) -> dict[str, object]:
        """Rows, claims, parameters, versions and files, as one JSON object.

        A null in a row's epsilon or delta means that nothing bounds it; `private` says the same.
        `printed` is the regret in a paper's own table, and there are claims in the catalogue alone.
        """
        printed = self.plan.printed()
        return {
            "rows": [
                one.to_dict() | {"printed": printed.get(one.cell.key)} for one in self.finished
            ],
            "claims": [dataclasses.asdict(verdict) for verdict in self.verdicts()],
            "projection": {
                name: dataclasses.asdict(one) for name, one in self.plan.shortened.items()
            },
            "complete": self.complete,
            "seconds": self.seconds,
            "parameters": self.plan.parameters(),
            "command": self.plan.command(),
            "versions": versions(),
            "machine": machine(),
            "files": {name: str(path) for name, path in self.files.items()},
        }

    def verdicts(self) -> tuple[Verdict, ...]:
        """What became of the plan's claims, if it makes any."""
        return self.plan.verdicts(self.finished)

    @property
    def seconds(self) -> float:
        """Wall time of all finished cells, compilation included."""
        return sum(one.wall_seconds for one in self.finished)

    def _begin(self) -> None:
        """Choose where files grow: what an unfinished run left makes room, a finished one stays."""
        if _holds_finished(self.folder.path / _ROWS):
            self.draft = self.folder.inside("unfinished-")
            return
        for name in self._names().values():
            self.folder.remove(name)

    def _swap(self) -> None:
        """Put every file in its place; the rows, which say that a run is finished, come last."""
        old, self.draft = self.draft, self.folder
        for name in NEEDS:
            if name in self.files:
                self.files[name] = self.folder.take(old, self._names()[name])
            else:
                # Files of an earlier run must not stand beside the results of this one.
                self.folder.remove(self._names()[name])
        self._write_rows()
        old.discard()

    def _names(self) -> dict[str, str]:
        """The files by their words."""
        return {
            "table": "results.parquet",
            "picture": f"{self.plan.name}.png",
            "report": "report.html",
            "rows": _ROWS,
        }

    def _write(self, name: str, content: bytes) -> None:
        self.files[name] = self.draft.write(self._names()[name], content)

    def _write_rows(self) -> None:
        self.files["rows"] = self.draft.path / _ROWS
        text = json.dumps(self.document(), indent=2, allow_nan=False) + "\n"
        self._write("rows", text.encode())


def _holds_finished(rows: Path) -> bool:
    """Whether these are the rows of a finished run; what cannot be read is taken for one."""
    if not rows.exists():
        return False
    try:
        return json.loads(rows.read_text(encoding="utf-8")).get("complete") is not False
    except (OSError, ValueError, AttributeError):
        return True
