"""The value of a policy from logs, released with a guarantee: proof note `off_policy.md`.

A curator holds the logs. What leaves is a vector of sums with exact noise, paid for before it is
drawn; the value and its interval are computed from that vector and from public facts alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kerchief.core.errors import InvalidValueError
from kerchief.core.validate import between, one_of, whole
from kerchief.data.fixed_policies import FixedPolicy, LinearModel, chances_of
from kerchief.data.logs import Floats, Logs
from kerchief.data.reward_fits import RewardFit
from kerchief.data.tails import Noise
from kerchief.data.value_noise import ExactNoise, check_grid, noises_for, worst_of
from kerchief.data.value_sums import SUREST_GUESS, MatchedSum, MeanSum, Reading, ValueSum
from kerchief.mechanisms.laplace import ExactLaplace
from kerchief.privacy.guarantee import Guarantee, Trust
from kerchief.privacy.ledger import Ledger, MemoryLedger
from kerchief.privacy.receipts import Charge, Cohort

Estimator: TypeAlias = Literal["replay", "ips", "dr"]

ESTIMATORS = ("replay", "ips", "dr")
LARGEST_WEIGHT = 10.0
MOST_OF_A_USER = 1024
"""Rows of a user that count: rounding in a mean of more would be more than the proof allows."""
# One unit of so many is for the model of rewards, where one must be fitted.
_UNITS_PER_FIT = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class OffPolicyValue:
    """What a policy would have earned per row, and how sure that is.

    Attributes:
        value: the estimate of its mean reward; where users are the unit, every user counts once.
        low: the lower end of the interval, with sampling error and noise in it. Where weights may
            have been cut, what they could have brought is in both ends.
        high: the upper end.
        level: how often such an interval holds the value.
        estimator: replay, ips or dr.
        noise: the standard deviation that noise alone gives to the value.
        weight: the mean weight after cutting, with noise; the less it is below 1, the less the cut
            matters. None where it is declared that nothing is cut.
        largest_weight: where weights were cut.
        units: how many rows or users the value is over.
        guarantee: what was promised about each of them.
    """

    value: float
    low: float
    high: float
    level: float
    estimator: str
    noise: float
    weight: float | None
    largest_weight: float
    units: int
    guarantee: Guarantee

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dictionary."""
        return vars(self) | {"guarantee": self.guarantee.to_dict()}

    def sentence(self) -> str:
        """The value in one line."""
        clause = "no weight is cut, as was declared"
        if self.weight is not None:
            clause = f"weights are cut at {self.largest_weight:g}, which both ends allow for"
        return (
            f"{self.value:.6g}, and between {self.low:.6g} and {self.high:.6g} at level "
            f"{self.level:g}, noise and sampling included; {clause}"
        )


