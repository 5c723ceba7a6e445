"""Pages about the papers: every target is there, and every experiment says what it stands for."""

from __future__ import annotations

import inspect
import itertools
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools.catalogue_page import page

from kerchief.cli.listing import LISTINGS
from kerchief.environments.contexts import CONTEXTS
from kerchief.environments.registry import ENVIRONMENTS
from kerchief.mechanisms.continual import ContinualNoise
from kerchief.mechanisms.registry import MECHANISMS
from kerchief.papers.catalogue import EXPERIMENTS
from kerchief.policies import POLICIES
from kerchief.privacy import Trust

ROOT = Path(__file__).parents[2]
PAPERS = sorted(
    path for path in (ROOT / "docs" / "papers").glob("*.md") if path.stem != "algorithm_by_line"
)
HEAD = ("printed", "here", "file", "experiment", "remark")
# Experiments draw the coins of a cohort at once, in place of each device's share.
SIMULATED = {"coins": "binomial"}

NAMES = {row["name"] for _, listing in LISTINGS.items() for row in listing()}


def rows(paper: Path) -> Iterator[dict[str, str]]:
    """The rows of a page's first table, by column."""
    lines = paper.read_text("utf-8").splitlines()
    below = itertools.dropwhile(lambda line: not line.startswith("|"), lines)
    table = itertools.takewhile(lambda line: line.startswith("|"), below)
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table]
    assert tuple(cells[0]) == HEAD
    for row in cells[2:]:
        assert len(row) == len(HEAD), row
        yield dict(zip(HEAD, row, strict=True))


def quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def resolve(name: str) -> object:
    """The object of a dotted name, or the class of a registered environment or mechanism."""
    if name in ENVIRONMENTS:
        return type(ENVIRONMENTS[name].make())
    if name in CONTEXTS:
        return CONTEXTS[name]
    if name in MECHANISMS:
        return MECHANISMS[name].factor or MECHANISMS[name].kind
    try:
        return pkgutil.resolve_name(name if name.startswith("kerchief.") else f"kerchief.{name}")
    except (ImportError, AttributeError, ValueError):
        return None


def known(name: str) -> bool:
    """A registered name, perhaps with its options behind it, or a name of the library in full."""
    return name.split(" ")[0] in NAMES or resolve(name) is not None


def defines(path: str, name: str) -> bool:
    """Whether a file, or the Python file beside a note, registers or defines a name."""
    file = (ROOT / path).with_suffix(".py")
    if not file.exists():
        return False
    if name in POLICIES:
        return f'"{name}"' in file.read_text("utf-8")
    target = inspect.unwrap(resolve(name))  # type: ignore[arg-type]
    return Path(inspect.getsourcefile(target) or "").resolve() == file


def played(name: str) -> set[str]:
    """The policies of an entry, and the names of its environments and their contexts."""
    entry = EXPERIMENTS[name]
    worlds = [setting.environment for setting in entry.settings]
    kinds: set[object] = {type(world) for world in worlds}
    contexts = [type(getattr(world, "contexts", None)) for world in worlds]
    return {
        *(key.player.policy for key in entry.keys(entry.full)),
        *(word for word in ENVIRONMENTS if resolve(word) in kinds),
        *(word for word in CONTEXTS if CONTEXTS[word] in contexts),
    }


def drawn(name: str) -> Iterator[object]:
    """The kinds of noise that an entry draws in its first world, one by one."""
    entry = EXPERIMENTS[name]
    horizon = entry.full.horizon
    problem = entry.settings[0].environment.problem(horizon)
    for one in entry.players:
        if one.trust is not Trust.NONE:
            protected = one.build_protected(problem, one.promise(entry.delta, horizon))
            for privatizer in protected.privatizers.values():
                for noise in privatizer.noises:
                    yield type(noise.factor if isinstance(noise, ContinualNoise) else noise)


