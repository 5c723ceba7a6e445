"""A user's device in a private bandit: it chooses, records, randomizes and reports.

NumPy is all that it needs. Each name below is fetched when it is first asked for, so that samplers
alone bring nothing else with them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kerchief_protocol.lazy import fetching

# For type checkers and editors; `_HOMES` says the same to Python.
if TYPE_CHECKING:
    from kerchief_device.decision import Decision as Decision
    from kerchief_device.device import Device as Device
    from kerchief_device.pending import Budget as Budget
    from kerchief_device.pending import Pending as Pending
    from kerchief_device.phased import Place as Place
    from kerchief_device.programs import Code as Code

_HOMES = {
    "Budget": "kerchief_device.pending",
    "Code": "kerchief_device.programs",
    "Decision": "kerchief_device.decision",
    "Device": "kerchief_device.device",
    "Pending": "kerchief_device.pending",
    "Place": "kerchief_device.phased",
}

__all__ = list(_HOMES)

if not TYPE_CHECKING:
    __getattr__ = fetching("kerchief_device", _HOMES)
