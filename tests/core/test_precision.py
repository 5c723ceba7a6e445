"""JAX is in 64-bit mode while our code runs, and in the host program's own mode otherwise."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kerchief.core.precision import double_precision
from kerchief.core.random import ARMS, Stream
from kerchief.environments import make_environment
from kerchief.policies import POLICIES
from kerchief.privacy import Guarantee, MemoryLedger, Trust
from kerchief.privatizers import Protection, protect
from kerchief.simulation import Run, simulate

# What a host program does around kerchief: its own arrays must stay as wide as they were.
_HOST = """
import hashlib, math, threading
import jax, jax.numpy as jnp, numpy as np

def own():
    made = jnp.ones(3) / 3, jax.jit(lambda x: x / 3)(np.ones(3)), jnp.arange(3)
    return [str(one.dtype) for one in made]

settings, widths = dict(jax.config.values), own()
import kerchief
from kerchief import *
assert own() == widths and dict(jax.config.values) == settings
"""

_LIFE = """
world = make_environment(dim=2, arms=3)
problem = world.problem(60)
promise = Guarantee(epsilon=1.0, delta=1e-6, trust="local")
free = Guarantee(epsilon=float("inf"), delta=0.0, trust="none")
policy = POLICIES["linucb"].build(problem, "tuned")
privatizers = protect(policy, Protection(guarantee=promise), horizon=60)
run = simulate(policy=policy, privatizers=privatizers, environment=world,
               ledger=MemoryLedger(promise), horizon=60, replicates=3, seed=1, ticks=6)
print(run.regret.dtype, hashlib.sha256(run.regret.tobytes()).hexdigest())
assert own() == widths

def live():
    bandit = Bandit(policy=policy, problem=problem, guarantee=free, window_s=0)
    arms = np.array([[1.0, 0.0], [0.6, 0.8], [0.1, 0.2]])
    for round in range(20):
        choice = bandit.decide(arms)
        bandit.reward(choice.id, choice.arm / 2)
    bandit.expire()
    model = list(bandit.model.values())
    print(bandit.decide(arms).arm, [str(leaf.dtype) for leaf in model])
    print(hashlib.sha256(b"".join(leaf.tobytes() for leaf in model)).hexdigest())
    assert own() == widths

live()
exact = Bandit(policy="linucb", problem=problem, guarantee=promise, window_s=0)
exact.reward(exact.decide([[1.0, 0.0]]).id, 1.0)
exact.expire()
assert own() == widths
thread = threading.Thread(target=live)
thread.start()
thread.join()
assert own() == widths and dict(jax.config.values) == settings
"""

_FACTORIES = """
from kerchief.environments import table_two
from kerchief.environments.registry import ENVIRONMENTS
from kerchief.comparison import Comparison
from kerchief.planning.calibrate import calibrate
from kerchief.deployment.protected_policy import build_protected

for name, entry in POLICIES.items():
    world = ENVIRONMENTS[entry.default_environment or "linear"].make()
    for trust in entry.trusts:
        epsilon, delta = (float("inf"), 0.0) if trust == "none" else (1.0, 1e-6)
        promise = Guarantee(epsilon=epsilon, delta=delta, trust=trust)
        mode = "theory" if trust == "none" else "tuned"
        protection = Protection(guarantee=promise)
        print(name, build_protected(name, world.problem(4000), protection, mode=mode))
for trust in ("local", "shuffle", "joint", "central"):
    print(calibrate(epsilon=1.0, delta=1e-5, trust=trust, env="logistic", dim=3, radius=1.0,
                    horizon=1000, sensitivity=None).to_dict())
print(Comparison().cells()[0].label(), table_two(radius=2.0, horizon=10))
assert own() == widths and dict(jax.config.values) == settings
"""


def _printed(code: str, *, wide: bool) -> str:
    """What a program prints whose own JAX is in 32-bit mode, or in 64-bit mode."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", _HOST + code],
        capture_output=True,
        check=False,
        encoding="utf-8",
        env={
            **os.environ,
            "PYTHONUTF8": "1",
            "JAX_PLATFORMS": "cpu",
            "JAX_ENABLE_X64": str(int(wide)),
        },
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.nightly
@pytest.mark.parametrize("code", [_LIFE, _FACTORIES], ids=["life", "factories"])
def test_a_host_in_32_bits_gets_the_same_bits(code: str) -> None:
    narrow = _printed(code, wide=False)
    assert narrow
    assert narrow == _printed(code, wide=True)


def _simulated() -> Run:
    promise = Guarantee(epsilon=1.0, delta=1e-6, trust=Trust.JOINT)
    world = make_environment(dim=2, arms=3)
    policy = POLICIES["linucb"].build(world.problem(40), "tuned")
    return simulate(
        policy=policy,
        privatizers=protect(policy, Protection(guarantee=promise), horizon=40),
        environment=world,
        ledger=MemoryLedger(promise),
        horizon=40,
        replicates=2,
        seed=1,
        ticks=4,
    )


def test_one_compilation_serves_hosts_of_both_modes() -> None:
    with jax.enable_x64(False):
        first = _simulated()
    second = _simulated()
    assert second.compile_seconds == 0
    assert first.regret.tobytes() == second.regret.tobytes()


def test_random_words_are_the_same_in_both_modes() -> None:
    def draw(seed: jax.Array) -> jax.Array:
        return Stream.of(seed=seed, replicate=3).at(ARMS, round=7).normal(8)

    with jax.enable_x64(False):
        drawn = [np.asarray(one(jnp.uint32(5))) for one in (draw, jax.jit(draw))]
    for one in drawn:
        assert one.tobytes() == np.asarray(draw(jnp.uint32(5))).tobytes()


def test_the_mode_ends_with_an_error() -> None:
    @double_precision
    def fail() -> None:
        raise LookupError(str(jnp.zeros(1).dtype))

    with jax.enable_x64(False):
        with pytest.raises(LookupError, match="float64"):
            fail()
        assert jnp.zeros(1).dtype == np.float32


def test_a_class_has_all_that_it_offers_wrapped() -> None:
    @double_precision
    class Offer:
        """An offer."""

        limit = 3

        def __init__(self) -> None:
            self.made = jnp.zeros(1).dtype

        @property
        def seen(self) -> np.dtype[np.generic]:
            """What is seen."""
            return jnp.zeros(1).dtype

        @classmethod
        def of(cls) -> np.dtype[np.generic]:
            return jnp.zeros(1).dtype

        def asked(self, *, size: int = 1) -> np.dtype[np.generic]:
            return jnp.zeros(size).dtype

        def _within(self) -> np.dtype[np.generic]:
            return jnp.zeros(1).dtype

    with jax.enable_x64(False):
        offer = Offer()
        assert {offer.made, offer.seen, Offer.of(), offer.asked(size=2)} == {np.dtype(np.float64)}
        assert offer._within() == np.float32
    assert Offer.limit == 3
    assert Offer.seen.__doc__ == "What is seen."
    assert list(inspect.signature(Offer.asked).parameters) == ["self", "size"]


def test_a_function_that_yields_is_refused() -> None:
    def count() -> Iterator[int]:
        yield 1

    with pytest.raises(TypeError, match="count yields"):
        double_precision(count)
