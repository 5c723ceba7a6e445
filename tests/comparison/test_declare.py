"""A comparison is checked whole before anything runs, and plays what it must."""

from __future__ import annotations

import dataclasses
import math
import shlex
from typing import Any, cast

import jax
import pytest

from kerchief.cli import options
from kerchief.cli.compare import compare as command
from kerchief.cli.data import NAMES
from kerchief.cli.playing import Playing
from kerchief.comparison.chunks import build_protected_policy, find_chunk_width
from kerchief.comparison.comparison import Comparison
from kerchief.comparison.players import FLAGS, player
from kerchief.core.errors import InvalidValueError, KerchiefError, UnknownNameError
from kerchief.core.phases import ANSWERS
from kerchief.core.problems import PopulationProblem
from kerchief.environments import Population
from kerchief.mechanisms.gaussian import Gaussian
from kerchief.mechanisms.laplace import Laplace
from kerchief.mechanisms.privunit import PrivUnitG
from kerchief.policies import POLICIES
from kerchief.policies.phased.elimination import Elimination
from kerchief.privacy.vector_sum import scalar_sum, vector_sum
from kerchief.privatizers import SHUFFLES


def test_comparison_always_includes_baselines() -> None:
    comparison = Comparison(contexts=("ball", "fixed"), policies=("linucb",), epsilons=(0.5, 2.0))
    for contexts in comparison.contexts:
        cells = [cell for cell in comparison.cells() if cell.world == contexts]
        plain = [cell.player.policy for cell in cells if cell.asked is None]
        assert plain == ["uniform", "greedy", "linucb"]
        assert {cell.player.trust for cell in cells if cell.asked} == {
            "local",
            "shuffle",
            "joint",
            "central",
        }
        assert len(cells) == 3 + 4 * 2


def test_no_cell_plays_twice() -> None:
    comparison = Comparison(
        contexts=("ball", "ball"),
        policies=("greedy", "linucb", "uniform"),
        trusts=("none", "none"),
        epsilons=(1.0, 1.0),
    )
    assert [cell.player.policy for cell in comparison.cells()] == ["uniform", "greedy", "linucb"]


def test_continual_noise_is_for_joint_trust() -> None:
    plain, chosen = Comparison().cells(), Comparison(continual="doubling").cells()
    for one, other in zip(plain, chosen, strict=True):
        assert (one == other) == (one.player.trust != "joint")
        assert other.label() == one.label().replace("joint", "joint, doubling")
    with pytest.raises(KerchiefError, match="no continual noise is called 'x'"):
        player("linucb", trust="joint", epsilon=1.0, mechanism="x")


@pytest.mark.parametrize("name", [name for name in POLICIES if name.endswith("@paper")])
def test_paper_version_has_paper_noise_and_is_not_deployable(name: str) -> None:
    entry = POLICIES[name]
    assert not entry.deployable
    if "local" in entry.trusts:
        assert player(name, trust="local", epsilon=1.0).mechanism == "gaussian"


