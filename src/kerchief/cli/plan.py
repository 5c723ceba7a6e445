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
from kerchief.cli.data import NAMES, check_without, of_data, world_of
from kerchief.cli.device import use_device
from kerchief.cli.options import PRIVATE_TRUSTS, words
from kerchief.cli.playing import prepared
from kerchief.cli.plugins import plugin_option
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
from kerchief.environments.worlds import NOISES
from kerchief.planning import plan_page
from kerchief.planning.advice import HEADINGS, Advice
from kerchief.planning.budgeted_runner import play
from kerchief.planning.pilot_runs import SimulatedRuns
from kerchief.planning.plan_config import settings
from kerchief.planning.planning import ANY, FAMILY, STRENGTH, Planning
from kerchief.reports.extras import NEEDS, format_install_command, missing
from kerchief.reports.output_path import Place
from kerchief.reports.report import kept_promises

# Seconds for what comes before the simulations, and for the page after them.
_AROUND_S = 6.0
_FILES = {"config": "plan.toml", "rows": "plan.json", "picture": "plan.png", "report": "plan.html"}

_reward = click.option(
    "--reward",
    metavar=f"{words(NOISES)}|COLUMN",
    help="Without data, how rewards fall around their mean; of logs, the column of what was given."
    f"  [default: {Planning.reward}]",
)


@click.command()
@click.option("--users", type=int, help="How many users there are.  [default: those of the data]")
@functools.partial(of_data, reward=_reward)
@options.option("--env", "The world, without data.", default=FAMILY, metavar="NAME")
@options.dim
@options.of_world("--arms", type=int, help="How many arms there are.")
@click.option(
    "--strength",
    metavar="LOW:HIGH",
    help="How much arms differ, from 0 to 1: each simulated world draws its own.  "
    f"[default: {'{:g}:{:g}'.format(*STRENGTH)}]",
)
@options.pairs("--option", "options", help="A further option of the world, such as radius=0.3.")
@options.option("--policy", "The bandit that learns.", default=Planning.policy, metavar="NAME")
@click.option(
    "--trust",
    "trusts",
    multiple=True,
    default=Planning.trusts,
    show_default=True,
    metavar=f"{ANY}|{PRIVATE_TRUSTS}",
    help="Whom users may be asked to trust. Repeatable.",
)
@options.epsilon
@options.option("--delta", "Privacy asked for; below 1/users.", default=Planning.delta)
@options.seed
@options.option("--seconds", "How long it may take.", default=60.0, type=float)
@options.option("--jobs", "Processes that play at once.", default=2, type=int)
@options.device
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Folder for the page, the picture, the figures and the settings.  [default: none]",
)
@click.option("--force", is_flag=True, help="Replace an earlier plan in that folder.")
@plugin_option
@json_output
def plan(
    *,
    seconds: float,
    jobs: int,
    device: str,
    out: Path | None,
    force: bool,
    as_json: bool,
    **fields: Any,
) -> None:
    """Tell what privacy will cost, and under which trust, before anything is built.

    Simulates the private bandits at this number of users for at most --seconds, beside uniform
    play, the best single arm and no privacy, and says what to expect, how many users and which
    epsilon it takes until learning pays, what devices send, and which settings to use; or that
    nobody should be asked for anything.
    """
    start = time.monotonic()
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
    strength = _read_strength(fields.pop("strength"))
    fields["trusts"] = tuple(dict.fromkeys(fields["trusts"]))
    if data["data"] is None:
        reward = data.pop("reward") or Planning.reward
        check_without(data)
        return Planning(reward=reward, strength=strength, **fields)
    for name in ("dim", "arms", "strength", "options"):
        if (strength if name == "strength" else fields[name]) not in (None, ()):
            raise InvalidValueError(f"{name} is given, and data say it themselves; leave it out")
    if click.get_current_context().get_parameter_source("env") is not ParameterSource.DEFAULT:
        raise InvalidValueError(
            f"env is {fields['env']!r}, and the world is that of the data; leave it out"
        )
    return Planning(data=world_of(data), strength=None, **fields)


def _read_strength(text: str | None) -> tuple[float, float] | None:
    if text is None:
        return None
    low, _, high = text.partition(":")
    try:
        return float(low), float(high or low)
    except ValueError:
        raise InvalidValueError(f"strength is {text!r}; give it as in --strength 0.2:0.6") from None


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
    arguments = ["kerchief", "plan", *flags()]
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
