"""Write the generated pages of the documentation: `python -m tools.pages`."""

from __future__ import annotations

from pathlib import Path

from tools import algorithm_page, catalogue_page, proofs_page

_DOCS = Path(__file__).parents[1] / "docs"


def write_pages(docs: Path) -> None:
    """Write the pages of proofs, of the catalogue, and of algorithms by line."""
    pages = {
        "proofs.md": proofs_page.page(),
        "experiments.md": catalogue_page.page(),
        "papers/algorithm_by_line.md": algorithm_page.page(docs / "papers" / "algorithms.toml"),
    }
    for name, text in pages.items():
        (docs / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write_pages(_DOCS)
