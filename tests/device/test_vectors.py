"""The light device computes what the library computes: arms, statistics, whole numbers."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from tests.device.helpers import real, reals, vectors
from tests.vectors.bytes_of import Bytes
from tests.vectors.write import (
    bounds,
    choices,
    clients,
    compass,
    compasses,
    guesses,
    noises,
    own_models,
    policies,
    projections,
    query,
    records,
    reweighed_records,
    shortlist,
)

from kerchief.core.precision import double_precision
from kerchief_device import Device, Pending
from kerchief_device.act import Ellipsoid, PosteriorModel, act, act_on_a_guess, guess
from kerchief_device.disjoint_models import DisjointPosterior, act_on_scores, encode, own_size
from kerchief_device.phased import Survey
from kerchief_device.promise import sensitivity, taxicab
from kerchief_device.randomize import randomize
from kerchief_device.record import RULE, Moments, answer, encode_loss
from kerchief_protocol import canonical
from kerchief_protocol import noise as kinds
from kerchief_protocol.canonical import pack, unpack, write
from kerchief_protocol.model import Model, Status
from kerchief_protocol.noise import Compass, Floats, Noise, Shortlist
from kerchief_protocol.programs import Answering, DisjointModels, Optimist, Phased
from kerchief_protocol.projection import Projection
from kerchief_protocol.report import Report
from kerchief_protocol.task import Task

READ = ("vector", "matrix", "weight")
KINDS = {one.kind: one for one in Noise.__args__}


def upper(case: Any) -> tuple[Ellipsoid, Floats, Floats]:
    dim = case["dim"]
    seen = Ellipsoid(
        estimate=reals(case["estimate"]),
        inverse=reals(case["inverse"]).reshape(dim, dim),
        width=real(case["width"]),
    )
    rows = np.array([reals(row) for row in case["rows"]])
    scores = [row @ seen.estimate + seen.width * np.sqrt(row @ seen.inverse @ row) for row in rows]
    return seen, rows, np.array(scores)


def near(found: Floats, wanted: Floats) -> bool:
    return bool(np.linalg.norm(found - wanted) <= 2**-50 * np.linalg.norm(wanted))


def test_arms_are_equal_unless_scores_are() -> None:
    for case in vectors("act"):
        seen, rows, scores = upper(case)
        found = act(seen, rows, np.array(case["allowed"]))
        assert case["allowed"][found]
        assert found == case["arm"] or abs(scores[found] - scores[case["arm"]]) < 1e-5
        if all((row == rows[0]).all() for row in rows):
            assert found == case["allowed"].index(True), "the first of equals"


@pytest.mark.parametrize("dim", [1, 2, 5, 7, 16, 33, 64])
@pytest.mark.parametrize("count", [3, 7, 20, 33])
def test_equal_arms_have_equal_scores(dim: int, count: int) -> None:
    """Wherever they are among the rows, whatever a processor's products of matrices round."""
    rng = np.random.default_rng(dim)
    for _ in range(20):
        rows, square = np.tile(rng.normal(size=dim), (count, 1)), rng.normal(size=(dim, dim))
        estimate, normals = rng.normal(size=(2, dim))
        bounds = Ellipsoid(estimate=estimate, inverse=square @ square.T, width=0.7)
        assert act(bounds, rows, None) == 0
        guessed = PosteriorModel(estimate=estimate, sample=square, widen=square)
        assert act_on_a_guess(guessed, rows, None, normals, 0.3) == 0


def test_guesses_play_the_same_arms_unless_values_are_equal() -> None:
    for case in vectors("guess"):
        dim, rows = case["dim"], np.array([reals(row) for row in case["rows"]])
        seen = PosteriorModel(
            estimate=reals(case["estimate"]),
            sample=reals(case["sample"]).reshape(dim, dim),
            widen=reals(case["widen"]).reshape(dim, dim),
        )
        normals, lot = reals(case["normals"]), real(case["lot"])
        found = act_on_a_guess(seen, rows, np.array(case["allowed"]), normals, lot)
        assert case["allowed"][found]
        lengths = np.linalg.norm(rows @ seen.widen, axis=1)
        values = rows @ (seen.estimate + seen.sample @ normals) + 2 * lot * lengths
        assert found == case["arm"] or abs(values[found] - values[case["arm"]]) < 1e-5
    assert sum(case["arm"] > 0 for case in vectors("guess")) > len(vectors("guess")) / 2