def plays(name: str, kinds: tuple[type, ...]) -> bool:
    """Whether a policy, a privatizer or a noise of an entry's first world is of such a class."""
    entry = EXPERIMENTS[name]
    setting = entry.settings[0]
    horizon = setting.horizon or entry.quick.horizon
    players = setting.players or entry.players
    if any(issubclass(kind, kinds) for one in players for kind in POLICIES[one.policy].kinds):
        return True
    problem = setting.environment.problem(horizon)
    for one in players:
        protected = one.build_protected(problem, one.promise(entry.delta, horizon))
        for privatizer in protected.privatizers.values():
            if any(isinstance(part, kinds) for part in (privatizer, *privatizer.noises)):
                return True
    return False


def test_there_is_a_page_for_each_paper() -> None:
    assert len(PAPERS) == 5


@pytest.mark.parametrize("paper", PAPERS, ids=lambda one: one.stem)
def test_every_target_of_a_table_is_there(paper: Path) -> None:
    table = list(rows(paper))
    assert len(table) >= 10
    for row in table:
        assert all(known(name) for name in quoted(row["here"])), row
        assert all((ROOT / path).exists() for path in quoted(row["file"])), row
        assert all(name in EXPERIMENTS for name in quoted(row["experiment"])), row
        missing = not all(quoted(row[column]) for column in ("here", "file", "experiment"))
        assert not missing or len(row["remark"]) > 20, row


@pytest.mark.parametrize("paper", PAPERS, ids=lambda path: path.stem)
def test_experiments_of_a_row_play_its_policies_and_worlds(paper: Path) -> None:
    for row in rows(paper):
        names = {*POLICIES, *ENVIRONMENTS, *CONTEXTS}.intersection(quoted(row["here"]))
        plays = {name: played(name) & names for name in quoted(row["experiment"])}
        if plays and names:
            assert all(plays.values()), (row["printed"], plays)
            assert set().union(*plays.values()) == names, (row["printed"], plays)


@pytest.mark.parametrize("paper", PAPERS, ids=lambda path: path.stem)
def test_experiments_of_a_row_draw_its_noise(paper: Path) -> None:
    for row in rows(paper):
        words = set(MECHANISMS).intersection(quoted(row["here"]))
        kinds = {resolve(SIMULATED.get(word, word)) for word in words}
        entries = quoted(row["experiment"])
        if entries and kinds:
            assert any(kind in kinds for name in entries for kind in drawn(name)), row["printed"]


def test_main_paper_rows_name_what_their_experiments_run() -> None:
    """A name of a function alone could stand beside any experiment."""
    (paper,) = [path for path in PAPERS if path.stem == "generalized_linear"]
    registered = {*POLICIES, *ENVIRONMENTS, *CONTEXTS, *MECHANISMS}
    for row in rows(paper):
        if quoted(row["experiment"]):
            assert registered.intersection(quoted(row["here"])), row["printed"]


@pytest.mark.parametrize("paper", PAPERS, ids=lambda path: path.stem)
def test_files_of_a_row_define_all_of_its_names(paper: Path) -> None:
    """An entry of the catalogue names bandits, too, and defines none."""
    for row in rows(paper):
        names, files = quoted(row["here"]), quoted(row["file"])
        files = [file for file in files if "/catalogue/" not in file]
        assert all(any(defines(file, name) for file in files) for name in names), row


@pytest.mark.parametrize("name", ["locally_private", "shuffle_batched"])
def test_experiments_of_a_row_play_its_classes_and_noises(name: str) -> None:
    """Where a row names no bandit and no world: each experiment plays one of its classes.

    Rows of the other pages name statistics, online learners and records of a run, too.
    """
    (paper,) = [path for path in PAPERS if path.stem == name]
    for row in rows(paper):
        names = quoted(row["here"])
        kinds = tuple(kind for kind in map(resolve, names) if inspect.isclass(kind))
        if kinds and not {*POLICIES, *ENVIRONMENTS, *CONTEXTS}.intersection(names):
            for entry in quoted(row["experiment"]):
                assert plays(entry, kinds), (row["printed"], entry)


