"""`kerchief value`: the value of a policy, from logs and with a privacy guarantee."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from kerchief.cli import options
from kerchief.cli.data import (
    FILE,
    check_columns,
    declare,
    merge_declarations,
    propensity_of,
    range_of,
)
from kerchief.cli.file_ledger import budget_in, kept
from kerchief.cli.printing import complain, print_json, print_wrapped
from kerchief.core.errors import InvalidValueError, KerchiefError
from kerchief.core.validate import between
from kerchief.data.declaration import declared_range
from kerchief.data.features import words_of
from kerchief.data.fixed_policies import FixedPolicy, OneArm, UniformPlay, read_model
from kerchief.data.logs import MOST_REWARD, Logs
from kerchief.data.off_policy import (
    ESTIMATORS,
    LARGEST_WEIGHT,
    OffPolicyValue,
    off_policy_value,
)
from kerchief.data.sources import read_logs
from kerchief.data.value_noise import MECHANISMS
from kerchief.privacy.calibration import zcdp_rho
from kerchief.privacy.guarantee import MOST_EPSILON, Guarantee, Trust, delta_warnings
from kerchief.privacy.ledger import MemoryLedger
from kerchief.privacy.rules import filter_sums

_TOGETHER = "in all releases of its ledger together"
_KEYS = ("action", "reward", "propensity", "user", "reward_range", "norm", "least_propensity")


@click.command()
@click.option("--data", type=FILE, required=True, help="Logs: CSV, Parquet, DSJSON or .npz.")
@declare
@click.option(
    "--features",
    multiple=True,
    metavar="NAME|NAME=LOW:HIGH",
    help="Features of users that models read, with or without public bounds. Repeatable.",
)
@click.option("--arms", type=int, help="Number of arms, if actions are numbers.")
@click.option(
    "--policy",
    required=True,
    metavar="uniform|arm=ARM|model=FILE",
    help="Policy to value: uniform play, one arm by its number or name, or the best arm by a "
    "linear model in JSON.",
)
@options.option("--estimator", "Estimator.", default="ips", metavar="|".join(ESTIMATORS))
@click.option("--reward-model", type=FILE, help="Linear model of rewards in JSON, for dr.")
@options.epsilon
@options.option("--delta", "Privacy budget delta; below 1/rows.", default=1e-6)
@options.option("--mechanism", "Mechanism.", default="best", metavar="|".join(MECHANISMS))
@click.option(
    "--largest-weight",
    type=float,
    help=f"Bound that weights are clipped to; the interval includes the bias.  "
    f"[default: {LARGEST_WEIGHT:g}]",
)
@options.option("--level", "Confidence level of the interval.", default=0.95)
@click.option("--ledger", type=FILE, help="File of a ledger to charge; a new file begins one.")
@click.option("--budget", type=float, help="Epsilon of a new ledger, for all releases together.")
@options.json_output
def value(*, as_json: bool, ledger: Path | None, budget: float | None, **settings: Any) -> None:
    """Estimate the value of a policy from logs, with a guarantee for each row or user.

    Declare the logs with --declare action=COLUMN, reward=COLUMN, propensity=COLUMN or a number,
    user=COLUMN, reward-range=LOW:HIGH, norm=BOUND and least-propensity=CHANCE.

    The printed value and interval are private; the interval includes noise, sampling and the bias
    of clipped weights. Every call is a release of its own. Calls with the same --ledger share its
    --budget, which the first call sets. You may choose a call by the results of earlier calls: it
    is admitted while the epsilons of all calls add up to at most the budget, or while a zCDP filter
    holds whose rho follows from --budget and --delta.

    Errors are not private: an error depends on the rows, and so does its absence. Publish only what
    a call prints.
    """
    settings |= {name: None for name in _KEYS} | merge_declarations(settings, (*_KEYS, "features"))
    check_columns(settings)
    if budget is not None:
        between("budget", budget, 0.0, MOST_EPSILON, closed=True)
    if ledger is not None:
        settings["delta"], budget = _read_stored_budget(ledger, settings["delta"], budget)
    logs = _read_logs(settings)
    if ledger is not None:
        _check_unit(ledger, settings["user"], logs)
    policy = _read_policy(settings, logs)
    _check_features_used(settings)
    model = None if settings["reward_model"] is None else read_model(settings["reward_model"])
    names = ("epsilon", "delta", "estimator", "mechanism", "largest_weight", "least_propensity")
    arguments: dict[str, Any] = {name: settings[name] for name in (*names, "level")} | {
        "model": model
    }
    for warning in delta_warnings(settings["delta"], logs.units, of=f"{_get_unit(logs)}s"):
        complain("warning", warning)
    with contextlib.ExitStack() as stack:
        if ledger is not None:
            arguments["ledger"] = stack.enter_context(
                kept(ledger, _build_budget(settings, budget, logs))
            )
        elif budget is not None:
            raise InvalidValueError("--budget is given without a ledger; give --ledger FILE too")
        estimate = off_policy_value(logs, policy, **arguments)
    _print_value(estimate, arguments.get("ledger"), as_json=as_json)


@contextlib.contextmanager
def _note_private_errors() -> Iterator[None]:
    """Note that errors which may depend on rows are not private."""
    try:
        yield
    except KerchiefError:
        complain("note", "errors are not private: this one is for those alone who may see the logs")
        raise


def _print_value(estimate: OffPolicyValue, ledger: MemoryLedger | None, *, as_json: bool) -> None:
    promise = estimate.guarantee.sentence(over="in one release")
    if as_json:
        state = {} if ledger is None else {"ledger": _build_state(ledger)}
        print_json(estimate.to_dict() | {"promise": promise} | state)
        return
    print_wrapped(f"value: {estimate.sentence()}")
    print_wrapped(f"noise alone: a standard deviation of {estimate.noise:.3g}")
    if estimate.weight is not None:
        print_wrapped(
            f"mean weight after the cut, with noise: {estimate.weight:.3g} (1 is nothing cut)"
        )
    print_wrapped(f"over {estimate.units} {estimate.guarantee.unit}s, by {estimate.estimator}")
    print_wrapped("rewards are clipped to the declared range")
    print_wrapped(f"promised: {promise}")
    if ledger is None:
        print_wrapped("This call knows of no other; with --ledger FILE calls share one budget.")
        return
    print_wrapped(f"budget: {ledger.budget.sentence(over=_TOGETHER)}")
    state = _build_state(ledger)
    sums = {"epsilon": ("epsilon", "epsilon_limit"), "rho of zCDP": ("rho", "rho_limit")}
    sums_text = ", ".join(
        f"{name} {state[total]:.6g} of {state[limit]:.6g}"
        for name, (total, limit) in sums.items()
        if state[total] is not None and state[limit] is not None
    )
    print_wrapped(
        f"charged in all {state['calls']} calls of the ledger: {sums_text}; a further call is "
        "admitted while one of these sums stays within its limit"
    )


def _build_state(ledger: MemoryLedger) -> dict[str, Any]:
    """Sum the calls of a ledger; None where a sum or its limit is not defined."""
    budget, sums = ledger.budget, filter_sums(ledger.receipts)
    return {
        "budget": budget.to_dict(),
        "calls": len(ledger.receipts),
        "epsilon": sums.epsilon if math.isfinite(sums.epsilon) else None,
        "epsilon_limit": budget.epsilon,
        "rho": sums.rho if math.isfinite(sums.rho) else None,
        "rho_limit": zcdp_rho(budget.epsilon, budget.delta) if budget.delta else None,
    }


def _read_logs(settings: dict[str, Any]) -> Logs:
    column_options = {name: settings[name] for name in ("action", "reward", "user", "arms", "norm")}
    columns = {name: column for name, column in column_options.items() if column is not None}
    if settings["propensity"] is not None:
        columns["propensity"] = propensity_of(settings["propensity"])
    named_arms = "=" in (settings["action"] or "")
    has_arm_count = Path(settings["data"]).suffix.lower() == ".npz"
    if not has_arm_count and settings["arms"] is None and not named_arms:
        raise InvalidValueError(
            "--arms is not given, and how many arms there are is not read off private data; give "
            "--arms NUMBER, or --declare action=COLUMN=first|second"
        )
    if settings["reward_range"] is None:
        raise InvalidValueError(
            "reward-range is not declared; give --declare reward-range=LOW:HIGH, since bounds are "
            "never read off private data"
        )
    low, high = declared_range(range_of(settings["reward_range"]))
    widest = (-MOST_REWARD, MOST_REWARD)
    features = settings["features"]
    with _note_private_errors():
        logs = read_logs(settings["data"], reward_range=widest, features=features, **columns)
        return logs.clipped(low, high)


def _read_policy(settings: dict[str, Any], logs: Logs) -> FixedPolicy:
    kind, equals, name = settings["policy"].partition("=")
    if kind == "uniform" and not equals:
        return UniformPlay()
    if kind == "model" and name:
        return read_model(Path(name))
    if kind == "arm" and name:
        return OneArm(arm=_find_arm(name, settings["action"] or "", logs))
    raise InvalidValueError(
        f"policy is {settings['policy'][:80]!r}; write uniform, arm=ARM or model=FILE"
    )


def _check_features_used(settings: dict[str, Any]) -> None:
    """Refuse features that no model reads."""
    if (
        settings["features"]
        and not settings["policy"].startswith("model=")
        and settings["estimator"] != "dr"
    ):
        raise InvalidValueError(
            f"--features is given, and neither this policy nor {settings['estimator']} reads any; "
            "leave it out, or give --policy model=FILE, or --estimator dr"
        )


def _find_arm(arm: str, action: str, logs: Logs) -> int:
    """Find the number of an arm by its declared name or number."""
    _, _, text = action.partition("=")
    names = words_of(text) if text else tuple(map(str, range(logs.arms)))
    if arm not in names:
        choices = ", ".join(names[:40])
        raise InvalidValueError(f"arm is {arm!r}; the arms are {choices}")
    return names.index(arm)


def _read_stored_budget(
    path: Path, delta: float, budget: float | None
) -> tuple[float, float | None]:
    """Read delta and budget of an existing ledger, and refuse other values."""
    stored_budget = budget_in(path)
    if stored_budget is None:
        return delta, budget
    source = click.get_current_context().get_parameter_source("delta")
    requested = {"budget": budget, "delta": None if source is ParameterSource.DEFAULT else delta}
    for (name, number), stored_number in zip(
        requested.items(), (stored_budget.epsilon, stored_budget.delta), strict=True
    ):
        if number is not None and number != stored_number:
            raise InvalidValueError(
                f"{name} is {number:g}, and {path} has the budget "
                f"{stored_budget.sentence(over=_TOGETHER)}; leave "
                f"--{name} out, or give another file"
            )
    return stored_budget.delta, stored_budget.epsilon


def _check_unit(path: Path, user: str | None, logs: Logs) -> None:
    """Refuse a ledger whose unit of privacy differs from that of the logs."""
    stored_budget = budget_in(path)
    if stored_budget is None or stored_budget.unit == _get_unit(logs):
        return
    if logs.users is None:
        raise InvalidValueError(
            f"the ledger {path} is for one {stored_budget.unit}, and without a declared user one "
            "row is protected; give --declare user=COLUMN, or another file"
        )
    reason = f"user is {user}" if user else "these logs say who came"
    remedy = "leave --declare user out, or give another file" if user else "give another file"
    raise InvalidValueError(
        f"{reason}, so that one user is protected, and the ledger {path} is for one "
        f"{stored_budget.unit}; {remedy}"
    )


def _get_unit(logs: Logs) -> str:
    return "row" if logs.users is None else "user"


def _build_budget(settings: dict[str, Any], budget: float | None, logs: Logs) -> Guarantee:
    """Build the budget of a new ledger; by default that of one call."""
    return Guarantee(
        epsilon=settings["epsilon"] if budget is None else budget,
        delta=settings["delta"],
        trust=Trust.CENTRAL,
        unit=_get_unit(logs),
    )
