"""What a result depends on besides its parameters: versions and the machine."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
from pathlib import Path

import jax

import kerchief
from kerchief.comparison import plugins
from kerchief.comparison.fingerprint import source


@functools.cache
def _versions() -> dict[str, str]:
    names = ("jax", "jaxlib", "numpy", "scipy", "dp-accounting")
    libraries = {name: importlib.metadata.version(name) for name in names}
    package = {"kerchief": kerchief.__version__, "source": source()[:12]}
    return {**package, "python": platform.python_version(), **libraries}


def versions() -> dict[str, str]:
    """Versions of kerchief, of its very source and plugins, of Python, and of what computes.

    >>> sorted(versions())
    ['dp-accounting', 'jax', 'jaxlib', 'kerchief', 'numpy', 'python', 'scipy', 'source']
    """
    return _versions() | plugins.sources()


def machine() -> dict[str, object]:
    """The device that JAX uses, and the processor beside it."""
    return {
        "device": jax.devices()[0].platform,
        "device_kind": jax.devices()[0].device_kind,
        "processor": _processor(),
        "cores": os.cpu_count(),
        "system": platform.system(),
    }


def _processor() -> str:
    """The processor's name where the system tells it, else its kind."""
    facts = Path("/proc/cpuinfo")
    if facts.is_file():
        for line in facts.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