def off_policy_value(
    logs: Logs,
    policy: FixedPolicy,
    *,
    estimator: Estimator = "ips",
    epsilon: float = 1.0,
    delta: float = 1e-6,
    mechanism: str = "best",
    ledger: Ledger | None = None,
    largest_weight: float | None = None,
    least_propensity: float | None = None,
    model: LinearModel | None = None,
    level: float = 0.95,
) -> OffPolicyValue:
    """Estimate what a fixed policy would have earned, under (epsilon, delta)-privacy.

    The unit is a row, or a user where the logs say who came: then a user counts once, by the mean
    of their first 1024 rows. Call it once per question and give it one ledger: every call is a
    release of its own. Whatever is chosen here must not have been chosen by looking at these logs.

    Args:
        logs: what a trusted curator holds.
        policy: one of `kerchief.data.fixed_policies`, or a function of logs.
        estimator: `ips`, inverse propensity; `dr`, doubly robust, with a model of rewards;
            `replay`, the mean over rows that agree with the policy, by their weights.
        epsilon: privacy asked for.
        delta: of the guarantee; 0 asks for pure privacy.
        mechanism: `laplace` or `gaussian` noise; `best` takes the one that has less here. Many
            releases on one ledger add up to less with Gaussian noise.
        ledger: pays, before anything is drawn; one of this call alone where None.
        largest_weight: a public number to which weights (chance now over chance then) are cut; 10
            where nothing is said.
        least_propensity: instead, a public promise of the logging policy: it gave every
            allowed arm at least this chance. Then nothing is cut, and the interval is narrower.
        model: of rewards, for `dr`, made without these logs. Where None, one is fitted to
            a noisy sum over a third of the rows, and the value is over the others; where users
            are the unit, it must be given.
        level: how often the interval holds the value, as far as means of so many units are normal.

    Raises:
        BudgetExceededError: the ledger refuses; nothing was drawn.

    >>> from kerchief.data.fixed_policies import OneArm
    >>> dice = np.random.default_rng(1)
    >>> actions = dice.integers(2, size=20_000)
    >>> rewards = dice.random(20_000) < 0.3 + 0.4 * actions
    >>> logs = Logs(contexts=np.zeros((20_000, 0)), actions=actions, rewards=rewards, arms=2,
    ...     propensities=np.full(20_000, 0.5), low=0.0, high=1.0)
    >>> estimate = off_policy_value(logs, OneArm(arm=1), least_propensity=0.5)
    >>> estimate.low < 0.7 < estimate.high, estimate.high - estimate.low < 0.05
    (True, True)
    """
    request = _Request.of(logs, estimator, largest_weight, least_propensity, model, level)
    unit = "row" if logs.users is None else "user"
    guarantee = Guarantee(epsilon=epsilon, delta=delta, trust=Trust.CENTRAL, unit=unit)
    ledger = MemoryLedger(guarantee) if ledger is None else _check_ledger(ledger, unit)
    noises = noises_for(guarantee, mechanism, request.sums)
    for part, noise in zip(request.parts, noises, strict=True):
        check_grid(len(part), noise)
    prepared = _prepare_logs(logs, request, policy, noises)
    # Everyone is in one of the sums and pays for it, whatever log the next call brings.
    charge = Charge(event=worst_of(noises), cohort=Cohort(first=0, last=request.units))
    receipts = ledger.charge_all([charge])
    reading = _draw_reading(logs, request, prepared, noises)
    ledger.settle(receipts[0], used=1)
    return request.build_value(logs, reading, guarantee)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class _PreparedLogs:
    """Quantities of the logs that need no draw, so that they fail before the charge.

    Attributes:
        chances: of every arm, by the policy whose value is asked for.
        rewards: in [-1, 1].
        guesses: of a given model, of every arm; zeros where there is none.
        steps: what a model is fitted to, without noise; None where none is.
    """

    chances: Floats
    rewards: Floats
    guesses: Floats
    steps: NDArray[np.int64] | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Request:
    """Checked arguments of a call, and what follows from them and from public facts.

    Attributes:
        fit: what a model of rewards is fitted to; None where none is.
        units: how many rows or users there are.
    """

    estimator: str
    largest: float
    least: float
    complete: bool
    level: float
    model: LinearModel | None
    fit: RewardFit | None
    units: int

    @classmethod
    def of(
        cls,
        logs: Logs,
        estimator: str,
        largest_weight: float | None,
        least_propensity: float | None,
        model: LinearModel | None,
        level: float,
    ) -> _Request:
        one_of("estimator", estimator, ESTIMATORS)
        if largest_weight is not None and least_propensity is not None:
            raise InvalidValueError(
                f"largest_weight is {largest_weight} and least_propensity {least_propensity}; "
                "the latter says that no weight is cut: give one of the two"
            )
        if model is not None and not isinstance(model, LinearModel):
            raise InvalidValueError(f"model is a {type(model).__name__}; give a LinearModel")
        if model is not None and estimator != "dr":
            raise InvalidValueError(f"estimator is {estimator!r} and takes no model; choose dr")
        if estimator == "dr" and model is None and logs.users is not None:
            raise InvalidValueError(
                "estimator is 'dr' without a model, and the unit is a user: which users a model is "
                "fitted to would depend on who came when; give a model, or choose ips or replay"
            )
        largest, least = LARGEST_WEIGHT if largest_weight is None else largest_weight, 0.0
        if least_propensity is not None:
            least = between("least_propensity", least_propensity, 1e-6, 1.0, closed=True)
            largest = 1 / least
        return cls(
            estimator=estimator,
            largest=between("largest_weight", largest, 1.0, 1e6, closed=True),
            least=least,
            complete=least_propensity is not None,
            level=between("level", level, 0.5, 0.9999, closed=True),
            model=model,
            fit=RewardFit.of(logs) if estimator == "dr" and model is None else None,
            units=whole("units", logs.units, low=2 if estimator != "dr" else 2 * _UNITS_PER_FIT),
        )

    @property
    def valued(self) -> ValueSum:
        """Statistic whose sum gives the value."""
        if self.estimator == "replay":
            return MatchedSum(largest=self.largest, complete=self.complete)
        modelled = self.estimator == "dr"
        return MeanSum(largest=self.largest, modelled=modelled, complete=self.complete)

    @property
    def sums(self) -> list[RewardFit | ValueSum]:
        """Statistics whose sums are released."""
        return [self.valued] if self.fit is None else [self.fit, self.valued]

    @property
    def parts(self) -> list[NDArray[np.int64]]:
        """Units of each sum, by their positions alone; no unit is in two of them."""
        everyone = np.arange(self.units)
        if self.fit is None:
            return [everyone]
        return [everyone[::_UNITS_PER_FIT], everyone[everyone % _UNITS_PER_FIT > 0]]

    def build_value(self, logs: Logs, reading: Reading, guarantee: Guarantee) -> OffPolicyValue:
        """Build the result, in the units of rewards."""
        middle, half = _compute_scale(logs)
        return OffPolicyValue(
            value=middle + half * reading.value,
            low=middle + half * reading.low,
            high=middle + half * reading.high,
            level=self.level,
            estimator=self.estimator,
            noise=half * reading.noise,
            weight=reading.weight,
            largest_weight=self.largest,
            units=len(self.parts[-1]),
            guarantee=guarantee,
        )


