"""The field: device, aggregator and learner, each of which may run by itself.

`Bandit` runs all three in one process. `build_protected` and `round` serve simulations too, which
need none of the others: each name below is fetched when it is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kerchief_protocol.lazy import fetching

# For type checkers and editors; `_HOMES` says the same to Python.
if TYPE_CHECKING:
    from kerchief.deployment.admission import Admission as Admission
    from kerchief.deployment.admission import LimitPerClient as LimitPerClient
    from kerchief.deployment.aggregator import Aggregator as Aggregator
    from kerchief.deployment.bandit import Bandit as Bandit
    from kerchief.deployment.deployment import Deployment as Deployment
    from kerchief.deployment.deployment import deploy as deploy
    from kerchief.deployment.deployment import read_deployment as read_deployment
    from kerchief.deployment.learner import Learner as Learner
    from kerchief.deployment.population import PopulationLearner as PopulationLearner
    from kerchief.deployment.questions import Asker as Asker
    from kerchief_device import Budget as Budget
    from kerchief_device import Decision as Decision
    from kerchief_device import Device as Device

_HOMES = {
    "Admission": "kerchief.deployment.admission",
    "LimitPerClient": "kerchief.deployment.admission",
    "Asker": "kerchief.deployment.questions",
    "Bandit": "kerchief.deployment.bandit",
    "Budget": "kerchief_device",
    "Decision": "kerchief_device",
    "Deployment": "kerchief.deployment.deployment",
    "Device": "kerchief_device",
    "Learner": "kerchief.deployment.learner",
    "Aggregator": "kerchief.deployment.aggregator",
    "PopulationLearner": "kerchief.deployment.population",
    "deploy": "kerchief.deployment.deployment",
    "read_deployment": "kerchief.deployment.deployment",
}

__all__ = list(_HOMES)

if not TYPE_CHECKING:
    __getattr__ = fetching("kerchief.deployment", _HOMES)
