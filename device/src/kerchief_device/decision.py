"""Decisions: what a device returns to its application."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Decision:
    """Arm to play, and the id under which its reward comes.

    Attributes:
        id: names the decision when its reward comes; it never leaves the device.
        arm: what to play: its number, or its name where arms have names.

    >>> Decision(id="00" * 16, arm="news").arm
    'news'
    """

    id: str
    arm: int | str
