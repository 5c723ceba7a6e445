"""Small tasks and models, and how vectors are read."""

from __future__ import annotations

import functools
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np

from kerchief_protocol.model import Model, Numbers, Status
from kerchief_protocol.noise import Coins, Compass, Floats, Noise, OneBit, Statistic
from kerchief_protocol.parties import Party
from kerchief_protocol.programs import Answering, Optimist, Program
from kerchief_protocol.task import Promise, Reward, Task

VECTORS = Path(__file__).parents[1] / "vectors"

OPTIMIST = Optimist(
    dim=2,
    arms=4,
    norm=1.0,
    low=0.0,
    high=1.0,
    link="linear",
    linearized=False,
    largest_score=1.0,
    steepest=1.0,
    response_low=0.0,
    response_high=1.0,
    offset=0.5,
    balance=1.0,
    weighted=False,
    reweighed=0,
    choice="bound",
)
ANSWERING = Answering(low=0.0, high=1.0, questions=1, answer="loss")
# 2 artanh(bias / 2**31) is a little below 1.
ONE_BIT = OneBit(bias=992_380_000, center=0.5, radius=0.5, low=-0.6, high=1.6)
GRID = Statistic(grid_bits=20, center=(0,) * 5, radius=2**21)
COINS = Coins(size=5, step_bits=7, levels=272, scale=1400, coins=(78400, 39200))
# Epsilon is a little below 1.
COMPASS = Compass(
    units=1_200_000_000,
    candidates=256,
    listed=32,
    dim=2,
    square=1.0,
    pull=0.5,
    lean=0.2,
    vector=4.0,
    matrix=20.0,
    weight=15.0,
    grid_bits=20,
)
NEEDS = (100, 200)
VALID_S = 600
ROWS = np.array([[0.5, 0.0], [0.0, 0.25], [0.6, 0.8]])


def task(
    noise: Noise = GRID,
    *,
    trust: str = "joint",
    program: Program = OPTIMIST,
    epsilon: float = 1.0,
    delta: float = 1e-5,
    needs: tuple[int, ...] = (),
    reward: Reward | None = None,
    parties: tuple[Party, ...] = (),
    nonce: bytes = bytes(16),
) -> Task:
    """A task of one query."""
    return Task(
        name="a test",
        trust=trust,
        bandit="context-free" if isinstance(program, Answering) else "contextual",
        promise=Promise(epsilon=epsilon, delta=delta),
        policy={},
        problem={},
        program=program,
        queries=("moments",),
        noise=(noise,),
        needs=needs,
        horizon=1000,
        reward=reward or Reward(window_s=0, jitter_s=0, default=0.0),
        nonce=nonce,
        parties=parties,
        valid_s=VALID_S if parties else 0,
    )


def asking(**options: Any) -> Task:
    """A task of local trust whose reports are one bit."""
    return task(ONE_BIT, trust="local", program=ANSWERING, **options)


def model(of: Task, *, length: int = 1, head: bytes = bytes(32), version: int = 0) -> Model:
    """A model that likes the first feature."""
    return Model(
        task=of.id,
        version=version,
        release=0,
        round=0,
        length=length,
        head=head,
        arrays={
            "estimate": Numbers.of(np.array([1.0, 0.0], np.float32)),
            "inverse": Numbers.of(np.eye(2, dtype=np.float32)),
            "width": Numbers.of(np.array(0.125, np.float32)),
        },
    )


def status(of: Task, *, label: int = 0, state: str = "running") -> Status:
    """What the aggregator says."""
    return Status(task=of.id, state=state, epoch=3, label=label)


@functools.cache
def vectors(name: str) -> Any:
    """A file of vectors, with its numbers still in hexadecimal."""
    return json.loads((VECTORS / f"{name}.json").read_bytes())


def real(text: str) -> float:
    """A number of a vector."""
    number: float = struct.unpack(">d", bytes.fromhex(text))[0]
    return number


def reals(texts: list[str]) -> Floats:
    """Numbers of a vector."""
    return np.array([real(text) for text in texts])
