"""Algorithm 2 as it is printed: what `glm@paper` takes over."""

from __future__ import annotations

import numpy as np

from kerchief.core.minimizers import GradientDescent
from kerchief.environments import make_environment
from kerchief.policies import POLICIES
from kerchief.policies.glm.rare_switching import RarelySwitching

PROBLEM = make_environment(link="probit", dim=3, arms=20, radius=2.0).problem(5000)


def test_it_has_the_printed_weight_growth_and_optimizer() -> None:
    policy = POLICIES["glm@paper"].build(PROBLEM, "tuned")
    assert isinstance(policy, RarelySwitching)
    assert policy.shrink == np.exp(-1.0)
    assert (policy.growth, policy.factor, policy.weighing) == ("direction", 2.0, "slope")
    assert policy.disjoint
    assert policy.warm is not None
    assert (policy.loss.fits, policy.warm.fits) == (12, 6)  # d log₂(T)/3, and half of that
    for loss in (policy.loss, policy.warm):
        # Lemma U.4: projected descent in the ball of the parameter, at the gradients' own length.
        assert loss.minimizer == GradientDescent(steps=50, radius=2.0, clip=1.0)
        assert loss.clip == 1.0
