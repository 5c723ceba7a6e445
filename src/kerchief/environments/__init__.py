"""Worlds: the only room that knows the truth (the parameter, the best arm, the regret)."""

from __future__ import annotations

from kerchief.environments.contexts import CONTEXTS
from kerchief.environments.worlds import NOISES, GLMEnvironment, make_environment

__all__ = ["CONTEXTS", "NOISES", "GLMEnvironment", "make_environment"]
