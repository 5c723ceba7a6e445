"""Compare what two commits compute: regret, wire vectors, and JSON and exit codes of commands.

Run `python tools/golden_record.py COMMIT` in the environment of `make test`. It plays every entry
from COMMIT and from the working tree on this machine, applies the renames below to what COMMIT
prints, and lists the entries that differ. The exit code is 1 if one differs that `CHANGED` does not
list. Nothing is stored: floating-point results differ between processors.

Delete this file when the contracts and the mathematics are written once.
"""

from __future__ import annotations

import argparse
import fnmatch
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

# Renames since COMMIT, applied to its side: options to what is typed, words to keys and values.
OPTIONS: Mapping[str, str] = {}
WORDS: Mapping[str, str] = {
    "alone": "per_report",
    "numbers": "parameters",
    "right": "found_best",
    "stuck": "unconverged",
    "world": "environment",
    "worlds": "environments",
}
# Entries (shell patterns) that changed on purpose, with the reason.
CHANGED: Mapping[str, str] = {
    "*/command": "options have other names",
    "regret/*/parameters/*": "options have other names",
    "json/list policies*": "summaries are plain sentences, and variants name their policy",
    "json/list proofs*": "notes are named after their modules",
    "json/list trusts*": "policies of disjoint models are registered first",
}

# Keys of JSON that no seed fixes.
VOLATILE = frozenset(
    {"commit", "device", "folder", "generation_s", "microseconds", "path", "paths", "seconds"}
    | {"versions"}
)
RUN = ("--horizon", "256", "--replicates", "2", "--epsilon", "1")
# Arguments whose JSON and exit code are compared.
JSON_COMMANDS = (
    "list policies",
    "list environments",
    "list mechanisms",
    "list trusts",
    "list experiments",
    "list proofs",
    "list policies --source sarmasarkar2026",
    "calibrate --epsilon 1 --delta 1e-5 --trust local",
    "calibrate --epsilon 1 --delta 1e-5 --trust shuffle",
    "calibrate --epsilon 1 --delta 1e-5 --trust joint",
    "calibrate --epsilon 1 --delta 1e-5 --trust central",
    "check linucb --trust local",
    "audit gaussian --kind mechanism",
    "reproduce tsallis --quick",
    "reproduce table-two --quick",
)
# Arguments of which the exit code alone is compared.
EXIT_COMMANDS = (
    "",
    "--version",
    "compare --policy nobody",
    "compare --epsilon -1",
    "compare --trust joint --policy tsallis",
    "compare --env nowhere",
    "compare --resume --policy linucb",
    "calibrate --epsilon 0 --trust local",
    "calibrate --epsilon 1 --delta 2 --trust joint",
    "check nobody",
    "audit nobody",
    "reproduce nobody",
    "ledger show missing.json",
    "ledger verify missing",
    "ledger export missing",
    "list policies --source nobody",
    "plan --users 0",
    "tune nobody",
    "value",
    "leaderboard --epsilon 0",
)


