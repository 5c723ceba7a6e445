"""Keep names that say nothing from spreading: `python -m tools.vague_names [--write]`.

Counts, in each package folder, how many of the names that code binds are pronouns, participles or
fillers (`vague_names.txt`). The share of a folder may not exceed the share recorded in
`vague_names.json`. `--write` records today's shares where they are lower, and those of new folders.
"""

from __future__ import annotations

import ast
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RECORD = Path(__file__).with_suffix(".json")
SOURCES = ("src/kerchief", "device/src", "tools")
VAGUE = frozenset(Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").split())


def read_bound_names(tree: ast.AST) -> Iterator[str]:
    """Yield each name that a file binds: variables, attributes, arguments, functions, classes."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name
            case ast.arg(arg=name):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.ClassDef(name=name):
                yield name
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
                yield name
            case ast.MatchStar(name=str(name)):
                yield name


def count_names(root: Path = ROOT) -> dict[str, tuple[int, int]]:
    """Return for each folder how many of its names are vague, and how many names it binds."""
    vague, total = Counter[str](), Counter[str]()
    for source in SOURCES:
        for path in sorted((root / source).rglob("*.py")):
            parts = path.relative_to(root / source).parts
            folder = f"{source}/{parts[0]}" if len(parts) > 1 else source
            for name in read_bound_names(ast.parse(path.read_text(encoding="utf-8"))):
                letters = name.strip("_").lower()
                total[folder] += bool(letters)
                vague[folder] += letters in VAGUE
    return {folder: (vague[folder], count) for folder, count in sorted(total.items()) if count}


def find_excesses(
    counts: Mapping[str, tuple[int, int]], limits: Mapping[str, float]
) -> dict[str, str]:
    """Return a message for each folder whose share is above its limit."""
    messages = {}
    for folder, (vague, total) in counts.items():
        limit, share = limits.get(folder, 0.0), compute_share(vague, total)
        if share > limit:
            messages[folder] = (
                f"{folder} has {share} % vague names ({vague} of {total}); at most {limit} % are "
                "allowed. Name what the value is."
            )
    return messages


def compute_share(vague: int, total: int) -> float:
    """Return a share in percent, to two decimals.

    >>> compute_share(1, 3)
    33.33
    """
    return round(100 * vague / total, 2)


def main() -> int:
    """Compare the shares with the record, or write lower ones."""
    counts = count_names()
    limits: dict[str, float] = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    if "--write" in sys.argv[1:]:
        shares = {folder: compute_share(*count) for folder, count in counts.items()}
        lowest = {folder: min(share, limits.get(folder, share)) for folder, share in shares.items()}
        RECORD.write_text(json.dumps(lowest, indent=2) + "\n")
        return 0
    messages = find_excesses(counts, limits)
    for message in messages.values():
        print(message)
    vague, total = (sum(column) for column in zip(*counts.values(), strict=True))
    print(f"{compute_share(vague, total)} % of {total} names are vague")
    return 1 if messages else 0


if __name__ == "__main__":
    sys.exit(main())
