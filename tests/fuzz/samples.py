"""Valid arguments by the name of the parameter: a new constructor that uses our words needs none.

A target takes its valid arguments from `OWN` if it has some there, else from `SAMPLES`. A parameter
that neither knows makes `test_every_public_constructor_is_a_target` fail and name it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from kerchief.core.convex import Ball, Box, Simplex
from kerchief.core.losses import GLMLoss
from kerchief.core.minimizers import GradientDescent, PreconditionedSteps
from kerchief.core.pairs import Pair
from kerchief.core.problems import ContextFreeProblem, PopulationProblem, Problem
from kerchief.core.queries import BoundedScalar, GramMatrix, RegressionMoments
from kerchief.core.report_distribution import ReportDistribution
from kerchief.core.residual_moments import ResidualMoments
from kerchief.data import Logs, OneArm, UniformPlay, from_supervised, to_feedback
from kerchief.data.features import Ranged
from kerchief.environments import DisjointModels, make_environment
from kerchief.environments.contexts import CONTEXTS
from kerchief.mechanisms.blt import BLT
from kerchief.mechanisms.exact_gaussian import ExactGaussian
from kerchief.mechanisms.gaussian import Gaussian as NormalNoise
from kerchief.mechanisms.tree import Tree as BinaryTree
from kerchief.policies.linear.online import descent
from kerchief.privacy import (
    Cohort,
    Composed,
    DiscreteGaussian,
    Event,
    Gaussian,
    Guarantee,
    Laplace,
    MemoryLedger,
    Nothing,
    RandomizedResponse,
    Receipt,
    Repeated,
    Trust,
    Zcdp,
)
from kerchief.privacy.randomized_bits import RandomizedBits
from kerchief.privacy.receipts import write_ledger
from kerchief.privatizers.schedule import At, Every
from kerchief.privatizers.sums import CohortSums
from kerchief_protocol.model import Numbers

__all__ = ["CROWD", "FACTS", "GAME", "LOGS", "OWN", "PROBLEMS", "SAMPLES"]

FACTS: Mapping[str, tuple[Any, ...]] = {
    "dim": (2, 1, 3),
    "arms": (3, 1, 2),
    "norm": (1.0, 2.0),
    "radius": (1.0, 0.5),
    "low": (0.0, -1.0),
    "high": (1.0, 2.0),
    "horizon": (60, 100),
    "constant": (0.0, 0.5),
    "link": ("linear", "logistic", "probit", "poisson"),
    "own": (0,),
}
CROWD: Mapping[str, tuple[Any, ...]] = {**FACTS, "clients": (50,), "spread": (0.1, 0.0)}
GAME: Mapping[str, tuple[Any, ...]] = {
    "horizon": (60,),
    "low": (0.0,),
    "high": (1.0,),
    "smoothness": (1.0, 0.0),
    "convexity": (1.0, 0.0),
}

_PROBLEM = Problem(dim=2, arms=3, norm=1.0, radius=1.0, low=0.0, high=1.0, horizon=60)
_PEOPLE = from_supervised({"age": [20, 70, 35]}, ["a", "b", "a"], features="age=18:90")
_APART = Problem(
    dim=3, arms=3, norm=1.0, radius=1.0, low=0.0, high=1.0, horizon=60, constant=0.5, own=3
)
_LOGISTIC = Problem(
    dim=2, arms=3, norm=1.0, radius=1.0, low=0.0, high=1.0, horizon=60, link="logistic"
)
_CROWD = PopulationProblem(
    dim=2,
    arms=5,
    norm=1.0,
    radius=1.0,
    low=-1.0,
    high=1.0,
    horizon=100,
    clients=50,
    spread=0.1,
)
_ARMS = ContextFreeProblem(horizon=60, low=0.0, high=1.0, arms=3)
_SMOOTH = ContextFreeProblem(
    horizon=60,
    low=0.0,
    high=2.0,
    domain=Ball(dim=2),
    lipschitz=2.0,
    smoothness=1.0,
    convexity=1.0,
)
_LINE = dataclasses.replace(_SMOOTH, domain=Ball(dim=1))
_CLEAR = ReportDistribution.clear(low=0.0, high=1.0)
_STEPS = PreconditionedSteps(steps=2)
_SUMS = (
    RegressionMoments(dim=2, norm=1.0, low=0.0, high=1.0),
    GramMatrix(dim=2, norm=1.0),
    Pair(dim=2, norm=1.0, low=0.0, high=1.0),
)
_SURPRISES = ResidualMoments(dim=2, norm=1.0, most=1.0)
_LOSS = GLMLoss(
    link="logistic", dim=2, norm=1.0, low=0.0, high=1.0, clip=0.5, fits=3, minimizer=_STEPS
)
_EVENTS: tuple[Event, ...] = (
    Gaussian(noise_multiplier=4.0),
    Laplace(noise_multiplier=4.0),
    RandomizedResponse(epsilon=0.25),
    Zcdp(rho=0.01),
    Nothing(),
    DiscreteGaussian(sensitivity=10.0, scale=64, dimension=2),
    Repeated(event=Gaussian(noise_multiplier=8.0), count=2),
    Composed(events=(Zcdp(rho=0.01), Laplace(noise_multiplier=9.0))),
)
_PROMISE = Guarantee(epsilon=1.0, delta=1e-5, trust=Trust.LOCAL)
_RECEIPTS = tuple(
    Receipt(number=i, event=event, cohort=Cohort(first=0, last=9), capacity=2)
    for i, event in enumerate(_EVENTS[:3])
)
_ALL = tuple(
    Receipt(number=i, event=event, cohort=Cohort(first=i, last=9 + i), capacity=2, used=1)
    for i, event in enumerate(_EVENTS)
)
_WRITTEN = (write_ledger(_PROMISE, _RECEIPTS), write_ledger(_PROMISE, _ALL))
_REPORTS = CohortSums(
    query=BoundedScalar(low=0.0, high=1.0),
    schedule=Every(),
    device=NormalNoise.of(noise_multiplier=2.0, sensitivity=1.0),
    aggregator=None,
)
_WORDS = {
    "contexts": tuple(CONTEXTS),
    "continual": ("best", "tree", "doubling"),
    "shuffling": ("best", "theorem"),
    "randomizer": ("best", "gaussian", "laplace", "one-bit"),
    "curator": ("best", "gaussian", "laplace"),
}

LOGS = Logs(
    contexts=np.array([[0.5, 0.1], [-0.5, 0.2], [0.1, 0.9]]),
    actions=np.array([0, 1, 1]),
    rewards=np.array([1.0, 0.0, 1.0]),
    propensities=np.array([0.5, 0.25, 0.75]),
    arms=2,
    low=0.0,
    high=1.0,
    norm=1.1,
)
_OF_TABLES: Mapping[str, tuple[Any, ...]] = {
    "source": (
        {
            "action": [0, 1, 1],
            "reward": [1, 0, 1],
            "propensity": [0.5, 0.5, 1],
            "age": [20, 70, 35],
        },
        "nowhere.csv",
    ),
    "reward_range": ((0.0, 1.0),),
    "action": ("action", "action=0|1"),
    "reward": ("reward",),
    "propensity": ("propensity", 0.5),
    "features": ("age=18:90", {"age": (18, 90)}),
    "norm": (None,),
    "intercept": (None, 0.5),
    "arms": (2, None),
    "arm_features": (None,),
    "arm_norm": (None,),
    "user": (None, "age"),
    "least_propensity": (None, 0.5),
    "sha256": (None,),
}

_BOARD: Mapping[str, tuple[Any, ...]] = {
    "size": ("quick", "usual"),
    "worlds": (("chance",),),
    "policies": (("ucb",), ("tsallis",)),
    "trusts": (("local",),),
}
SAMPLES: Mapping[str, tuple[Any, ...]] = {
    **CROWD,
    **_WORDS,
    "adjacency": ("replace",),
    "apart": (True, False),
    "anytime": (True, False),
    "away": (None, 0.25),
    "balance": (1.0, 0.05),
    "pooled": (True, False),
    "public": (None, np.array([[0.6, 0.5], [0.3, 0.5]])),
    "batches": ((), (20, 60)),
    "strength": (1.0, 0.5),
    "told": (None, "linear"),
    "project": (None,),
    "readings": ((), (20, 60)),
    "bits": (1, 8),
    "bound": (1.0,),
    "budget": (_PROMISE, Guarantee(epsilon=math.inf, delta=0.0, trust=Trust.NONE)),
    "buffers": (2, 4),
    "capacity": (1, 3),
    "bill": (0, 1),
    "cover": (0.5, 0.3),
    "center": (0.0, 0.5),
    "channel": (_CLEAR,),
    "checked": (_PROMISE,),
    "clip": (0.5, 1.0),
    "cohort": (Cohort(first=0, last=9),),
    "convexity": (0.0, 1.0),
    "count": (1, 2, 0),
    "data": tuple(event.to_dict() for event in _EVENTS),
    "delta": (1e-5, 0.01),
    "dimension": (2, 1, 5),
    "direction": (np.array([0.6, 0.8]),),
    "diversity": (None, 0.5),
    "domain": (Ball(dim=2), Box(dim=2), Simplex(dim=3)),
    "ends": ((20, 60), (1,)),
    "epsilon": (1.0, 0.1, 8.0),
    "estimator": ("reduced-variance", "importance-weighted"),
    "event": _EVENTS,
    "events": (_EVENTS[:2], (_EVENTS[0],), _EVENTS[3:5]),
    "exploration": (None, 0.5),
    "excluded": ((0, 1), (1, 100)),
    "explore": (True, False),
    "failure": (0.05,),
    "fewest": (None, 1),
    "factor": (BinaryTree(horizon=20), BLT(horizon=20, buffers=2)),
    "first": (0, 2),
    "fits": (3,),
    "fixed": (None, 7),
    "gap": (0.2, 0.0),
    "guarantee": (_PROMISE,),
    "grid_bits": (10,),
    "groups": (1, 2),
    "growth": (1.6, 2.0),
    "half": (1.0,),
    "honest": ((1, 1), (4, 5)),
    "importance": (1.0, 0.5),
    "keep": (0.5,),
    "last": (9, 10),
    "labels": (np.array([0, 1, 0]),),
    "learner": (descent(1.0),),
    "least": (None, 0.5),
    "lever": (0.5, 0.0),
    "ledger": (MemoryLedger(_PROMISE),),
    "limit": (3,),
    "lipschitz": (2.0,),
    "local": (math.inf, 2.0),
    "mean": (0.5,),
    "mechanism": (None, "best", "gaussian"),
    "minimizer": (_STEPS, GradientDescent(steps=3, radius=1.0, clip=1.0)),
    "mode": ("tuned", "theory"),
    "noise": (0.5,),
    "noise_multiplier": (4.0, 1.0),
    "number": (0, 3),
    "offset": (0.0, 0.5),
    "once": (True, False),
    "patience": (None, 0.01),
    "period": (1000, 2),
    "policies": (("linucb",), ("linucb", "greedy")),
    "power": (0.25, 0.125),
    "printed": (True, False),
    "privatizer": (_REPORTS,),
    "problem": (_PROBLEM, _LOGISTIC),
    "promise": (_PROMISE,),
    "query": _SUMS,
    "receipts": (_RECEIPTS, _ALL),
    "replicates": (1, 4),
    "reports": (100, 1000),
    "reward": (0.5, 1.0),
    "reward_range": (2.0, 0.0),
    "rho": (0.5, 0.0, 0.02),
    "rounds": (None, 100),
    "rule": ("exact", "paper"),
    "scale": (64, 1024),
    "schedule": (At(ends=(30, 60)),),
    "score": (1.0,),
    "seed": (0, 2**32 - 1),
    "seeds": ((ExactGaussian(grid_bits=10, scale=4096, sensitivity=1.0, dimension=2),),),
    "sensitivity": (1.0, 2.0),
    "diameter": (1.0, 2.0),
    "size": (2, 1),
    "slope": (0.5,),
    "smoothness": (0.0, 1.0),
    "step": (0.25,),
    "steps": (2,),
    "stride": (0.5,),
    "switching": (True, False),
    "tail": (1e-9,),
    "taxicab": (2.0,),
    "swing": (0.5, 0.0),
    "threshold": (None, 0.5),
    "ticks": (5,),
    "trust": ("local", "none", "shuffle", "joint", "central"),
    "trusts": (("local", "central"), ("none",)),
    "turn": (10,),
    "unit": ("user",),
    "used": (None, 0, 1),
    "users": (100, 1),
    "visits": (1, 3),
    "weight": (0.2, 1.0),
    "weighted": (True, False),
    "weights": ((1.0, 2.0), (1.0,)),
    "width": (None, 0.5),
    "written": _WRITTEN,
}

PROBLEMS: Mapping[str, tuple[Any, ...]] = {
    "policies.context_free": (_ARMS, _SMOOTH),
    "policies.phased": (_CROWD,),
}
"""The public facts that the targets of a room take, where they are not those of `SAMPLES`."""

OWN: Mapping[str, Mapping[str, tuple[Any, ...]]] = {
    "core.context_free:ContextFreeProblem": {"arms": (3,), "domain": (None,), "lipschitz": (0.0,)},
    "core.context_free:ContextFreeProblem on a domain": {"arms": (0,), "lipschitz": (2.0,)},
    "core.convex:Simplex": {"dim": (3, 2)},
    "environments.projected:Projected.of": {
        "world": (make_environment(dim=4), DisjointModels.of(dim=4)),
        "onto": (2, 3),
    },
    "protocol.model:Model": {
        "task": (bytes(32),),
        "version": (0, 3),
        "release": (0, 3),
        "round": (0, 500),
        "length": (1, 9),
        "head": (bytes(32),),
        "arrays": ({}, {"width": Numbers.of(np.zeros(()))}),
    },
    "protocol.model:Status": {
        "task": (bytes(32),),
        "state": ("running", "closed"),
        "epoch": (0, 2),
        "label": (0, 7),
    },
    "protocol.projection:Projection": {
        "dim": (5, 3),
        "onto": (2,),
        "constant": (False, True),
    },
    "core.batches:grow_batches": {"first": (10,), "horizon": (100,)},
    "core.batches:span_horizon": {"first": (10,), "horizon": (100,)},
    "core.links:get_link": {"name": FACTS["link"]},
    "core.validate:at_least": {"name": ("x",), "value": (1.0,), "low": (0.0,)},
    "core.validate:between": {
        "name": ("x",),
        "value": (0.5,),
        "low": (0.0,),
        "high": (1.0,),
        "closed": (True, False),
    },
    "core.validate:one_of": {"name": ("x",), "value": ("a", "b"), "allowed": (("a", "b"),)},
    "core.validate:increasing": {"name": ("x",), "values": ((1, 3), ())},
    "core.validate:or_default": {"name": ("x",), "value": (None, 1.0), "default": (0.5,)},
    "core.validate:real_array": {
        "name": ("x",),
        "values": (np.eye(2), np.array(0.5)),
        "kind": ("an array",),
    },
    "core.validate:positive": {"name": ("x",), "value": (1.0,), "infinite": (True, False)},
    "core.validate:whole": {"name": ("x",), "value": (3,), "low": (1,), "high": (None, 9)},
    "core.disjoint_moments:DisjointMoments": {"dim": (3, 2), "offset": (0.0, 0.5)},
    "core.disjoint_moments:DisjointMoments.of": {"problem": (_APART,)},
    "core.problems:Problem": {"own": (0, 1)},
    "core.queries:GramMatrix": {"dim": (2, 1, 3)},
    "data.declaration:Declaration": {
        "features": ((Ranged(name="age", low=0.0, high=1.0),),),
        "intercept": (0.5, 0.0),
    },
    "data.declaration:Declaration.of": {
        "features": ("age=18:90,plan=a|b", {"age": (18, 90)}, ["age=18:90"]),
        "norm": (None,),
        "intercept": (0.5, 0.0),
    },
    "data.features:Category": {"name": ("plan",), "values": (("a", "b"), ("a", "b", "other"))},
    "data.features:Ranged": {"name": ("age",)},
    "data.features:Vector": {"names": (("e0", "e1"),)},
    "data.fixed_policies:LinearModel": {
        "by_arm": (np.eye(2), None),
        "shared": (None,),
        "intercepts": ([0.0, 1.0],),
    },
    "data.fixed_policies:OneArm": {"arm": (0, 1)},
    "data.logs:Logs": {name: (getattr(LOGS, name),) for name in vars(LOGS)},
    "data.off_policy:off_policy_value": {
        "logs": (LOGS,),
        "policy": (OneArm(arm=0), UniformPlay()),
        "estimator": ("ips", "replay"),
        "delta": (1e-5, 0.0),
        "mechanism": ("best", "laplace"),
        "ledger": (None,),
        "largest_weight": (None, 5.0),
        "least_propensity": (None,),
        "model": (None,),
        "level": (0.95, 0.5),
    },
    "data.open_bandit:from_feedback": {"feedback": (to_feedback(LOGS),)},
    "data.replay:Replay.of": {
        "logs": (LOGS,),
        "norm": (None, 1.1),
        "arm_norm": (None,),
        "least": (None, 0.3),
        "counted": (None, "the lines"),
        "origin": (None,),
    },
    "data.replaying:from_logs": _OF_TABLES,
    "data.reward_fits:RewardFit.of": {"logs": (LOGS,)},
    "data.sources:read_logs": _OF_TABLES,
    "data.supervised:from_supervised": {
        "X": (
            {
                **{"age": [20, 70, 35], "price_a": [1, 2, 3], "price_b": [2, 2, 2]},
                **{"price_0": [1, 2, 3], "price_1": [3, 2, 1]},
            },
        ),
        "y": (["a", "b", "a"], np.array([0, 1, 1])),
        "features": ("age=18:90", {"age": (18, 90)}, ()),
        "rewards": ((),),
        "reward_range": (None,),
        "arm_features": ("price_{arm}=0:9",),
        "arm_table": (None,),
        "norm": (None,),
        "intercept": (0.5, 0.0),
        "orders": ("permutation", "bootstrap"),
        "sha256": (None,),
    },
    "data.tables:read_table": {
        "source": ({"age": [20, 70]}, np.eye(2), [[1.0, 2.0]], "nowhere.csv"),
        "name": (None, "people"),
    },
    "papers.leaderboard:Leaderboard": _BOARD,
    "papers.leaderboard:Leaderboard.of": _BOARD,
    "reports.frames:Results": {"rows": ((),), "table": ((), Path("results.parquet"))},
    "reports.frames:read_results": {"source": ((), "nowhere", Path("nowhere"))},
    "environments.context_free:Alternating.of": {"arms": (10, 2)},
    "environments.context_free:ChanceArms.of": {"arms": (10, 2)},
    "environments.context_free:CountedArms.of": {"arms": (10, 2)},
    "environments.context_free:Switching.of": {"arms": (10, 2)},
    "environments.disjoint:DisjointModels.of": {
        "dim": (3, 2),
        "weakest": (None, 0.5),
        "base": (0.0, 0.5),
        "noise": ("bernoulli", "binomial", "bounded", "gaussian"),
    },
    "environments.population:Population.of": {"radius": (1.0, 0.5)},
    "environments.ranges:ranged": {
        "features": (np.array([[20.0], [80.0]]), np.array([20.0])),
        "low": ([0.0],),
        "high": ([100.0],),
    },
    "environments.recorded:Recorded.of": {"arms": (np.full((2, 3, 2), 0.5),)},
    "environments.recorded:table_two": {"horizon": (5,), "dim": (3, 2), "arms": (4,)},
    "environments.supervised:Supervised.of": {
        "users": (np.array([[0.6, 0.5], [0.3, 0.5], [-0.6, 0.5]]), None),
        "offers": (np.array([[0.1, 0.5], [0.2, 0.5]]), np.full((3, 2, 2), 0.5)),
        "labels": ([0, 1, 1],),
        "rewards": (None,),
        "arms": (2, None),
        "norm": (2.0,),
        "constant": (0.5, 0.0),
        "low": (0.0,),
        "high": (1.0,),
        "orders": ("permutation", "bootstrap"),
        "origin": (None,),
    },
    "environments.worlds:GLMEnvironment.of": {
        "contexts": tuple(CONTEXTS[name](dim=2, count=3) for name in CONTEXTS),
        "noise": ("bernoulli", "binomial", "bounded", "gaussian"),
    },
    "environments.worlds:make_environment": {
        "noise": ("bernoulli", "binomial", "bounded", "gaussian")
    },
    "comparison.comparison:Comparison.on": {"data": (_PEOPLE,), "horizon": (None, 2)},
    "comparison.comparison:Comparison": {
        "data": (None,),
        "contexts": (("ball",), ("fixed", "intercept")),
        "noise": ("bernoulli", "gaussian"),
        "epsilons": ((1.0,), (0.5, 2.0)),
        "dim": (2, 3),
        "arms": (3,),
        "env": ("linear", None, "logistic"),
        "options": ((), (("fewest", 1),)),
        "numbers": ((), (("exploration", 0.5),)),
        "continual": ("best", "tree"),
        "shuffling": ("best",),
        "randomizer": ("best", "gaussian"),
        "curator": ("best",),
        "trusts": (("local",), ("none",), ("central", "local"), ("joint", "local")),
    },
    "planning.planning:Planning": {
        "data": (None,),
        "users": (1000, 50),
        "env": ("own", "linear"),
        "dim": (3, None),
        "arms": (3, None),
        "reward": ("bernoulli", "gaussian"),
        "strength": (None,),
        "options": ((), (("radius", 0.4),)),
        "policy": ("best",),
        "trusts": (("any",), ("local", "joint")),
    },
    "comparison.players:player": {"policy": ("linucb", "tsallis")},
    "planning.plan_config:load_plan": {"path": ("nowhere.toml", "pyproject.toml")},
    "mechanisms.binomial:Binomial.of": {"users": (1000,)},
    "mechanisms.binomial:Grid.of": {"users": (1000,)},
    "mechanisms.doubling:Doubling": {"first": (16, 1024)},
    "mechanisms.one_bit:ExactOneBit": {"bias": (2**20,)},
    "mechanisms.privunit:PrivUnitG.of": {"center": (0.0, np.array([0.5, 0.0])), "size": (2,)},
    "mechanisms.shortlist:Shortlist.of": {"center": (0.0, np.array([0.5, 0.0])), "size": (2,)},
    "mechanisms.shortlist:ExactShortlist": {
        "units": (2**30,),
        "center": ((0.0, 0.0),),
        "candidates": (64,),
        "listed": (8,),
    },
    "core.residual_moments:ResidualMoments": {"most": (1.0, 0.5)},
    "mechanisms.compass:Compass.of": {"query": (_SURPRISES,)},
    "mechanisms.compass:ExactCompass": {
        "units": (2**30,),
        "candidates": (64,),
        "listed": (8,),
        "lean": (0.3,),
        "query": (_SURPRISES,),
    },
    "mechanisms.randomized_bits:ExactResponse": {"users": (1000,), "bits": (8,)},
    "mechanisms.randomized_bits:Response.of": {
        "event": (
            RandomizedBits(users=1000, bits=8, keep=0.5, sensitivity=1.0, dimension=2, tail=1e-9),
        )
    },
    "privacy.randomized_bits:RandomizedBits": {"users": (1000,), "bits": (8, 1)},
    "policies.disjoint_models:DisjointSampling.of": {"problem": (_APART,)},
    "policies.glm.local_descent:LocalDescent.of": {"learner": ("descent", "newton")},
    "policies.glm.greedy_descent:GreedyDescent.of": {"problem": (_LOGISTIC,)},
    "policies.linear.pairs:ReleasedTotal.nothing": {"query": (_SUMS[2],)},
    "policies.phased.elimination:Elimination.of": {"clients": (0, 10)},
    "policies.context_free.k_point:KPoint.of": {"problem": (_SMOOTH,), "questions": (None, 2)},
    "policies.context_free.line_search:LineSearch.of": {"problem": (_LINE,)},
    "policies.context_free.one_point:OnePoint.curved": {"problem": (_SMOOTH,)},
    "policies.context_free.barrier:Barrier.smooth": {"problem": (_SMOOTH,)},
    "policies.context_free.barrier:Barrier.strong": {"problem": (_SMOOTH,)},
    "privacy.discrete_slack:slack": {"event": (_EVENTS[5],), "count": (1, 3)},
    "privacy.guarantee:Guarantee.from_dict": {"data": (_PROMISE.to_dict(),)},
    "privacy.receipts:Receipt.from_dict": {"data": tuple(one.to_dict() for one in _ALL)},
    "privacy.ledger:MemoryLedger.loads": {"text": _WRITTEN},
    "privacy.receipts:read_ledger": {"text": _WRITTEN},
    "privatizers.protect:Protection": {"mechanism": ("best", "gaussian")},
    "privatizers.fits:Fits.of": {"query": (_LOSS,), "noise_multiplier": (None, 4.0)},
    "privatizers.shuffled_fits:ShuffledFits.of": {
        "query": (_LOSS,),
        "noise_multiplier": (None, 4.0),
        "schedule": (None, At(ends=(30, 60))),
    },
    "privatizers.bits:BitSums.of": {"schedule": (At(ends=(300, 600)),), "query": (_SUMS[1],)},
    "privatizers.shuffled:ShuffledSums.by_theorem": {"schedule": (At(ends=(300, 600)),)},
    "simulation.run:check_sizes": {"first_replicate": (0, 5)},
}