def test_configuration_without_privacy_has_infinite_epsilon() -> None:
    cell = Comparison(trusts=("none",)).cells()[0]
    assert cell.asked is None
    assert math.isinf(cell.guarantee.epsilon)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"env": "linar"}, "did you mean 'linear'"),
        ({"contexts": ("bal",)}, "did you mean 'ball'"),
        ({"contexts": ()}, "contexts is empty"),
        ({"policies": ("linucp",)}, "did you mean 'linucb'"),
        ({"policies": ("linucb@book",)}, "no policy is called 'linucb@book'"),
        ({"trusts": ("locl",)}, "did you mean 'local'"),
        (
            {"policies": ("glm-rare",), "trusts": ("local",), "env": "probit"},
            "'glm-rare' supports none, joint",
        ),
        ({"policies": ("dpe",), "trusts": ("joint",)}, "supports none, local, shuffle, central"),
        ({"policies": ("greedy",), "env": "chance", "trusts": ("central",)}, "none, local"),
        ({"policies": ("dpe",), "env": "linear"}, "env is 'linear'; policy 'dpe' plays in popul"),
        (
            {"policies": ("linucb", "dpe")},
            "'linear' where no env is given, and policy 'dpe' in pop",
        ),
        ({"policies": ("tsallis",), "env": "quadratic"}, "plays in chance, counted, alternating"),
        ({"policies": ("two-point",), "env": "chance"}, "env is 'chance'; policy 'two-point' pl"),
        ({"env": "chance"}, "policy 'best' plays in linear, logistic, probit"),
        (
            {"env": "chance", "policies": ("ucb",), "dim": 3},
            "parameter is 'dim'; this environment has",
        ),
        (
            {"options": (("clients", 10),)},
            "parameter is 'clients'; this environment has contexts",
        ),
        ({"options": (("contexts", "ball"),)}, "parameter is 'contexts'"),
        ({"dim": 2, "options": (("dim", 3),)}, "parameter is 'dim', which is given by itself too"),
        ({"options": ("clients",)}, "options is no tuple of pairs"),
        ({"numbers": 3}, "numbers is no tuple of pairs"),
        ({"numbers": (("courage", 1.0),)}, "parameter is 'courage'; LinearSampling has caution"),
        ({"numbers": (("exploration", "x"),)}, "exploration is 'x'; it must be a number"),
        ({"numbers": (("exploration", -1.0),)}, "exploration is -1.0; it must be finite and at"),
        ({"policies": ("dpe",), "options": (("clients", 0.5),)}, "clients is 0.5"),
        ({"policies": ("dpe",), "shuffling": "bits"}, "leave it at 'best'"),
        ({"trusts": ("local",), "continual": "tree"}, "no row has joint trust"),
        ({"trusts": ("joint",), "shuffling": "bits"}, "no row has shuffle trust"),
        ({"trusts": ("central",), "randomizer": "laplace"}, "no row has local trust"),
        ({"epsilons": (1e-320,)}, "epsilon is 1e-320; it must be finite and at least"),
        ({"policies": ("uniform",), "trusts": ("local",)}, "'uniform' supports none"),
        ({"continual": "dubling"}, "did you mean 'doubling'"),
        ({"continual": "toeplitz", "horizon": 20_001}, "at most 20000"),
        ({"noise": "gausian"}, "did you mean 'gaussian'"),
        ({"mode": "tunned"}, "did you mean 'tuned'"),
        ({"epsilons": (0.0,)}, "epsilon is 0.0; it must be above 0"),
        ({"epsilons": (math.nan,)}, "epsilon is nan"),
        ({"epsilons": (math.inf,)}, "epsilon is inf"),
        ({"delta": 0.0}, "choose one, or trust 'local' or 'central' with pure noise"),
        ({"delta": 1.0}, "delta is 1.0"),
        ({"horizon": -1}, "horizon is -1; it must be at least 1"),
        ({"horizon": 2**31}, "it must be at least 1 and at most 10000000"),
        (
            {"horizon": 2**31, "trusts": ("local",)},
            "it must be at least 1 and at most 2147483647",
        ),
        ({"replicates": 0}, "replicates is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"dim": 1, "contexts": ("intercept",)}, "dim is 1; it must be at least 2"),
        ({"arms": 0}, "arms is 0"),
        ({"arms": 10**9}, "arms is 1000000000"),
        ({"fewest": 30}, "fewest arms is 30"),
        ({"radius": math.nan}, "radius is nan"),
    ],
)
def test_bad_values_are_refused_in_one_line(change: dict[str, Any], words: str) -> None:
    with pytest.raises(KerchiefError) as caught:
        Comparison(**change)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_large_delta_is_allowed_with_a_warning() -> None:
    assert Comparison(horizon=1000, delta=1e-4).warnings() == ()
    (warning,) = Comparison(horizon=1000, delta=1e-3).warnings()
    assert "1/horizon = 0.001" in warning
    assert Comparison(horizon=1000, delta=0.5, trusts=("none",)).warnings() == ()


