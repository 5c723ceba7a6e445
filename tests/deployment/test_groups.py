"""Reports that come together: their releases are drawn together, all of them or none."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.deployment.field import build_deployment
from tests.deployment.interleavings import tiny

from kerchief.deployment.aggregator import Aggregator
from kerchief.deployment.audit_log import AuditLog
from kerchief.deployment.deployment import Deployment
from kerchief.mechanisms.exact_continual import ExactContinualNoise
from kerchief.mechanisms.exact_gaussian import ExactGaussian
from kerchief.stores import Store
from kerchief.stores.memory import MemoryStore
from kerchief.stores.sqlite import SQLiteStore
from kerchief_protocol.noise import Statistic
from kerchief_protocol.report import Release, Report

GROUP = 64


class Dealt:
    """Noise of known rows, each of them dealt once."""

    def __init__(self, noise: Any) -> None:
        rng = np.random.default_rng(noise.dimension)
        self._noise, self._rows = noise, rng.integers(-1000, 1000, (300, noise.dimension))
        self.count = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._noise, name)

    def draw(self, stream: None, rows: int) -> NDArray[np.int64]:
        assert stream is None
        self.count += rows
        return self._rows[self.count - rows : self.count]


class Dealer:
    """Puts known noise in the place of a task's own."""

    def __init__(self) -> None:
        self.dealt = list[Dealt]()

    def __call__(self, noise: Any) -> Any:
        if isinstance(noise, ExactContinualNoise):
            return dataclasses.replace(noise, seeds=tuple(map(self, noise.seeds)))
        if not isinstance(noise, ExactGaussian):
            return noise
        self.dealt.append(Dealt(noise))
        return self.dealt[-1]