# A warning would tell of single rows.
@np.errstate(all="ignore")
def _prepare_logs(
    logs: Logs, request: _Request, policy: FixedPolicy, noises: Sequence[ExactNoise]
) -> _PreparedLogs:
    """Prepare all that is known before the first draw."""
    chances = chances_of(policy, logs)
    middle, half = _compute_scale(logs)
    # Division rounds: over a range of a few floats the quotient can be above 1.
    rewards = np.clip((logs.rewards - middle) / half, -1.0, 1.0)
    guesses, steps = np.zeros_like(chances), None
    if request.model is not None:
        guesses = _clip_guesses((request.model.scores(logs) - middle) / half)
    if request.fit is not None:
        part = request.parts[0]
        statistics = request.fit.rows(logs.contexts[part], logs.actions[part], rewards[part])
        steps = _sum_in_steps(statistics, noises[0])
    return _PreparedLogs(chances=chances, rewards=rewards, guesses=guesses, steps=steps)


@np.errstate(all="ignore")
def _draw_reading(
    logs: Logs, request: _Request, prepared: _PreparedLogs, noises: Sequence[ExactNoise]
) -> Reading:
    """Draw each sum once, the model's first, and read the value."""
    chances, guesses, index = (
        prepared.chances,
        prepared.guesses,
        (np.arange(logs.rows), logs.actions),
    )
    if request.fit is not None and prepared.steps is not None:
        parameters = request.fit.fitted(_add_noise(prepared.steps, noises[0]), noises[0].std)
        guesses = _clip_guesses(request.fit.guesses(parameters, logs.contexts))
    weights = chances[index] / np.maximum(logs.propensities, request.least)
    weights = np.minimum(weights, request.largest)
    expected = (chances * guesses).sum(axis=1)
    numbers = request.valued.rows(weights, prepared.rewards, guesses[index], expected)
    pure = isinstance(noises[-1], ExactLaplace)
    units = request.valued.encode(_average_by_unit(logs, numbers)[request.parts[-1]], pure=pure)
    noise = Noise(std=noises[-1].std / len(units), pure=pure, units=len(units))
    means = _add_noise(_sum_in_steps(units, noises[-1]), noises[-1]) / len(units)
    return request.valued.read(means, noise, miss=(1 - request.level) / 2)


def _clip_guesses(guesses: Floats) -> Floats:
    return np.clip(np.nan_to_num(guesses), -SUREST_GUESS, SUREST_GUESS)


def _sum_in_steps(statistics: Floats, noise: ExactNoise) -> NDArray[np.int64]:
    """Sum statistics of units, each rounded to the grid of the noise, in whole steps."""
    steps = np.rint(np.ldexp(statistics, noise.grid_bits)).astype(np.int64)
    total: NDArray[np.int64] = steps.sum(axis=0)
    return total


def _add_noise(steps: NDArray[np.int64], noise: ExactNoise) -> Floats:
    """Add noise to a sum that is in whole steps of the grid of the noise."""
    return noise.add(steps.astype(np.float64) * noise.grid)


def _average_by_unit(logs: Logs, rows: Floats) -> Floats:
    """Average the rows of every unit, at most the first `MOST_OF_A_USER` of a user."""
    if logs.users is None:
        return rows
    order = np.argsort(logs.users, kind="stable")
    users, counts = logs.users[order], np.bincount(logs.users)
    earlier = np.arange(len(order)) - (np.cumsum(counts) - counts)[users]
    first_rows, users = order[earlier < MOST_OF_A_USER], users[earlier < MOST_OF_A_USER]
    sums = np.stack([np.bincount(users, column) for column in rows[first_rows].T], axis=1)
    means: Floats = sums / np.minimum(counts, MOST_OF_A_USER)[:, None]
    return means


def _check_ledger(ledger: Ledger, unit: str) -> Ledger:
    """Return the ledger, if its budget protects this unit under central trust."""
    budget = ledger.budget
    verb = "say" if unit == "user" else "do not say"
    if budget.trust is not Trust.CENTRAL or budget.unit != unit:
        raise InvalidValueError(
            f"the ledger's budget is for one {budget.unit} under {budget.trust} trust; here it "
            f"must be for one {unit} under central trust, as these logs {verb} who came: give "
            "another ledger"
        )
    return ledger


def _compute_scale(logs: Logs) -> tuple[float, float]:
    """Compute the middle of the range of rewards and half its width."""
    return (logs.low + logs.high) / 2, (logs.high - logs.low) / 2
