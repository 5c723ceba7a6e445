from __future__ import annotations

from pathlib import Path

import pytest
from tests.deployment.traffic import Place
from tests.stores.conftest import cluster, lasting, where

__all__ = ["cluster", "lasting", "place", "where"]


@pytest.fixture
def place(lasting: str, tmp_path: Path) -> Place:
    """Where a task can live that outlives its processes."""
    return Place(lasting, str(tmp_path / "witness"))
