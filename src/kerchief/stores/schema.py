"""The tables, in numbered versions; both databases have the same ones."""

from __future__ import annotations

from dataclasses import dataclass

from kerchief.stores.link import Link
from kerchief_protocol.errors import StoreError

APPEND_ONLY = ("chain", "releases")
"""Tables whose rows are numbered without gaps, and never changed nor deleted."""


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """How a database says what the tables need.

    Attributes:
        bytes: the type of bytes.
        whole: the type of a whole number of 64 bits.
        key: the type of a key that numbers its rows itself.
        strict: follows an ordinary table.
        tight: follows a table that is ordered by its primary key.
        triggers: statements that keep the tables of `APPEND_ONLY` as they are.
    """

    bytes: str
    whole: str
    key: str
    strict: str
    tight: str
    triggers: tuple[str, ...]


def migrate(link: Link, dialect: Dialect) -> None:
    """Bring the tables up to this version; the link is in an exclusive transaction.

    Raises:
        StoreError: a newer version of kerchief made them, or they were changed.
    """
    versions = (_list_first_statements(dialect),)
    with link.guard():
        link.run("CREATE TABLE IF NOT EXISTS meta (version INTEGER NOT NULL)", ())
        numbers = [number for (number,) in link.run("SELECT version FROM meta", ())]
    if not all(type(number) is int and number > 0 for number in numbers):
        raise StoreError("the store has a schema without a number; its file was changed")
    version = max(numbers, default=0)
    if version > len(versions):
        raise StoreError(
            f"the store has schema {version}; this kerchief knows {len(versions)}: update it"
        )
    for number, statements in enumerate(versions[version:], version + 1):
        with link.guard():
            for statement in statements:
                link.run(statement, ())
            link.run("INSERT INTO meta (version) VALUES (?)", (number,))


def _list_first_statements(dialect: Dialect) -> tuple[str, ...]:
    blob, int64 = dialect.bytes, dialect.whole
    task = f"task {int64} NOT NULL REFERENCES tasks"
    # `seen`, `clients` and `bodies` take most rows: they refer to nothing, bodies grow at the end,
    # and an id or a name comes first in its key, so that no plan reads all those of a task.
    return (
        f"""CREATE TABLE tasks (key {dialect.key}, id {blob} NOT NULL UNIQUE,
        config {blob} NOT NULL, state TEXT NOT NULL CHECK (state IN ('running', 'closed')),
        epoch {int64} NOT NULL, cohort {int64} NOT NULL, releases {int64} NOT NULL,
        length {int64} NOT NULL, head {blob} NOT NULL, witnessed {blob}) {dialect.strict}""",
        f"""CREATE TABLE chain ({task}, number {int64} NOT NULL, kind TEXT NOT NULL,
        prev {blob} NOT NULL, body {blob} NOT NULL, PRIMARY KEY (task, number)) {dialect.tight}""",
        f"""CREATE TABLE releases ({task}, number {int64} NOT NULL, payload {blob} NOT NULL,
        PRIMARY KEY (task, number)) {dialect.tight}""",
        f"""CREATE TABLE seen (task {int64} NOT NULL, id {blob} NOT NULL, epoch {int64} NOT NULL,
        cohort {int64} NOT NULL, PRIMARY KEY (id, task)) {dialect.tight}""",
        f"""CREATE TABLE cohorts ({task}, cohort {int64} NOT NULL, kept {int64} NOT NULL,
        PRIMARY KEY (task, cohort)) {dialect.tight}""",
        f"""CREATE TABLE bodies (task {int64} NOT NULL, cohort {int64} NOT NULL, id {blob} NOT NULL,
        body {blob} NOT NULL) {dialect.strict}""",
        "CREATE INDEX bodies_of ON bodies (task, cohort)",
        f"""CREATE TABLE secrets (task {int64} PRIMARY KEY REFERENCES tasks,
        secret {blob} NOT NULL) {dialect.strict}""",
        f"""CREATE TABLE clients (task {int64} NOT NULL, name {blob} NOT NULL,
        used {int64} NOT NULL, PRIMARY KEY (name, task)) {dialect.tight}""",
        f"""CREATE TABLE client_keys (task {int64} PRIMARY KEY REFERENCES tasks,
        client_key {blob} NOT NULL) {dialect.strict}""",
        f"""CREATE TABLE questions ({task}, id {blob} NOT NULL, round {int64} NOT NULL,
        action {blob} NOT NULL, memo {blob} NOT NULL, due {int64} NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('asked', 'answered', 'expired')), report {blob},
        PRIMARY KEY (task, id)) {dialect.tight}""",
        "CREATE INDEX open_questions ON questions (task, due) WHERE state = 'asked'",
        f"CREATE TABLE witnessed (task {blob} PRIMARY KEY, head {blob} NOT NULL) {dialect.strict}",
        *dialect.triggers,
    )
