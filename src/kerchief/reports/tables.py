"""Tables of results as texts: for terminals and reports, and for papers as LaTeX and Markdown."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence

from kerchief.comparison.results import Result, headings_of
from kerchief.comparison.table import Table

# What a paper has no room for: it stands in the report and in the data frame.
_MINOR = ("spent ε, δ", "% uniform", "µs")


def by_world(
    rows: Sequence[Result], caption: Callable[[str], str], *, rewarded: bool = False
) -> list[Table]:
    """What was asked for, lost and risked, in one table per world."""
    return [
        _of_world(caption(world), list(group), rewarded=rewarded)
        for world, group in itertools.groupby(rows, key=lambda row: row.world)
    ]


def _of_world(caption: str, rows: Sequence[Result], *, rewarded: bool) -> Table:
    headings = headings_of(rows, rewarded=rewarded)
    places = [place for place, heading in enumerate(headings) if heading not in _MINOR]
    texts = [row.texts(rewarded=rewarded) for row in rows]
    return Table(
        caption=caption,
        headings=tuple(headings[place] for place in places),
        lines=tuple(tuple(line[place] for place in places) for line in texts),
        columns="ll".ljust(len(places), "r"),
    )


def latex(tables: Sequence[Table]) -> str:
    r"""One `tabular` per table, ready for `\input`, with its caption as a comment above it.

    >>> table = Table(caption="a_b", headings=("x", "ε"), lines=(("1 ± 2", "1e-05"),), columns="lr")
    >>> print(latex([table]))
    % needs the package booktabs
    <BLANKLINE>
    % a_b
    \begin{tabular}{lr}
    \toprule
    x & $\varepsilon$ \\
    \midrule
    1 $\pm$ 2 & $10^{-5}$ \\
    \bottomrule
    \end{tabular}
    <BLANKLINE>
    """
    return "\n".join(["% needs the package booktabs\n", *map(_latex_table, tables)])


def _latex_table(table: Table) -> str:
    lines = [
        f"% {' '.join(table.caption.split())}",
        rf"\begin{{tabular}}{{{table.columns}}}",
        r"\toprule",
        _latex_line(table.headings),
        r"\midrule",
        *map(_latex_line, table.lines),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


def _latex_line(texts: Sequence[str]) -> str:
    return " & ".join(map(latex_text, texts)) + r" \\"


_LATEX: Mapping[str, str] = {
    "\\": r"\textbackslash{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    "ε": r"$\varepsilon$",
    "δ": r"$\delta$",
    "κ": r"$\kappa$",
    "µ": r"$\mu$",
    "√": r"$\surd$",
    "∞": r"$\infty$",
    "≤": r"$\le$",
}
_POWER = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)e([+-]\d+)(?!\w)")


def latex_text(text: str) -> str:
    r"""A text as LaTeX: special characters are escaped, and powers of ten written as such.

    >>> print(latex_text("glm_rare 50% 2.5e-05"))
    glm\_rare 50\% $2.5 \cdot 10^{-5}$
    """
    parts = _POWER.split(" ".join(text.split()))
    segments = [
        "".join(_LATEX.get(character, character) for character in part) for part in parts[::3]
    ]
    powers = [_power(*pair) for pair in zip(parts[1::3], parts[2::3], strict=True)]
    return "".join(itertools.chain(*itertools.zip_longest(segments, powers, fillvalue="")))


def _power(digits: str, exponent: str) -> str:
    factor = "" if digits == "1" else rf"{digits} \cdot "
    return f"${factor}10^{{{int(exponent)}}}$"


def markdown(tables: Sequence[Table]) -> str:
    r"""One table each, under its caption.

    >>> table = Table(caption="a_b", headings=("x", "ε"), lines=(("a|b", "2"),), columns="lr")
    >>> print(markdown([table]))
    **a\_b**
    <BLANKLINE>
    | x | ε |
    |:---|---:|
    | a\|b | 2 |
    <BLANKLINE>
    """
    return "\n".join(map(_markdown_table, tables))


def _markdown_table(table: Table) -> str:
    sides = "|".join({"l": ":---", "r": "---:"}[letter] for letter in table.columns)
    lines = [_markdown_line(line) for line in (table.headings, *table.lines)]
    head, *body = lines
    return "\n".join([f"**{markdown_text(table.caption)}**", "", head, f"|{sides}|", *body, ""])


def _markdown_line(texts: Sequence[str]) -> str:
    return "| " + " | ".join(map(markdown_text, texts)) + " |"


def markdown_text(text: str) -> str:
    """A text that Markdown shows as it is."""
    return re.sub(r"([\\`*_\[\]<>|~#])", r"\\\1", " ".join(text.split()))


WRITERS: Mapping[str, tuple[str, Callable[[Sequence[Table]], str]]] = {
    "latex": ("tex", latex),
    "markdown": ("md", markdown),
}
"""What tables for papers may be written as: how their files end, and how they are made."""
