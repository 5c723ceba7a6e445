"""The page of algorithms by line: every name resolves, and the page is fresh."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tools.algorithm_page import Algorithm, page, read_algorithms, resolve_name

from kerchief.policies import POLICIES
from kerchief.policies.registry import paper_keys

PAPERS = Path(__file__).parents[2] / "docs" / "papers"
ALGORITHMS = read_algorithms(PAPERS / "algorithms.toml")
each = pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda algorithm: algorithm.title[:24])


def test_algorithm_page_covers_every_paper() -> None:
    assert len(ALGORITHMS) == 6
    papers = {path.name for path in PAPERS.glob("*.md")} - {"algorithm_by_line.md"}
    assert {algorithm.page for algorithm in ALGORITHMS} == papers


@each
def test_algorithm_code_resolves(algorithm: Algorithm) -> None:
    for line in algorithm.lines:
        assert line.code, line
        for name in line.code:
            assert callable(resolve_name(name)) or isinstance(resolve_name(name), property), name


@each
def test_algorithm_parameters_exist(algorithm: Algorithm) -> None:
    for line in algorithm.lines:
        assert set(line.parameter) <= algorithm.parameters, line


@each
def test_algorithm_is_played_by_bandits_of_its_paper(algorithm: Algorithm) -> None:
    kind = resolve_name(algorithm.kind)
    for name in algorithm.plays:
        assert algorithm.paper in paper_keys(POLICIES[name].source), name
        assert all(issubclass(played, kind) for played in POLICIES[name].kinds), name


def test_algorithm_page_links_files_that_exist() -> None:
    links = set(re.findall(r"\]\(([^)]+)\)", page(PAPERS / "algorithms.toml")))
    assert len(links) > 20
    assert all((PAPERS / link).is_file() for link in links)


def test_algorithm_page_is_fresh() -> None:
    written = (PAPERS / "algorithm_by_line.md").read_text("utf-8")
    assert written == page(PAPERS / "algorithms.toml"), "stale; run `make pages`"


@pytest.mark.parametrize(
    "path", sorted({algorithm.page for algorithm in ALGORITHMS}), ids=lambda path: path
)
def test_page_of_a_paper_links_the_algorithm_page(path: str) -> None:
    assert "(algorithm_by_line.md)" in (PAPERS / path).read_text("utf-8")
