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

from kerchief.core.errors import InvalidValue
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
_FITTED = 3


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
        cut = "no weight is cut, as was declared"
        if self.weight is not None:
            cut = f"weights are cut at {self.largest_weight:g}, which both ends allow for"
        return (
            f"{self.value:.6g}, and between {self.low:.6g} and {self.high:.6g} at level "
            f"{self.level:g}, noise and sampling included; {cut}"
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
        delta: the same; 0 asks for pure privacy.
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
        BudgetExceeded: the ledger refuses; nothing was drawn.

    >>> from kerchief.data.fixed_policies import OneArm
    >>> dice = np.random.default_rng(1)
    >>> actions = dice.integers(2, size=20_000)
    >>> rewards = dice.random(20_000) < 0.3 + 0.4 * actions
    >>> logs = Logs(contexts=np.zeros((20_000, 0)), actions=actions, rewards=rewards, arms=2,
    ...     propensities=np.full(20_000, 0.5), low=0.0, high=1.0)
    >>> found = off_policy_value(logs, OneArm(arm=1), least_propensity=0.5)
    >>> found.low < 0.7 < found.high, found.high - found.low < 0.05
    (True, True)
    """
    asked = _Asked.of(logs, estimator, largest_weight, least_propensity, model, level)
    unit = "row" if logs.users is None else "user"
    guarantee = Guarantee(epsilon=epsilon, delta=delta, trust=Trust.CENTRAL, unit=unit)
    ledger = MemoryLedger(guarantee) if ledger is None else _agreeing(ledger, unit)
    noises = noises_for(guarantee, mechanism, asked.sums)
    for part, noise in zip(asked.parts, noises, strict=True):
        check_grid(len(part), noise)
    known = _known(logs, asked, policy, noises)
    # Everyone is in one of the sums and pays for it, whatever log the next call brings.
    bill = Charge(event=worst_of(noises), cohort=Cohort(first=0, last=asked.units))
    paid = ledger.charge_all([bill])
    reading = _read(logs, asked, known, noises)
    ledger.settle(paid[0], used=1)
    return asked.told(logs, reading, guarantee)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class _Known:
    """All of the logs that needs no draw: whatever can fail has failed before the charge.

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
class _Asked:
    """What was asked for, checked, and what follows from it and from public facts.

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
    ) -> _Asked:
        one_of("estimator", estimator, ESTIMATORS)
        if largest_weight is not None and least_propensity is not None:
            raise InvalidValue(
                f"largest_weight is {largest_weight} and least_propensity {least_propensity}; "
                "the latter says that no weight is cut: give one of the two"
            )
        if model is not None and not isinstance(model, LinearModel):
            raise InvalidValue(f"model is a {type(model).__name__}; give a LinearModel")
        if model is not None and estimator != "dr":
            raise InvalidValue(f"estimator is {estimator!r} and takes no model; choose dr")
        if estimator == "dr" and model is None and logs.users is not None:
            raise InvalidValue(
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
            units=whole("units", logs.units, low=2 if estimator != "dr" else 2 * _FITTED),
        )

    @property
    def valued(self) -> ValueSum:
        """What is summed for the value."""
        if self.estimator == "replay":
            return MatchedSum(largest=self.largest, complete=self.complete)
        modelled = self.estimator == "dr"
        return MeanSum(largest=self.largest, modelled=modelled, complete=self.complete)

    @property
    def sums(self) -> list[RewardFit | ValueSum]:
        """All that is released."""
        return [self.valued] if self.fit is None else [self.fit, self.valued]

    @property
    def parts(self) -> list[NDArray[np.int64]]:
        """The units of each sum, by their places alone; no unit is in two of them."""
        everyone = np.arange(self.units)
        if self.fit is None:
            return [everyone]
        return [everyone[::_FITTED], everyone[everyone % _FITTED > 0]]

    def told(self, logs: Logs, reading: Reading, guarantee: Guarantee) -> OffPolicyValue:
        """In the units of rewards."""
        middle, half = _scale(logs)
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
def _known(logs: Logs, asked: _Asked, policy: FixedPolicy, noises: Sequence[ExactNoise]) -> _Known:
    """Everything up to the first draw."""
    chances = chances_of(policy, logs)
    middle, half = _scale(logs)
    # Division rounds: over a range of a few floats the quotient can be above 1.
    rewards = np.clip((logs.rewards - middle) / half, -1.0, 1.0)
    guesses, steps = np.zeros_like(chances), None
    if asked.model is not None:
        guesses = _cut((asked.model.scores(logs) - middle) / half)
    if asked.fit is not None:
        part = asked.parts[0]
        fitted = asked.fit.rows(logs.contexts[part], logs.actions[part], rewards[part])
        steps = _steps(fitted, noises[0])
    return _Known(chances=chances, rewards=rewards, guesses=guesses, steps=steps)


@np.errstate(all="ignore")
def _read(logs: Logs, asked: _Asked, known: _Known, noises: Sequence[ExactNoise]) -> Reading:
    """Draw each sum once, the model's first, and read the value."""
    chances, guesses, played = known.chances, known.guesses, (np.arange(logs.rows), logs.actions)
    if asked.fit is not None and known.steps is not None:
        parameters = asked.fit.fitted(_drawn(known.steps, noises[0]), noises[0].std)
        guesses = _cut(asked.fit.guesses(parameters, logs.contexts))
    weights = chances[played] / np.maximum(logs.propensities, asked.least)
    weights = np.minimum(weights, asked.largest)
    expected = (chances * guesses).sum(axis=1)
    numbers = asked.valued.rows(weights, known.rewards, guesses[played], expected)
    pure = isinstance(noises[-1], ExactLaplace)
    units = asked.valued.encode(_by_unit(logs, numbers)[asked.parts[-1]], pure=pure)
    noise = Noise(std=noises[-1].std / len(units), pure=pure, units=len(units))
    means = _drawn(_steps(units, noises[-1]), noises[-1]) / len(units)
    return asked.valued.read(means, noise, miss=(1 - asked.level) / 2)


def _cut(guesses: Floats) -> Floats:
    return np.clip(np.nan_to_num(guesses), -SUREST_GUESS, SUREST_GUESS)


def _steps(units: Floats, noise: ExactNoise) -> NDArray[np.int64]:
    """The sum of the units' statistics, each rounded to the noise's grid, in whole steps of it."""
    steps = np.rint(np.ldexp(units, noise.grid_bits)).astype(np.int64)
    total: NDArray[np.int64] = steps.sum(axis=0)
    return total


def _drawn(steps: NDArray[np.int64], noise: ExactNoise) -> Floats:
    """A sum in whole steps of the noise's grid, with noise."""
    return noise.add(steps.astype(np.float64) * noise.grid)


def _by_unit(logs: Logs, rows: Floats) -> Floats:
    """The mean of every unit's rows, of a user's first `MOST_OF_A_USER` ones."""
    if logs.users is None:
        return rows
    order = np.argsort(logs.users, kind="stable")
    users, counts = logs.users[order], np.bincount(logs.users)
    earlier = np.arange(len(order)) - (np.cumsum(counts) - counts)[users]
    kept, users = order[earlier < MOST_OF_A_USER], users[earlier < MOST_OF_A_USER]
    sums = np.stack([np.bincount(users, column) for column in rows[kept].T], axis=1)
    means: Floats = sums / np.minimum(counts, MOST_OF_A_USER)[:, None]
    return means


def _agreeing(ledger: Ledger, unit: str) -> Ledger:
    """Refuse a budget that promises something else."""
    budget = ledger.budget
    said = "say" if unit == "user" else "do not say"
    if budget.trust is not Trust.CENTRAL or budget.unit != unit:
        raise InvalidValue(
            f"the ledger's budget is for one {budget.unit} under {budget.trust} trust; here it "
            f"must be for one {unit} under central trust, as these logs {said} who came: give "
            "another ledger"
        )
    return ledger


def _scale(logs: Logs) -> tuple[float, float]:
    """The middle of the rewards' range and half its width."""
    return (logs.low + logs.high) / 2, (logs.high - logs.low) / 2
