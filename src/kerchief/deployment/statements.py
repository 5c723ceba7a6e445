"""Statements of roles: what is promised to whom, what it costs, and what it relies on."""

from __future__ import annotations

from collections.abc import Iterable

from kerchief.deployment.audit_log import ChainReader
from kerchief.deployment.deployment import Deployment
from kerchief.privacy.guarantee import Trust
from kerchief_protocol.projection import Projection

# Numbers of visits for which a statement names the cost.
_VISITS = (2, 4, 8)

# Conditions of roles that run apart.
TIMED_REQUESTS = (
    "The guarantee holds if applications ask their devices for due reports at times that do not "
    "depend on rewards."
)
UNNOTICED_COPIES = (
    "The store has no witness: a copy of it, or a backup that is restored, goes unnoticed, may "
    "release totals of the same users again with new noise, and then voids the guarantee."
)

# Conditions of a bandit in one process.
ONE_PROCESS = (
    "All roles run in one process here, so its owner sees contexts and rewards, even where the "
    "operator was included above; the promise is about everyone else."
)
UNLIMITED_DECISIONS = (
    "Every decision counts as that of a new user. If the app does not limit how often one person "
    "decides, a stranger can use up all users, and fill the cohort of another user."
)


def build_statement(deployment: Deployment, chain: ChainReader, conditions: Iterable[str]) -> str:
    """State the guarantee, its costs so far, its conditions, and which run it is about.

    Args:
        deployment: the task, with its guarantee.
        chain: has read the whole chain.
        conditions: what the guarantee relies on, one paragraph each.
    """
    lines = [deployment.guarantee.statement(protected=deployment.problem.protected)]
    if deployment.guarantee.trust is not Trust.NONE:
        cost_intro = "Spent by" if chain.ended else "Paid in advance, before anyone comes, for"
        lines.append(f"{cost_intro} the worst-off user: epsilon {chain.spent().epsilon:.6g}.")
        lines.append(_describe_visits(chain))
    task = f"Task {deployment.task.id.hex()}, chain {chain.head.hex()}."
    return "\n".join([*lines, *conditions, task])


def describe_restores(place: str) -> str:
    """State what a witness elsewhere notices of a place whose backup is restored."""
    return (
        f"Restoring a backup of the {place} is noticed if anything was released since. Restoring "
        "the witness with it may go unnoticed, and voids the guarantee."
    )


def describe_due(window_s: int) -> str:
    """State when a bandit in one process reports its decisions."""
    due = f"after its window of {window_s} seconds" if window_s else "at once"
    return (
        f"A decision is due {due}. Calls of decide, expire, settle and close report what is "
        "due, with or without a reward. The guarantee holds if the application times these "
        "calls without regard to rewards."
    )


def describe_delay(window_s: int) -> str:
    """Warn of a bandit that learns late, and say how it learns at once."""
    return (
        f"window_s is {window_s}; the bandit learns from a decision when its window is over, and "
        f"nothing in the first {window_s} seconds. Pass window_s=0 if each reward comes before the "
        "next decision."
    )


def describe_projection(projection: Projection) -> str:
    """State what a projection of features costs."""
    return (
        f"Features of {projection.dim} numbers are projected onto {projection.onto}, which "
        "costs nobody privacy: what they do not show, no model learns."
    )


def _describe_visits(chain: ChainReader) -> str:
    """State what a user pays who takes part several times, and how far that is proved."""
    reviews = [chain.review(visits) for visits in _VISITS]
    costs = ", ".join(f"{read.visits}: {read.spent.epsilon:.4g}" for read in reviews)
    unproved = (
        " All visits are priced in the cohort where they cost most; visits spread over unequal "
        "cohorts might cost more, as only for normal noise is it proved that they do not."
    )
    return (
        f"Epsilon of a user who takes part several times: {costs}, at delta "
        f"{chain.budget.delta:.6g}.{'' if all(read.is_proved for read in reviews) else unproved}"
    )
