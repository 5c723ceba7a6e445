"""`kerchief plan`: what privacy will cost, before anything is built."""

from __future__ import annotations

import functools
import json
import shlex
import time
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from kerchief.cli import options
from kerchief.cli.data import NAMES, check_without, environment_of, of_data
from kerchief.cli.device import use_device
from kerchief.cli.global_options import chosen_device, with_plugins
from kerchief.cli.options import PRIVATE_TRUSTS
from kerchief.cli.playing import prepared
from kerchief.cli.printing import (
    complain,
    json_output,
    print_json,
    print_table,
    print_wrapped,
    progress_bar,
)
from kerchief.comparison.plugins import flags, list_loaded
from kerchief.comparison.versions import machine, versions
from kerchief.core import validate
from kerchief.core.errors import InvalidValueError
from kerchief.planning import plan_page
from kerchief.planning.advice import HEADINGS, Advice
from kerchief.planning.budgeted_runner import play
from kerchief.planning.pilot_runs import SimulatedRuns
from kerchief.planning.plan_config import settings
from kerchief.planning.planning import ANY, FAMILY, Planning
from kerchief.reports.extras import NEEDS, format_install_command, missing
from kerchief.reports.output_path import Place
from kerchief.reports.report import kept_promises

# Seconds for what comes before the simulations, and for the page after them.
_AROUND_S = 6.0
_FILES = {"config": "plan.toml", "rows": "plan.json", "picture": "plan.png", "report": "plan.html"}


@click.command()
@click.option("--users", type=int, help="Number of users.  [default: those of the data]")
@of_data
@options.option("--env", "Environment, if there are no data.", default=FAMILY, metavar="NAME")
@options.dim
@options.of_environment("--arms", type=int, help="Number of arms.")
@options.pairs(
    "--env-param",
    "options",
    help="Further parameter of the environment, such as radius=0.3, noise=gaussian, or "
    "strength=0.2:0.6 for how much arms differ, from 0 to 1.",
)
@options.option("--policy", "Policy by name, or `best`.", default=Planning.policy, metavar="NAME")
@click.option(
    "--trust",
    "trusts",
    multiple=True,
    default=Planning.trusts,
    show_default=True,
    metavar=f"{ANY}|{PRIVATE_TRUSTS}",
    help="Trust model that users may accept. Repeatable.",
)
@options.epsilon
@options.option("--delta", "Privacy budget delta; below 1/users.", default=Planning.delta)
@options.seed
@options.option("--seconds", "Time limit in seconds.", default=60.0, type=float)
@options.option("--jobs", "Number of processes.", default=2, type=int)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Folder for the page, the picture, the figures and plan.toml.  [default: none]",
)
@click.option("--force", is_flag=True, help="Replace an earlier plan in the folder.")
@with_plugins
@json_output
def plan(
    *,
    seconds: float,
    jobs: int,
    out: Path | None,
    force: bool,
    as_json: bool,
    **fields: Any,
) -> None:
    """Estimate what privacy will cost under each trust model, before anything is built.

    Simulates the private policy at this number of users for at most --seconds, beside uniform play,
    the best single arm and the non-private counterpart. Reports the expected regret, the users and
    the epsilon from which learning pays, the size of reports, and the settings to use; or that
    learning does not pay.
    """
    start = time.monotonic()
    device = chosen_device()
    validate.between("seconds", seconds, 15.0, 86_400.0, closed=True)
    validate.whole("jobs", jobs, high=64)
    use_device(device)
    planning = _build_planning(fields)
    place = Place.at(out, _FILES, what="plan", force=force)
    for warning in planning.warnings():
        complain("warning", warning)
    prepare = functools.partial(prepared, device, list_loaded())
    remaining = seconds - _AROUND_S - (time.monotonic() - start)
    simulated = _simulate(planning, seconds=remaining, jobs=jobs, prepare=prepare)
    advice = Advice(planning=planning, played=simulated)
    command = _format_command(planning, seconds=seconds, jobs=jobs)
    document = {
        **advice.to_dict(),
        "config": settings(advice),
        "parameters": planning.parameters(),
        "command": command,
        "versions": versions(),
        "machine": machine(),
    }
    files: dict[str, Path] = {}
    try:
        if place is not None:
            files = place.write(_build_files(advice, document))
    finally:  # what was simulated is shown, even where it cannot be kept
        document["files"] = {name: str(path) for name, path in files.items()}
        if as_json:
            print_json(document)
        else:
            _print_page(advice, files)