@pytest.mark.parametrize(
    "comparison",
    [
        Comparison(contexts=("starved",), epsilons=(0.1, 3.0), fewest=2, seed=7),
        Comparison(
            policies=("dpe", "pe"),
            options=(("clients", 50_000), ("spread", 0.2)),
            numbers=(("growth", 0.5),),
            trusts=("local", "central"),
            randomizer="laplace",
        ),
        Comparison(policies=("linucb@paper",), trusts=("local",), epsilons=(1.0,)),
        Comparison(policies=("linucb", "linucb@paper"), trusts=("local",), epsilons=(1.0,)),
        Comparison(policies=("linucb@paper",), trusts=("local",), randomizer="best"),
        Comparison(policies=("tsallis",), arms=3, options=(("gap", 0.3),)),
        Comparison(policies=("two-point",), env="absolute", noise=0.25, mode="theory"),
    ],
    ids=lambda comparison: str(comparison.world),
)
def test_the_command_names_every_parameter(comparison: Comparison) -> None:
    """And played again, it is the same comparison: the same cells in the same worlds."""
    words = shlex.split(comparison.command())
    flags = [word for word in words if word.startswith("--")]
    said = {name for name, value in comparison.parameters().items() if value is not None}
    assert set(flags) == {f"--{name.replace('_', '-')}" for name in said}
    assert words.count("--epsilon") == len(comparison.epsilons)
    read = command.make_context("compare", words[2:]).params
    how = {field.name for field in dataclasses.fields(Playing)}
    about = how | {"mechanisms"} | {name for name in NAMES if name != "data"}
    declared = {name: read[name] for name in read if name not in about}
    declared |= options.choose_mechanisms(read["mechanisms"], read["trusts"])
    fields = {field.name for field in dataclasses.fields(Comparison)}
    assert declared.keys() <= fields
    assert fields - declared.keys() <= {"fewest", "noise", "project", *FLAGS.values()}
    again = Comparison(**declared)
    assert again.parameters() == comparison.parameters()
    assert again.cells() == comparison.cells()
    for cell in again.cells():
        one, other = (plan.environment(cell.world) for plan in (again, comparison))
        assert str(jax.tree.structure(one)) == str(jax.tree.structure(other))
        assert jax.tree.leaves(one) == jax.tree.leaves(other)


@pytest.mark.parametrize(
    ("name", "trust", "flag", "own"),
    [
        ("dpe@paper", "local", "randomizer", "gaussian"),
        ("pe@paper", "central", "curator", "gaussian"),
        ("sblb@paper", "shuffle", "shuffling", "bit"),
        ("linucb", "joint", "continual", "best"),
    ],
)
def test_explicit_best_overrides_mechanism_of_the_policy(
    name: str, trust: str, flag: str, own: str
) -> None:
    """Only what was not said is the bandit's own; both are recorded as they are played."""
    small: Any = {"policies": (name,), "trusts": (trust,), "epsilons": (1.0,), "horizon": 400}
    for word, played in ((None, own), ("best", "best")):
        plan = Comparison(**small | {flag: word})
        assert plan.cells()[-1].player.mechanism == played
        assert plan.parameters()["mechanism"] == [f"{trust}={played}"]


def test_policy_specific_mechanisms_are_not_recorded() -> None:
    """Two in one table, with different noises: no option would give both."""
    plan = Comparison(policies=("sblb", "sblb@paper"), trusts=("shuffle",), epsilons=(1.0,))
    assert [cell.player.mechanism for cell in plan.cells()][-2:] == ["best", "bit"]
    assert "mechanism" not in plan.parameters()
    assert "--mechanism" not in plan.command()


HOMES = {
    "dpe": "population",
    "pe": "population",
    "tsallis": "chance",
    "kl-ucb": "chance",
    "lil-ucb": "counted",
    "two-point": "quadratic",
    "one-point": "quadratic",
}


@pytest.mark.parametrize(("policy", "world"), list(HOMES.items()))
def test_every_kind_of_bandit_plays_in_a_world_of_its_own(policy: str, world: str) -> None:
    """Under every trust that it supports, beside the yardsticks, where no world is named."""
    comparison = Comparison(policies=(policy,), horizon=2000, epsilons=(1.0,), replicates=2)
    assert comparison.world == world
    assert {cell.world for cell in comparison.cells()} == {world}
    private = [trust for trust in POLICIES[policy].trusts if trust != "none"]
    assert [(cell.player.policy, cell.player.trust) for cell in comparison.cells()] == [
        *((name, "none") for name in ("uniform", "greedy", policy)),
        *((policy, trust) for trust in private),
    ]


@pytest.mark.parametrize(
    ("world", "trusts"),
    [
        ("linear", ("local", "shuffle", "joint", "central")),
        ("population", ("local", "shuffle", "central")),
        ("chance", ("local",)),
        ("quadratic", ("local",)),
    ],
)
def test_greedy_play_is_private_where_its_world_allows_it(
    world: str, trusts: tuple[str, ...]
) -> None:
    """Phases have no prefix totals, and single reports no totals at all."""
    options = {"contexts": ("ball",)} if world == "linear" else {}
    cells = Comparison(env=world, policies=("greedy",), epsilons=(1.0,), **options).cells()  # type: ignore[arg-type]
    assert tuple(cell.player.trust for cell in cells if cell.asked) == trusts


