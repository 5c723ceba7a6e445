"""Numbers of a task are the same on every processor: whoever opens it computes them again."""

from __future__ import annotations

import os
import subprocess
import sys

from numpy._core._multiarray_umath import __cpu_dispatch__  # type: ignore[import-not-found]

_SCRIPT = """
import math
from kerchief import Guarantee, Problem, deploy
for trust in ("none", "local", "shuffle", "joint", "central"):
    for policy, link in (("linucb", "linear"), ("best", "linear"), ("glm", "logistic")):
        problem = Problem(dim=3, arms=5, norm=1.0, radius=1.0, low=0.0, high=1.0, horizon=900,
                          link=link)
        epsilon, delta = (math.inf, 0.0) if trust == "none" else (1.0, 1e-6)
        guarantee = Guarantee(epsilon=epsilon, delta=delta, trust=trust)
        deployment = deploy(policy=policy, problem=problem, guarantee=guarantee, nonce=bytes(16))
        print(deployment.task.id.hex())
"""


def task_ids(**environment: str) -> list[str]:
    """Ids of tasks that are made by a process with these variables."""
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _SCRIPT],
        env={**os.environ, **environment},
        capture_output=True,
        check=True,
        text=True,
    )
    return run.stdout.split()


def test_task_constants_are_those_of_older_processors() -> None:
    """With narrow vectors and without fused multiply-add, in XLA, NumPy, OpenBLAS and libm."""
    older = task_ids(
        XLA_FLAGS=f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_max_isa=SSE4_2",
        NPY_DISABLE_CPU_FEATURES=" ".join(__cpu_dispatch__),
        OPENBLAS_CORETYPE="Nehalem",
        GLIBC_TUNABLES="glibc.cpu.hwcaps=-AVX2,-FMA,-AVX512F",
        JAX_ENABLE_COMPILATION_CACHE="false",
    )
    assert len(older) == 15
    assert older == task_ids()
