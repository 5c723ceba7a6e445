"""What a comparison leaves to read: tables, data frames, figures and HTML reports."""

from __future__ import annotations

from kerchief.reports.frames import Results, read_results
from kerchief.reports.outputs import Outputs

__all__ = ["Outputs", "Results", "read_results"]
