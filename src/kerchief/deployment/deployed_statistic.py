"""What the aggregator adds to sums of whole numbers, and how much noise a total then has."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kerchief.core.errors import CodecError, InvalidValueError
from kerchief.deployment.deployment import Deployment
from kerchief.mechanisms.exact_continual import ExactContinualNoise
from kerchief.privatizers.prefix import PrefixSums
from kerchief.privatizers.privatizer import Privatizer
from kerchief.privatizers.sums import CohortSums
from kerchief_device.samplers import Randomness
from kerchief_protocol import noise as wire

Wholes = NDArray[np.int64]

# Running totals whose noise is computed together.
_RELEASES = 256


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoiseState:
    """What the aggregator must remember of one query between two releases, and shows to nobody.

    Attributes:
        total: under joint trust the exact running total; elsewhere nothing.
        noise: the state of noise that is correlated over time; elsewhere nothing.
    """

    total: Wholes = dataclasses.field(repr=False)
    noise: NDArray[np.float64] = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeployedStatistic:
    """Statistic of a task, with the noise that the aggregator adds to its sums.

    Attributes:
        privatizer: its exact noise.
        wire: what its reports mean.
    """

    privatizer: Privatizer
    wire: wire.Noise

    @functools.cached_property
    def running(self) -> bool:
        """Whether a release is the running total, and not that of one cohort."""
        return isinstance(self.privatizer, PrefixSums)

    @functools.cached_property
    def draws(self) -> bool:
        """Whether the aggregator adds noise."""
        return self.running or getattr(self.privatizer, "noisy_aggregator", False)

    def open(self) -> NoiseState:
        """Return the state before the first release of an epoch."""
        size = self.wire.size if self.running else 0
        state: Any = self._continual.open(size) if self.running else np.zeros(0)
        return NoiseState(total=np.zeros(size, np.int64), noise=np.asarray(state, np.float64))

    @functools.cached_property
    def form(self) -> NoiseState:
        """State before the first release; later states have arrays of these shapes."""
        return self.open()

    def draw(
        self, cohorts: Wholes, state: NoiseState, number: int, source: Randomness | None
    ) -> tuple[Wholes, NoiseState]:
        """Return noisy totals, per cohort or running, and the state to remember.

        Args:
            cohorts: the exact sum of each cohort's reports, one row each.
            state: what the release before left.
            number: of the first release in its epoch, from 0.
            source: where noise comes from; None for the operating system.
        """
        if not self.draws:
            return cohorts, state
        if self.running:
            exact = state.total + np.add.accumulate(cohorts)
            noise, next_state = self._continual.steps(state.noise, number, source, len(cohorts))
            steps, state = noise.astype(np.int64), NoiseState(total=exact[-1], noise=next_state)
        else:
            assert isinstance(self.privatizer, CohortSums)
            mechanism: Any = self.privatizer.aggregator
            exact, steps = cohorts, mechanism.draw(source, len(cohorts))
        if steps.shape != exact.shape:
            raise InvalidValueError(f"there are {exact.size} numbers, and noise for {steps.size}")
        return exact + steps, state

    def variance(self, cohort: int, users: int) -> float:
        """Return the noise variance of a cohort's release, from its devices and the aggregator."""
        privatizer: Any = self.privatizer
        if isinstance(self.wire, wire.Coins):
            # A coin has a variance of a quarter step, and rounding at random at most as much.
            step = 2.0**-self.wire.step_bits
            return step**2 * users * (1 + self.wire.coins[cohort]) / 4
        if isinstance(self.wire, wire.Bits):
            return float(privatizer.batches[cohort].std) ** 2
        device, aggregator = (
            0.0 if noise is None else float(noise.std) ** 2
            for noise in (privatizer.device, privatizer.aggregator)
        )
        return device * users + aggregator

    def running_variance(self, releases: int) -> float:
        """Return the noise variance of a running total after so many releases of its epoch."""
        block, place = divmod(releases, _RELEASES)
        if block not in self._variances:
            counts = block * _RELEASES + np.arange(_RELEASES)
            within = np.clip(counts, 1, max(releases, self._continual.horizon))
            self._variances.clear()
            self._variances[block] = (self._continual.std_at(within) ** 2).tolist()
        return self._variances[block][place]

    @functools.cached_property
    def _variances(self) -> dict[int, list[float]]:
        """Variances of a block of running totals, which are computed together."""
        return {}

    @functools.cached_property
    def _continual(self) -> ExactContinualNoise:
        assert isinstance(self.privatizer, PrefixSums)
        assert isinstance(self.privatizer.noise, ExactContinualNoise)
        return self.privatizer.noise


def build_statistics(
    deployment: Deployment, pool: Callable[[Any], Any] | None = None
) -> tuple[DeployedStatistic, ...]:
    """Build the statistics of a task, in its order."""
    pairs = zip(deployment.privatizers.values(), deployment.task.noise, strict=True)
    return tuple(
        DeployedStatistic(
            privatizer=privatizer if pool is None else privatizer.with_noise(pool), wire=noise
        )
        for privatizer, noise in pairs
    )


def write_secret(number: int, states: tuple[NoiseState, ...]) -> bytes:
    """What is kept, as bytes for the store."""
    numbers = [
        (state.total.astype("<i8", copy=False), state.noise.astype("<f8", copy=False))
        for state in states
    ]
    parts = [total.tobytes() + noise.tobytes() for total, noise in numbers]
    return number.to_bytes(8, "little") + b"".join(parts)


def read_secret(
    data: bytes, deployed_statistics: tuple[DeployedStatistic, ...]
) -> tuple[int, tuple[NoiseState, ...]]:
    """Read back what `write_secret` wrote.

    Raises:
        CodecError: it is of another length.
    """
    number, at, memories = int.from_bytes(data[:8], "little"), 8, []
    for statistic in deployed_statistics:
        form = statistic.form
        total_end = at + form.total.nbytes
        end = total_end + form.noise.nbytes
        if end > len(data):
            raise CodecError("the noise that was kept is too short; the store was changed")
        noise = np.frombuffer(data[total_end:end], "<f8").reshape(form.noise.shape)
        memories.append(NoiseState(total=np.frombuffer(data[at:total_end], "<i8"), noise=noise))
        at = end
    if at != len(data):
        raise CodecError("the noise that was kept is too long; the store was changed")
    return number, tuple(memories)


def hedge_source(context: bytes, source: Randomness = os.urandom) -> Randomness:
    """Bytes that are new for new data, even if a cloned machine repeats its random numbers.

    Equal noise on different data would cancel; hashed with the data it differs where they do
    (`restarts.md`). With a good source it is as good as that.

    >>> repeats = lambda count: bytes(count)
    >>> hedge_source(b"one", repeats)(8) == hedge_source(b"other", repeats)(8)
    False
    """
    seed, counter = source(32), 0

    def stream(count: int) -> bytes:
        nonlocal counter
        counter += 1
        block = hashlib.shake_256(seed + counter.to_bytes(8, "little") + context)
        return block.digest(count)

    return stream
