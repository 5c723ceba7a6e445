"""Set JAX up for the command line, before it makes its first array."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import warnings
from collections.abc import Callable
from pathlib import Path

import jax

from kerchief.cli.factor_cache import keep_factors
from kerchief.core import validate
from kerchief.core.errors import InvalidValueError
from kerchief.reports.extras import format_install_command
from kerchief.simulation.machine import compile_on_one_core

_configure: Callable[[str, object], None] = jax.config.update
# One core compiles a program in one piece, in half the time that many pieces take it; and pieces
# may round otherwise, so that one process and several would have other numbers.
_IN_ONE_PIECE = "--xla_cpu_parallel_codegen_split_count=1"
# Bytes of compiled code that are kept between runs.
_MAX_CACHE_BYTES = 2**30
# Another process is writing this entry, or was killed while it was: the code is compiled anew, in
# the second case whenever it is needed, until there is no more room for the entry.
_TORN = "Error reading persistent compilation cache entry"
_PLATFORMS = {"cpu": "cpu", "gpu": "cuda,cpu"}


def use_device(device: str, *, alone: bool = True) -> None:
    """Compute on the CPU, on the GPU, or on whatever JAX finds, and keep compiled code.

    A process that is not alone takes one core, and no more of a GPU's memory than it needs.
    """
    validate.one_of("device", device, ("cpu", "gpu", "auto"))
    if device == "cpu" or os.environ.get("JAX_PLATFORMS") == "cpu" or not _find_plugins():
        # Factorizations of many matrices share out their work among JAX's threads and wait for
        # them; two at once, and all threads wait. A second one saved a twentieth of the time.
        os.environ.setdefault("PJRT_NPROC", "1")
    os.environ.setdefault("XLA_FLAGS", _IN_ONE_PIECE)
    if not alone:
        _limit_resources()
    # Nobody looks for lines of source in compiled code, and writing them there takes time.
    _configure("jax_traceback_in_locations_limit", 0)
    keep_compiled()
    # One decision at a time takes half as long if nobody waits for another thread.
    _configure("jax_cpu_enable_async_dispatch", False)
    if device in _PLATFORMS:
        _configure("jax_platforms", _PLATFORMS[device])
    try:
        platform = jax.devices()[0].platform
    except RuntimeError as problem:
        raise _build_error(device) from problem
    if device != "auto" and platform != device:
        raise _build_error(device)


def _find_plugins() -> importlib.metadata.EntryPoints:
    """Find the plugins that let JAX use other devices than the CPU."""
    return importlib.metadata.entry_points(group="jax_plugins")


def _build_error(device: str) -> InvalidValueError:
    return InvalidValueError(
        f"device is {device!r}; JAX finds none here. For an NVIDIA GPU, "
        f"{format_install_command('cuda')}; or choose --device cpu"
    )


def _limit_resources() -> None:
    """Limit cores and GPU memory before JAX starts; settings of the user stay."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    compile_on_one_core()


def keep_compiled() -> None:
    """Keep compiled code between runs, unless the user has set a cache folder."""
    warnings.filterwarnings("ignore", message=_TORN)
    if os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        return
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = root / "kerchief" / "compiled"
    if jax.config.jax_compilation_cache_dir == str(folder):  # type: ignore[attr-defined]
        return
    # A cache is a convenience: a read-only home must not stop anyone.
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        keep_factors(folder.parent)
        _prune(folder)
        if os.access(folder, os.W_OK):
            _configure("jax_compilation_cache_dir", str(folder))
            _configure("jax_persistent_cache_min_compile_time_secs", 0.0)


def _prune(folder: Path) -> None:
    """Remove the least recently used compiled code until the rest is small enough."""
    with os.scandir(folder) as entries:
        files = [(entry.path, entry.stat()) for entry in entries if entry.is_file()]
    room = _MAX_CACHE_BYTES
    for file, facts in sorted(files, key=lambda entry: max(entry[1].st_atime, entry[1].st_mtime))[
        ::-1
    ]:
        room -= facts.st_size
        if room < 0:
            Path(file).unlink(missing_ok=True)