def _build_planning(fields: dict[str, Any]) -> Planning:
    """Build the planning of these options, on data or in a family of environments."""
    data = {name: fields.pop(name) for name in NAMES}
    fields["trusts"] = tuple(dict.fromkeys(fields["trusts"]))
    if data["data"] is None:
        check_without(data)
        parameters = _split_parameters(dict(fields.pop("options")), str(fields["env"]))
        return Planning(**parameters, **fields)
    for name in ("dim", "arms", "options"):
        if fields[name] not in (None, ()):
            spelled = "env-param" if name == "options" else name
            raise InvalidValueError(f"{spelled} is given, and data say it themselves; leave it out")
    if click.get_current_context().get_parameter_source("env") is not ParameterSource.DEFAULT:
        raise InvalidValueError(
            f"env is {fields['env']!r}, and the environment is that of the data; leave it out"
        )
    return Planning(data=environment_of(data), **fields)


def _split_parameters(parameters: dict[str, Any], env: str) -> dict[str, Any]:
    """Return the fields of `Planning` for parameters of the environment."""
    noise = parameters.pop("noise", Planning.noise)
    strength = _read_strength(parameters.pop("strength", None)) if env == FAMILY else None
    return {"noise": noise, "strength": strength, "options": tuple(parameters.items())}


def _read_strength(value: object) -> tuple[float, float] | None:
    if value is None:
        return None
    low, _, high = str(value).partition(":")
    try:
        return float(low), float(high or low)
    except ValueError:
        raise InvalidValueError(
            f"strength is {value!r}; give it as in --env-param strength=0.2:0.6"
        ) from None


def _simulate(planning: Planning, *, seconds: float, jobs: int, prepare: Any) -> SimulatedRuns:
    with progress_bar() as bar:
        task = bar.add_task("starting", total=seconds)
        return play(
            planning,
            seconds=seconds,
            jobs=jobs,
            prepare=prepare,
            watch=lambda stage, past: bar.update(task, description=stage, completed=past),
        )


def _format_command(planning: Planning, *, seconds: float, jobs: int) -> str:
    """Format the command line that repeats this plan."""
    parameters = planning.parameters() | {"seconds": seconds, "jobs": jobs}
    arguments = ["kerchief", *flags(), "plan"]
    for name, value in parameters.items():
        for entry in value if isinstance(value, list) else [value]:
            arguments += [f"--{name.replace('_', '-')}", str(entry)]
    return shlex.join(arguments)


def _build_files(advice: Advice, document: dict[str, Any]) -> dict[str, bytes]:
    """Build the files, as far as there are libraries to make them."""
    contents = {
        "config": str(document["config"]).encode(),
        "rows": (json.dumps(document, indent=2, allow_nan=False) + "\n").encode(),
    }
    lacking = missing(*NEEDS)
    if lacking:
        complain(
            "warning",
            f"the page will not be written without {', '.join(lacking)}: run "
            f"{format_install_command('report')}",
        )
    else:
        contents["picture"] = plan_page.picture(advice)
        page = plan_page.render(
            advice,
            command=str(document["command"]),
            config=str(document["config"]),
            image=contents["picture"],
        )
        contents["report"] = page.encode()
    return contents


def _print_page(advice: Advice, files: dict[str, Path]) -> None:
    """Print the verdict, the table, requirements, reports and assumptions."""
    print_wrapped(advice.sentence())
    headings = [heading.format(advice.measure) for heading in HEADINGS]
    print_table(headings, [row.texts() for row in advice.rows], columns="llrrrR")
    for line in advice.needs():
        print_wrapped(line)
    wire = advice.best.wire
    print_wrapped(f"{advice.use()}{f': {wire.text()}' if wire else ''}.")
    for line in advice.notes():
        print_wrapped(line)
    for sentence in kept_promises(advice.plan, (row.cell for row in advice.private)):
        print_wrapped(sentence)
    if not files:
        click.echo("--out FOLDER writes the page, its picture and the settings (plan.toml)")
    for name, path in files.items():
        click.echo(f"{name}: {path}")