def test_options_and_numbers_reach_the_world_and_the_policy() -> None:
    crowd = Comparison(
        policies=("dpe",),
        trusts=("central",),
        epsilons=(1.0,),
        options=(("clients", 2000),),
        numbers=(("growth", 0.5), ("growth", 0.75)),
    )
    cell = crowd.cells()[-1]
    problem = crowd.environment("population").problem(crowd.horizon)
    assert isinstance(problem, PopulationProblem)
    assert problem.clients == 2000
    policy = build_protected_policy(cell, problem).policy
    assert isinstance(policy, Elimination)
    assert policy.growth == 0.75
    parent: Any = build_protected_policy(crowd.cells()[2], problem).policy
    assert parent.growth != 0.75
    coins: Any = Comparison(policies=("ucb",), options=(("gap", 0.3),)).environment("chance")
    assert coins.gap == 0.3


def test_a_parent_is_tuned_and_has_widths_of_the_same_kind() -> None:
    """Of a yardstick, too."""
    tuned, proved = player("greedy"), player("greedy", mode="theory")
    assert player("greedy", trust="local", epsilon=1).parents() == (tuned,)
    assert player("greedy", trust="local", epsilon=1, mode="theory").parents() == (tuned, proved)
    assert tuned.parents() == ()


def _protected(policy: str, epsilon: float = 1.0, **words: Any) -> Any:
    who = player(policy, epsilon=epsilon, **words)
    problem = Population.of(dim=2, arms=5, clients=2000).problem(2000)
    return who.build_protected(problem, who.promise(1e-5, 2000)).privatizers[ANSWERS]


def test_phases_are_protected_by_the_noise_that_was_named() -> None:
    for word, kind in (("privunit", PrivUnitG), ("gaussian", Gaussian), ("laplace", Laplace)):
        (noise,) = _protected("dpe", trust="local", mechanism=word).noises
        assert type(noise) is kind
    (best,) = _protected("dpe", trust="local").noises
    assert type(best) is PrivUnitG
    (paper,) = _protected("dpe@paper", trust="local").noises
    assert type(paper) is Gaussian


@pytest.mark.parametrize("word", [word for word in SHUFFLES if word not in ("best", "theorem")])
def test_phases_are_not_shuffled_by_the_size_of_a_cohort(word: str) -> None:
    with pytest.raises(InvalidValueError, match=f"shuffling is '{word}'.*leave it at 'best'"):
        _protected("pe", trust="shuffle", mechanism=word)
    with pytest.raises(UnknownNameError, match=f"no randomizer is called '{word}'"):
        player("pe", trust="local", epsilon=1.0, mechanism=word)


def test_phases_are_shuffled_with_the_coins_that_were_published() -> None:
    """Equations 22 and 60 of the paper, for vectors of norm 1 and for single numbers.

    Coins hardly depend on the size of a phase: by less than a part in fifty here.
    """
    for name, proved in (
        ("dpe@paper", vector_sum(users=148, size=4, epsilon=1.0, delta=1e-5)),
        ("pe@paper", scalar_sum(users=900, epsilon=1.0, delta=1e-5)),
    ):
        made = _protected(name, trust="shuffle", mechanism="theorem")
        (noise,) = made.noises
        assert float(noise.std) == pytest.approx(proved.std, rel=0.02)
        assert float(noise.step) <= 2 / proved.levels
    with pytest.raises(InvalidValueError, match="the theorem is proved below 15"):
        _protected("dpe", 15.0, trust="shuffle", mechanism="theorem")


def test_a_curator_may_add_laplace_noise() -> None:
    """One number moves by 2, and 2d of them by 2√(2d) in the sum of absolute values."""
    for name, moved in (("pe", 2.0), ("dpe", 2 * math.sqrt(4))):
        (noise,) = _protected(name, trust="central", mechanism="laplace").noises
        assert type(noise) is Laplace
        assert float(noise.std) == pytest.approx(math.sqrt(2) * moved)
    asked = Comparison(policies=("pe",), trusts=("central",), curator="laplace", epsilons=(1.0,))
    assert "--mechanism central=laplace" in asked.command()
    assert asked.cells()[-1].label() == "pe central, laplace ε=1"
    with pytest.raises(InvalidValueError, match="no row has central trust"):
        Comparison(policies=("pe",), trusts=("local",), curator="laplace")


