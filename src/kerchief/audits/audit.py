"""An audit: two populations, many runs, the best test, and what it proves."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

import numpy as np

from kerchief.audits.bounds import guess_lower
from kerchief.audits.distinguish import train
from kerchief.audits.neighbours import Floats
from kerchief.core.errors import InvalidValue
from kerchief.core.validate import between, whole
from kerchief.privacy.guarantee import Guarantee

__all__ = ["Audit", "check_runs", "look"]

# The coins that choose runs come up so uneven with a chance of 2e-9, and are then tossed again.
_UNEVEN = 6.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Audit:
    """What an audit found.

    ε is at least `epsilon_lower`, but for a chance of `failure`. `counts` is what that rests on:
    runs or canaries, guesses, and right ones. `curve` has the rates of false alarms and of hits
    over all thresholds, on runs that trained nothing; None where a single run was audited.
    """

    name: str
    claim: Guarantee
    epsilon_lower: float
    failure: float
    counts: Mapping[str, int]
    curve: tuple[Floats, Floats] | None = None

    @property
    def kept(self) -> bool:
        """Whether nothing speaks against the claim."""
        return self.epsilon_lower <= self.claim.epsilon

    def to_dict(self) -> dict[str, object]:
        """The audit as JSON, without its curve."""
        return {
            "name": self.name,
            "trust": str(self.claim.trust),
            "epsilon_claimed": self.claim.epsilon,
            "delta": self.claim.delta,
            "epsilon_lower": self.epsilon_lower,
            "failure": self.failure,
            **self.counts,
            "kept": self.kept,
        }


def check_runs(runs: int) -> int:
    """How often each population is played: enough to train a test and to count."""
    return whole("runs", runs, low=200, high=10**7)


def look(
    *,
    name: str,
    claim: Guarantee,
    views: tuple[Floats, Floats],
    seed: int = 0,
    failure: float = 0.05,
) -> Audit:
    """Audit whatever was seen of two neighbouring populations, against a claim.

    Half of the runs of each population train the test, and the other half are told apart by it: so
    the bound holds whatever the test, and a poor test makes it weak, never wrong.

    Args:
        name: how to call it.
        claim: what is claimed of it.
        views: what an onlooker sees of either population: by run, place and number.
        seed: of the coins that choose among the runs that are told apart.
        failure: the chance that the bound is wrong.
    """
    one, other = views
    half = check_runs(len(one)) // 2
    if one.shape != other.shape:
        raise InvalidValue(f"views have shapes {one.shape} and {other.shape}; they must be equal")
    between("failure", failure, 0.0, 1.0)
    test = train(one[:half], other[:half])
    one, other = one[half : 2 * half], other[half : 2 * half]
    trials, first = _chosen(half, seed)
    hits, misses = test.says(one[:first])
    alarms, rejections = test.says(other[: trials - first])
    right, wrong = hits + rejections, misses + alarms
    return Audit(
        name=name,
        claim=claim,
        epsilon_lower=guess_lower(
            right=right, wrong=wrong, trials=trials, delta=claim.delta, failure=failure
        ),
        failure=failure,
        counts={"replicates": len(views[0]), "guesses": right + wrong, "right": right},
        curve=_curve(test.scores(one), test.scores(other)),
    )


def _chosen(half: int, seed: int) -> tuple[int, int]:
    """How many runs are told apart, and how many of them a fair coin each gives the first.

    A few fewer than there are, so that neither population runs out.
    """
    trials = 2 * half - math.ceil(_UNEVEN * math.sqrt(2 * half))
    rng, first = np.random.default_rng([seed, half]), trials
    while max(first, trials - first) > half:
        first = int(rng.binomial(trials, 0.5))
    return trials, first


def _curve(one: Floats, other: Floats) -> tuple[Floats, Floats]:
    """Rates of false alarms and of hits, over all thresholds."""
    thresholds = np.quantile(np.concatenate([one, other]), np.linspace(0, 1, 201))
    alarms, hits = (
        1 - np.searchsorted(np.sort(scores), thresholds, side="right") / len(scores)
        for scores in (other, one)
    )
    return alarms, hits
