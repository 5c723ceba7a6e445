"""How the cost of a round grows, and where its time goes, on one core and without compilation.

The expected law, for d dimensions and K arms: a round draws K d numbers, scores the arms (K d^2,
or K d where a drawn parameter does it) and adds a statistic of d (d + 3) / 2 numbers, with as many
numbers of noise; a model is posted ever more rarely and costs d^3. So for large sizes the time of a
decision grows like d^2 and K, and that of a whole run like its rounds and its replicates. Slopes on
logarithmic axes are fitted to the upper half of the sizes.

The stages are prefixes of a round, each compiled by itself; the time of a stage is what it adds.
Noise is what a round costs more than without protection.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from tools.benchmark import Case, one_core, scene_of, time_run

from kerchief.cli.device import use_device
from kerchief.comparison.versions import machine, versions
from kerchief.core.precision import double_precision
from kerchief.core.random import ARMS, DEVICE, REWARD
from kerchief.environments import make_environment
from kerchief.policies import POLICIES
from kerchief.simulation.loop import Replicate, Scene, advance, begin
from kerchief.simulation.machine import compiled

PLAYERS = "linucb:none,linucb:joint,linucb:local,linucb:shuffle,sampling:joint,glm:joint"
EXPECTED = {"dim": 2.0, "arms": 1.0, "rounds": 1.0, "replicates": 1.0}
SIZES = {
    "arms": (2, 20, 100, 300, 1000),
    "dim": (2, 8, 32, 64, 128, 256),
    "replicates": (1, 8, 64, 256),
    "rounds": (1000, 4000, 16_000),
}
USUAL = {"dim": 5, "arms": 20, "rounds": 1000, "replicates": 4}
# Numbers that one run may look at, so that large sizes do not take minutes.
_LARGEST_RUN = 5 * 10**7
_STAGES = ("draw arms", "score", "reward and regret", "report", "learn")
_START, _ROUNDS = 1500, 500


def microseconds(policy: str, trust: str, sizes: Mapping[str, int]) -> float:
    """Measure microseconds of a decision at these sizes, the better of two runs."""
    world = make_environment(
        link=POLICIES[policy].default_environment or "linear", dim=sizes["dim"], arms=sizes["arms"]
    )
    numbers = sizes["arms"] * sizes["dim"] ** 2 * sizes["replicates"]
    rounds = (
        sizes["rounds"]
        if numbers * sizes["rounds"] < _LARGEST_RUN
        else max(30, _LARGEST_RUN // numbers)
    )
    run = partial(time_run, horizon=rounds, replicates=sizes["replicates"])
    return min(run(policy, trust, world) for _ in range(2))


def slope(sizes: Sequence[int], values: Sequence[float]) -> float:
    """Fit the slope of the upper half of the sizes on logarithmic axes."""
    first = (len(sizes) - 1) // 2
    coefficients = np.polyfit(np.log(sizes[first:]), np.log(values[first:]), 1)
    return float(coefficients[0])


def grown(policy: str, trust: str, name: str, *, end: float) -> dict[str, object] | None:
    """Measure how the time grows with one size, if there is time left."""
    durations: dict[int, float] = {}
    for size in SIZES[name]:
        if time.monotonic() > end:
            return None
        sizes = USUAL | {name: size}
        duration = microseconds(policy, trust, sizes)
        durations[size] = duration * size if name in ("rounds", "replicates") else duration
    return {
        "policy": policy,
        "trust": trust,
        "size": name,
        "microseconds": durations,
        "slope": slope(list(durations), list(durations.values())),
        "expected": EXPECTED[name],
    }


def _play_up_to(stage: str, scene: Scene, carry: Replicate, round: Array) -> Replicate:
    """Play a round up to a stage, and use its result so that no compiler drops it."""
    world, root, bandit = scene.environment, scene.root(carry), scene.bandit
    clock = bandit.clock(carry, round)
    arms = world.arms(carry.world, clock, root.at(ARMS, round=round))
    if stage == "draw arms":
        return dataclasses.replace(carry, regret=carry.regret + arms.features.sum())
    action = bandit.act(carry.model, arms, clock, root)
    if stage == "score":
        return dataclasses.replace(carry, regret=carry.regret + action)
    reward = world.reward(carry.world, arms, action, clock, root.at(REWARD, round=round))
    regret = world.regret(carry.world, arms, action, clock)
    carry = dataclasses.replace(carry, regret=carry.regret + regret + 0 * reward)
    if stage == "reward and regret":
        return carry
    records, tally = scene.policy.record(carry.model, arms, action, reward), dict(carry.tally)
    for name, privatizer in scene.privatizers.items():
        report = privatizer.randomize(records[name], clock, root.at(DEVICE, round=round))
        tally[name] = privatizer.collect(tally[name], report)
    return dataclasses.replace(carry, tally=tally)


def _time(play: Callable[..., Any], *arguments: Any) -> float:
    """Measure microseconds per decision, the best of three."""
    finish: Callable[[Any], Any] = jax.block_until_ready
    durations: list[float] = []
    for _ in range(4):
        start = time.perf_counter()
        finish(play(*arguments))
        durations.append(time.perf_counter() - start)
    replicates: int = arguments[1].replicate.shape[0]
    return 1e6 * min(durations[1:]) / (_ROUNDS * replicates)


@double_precision
def stages(policy: str, trust: str) -> dict[str, float]:
    """Measure what each stage adds, in microseconds per decision (d = 5, 20 arms)."""
    scene = scene_of(Case(policy=policy, trust=trust, arms=20, replicates=64))
    carry = begin(scene, jnp.arange(64, dtype=jnp.uint32))
    rounds = _START + jnp.arange(_ROUNDS, dtype=jnp.int32)

    @partial(jax.jit, static_argnames="stage")
    def prefix(scene: Scene, carry: Replicate, stage: str) -> Replicate:
        step = jax.vmap(partial(_play_up_to, stage, scene), in_axes=(0, None))
        last: Replicate = jax.lax.scan(
            lambda replicate, number: (step(replicate, number), None), carry, rounds
        )[0]
        return last

    start = jnp.int32(_START)
    play, _ = compiled(advance, scene, carry, start, length=_ROUNDS)

    def play_rounds(scene: Scene, carry: Replicate) -> Replicate:
        # A copy, as the round takes the memory of what it is given.
        final: Replicate = play(scene, jax.tree.map(jnp.copy, carry), start)
        return final

    parts = [compiled(prefix, scene, carry, stage=stage)[0] for stage in _STAGES[:-1]]
    totals = [_time(part, scene, carry) for part in parts]
    totals.append(_time(play_rounds, scene, carry))
    return dict(zip(_STAGES, np.diff([0.0, *totals]).tolist(), strict=True))


def main() -> None:
    """Print tables, or one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--players", default=PLAYERS, help="policy:trust,policy:trust")
    parser.add_argument("--sizes", default=",".join(SIZES))
    parser.add_argument("--seconds", type=float, default=240.0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    players = [
        (player.split(":")[0], player.split(":")[1]) for player in options.players.split(",")
    ]
    with one_core() as core:
        use_device("cpu")
        split = {f"{policy} {trust}": stages(policy, trust) for policy, trust in players}
        end = time.monotonic() + options.seconds
        cases = [(*player, name) for name in options.sizes.split(",") for player in players]
        results = {case: grown(*case, end=end) for case in cases}
    skipped = [" ".join(case) for case, row in results.items() if row is None]
    rows = [row for row in results.values() if row is not None]
    if options.json:
        report = {"growth": rows, "stages": split, "left_out": skipped, "core": core}
        print(json.dumps({**report, "machine": machine(), "versions": versions()}))
        return
    print("| policy | trust | size | µs of a decision, or of all | slope | expected |")
    print("|---|---|---|---|---|---|")
    for row in rows:
        values: Any = row["microseconds"]
        text = ", ".join(f"{size}: {value:.3g}" for size, value in values.items())
        cells = (row["policy"], row["trust"], row["size"], text)
        print(f"| {' | '.join(map(str, cells))} | {row['slope']:.2f} | {row['expected']:g} |")
    print(f"\n| bandit | {' | '.join(_STAGES)} | all |\n|---{'|---' * (len(_STAGES) + 1)}|")
    for name, parts in split.items():
        values = [*parts.values(), sum(parts.values())]
        print(f"| {name} | {' | '.join(f'{value:.2f}' for value in values)} |")
    print(
        f"left out for want of --seconds: {', '.join(skipped)}"
        if skipped
        else "nothing was left out"
    )


if __name__ == "__main__":
    main()
