"""The field: device, middle and learner, each of which may run by itself.

`Bandit` runs all three in one process. `arrange` and `round` serve simulations too.
"""

from kerchief.roles.bandit import Bandit
from kerchief.roles.deployment import Deployment, deploy, deployed
from kerchief.roles.learner import Learner
from kerchief.roles.middle import Middle
from kerchief.roles.population import PopulationLearner
from kerchief.roles.questions import Asker
from kerchief_device import Budget, Decision, Device

__all__ = [
    "Asker",
    "Bandit",
    "Budget",
    "Decision",
    "Deployment",
    "Device",
    "Learner",
    "Middle",
    "PopulationLearner",
    "deploy",
    "deployed",
]
