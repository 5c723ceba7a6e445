"""Several devices share the replicates of a run; each plays its own and hears nothing of others."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import numpy as np
from jax.sharding import Mesh, PartitionSpec

Carry = TypeVar("Carry")
_AXIS = "replicates"


def on_all_devices(
    function: Callable[..., Carry], scene: object, replicates: object, *constants: object
) -> Carry:
    """Call a function with every device's share of the replicates, and put the answers together.

    All arrays of `replicates` and of the answer have one row per replicate; `scene` and `constants`
    are the same everywhere. As many devices take part as divide the replicates evenly.
    """
    rows = jax.tree.leaves(replicates)[0].shape[0]
    devices = jax.devices()
    count = math.gcd(rows, len(devices))
    if count == 1:
        return function(scene, replicates, *constants)
    spec: Callable[..., Any] = PartitionSpec
    same, split = spec(), spec(_AXIS)
    sharded_function: Callable[..., Any] = jax.shard_map(
        function,
        mesh=Mesh(np.array(devices[:count]), (_AXIS,)),
        in_specs=(same, split, *[same] * len(constants)),
        out_specs=split,
        check_vma=False,
    )
    answer: Carry = sharded_function(scene, replicates, *constants)
    return answer