@pytest.fixture(params=["memory", "sqlite"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Store]:
    """Opens a new store."""
    names = (tmp_path / f"{number}.db" for number in range(9))
    return MemoryStore if request.param == "memory" else lambda: SQLiteStore(next(names))


def begun(one: Deployment) -> Aggregator:
    """An aggregator whose first epoch has the same number every time."""
    return Aggregator(one, store=MemoryStore(), source=bytes)


def reports(aggregator: Aggregator, count: int, first: int = 0) -> list[bytes]:
    """Each about numbers of its own, and with a known id."""
    task, epoch = aggregator.task, aggregator.status().epoch
    noise, found = task.noise[0], []
    for number in range(first, first + count):
        numbers = noise.bounds(0).low + 2 * number
        if isinstance(noise, Statistic):
            # Of features (1, 0), and of so many steps of reward.
            numbers = np.array([2**noise.grid_bits, 0, 0, number, 0])
        said = Report(label=0, epoch=epoch, id=number.to_bytes(16, "big"), numbers=numbers)
        found.append(said.write(task))
    return found


def kept(store: Store, task: bytes) -> tuple[Any, ...]:
    """All that a store holds of a task."""
    with store.read(task) as at:
        return (
            at.row(),
            at.lines(),
            at.releases(0, 999),
            at.secret(),
            at.count_report_ids(),
            at.counts(),
        )


@pytest.mark.parametrize("trust", ["local", "shuffle", "joint", "central"])
@pytest.mark.parametrize("groups", [5, 999])
def test_group_leaves_the_same_state_as_single_reports(
    trust: str, groups: int, opened: Callable[[], Store]
) -> None:
    one = build_deployment("joint", horizon=100) if trust == "joint" else tiny(trust)
    like = begun(one)
    sent = reports(like, GROUP if trust == "joint" else 3)
    # Some come twice, one is none, and in the end there are too many.
    sent = [*sent[:2], b"none", *sent[:2], *sent[2:], *reports(like, 40, first=GROUP), sent[0]]

    def left(group: int) -> tuple[Any, ...]:
        store, dealer, answers = opened(), Dealer(), list[Any]()
        aggregator = Aggregator(one, store=store, pool=dealer, source=bytes)
        for at in range(0, len(sent), group):
            answers += [
                refused and refused.word for refused in aggregator.take(sent[at : at + group])
            ]
        AuditLog.of(aggregator.chain()).check(one)
        return answers, kept(store, one.task.id), [noise.count for noise in dealer.dealt]

    answers, found, counts = left(groups)
    assert (answers, found, counts) == left(1)
    assert answers[2:5] == ["length", None, None]
    assert "over" in answers
    # Nothing was drawn for what was refused, or came twice.
    assert sum(counts) == (found[0].releases if trust in ("joint", "central") else 0)


def test_group_releases_exact_totals_with_fresh_noise(
    opened: Callable[[], Store],
) -> None:
    one, store = build_deployment("joint", horizon=100), opened()
    aggregator = Aggregator(one, store=store)
    sent = reports(aggregator, GROUP)
    assert aggregator.take(sent) == (None,) * GROUP
    totals = np.array([Release.read(payload).total for payload in aggregator.releases()])
    exact = np.cumsum([Report.read(data, one.task).numbers for data in sent], axis=0)
    privatizer: Any = one.privatizers["moments"]
    stds = privatizer.noise.std_at(np.arange(1, GROUP + 1)) / privatizer.noise.grid
    # So many numbers, correlated over time: both bounds are beyond six deviations.
    scaled = (totals - exact) / stds[:, None]
    assert 0.1 < np.abs(scaled).max() < 7
    assert (np.diff(totals - exact, axis=0) != 0).all()


class Failing:
    """A transaction that fails right after one kind of step."""

    def __init__(self, at: Any, step: str) -> None:
        self._at, self._step = at, step

    def __getattr__(self, name: str) -> Any:
        step = getattr(self._at, name)
        if name != self._step:
            return step

        def failing(*given: Any, **more: Any) -> None:
            step(*given, **more)
            raise KeyboardInterrupt

        return failing


@pytest.mark.parametrize(
    "step", ["secret", "hide", "publish", "append", "change", "add_report_ids"]
)
def test_failed_group_leaves_no_trace_and_never_reuses_noise(
    step: str, opened: Callable[[], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, store, dealer = build_deployment("joint", horizon=100), opened(), Dealer()
    aggregator = Aggregator(one, store=store, pool=dealer)
    sent = reports(aggregator, GROUP)
    aggregator.take(sent[:3])
    before, plain = kept(store, one.task.id), store.transaction

    @contextmanager
    def failing(task: bytes) -> Iterator[Any]:
        with plain(task) as at:
            yield Failing(at, step)

    monkeypatch.setattr(store, "transaction", failing)
    with pytest.raises(KeyboardInterrupt):
        aggregator.take(sent[3:])
    monkeypatch.undo()
    assert kept(store, one.task.id) == before
    (dealt,) = dealer.dealt
    used = dealt.count
    assert used == (3 if step == "secret" else GROUP)
    assert aggregator.take(sent[3:]) == (None,) * (GROUP - 3)
    assert dealt.count == used + GROUP - 3
    again = Aggregator(one, store=store)
    assert len(again.releases()) == GROUP
    AuditLog.of(again.chain()).check(one)


def test_noise_with_repeated_bytes_depends_on_all_group_totals() -> None:
    one = build_deployment("joint", horizon=100)

    def noise(sent: Sequence[bytes]) -> NDArray[np.int64]:
        aggregator = begun(one)
        assert set(aggregator.take(sent)) == {None}
        numbers = [Report.read(data, one.task).numbers for data in sent]
        totals = [Release.read(payload).total for payload in aggregator.releases()]
        return np.array(totals) - np.cumsum(numbers, axis=0)

    like = begun(one)
    sent = reports(like, 3)
    assert (noise(sent) == noise(sent)).all()
    for other in (sent[:2], [*sent[:2], *reports(like, 1, first=9)], [sent[1], sent[0], sent[2]]):
        assert (noise(sent)[0] != noise(other)[0]).all()