class Checkout:
    """A source tree whose commands are run in an empty folder."""

    def __init__(self, root: Path, folder: Path, *, renames: bool) -> None:
        """Take the tree at `root`; `renames` says that its names are those of the old commit."""
        self._root, self._folder, self._renames = root, folder, renames

    def run(self, arguments: list[str]) -> tuple[int, str]:
        """Run a command, and return its exit code and what it printed."""
        if self._renames:
            olds = {new: old for old, new in OPTIONS.items()}
            arguments = [olds.get(argument, argument) for argument in arguments]
        paths = os.pathsep.join(str(self._root / source) for source in ("src", "device/src"))
        done = subprocess.run(
            [sys.executable, "-m", "kerchief.cli", *arguments],
            cwd=self._folder,
            env={**os.environ, "PYTHONPATH": paths, "JAX_PLATFORMS": "cpu"},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout

    def record(self, entry: str, arguments: list[str], *, is_json: bool) -> dict[str, Any]:
        """Return the values of one entry by their names."""
        code, printed = self.run([*arguments, *(["--json"] if is_json else [])])
        values: dict[str, Any] = {f"{entry}/exit": code}
        if is_json and printed.strip():
            values |= dict(self._flatten(entry, json.loads(printed)))
        return values

    def vectors(self) -> dict[str, Any]:
        """Return digests of the wire vectors by their names."""
        digests = {}
        for file in sorted((self._root / "tests/vectors").glob("*.json")):
            flat = list(self._flatten("", json.loads(file.read_text())))
            digest = hashlib.sha256(json.dumps(flat).encode()).hexdigest()
            digests[f"vectors/{file.name}"] = digest
        return digests

    def policies(self) -> list[str]:
        """Return the names of all policies."""
        _, printed = self.run(["list", "policies", "--json"])
        return [entry["name"] for entry in json.loads(printed)["policies"]]

    def _flatten(self, path: str, node: Any) -> Iterator[tuple[str, Any]]:
        """Name every leaf of a JSON document by its path."""
        if isinstance(node, dict):
            for key in sorted(node, key=self._rename):
                if key not in VOLATILE:
                    yield from self._flatten(f"{path}/{self._rename(key)}", node[key])
        elif isinstance(node, list):
            for number, element in enumerate(node):
                yield from self._flatten(f"{path}/{number}", element)
        else:
            yield path, self._rename(node) if isinstance(node, str) else node

    def _rename(self, word: str) -> str:
        return WORDS.get(word, word) if self._renames else word


def read_entries(old: Checkout) -> Iterator[tuple[str, list[str], bool]]:
    """Name all entries, with their arguments and whether their JSON is compared."""
    for policy in old.policies():
        yield f"regret/{policy}", ["compare", "--policy", policy, *RUN, "--out", policy], True
    for line in JSON_COMMANDS:
        yield f"json/{line}", [*line.split(), *_out(line)], True
    for line in EXIT_COMMANDS:
        yield f"exit/{line}", line.split(), False


def _out(line: str) -> list[str]:
    return ["--out", line.replace(" ", "_")] if line.startswith("reproduce") else []


def main() -> int:
    """Compare a commit with the working tree."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit")
    parser.add_argument("--only", default="*", help="shell pattern of entries, such as 'regret/*'")
    options = parser.parse_args()
    root = Path(__file__).resolve().parents[1]
    with tempfile.TemporaryDirectory() as temporary:
        tree = Path(temporary) / "tree"
        add = ["git", "worktree", "add", "--detach", "--quiet", str(tree), options.commit]
        subprocess.run(add, cwd=root, check=True)
        try:
            trees = []
            for name, source in (("old", tree), ("new", root)):
                (folder := Path(temporary) / name).mkdir()
                trees.append(Checkout(source, folder, renames=name == "old"))
            return _compare(*trees, pattern=options.only)
        finally:
            remove = ["git", "worktree", "remove", "--force", str(tree)]
            subprocess.run(remove, cwd=root, check=True)


def _compare(old: Checkout, new: Checkout, *, pattern: str) -> int:
    """Play all entries in both trees, and print what differs."""
    entries = [entry for entry in read_entries(old) if fnmatch.fnmatch(entry[0], pattern)]
    before, after = old.vectors(), new.vectors()
    with ThreadPoolExecutor(2) as pool:
        for name, arguments, is_json in entries:
            records = [
                pool.submit(tree.record, name, arguments, is_json=is_json) for tree in (old, new)
            ]
            old_values, new_values = (record.result() for record in records)
            before |= old_values
            after |= new_values
            state = "equal" if old_values == new_values else "differs"
            print(f"{name}: {len(old_values)} values, {state}", flush=True)
    differing = [key for key in sorted({*before, *after}) if before.get(key) != after.get(key)]
    failures = 0
    for key in differing:
        reason = next((CHANGED[glob] for glob in CHANGED if fnmatch.fnmatch(key, glob)), None)
        failures += reason is None
        print(f"{key}: {before.get(key)!r} -> {after.get(key)!r} ({reason or 'NOT LISTED'})")
    print(f"{len(before)} values, {len(differing)} differ, {failures} of them are not listed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
