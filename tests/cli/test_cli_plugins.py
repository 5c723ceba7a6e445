"""`--plugin`: bandits, worlds, noises and experiments of the user's own, on the command line."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import Result
from tests.comparison.fakes import fake_play
from tests.plugins import fresh_registries

from kerchief.checks import CheckFailedError, PolicyFixture
from kerchief.checks.mechanism_names import noise_is_of_the_word_printed
from kerchief.comparison import fingerprint, plugins
from kerchief.comparison.chunks import split_chunks
from kerchief.comparison.comparison import Comparison
from kerchief.comparison.plan import Plan
from kerchief.comparison.plugins import Plugin
from kerchief.comparison.runner import RunState
from kerchief.core.registry import Registry
from kerchief.papers.catalogue import EXPERIMENTS
from kerchief.policies.registry import POLICIES, RENAMED_OPTIONS
from kerchief.privatizers.randomizers import BEST
from kerchief.privatizers.registry import (
    CONTINUALS,
    CURATORS,
    SHUFFLES,
    TRUSTS,
    PrivatizerEntry,
)

Call = Callable[..., Result]

SKELETON = Path(__file__).parents[2] / "docs" / "skeleton_policy.py"
TINY = ("--contexts", "ball", "--dim", 2, "--arms", 3, "--horizon", 30, "--replicates", 2)
OWN = '''
import dataclasses
from functools import partial
from kerchief.core.problems import Problem
from kerchief.environments import make_environment
from kerchief.environments.registry import ENVIRONMENTS, EnvironmentEntry
from kerchief.core.struct import struct
from kerchief.environments.worlds import GLMEnvironment
from kerchief.papers.claims import at
from kerchief.papers.experiment import Setting, Size, enter
from kerchief.comparison.players import player
from kerchief.policies.linear.linucb import LinUCB
from kerchief.policies.registry import register
from kerchief.privatizers.registry import CURATORS

CONSTANT = 1.0

@struct
class Mine(GLMEnvironment):
    """A world of a class of its own."""

def world(*, dim: int = 2, arms: int = 3):
    made = make_environment(dim=dim, arms=arms)
    return Mine(**{field.name: getattr(made, field.name) for field in dataclasses.fields(made)})

ENVIRONMENTS.add("mine", EnvironmentEntry(factory=world, summary="my world", problem=Problem))
CURATORS.add("my-noise", dataclasses.replace(CURATORS["gaussian"], summary="my noise"))
register("my-linucb", LinUCB, summary="my bandit", source="me")
mine = player("my-linucb", trust="joint", epsilon=2.0)
enter(
    name="my-figure", title="My figure", summary="my experiment", source="me",
    settings=(Setting(name="here", make=world),), players=(mine,),
    full=Size(horizon=40, replicates=3), quick=Size(horizon=20, replicates=2),
    claims=(at(mine, "here").at_most(1e6, quick=True),),
)
'''


@pytest.fixture(autouse=True)
def registries() -> Iterator[None]:
    with fresh_registries():
        yield


@pytest.fixture
def own(tmp_path: Path) -> Path:
    file = tmp_path / "my_own.py"
    file.write_text(OWN)
    return file


@pytest.mark.nightly
@pytest.mark.usefixtures("undrawn")
def test_the_skeleton_is_played_beside_ours(call: Call) -> None:
    named = ("--policy", "along-the-mean", "--trust", "local")
    result = call("--plugin", SKELETON, "compare", *named, *TINY, "--epsilon", 4, "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    policies = {row["policy"] for row in document["rows"]}
    assert policies == {"uniform", "greedy", "along-the-mean"}
    assert document["versions"]["plugin_skeleton_policy"]
    assert f"--plugin {SKELETON}" in document["command"]


def test_the_skeleton_keeps_the_laws_as_a_plugin(call: Call) -> None:
    result = call("--plugin", SKELETON, "check", "along-the-mean", "--trust", "local", "--json")
    assert result.exit_code == 0, result.output
    kept = {law["law"] for law in json.loads(result.stdout)["laws"] if law["result"] == "kept"}
    assert {"learner is blind", "statistics obey their bound", "refusal leaves no trace"} <= kept


@pytest.mark.parametrize(
    ("trust", "words", "like"),
    [("joint", CONTINUALS, "tree"), ("central", CURATORS, "gaussian"), ("shuffle", SHUFFLES, BEST)],
)
def test_plugin_mechanism_passes_checks_and_is_used_in_runs(
    trust: str, words: Registry[PrivatizerEntry], like: str
) -> None:
    case = PolicyFixture.of("linucb", POLICIES["linucb"], trust)
    words.add("my-noise", words[like])
    noise_is_of_the_word_printed(case)
    words.add("my-silence", TRUSTS["none"])
    with pytest.raises(CheckFailedError, match=r"NonPrivate|is not shuffled"):
        noise_is_of_the_word_printed(case)


def test_the_skeleton_is_audited_as_a_plugin(call: Call) -> None:
    words = ("along-the-mean", "--trust", "central", "--replicates", 200, "--json")
    result = call("--plugin", SKELETON, "audit", *words)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["name"] == "along-the-mean"


@pytest.mark.nightly
@pytest.mark.usefixtures("undrawn")
def test_worlds_noises_and_bandits_are_played_by_other_processes(call: Call, own: Path) -> None:
    """Objects of a plugin's classes reach workers, which load the same file."""
    named = ("--env", "mine", "--policy", "my-linucb", "--trust", "central")
    size = ("--horizon", 30, "--replicates", 2, "--epsilon", 4, "--mechanism", "my-noise")
    alone, shared = (
        call("--plugin", own, "compare", *named, *size, "--out", out, *jobs, "--json")
        for out, jobs in (("alone", ()), ("shared", ("--jobs", 2)))
    )
    assert alone.exit_code == shared.exit_code == 0, shared.output
    rows = [json.loads(one.stdout)["rows"] for one in (alone, shared)]
    assert rows[0][-1]["curator"] == "my-noise"
    assert [row["regret"] for row in rows[0]] == [row["regret"] for row in rows[1]]


