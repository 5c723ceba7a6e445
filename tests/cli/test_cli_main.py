"""The other commands, and what all commands share."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from kerchief import __version__
from kerchief.cli import calibrate as calibrate_command
from kerchief.cli import device
from kerchief.cli.listing import LISTINGS
from kerchief.environments.contexts import CONTEXTS

Call = Callable[..., Result]


@pytest.mark.parametrize("kind", list(LISTINGS))
def test_listings(call: Call, kind: str) -> None:
    result = call("list", kind, "--all")
    assert result.exit_code == 0
    assert max(map(len, result.stdout.splitlines())) <= 80
    lines = json.loads(call("list", kind, "--json").stdout)[kind]
    for line in lines:
        assert line["name"] in result.stdout
        assert line["summary"]


@pytest.mark.parametrize("kind", list(LISTINGS))
def test_listings_fit_a_narrow_terminal(
    call: Call, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert max(map(len, call("list", kind).stdout.splitlines())) <= 60


def test_policies_are_sorted(call: Call) -> None:
    lines = json.loads(call("list", "policies", "--json").stdout)["policies"]
    names = [line["name"] for line in lines]
    assert names == sorted(names)
    assert len(names) == len(set(names))


def test_variants_are_listed_only_on_request(call: Call) -> None:
    lines = json.loads(call("list", "policies", "--json").stdout)["policies"]
    names = {line["name"] for line in lines}
    bases = {line["variant_of"] for line in lines} - {None}
    assert bases <= names
    main = [line["name"] for line in lines if not line["variant_of"] and "@" not in line["name"]]
    assert bases <= set(main)
    assert len(main) <= 32
    rows = {
        line.split()[0] for line in call("list", "policies").stdout.splitlines() if line.split()
    }
    assert rows & names == set(main)
    everything = call("list", "policies", "--all").stdout.splitlines()
    assert {line.split()[0] for line in everything if line.split()} & names == names


def test_source_lists_policies_of_one_paper(call: Call) -> None:
    listing = call("list", "policies", "--source", "sarmasarkar2026", "--json").stdout
    lines = json.loads(listing)["policies"]
    assert all("sarmasarkar2026" in line["source"] for line in lines)
    assert {"glm@paper", "glm@author-code", "glm-batched@paper", "glm-rare"} <= {
        line["name"] for line in lines
    }
    shown = call("list", "policies", "--source", "sarmasarkar2026").stdout
    assert "glm@paper" in shown
    assert "sblb" not in shown


def test_source_lists_experiments_of_one_paper(call: Call) -> None:
    lines = json.loads(call("list", "experiments", "--source", "li2022", "--json").stdout)
    names = [line["name"] for line in lines["experiments"]]
    assert "dpe-privacy" in names
    assert "table-two" not in names


def test_policy_of_two_papers_is_listed_under_both(call: Call) -> None:
    for key in ("zimmert2021", "zheng2020"):
        lines = json.loads(call("list", "policies", "--source", key, "--json").stdout)["policies"]
        assert "tsallis" in [line["name"] for line in lines]


def test_every_citation_that_names_a_year_has_a_key(call: Call) -> None:
    for kind in ("policies", "experiments"):
        for line in json.loads(call("list", kind, "--json").stdout)[kind]:
            years = re.findall(r"\b(?:19|20)\d\d\b", line["citation"])
            keys = [key for key in line["source"] if not key.startswith("anonymous")]
            assert len(keys) == len(set(keys)) == len(set(years)), line
            assert [key[-4:] for key in keys] == list(dict.fromkeys(years)), line


def test_proofs_have_their_notes_under_their_own_heading(call: Call) -> None:
    shown = call("list", "proofs").stdout
    assert shown.split()[:3] == ["name", "status", "note"]
    assert "summary" not in shown
    for line in json.loads(call("list", "proofs", "--json").stdout)["proofs"]:
        assert line["note"].endswith(".md")
        assert set(line) == {"name", "kind", "status", "note", "summary"}


def test_help_lists_registered_names_and_exit_codes(call: Call) -> None:
    """From the registries: a new entry is in the help without being copied there."""
    shown = "".join(call("compare", "--help").stdout.split())
    assert "|".join(CONTEXTS) in shown
    listing = "".join(call("list", "--help").stdout.split())
    assert "|".join(LISTINGS) in listing
    assert "Exit codes: 0 all is well" in " ".join(call("--help").stdout.split())


def test_mechanisms_say_which_is_idealized(call: Call) -> None:
    lines = json.loads(call("list", "mechanisms", "--json").stdout)["mechanisms"]
    assert {line["name"]: line["noise"] for line in lines} == {
        "gaussian": "idealized",
        "discrete-gaussian": "exact",
        "binomial": "idealized",
        "coins": "exact",
        "randomized-bits": "idealized",
        "exact-randomized-bits": "exact",
        "tree": "idealized",
        "sqrt-toeplitz": "idealized",
        "exact-sqrt-toeplitz": "exact",
        "blt": "idealized",
        "discrete-blt": "exact",
        "discrete-tree": "exact",
        "doubling": "idealized",
        "discrete-doubling": "exact",
        "laplace": "idealized",
        "discrete-laplace": "exact",
        "one-bit": "idealized",
        "exact-one-bit": "exact",
        "privunit": "idealized",
        "shortlist": "idealized",
        "exact-shortlist": "exact",
        "compass": "idealized",
        "exact-compass": "exact",
    }


@pytest.mark.parametrize(
    ("flags", "used"),
    [
        ((), "privunit (used)"),
        (("--epsilon", 10), "privunit (used)"),
        (("--env", "logistic", "--radius", 2), "privunit (used)"),
        (("--trust", "joint", "--dim", 64), "blt (used)"),
        (("--trust", "central", "--sensitivity", 2), "gaussian (used)"),
    ],
)
def test_calibrate_fits_a_terminal(call: Call, flags: tuple[object, ...], used: str) -> None:
    result = call("calibrate", *flags)
    assert result.exit_code == 0
    table = result.stdout.partition("(epsilon=")[0]
    assert max(map(len, table.splitlines())) <= 80
    assert "discrete twin" in table
    assert table.count("(used)") == 1
    assert used in table
    assert ("refused" in table) == ("--trust" not in flags)


@pytest.mark.nightly
def test_calibrate_shows_guarantee_against_each_observer(call: Call) -> None:
    flags = ("--trust", "shuffle", "--dim", 2, "--horizon", 300, "--local-epsilon", 2)
    lines = call("calibrate", *flags).stdout.splitlines()
    assert max(map(len, lines[:-1])) <= 80
    (row,) = [line.split() for line in lines if line.split()[:1] == ["bit"] and len(line) < 60]
    assert float(row[1]) == pytest.approx(2.0, rel=0.01)
    assert float(row[2]) == float(row[3]) < 0.5
    said = " ".join(" ".join(lines).split())
    assert "one report's promise by" in said
    (report,) = re.findall(r"shuffler: \(epsilon=(\S+), delta=0\) local", said)
    (sums,) = re.findall(r"\(epsilon=(\S+), delta=1e-05\) shuffle", said)
    assert float(report) == pytest.approx(float(row[1]), rel=1e-3)
    assert float(sums) == pytest.approx(float(row[2]), rel=1e-3)
    refused = call("calibrate", "--local-epsilon", 2)
    assert refused.exit_code == 2
    assert "choose shuffling 'bit'" in refused.stderr


def test_calibrate_warns_of_noise_that_cannot_be_deployed(call: Call) -> None:
    flags = ("--trust", "shuffle", "--epsilon", 0.005, "--horizon", 60, "--dim", 8)
    result = call("calibrate", "--delta", 1e-6, *flags)
    assert result.exit_code == 0
    assert "discrete twin: standard deviation" in result.stdout
    assert result.stderr.startswith("kerchief: warning: this noise cannot be deployed: a device")
    assert result.stderr.count("\n") == 1


def test_calibrate_as_json(call: Call) -> None:
    flags = ("--epsilon", 10, "--json")
    answer = json.loads(call("calibrate", "--trust", "central", *flags).stdout)
    assert answer["noise_multiplier"] == pytest.approx(0.4999, abs=1e-4)
    assert answer["std"] == pytest.approx(answer["noise_multiplier"] * answer["sensitivity"])
    assert answer["discrete"]["std"] == pytest.approx(answer["std"], rel=1e-4)
    assert answer["mechanism"] == {"word": "gaussian", "noise": "Gaussian"}
    assert {"name", "std", "factor", "note", "used"} == set(answer["alternatives"][0])
    local = json.loads(call("calibrate", *flags).stdout)
    assert local["mechanism"] == {"word": "privunit", "noise": "PrivUnitG"}
    assert local["noise_multiplier"] is None
    assert local["gaussian_noise_multiplier"] == answer["noise_multiplier"]
    assert [local["discrete"][key] for key in ("grid_bits", "grid", "scale")] == [None] * 3
    assert local["discrete"]["epsilon"] <= 10
    assert [one["name"] for one in local["alternatives"] if one["used"]] == ["privunit"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nothing",), "No such command 'nothing'"),
        (("list",), "Missing argument"),
        (("list", "polices"), "did you mean 'policies'"),
        (("list", "policies", "--source", "sarmasarkar"), "did you mean 'sarmasarkar2026'"),
        (("list", "trusts", "--source", "zheng2020"), "trusts have no papers"),
        (("calibrate", "--epsilon", "0"), "epsilon is 0.0"),
        (("calibrate", "--trust", "none"), "choose one of local, shuffle, joint, central"),
        (("calibrate", "--env", "population"), "bring no contexts; choose one of linear"),
    ],
)
def test_bad_input_is_one_line_everywhere(call: Call, words: tuple[str, ...], message: str) -> None:
    result = call(*words)
    assert result.exit_code == 2
    assert result.stderr.startswith("kerchief: error: ")
    assert result.stderr.count("\n") == 1
    assert message in result.stderr


def test_an_interrupt_anywhere_is_one_line(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(**values: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(calibrate_command, "find", stop)
    result = call("calibrate")
    assert result.exit_code == 130
    assert result.stderr.strip() == "kerchief: interrupted: nothing was finished"


def test_version_and_help(call: Call) -> None:
    assert __version__ in call("--version").stdout
    help_text = call("compare", "--help").stdout
    for flag in ("--env", "--contexts", "--trust", "--epsilon", "--json", "--mechanism"):
        assert flag in help_text
    assert "Usage" in call().output


def _run(*words: str, **settings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kerchief.cli", *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **settings},
    )


@pytest.mark.nightly
def test_a_missing_gpu_is_one_line(tmp_path: Path) -> None:
    result = _run(
        "--device", "gpu", "compare", "--out", str(tmp_path), CUDA_VISIBLE_DEVICES="",
        XDG_CACHE_HOME=str(tmp_path / "cache"),
    )  # fmt: skip
    assert result.returncode == 2
    assert result.stderr.startswith("kerchief: error: device is 'gpu'")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("home", ["writable", "blocked", "chosen"])
def test_compiled_code_is_kept_or_quietly_not(
    home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, object] = {}
    monkeypatch.setattr(device, "_configure", settings.__setitem__)
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null" if home == "blocked" else str(tmp_path))
    if home == "chosen":
        monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "mine"))
    device.keep_compiled()
    folder = str(tmp_path / "kerchief" / "compiled")
    assert settings.get("jax_compilation_cache_dir") == (folder if home == "writable" else None)


def test_truncated_compilation_cache_is_rebuilt_silently(tmp_path: Path) -> None:
    """A process that was killed, or still writes, leaves half an entry, which no other replaces."""
    program = (
        "from kerchief.cli.device import use_device; use_device('cpu', alone=False)\n"
        "import jax.numpy as jnp; print(jnp.arange(3.0) + 1)"
    )
    settings = {"XDG_CACHE_HOME": str(tmp_path), "JAX_COMPILATION_CACHE_DIR": ""}

    def play() -> subprocess.CompletedProcess[str]:
        words, env = [sys.executable, "-c", program], {**os.environ, **settings}
        return subprocess.run(words, capture_output=True, text=True, check=True, env=env)

    first = play()
    entries = list((tmp_path / "kerchief" / "compiled").glob("*-cache"))
    assert entries
    for entry in entries:
        entry.write_bytes(entry.read_bytes()[:-20])
    again = play()
    assert (again.stdout, again.stderr) == (first.stdout, first.stderr) == ("[1. 2. 3.]\n", "")


SIDE_BY_SIDE = """
import jax, jax.numpy as jnp
jax.config.update("jax_enable_x64", True)

