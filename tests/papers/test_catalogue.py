"""Every experiment of the catalogue: small on every change, in full by night."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from kerchief.comparison.chunks import build_protected_policy
from kerchief.comparison.plan import Plan
from kerchief.comparison.results import Result
from kerchief.comparison.runner import compare
from kerchief.papers.catalogue import EXPERIMENTS
from kerchief.reports.outputs import Outputs


def _run(plan: Plan, folder: Path) -> Outputs:
    outputs = Outputs.at(folder, plan)
    for one in compare(plan):
        outputs.keep(one)
    outputs.close()
    return outputs


@pytest.mark.parametrize("name", list(EXPERIMENTS))
def test_claims_of_an_experiment_have_distinct_sentences(name: str) -> None:
    sentences = Counter(claim.sentence for claim in EXPERIMENTS[name].claims)
    assert sentences.most_common(1)[0][1] == 1, sentences


@pytest.mark.parametrize("name", list(EXPERIMENTS))
def test_quick_size_is_no_larger_than_full_size(name: str) -> None:
    """Claims that are made for the quick size are then judged at full size, too."""
    quick, full = EXPERIMENTS[name].quick, EXPERIMENTS[name].full
    assert quick.horizon <= full.horizon
    assert quick.replicates <= full.replicates


def test_few_quick_claims_compare_with_uniform_play() -> None:
    """Uniform play is easily beaten: most claims compare with what a reader would choose."""
    quick = [claim for _, entry in EXPERIMENTS.items() for claim in entry.claims if claim.quick]
    uniform = [
        claim for claim in quick if any(key.player.policy == "uniform" for key in claim.needs)
    ]
    assert len(uniform) <= len(quick) / 5, [claim.sentence for claim in uniform]


def test_half_of_quick_claims_compare_choices_of_a_reader() -> None:
    """Another bandit, trust, noise, parameter or world, no privacy, or what a paper prints.

    A bound of our own, and a fall with epsilon of one bandit, do not count.
    """
    quick = [claim for _, entry in EXPERIMENTS.items() for claim in entry.claims if claim.quick]
    choices = [
        claim
        for claim in quick
        if claim.source == "paper"
        or (
            not any(key.player.policy == "uniform" for key in claim.needs)
            and len(
                {(dataclasses.replace(key.player, epsilon=1), key.world) for key in claim.needs}
            )
            > 1
        )
    ]
    assert len(choices) >= len(quick) / 2, (len(choices), len(quick))


@pytest.mark.nightly
@pytest.mark.parametrize("name", list(EXPERIMENTS))
def test_an_experiment_at_quick_size(name: str, tmp_path: Path) -> None:
    """Its report is written, claims are confirmed, and each could have failed."""
    quick = _run(EXPERIMENTS[name].plan(quick=True), tmp_path)
    _expect_report(quick)
    assert all(verdict.confirmed for verdict in quick.verdicts()), quick.verdicts()
    assert [verdict.outcome for verdict in quick.verdicts()].count("holds") >= 2
    assert not _unfailing_claims(quick)


def _expect_report(quick: Outputs) -> None:
    assert set(quick.files) == {"table", "rows", "picture", "report"}
    assert quick.files["picture"].read_bytes().startswith(b"\x89PNG")
    document = json.loads(quick.files["rows"].read_text())
    assert document["complete"] is True
    assert document["seconds"] > 0
    assert {"printed", "spent", "regret"} < set(document["rows"][0])
    page = quick.files["report"].read_text()
    for verdict in document["claims"]:
        assert verdict["outcome"] in page
    assert quick.plan.command() in page.replace("<span>", "").replace("</span>", "")


def _unfailing_claims(outputs: Outputs) -> list[str]:
    """Claims that were decided and keep their outcome, whichever row is corrupted."""
    outcomes = {
        verdict.claim: verdict.outcome
        for verdict in outputs.verdicts()
        if verdict.outcome not in ("not judged", "undecided")
    }
    trials = [
        [*outputs.finished[:number], corrupted, *outputs.finished[number + 1 :]]
        for number, row in enumerate(outputs.finished)
        for corrupted in _corrupted(row)
    ]
    # What contradicts a paper in several rows holds only where all of them are as printed.
    printed = outputs.plan.printed()
    trials.append([_scaled(row, printed.get(row.cell.key)) for row in outputs.finished])
    for rows in trials:
        for verdict in outputs.plan.verdicts(rows):
            if outcomes.get(verdict.claim, verdict.outcome) != verdict.outcome:
                del outcomes[verdict.claim]
    return list(outcomes)


def _scaled(row: Result, mean: float | None) -> Result:
    """The row with this mean regret, if there is one."""
    if mean is None:
        return row
    return dataclasses.replace(row, curves=row.curves * (mean / row.regret.mean))


def _corrupted(row: Result) -> Iterator[Result]:
    """The row with regret, costs, releases or messages far too large or small, or wrong answers."""
    for factor in (1e4, 1e-4):
        yield dataclasses.replace(row, curves=row.curves * factor)
        yield dataclasses.replace(row, curves=row.curves + (factor - 1) * row.uniform)
        guarantee = dataclasses.replace(row.guarantee, epsilon=row.guarantee.epsilon * factor)
        yield dataclasses.replace(
            row,
            guarantee=guarantee,
            releases={query: count * factor for query, count in row.releases.items()},
            communication={unit: sent * factor for unit, sent in row.communication.items()},
        )
    if row.right is not None:
        yield dataclasses.replace(row, right=1 - row.right)


@pytest.mark.nightly
@pytest.mark.parametrize("name", list(EXPERIMENTS))
def test_verdicts_are_confirmed_at_full_size(name: str, tmp_path: Path) -> None:
    outputs = _run(EXPERIMENTS[name].plan(), tmp_path)
    verdicts = outputs.verdicts()
    assert all(verdict.confirmed for verdict in verdicts), verdicts
    assert "not judged" not in {verdict.outcome for verdict in verdicts}
    assert not _unfailing_claims(outputs)


@pytest.mark.nightly
@pytest.mark.parametrize("name", list(EXPERIMENTS))
def test_every_configuration_of_an_experiment_can_be_built(name: str) -> None:
    plan = EXPERIMENTS[name].plan()
    for cell in plan.cells():
        made = build_protected_policy(cell, plan.environment(cell.world).problem(cell.horizon))
        assert set(made.privatizers) == set(made.policy.queries)