def test_disjoint_models_match_vectors_for_arm_and_report() -> None:
    for case in vectors("own"):
        program = unpack(DisjointModels, case["program"])
        arms, dim = program.arms, program.dim
        rows, mask = np.array([reals(row) for row in case["rows"]]), np.array(case["allowed"])
        seen = DisjointPosterior(
            estimate=reals(case["estimate"]).reshape(arms, dim),
            sample=reals(case["sample"]).reshape(arms, dim, dim),
        )
        assert act_on_scores(seen, rows, mask, reals(case["normals"])) == case["arm"]
        found = encode(program, rows[case["arm"]], case["arm"], real(case["reward"]))
        assert near(found, reals(case["statistic"]))
        assert len(found) == own_size(program)
        assert sensitivity(program) == pytest.approx(real(case["sensitivity"]), rel=1e-15)
        assert taxicab(program) == pytest.approx(real(case["taxicab"]), rel=1e-15)
    assert sum(case["arm"] > 0 for case in vectors("own")) > len(vectors("own")) / 3


def test_features_are_projected_alike() -> None:
    for case in vectors("projection"):
        through = unpack(Projection, case["projection"])
        found = through.apply(np.array([reals(row) for row in case["rows"]]))
        for row, wanted in zip(found, case["mapped"], strict=True):
            assert near(row, reals(wanted))


def test_the_library_still_projects_like_this() -> None:
    for case, wanted in zip(projections(), vectors("projection"), strict=True):
        assert pack(case["projection"]) == wanted["projection"]
        assert near(np.array(case["mapped"]), np.array([reals(row) for row in wanted["mapped"]]))


def test_a_guess_is_normal_and_new_every_time() -> None:
    """Mean, variance, correlation and tails of 20000 guesses, each within 5 standard errors."""
    drawn = [guess(3, os.urandom) for _ in range(20_000)]
    normals, lots = np.array([one for one, _ in drawn]), np.array([lot for _, lot in drawn])
    assert np.abs(normals.mean(0)).max() < 5 / np.sqrt(20_000)
    assert np.abs(np.cov(normals.T) - np.eye(3)).max() < 5 * np.sqrt(2 / 20_000)
    assert abs((np.abs(normals) > 2).mean() - 0.0455) < 5 * np.sqrt(0.0455 / 60_000)
    assert abs(lots.mean() - 0.5) < 5 / np.sqrt(12 * 20_000)
    assert len(np.unique(lots)) == len(lots)


def test_most_vectors_play_another_arm_than_the_first() -> None:
    assert sum(case["arm"] > 0 for case in vectors("act")) > len(vectors("act")) / 2


def test_statistics_are_equal_to_the_last_bits() -> None:
    for case in vectors("record"):
        program = unpack(Optimist, case["program"])
        wanted = reals(case["statistic"])
        given = reals(case["estimate"]), reals(case["features"]), real(case["reward"])
        found = Moments(program).statistic(*given)
        assert near(found, wanted)


def test_weighted_surprises_are_equal_to_the_last_bits() -> None:
    full, forms = [], set()
    for case in vectors("reweighed"):
        program = unpack(Optimist, case["program"])
        weights = np.array([reals(row) for row in case["weights"]])
        reference = reals(case["reference"])
        features, reward = reals(case["features"]), real(case["reward"])
        found = Moments(program).surprise(weights, reference, features, reward)
        assert near(found, reals(case["statistic"]))
        full.append(np.linalg.norm(weights @ features) > program.norm)
        assert found.any() == features.any(), "without a direction nothing is added"
        forms.add(program.weighted)
    assert 10 < sum(full) < len(full) - 10
    assert forms == {False, True}
    assert 2 < sum(not reals(case["features"]).any() for case in vectors("reweighed")) < 10


def test_answers_are_equal_to_the_last_bits() -> None:
    for case in vectors("answer"):
        program, losses = unpack(Answering, case["program"]), reals(case["losses"])
        found = encode_loss(program, answer(program, losses))
        assert near(found, reals(case["statistic"]))


def test_every_link_has_vectors() -> None:
    told = [case["program"] for case in vectors("record")]
    assert {one["link"] for one in told} == {"linear", "logistic", "probit", "poisson"}
    assert {one["linearized"] for one in told} == {True, False}


