"""The noise of a guarantee, against the tables of the notes, and what others would have cost."""

from __future__ import annotations

import math

import pytest

from kerchief.core.errors import KerchiefError
from kerchief.experiments.calibrate import calibrate


def test_the_noise_is_exact_and_joint() -> None:
    answer = calibrate(epsilon=1.0, delta=1e-6)
    assert answer.sensitivity == pytest.approx(math.sqrt(4.5))
    assert answer.std == pytest.approx(8.96, abs=0.005)


def test_the_twin_keeps_the_promise() -> None:
    for epsilon in (0.2, 1.0, 10.0):
        answer = calibrate(epsilon=epsilon, delta=1e-5)
        assert answer.twin_epsilon <= epsilon
        assert answer.twin.std == pytest.approx(answer.std, rel=1e-4)


def test_alternatives_cost_more() -> None:
    answer = calibrate(epsilon=0.2, delta=1e-5)
    factors = {one.name: one.factor for one in answer.alternatives}
    assert factors["classical Gaussian"] == pytest.approx(1.486, abs=5e-4)
    assert factors["zCDP, tight"] == pytest.approx(17.9096 / 16.3041, abs=1e-4)
    assert factors["zCDP, loose"] == pytest.approx(24.0964 / 16.3041, abs=1e-4)
    assert factors["naive sensitivity"] == pytest.approx(4 / 3)
    # At so small an epsilon, pure randomizers are far quieter than what uses delta.
    pure = {name: factors.pop(name) for name in ("privunit", "shortlist", "laplace")}
    # 17.727 is its deviation for statistics within √2; ours are within √1.8 of their middle.
    unit = 17.727 * math.sqrt(1.8 / 2) / (math.sqrt(4.5) * 16.3041)
    assert pure["privunit"] == pytest.approx(unit, rel=1e-3)
    assert pure["shortlist"] == pytest.approx(pure["privunit"], rel=0.01)
    assert all(factor is not None and factor > 1 for factor in factors.values())


def test_the_classical_formula_is_refused_above_one() -> None:
    answer = calibrate(epsilon=1.5, delta=1e-5)
    (classical,) = [one for one in answer.alternatives if one.name == "classical Gaussian"]
    assert classical.std is None
    assert "epsilon 1" in classical.note


def test_a_curator_adds_less_noise_to_the_total() -> None:
    local = calibrate(epsilon=1.0, delta=1e-5, trust="local", horizon=400)
    central = calibrate(epsilon=1.0, delta=1e-5, trust="central", horizon=400)
    assert local.total_std == pytest.approx(20 * local.std)
    assert central.std == local.std
    assert central.total_std < local.total_std / 4


def test_joint_noise_is_that_of_the_worst_prefix() -> None:
    central = calibrate(epsilon=1.0, delta=1e-5, trust="central", horizon=20_000)
    joint = calibrate(epsilon=1.0, delta=1e-5, trust="joint", horizon=20_000)
    factors = {one.name: one.factor for one in joint.alternatives}
    # spec/noise.md B2: 4.22 for BLT, 14.49 for the tree at its worst, the root of T without either.
    assert joint.std == pytest.approx(4.22 * central.std, rel=1e-3)
    assert joint.total_std == joint.std
    assert joint.releases == 20_000
    assert factors["binary tree"] == pytest.approx(14.49 / 4.22, rel=1e-3)
    assert factors["fresh noise on every prefix"] == pytest.approx(
        math.sqrt(20_000) / 4.22, rel=1e-3
    )
    assert factors["zCDP, tight"] == central.alternatives[0].factor
    # Deployment has the noise of BLT, and no less.
    assert 1.0 <= joint.twin_std / joint.std < 1.0001
    assert joint.twin_epsilon == pytest.approx(1.0, rel=1e-4)
    assert joint.twin_epsilon <= 1.0


def test_a_given_sensitivity_scales_the_noise() -> None:
    one = calibrate(epsilon=1.0, delta=1e-5, sensitivity=1.0)
    two = calibrate(epsilon=1.0, delta=1e-5, sensitivity=2.0)
    assert two.std == pytest.approx(2 * one.std)
    assert all("split" not in other.name for other in one.alternatives)


@pytest.mark.parametrize(
    "change",
    [{"epsilon": 0.0}, {"delta": 1.0}, {"trust": "secret"}, {"sensitivity": -1.0}, {"dim": 0}],
)
def test_bad_values_are_refused(change: dict[str, float]) -> None:
    with pytest.raises(KerchiefError):
        calibrate(**({"epsilon": 1.0, "delta": 1e-5} | change))  # type: ignore[arg-type]
