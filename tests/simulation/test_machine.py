"""Machine code: compiled with whatever options the compiler knows."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Hashable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from kerchief.simulation import machine


def doubled(number: jax.Array) -> jax.Array:
    return 2 * number


@pytest.fixture(autouse=True)
def forgotten() -> None:
    machine.forget()


@pytest.mark.parametrize("once", [False, True])
def test_code_is_compiled_once(once: bool) -> None:
    function = jax.jit(doubled)
    made, seconds = machine.compiled(function, jnp.float32(3), once=once)
    assert made(jnp.float32(3)) == 6
    assert seconds > 0
    assert machine.compiled(function, jnp.float32(4), once=once) == (made, 0.0)


def test_an_option_that_the_compiler_does_not_know_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(machine._FAST, jax.default_backend(), {"no_such_option": True})
    with pytest.raises(jax.errors.JaxRuntimeError):
        jax.jit(doubled).lower(jnp.float32(3)).compile(compiler_options={"no_such_option": True})
    made, _ = machine.compiled(jax.jit(doubled), jnp.float32(3))
    assert made(jnp.float32(3)) == 6


def test_known_compiler_options_are_kept_beside_an_unknown_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = dict(machine._FAST["cpu"])
    monkeypatch.setitem(machine._FAST, jax.default_backend(), known | {"no_such_option": True})
    told: list[dict[str, bool | str]] = []

    class Lowered:
        def compile(self, compiler_options: dict[str, bool | str]) -> object:
            told.append(compiler_options)
            return jax.jit(doubled).lower(jnp.float32(3)).compile(compiler_options)

    assert machine._compile(Lowered(), once=False)(jnp.float32(3)) == 6
    assert told[-1] == machine._ALWAYS["cpu"] | known


def test_single_thread_and_sequential_options_are_mandatory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An option that no compiler knows stands in their place, and is never left out."""
    assert machine._ALWAYS["cpu"] == {
        "xla_cpu_multi_thread_eigen": False,
        "xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED",
    }
    monkeypatch.setitem(machine._ALWAYS, jax.default_backend(), {"no_such_option": True})
    with pytest.raises(jax.errors.JaxRuntimeError, match="no_such_option"):
        machine.compiled(jax.jit(doubled), jnp.float32(3))


def test_program_cache_is_cleared_before_it_overflows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(machine, "_MAX_PROGRAMS", 2)
    function = jax.jit(doubled)
    sizes = [len(_kept_after(function, length)) for length in (1, 2, 3, 4)]
    assert sizes == [1, 2, 1, 2]
    made, seconds = machine.compiled(function, jnp.zeros(1))
    assert seconds > 0
    assert made(jnp.ones(1)).tolist() == [2.0]


def _kept_after(function: Any, length: int) -> Mapping[Hashable, object]:
    machine.compiled(function, jnp.zeros(length))
    return machine._MACHINE_CODE


IN_TWO_THREADS = """
import threading
import jax, jax.numpy as jnp
jax.config.update("jax_enable_x64", True)
from kerchief.simulation.recorder import Recorder

def step(one, _):
    return jnp.sin(jnp.linalg.cholesky(one @ one.T + jnp.eye(32))), None

play = jax.jit(jax.vmap(lambda one: jax.lax.scan(step, one, None, length=2000)[0]))

def run():
    Recorder(progress=lambda stage, done: None).run(play, jnp.ones((32, 32, 32)))

threads = [threading.Thread(target=run) for _ in range(2)]
[one.start() for one in threads]
[one.join() for one in threads]
"""


def test_simulations_in_two_threads_take_turns() -> None:
    """At once they waited for each other's threads, for ever."""
    ours = ("PJRT_NPROC", "XLA_FLAGS")
    usual = {name: value for name, value in os.environ.items() if name not in ours}
    subprocess.run([sys.executable, "-c", IN_TWO_THREADS], check=True, timeout=120, env=usual)


def test_gpu_compilation_uses_one_core_on_a_shared_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And to the code that whoever is alone gets: no option of the code itself is another."""
    alone = dict(machine._FAST["gpu"])
    monkeypatch.setitem(machine._FAST, "gpu", dict(alone))
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    told: list[dict[str, bool | str]] = []

    class Lowered:
        def compile(self, compiler_options: dict[str, bool | str]) -> object:
            told.append(compiler_options)
            return doubled

    machine._compile(Lowered(), once=False)
    machine.compile_on_one_core()
    machine._compile(Lowered(), once=False)
    assert told == [alone, alone | {"xla_gpu_force_compilation_parallelism": "1"}]