@pytest.mark.parametrize("paper", PAPERS, ids=lambda path: path.stem)
def test_a_row_that_is_not_shown_yet_names_no_experiment(paper: Path) -> None:
    for row in rows(paper):
        assert "not shown yet" not in row["remark"].lower() or not quoted(row["experiment"]), row


@pytest.mark.parametrize("name", list(EXPERIMENTS))
def test_every_experiment_states_sizes_paper_claim_and_finding(name: str) -> None:
    one = EXPERIMENTS[name]
    for fact in (one.sizes, one.claimed, one.holds):
        assert len(fact) > 30, fact


@pytest.mark.parametrize("name", list(EXPERIMENTS))
def test_half_of_our_claims_are_judged_at_quick_size(name: str) -> None:
    claims = EXPERIMENTS[name].ours
    # That no row spends more than was asked for is not among them.
    assert 2 * sum(claim.quick for claim in claims) >= len(claims)


@pytest.mark.parametrize(
    ("page_name", "printed"),
    [
        ("phased_elimination", "Theorem 5.1, DPE"),
        ("online_confidence", "Theorem 3.4 and Corollary 3.6, regret"),
        ("online_confidence", "Theorem C.3, the learner's regret on the losses that it sees"),
    ],
)
def test_a_bound_that_no_run_can_show_names_no_experiment(page_name: str, printed: str) -> None:
    (paper,) = [path for path in PAPERS if path.stem == page_name]
    (row,) = [row for row in rows(paper) if row["printed"] == printed]
    assert not quoted(row["experiment"]), row


def test_the_row_of_the_extra_noise_names_a_bandit_that_has_it() -> None:
    """`test_extra_noise_is_played_by_the_anytime_version` says which one has it."""
    (paper,) = [path for path in PAPERS if path.stem == "online_confidence"]
    (row,) = [row for row in rows(paper) if row["printed"].startswith("Perturbation ζ")]
    assert {*POLICIES}.intersection(quoted(row["here"])) == {"online-linucb-anytime@paper"}


@pytest.mark.parametrize(
    ("name", "verdicts"),
    [
        (
            "dpe-privacy",
            {
                "Figure 2(a)": {"holds", "does not hold here"},
                "Figure 2(a) with the coins of Algorithm 2": {"does not hold here"},
                "Section 7, Figure 2(b)": {"does not hold here"},
            },
        ),
        ("dpe-fixed-u", {"Figure 2(c)": {"holds"}}),
        ("dpe-alpha", {"Remark 5.2": {"holds"}}),
        ("dp-pe", {"Remark C.8": {"holds"}}),
        (
            "online-linucb",
            {
                "Figure 1(a)": {"does not hold here"},
                "Figure 1(b)": {"does not hold here"},
                "Figure 1(c)": {"holds", "does not hold here"},
                "Section 5": {"does not hold here"},
            },
        ),
    ],
)
def test_figures_of_a_paper_are_judged_as_its_claims(
    name: str, verdicts: dict[str, set[str]]
) -> None:
    claims = [claim for claim in EXPERIMENTS[name].claims if claim.source == "paper"]
    recorded: dict[str, set[str]] = {}
    for claim in claims:
        recorded.setdefault(claim.place, set()).add(claim.recorded)
    assert recorded == verdicts
    assert all(claim.figures for claim in claims)


def test_page_shows_claims_of_papers_with_their_verdicts() -> None:
    section = page().partition("\n## dpe-privacy\n")[2].partition("\n## ")[0]
    ours, _, paper = section.partition("| the paper's claim | where | verdict | figures |")
    assert "does not hold here" not in ours
    (line,) = [line for line in paper.splitlines() if "very close to no privacy" in line]
    assert "| Section 7, Figure 2(b) | does not hold here | 210 000" in line
    assert line.endswith("| yes |")


def test_the_page_of_the_catalogue_is_fresh() -> None:
    written = (ROOT / "docs" / "experiments.md").read_text("utf-8")
    assert written == page(), "docs/experiments.md is stale; run `make pages`"
