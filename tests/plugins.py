"""Plugins in tests: nothing that one enters outlives the test."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from kerchief.comparison import plugins
from kerchief.core.registry import Registry
from kerchief.environments.registry import ENVIRONMENTS
from kerchief.mechanisms.registry import MECHANISMS
from kerchief.papers.catalogue import EXPERIMENTS
from kerchief.policies import POLICIES
from kerchief.privatizers.registry import MECHANISMS_OF, TRUSTS

__all__ = ["fresh_registries"]

_ALL: tuple[Registry[Any], ...] = (
    *(POLICIES, ENVIRONMENTS, EXPERIMENTS, MECHANISMS, TRUSTS),
    *MECHANISMS_OF.values(),
)


@contextlib.contextmanager
def fresh_registries() -> Iterator[None]:
    """As if this process had loaded no plugin, and none afterwards."""
    known = set(sys.modules)
    with pytest.MonkeyPatch.context() as patched:
        for registry in _ALL:
            patched.setattr(registry, "_entries", dict(registry._entries))
        patched.setattr(plugins, "_LOADED", {})
        patched.setattr(plugins, "_DIGESTS", {})
        yield
    for name in set(sys.modules) - known:
        if name.startswith("kerchief_plugin_"):
            del sys.modules[name]