def test_a_paper_plays_its_own_noise_under_every_trust() -> None:
    """Normal noise in phased elimination, and one randomized bit in Algorithm 2 of SBLB."""
    for name, kind in (("pe", Laplace), ("pe@paper", Gaussian), ("dpe@paper", Gaussian)):
        (noise,) = _protected(name, trust="central").noises
        assert type(noise) is kind
    for name in ("sblb@paper", "sblb-fixed@paper"):
        assert player(name, trust="shuffle", epsilon=1.0).mechanism == "bit"
        asked = Comparison(
            policies=(name,), trusts=("shuffle",), epsilons=(1.0,), contexts=("ball",), dim=2
        )
        assert asked.cells()[-1].label() == f"{name} shuffle, bit ε=1"
    asked = Comparison(
        policies=("sblb@paper",),
        trusts=("shuffle",),
        shuffling="byte",
        epsilons=(1.0,),
        contexts=("ball",),
        dim=2,
    )
    assert asked.cells()[-1].label() == "sblb@paper shuffle, byte ε=1"


def test_long_histories_play_in_smaller_chunks() -> None:
    """A million rows of six numbers, for each of a thousand replicates, would not fit."""
    long = Comparison(
        env="probit",
        contexts=("ball",),
        policies=("glm-rare",),
        trusts=("joint",),
        epsilons=(1.0,),
        horizon=1_000_000,
        replicates=1000,
    )
    assert find_chunk_width(long) == 2**28 // (1_000_000 * 6)
    assert find_chunk_width(dataclasses.replace(long, policies=("glm",))) == 64


@pytest.mark.parametrize("word", ["orthant", "nonsense"])
def test_contexts_are_refused_where_a_world_has_none(word: str) -> None:
    with pytest.raises(
        InvalidValueError, match=f"'{word}', and the population world has none; leave"
    ):
        Comparison(policies=("dpe",), contexts=(word,))


@pytest.mark.parametrize(
    ("policy", "world", "worlds"),
    [
        ("ecolog", "linear", "logistic"),
        ("one-point-smooth", "absolute", "quadratic, drifting, reacting"),
        ("two-point-strong", "linear-loss", "quadratic, kinked, drifting, reacting"),
        ("best", "population", "linear, logistic, probit, poisson, own"),
    ],
)
def test_misfit_error_names_environments_that_fit_the_policy(
    policy: str, world: str, worlds: str
) -> None:
    with pytest.raises(InvalidValueError, match=f"policy '{policy}' plays in {worlds}$"):
        Comparison(env=world, policies=(policy,))


@pytest.mark.parametrize("policy", ["linucb", "dpe", "tsallis"])
def test_epsilon_beyond_any_cost_is_rejected_before_any_run(policy: str) -> None:
    with pytest.raises(InvalidValueError, match=r"epsilon is 1e\+308; it must lie in"):
        Comparison(policies=(policy,), trusts=("local",), epsilons=(1e308,))


def test_unattainable_shuffle_noise_is_rejected_before_any_run() -> None:
    with pytest.raises(InvalidValueError, match="needs coins of deviation"):
        Comparison(trusts=("shuffle",), shuffling="theorem", epsilons=(1e-5,), horizon=60)


def test_a_word_for_the_noise_is_no_number_of_a_policy() -> None:
    numbers: Any = {"randomizer": "privunit"}
    with pytest.raises(
        InvalidValueError, match="give a word for the noise as mechanism='privunit'"
    ):
        player("dpe", trust="local", epsilon=1.0, **numbers)


def test_unknown_mode_is_rejected() -> None:
    facts = Comparison(contexts=("ball",)).environment("ball").problem(100)
    with pytest.raises(
        InvalidValueError, match="mode is 'theoretical'; choose one of theory, tuned"
    ):
        POLICIES["linucb"].build(facts, cast(Any, "theoretical"))


def test_pure_dp_runs_with_laplace_noise_and_rejects_gaussian() -> None:
    pure: dict[str, Any] = {
        "policies": ("pe",),
        "trusts": ("central",),
        "epsilons": (1.0,),
        "delta": 0.0,
    }
    for word in ("best", "laplace"):
        plan = Comparison(**pure, curator=word, horizon=500, replicates=2)
        assert [cell.guarantee.delta for cell in plan.cells() if cell.asked] == [0.0]
    with pytest.raises(InvalidValueError, match="delta is 0"):
        Comparison(**pure, curator="gaussian", horizon=500, replicates=2)


def test_single_arm_runs_only_where_the_best_arm_is_given() -> None:
    with pytest.raises(InvalidValueError, match=r"policy 'single-arm' plays in own$"):
        Comparison(env="linear", policies=("single-arm",))
    assert "single-arm" in [cell.player.policy for cell in Comparison(env="own").cells()]
