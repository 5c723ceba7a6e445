"""`kerchief ledger`: read what was charged, and price it again."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from kerchief.cli import options
from kerchief.cli.printing import complain, print_json, print_table, print_wrapped
from kerchief.core.errors import InvalidValue
from kerchief.privacy.events import Event
from kerchief.privacy.guarantee import Guarantee, Trust
from kerchief.privacy.receipts import Receipt, read_ledger
from kerchief.privacy.review import Opinion, Review, review
from kerchief.roles.admission import describe_honest_part
from kerchief.roles.context_free import unpacked
from kerchief.roles.verify import check_releases, read_chain
from kerchief.roles.verify import verify as verified
from kerchief_wire.chain import export as exported

# Letters of an author's text that are shown: on a usual terminal they begin no second line.
_MOST_NAMED = 40


@click.group()
def ledger() -> None:
    """Read a ledger: what ran, what it means, and what it cost."""


_visits = click.option(
    "--visits",
    default=1,
    show_default=True,
    help="How often each user came; a ledger speaks of users who came once.",
)


@ledger.command()
@click.argument("file", type=click.Path(path_type=Path))
@_visits
@options.json_output
def show(*, file: Path, visits: int, as_json: bool) -> int:
    """Print every receipt, and what the worst-off user spent by two accountants.

    Leaves with 1 if the accountants disagree or the budget was overspent.
    """
    if file.is_dir():
        raise InvalidValue(
            f"{file} is a folder; give a ledger's file, or run kerchief ledger verify"
        )
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidValue(f"{file} cannot be read: {error}; give a file from a ledger") from error
    budget, receipts = read_ledger(text)
    read = review(budget, receipts, visits=visits)
    if as_json:
        print_json(_document(read, receipts))
    else:
        # The file of a ledger does not say which problem was played.
        _print(read, receipts, protected="record")
    return _judged(read)


@ledger.command()
@click.argument("place")
@_visits
@click.option("--head", help="A hash that was kept elsewhere: the chain must contain it.")
@options.json_output
def verify(*, place: str, visits: int, head: str | None, as_json: bool) -> int:
    """Check a task's chain from PLACE alone: hashes, payments, draws, and what was spent.

    PLACE is a folder of a Bandit, a store (a file or a URL), or what `kerchief ledger export`
    wrote. Leaves with 1 if the accountants disagree or the budget was overspent, and with 2 if the
    chain is not whole.
    """
    lines, releases = read_chain(place)
    found = verified(lines, visits=visits, head=head)
    books, read = found.books, found.review
    if releases is not None:
        check_releases(books, releases)
    if as_json:
        told = {"task": books.task.id.hex(), "head": books.head.hex(), "lines": len(lines)}
        state = {"draws": len(books.drawn), "epochs": len(books.epochs), "ended": books.ended}
        print_json({**told, **state, **_document(read, books.receipts)})
    else:
        problem = unpacked(books.task.bandit, books.task.problem)
        _print(read, books.receipts, protected=problem.protected)
        if books.task.trust == Trust.SHUFFLE:
            print_wrapped(describe_honest_part(books.task.promise.honest))
        print_wrapped("The chain does not show who was admitted, nor how often.")
        print_wrapped(f"task {books.task.id.hex()}")
        _print_named("task", books.task.name)
        print_wrapped(f"{len(lines)} lines, {len(books.drawn)} draws, head {books.head.hex()}")
        click.echo("The chain is whole, and what was drawn is what was paid for.")
    return _judged(read)


@ledger.command()
@click.argument("place")
def export(*, place: str) -> None:
    """Write the chain of the task at PLACE to standard output, one line for each line of it."""
    lines, _ = read_chain(place)
    click.echo(exported(lines), nl=False)


def _judged(read: Review) -> int:
    if not read.agree:
        complain("warning", "the two accountants disagree; the larger epsilon is reported")
    if not read.kept:
        complain("warning", "more was spent than was promised")
    return int(not (read.agree and read.kept))


def _document(read: Review, receipts: Sequence[Receipt]) -> dict[str, object]:
    second = read.second
    return {
        "budget": read.budget.to_dict(),
        "receipts": [one.to_dict() | {"meaning": _meaning(one.event)} for one in receipts],
        "visits": read.visits,
        "ours": _finite(read.ours),
        "second": None
        if second is None
        else {"epsilon": _finite(second.epsilon), "method": second.method, "exact": second.exact},
        "agree": read.agree,
        "kept": read.kept,
        "spent": {"epsilon": _finite(read.spent.epsilon), "delta": read.spent.delta},
    }


def _print(read: Review, receipts: Sequence[Receipt], *, protected: str) -> None:
    rows = [
        (
            str(one.number),
            str(one.bill),
            _facts(one.event),
            f"{one.cohort.first} to {one.cohort.last - 1}",
            str(one.capacity),
            "open" if one.used is None else str(one.used),
        )
        for one in receipts
    ]
    print_table(("no.", "bill", "event", "rounds", "paid", "used"), rows, columns="rrllrr")
    for kind in dict.fromkeys(type(one.event) for one in receipts):
        print_wrapped(f"{kind.kind}: {_meaning(kind)}")
    opinions = [
        ("ours", "exact where a family is, else the least of several bounds", _number(read.ours)),
        ("dp-accounting", *_opinion(read.second)),
    ]
    often = "" if read.visits == 1 else f", who came {read.visits} times"
    print_table(
        ("accountant", "method", "epsilon"),
        opinions,
        columns="llr",
        title=f"the worst-off user{often}, at delta {read.budget.delta:g}",
    )
    for word, guarantee in (("promised", read.budget), ("spent", read.spent)):
        # The author's own word for a unit stands outside of what was computed.
        neutral = guarantee if _is_user(guarantee) else replace(guarantee, unit="unit")
        print_wrapped(f"{word}: {neutral.sentence(protected=protected)}")
    if not _is_user(read.budget):
        _print_named("unit", read.budget.unit)
    if any(receipt.bill for receipt in receipts):
        print_wrapped(
            "Bills after a user's first may have been chosen by earlier releases. The accountants "
            "price all as fixed in advance; what is spent adds up their epsilons, or rho of zCDP."
        )
    if not read.is_proved:
        print_wrapped(
            f"All {read.visits} visits are priced in the one cohort where they cost most; visits "
            "spread over unequal cohorts might cost more, as only for normal noise is it proved "
            "that they do not."
        )


def _is_user(guarantee: Guarantee) -> bool:
    return guarantee.unit == "user"


def _print_named(what: str, text: str) -> None:
    """Print a text that was not computed, in quotes that it cannot end, and on one short line."""
    short = text.replace('"', "'")
    short = short if len(short) <= _MOST_NAMED else f"{short[:_MOST_NAMED]}..."
    click.echo(f'named by the chain\'s author: {what} "{short}"')


def _opinion(second: Opinion | None) -> tuple[str, str]:
    """How the second accountant reads it, whether its number may be too large, and the number."""
    if second is None:
        return "no word for an event", "-"
    how = ", exact" if second.exact else ": a looser bound, from above"
    return second.method + how, _number(second.epsilon)


def _facts(event: Event) -> str:
    """An event in a few words: its kind and its numbers."""
    numbers = ", ".join(
        f"{name} {value:.6g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in event.to_dict().items()
        if name != "kind"
    )
    return f"{event.kind}: {numbers}" if numbers else event.kind


def _meaning(event: Event | type[Event]) -> str:
    """The first sentence of what the event is defined to be."""
    return (inspect.getdoc(event) or "").partition("\n")[0]


def _finite(value: float) -> float | None:
    """JSON has no infinity: null stands for no bound."""
    return None if value == float("inf") else value


def _number(value: float) -> str:
    return "no bound" if value == float("inf") else f"{value:.6g}"
