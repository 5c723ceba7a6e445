"""`kerchief check`: conformance checks of a policy, an environment, a mechanism or a ledger."""

from __future__ import annotations

import dataclasses
import importlib
import sys
from pathlib import Path
from typing import Any

import click

from kerchief.checks import check as hold
from kerchief.checks.errors import Report
from kerchief.cli import options
from kerchief.cli.device import use_device
from kerchief.cli.global_options import chosen_device, with_plugins
from kerchief.cli.printing import complain, print_json
from kerchief.core.errors import InvalidValueError
from kerchief.privatizers.registry import TRUSTS


@click.command()
@click.argument("name")
@click.option(
    "--trust",
    metavar=options.words(TRUSTS),
    help="Trust model.  [default: each under which NAME may run]",
)
@click.option("--thorough", is_flag=True, help="Run simulations too, which takes minutes.")
@with_plugins
@options.json_output
def check(*, name: str, trust: str | None, thorough: bool, as_json: bool) -> int:
    """Run the conformance checks on NAME; the exit code is 1 if one fails.

    NAME is a registered policy, environment, mechanism or trust model, or `module:Class` that
    Python finds here or in its path: a class of policies, mechanisms or ledgers.
    """
    use_device(chosen_device())
    subject = _import_subject(name) if ":" in name else name
    trusts = None if trust is None else (trust,)
    report = hold(subject, trusts=trusts, thorough=thorough, raises=False)
    if as_json:
        print_json({"kept": report.kept, "laws": [dataclasses.asdict(o) for o in report.outcomes]})
    else:
        click.echo(str(report))
        click.echo(_summarize(report))
    if not report.kept:
        complain("warning", f"{len(report.failures)} of the laws are broken")
    return int(not report.kept)


def _summarize(report: Report) -> str:
    kept_count = sum(outcome.result == "kept" for outcome in report.outcomes)
    seconds = sum(outcome.seconds for outcome in report.outcomes)
    return f"{kept_count} laws kept, {len(report.failures)} broken, in {seconds:.0f} s"


def _import_subject(name: str) -> Any:
    """Import the class that `module:Class` names."""
    module, _, attribute = name.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidValueError(f"name is {name!r}: {error}; write module:Class") from error
    finally:
        sys.path.pop(0)
