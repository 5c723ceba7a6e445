"""Bandits for rewards that are a curve of a linear score."""

from __future__ import annotations

from kerchief.policies.glm import batched as batched
from kerchief.policies.glm import batched_paper as batched_paper
from kerchief.policies.glm import batched_sums as batched_sums
from kerchief.policies.glm import ecolog as ecolog
from kerchief.policies.glm import gloc as gloc
from kerchief.policies.glm import greedy_descent as greedy_descent
from kerchief.policies.glm import local_descent as local_descent
from kerchief.policies.glm import local_paper as local_paper
from kerchief.policies.glm import online as online
from kerchief.policies.glm import rare_switching as rare_switching
from kerchief.policies.glm import rare_switching_author_code as rare_switching_author_code
from kerchief.policies.glm import rare_switching_paper as rare_switching_paper
from kerchief.policies.glm import ucb as ucb
