"""Code that is compiled in less time finds what other code finds, whatever the compiler knows."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax import Array

from kerchief.core import compiling
from kerchief.core.compiling import compile_quickly, is_supported


def _found(matrix: Array, power: int) -> Array:
    values, axes = jnp.linalg.eigh(matrix @ matrix.T)
    found: Array = (axes * values**power) @ axes.T
    return found


@pytest.mark.parametrize("unknown", [{}, {"xla_no_such_option": True}])
def test_quick_compile_matches_jit_and_skips_unknown_options(
    unknown: dict[str, bool | str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiling, "_QUICK", {**compiling._QUICK, **unknown})
    matrix = jax.random.normal(jax.random.key(3), (5, 7))
    found = compile_quickly(static=1)(_found)(matrix, 2)
    wanted = jax.jit(_found, static_argnums=1)(matrix, 2)
    assert float(jnp.abs(found - wanted).max()) < 1e-3 * float(jnp.abs(wanted).max())


def test_quickly_compiled_function_is_traced_once() -> None:
    traced = []

    @compile_quickly()
    def doubled(number: Array) -> Array:
        traced.append(number)
        return 2 * number

    assert [float(doubled(jnp.float32(one))) for one in (1.0, 2.0)] == [2.0, 4.0]
    assert len(traced) == 1


def test_options_are_known_or_not() -> None:
    assert is_supported("xla_backend_optimization_level", "1")
    assert not is_supported("xla_no_such_option", True)
