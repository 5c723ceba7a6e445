"""What several devices play together is what one plays."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

# Six replicates are shared by three devices; four of them, or two, by none.
PROGRAM = """
import json, sys
import jax.numpy as jnp
from kerchief.comparison.comparison import Comparison
from kerchief.comparison.chunks import split_chunks
from kerchief.simulation.devices import on_all_devices
plan = Comparison(policies=(sys.argv[1],), trusts=(sys.argv[2],), epsilons=(1.0,),
                  horizon=int(sys.argv[3]), replicates=6)
*_, whole = split_chunks(plan, ticks=3, width=6)
*_, pieces = split_chunks(plan, ticks=3, width=4)
spread = [on_all_devices(lambda scene, rows: rows, None, jnp.zeros(rows)) for rows in (6, 4)]
print(json.dumps({
    "devices": [len(one.sharding.device_set) for one in spread],
    "whole": [part.play().run.regret.tolist() for part in whole],
    "pieces": [part.play().run.regret.tolist() for part in pieces],
}))
"""


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("uniform", "none", "60"), marks=pytest.mark.nightly),
        pytest.param(("linucb", "joint", "60"), marks=pytest.mark.nightly),
        pytest.param(("glm-rare", "joint", "300"), marks=pytest.mark.nightly),
        pytest.param(("dpe", "shuffle", "500"), marks=pytest.mark.nightly),
    ],
)
def test_replicates_are_shared_out(words: tuple[str, ...]) -> None:
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=3"
    line, mine = [sys.executable, "-c", PROGRAM, *words], os.environ | {"XLA_FLAGS": flags}
    run = subprocess.run(line, env=mine, capture_output=True, text=True, check=True)
    found = json.loads(run.stdout)
    assert found["devices"] == [3, 1]
    (whole,), pieces = found["whole"], found["pieces"]
    np.testing.assert_allclose(whole, np.concatenate(pieces, axis=1), rtol=1e-5)
