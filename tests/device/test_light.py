"""The device is light: it imports neither JAX nor SciPy nor the library, and little else."""

from __future__ import annotations

import json
import subprocess
import sys

_SCRIPT = """
import json, pathlib, sys, time
start = time.perf_counter()
import kerchief_device
took = time.perf_counter() - start
heavy = [name for name in ("jax", "jaxlib", "scipy", "kerchief") if name in sys.modules]
# Not the largest size so far: that of a child begins with its parent's.
status = pathlib.Path("/proc/self/status").read_text()
room = int(status.partition("VmRSS:")[2].split()[0]) / 1024
print(json.dumps({"heavy": heavy, "seconds": took, "megabytes": room}))
"""


def test_importing_it_is_light() -> None:
    run = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, check=True)
    found = json.loads(run.stdout)
    print(f"import: {found['seconds']:.3f} s, {found['megabytes']:.1f} MB")
    assert found["heavy"] == []
    assert found["megabytes"] < 45
