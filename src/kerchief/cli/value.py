"""`kerchief value`: what a policy would have earned, from logs and with a guarantee."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from kerchief.cli import options
from kerchief.cli.data import chance_of, logged, range_of
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

_FILE = click.Path(path_type=Path)
_TOGETHER = "in all releases of its ledger together"


def _add_column_options(command: Any) -> Any:
    for option in reversed(logged):
        command = option(command)
    return command


@click.command()
@click.option("--data", type=_FILE, required=True, help="Logs: CSV, Parquet, DSJSON or .npz.")
@_add_column_options
@click.option(
    "--reward-range",
    required=True,
    metavar="LOW:HIGH",
    help="The bounds of rewards; what lies beyond is clipped to them.",
)
@click.option(
    "--features",
    multiple=True,
    metavar="NAME|NAME=LOW:HIGH",
    help="Features of users, for models: bare names of numbers, or with public bounds. Repeatable.",
)
@click.option("--norm", type=float, help="Bound on the norm of features without a range.")
@click.option("--arms", type=int, help="How many arms there are, where actions are numbers.")
@click.option("--arm", metavar="ARM", help="Value playing this arm, by its number or name.")
@click.option("--policy", metavar="uniform", help="Value playing all arms with equal chances.")
@click.option("--model", type=_FILE, help="Value playing the best arm by a linear model, in JSON.")
@options.option("--estimator", "How.", default="ips", metavar="|".join(ESTIMATORS))
@click.option("--reward-model", type=_FILE, help="For dr, a linear model of rewards, in JSON.")
@options.epsilon
@options.option("--delta", "Privacy asked for; below 1/rows.", default=1e-6)
@options.option("--mechanism", "The noise.", default="best", metavar="|".join(MECHANISMS))
@click.option(
    "--largest-weight",
    type=float,
    help=f"Weights are cut to it, and the interval allows for that.  [default: {LARGEST_WEIGHT:g}]",
)
@click.option(
    "--least-propensity",
    type=float,
    help="The logging policy is known to give every arm at least this chance: nothing is cut.",
)
@options.option("--level", "How often the interval holds the value.", default=0.95)
@click.option("--ledger", type=_FILE, help="Pay from the ledger in this file, or begin one.")
@click.option(
    "--budget", type=float, help="Epsilon of a new ledger's file, for all releases together."
)
@options.json_output
def value(*, as_json: bool, ledger: Path | None, budget: float | None, **settings: Any) -> None:
    """Value a policy from logs, with a guarantee for each row or user.

    What is printed is private: a value, and an interval that includes noise, sampling, and what
    weights that were cut could have brought. Every call is a release of its own. Calls with one
    --ledger are kept within its --budget together, which is said once: a ledger's file knows it.
    Each may be chosen by earlier results: the first call may use the whole budget, and a later one
    is admitted while the epsilons of all calls add up to the budget, or while one zCDP filter
    holds, whose rho --budget and --delta fix.

    Errors are not private: which rows cannot be read, and that none is, may be seen by whoever may
    see the logs. Publish what a call prints only.
    """
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
        columns["propensity"] = chance_of(settings["propensity"])
    named_arms = "=" in (settings["action"] or "")
    has_arm_count = Path(settings["data"]).suffix.lower() == ".npz"
    if not has_arm_count and settings["arms"] is None and not named_arms:
        raise InvalidValueError(
            "--arms is not given, and how many arms there are is not read off private data; give "
            "--arms NUMBER, or --action COLUMN=first|second"
        )
    low, high = declared_range(range_of(settings["reward_range"]))
    widest = (-MOST_REWARD, MOST_REWARD)
    features = settings["features"]
    with _note_private_errors():
        logs = read_logs(settings["data"], reward_range=widest, features=features, **columns)
        return logs.clipped(low, high)


def _read_policy(settings: dict[str, Any], logs: Logs) -> FixedPolicy:
    flags = [name for name in ("arm", "policy", "model") if settings[name] is not None]
    if len(flags) != 1:
        raise InvalidValueError(
            f"{' and '.join(f'--{flag}' for flag in flags) or 'no policy'} "
            f"{'are' if flags else 'is'} given; give one of --arm, --policy and --model"
        )
    if settings["model"] is not None:
        return read_model(settings["model"])
    if settings["policy"] is not None:
        if settings["policy"] != "uniform":
            raise InvalidValueError(
                f"policy is {settings['policy']!r}; it can be uniform, or give --model"
            )
        return UniformPlay()
    return OneArm(arm=_find_arm(settings["arm"], settings["action"] or "", logs))


def _check_features_used(settings: dict[str, Any]) -> None:
    """Refuse features that no model reads."""
    if settings["features"] and settings["model"] is None and settings["estimator"] != "dr":
        raise InvalidValueError(
            f"--features is given, and neither this policy nor {settings['estimator']} reads any; "
            "leave it out, or give --model, or --estimator dr"
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
            f"the ledger {path} is for one {stored_budget.unit}, and without --user one row is "
            "protected; give --user COLUMN, or another file"
        )
    reason = f"--user is {user}" if user else "these logs say who came"
    remedy = "leave --user out, or give another file" if user else "give another file"
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
