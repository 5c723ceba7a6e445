"""Policies that are named after a paper, or after its author's code, play its kind of noise."""

from __future__ import annotations

from typing import Any

import pytest

from kerchief.core.errors import InvalidValueError
from kerchief.core.problems import Problem
from kerchief.deployment.protected_policy import build_protected
from kerchief.environments import make_environment
from kerchief.environments.registry import ENVIRONMENTS
from kerchief.mechanisms.continual import ContinualNoise
from kerchief.policies import POLICIES, register, resolve_name
from kerchief.policies.linear.linucb import LinUCB
from kerchief.policies.registry import STUDIES
from kerchief.privacy import Guarantee, MemoryLedger, Trust
from kerchief.privatizers import Protection

# What the papers add to reports or totals. Coins behind a shuffler are calibrated by an accountant.
KINDS = {
    ("glm@paper", "joint"): {"curvature": "Tree", "fit": "Gaussian", "warm": "Gaussian"},
    ("glm@author-code", "joint"): {"curvature": "Tree", "fit": "Gaussian"},
    ("glm-batched@paper", "shuffle"): {"curvature": "Binomial", "fit": "Binomial"},
    ("glm-local@paper", "local"): {"blocks": "Gaussian"},
    ("linucb@paper", "local"): {"moments": "Gaussian"},
    ("online-linucb@paper", "local"): {"pair": "Gaussian"},
    ("online-linucb-anytime@paper", "local"): {"pair": "Gaussian"},
    ("combiner@paper", "local"): {"pair": "Gaussian"},
    ("sblb@paper", "shuffle"): {"moments": "Response"},
    ("sblb-fixed@paper", "shuffle"): {"moments": "Response"},
    ("two-point@paper", "local"): {"loss": "Gaussian"},
    ("two-point-strong@paper", "local"): {"loss": "Gaussian"},
    ("dpe@paper", "local"): {"answers": "Gaussian"},
    ("dpe@paper", "shuffle"): {"answers": "Binomial"},
    ("dpe@paper", "central"): {"answers": "Gaussian"},
    ("pe@paper", "local"): {"answers": "Gaussian"},
    ("pe@paper", "shuffle"): {"answers": "Binomial"},
    ("pe@paper", "central"): {"answers": "Gaussian"},
}


def kind_of(noise: Any) -> str:
    return type(noise.factor if isinstance(noise, ContinualNoise) else noise).__name__


def studies() -> list[tuple[str, str]]:
    entries = [(name, entry) for name, entry in POLICIES.items() if "@" in name]
    return [(name, trust) for name, entry in entries for trust in entry.trusts if trust != "none"]


@pytest.mark.parametrize(("name", "trust"), studies())
def test_study_plays_the_papers_kind_of_noise(name: str, trust: str) -> None:
    world: Any = ENVIRONMENTS[POLICIES[name].default_environment or "linear"].make()
    promise = Guarantee(epsilon=1.0, delta=1e-5, trust=Trust(trust))
    protected = build_protected(name, world.problem(2000), Protection(guarantee=promise))
    kinds = {
        query: {kind_of(noise) for noise in privatizer.noises}
        for query, privatizer in protected.privatizers.items()
    }
    assert kinds == {query: {kind} for query, kind in KINDS[name, trust].items()}


def test_study_is_not_offered_for_deployment() -> None:
    assert {name.partition("@")[2] for name in POLICIES} == {"", *STUDIES}
    assert not any(POLICIES[name].deployable for name, _ in studies())
    for own in (0, 2):
        facts = {"dim": 2, "arms": 2, "norm": 1.0, "radius": 1.0, "low": 0.0, "high": 1.0}
        assert "@" not in resolve_name("best", Problem(**facts, horizon=9, own=own))  # type: ignore[arg-type]


def test_study_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(InvalidValueError, match="the word after @ is 'book'; choose one of paper"):
        register("linucb@book", LinUCB, summary="none", source="none")


@pytest.mark.parametrize("name", ["glm@paper", "glm@author-code"])
def test_tree_and_fits_cost_the_whole_promise(name: str) -> None:
    problem = make_environment(link="probit", dim=3, arms=20, radius=2.0).problem(5000)
    promise = Guarantee(epsilon=4.0, delta=0.02, trust=Trust.JOINT)
    ledger = MemoryLedger(promise)
    privatizers = build_protected(name, problem, Protection(guarantee=promise)).privatizers.values()
    ledger.charge_all([charge for privatizer in privatizers for charge in privatizer.charges(5000)])
    assert 0.999 * promise.epsilon < ledger.spent().epsilon <= promise.epsilon


@pytest.mark.parametrize(
    "name",
    [
        *("dpe", "dpe-fixed-u", "glm-batched", "glm-rare", "glm-rare-explore"),
        *("online-linucb", "pe", "sblb"),
    ],
)
def test_repaired_bandits_say_so(name: str) -> None:
    assert "repaired" in POLICIES[name].source
