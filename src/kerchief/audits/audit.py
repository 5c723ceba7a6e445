"""An audit: two populations, many runs, the best test, and what it proves."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from kerchief.audits.bounds import two_sample_lower
from kerchief.audits.distinguish import train
from kerchief.audits.neighbours import neighbours
from kerchief.audits.views import releases
from kerchief.core.contracts import Policy, Problem
from kerchief.core.errors import InvalidValue
from kerchief.core.validate import between, whole
from kerchief.environments.worlds import make_environment
from kerchief.policies import POLICIES
from kerchief.privacy.guarantee import Guarantee, Trust
from kerchief.privatizers.privatizer import Privatizer
from kerchief.privatizers.registry import protect

__all__ = ["HORIZON", "Audit", "audit", "look"]

HORIZON = 64
"""How many users each audited run has: enough for a batch of every bandit here."""

Floats = NDArray[np.float64]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Audit:
    """What an audit found.

    Attributes:
        policy: the bandit's name.
        claim: the guarantee that it is held to.
        epsilon_lower: ε is at least this, but for `failure`.
        failure: the chance that the bound is wrong.
        runs: how often each population was played; half of them trained the test.
        alarms: false alarm rates over all thresholds, on runs that trained nothing.
        hits: the rates of hits that go with them.
    """

    policy: str
    claim: Guarantee
    epsilon_lower: float
    failure: float
    runs: int
    alarms: Floats
    hits: Floats

    @property
    def kept(self) -> bool:
        """Whether nothing speaks against the claim."""
        return self.epsilon_lower <= self.claim.epsilon

    def to_dict(self) -> dict[str, object]:
        """The audit as JSON, without its curve."""
        return {
            "policy": self.policy,
            "trust": str(self.claim.trust),
            "epsilon_claimed": self.claim.epsilon,
            "delta": self.claim.delta,
            "epsilon_lower": self.epsilon_lower,
            "failure": self.failure,
            "replicates": self.runs,
            "kept": self.kept,
        }


def audit(
    name: str,
    *,
    trust: str,
    epsilon: float,
    delta: float = 1e-5,
    runs: int = 20_000,
    seed: int = 0,
    failure: float = 0.05,
) -> Audit:
    """Audit a registered bandit under one trust.

    Args:
        name: the bandit's own name.
        trust: whom users must trust.
        epsilon: ε of the claim.
        delta: δ of the claim.
        runs: how often each population is played.
        seed: of everything random.
        failure: the chance that the bound is wrong.

    Raises:
        KerchiefError: there is no such bandit, or not under this trust, or nothing is claimed.
    """
    entry = POLICIES[name]
    if trust == Trust.NONE or trust not in entry.trusts:
        offered = [word for word in entry.trusts if word != Trust.NONE]
        raise InvalidValue(
            f"trust is {trust!r}; policy {name!r} claims something under "
            f"{', '.join(offered) or 'no trust'}"
        )
    claim = Guarantee(epsilon=epsilon, delta=delta, trust=Trust(trust), rounds=HORIZON)
    home = make_environment(link=entry.home or "linear", dim=2, arms=2)
    facts = home.problem(HORIZON)
    policy = entry.make(facts, "tuned")
    privatizers = protect(policy, claim, horizon=HORIZON)
    return look(
        name=name,
        policy=policy,
        privatizers=privatizers,
        facts=facts,
        claim=claim,
        runs=runs,
        seed=seed,
        failure=failure,
    )


def look(
    *,
    name: str,
    policy: Policy,
    privatizers: Mapping[str, Privatizer],
    facts: Problem,
    claim: Guarantee,
    runs: int = 20_000,
    seed: int = 0,
    failure: float = 0.05,
) -> Audit:
    """Audit any bandit under any protection, against a claim.

    Half of the runs of each population train the test, and the other half are told apart by it: so
    the bound holds whatever the test, and a poor test makes it weak, never wrong.

    Args:
        name: how to call it.
        policy: the bandit.
        privatizers: one a query.
        facts: the public facts that the bandit was built from; at most as many users take part.
        claim: what is claimed of it.
        runs: how often each population is played.
        seed: of everything random.
        failure: the chance that the bound is wrong.
    """
    half = whole("runs", runs, low=100, high=10**7) // 2
    between("failure", failure, 0.0, 1.0)
    model = policy.publish(policy.init({n: p.outlook for n, p in privatizers.items()}))
    one, other = (
        releases(
            policy=policy,
            privatizers=privatizers,
            population=population,
            runs=2 * half,
            seed=seed + place,
        )
        for place, population in enumerate(neighbours(policy, facts, model))
    )
    test = train(one[:half], other[:half], delta=claim.delta)
    said = test.says_first(one[half:]), test.says_first(other[half:])
    lower = two_sample_lower(
        hits=said[0], alarms=said[1], trials=half, delta=claim.delta, failure=failure
    )
    hits, alarms = np.sort(test.scores(one[half:])), np.sort(test.scores(other[half:]))
    thresholds = np.quantile(np.concatenate([hits, alarms]), np.linspace(0, 1, 201))
    return Audit(
        policy=name,
        claim=claim,
        epsilon_lower=lower,
        failure=failure,
        runs=2 * half,
        alarms=1 - np.searchsorted(alarms, thresholds, side="right") / half,
        hits=1 - np.searchsorted(hits, thresholds, side="right") / half,
    )
