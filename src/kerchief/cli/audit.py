"""`kerchief audit`: a lower bound on the epsilon of a policy or a mechanism."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import click

from kerchief.audits import KINDS, Audit, Subject, entries, find, one_run
from kerchief.audits.picture import picture
from kerchief.cli import options
from kerchief.cli.device import use_device
from kerchief.cli.global_options import chosen_device, with_plugins
from kerchief.cli.printing import complain, print_json, print_table, progress_bar
from kerchief.core.errors import InvalidValueError
from kerchief.reports.extras import require
from kerchief.reports.output_path import Place

_FILES = {"picture": "audit.png"}

# The chance that a bound is wrong: of a single audit, and of each where all are run.
_FAILURE, _FAILURE_OF_ALL = 0.05, 1e-3


@click.command()
@click.argument("name", required=False)
@click.option(
    "--trust",
    metavar=options.PRIVATE_TRUSTS,
    help="Trust model.  [default: the first under which NAME has a guarantee]",
)
@click.option(
    "--kind",
    metavar="|".join(KINDS),
    help="Kind of NAME.  [default: the first of these kinds that has the name]",
)
@click.option("--all", "everything", is_flag=True, help="Audit every policy and mechanism in turn.")
@options.epsilon
@options.delta
@click.option(
    "--replicates",
    type=int,
    help="Number of runs on each of two adjacent inputs.  [default: 20000 for a policy, its own "
    "for a mechanism]",
)
@click.option(
    "--canaries",
    type=int,
    help="Number of canaries: audit the fits of a policy from a single run instead.",
)
@options.seed
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Folder for the picture of the two distributions.  [default: none]",
)
@click.option("--force", is_flag=True, help="Replace an earlier picture in the folder.")
@with_plugins
@options.json_output
def audit(
    *,
    name: str | None,
    trust: str | None,
    kind: str | None,
    everything: bool,
    epsilon: float,
    delta: float,
    replicates: int | None,
    canaries: int | None,
    seed: int,
    out: Path | None,
    force: bool,
    as_json: bool,
) -> int:
    """Bound the epsilon of NAME from below, by distinguishing two adjacent inputs.

    NAME is a policy or a mechanism. The exit code is 1 if the bound exceeds the claimed epsilon:
    then the claim is false.
    """
    use_device(chosen_device())
    run_audit = partial(Subject.audit, epsilon=epsilon, delta=delta, runs=replicates, seed=seed)
    if everything == (name is not None):
        raise InvalidValueError("name one bandit or mechanism, or say --all")
    if name is None:
        if trust or kind or canaries is not None or out or force:
            raise InvalidValueError(
                "--all audits everything; say no trust, kind, canaries, folder or force"
            )
        audits = [
            (subject.kind, run_audit(subject, failure=_FAILURE_OF_ALL))
            for subject in _track_progress(entries())
        ]
        return _show_all(audits, as_json=as_json)
    place: Place | None = None
    if canaries is not None:
        if trust not in (None, "joint") or kind or replicates is not None or out or force:
            raise InvalidValueError(
                "canaries are one run of fits under joint trust, without a picture; say no other "
                "trust, kind, replicates, folder or force"
            )
        result = one_run(name, epsilon=epsilon, delta=delta, canaries=canaries, seed=seed)
    else:
        if out is not None:
            require("picture", instead="leave --out away")
        subject = find(name, trust=trust, kind=kind)
        place = Place.at(out, _FILES, what="audit", force=force)
        result = run_audit(subject, failure=_FAILURE)
    files: dict[str, Path] = {}
    try:
        if place is not None:
            files = place.write({"picture": picture(result)})
    finally:  # what was found is told, even where the picture cannot be kept
        code = _show(result, [*files.values()], as_json=as_json)
    return code


def _show(result: Audit, files: list[Path], *, as_json: bool) -> int:
    """Print one audit as a table or as one JSON object, and return the exit code."""
    if as_json:
        print_json(result.to_dict())
    else:
        facts = [(name.replace("_", " "), _text(value)) for name, value in result.to_dict().items()]
        print_table(("the audit", ""), facts, columns="lr")
        for path in files:
            click.echo(f"picture: {path}")
        click.echo(
            f"epsilon is at least {result.epsilon_lower:.3g} (confidence {1 - result.failure:g}), "
            f"claimed is {result.claim.epsilon:g}; an audit is an alarm, not a proof"
        )
    if not result.kept:
        complain("warning", "the claim is false: more can be told than it allows")
    return int(not result.kept)


def _track_progress(subjects: Iterable[Subject]) -> Iterator[Subject]:
    """Yield subjects one by one, with a progress bar."""
    everything = list(subjects)
    with progress_bar() as bar:
        task = bar.add_task("auditing", total=len(everything))
        for subject in everything:
            bar.update(task, description=f"{subject.name}, {subject.trust}")
            yield subject
            bar.advance(task)


def _show_all(audits: Iterable[tuple[str, Audit]], *, as_json: bool) -> int:
    """Print all audits, one line each, or as one JSON object."""
    lines = [{"kind": kind, **result.to_dict()} for kind, result in audits]
    false_claims = [line for line in lines if not line["kept"]]
    if as_json:
        print_json({"audits": lines})
    else:
        columns = (
            "kind",
            "name",
            "trust",
            "noise",
            "epsilon_lower",
            "epsilon_claimed",
            "replicates",
        )
        rows = [[_text(line[column]) for column in columns] for line in lines]
        print_table([column.replace("_", " ") for column in columns], rows, columns="llllrrr")
        click.echo(
            f"each bound holds with confidence {1 - _FAILURE_OF_ALL:g}; an audit is an alarm, not "
            "a proof"
        )
    for line in false_claims:
        complain("warning", f"the claim of {line['name']} ({line['trust']}) is false")
    return int(bool(false_claims))


def _text(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
