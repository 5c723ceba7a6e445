"""Write the index anew: `make index`."""

from __future__ import annotations

import json

from kerchief.cli.index import COMMANDS, PATH, Index, command
from kerchief.cli.listing import LISTINGS

_MAX_SENTENCE = 10_000  # no sentence is longer


def made() -> str:
    """The index, from the commands and the registries."""
    index = Index(
        commands={name: command(name).get_short_help_str(_MAX_SENTENCE) for name in COMMANDS},
        listings={kind: listing() for kind, listing in LISTINGS.items()},
    )
    return json.dumps(index, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    PATH.write_text(made(), encoding="utf-8")