@pytest.mark.usefixtures("undrawn")
def test_an_experiment_is_reproduced(call: Call, own: Path) -> None:
    result = call("--plugin", own, "reproduce", "my-figure", "--quick", "--json")
    assert result.exit_code == 0, result.output
    assert [one["outcome"] for one in json.loads(result.stdout)["claims"]] == ["holds", "holds"]


@pytest.mark.parametrize(
    ("kind", "name"),
    [("policies", "my-linucb"), ("environments", "mine"), ("experiments", "my-figure")],
)
def test_listings_name_them(call: Call, own: Path, kind: str, name: str) -> None:
    assert name not in call("list", kind).stdout
    lines = json.loads(call("--plugin", own, "list", kind, "--json").stdout)[kind]
    assert name in {line["name"] for line in lines}


@pytest.mark.parametrize("kind", ["policies", "proofs"])
def test_a_listing_shows_all_of_ours_too(call: Call, own: Path, kind: str) -> None:
    ours = json.loads(call("list", kind, "--json").stdout)[kind]
    lines = json.loads(call("--plugin", own, "list", kind, "--json").stdout)[kind]
    names = [line["name"] for line in lines if line["name"] != "my-linucb"]
    assert names == [line["name"] for line in ours]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "plugin is 'bad.py'; it cannot be read (No such file or directory)"),
        ("import nothing_like_it", "line 1 fails with ModuleNotFoundError: No module named"),
        ("\nraise SystemExit(3)", "line 2 fails with SystemExit: 3; repair the file"),
        ("def broken(:", "it fails with SyntaxError: invalid syntax (bad.py, line 1)"),
        (
            "from kerchief.policies import POLICIES\nPOLICIES.add('linucb', POLICIES['greedy'])",
            "line 2 fails with ValueError: two entries of kind policy are called 'linucb'; give",
        ),
        ("from kerchief.policies import POLICIES\nPOLICIES.add('best', 1)", "are called 'best'"),
        *(
            (
                "from kerchief.policies import register\nfrom kerchief.policies.baselines import "
                f"Uniform\nregister('mine', Uniform, summary='x', source='y', {old}=None)",
                f"fails with InvalidValueError: register() has no option {old!r}; use {new!r}",
            )
            for old, new in RENAMED_OPTIONS.items()
        ),
        (
            "from kerchief.policies import register\nfrom kerchief.policies.baselines import "
            "Uniform\nregister('mine', Uniform, summary='x', source='y', colour='red')",
            "line 3 fails with TypeError: register() got an unexpected keyword argument 'colour'",
        ),
    ],
)
@pytest.mark.parametrize("words", [("compare",), ("check", "linucb"), ("list", "policies")])
def test_a_bad_file_is_one_line(call: Call, text: str | None, said: str, words: list[str]) -> None:
    if text is not None:
        Path("bad.py").write_text(text)
    result = call("--plugin", "bad.py", *words)
    assert result.exit_code == 2
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not Path("results").exists()


