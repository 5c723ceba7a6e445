"""A public random projection: which number goes where, and how long features are afterwards."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest

from kerchief_protocol.errors import InvalidValueError
from kerchief_protocol.projection import Projection

WIDE = Projection(dim=60, onto=12, norm=2.0)


def by_hand(through: Projection, row: list[float]) -> list[float]:
    """The map as another language would write it: hashes, a sort, sums from left to right."""
    kept = 1 if through.constant else 0
    names = [
        hashlib.sha256(
            b"kerchief/1 projection\0"
            + b"".join(
                one.to_bytes(8, "little")
                for one in (through.seed, through.dim, through.onto, place)
            )
        ).digest()
        for place in range(through.dim - kept)
    ]
    rank = {name: place for place, name in enumerate(sorted(names))}
    sums = [0.0] * (through.onto - kept)
    for one, name in zip(row, names, strict=False):
        sums[rank[name] % len(sums)] += -one if name[-1] & 1 else one
    return sums + row[len(row) - kept :]


@pytest.mark.parametrize("constant", [False, True])
def test_every_language_gets_the_same_sums(constant: bool) -> None:
    through = Projection(dim=17, onto=5, norm=100.0, seed=9, constant=constant)
    row = np.random.default_rng(3).normal(size=17)
    assert through.apply(row).tolist() == by_hand(through, row.tolist())


def test_rows_of_the_map_are_orthogonal_and_equally_long() -> None:
    square = WIDE.matrix.T.astype(int) @ WIDE.matrix
    assert (square == 5 * np.eye(12)).all()


def test_inner_products_are_kept_on_average_over_seeds() -> None:
    rng = np.random.default_rng(1)
    one, other = rng.normal(size=(2, 60))
    one, other = one / np.linalg.norm(one), other / np.linalg.norm(other)
    maps = [Projection(dim=60, onto=12, norm=100.0, seed=seed) for seed in range(2000)]
    found = np.array([through.apply(one) @ through.apply(other) for through in maps])
    assert abs(found.mean() - one @ other) < 5 * found.std() / np.sqrt(2000)


@pytest.mark.parametrize("constant", [False, True])
def test_no_features_are_longer_than_the_norm(constant: bool) -> None:
    through = Projection(dim=60, onto=12, norm=2.0, constant=constant)
    rows = np.random.default_rng(2).normal(size=(500, 60))
    rows *= 2.0 / np.linalg.norm(rows, axis=1, keepdims=True)
    # The worst: all that one sum adds up points the same way.
    rows[0, :] = np.append(through.matrix[:, 0], [0.0] * constant) * (2.0 / np.sqrt(5))
    short = through.apply(rows)
    assert (np.linalg.norm(short, axis=1) <= 2.0 * (1 + 1e-15)).all()
    clipped = through.clips(rows)
    assert clipped[0]
    assert 0 < clipped.mean() < 1
    if constant:
        assert (short[:, -1] == rows[:, -1]).all()
    left, columns = ~clipped, through.matrix.shape[1]
    mapped = rows[:, : len(through.matrix)] @ through.matrix
    np.testing.assert_allclose(short[left][:, :columns], mapped[left], atol=1e-14)


@pytest.mark.parametrize(
    "wrong",
    [
        {"onto": 60},
        {"onto": 61},
        {"onto": 0},
        {"onto": 12.0},
        {"onto": 1, "constant": True},
        {"dim": 2**20},
        {"seed": -1},
        {"seed": 2**53},
        {"norm": 0.0},
        {"norm": float("nan")},
        {"norm": "nan"},
        {"constant": None},
    ],
)
def test_invalid_projection_is_rejected(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidValueError):
        Projection(**{"dim": 60, "onto": 12, "norm": 2.0, **wrong})


def test_features_of_another_length_are_refused() -> None:
    with pytest.raises(InvalidValueError, match="59 features; the projection takes 60"):
        WIDE.apply(np.zeros((3, 59)))
