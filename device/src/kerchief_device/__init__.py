"""A user's device in a private bandit: it chooses, records, randomizes and reports.

NumPy is all that it needs.
"""

from kerchief_device.device import Decision, Device
from kerchief_device.pending import Budget, Pending
from kerchief_device.phased import Place
from kerchief_device.programs import Code

__all__ = ["Budget", "Code", "Decision", "Device", "Pending", "Place"]