def test_sensitivities_are_equal() -> None:
    for case in vectors("sensitivity"):
        program = unpack(Optimist, case["program"])
        assert sensitivity(program) == pytest.approx(real(case["sensitivity"]), rel=1e-15)
        assert taxicab(program) == pytest.approx(real(case["taxicab"]), rel=1e-15)
    assert {case["program"]["reweighed"] for case in vectors("sensitivity")} == {0, RULE}


def test_whole_numbers_are_equal() -> None:
    seen = set()
    for case in vectors("noise"):
        noise = unpack(KINDS[case["noise"]["kind"]], case["noise"])
        statistic = reals(case["statistic"])
        numbers = randomize(noise, statistic, case["label"], Bytes(case["seed"]))
        assert numbers.tolist() == case["numbers"]
        assert numbers.dtype == np.int64
        assert noise.bounds(case["label"]).hold(numbers)
        seen.add(noise.kind)
    assert seen == set(KINDS) - {"shortlist", "compass"}


def test_a_shortlist_is_that_of_the_library() -> None:
    noise, simulated = shortlist()
    exact = simulated.exact()
    rng = np.random.default_rng(5)
    for number in range(50):
        statistic = np.array(noise.center) + noise.radius * rng.normal(size=noise.size) / 5
        wanted = exact.add(statistic, Bytes(str(number))) / exact.grid
        found = randomize(noise, statistic, 0, Bytes(str(number)))
        # The library multiplies by a quotient, the wire by a number: one unit in a tie.
        assert np.abs(found - wanted).max() <= 1
        assert (found == wanted).mean() > 0.9


@pytest.mark.parametrize("draws", [1000, pytest.param(40000, marks=pytest.mark.nightly)])
def test_reports_of_a_shortlist_have_their_mean_and_deviation(draws: int) -> None:
    for case in vectors("shortlist"):
        noise = unpack(Shortlist, case["noise"])
        statistic, most = reals(case["statistic"]), real(case["deviation"])
        source = Bytes("many")
        rows = np.stack([randomize(noise, statistic, 0, source) for _ in range(draws)])
        reports = np.ldexp(rows.astype(np.float64), -noise.grid_bits)
        error = reports.mean(0) - statistic
        assert np.abs(error).max() < 4.5 * most / np.sqrt(draws)
        # Across the statistic, which is nearly everywhere, the deviation is a candidate's.
        spread = np.median(reports.std(0)) / noise.factor
        assert abs(spread - 1) < max(0.03, 4 / np.sqrt(2 * draws))
        assert reports.std(0).max() < 1.1 * most


def test_a_compass_is_that_of_the_library() -> None:
    for epsilon in (1.0, 4.0):
        noise, simulated = compass(epsilon)
        exact, rng = simulated.exact(), np.random.default_rng(5)
        for number in range(50):
            statistic = rng.normal(size=noise.size) * (0.0 if number == 0 else noise.square)
            wanted = exact.add(statistic, Bytes(str(number))) / exact.grid
            found = randomize(noise, statistic, 0, Bytes(str(number)))
            assert found.tolist() == wanted.tolist()
            assert noise.bounds(0).hold(found)


@pytest.mark.parametrize("draws", [3000, pytest.param(40000, marks=pytest.mark.nightly)])
def test_reports_of_a_compass_have_their_mean_and_deviation(draws: int) -> None:
    for case in vectors("compass"):
        noise = unpack(Compass, case["noise"])
        statistic, source = reals(case["statistic"]), Bytes("many")
        rows = np.stack([randomize(noise, statistic, 0, source) for _ in range(draws)])
        apart = np.ldexp(rows.astype(np.float64), -noise.grid_bits) - statistic
        assert (np.abs(apart.mean(0)) < 5 * apart.std(0) / np.sqrt(draws)).all()
        cut = noise.size - noise.dim
        most = max((apart[:, part] ** 2).mean() for part in (slice(cut), slice(cut, None)))
        if case["certain"]:
            error = max(0.02, 4 / np.sqrt(2 * draws))
            assert np.sqrt(most) == pytest.approx(real(case["deviation"]), rel=error)
        else:
            assert np.sqrt(most) > real(case["deviation"]) * 0.98


