"""The file `plan.toml`: options of `compare` from which a bandit is deployed, too."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kerchief.comparison.datasets import declared_facts
from kerchief.core.errors import InvalidValueError
from kerchief.core.problems import Problem
from kerchief.deployment.protected_policy import choose_mechanism
from kerchief.environments.registry import ENVIRONMENTS
from kerchief.policies import POLICIES
from kerchief.privacy.guarantee import Guarantee, Trust
from kerchief.privatizers.registry import MECHANISMS_OF

if TYPE_CHECKING:
    from kerchief.planning.advice import Advice

PROBLEM = "problem"
"""The table of facts about the problem that no option states."""

# Options from which a guarantee and a policy are read, each with one value.
_DEPLOYED_OPTIONS = ("policy", "trust", "epsilon", "delta", "horizon")
# Options whose value is a name.
_NAMES = ("env", "mechanism", "mode", "policy", "trust")
# Bounds that a service may have otherwise than the environment.
_BOUNDS = ("norm", "radius", "low", "high")
_FACTS = tuple(field.name for field in dataclasses.fields(Problem) if field.name != "horizon")
_SIZES = ("dim", "arms", "radius")


def settings(advice: Advice) -> str:
    """Return the text of the file: options of `kerchief compare`, and of data the problem."""
    cell, planning = advice.best.cell, advice.planning
    comparison = planning.comparison(planning.count, trusts=(str(cell.player.trust),))
    comparison = dataclasses.replace(
        comparison, policies=(cell.player.policy,), replicates=advice.best.replicates
    )
    deploys = "kerchief.Bandit(**kerchief.load_plan(THIS), window_s=0) deploys it."
    deploys = deploys if advice.best.wire else f"{advice.use()}."
    options = {name: _unwrap(value) for name, value in comparison.parameters().items()}
    lines = [f"# {advice.sentence()}", "# kerchief compare --config THIS runs it again;"]
    lines += [f"# {deploys}", *_format_lines(options)]
    if planning.data is None:
        return (
            "\n".join([*lines, f"# [{PROBLEM}] with {', '.join(_BOUNDS)} sets your own bounds."])
            + "\n"
        )
    problem = planning.problem(planning.count)
    facts = {name: getattr(problem, name) for name in _FACTS}
    return "\n".join([*lines, "", f"[{PROBLEM}]", *_format_lines(facts)]) + "\n"


def _unwrap(value: object) -> object:
    """Return the only value of a list."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _format_lines(table: Mapping[str, object]) -> list[str]:
    """Format values in TOML, whose syntax for these types is that of JSON."""
    return [
        f"{name.replace('_', '-')} = {json.dumps(value, ensure_ascii=False)}"
        for name, value in table.items()
        if value not in (None, [])
    ]


def load_plan(path: str | Path) -> dict[str, Any]:
    """Load the recommendation of a plan, as the arguments of `Bandit` and of `deploy`.

    Args:
        path: the file that `kerchief plan` wrote.

    Raises:
        InvalidValueError: the file cannot be read, or does not describe one bandit.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp(), "plan.toml")
    >>> lines = ["env = 'own'", "dim = 2", "arms = 3", "horizon = 1000"]
    >>> lines += ["policy = 'own-models'", "trust = 'joint'", "epsilon = 1.0", "delta = 1e-6"]
    >>> _ = file.write_text(chr(10).join(lines))
    >>> plan = load_plan(file)
    >>> plan["guarantee"].trust, plan["problem"].own
    (<Trust.JOINT: 'joint'>, 2)
    """
    if not isinstance(path, str | Path):
        raise InvalidValueError(f"path is a {type(path).__name__}; give the name of a file")
    content = read_toml(Path(path))
    check_problem(path, content)
    options = {name.replace("_", "-"): value for name, value in content.items() if name != PROBLEM}
    chosen = {name: _take_value(path, options, name) for name in _DEPLOYED_OPTIONS}
    try:
        problem = Problem(**_collect_facts(path, content, options), horizon=chosen["horizon"])
        guarantee = Guarantee(**{name: chosen[name] for name in ("epsilon", "delta", "trust")})
    except TypeError as error:
        raise InvalidValueError(f"{str(path)!r} does not describe a bandit: {error}") from error
    return {
        "policy": chosen["policy"],
        "mode": _take_value(path, {"mode": "tuned", **options}, "mode"),
        "mechanism": _read_mechanism(path, options, chosen["policy"], guarantee.trust),
        "problem": problem,
        "guarantee": guarantee,
    }


