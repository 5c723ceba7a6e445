"""`kerchief ledger`: the charges of a ledger, and their composition computed again."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from kerchief.cli import options
from kerchief.cli.printing import complain, print_json, print_table, print_wrapped
from kerchief.core.errors import InvalidValueError
from kerchief.deployment.admission import describe_honest_part
from kerchief.deployment.context_free import unpack_problem
from kerchief.deployment.verify import check_releases, load_chain
from kerchief.deployment.verify import verify as verified
from kerchief.privacy.events import Event
from kerchief.privacy.guarantee import Guarantee, Trust
from kerchief.privacy.receipts import Receipt, read_ledger
from kerchief.privacy.review import Opinion, Review, review
from kerchief_protocol.chain import write_chain

# Letters of an author's text that are shown: on a usual terminal they begin no second line.
_MAX_LETTERS = 40


@click.group()
def ledger() -> None:
    """Show, verify or export a ledger of privacy charges."""


_visits = click.option(
    "--visits",
    default=1,
    show_default=True,
    help="Number of visits of each user; a ledger assumes one visit.",
)


@ledger.command()
@click.argument("file", type=click.Path(path_type=Path))
@_visits
@options.json_output
def show(*, file: Path, visits: int, as_json: bool) -> int:
    """Print every receipt, and the largest privacy cost of a user by two accountants.

    The exit code is 1 if the accountants disagree or the budget is exceeded.
    """
    if file.is_dir():
        raise InvalidValueError(
            f"{file} is a folder; give a ledger's file, or run kerchief ledger verify"
        )
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidValueError(
            f"{file} cannot be read: {error}; give a file from a ledger"
        ) from error
    budget, receipts = read_ledger(text)
    result = review(budget, receipts, visits=visits)
    if as_json:
        print_json(_build_document(result, receipts))
    else:
        # The file of a ledger does not say which problem was played.
        _print_review(result, receipts, protected="record")
    return _compute_exit_code(result)


@ledger.command()
@click.argument("place")
@_visits
@click.option("--head", help="Hash kept elsewhere that the chain must contain.")
@options.json_output
def verify(*, place: str, visits: int, head: str | None, as_json: bool) -> int:
    """Verify the chain of a task from PLACE alone: hashes, charges, draws and privacy cost.

    PLACE is the folder of a Bandit, a store (a file or a URL), or the output of `kerchief ledger
    export`. The exit code is 1 if the accountants disagree or the budget is exceeded, and 2 if the
    chain is incomplete.
    """
    lines, releases = load_chain(place)
    verification = verified(lines, visits=visits, head=head)
    audit_log, result = verification.audit_log, verification.review
    if releases is not None:
        check_releases(audit_log, releases)
    if as_json:
        summary = {
            "task": audit_log.task.id.hex(),
            "head": audit_log.head.hex(),
            "lines": len(lines),
        }
        state = {
            "draws": len(audit_log.draw_lines),
            "epochs": len(audit_log.epochs),
            "ended": audit_log.ended,
        }
        print_json({**summary, **state, **_build_document(result, audit_log.receipts)})
    else:
        problem = unpack_problem(audit_log.task.bandit, audit_log.task.problem)
        _print_review(result, audit_log.receipts, protected=problem.protected)
        if audit_log.task.trust == Trust.SHUFFLE:
            print_wrapped(describe_honest_part(audit_log.task.promise.honest))
        print_wrapped("The chain does not show who was admitted, nor how often.")
        print_wrapped(f"task {audit_log.task.id.hex()}")
        _print_quoted("task", audit_log.task.name)
        print_wrapped(
            f"{len(lines)} lines, {len(audit_log.draw_lines)} draws, head {audit_log.head.hex()}"
        )
        click.echo("The chain is whole, and what was drawn is what was paid for.")
    return _compute_exit_code(result)


@ledger.command()
@click.argument("place")
def export(*, place: str) -> None:
    """Write the chain of the task at PLACE to standard output, line by line."""
    lines, _ = load_chain(place)
    click.echo(write_chain(lines), nl=False)


def _compute_exit_code(result: Review) -> int:
    if not result.agree:
        complain("warning", "the two accountants disagree; the larger epsilon is reported")
    if not result.kept:
        complain("warning", "more was spent than was promised")
    return int(not (result.agree and result.kept))


def _build_document(result: Review, receipts: Sequence[Receipt]) -> dict[str, object]:
    second = result.second
    return {
        "budget": result.budget.to_dict(),
        "receipts": [
            receipt.to_dict() | {"meaning": _get_meaning(receipt.event)} for receipt in receipts
        ],
        "visits": result.visits,
        "ours": _replace_infinity(result.ours),
        "second": None
        if second is None
        else {
            "epsilon": _replace_infinity(second.epsilon),
            "method": second.method,
            "exact": second.exact,
        },
        "agree": result.agree,
        "kept": result.kept,
        "spent": {"epsilon": _replace_infinity(result.spent.epsilon), "delta": result.spent.delta},
    }


def _print_review(result: Review, receipts: Sequence[Receipt], *, protected: str) -> None:
    rows = [
        (
            str(receipt.number),
            str(receipt.bill),
            _describe_event(receipt.event),
            f"{receipt.cohort.first} to {receipt.cohort.last - 1}",
            str(receipt.capacity),
            "open" if receipt.used is None else str(receipt.used),
        )
        for receipt in receipts
    ]
    print_table(("no.", "bill", "event", "rounds", "paid", "used"), rows, columns="rrllrr")
    for kind in dict.fromkeys(type(receipt.event) for receipt in receipts):
        print_wrapped(f"{kind.kind}: {_get_meaning(kind)}")
    opinions = [
        (
            "ours",
            "exact where a family is, else the least of several bounds",
            _format_epsilon(result.ours),
        ),
        ("dp-accounting", *_describe_opinion(result.second)),
    ]
    often = "" if result.visits == 1 else f", who came {result.visits} times"
    print_table(
        ("accountant", "method", "epsilon"),
        opinions,
        columns="llr",
        title=f"the worst-off user{often}, at delta {result.budget.delta:g}",
    )
    for label, guarantee in (("promised", result.budget), ("spent", result.spent)):
        # The author's own word for a unit stands outside of what was computed.
        neutral = guarantee if _is_user(guarantee) else replace(guarantee, unit="unit")
        print_wrapped(f"{label}: {neutral.sentence(protected=protected)}")
    if not _is_user(result.budget):
        _print_quoted("unit", result.budget.unit)
    if any(receipt.bill for receipt in receipts):
        print_wrapped(
            "Bills after a user's first may have been chosen by earlier releases. The accountants "
            "price all as fixed in advance; what is spent adds up their epsilons, or rho of zCDP."
        )
    if not result.is_proved:
        print_wrapped(
            f"All {result.visits} visits are priced in the one cohort where they cost most; visits "
            "spread over unequal cohorts might cost more, as only for normal noise is it proved "
            "that they do not."
        )


def _is_user(guarantee: Guarantee) -> bool:
    return guarantee.unit == "user"


def _print_quoted(subject: str, text: str) -> None:
    """Print a text that was not computed, in quotes that it cannot end, and on one short line."""
    short = text.replace('"', "'")
    short = short if len(short) <= _MAX_LETTERS else f"{short[:_MAX_LETTERS]}..."
    click.echo(f'named by the chain\'s author: {subject} "{short}"')


def _describe_opinion(second: Opinion | None) -> tuple[str, str]:
    """Describe the method and the epsilon of the second accountant."""
    if second is None:
        return "no word for an event", "-"
    how = ", exact" if second.exact else ": a looser bound, from above"
    return second.method + how, _format_epsilon(second.epsilon)


def _describe_event(event: Event) -> str:
    """Describe an event by its kind and its numbers."""
    numbers = ", ".join(
        f"{name} {value:.6g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in event.to_dict().items()
        if name != "kind"
    )
    return f"{event.kind}: {numbers}" if numbers else event.kind


def _get_meaning(event: Event | type[Event]) -> str:
    """Get the first sentence of the definition of an event."""
    return (inspect.getdoc(event) or "").partition("\n")[0]


def _replace_infinity(value: float) -> float | None:
    """Replace infinity, which JSON does not have, by null."""
    return None if value == float("inf") else value


def _format_epsilon(value: float) -> str:
    return "no bound" if value == float("inf") else f"{value:.6g}"
