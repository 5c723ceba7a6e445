"""Set JAX up for the command line, before it makes its first array."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import jax

from kerchief.core import validate
from kerchief.core.errors import InvalidValue
from kerchief.experiments.extras import installing

_configure: Callable[[str, object], None] = jax.config.update
_PLATFORMS = {"cpu": "cpu", "gpu": "cuda,cpu"}


def use_device(device: str) -> None:
    """Compute on the CPU, on the GPU, or on whatever JAX finds, and keep compiled code."""
    validate.one_of("device", device, ("cpu", "gpu", "auto"))
    keep_compiled()
    # One decision at a time takes half as long if nobody waits for another thread.
    _configure("jax_cpu_enable_async_dispatch", False)
    if device in _PLATFORMS:
        _configure("jax_platforms", _PLATFORMS[device])
    try:
        found = jax.devices()[0].platform
    except RuntimeError as problem:
        raise _unavailable(device) from problem
    if device != "auto" and found != device:
        raise _unavailable(device)


def _unavailable(device: str) -> InvalidValue:
    return InvalidValue(
        f"device is {device!r}; JAX finds none here. For an NVIDIA GPU, "
        f"{installing('cuda')}; or choose --device cpu"
    )


def keep_compiled() -> None:
    """Keep compiled code between runs, unless the user already says where, or it cannot be kept."""
    if os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        return
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = root / "kerchief" / "compiled"
    # A cache is a convenience: a read-only home must not stop anyone.
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            _configure("jax_compilation_cache_dir", str(folder))
            _configure("jax_persistent_cache_min_compile_time_secs", 0.1)
