"""How tests run: in 64-bit mode, with code that compiles fast, and in bounded memory."""

from __future__ import annotations

import atexit
import ctypes
import functools
import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

# Nearly all of a daily run is compilation. So machine code is made in a hurry, which takes a third
# of the time; by night (`make nightly`) it is made as users have it.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
    "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1",
)
# Looking up where in our source each operation comes from takes a tenth of what is left.
os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")
# The cores are busy with tests: further threads of linear algebra would only wait there, spinning.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Nor do JAX's own threads help there, and some programs wait for ever where they have two of them.
os.environ.setdefault("PJRT_NPROC", "1")
# What a test, a worker or a program that a test starts has compiled, the others only load.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    os.environ["JAX_COMPILATION_CACHE_DIR"] = tempfile.mkdtemp(prefix="kerchief-compiled-")
    atexit.register(shutil.rmtree, os.environ["JAX_COMPILATION_CACHE_DIR"], ignore_errors=True)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
# So it is with modules: reading their source anew takes half of an import, and of a collection.
if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
    sys.dont_write_bytecode = False

import jax
import pytest
from jax._src.interpreters import mlir

from kerchief.simulation import machine

# Tests and doctests call what lies behind the public functions, which switch 64-bit mode on.
_configure: Callable[[str, object], None] = jax.config.update
_configure("jax_enable_x64", True)
_forget: Callable[[], None] = jax.clear_caches

# JAX makes a context for each of the thousands of programs that it translates, and keeps it with
# the program: one for all saves a fifth of their time and a megabyte for each.
_context = functools.cache(mlir.make_ir_context)
mlir.make_ir_context = _context

# What is imported and collected stays, and looking through it for garbage takes a tenth of a run.
gc.disable()


def pytest_collection_finish() -> None:
    """From here on look for garbage, now and then, among what the tests make."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    gc.enable()


_STATUS, _ROOM = Path("/proc/self/statm"), 1.75 * 2**30


@pytest.fixture(autouse=True, scope="module")
def _bounded_memory() -> Iterator[None]:
    """Forget compiled code after a module, once it has taken up so many bytes (on Linux)."""
    yield
    if not _STATUS.exists():
        return
    if int(_STATUS.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") > _ROOM:
        machine.forget()
        _forget()
        _context.cache_clear()
        gc.collect()
        _give_back()


def _give_back() -> None:
    """Return freed memory to the system, where its C library can.

    Else a heap that was full once looks full for ever, and code is forgotten after every module.
    """
    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