def _take_value(path: str | Path, options: Mapping[str, Any], name: str) -> Any:
    """Return the only value of an option, which must be text for names."""
    if name not in options:
        raise InvalidValueError(
            f"{name} is missing in {str(path)!r}; run `kerchief plan` again, or add it"
        )
    value = _unwrap(options[name])
    if isinstance(value, list):
        raise InvalidValueError(
            f"{name} is {value!r} in {str(path)!r}; a deployment has one value, so leave one"
        )
    if name in _NAMES and not isinstance(value, str):
        raise InvalidValueError(f"{name} is {value!r} in {str(path)!r}; give a name in quotes")
    return value


def _read_mechanism(path: str | Path, options: Mapping[str, Any], policy: str, trust: Trust) -> str:
    """Return the mechanism of this trust model, by default that of the policy."""
    if "mechanism" not in options:
        return choose_mechanism(POLICIES[policy], trust)
    text: str = _take_value(path, options, "mechanism")
    head, equals, name = text.partition("=")
    if equals and head != trust.value:
        raise InvalidValueError(
            f"mechanism is {text!r} in {str(path)!r}, and trust is {trust.value!r}; write "
            f"{trust.value}=NAME"
        )
    mechanism = name if equals else head
    MECHANISMS_OF[trust][mechanism]
    return mechanism


def _collect_facts(
    path: str | Path, content: Mapping[str, Any], options: Mapping[str, Any]
) -> dict[str, Any]:
    """Collect the facts about the problem: of data from the table, else from the environment."""
    table = content.get(PROBLEM, {})
    if "data" in options:
        for name in _FACTS:
            if name not in table:
                raise InvalidValueError(
                    f"{name} is missing in table {PROBLEM!r} of {str(path)!r}; run `kerchief plan` "
                    "again, or add it"
                )
        return dict(table)
    if "env" not in options:
        raise InvalidValueError(
            f"{str(path)!r} has neither `env` nor `data`; add one of them, or run `kerchief plan` "
            "again"
        )
    horizon = _take_value(path, options, "horizon")
    environment = _build_environment(_take_value(path, options, "env"), options)
    problem = environment.problem(horizon)
    if not isinstance(problem, Problem):
        raise InvalidValueError(
            f"env is {options['env']!r} in {str(path)!r}, where users bring no features; run "
            "`kerchief plan` again"
        )
    return {name: getattr(problem, name) for name in _FACTS} | dict(table)


def _build_environment(name: str, options: Mapping[str, Any]) -> Any:
    """Build the environment of this name and these options."""
    entry = ENVIRONMENTS[name]
    arguments = {name: options[name] for name in _SIZES if name in options}
    if "contexts" in options:
        arguments["contexts"] = _unwrap(options["contexts"])
    further = options.get("env-param", [])
    texts = further if isinstance(further, list) else [further]
    pairs = [parsed for parsed in (pair(str(text)) for text in texts) if parsed is not None]
    return entry.make(**arguments | dict(pairs))


def check_problem(path: str | Path, content: Mapping[str, Any]) -> None:
    """Refuse a table of the problem that repeats or contradicts the options.

    Args:
        path: for the error.
        content: what the file says.
    """
    table = content.get(PROBLEM, {})
    if not isinstance(table, dict):
        raise InvalidValueError(
            f"{PROBLEM} is {table!r} in {str(path)!r}; give a table, as `kerchief plan` writes it"
        )
    is_on_data = "data" in content
    for name in table:
        if name not in (_FACTS if is_on_data else _BOUNDS):
            raise InvalidValueError(
                f"{name} stands in table {PROBLEM!r} of {str(path)!r}, where it means nothing; "
                "leave it out, or set it among the options above"
            )
    if is_on_data and table.get("own") == table.get("dim"):
        _check_declared(path, content, table)


def _check_declared(path: str | Path, content: Mapping[str, Any], table: Mapping[str, Any]) -> None:
    """Refuse facts that differ from what the options declare about data."""
    options = {name.replace("_", "-"): value for name, value in content.items() if name != PROBLEM}
    for name, value in declared_facts(options).items():
        if name in table and value != table[name]:
            raise InvalidValueError(
                f"{name} is {table[name]!r} in table {PROBLEM!r} of {str(path)!r}, and the options "
                f"declare {value!r}; run `kerchief plan` again, or change it"
            )


def pair(text: str) -> tuple[str, int | float | str] | None:
    """Return a name and its value, or None where the text is no NAME=VALUE.

    A value is a number if it reads as one.

    >>> pair("gap=0.5"), pair("link=probit"), pair("gap")
    (('gap', 0.5), ('link', 'probit'), None)
    """
    name, _, value = text.partition("=")
    if not (name and value):
        return None
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return name, kind(value)
    return name, value


def read_toml(path: Path) -> Mapping[str, Any]:
    """Read a TOML file, or raise one line that says why it cannot be read."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise InvalidValueError(
            f"the configuration {str(path)!r} cannot be read: {reason}"
        ) from error
