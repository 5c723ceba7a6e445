"""The report as a browser reads it: whole, labelled, and readable on a phone."""

from __future__ import annotations

import dataclasses
import re
from html.parser import HTMLParser

import pytest
from tests.comparison.fakes import fake

from kerchief.comparison.comparison import Comparison
from kerchief.papers.catalogue import EXPERIMENTS
from kerchief.reports.report import kept_promises, promises, render

PLAN = Comparison(contexts=("ball", "fixed"), horizon=60, replicates=4, epsilons=(0.5, 1.0, 2.0))
_VOID = {"meta", "img", "br"}


@dataclasses.dataclass(kw_only=True)
class _Element:
    tag: str
    attributes: dict[str, str | None]
    text: str = ""
    inside: list[str] = dataclasses.field(default_factory=list)


class _Page(HTMLParser):
    """Every element with its text and the tags inside; a tag that is closed wrongly is an error."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[_Element] = []
        self.open: list[_Element] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for around in self.open:
            around.inside.append(tag)
        self.elements.append(_Element(tag=tag, attributes=dict(attrs)))
        if tag not in _VOID:
            self.open.append(self.elements[-1])

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop().tag == tag

    def handle_data(self, data: str) -> None:
        for around in self.open:
            around.text += data

    def all(self, tag: str) -> list[_Element]:
        return [one for one in self.elements if one.tag == tag]


@pytest.fixture(scope="module")
def page() -> _Page:
    return _Page(render(PLAN, fake(PLAN), b"png"))


def test_report_page_has_title_language_and_main_section(page: _Page) -> None:
    (root,), (title,), (heading,) = page.all("html"), page.all("title"), page.all("h1")
    assert root.attributes["lang"] == "en"
    assert title.text == heading.text == PLAN.title
    assert "viewport" in [one.attributes.get("name") for one in page.all("meta")]
    assert len(page.all("main")) == 1


def test_tables_and_pictures_are_labelled(page: _Page) -> None:
    assert all(one.inside[0] == "caption" for one in page.all("table"))
    assert all(one.attributes["scope"] in ("col", "row") for one in page.all("th"))
    assert all(one.text for one in page.all("th"))
    (image,) = page.all("img")
    assert "ball contexts, fixed contexts" in (image.attributes["alt"] or "")


def test_the_command_can_be_copied_and_no_flag_is_broken(page: _Page) -> None:
    (command,) = page.all("pre")
    assert command.text == PLAN.command()
    assert [one.text for one in page.all("span")] == PLAN.command().split(" ")


def test_phone_layout_shows_regret_and_names_hidden_columns(page: _Page) -> None:
    headings = [one for one in page.all("th") if one.attributes["scope"] == "col"]
    hidden = {one.text for one in headings if one.attributes.get("class") == "minor"}
    assert hidden == {"δ", "spent ε, δ", "% uniform", "µs"}
    assert {"policy", "ε", "regret ± s.e.", "p95"} <= {one.text for one in headings} - hidden
    assert any("leaves out δ; spent ε, δ; % uniform; µs." in one.text for one in page.all("p"))


def test_only_wide_elements_scroll_and_names_do_not_break(page: _Page) -> None:
    (style,) = page.all("style")
    breaking = re.findall(r"([^{}]*)\{[^{}]*overflow-wrap: anywhere", style.text)
    assert [one.strip() for one in breaking] == ["pre"]
    boxes = [one for one in page.all("div") if one.attributes.get("class") == "scroll"]
    assert [one.inside[0] for one in boxes] == ["img", "table", "table"]


def test_a_report_without_a_picture_shows_none() -> None:
    assert not _Page(render(PLAN, fake(PLAN), b"")).all("img")


def test_report_omits_parameters_without_one_value() -> None:
    mixed = Comparison(
        policies=("linucb@paper", "linucb"), trusts=("local",), horizon=60, replicates=4
    )
    assert "mechanism" not in mixed.parameters()
    cells = [one.text.strip() for one in _Page(render(mixed, fake(mixed), b"")).all("td")]
    assert "None" not in cells


def test_a_promise_that_is_too_weak_is_marked() -> None:
    weak = dataclasses.replace(PLAN, delta=0.1)
    warned = [
        [one.text for one in _Page(render(plan, fake(plan), b"")).all("p") if _warns(one)]
        for plan in (PLAN, weak)
    ]
    assert warned == [[], [f"Warning: {line}." for line in weak.warnings()]]
    assert weak.warnings()


def test_promises_that_differ_in_epsilon_are_one_sentence() -> None:
    assert all(len(one.others) == 1 for one in promises(PLAN, PLAN.cells()))
    assert (
        promises(PLAN, PLAN.cells())[0].others[0].startswith("(epsilon=1 or 2, delta=1e-05) local")
    )


def test_partial_report_lists_only_guarantees_that_were_run() -> None:
    finished = fake(PLAN)
    played = [row for row in finished if str(row.cell.guarantee.trust) in ("none", "local")]
    headings = [one.text for one in _Page(render(PLAN, played, b"")).all("h3")]
    assert headings == ["local trust"]
    assert len([one.text for one in _Page(render(PLAN, finished, b"")).all("h3")]) > 1


@pytest.mark.parametrize(
    ("policy", "about"),
    [
        ("dpe", "one user's rewards (all of them; the actions are public), replaced"),
        ("tsallis", "one user's answer to a public question, replaced"),
        ("linucb", "one user's context, action and reward, replaced"),
    ],
)
def test_a_promise_is_about_what_the_problem_protects(policy: str, about: str) -> None:
    plan = Comparison(policies=(policy,), trusts=("local",), epsilons=(1.0, 2.0), horizon=400)
    (sentence,) = kept_promises(plan, plan.cells())
    assert about in sentence
    (one,) = promises(plan, plan.cells())
    assert about.split(", replaced")[0].removeprefix("one ") in one.statement
    assert about in one.others[0]


def _warns(one: _Element) -> bool:
    return one.attributes.get("class") == "warning"


def test_an_experiment_says_what_its_paper_claims_and_what_holds() -> None:
    plan = EXPERIMENTS["fixed-arms"].plan(quick=True)
    shown = " ".join(one.text for one in _Page(render(plan, fake(plan), b"")).all("p"))
    assert all(
        fact in shown
        for fact in (plan.experiment.sizes, plan.experiment.claimed, plan.experiment.holds)
    )
