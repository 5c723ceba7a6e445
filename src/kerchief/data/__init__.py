"""Tables and logs of users' data, with declared public bounds.

Data become worlds to play in, and logs tell what a policy would have earned, with a guarantee.
"""

from __future__ import annotations

from kerchief.data.declaration import Declaration
from kerchief.data.dsjson import read_dsjson, write_dsjson
from kerchief.data.fixed_policies import LinearModel, OneArm, UniformPlay, read_model
from kerchief.data.logs import Logs
from kerchief.data.off_policy import OffPolicyValue, off_policy_value
from kerchief.data.open_bandit import from_feedback, read_feedback, to_feedback, write_feedback
from kerchief.data.replaying import from_logs
from kerchief.data.sources import read_logs, write_log_table
from kerchief.data.supervised import from_supervised
from kerchief.data.tables import Table, read_table

__all__ = [
    "Declaration",
    "LinearModel",
    "Logs",
    "OffPolicyValue",
    "OneArm",
    "Table",
    "UniformPlay",
    "from_feedback",
    "from_logs",
    "from_supervised",
    "off_policy_value",
    "read_dsjson",
    "read_feedback",
    "read_logs",
    "read_model",
    "read_table",
    "to_feedback",
    "write_dsjson",
    "write_feedback",
    "write_log_table",
]