def test_clients_of_phases_send_these_bytes() -> None:
    """From the task to the report, and the same again from a copy of the client's store."""
    for case in vectors("client"):
        task, model = Task.read(case["task"].encode()), Model.read(case["model"].encode())
        status, pending = Status.read(case["status"].encode()), Pending()
        pending.secret = bytes.fromhex(case["secret"])
        device = Device(task, pending=pending, source=Bytes(case["seed"]))
        place = device.join(model, status)
        assert (task.id.hex(), place.label) == (case["name"], status.label)
        assert (list(place.atoms), list(place.pulls)) == (case["atoms"], case["pulls"])
        if case["averages"] is not None:
            assert device.reward(place.id, reals(case["averages"]))
        report = device.report(place.id, status)
        assert Report.read(report, task).id.hex() == case["id"]
        assert report.hex() == case["report"] or case["report"] is None


def test_answers_of_clients_are_equal_to_the_last_bits() -> None:
    for case in vectors("client"):
        task, model = Task.read(case["task"].encode()), Model.read(case["model"].encode())
        assert isinstance(task.program, Phased)
        label = Status.read(case["status"].encode()).label
        silent = [task.reward.default] * task.program.atoms
        seen = silent if case["averages"] is None else reals(case["averages"]).tolist()
        features = np.array([label, *seen])
        survey = Survey(task.program, arms=4, horizon=1000)
        (found,) = survey.statistics(model, features, task.reward.default)
        assert near(found, reals(case["statistic"]))


def test_vectors_of_clients_have_every_kind() -> None:
    cases = vectors("client")
    tasks = [Task.read(case["task"].encode()) for case in cases]
    seen = {(task.trust, task.noise[0].kind) for task in tasks}
    assert {trust for trust, _ in seen} == {"local", "shuffle", "central"}
    assert {kind for _, kind in seen} == {"shortlist", "rounded", "coins", "statistic"}
    assert {case["averages"] is None for case in cases} == {True, False}
    assert len({case["id"] for case in cases}) == len(cases)


@pytest.mark.nightly
@double_precision
def test_the_library_still_has_such_clients() -> None:
    for case, wanted in zip(canonical.read(write(pack(clients()))), vectors("client"), strict=True):
        assert case["name"] == wanted["name"]
        assert case["report"] == wanted["report"]


def test_vectors_speak_of_policies_that_exist() -> None:
    assert {policy.query.dim for _, policy in policies()} == {
        case["program"]["dim"] for case in vectors("record")
    }
    assert query().size == 20
    assert kinds.KEEP_UNITS == 2**20


def test_the_library_still_draws_these_numbers() -> None:
    made = [(noise, label, draw) for noise, label, draw in noises() for _ in range(3)]
    for case, (noise, label, draw) in zip(vectors("noise"), made, strict=False):
        assert pack(noise) == case["noise"]
        assert label == case["label"]
        assert draw(reals(case["statistic"]), Bytes(case["seed"])).tolist() == case["numbers"]


def test_the_library_still_has_this_compass() -> None:
    for case, wanted in zip(compasses(), vectors("compass"), strict=True):
        made, noise = vars(case["noise"]), vars(unpack(Compass, wanted["noise"]))
        # Machines add up alike but for the last bits.
        assert made == {**noise, **{name: pytest.approx(noise[name], rel=1e-12) for name in READ}}
        assert case["deviation"] == pytest.approx(real(wanted["deviation"]), rel=1e-12)


@double_precision
def test_the_library_still_reports_such_surprises() -> None:
    for case, wanted in zip(reweighed_records(), vectors("reweighed"), strict=True):
        assert pack(case["program"]) == wanted["program"]
        assert near(np.array(case["statistic"]), reals(wanted["statistic"]))
    for case, wanted in zip(bounds(), vectors("sensitivity"), strict=True):
        assert pack(case["program"]) == wanted["program"]


@pytest.mark.nightly
def test_library_reproduces_arms_and_records_of_vectors() -> None:
    for case, wanted in zip(choices(), vectors("act"), strict=True):
        assert case["arm"] == wanted["arm"]
    for case, wanted in zip(guesses(), vectors("guess"), strict=True):
        assert case["arm"] == wanted["arm"]
    for case, wanted in zip(records(), vectors("record"), strict=True):
        assert near(np.array(case["statistic"]), reals(wanted["statistic"]))
    for case, wanted in zip(own_models(), vectors("own"), strict=True):
        assert case["arm"] == wanted["arm"]
        assert near(np.array(case["statistic"]), reals(wanted["statistic"]))
