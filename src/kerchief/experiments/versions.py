"""What a result depends on besides its parameters: versions and the machine."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path

import jax

import kerchief


def versions() -> dict[str, str]:
    """Versions of kerchief, Python and what the numbers are computed with.

    >>> sorted(versions())
    ['dp-accounting', 'jax', 'jaxlib', 'kerchief', 'numpy', 'python', 'scipy']
    """
    names = ("jax", "jaxlib", "numpy", "scipy", "dp-accounting")
    found = {name: importlib.metadata.version(name) for name in names}
    return {"kerchief": kerchief.__version__, "python": platform.python_version(), **found}


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
