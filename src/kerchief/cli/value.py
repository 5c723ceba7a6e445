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
from kerchief.cli.printing import complain, print_json, print_wrapped
from kerchief.core.errors import InvalidValue, KerchiefError
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
from kerchief.experiments.kept_ledger import budget_in, kept
from kerchief.privacy.calibration import zcdp_rho
from kerchief.privacy.guarantee import MOST_EPSILON, Guarantee, Trust, delta_warnings
from kerchief.privacy.ledger import MemoryLedger
from kerchief.privacy.rules import filter_sums

_FILE = click.Path(path_type=Path)
_TOGETHER = "in all releases of its ledger together"


def _columns(command: Any) -> Any:
    for option in reversed(logged):
        command = option(command)
    return command


@click.command()
@click.option("--data", type=_FILE, required=True, help="Logs: CSV, Parquet, DSJSON or .npz.")
@_columns
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
def value(*, as_json: bool, ledger: Path | None, budget: float | None, **asked: Any) -> None:
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
        asked["delta"], budget = _stored(ledger, asked["delta"], budget)
    logs = _logs(asked)
    if ledger is not None:
        _check_unit(ledger, asked["user"], logs)
    policy = _policy(asked, logs)
    _check_heard(asked)
    model = None if asked["reward_model"] is None else read_model(asked["reward_model"])
    names = ("epsilon", "delta", "estimator", "mechanism", "largest_weight", "least_propensity")
    ask: dict[str, Any] = {name: asked[name] for name in (*names, "level")} | {"model": model}
    for warning in delta_warnings(asked["delta"], logs.units, of=f"{_unit(logs)}s"):
        complain("warning", warning)
    with contextlib.ExitStack() as stack:
        if ledger is not None:
            ask["ledger"] = stack.enter_context(kept(ledger, _budget(asked, budget, logs)))
        elif budget is not None:
            raise InvalidValue("--budget is given without a ledger; give --ledger FILE too")
        found = off_policy_value(logs, policy, **ask)
    _print(found, ask.get("ledger"), as_json=as_json)


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    """Say of a refusal that may follow from rows that it is not private."""
    try:
        yield
    except KerchiefError:
        complain("note", "errors are not private: this one is for those alone who may see the logs")
        raise


def _print(found: OffPolicyValue, ledger: MemoryLedger | None, *, as_json: bool) -> None:
    promise = found.guarantee.sentence(over="in one release")
    if as_json:
        state = {} if ledger is None else {"ledger": _state(ledger)}
        print_json(found.to_dict() | {"promise": promise} | state)
        return
    print_wrapped(f"value: {found.sentence()}")
    print_wrapped(f"noise alone: a standard deviation of {found.noise:.3g}")
    if found.weight is not None:
        print_wrapped(
            f"mean weight after the cut, with noise: {found.weight:.3g} (1 is nothing cut)"
        )
    print_wrapped(f"over {found.units} {found.guarantee.unit}s, by {found.estimator}")
    print_wrapped("rewards are clipped to the declared range")
    print_wrapped(f"promised: {promise}")
    if ledger is None:
        print_wrapped("This call knows of no other; with --ledger FILE calls share one budget.")
        return
    print_wrapped(f"budget: {ledger.budget.sentence(over=_TOGETHER)}")
    state = _state(ledger)
    sums = {"epsilon": ("epsilon", "epsilon_limit"), "rho of zCDP": ("rho", "rho_limit")}
    charged = ", ".join(
        f"{name} {state[total]:.6g} of {state[limit]:.6g}"
        for name, (total, limit) in sums.items()
        if state[total] is not None and state[limit] is not None
    )
    print_wrapped(
        f"charged in all {state['calls']} calls of the ledger: {charged}; a further call is "
        "admitted while one of these sums stays within its limit"
    )


def _state(ledger: MemoryLedger) -> dict[str, Any]:
    """What the calls of a ledger add up to; None where a sum or its limit is not defined."""
    budget, sums = ledger.budget, filter_sums(ledger.receipts)
    return {
        "budget": budget.to_dict(),
        "calls": len(ledger.receipts),
        "epsilon": sums.epsilon if math.isfinite(sums.epsilon) else None,
        "epsilon_limit": budget.epsilon,
        "rho": sums.rho if math.isfinite(sums.rho) else None,
        "rho_limit": zcdp_rho(budget.epsilon, budget.delta) if budget.delta else None,
    }