def _comparison(trust: str, *, curator: str = "best", policy: str = "linucb") -> Comparison:
    return Comparison(
        policies=(policy,),
        trusts=(trust,),
        curator=curator,
        env="mine",
        horizon=30,
        replicates=2,
        epsilons=(1.0,),
    )


def _addresses(file: Path, text: str, plan: Callable[[], Plan]) -> list[str]:
    file.write_text(text)
    fingerprint._read_bytes.cache_clear()
    with fresh_registries():
        Plugin.at(str(file)).load()
        return [part.address() for (part, *_) in split_chunks(plan(), ticks=4, width=2)]


@pytest.mark.parametrize(
    "plan",
    [
        lambda: _comparison("joint", policy="my-linucb"),
        lambda: _comparison("joint"),
        lambda: _comparison("central", curator="my-noise"),
        lambda: EXPERIMENTS["my-figure"].plan(quick=True),
    ],
    ids=["bandit", "world", "noise", "experiment"],
)
def test_an_edited_plugin_is_played_anew(own: Path, plan: Callable[[], Plan]) -> None:
    """Even if a bandit's class, a noise or a world's numbers are ours: the file made them so."""
    before, again = (_addresses(own, OWN, plan) for _ in range(2))
    after = _addresses(own, OWN.replace("CONSTANT = 1.0", "CONSTANT = 2.0"), plan)
    assert before == again
    assert not set(before) & set(after)


@pytest.mark.usefixtures("undrawn")
def test_a_folder_of_another_version_is_left_alone(
    call: Call, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RunState, "results", fake_play())
    words = ("--plugin", own, "reproduce", "my-figure", "--quick", "--out", "here")
    with fresh_registries():
        assert call(*words).exit_code == 0
    own.write_text(f"{OWN}\n# edited")
    result = call(*words)
    assert result.exit_code == 2
    assert "version of plugin_my_own" in result.stderr


def test_a_module_beside_a_plugin_counts(tmp_path: Path) -> None:
    file, beside = tmp_path / "main.py", tmp_path / "beside_my_plugin.py"
    file.write_text("import sys\nsys.modules.pop('beside_my_plugin', 0)\nimport beside_my_plugin")
    seen = []
    for text in ("A = 1", "A = 1", "A = 22"):
        beside.write_text(text)
        with fresh_registries():
            Plugin.at(str(file)).load()
            seen.append(plugins.sources()["plugin_main"])
    assert seen[0] == seen[1] != seen[2]


def test_plugin_name_is_bound_to_one_file_and_version(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "same.py").write_text("A = 1")
    first = Plugin.at(str(tmp_path / "a" / "same.py"))
    first.load()
    first.load()
    assert plugins.flags() == ["--plugin", first.given]
    with pytest.raises(ValueError, match="has the same name; rename one"):
        Plugin.at(str(tmp_path / "b" / "same.py")).load()
    first.path.write_text("A = 2")
    with pytest.raises(ValueError, match=r"has changed since .* restart the workers"):
        Plugin.at(str(first.path)).load()


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with an entry point, as pip would leave it."""
    file = tmp_path / "site" / "my_package.py"
    about = tmp_path / "site" / "my_package-1.dist-info"
    about.mkdir(parents=True)
    file.write_text(OWN)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[kerchief.plugins]\nown = my_package\n")
    monkeypatch.syspath_prepend(str(file.parent))
    importlib.invalidate_caches()
    return file


def test_an_installed_package_needs_no_option(call: Call, installed: Path) -> None:
    lines = json.loads(call("list", "experiments", "--json").stdout)["experiments"]
    assert "my-figure" in {line["name"] for line in lines}
    assert set(plugins.sources()) == {"plugin_own"}
    assert plugins.flags() == []


def test_a_broken_package_is_one_line(call: Call, installed: Path) -> None:
    installed.with_name("broken_package.py").write_text("1 / 0")
    about = installed.with_name("my_package-1.dist-info") / "entry_points.txt"
    about.write_text("[kerchief.plugins]\nown = broken_package\n")
    result = call("list", "experiments")
    assert result.exit_code == 2
    assert "the installed plugin 'own' (broken_package) fails with ZeroDivisionError" in (
        result.stderr
    )
