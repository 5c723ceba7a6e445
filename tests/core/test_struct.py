"""Two kinds with the same fields are two kinds, also for whatever JAX keeps by structure."""

from __future__ import annotations

from typing import Any

import jax

from kerchief.core.struct import static, struct


@struct
class ContextFreePolicy:
    value: float
    size: int = static(default=1)

    def grown(self) -> float:
        return self.value + self.size


@struct
class Other(ContextFreePolicy):
    def grown(self) -> float:
        return self.value - self.size


def _structure(tree: Any) -> Any:
    return jax.tree.structure(tree)


def test_structures_of_different_kinds_differ() -> None:
    plain, other = _structure(ContextFreePolicy(value=1.0)), _structure(Other(value=1.0))
    assert plain != other
    assert hash(plain) != hash(other)
    assert plain == _structure(ContextFreePolicy(value=2.0))
    assert plain != _structure(ContextFreePolicy(value=1.0, size=2))


def test_compiled_code_of_one_kind_is_never_used_for_the_other() -> None:
    grown = jax.jit(lambda box: box.grown())
    for _ in range(3):
        assert float(grown(ContextFreePolicy(value=5.0))) == 6.0
        assert float(grown(Other(value=5.0))) == 4.0


def test_paths_name_the_fields() -> None:
    ((path, leaf),) = jax.tree_util.tree_leaves_with_path(ContextFreePolicy(value=3.0))
    assert (jax.tree_util.keystr(path), leaf) == (".value", 3.0)


def test_structs_are_shown_compared_and_hashed_by_their_fields() -> None:
    @struct
    class Box:
        value: float
        size: int = static(default=3)

    @struct
    class Other:
        value: float
        size: int = static(default=3)

    @struct
    class Own:
        value: float

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 7

    assert repr(Box(value=1.5)).endswith("Box(value=1.5, size=3)")
    assert Box(value=1.5) == Box(value=1.5, size=3)
    assert Box(value=1.5) != Box(value=1.5, size=4)
    other: object = Other(value=1.5)
    assert Box(value=1.5) != other
    assert hash(Box(value=1.5)) == hash(Box(value=1.5, size=3))
    assert Own(value=1.0) == Own(value=2.0)
    assert hash(Own(value=1.0)) == 7
