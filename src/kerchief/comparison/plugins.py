"""Files and packages of the user's own, which enter bandits, worlds, noises and experiments.

A plugin is a Python file that calls the registries as our own modules do. It is loaded before
anything is looked up, once in each process. Its source goes to workers with the work, so that they
run the very file that was given, and a result depends on it as on our own source.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import importlib.metadata
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType

from kerchief.core.errors import InvalidValueError

GROUP = "kerchief.plugins"
"""The group of entry points; each names a module, which is imported."""

_LOCK = threading.RLock()
_LOADED: dict[str, Plugin] = {}
_DIGESTS: dict[str, str] = {}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plugin:
    """A file of the user's own; make it with `Plugin.at`.

    Attributes:
        given: the path as it was written.
        path: the whole path.
        source: what the file holds.
    """

    given: str
    path: Path
    source: bytes

    @classmethod
    def at(cls, path: str) -> Plugin:
        """Read a file.

        >>> Plugin.at("absent.py")
        Traceback (most recent call last):
        ...
        kerchief_protocol.errors.InvalidValueError: plugin is 'absent.py'; it cannot be read (No \
such file or directory); give a Python file
        """
        try:
            return cls(given=path, path=Path(path).resolve(), source=Path(path).read_bytes())
        except (OSError, ValueError) as problem:
            reason = getattr(problem, "strerror", None) or problem
            raise InvalidValueError(
                f"plugin is {path!r}; it cannot be read ({reason}); give a Python file"
            ) from problem

    @property
    def module(self) -> str:
        """The name of its module: the same in every process, so that its objects can be sent."""
        return f"kerchief_plugin_{self.path.stem}"

    def load(self) -> None:
        """Run the file, unless this process has.

        Raises:
            InvalidValueError: it fails, or this process has another file, or version, of this name.
        """
        with _LOCK:
            plugin = _LOADED.get(self.module)
            if plugin is None:
                self._run()
            elif plugin.path != self.path:
                raise InvalidValueError(
                    f"plugin is {self.given!r}, and {plugin.given!r} has the same name; rename one"
                )
            elif plugin.source != self.source:
                raise InvalidValueError(
                    f"plugin is {self.given!r}; it has changed since this process loaded it; start "
                    "a new one (on a cluster, restart the workers)"
                )

    def _run(self) -> None:
        module = ModuleType(self.module)
        module.__file__ = str(self.path)
        sys.modules[self.module] = module
        # Modules beside it can be imported, as those beside a script can.
        sys.path.insert(0, str(self.path.parent))
        try:
            code = compile(self.source, str(self.path), "exec", dont_inherit=True)
            exec(code, module.__dict__)
        except (Exception, SystemExit) as problem:
            del sys.modules[self.module]
            raise InvalidValueError(
                f"plugin is {self.given!r}; {self._locate_error(problem)}"
                f"{_summarize_error(problem)}; repair the file"
            ) from problem
        finally:
            sys.path.remove(str(self.path.parent))
        _LOADED[self.module] = self
        _DIGESTS[f"plugin_{self.path.stem}"] = _digest([self.source, *self._neighbours()])

    def _locate_error(self, problem: BaseException) -> str:
        """Where in the file it failed, if it ran at all."""
        frames = traceback.extract_tb(problem.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == str(self.path)]
        return f"line {lines[-1]} fails with " if lines else "it fails with "

    def _neighbours(self) -> Iterator[bytes]:
        """The source of modules in its folder that are loaded, by name."""
        for name, module in sorted(sys.modules.items()):
            file = getattr(module, "__file__", None)
            if name != self.module and file and Path(file).resolve().parent == self.path.parent:
                yield Path(file).read_bytes()


def load_installed() -> None:
    """Import the plugins of installed packages, unless this process has.

    Raises:
        InvalidValueError: one of them fails.
    """
    with _LOCK:
        for entry in importlib.metadata.entry_points(group=GROUP):
            if f"plugin_{entry.name}" not in _DIGESTS:
                try:
                    module = importlib.import_module(entry.module)
                except (Exception, SystemExit) as problem:
                    raise InvalidValueError(
                        f"the installed plugin {entry.name!r} ({entry.value}) fails with "
                        f"{_summarize_error(problem)}; repair its package, or remove it"
                    ) from problem
                _DIGESTS[f"plugin_{entry.name}"] = _digest(_read_package(module))


def _read_package(module: ModuleType) -> Iterator[bytes]:
    """The source of a module, and of all else in its package."""
    top = sys.modules[module.__name__.partition(".")[0]]
    folders = [Path(folder) for folder in getattr(top, "__path__", ())]
    files = [file for folder in folders for file in sorted(folder.rglob("*.py"))]
    return (file.read_bytes() for file in files or [Path(str(module.__file__))])


def list_loaded() -> tuple[Plugin, ...]:
    """The files that this process has loaded."""
    return tuple(_LOADED.values())


def flags() -> list[str]:
    """How they are named on the command line."""
    return [argument for plugin in list_loaded() for argument in ("--plugin", plugin.given)]


def sources() -> dict[str, str]:
    """A digest of every plugin that is loaded, installed ones too."""
    return dict(_DIGESTS)


def _digest(contents: Iterable[bytes]) -> str:
    digests = b"".join(hashlib.sha256(content).digest() for content in contents)
    return hashlib.sha256(digests).hexdigest()[:12]


def _summarize_error(problem: BaseException) -> str:
    """An exception in one line."""
    return " ".join(f"{type(problem).__name__}: {problem}".split())
