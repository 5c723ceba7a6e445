"""Play contenders round by round, alone or in step on arms that are drawn ahead."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from kerchief.core.contracts import Environment, Policy, PrecomputableContexts, Stops
from kerchief.environments.ahead import handing
from kerchief.policies import AnyPolicy
from kerchief.privacy.ledger import Ledger
from kerchief.privatizers.privatizer import Privatizer
from kerchief.simulation.ahead import (
    Source,
    begin_ahead,
    draw,
    meet,
    nothing_drawn,
    play_ahead,
)
from kerchief.simulation.loop import Replicate, Scene, begin, judge, longest_block, play_segments
from kerchief.simulation.recorder import Progress, Recorder, UnsettledRun


@dataclasses.dataclass(frozen=True, kw_only=True)
class Contender:
    """A policy under its protection, who pays for it, and who hears how far it is."""

    policy: AnyPolicy
    privatizers: Mapping[str, Privatizer]
    ledger: Ledger
    progress: Progress | None = None


def play_rounds(
    policy: Policy,
    privatizers: Mapping[str, Privatizer],
    environment: Environment,
    *,
    replicates: Array,
    seed: int,
    rounds: NDArray[np.int64],
    recorder: Recorder,
) -> UnsettledRun:
    """Play in segments of equal length, until every replicate has stopped, and read the regrets."""
    scene = _build_scene(policy, privatizers, environment, seed)
    carry: Replicate = recorder.run(begin, scene, replicates)
    readings: list[NDArray[np.float64]] = []
    longest = longest_block(int(rounds[-1]))
    for start, length, segments in _split_stretches(rounds):
        if _all_stopped(scene, carry, start):
            break
        at = (np.int32(start), np.int32(length))
        carry, regret = recorder.run(
            play_segments, scene, carry, *at, segments=segments, longest=longest
        )
        readings += [*np.asarray(regret, np.float64).T]
        recorder.tick(start + length * segments)
    # Those that have stopped lose nothing more.
    readings += readings[-1:] * (rounds.size - len(readings))
    return _collect_results(scene, carry, readings, rounds)


def play_handed(
    contenders: Sequence[Contender],
    environment: PrecomputableContexts,
    recorders: Sequence[Recorder],
    *,
    replicates: Array,
    seed: int,
    rounds: NDArray[np.int64],
) -> list[UnsettledRun]:
    """Play all contenders in step, on arms that are drawn for some rounds at once.

    Contenders that have stopped play on.
    """
    drawing = Recorder(progress=recorders[0].progress)
    source = jax.device_put(Source(environment=environment, seed=jnp.uint32(seed)))
    truths, without_contexts = drawing.run(meet, source, replicates)
    scenes = [
        _build_scene(contender.policy, contender.privatizers, handing(environment), seed)
        for contender in contenders
    ]
    pairs = list(zip(scenes, recorders, strict=True))
    carries: list[Replicate] = [
        recorder.run(begin_ahead, scene, replicates, without_contexts, once=True)
        for scene, recorder in pairs
    ]
    readings: list[list[NDArray[np.float64]]] = [[] for _ in pairs]
    offers = nothing_drawn(source, replicates, truths)
    rows = jax.tree.leaves(offers)[0].shape[0]
    for start, end in itertools.pairwise([0, *rounds.tolist()]):
        for first in range(start, end, rows):
            at = (np.int32(first), np.int32(min(rows, end - first)))
            offers = drawing.run(draw, source, replicates, truths, offers, *at)
            for i, (scene, recorder) in enumerate(pairs):
                carries[i] = recorder.run(play_ahead, scene, carries[i], offers, *at)
        for reading, carry, recorder in zip(readings, carries, recorders, strict=True):
            reading.append(np.asarray(carry.regret, np.float64))
            recorder.tick(end)
    recorders[0].compile_seconds += drawing.compile_seconds
    for recorder in recorders:
        recorder.shared_seconds, recorder.sharing = drawing.seconds, len(recorders)
    scenes_and_carries = [
        (
            dataclasses.replace(scene, environment=environment),
            dataclasses.replace(carry, world=truths),
        )
        for scene, carry in zip(scenes, carries, strict=True)
    ]
    return [
        _collect_results(*pair, reading, rounds)
        for pair, reading in zip(scenes_and_carries, readings, strict=True)
    ]


def _build_scene(
    policy: Any, privatizers: Mapping[str, Privatizer], environment: Environment, seed: int
) -> Scene:
    scene = Scene(
        policy=policy,
        privatizers=dict(privatizers),
        environment=environment,
        seed=jnp.uint32(seed),
    )
    placed: Scene = jax.device_put(scene)  # once, and not for every segment
    return placed


def _collect_results(
    scene: Scene,
    carry: Replicate,
    readings: Sequence[NDArray[np.float64]],
    rounds: NDArray[np.int64],
) -> UnsettledRun:
    right = judge(scene, carry)
    return UnsettledRun(
        regret=np.stack(readings),
        releases={name: np.asarray(counts, np.int64) for name, counts in carry.used.items()},
        users=max([int(counts.max()) for counts in carry.used.values()], default=0)
        if isinstance(scene.policy, Stops)
        else int(rounds[-1]),
        covered={name: int(last.max()) + 1 for name, last in carry.last.items()},
        right=None if right is None else np.asarray(right, np.float64),
        earned=None if carry.earned is None else np.asarray(carry.earned, np.float64),
    )


def _split_stretches(rounds: NDArray[np.int64]) -> Iterator[tuple[int, int, int]]:
    """Yield first round, length and number of segments to play before a look.

    On an accelerator, where looking is slow, several: as many, up to ten, as divide all evenly.
    """
    lengths = np.diff(rounds, prepend=0).tolist()
    for length, alike in itertools.groupby(
        zip(lengths, rounds.tolist(), strict=True), itemgetter(0)
    ):
        ends = [end for _, end in alike]
        together = max(n for n in range(1, _find_largest_stretch() + 1) if len(ends) % n == 0)
        for end in ends[together - 1 :: together]:
            yield end - together * length, length, together


def _find_largest_stretch() -> int:
    return 1 if jax.default_backend() == "cpu" else 10


def _all_stopped(scene: Scene, carry: Replicate, round_count: int) -> bool:
    """Whether no replicate asked anyone in the last of the rounds done so far."""
    if not isinstance(scene.policy, Stops) or not carry.used:
        return False
    return max(int(counts.max()) for counts in carry.used.values()) < round_count
