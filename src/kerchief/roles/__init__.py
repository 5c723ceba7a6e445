"""Who computes what: device, curator, shuffler, learner, and the transport between them.

`Bandit` is all of them in one object; `drive` plays a simulated run message by message. `Asker` and
`Answerer` are server and device of bandits without contexts.
"""

from __future__ import annotations

from kerchief.roles.bandit import Bandit
from kerchief.roles.curator import Curator
from kerchief.roles.device import Device
from kerchief.roles.drive import drive
from kerchief.roles.learner import Learner
from kerchief.roles.questions import Answerer, Asker
from kerchief.roles.shuffler import Mixer, Shuffler
from kerchief.roles.transport import InProcess

__all__ = [
    "Answerer",
    "Asker",
    "Bandit",
    "Curator",
    "Device",
    "InProcess",
    "Learner",
    "Mixer",
    "Shuffler",
    "drive",
]