def _logs(asked: dict[str, Any]) -> Logs:
    named = {name: asked[name] for name in ("action", "reward", "user", "arms", "norm")}
    columns = {name: one for name, one in named.items() if one is not None}
    if asked["propensity"] is not None:
        columns["propensity"] = chance_of(asked["propensity"])
    named_arms = "=" in (asked["action"] or "")
    counted = Path(asked["data"]).suffix.lower() == ".npz"
    if not counted and asked["arms"] is None and not named_arms:
        raise InvalidValue(
            "--arms is not given, and how many arms there are is not read off private data; give "
            "--arms NUMBER, or --action COLUMN=first|second"
        )
    low, high = declared_range(range_of(asked["reward_range"]))
    widest = (-MOST_REWARD, MOST_REWARD)
    features = asked["features"]
    with _refusals():
        logs = read_logs(asked["data"], reward_range=widest, features=features, **columns)
        return logs.clipped(low, high)


def _policy(asked: dict[str, Any], logs: Logs) -> FixedPolicy:
    given = [name for name in ("arm", "policy", "model") if asked[name] is not None]
    if len(given) != 1:
        raise InvalidValue(
            f"{' and '.join(f'--{one}' for one in given) or 'no policy'} "
            f"{'are' if given else 'is'} given; give one of --arm, --policy and --model"
        )
    if asked["model"] is not None:
        return read_model(asked["model"])
    if asked["policy"] is not None:
        if asked["policy"] != "uniform":
            raise InvalidValue(f"policy is {asked['policy']!r}; it can be uniform, or give --model")
        return UniformPlay()
    return OneArm(arm=_arm(asked["arm"], asked["action"] or "", logs))


def _check_heard(asked: dict[str, Any]) -> None:
    """Refuse features that no model reads."""
    if asked["features"] and asked["model"] is None and asked["estimator"] != "dr":
        raise InvalidValue(
            f"--features is given, and neither this policy nor {asked['estimator']} reads any; "
            "leave it out, or give --model, or --estimator dr"
        )


def _arm(given: str, action: str, logs: Logs) -> int:
    """The number of an arm, by its declared name or by itself."""
    _, _, text = action.partition("=")
    names = words_of(text) if text else tuple(map(str, range(logs.arms)))
    if given not in names:
        known = ", ".join(names[:40])
        raise InvalidValue(f"arm is {given!r}; the arms are {known}")
    return names.index(given)


def _stored(path: Path, delta: float, budget: float | None) -> tuple[float, float | None]:
    """The delta and the budget of a ledger's file, if there is one; they need not be said again."""
    found = budget_in(path)
    if found is None:
        return delta, budget
    source = click.get_current_context().get_parameter_source("delta")
    said = {"budget": budget, "delta": None if source is ParameterSource.DEFAULT else delta}
    for (name, given), known in zip(said.items(), (found.epsilon, found.delta), strict=True):
        if given is not None and given != known:
            raise InvalidValue(
                f"{name} is {given:g}, and {path} has the budget "
                f"{found.sentence(over=_TOGETHER)}; leave "
                f"--{name} out, or give another file"
            )
    return found.delta, found.epsilon


def _check_unit(path: Path, user: str | None, logs: Logs) -> None:
    """Refuse a ledger's file that is for rows where users are protected, and the reverse."""
    found = budget_in(path)
    if found is None or found.unit == _unit(logs):
        return
    if logs.users is None:
        raise InvalidValue(
            f"the ledger {path} is for one {found.unit}, and without --user one row is protected; "
            "give --user COLUMN, or another file"
        )
    why = f"--user is {user}" if user else "these logs say who came"
    other = "leave --user out, or give another file" if user else "give another file"
    raise InvalidValue(
        f"{why}, so that one user is protected, and the ledger {path} is for one {found.unit}; "
        f"{other}"
    )


def _unit(logs: Logs) -> str:
    return "row" if logs.users is None else "user"


def _budget(asked: dict[str, Any], budget: float | None, logs: Logs) -> Guarantee:
    """What a ledger's file promises: that of one call, where nothing else is said."""
    return Guarantee(
        epsilon=asked["epsilon"] if budget is None else budget,
        delta=asked["delta"],
        trust=Trust.CENTRAL,
        unit=_unit(logs),
    )
