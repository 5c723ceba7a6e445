"""Machine code: compiled with whatever options the compiler knows."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from kerchief.simulation import machine


def doubled(number: jax.Array) -> jax.Array:
    return 2 * number


@pytest.fixture(autouse=True)
def forgotten() -> None:
    machine.forget()


@pytest.mark.parametrize("slowly", [False, True])
def test_code_is_compiled_once(slowly: bool) -> None:
    function = jax.jit(doubled)
    made, seconds = machine.compiled(function, jnp.float32(3), slowly=slowly)
    assert made(jnp.float32(3)) == 6
    assert seconds > 0
    assert machine.compiled(function, jnp.float32(4), slowly=slowly) == (made, 0.0)


def test_an_option_that_the_compiler_does_not_know_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(machine._OPTIONS, jax.default_backend(), {"no_such_option": True})
    with pytest.raises(jax.errors.JaxRuntimeError):
        jax.jit(doubled).lower(jnp.float32(3)).compile(compiler_options={"no_such_option": True})
    made, _ = machine.compiled(jax.jit(doubled), jnp.float32(3))
    assert made(jnp.float32(3)) == 6
