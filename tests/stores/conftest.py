from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.stores.cluster import Cluster, missing
from tests.stores.traffic import begin

from kerchief.stores import Store, open_store


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    if (reason := missing()) is not None:
        if os.environ.get("KERCHIEF_REQUIRE_POSTGRES") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    server = Cluster()
    yield server
    server.remove()


def _address(kind: str, request: pytest.FixtureRequest, folder: Path) -> str:
    if kind == "postgres":
        server: Cluster = request.getfixturevalue("cluster")
        return server.database()
    return ":memory:" if kind == "memory" else str(folder / "store.db")


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty store of each kind."""
    return _address(request.param, request, tmp_path)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.nightly)])
def lasting(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty store that outlives its process."""
    return _address(request.param, request, tmp_path)


@pytest.fixture
def shared(lasting: str) -> str:
    """The address of a store that processes can share, in which a task has begun."""
    store = open_store(lasting)
    begin(store)
    store.close()
    return lasting


@pytest.fixture
def store(where: str) -> Iterator[Store]:
    """A store of each kind, in which a task has begun."""
    opened = open_store(where)
    begin(opened)
    yield opened
    opened.close()
