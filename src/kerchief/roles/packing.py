"""Many small arrays as a few: a compiled call pays for each array that it takes and returns."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from kerchief.core.contracts import Tree

__all__ = ["Packing"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Packing:
    """Where each leaf of a tree lies, in one vector for each type of number.

    >>> packing = Packing.of({"a": jnp.arange(2.0), "b": jnp.float32(0.5), "c": jnp.float64(1)})
    >>> packed = packing.pack({"a": jnp.ones(2), "b": jnp.float32(0.25), "c": jnp.float64(3)})
    >>> packed
    [Array([0.25], dtype=float32), Array([1., 1., 3.], dtype=float64)]
    >>> packing.unpack(packed)["c"]
    Array(3., dtype=float64)
    """

    structure: Any
    shapes: tuple[tuple[int, ...], ...]
    kinds: tuple[str, ...]

    @classmethod
    def of(cls, tree: Tree) -> Packing:
        """The packing of trees with the structure, shapes and types of this one."""
        leaves, structure = jax.tree.flatten(tree)
        return cls(
            structure=structure,
            shapes=tuple(np.shape(leaf) for leaf in leaves),
            kinds=tuple(jnp.asarray(leaf).dtype.name for leaf in leaves),
        )

    def pack(self, tree: Tree) -> list[Array]:
        """One vector for each type, in the order of their names."""
        pairs = list(zip(jax.tree.leaves(tree), self.kinds, strict=True))
        return [
            jnp.concatenate([jnp.ravel(leaf) for leaf, kind in pairs if kind == wanted])
            for wanted in sorted(set(self.kinds))
        ]

    def unpack(self, packed: list[Any]) -> Tree:
        """The tree again, with JAX or NumPy leaves as given."""
        vectors = dict(zip(sorted(set(self.kinds)), packed, strict=True))
        start, leaves = dict.fromkeys(vectors, 0), []
        for shape, kind in zip(self.shapes, self.kinds, strict=True):
            stop = start[kind] + int(np.prod(shape))
            leaves.append(vectors[kind][start[kind] : stop].reshape(shape))
            start[kind] = stop
        return jax.tree.unflatten(self.structure, leaves)
