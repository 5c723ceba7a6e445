"""The field: device, aggregator and learner, each of which may run by itself.

`Bandit` runs all three in one process. `build_protected` and `round` serve simulations too, which
need none of the others: each name below is fetched when it is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kerchief_wire.lazy import fetching

# For type checkers and editors; `_HOMES` says the same to Python.
if TYPE_CHECKING:
    from kerchief.roles.admission import Admission as Admission
    from kerchief.roles.admission import LimitPerClient as LimitPerClient
    from kerchief.roles.aggregator import Aggregator as Aggregator
    from kerchief.roles.bandit import Bandit as Bandit
    from kerchief.roles.deployment import Deployment as Deployment
    from kerchief.roles.deployment import deploy as deploy
    from kerchief.roles.deployment import deployed as deployed
    from kerchief.roles.learner import Learner as Learner
    from kerchief.roles.population import PopulationLearner as PopulationLearner
    from kerchief.roles.questions import Asker as Asker
    from kerchief_device import Budget as Budget
    from kerchief_device import Decision as Decision
    from kerchief_device import Device as Device

_HOMES = {
    "Admission": "kerchief.roles.admission",
    "LimitPerClient": "kerchief.roles.admission",
    "Asker": "kerchief.roles.questions",
    "Bandit": "kerchief.roles.bandit",
    "Budget": "kerchief_device",
    "Decision": "kerchief_device",
    "Deployment": "kerchief.roles.deployment",
    "Device": "kerchief_device",
    "Learner": "kerchief.roles.learner",
    "Aggregator": "kerchief.roles.aggregator",
    "PopulationLearner": "kerchief.roles.population",
    "deploy": "kerchief.roles.deployment",
    "deployed": "kerchief.roles.deployment",
}

__all__ = list(_HOMES)

if not TYPE_CHECKING:
    __getattr__ = fetching("kerchief.roles", _HOMES)
