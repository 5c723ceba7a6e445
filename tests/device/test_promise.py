"""A device takes part only where the noise keeps what the task promises."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
from tests.device.helpers import (
    ANSWERING,
    COINS,
    COMPASS,
    GRID,
    NEEDS,
    ONE_BIT,
    OPTIMIST,
    asking,
    task,
)
from tests.vectors.write import (
    coins,
    compass,
    noises,
    policies,
    problems,
    program,
    query,
    shortlist,
)

from kerchief.deployment.deployment import deploy
from kerchief.policies.thompson_sampling import LinearSampling
from kerchief.privacy import events
from kerchief.privacy.composition import epsilon_at
from kerchief.privacy.guarantee import Guarantee, Trust
from kerchief_device.promise import check, sensitivity
from kerchief_device.record import RULE
from kerchief_protocol.errors import InvalidValueError
from kerchief_protocol.noise import Bits, Coins, Noise, Rounded
from kerchief_protocol.programs import Library, Optimist, Program
from kerchief_protocol.task import Task

_, WIDE_POLICY = policies()[2]
WIDE: Optimist = program(*policies()[2])
"""The program whose query `noises` are calibrated for: epsilon 1, delta 1e-5."""


SURPRISING = dataclasses.replace(OPTIMIST, choice="guess", reweighed=RULE)


def reporting(noise: Noise, epsilon: float = 1.0) -> Task:
    """A task whose devices report surprises, as `compass` is calibrated for."""
    told = program(problems()[1], LinearSampling.of(problems()[1], trust="local"))
    return task(noise, trust="local", program=told, epsilon=epsilon)


def wide(noise: Noise, epsilon: float = 1.0, delta: float = 1e-5, **options: Any) -> Task:
    trust = "shuffle" if isinstance(noise, Coins | Bits) else "local"
    return task(noise, trust=trust, program=WIDE, epsilon=epsilon, delta=delta, **options)


def test_the_program_is_that_of_the_query() -> None:
    assert WIDE_POLICY.query == query()


def test_coins_keep_the_guarantee_and_no_more() -> None:
    noise, exact = coins((300, 357))
    found = check(wide(noise, needs=(300, 357)))
    assert found.recomputed
    assert 0.99 < found.epsilon <= 1
    assert found.epsilon == pytest.approx(epsilon_at([exact.event()], 1e-5), rel=1e-6)
    with pytest.raises(
        InvalidValueError, match=r"epsilon 0\.9 at delta 1e-05, but its noise keeps 0\.99"
    ):
        check(wide(noise, 0.9, needs=(300, 357)))


def test_gaussian_and_laplace_keep_the_guarantee_and_no_more() -> None:
    (gaussian, *_), (laplace, *_) = [one for one in noises() if isinstance(one[0], Rounded)]
    for noise, delta in ((gaussian, 1e-5), (laplace, 0.0)):
        found = check(wide(noise))
        assert 0.999 < found.epsilon <= 1
        assert found.delta == delta
        with pytest.raises(InvalidValueError, match=r"promises epsilon 0\.99"):
            check(wide(noise, 0.99))
    with pytest.raises(InvalidValueError, match="keeps inf"):
        check(wide(gaussian, delta=0.0))


def test_normal_noise_costs_what_the_accountant_says() -> None:
    (gaussian, *_) = next(one for one in noises() if isinstance(one[0], Rounded))
    assert isinstance(gaussian, Rounded)
    steps = math.ldexp(sensitivity(WIDE), gaussian.grid_bits) + math.sqrt(gaussian.size)
    event = events.DiscreteGaussian(
        sensitivity=steps, scale=gaussian.scale, dimension=gaussian.size
    )
    assert check(wide(gaussian)).epsilon == pytest.approx(epsilon_at([event], 1e-5), rel=1e-6)


def test_shortlist_keeps_the_guarantee_and_no_more() -> None:
    noise, simulated = shortlist()
    found = check(wide(noise))
    assert found.epsilon == pytest.approx(simulated.exact().event().epsilon, rel=1e-12)
    assert found.delta == 0
    with pytest.raises(InvalidValueError, match="keeps 1 only"):
        check(wide(noise, 0.999))
    likelier = dataclasses.replace(noise, units=noise.units + 2**26)
    with pytest.raises(InvalidValueError, match="promises epsilon 1 "):
        check(wide(likelier))


def test_compass_keeps_the_guarantee_and_no_more() -> None:
    noise, simulated = compass()
    found = check(reporting(noise))
    assert found.recomputed
    assert found.epsilon == pytest.approx(simulated.exact().event().epsilon, rel=1e-12)
    assert 0.999 < found.epsilon <= 1
    assert found.delta == 0
    with pytest.raises(InvalidValueError, match="keeps 1 only"):
        check(reporting(noise, 0.999))
    likelier = dataclasses.replace(noise, units=noise.units + 2**26)
    with pytest.raises(InvalidValueError, match="promises epsilon 1 "):
        check(reporting(likelier))


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_noise_on_residuals_keeps_the_guarantee_and_no_more(mechanism: str) -> None:
    promised = Guarantee(epsilon=1.0, delta=1e-5, trust=Trust.LOCAL)
    made = deploy(policy="best", problem=problems()[1], guarantee=promised, mechanism=mechanism)
    found = check(made.task)
    assert isinstance(made.task.program, Optimist)
    assert made.task.program.reweighed
    assert found.recomputed
    assert 0.999 < found.epsilon <= 1
    assert found.delta == (1e-5 if mechanism == "gaussian" else 0.0)
    less = dataclasses.replace(made.task.program, balance=1.01 * made.task.program.balance)
    with pytest.raises(InvalidValueError, match="promises epsilon 1 "):
        check(dataclasses.replace(made.task, program=less))


@pytest.mark.parametrize(
    ("field", "value", "word"),
    [
        ("units", 0, "units"),
        ("units", 2**32, "units"),
        ("candidates", 2**17, "candidates"),
        ("listed", 0, "listed"),
        ("listed", 256, "listed"),
        ("grid_bits", -513, "grid_bits"),
        ("vector", 0.0, "vector"),
        ("matrix", -1.0, "matrix"),
        ("weight", 1e-200, "weight"),
        ("lean", 0.0, "lean"),
        ("lean", 1.0, "lean"),
        ("square", 0.9, "a matrix of 0.9 and a vector of 0.5"),
        ("pull", 0.4, "make the task anew"),
    ],
)
def test_a_compass_that_does_not_fit_is_refused(field: str, value: Any, word: str) -> None:
    """Where it does, it does although a bound and an offset are rounded when they are added up."""
    assert check(task(COMPASS, trust="local", program=SURPRISING)).epsilon < 1
    rounded = dataclasses.replace(COMPASS, pull=0.5 * (1 + 1e-9))
    assert check(task(rounded, trust="local", program=SURPRISING)).recomputed
    other: Any = {field: value}
    with pytest.raises(InvalidValueError, match=word):
        check(task(dataclasses.replace(COMPASS, **other), trust="local", program=SURPRISING))


def test_a_compass_of_another_dimension_is_refused() -> None:
    longer = dataclasses.replace(COMPASS, dim=3)
    with pytest.raises(InvalidValueError, match="is for 3 dimensions"):
        check(task(longer, trust="local", program=SURPRISING))


@pytest.mark.parametrize(
    "other", [OPTIMIST, ANSWERING, dataclasses.replace(SURPRISING, weighted=True)]
)
@pytest.mark.parametrize("trust", ["local", "joint"])
def test_a_compass_is_for_surprises(other: Program, trust: str) -> None:
    with pytest.raises(
        InvalidValueError, match=f"and the program '{other.kind}' of this task reports"
    ):
        check(task(COMPASS, trust=trust, program=other))
    assert check(task(COMPASS, trust="local", program=Library())).epsilon < 1


def test_one_bit_keeps_the_guarantee_and_no_more() -> None:
    found = check(asking())
    assert found.epsilon == pytest.approx(2 * math.atanh(ONE_BIT.bias / 2**31))
    with pytest.raises(InvalidValueError, match=r"promises epsilon 0\.99"):
        check(asking(epsilon=0.99))


def test_the_sensitivity_is_the_programs_own() -> None:
    assert check(task(COINS, trust="shuffle", needs=NEEDS)).epsilon < 1
    larger = dataclasses.replace(OPTIMIST, response_high=2.0)
    with pytest.raises(InvalidValueError, match="promises epsilon 1 "):
        check(task(COINS, trust="shuffle", needs=NEEDS, program=larger))


def test_too_few_coins_make_no_task() -> None:
    fewer = dataclasses.replace(COINS, coins=(78399, 39200))
    with pytest.raises(InvalidValueError, match="fewer than the 7840000"):
        task(fewer, trust="shuffle", needs=NEEDS)


def test_cohorts_have_no_more_users_than_sums_have_room_for() -> None:
    with pytest.raises(InvalidValueError, match=r"1100 users, and horizon is 1000"):
        task(COINS, trust="shuffle", needs=(100, 1000))


def test_too_few_coins_for_any_proof_are_rejected() -> None:
    few = dataclasses.replace(COINS, scale=4, coins=(1, 1))
    with pytest.raises(InvalidValueError, match="keeps inf"):
        check(task(few, trust="shuffle", needs=NEEDS, epsilon=100.0))


@pytest.mark.parametrize("trust", ["local", "shuffle"])
def test_noiseless_task_is_rejected_under_local_and_shuffle_dp(trust: str) -> None:
    with pytest.raises(InvalidValueError, match="without noise"):
        check(task(GRID, trust=trust))
    assert not check(task(GRID, trust="central")).recomputed


@pytest.mark.parametrize("noise", [COINS, Bits(size=5, bits=8, bound=1.0, keep=(2**19, 2**19))])
def test_noise_that_hides_only_sums_is_rejected_under_local_dp(noise: Noise) -> None:
    assert check(task(noise, trust="shuffle", needs=NEEDS)).epsilon <= 1
    with pytest.raises(InvalidValueError, match="under local trust others see it alone"):
        check(task(noise, trust="local", needs=NEEDS))


@pytest.mark.parametrize(("epsilon", "delta"), [(-5.0, 1e-5), (1.0, -1e-5), (1.0, 1.0)])
def test_task_rejects_guarantee_out_of_range(epsilon: float, delta: float) -> None:
    with pytest.raises(InvalidValueError, match="promise at least 0, and a delta below 1"):
        task(epsilon=epsilon, delta=delta)


def test_task_with_trust_none_has_infinite_epsilon() -> None:
    assert check(task(trust="none", epsilon=0.1)).epsilon == math.inf


def test_bits_and_library_programs_are_not_recomputed() -> None:
    """Their guarantee relies on the name of the task."""
    bits = Bits(size=5, bits=8, bound=1.0, keep=(2**19, 2**19))
    found = check(task(bits, trust="shuffle", needs=NEEDS))
    assert (found.recomputed, found.epsilon, found.delta) == (False, 1.0, 1e-5)
    assert not check(task(COINS, trust="shuffle", needs=NEEDS, program=Library())).recomputed


@pytest.mark.parametrize(
    ("noise", "word"),
    [
        (dataclasses.replace(ONE_BIT, bias=2**31), "bias"),
        (dataclasses.replace(ONE_BIT, bias=0), "bias"),
        (dataclasses.replace(ONE_BIT, radius=0.0), "radius"),
    ],
)
def test_noise_that_is_none_is_refused(noise: Noise, word: str) -> None:
    with pytest.raises(InvalidValueError, match=word):
        check(task(noise, trust="local", program=ANSWERING))


def test_more_work_than_a_device_does_is_refused() -> None:
    many = dataclasses.replace(COINS, coins=(2**31, 2**31))
    with pytest.raises(InvalidValueError, match="coins"):
        check(task(many, trust="shuffle", needs=NEEDS))
    noise, _ = shortlist()
    with pytest.raises(InvalidValueError, match="candidates"):
        check(wide(dataclasses.replace(noise, candidates=2**20)))


def test_several_queries_are_composed() -> None:
    one = asking()
    both = dataclasses.replace(
        one, queries=("a", "b"), noise=(ONE_BIT, ONE_BIT), promise=one.promise
    )
    with pytest.raises(InvalidValueError, match=r"keeps 1\.99"):
        check(both)
    (gaussian, *_) = next(one for one in noises() if isinstance(one[0], Rounded))
    single = wide(gaussian)
    pair = dataclasses.replace(single, queries=("a", "b"), noise=(gaussian, gaussian))
    with pytest.raises(InvalidValueError, match=r"keeps 1\.4"):
        check(pair)
