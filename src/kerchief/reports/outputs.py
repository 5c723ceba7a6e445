"""What a plan leaves on disk: finished parts, results so far, picture and report.

A folder belongs to one plan and one version of everything that plays it. What is finished there is
not played again, and nothing is replaced unless that is asked for. A run whose folder was taken by
another one stops before it writes anything more.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kerchief.comparison.archive import Archive
from kerchief.comparison.plan import Plan
from kerchief.comparison.results import Result
from kerchief.comparison.run_folder import Folder, Stamp
from kerchief.comparison.table import Table
from kerchief.comparison.verdict import Verdict
from kerchief.comparison.versions import machine, versions
from kerchief.core.errors import InvalidValueError, WriteError
from kerchief.reports.earlier_results import describe_earlier_keys
from kerchief.reports.extras import NEEDS, Extra, missing, require
from kerchief.reports.figures import FORMATS, picture
from kerchief.reports.parquet import parquet
from kerchief.reports.report import render
from kerchief.reports.tables import WRITERS, by_world

_ROWS = "results.json"
_PARTS = "parts"
# Writing results so far takes at most one part in so many of a run's time.
_SELDOM = 20


@dataclasses.dataclass(kw_only=True)
class Outputs:
    """The finished cells of one plan, and their files; make it with `Outputs.at`.

    Attributes:
        folder: where the files are.
        wanted: what is written besides the rows.
        force: whether what ran here before is forgotten when this run begins.
        formats: what the picture is written as.
        tables: for papers: what tables are written as.
        finished: the cells so far.
        files: what was written, and where it lies.
        work: how it was played, in the words of the JSON object.
        settled: whether the folder holds this run finished; it is replaced by a finished one alone.
    """

    plan: Plan
    folder: Folder
    wanted: tuple[Extra, ...]
    force: bool = False
    formats: tuple[str, ...] = FORMATS[:1]
    tables: tuple[str, ...] = ()
    finished: list[Result] = dataclasses.field(default_factory=list)
    files: dict[str, Path] = dataclasses.field(default_factory=dict)
    work: dict[str, object] = dataclasses.field(default_factory=dict)
    settled: bool = False
    _rests_until: float = 0.0
    _stamp: Stamp | None = None

    @classmethod
    def at(
        cls,
        path: Path,
        plan: Plan,
        *,
        needed: bool = True,
        force: bool = False,
        resume: bool = False,
        formats: tuple[str, ...] = FORMATS[:1],
        tables: tuple[str, ...] = (),
    ) -> Outputs:
        """Check that everything can be written, before anything runs.

        A missing library is an error where it is `needed`; else its outputs are not written. With
        `force` whatever ran here before is forgotten as soon as this run begins; with `resume`
        something must have.

        Raises:
            InvalidValueError: the folder holds another run, or cannot be written.
        """
        if needed:
            require(*NEEDS)
        difference = differences(path, plan)
        if resume and difference is None:
            raise InvalidValueError(
                f"there is no run in {str(path)!r} to resume; leave out --resume"
            )
        folder = Folder.at(path)
        extras = tuple(extra for extra in NEEDS if not missing(extra))
        outputs = cls(
            plan=plan, folder=folder, wanted=extras, force=force, formats=formats, tables=tables
        )
        for name in outputs._names().values():
            folder.check(name)
        folder.check_inner(_PARTS)
        difference = outputs._find_foreign_files() if difference is None else difference
        if difference and not force:
            raise outputs._conflict_error(difference)
        return outputs

    @property
    def archive(self) -> Archive:
        """Where the finished parts are."""
        return Archive(folder=self.folder.inner(_PARTS), mine=self._hold_folder)

    def begin(self) -> None:
        """Write down whose folder this is, before anything is finished; a finished run stays.

        Raises:
            InvalidValueError: another run has taken the folder meanwhile.
        """
        with self.folder.alone():
            if self.force:
                self._forget()
            if not self.folder.claim(_ROWS, self._rows()):
                if difference := differences(self.folder.path, self.plan):
                    raise self._conflict_error(difference)
                self.settled = _is_complete(self.folder.path / _ROWS)
            self._stamp = self.folder.stamp(_ROWS)

    def keep(self, finished: Result) -> None:
        """Write the results so far: an interrupted run leaves these files whole.

        Where that takes long, as there are many, they are not written after every cell: whoever
        stores the next part waits for it, and finished parts tell the same.

        Raises:
            WriteError: another run has taken the folder meanwhile, or the disk is full.
        """
        self.finished.append(finished)
        start = time.monotonic()
        if self.settled or start < self._rests_until:
            return
        self._store(self._table())
        end = time.monotonic()
        self._rests_until = end + (_SELDOM - 1) * (end - start)

    def close(self) -> None:
        """Draw the picture and write tables and the report of whatever was finished.

        Raises:
            WriteError: another run has taken the folder meanwhile, or the disk is full.
        """
        if not self.finished or (self.settled and not self.complete):
            return
        images = self._images()
        files = self._table()
        files |= {_picture(form): images[form] for form in self.formats if images}
        for form in self.tables:
            preface = self.plan.preface() if form == "markdown" else ""
            files[form] = (preface + WRITERS[form][1](self._tables())).encode()
        if "report" in self.wanted:
            image = images.get(FORMATS[0], b"")
            files["report"] = render(self.plan, self.finished, image).encode()
        self._store(files)

    def _table(self) -> dict[str, bytes]:
        """Every number so far, where there is a library that writes it."""
        return {"table": parquet(self.plan, self.finished)} if "table" in self.wanted else {}

    def _store(self, files: Mapping[str, bytes]) -> None:
        """Write files and the rows, unless that would put unfinished ones in place of finished."""
        with self._hold_folder():
            if self.settled and not self.complete:
                return
            for name, content in files.items():
                self._write(name, content)
            self._write_rows()

    @contextlib.contextmanager
    def _hold_folder(self) -> Iterator[None]:
        """Be alone in the folder, in which no other run has begun since it was last looked at."""
        with self.folder.alone():
            if self.folder.stamp(_ROWS) != self._stamp:
                self._check_owner()
            yield

    def _check_owner(self) -> None:
        """Check that this run still owns the folder, and whether another finished it."""
        path = self.folder.path
        if difference := differences(path, self.plan):
            raise WriteError(
                f"{str(path)!r} was taken by another run meanwhile ({difference}), whose files are "
                "left as they are; play this one again with another --out"
            )
        self.settled = _is_complete(path / _ROWS)
        self._stamp = self.folder.stamp(_ROWS)

    def _images(self) -> dict[str, bytes]:
        """The picture in every format that is wanted, and in that of the report."""
        if "picture" not in self.wanted or self.plan.layout().empty:
            return {}
        forms = dict.fromkeys((*self.formats, FORMATS[0]))
        return {form: picture(self.plan, self.finished, form) for form in forms}

    def _tables(self) -> list[Table]:
        """For papers: those of the plan, and one for each world."""
        world_tables = by_world(self.finished, self.plan.caption, rewarded=self.plan.rewarded)
        return [*self.plan.tables(self.finished), *world_tables]

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
                result.to_dict() | {"printed": printed.get(result.cell.key)}
                for result in self.finished
            ],
            **self.plan.findings(self.finished),
            "claims": [dataclasses.asdict(verdict) for verdict in self.verdicts()],
            "projection": {
                name: dataclasses.asdict(projection)
                for name, projection in self.plan.shortened.items()
            },
            "complete": self.complete,
            "seconds": self.seconds,
            "work": self.work,
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
        return sum(result.wall_seconds for result in self.finished)

    def _conflict_error(self, difference: str) -> InvalidValueError:
        return InvalidValueError(
            f"{str(self.folder.path)!r} holds another run ({difference}); choose another --out, or "
            "replace it with --force"
        )

    def _find_foreign_files(self) -> str | None:
        """Name our files that no run says it has written, or return None."""
        path = self.folder.path
        names = [name for name in self._names().values() if (path / name).exists()]
        return f"{', '.join(names)} without {_ROWS}" if names and _ROWS not in names else None

    def _forget(self) -> None:
        """Remove what an earlier run left; its rows, which say whose folder this is, go last."""
        self.archive.clear()
        for name in self._names().values():
            self.folder.remove(name)

    def _names(self) -> dict[str, str]:
        """File names by the keys of `files`."""
        return {
            "table": "results.parquet",
            **{_picture(form): f"{self.plan.name}.{form}" for form in FORMATS},
            **{form: f"{self.plan.tables_name}.{end}" for form, (end, _) in WRITERS.items()},
            "report": f"{self.plan.page}.html",
            "rows": _ROWS,
        }

    def _write(self, name: str, content: bytes) -> None:
        self.files[name] = self.folder.write(self._names()[name], content)

    def _write_rows(self) -> None:
        self._write("rows", self._rows())
        self._stamp = self.folder.stamp(_ROWS)

    def _rows(self) -> bytes:
        self.files["rows"] = self.folder.path / _ROWS
        return (json.dumps(self.document(), indent=2, allow_nan=False) + "\n").encode()


def _picture(form: str) -> str:
    """The key of a picture in `files`.

    >>> _picture("png"), _picture("pdf")
    ('picture', 'picture_pdf')
    """
    return "picture" if form == FORMATS[0] else f"picture_{form}"


def free_folder(path: Path, plan: Plan) -> Path:
    """The first of `path`, `path-2`, `path-3` and so on that holds no other run."""
    return next(folder for folder in _names_from(path) if not differences(folder, plan))


def own_folder(path: Path, plan: Plan) -> Path | None:
    """The first of `path`, `path-2` and so on that holds a run of this plan, if one does."""
    for folder in _names_from(path):
        if (difference := differences(folder, plan)) in (None, ""):
            return None if difference is None else folder
    return None


def _names_from(path: Path) -> Iterator[Path]:
    yield path
    yield from (path.with_name(f"{path.name}-{i}") for i in itertools.count(2))


def differences(path: Path, plan: Plan) -> str | None:
    """In what the run in a folder differs from a plan; None where there is none."""
    rows = path / _ROWS
    if not rows.exists() and not rows.is_symlink():
        return None
    try:
        document = json.loads(rows.read_text(encoding="utf-8"))
        then = {**_split_pairs(document["parameters"]), **_label_versions(document["versions"])}
        earlier = describe_earlier_keys(document["rows"])
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return f"its {_ROWS} cannot be read"
    if earlier is not None:
        return earlier
    now: dict[str, Any] = json.loads(
        json.dumps(_split_pairs(plan.parameters()) | _label_versions(versions()))
    )
    names = [name for name in {**then, **now} if then.get(name) != now.get(name)]
    return ", ".join(f"{name} {then.get(name)} there, {now.get(name)} now" for name in names)


def _split_pairs(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Give every pair NAME=VALUE of a list an entry of its own, so that differences are short.

    >>> _split_pairs({"env_param": ["gap=0.1"], "epsilon": [1.0]})
    {'env_param gap': '0.1', 'epsilon': [1.0]}
    """
    split: dict[str, Any] = {}
    for name, value in parameters.items():
        if name not in ("declare", "env_param", "mechanism", "param"):
            split[name] = value
            continue
        pairs = [str(text).partition("=") for text in value]
        split |= {f"{name} {key}": text for key, _, text in pairs}
    return split


def _is_complete(rows: Path) -> bool:
    try:
        return json.loads(rows.read_text(encoding="utf-8"))["complete"] is True
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _label_versions(libraries: Mapping[str, str]) -> dict[str, str]:
    return {f"version of {name}": version for name, version in libraries.items()}