def step(both, _):
    first, second = (jnp.linalg.cholesky(one @ one.T + jnp.eye(32)) for one in both)
    return (jnp.sin(first), jnp.cos(second)), None

play = jax.jit(jax.vmap(lambda one: jax.lax.scan(step, (one, 2 * one), None, length=2000)[0]))
many = jnp.ones((32, 32, 32))
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("from kerchief.cli.device import use_device; use_device('cpu')", "play(many)"),
        ("from kerchief.simulation.machine import compiled", "compiled(play, many)[0](many)"),
    ],
    ids=["commands", "simulations"],
)
def test_concurrent_batched_factorizations_do_not_deadlock(
    before: str, after: str, tmp_path: Path
) -> None:
    """JAX's threads did, for ever: a leaderboard stood still after 491 of its 784 cells."""
    program = f"{before}{SIDE_BY_SIDE}jax.block_until_ready({after})"
    ours = ("PJRT_NPROC", "XLA_FLAGS")
    usual = {name: value for name, value in os.environ.items() if name not in ours}
    env = {**usual, "XDG_CACHE_HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120, env=env)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no disk that is full")
@pytest.mark.parametrize("words", [("list", "policies"), ("list", "policies", "--json")])
def test_output_that_finds_no_room_is_one_line_and_its_own_code(words: tuple[str, ...]) -> None:
    """Not the code of a claim that fails."""
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "kerchief.cli", *words]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    assert "No space left on device" in done.stderr


@pytest.mark.parametrize("trust", ["local", "shuffle", "joint", "central"])
def test_calibrate_refuses_an_epsilon_without_bounds(call: Call, trust: str) -> None:
    result = call("calibrate", "--epsilon", "1e308", "--trust", trust)
    assert result.exit_code == 2
    assert "epsilon is 1e+308; it must lie in" in result.stderr


def test_worlds_are_listed_with_their_options(call: Call) -> None:
    said = call("list", "environments").stdout
    assert "clients" in said
    assert "growth" in said
