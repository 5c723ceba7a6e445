from __future__ import annotations

import json
import math
from dataclasses import FrozenInstanceError, dataclass
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kerchief.core.errors import CodecError, InvalidValueError, UnsupportedEventError
from kerchief.core.problems import ContextFreeProblem, PopulationProblem
from kerchief.privacy import (
    Composed,
    DiscreteGaussian,
    Event,
    Gaussian,
    Guarantee,
    Laplace,
    NonPrivate,
    Nothing,
    RandomizedResponse,
    Repeated,
    Trust,
    Zcdp,
    epsilon_at,
    event_from_dict,
    to_dp_event,
)

sizes = st.floats(1e-3, 1e6)
simple: st.SearchStrategy[Event] = st.one_of(
    st.just(Nothing()),
    st.just(NonPrivate()),
    sizes.map(lambda x: Gaussian(noise_multiplier=x)),
    sizes.map(lambda x: Laplace(noise_multiplier=x)),
    sizes.map(lambda x: RandomizedResponse(epsilon=x)),
    sizes.map(lambda x: Zcdp(rho=x)),
    st.builds(
        DiscreteGaussian,
        sensitivity=sizes,
        scale=st.integers(1, 2**40),
        dimension=st.integers(1, 500),
    ),
)
events: st.SearchStrategy[Event] = st.recursive(
    simple,
    lambda inner: st.one_of(
        st.builds(Repeated, event=inner, count=st.integers(0, 100)),
        st.lists(inner, max_size=4).map(lambda parts: Composed(events=tuple(parts))),
    ),
    max_leaves=6,
)


@given(event=events)
def test_round_trip_through_json(event: Event) -> None:
    assert event_from_dict(json.loads(json.dumps(event.to_dict()))) == event


@settings(deadline=None)  # the first translation imports dp_accounting
@given(event=events)
def test_every_event_has_a_translation(event: Event) -> None:
    to_dp_event(event)


def test_unknown_kinds_and_fields() -> None:
    with pytest.raises(UnsupportedEventError, match="'ladder'"):
        event_from_dict({"kind": "ladder"})
    with pytest.raises(UnsupportedEventError):
        event_from_dict({})
    with pytest.raises(CodecError):
        event_from_dict({"kind": "zcdp", "rho": 1.0, "xi": 0.0})
    with pytest.raises(CodecError):
        event_from_dict({"kind": "gaussian"})


@dataclass(frozen=True, kw_only=True)
class Staircase(Event):
    kind: ClassVar[str] = "staircase"


def test_an_event_without_a_price_is_refused() -> None:
    with pytest.raises(UnsupportedEventError):
        epsilon_at([Repeated(event=Staircase(), count=2)], 1e-5)
    with pytest.raises(UnsupportedEventError):
        to_dp_event(Staircase())


@pytest.mark.parametrize("bad", [0.0, -1.0, math.inf, math.nan])
def test_values_are_checked(bad: float) -> None:
    for build in (
        lambda: Gaussian(noise_multiplier=bad),
        lambda: Laplace(noise_multiplier=bad),
        lambda: RandomizedResponse(epsilon=bad),
        lambda: DiscreteGaussian(sensitivity=bad, scale=1, dimension=1),
    ):
        with pytest.raises(InvalidValueError):
            build()


def test_more_values_are_checked() -> None:
    with pytest.raises(InvalidValueError):
        Repeated(event=Nothing(), count=-1)
    with pytest.raises(InvalidValueError):
        DiscreteGaussian(sensitivity=1.0, scale=0, dimension=1)
    with pytest.raises(InvalidValueError):
        Zcdp(rho=-0.1)
    with pytest.raises(InvalidValueError):
        event_from_dict({"kind": "composed", "events": [1]})
    field = "rho"
    with pytest.raises(FrozenInstanceError):
        setattr(Zcdp(rho=0.1), field, 0.0)


@pytest.mark.parametrize("trust", ["local", "shuffle", "central"])
def test_a_public_action_is_called_public_under_every_trust(trust: Trust) -> None:
    promise = Guarantee(epsilon=1.0, delta=1e-5, trust=trust)
    assert "the action, which is public; " in promise.statement(protected="reward")
    assert "which is public" not in promise.statement()
    mixed = "messages can be told apart" in promise.statement(protected="reward")
    assert mixed == (trust == "shuffle")


@pytest.mark.parametrize("trust", list(Trust))
def test_a_guarantee_speaks_and_round_trips(trust: Trust) -> None:
    promise = Guarantee(epsilon=1.0, delta=1e-5, trust=trust, rounds=20000)
    assert Guarantee.from_dict(json.loads(json.dumps(promise.to_dict()))) == promise
    assert "20000 rounds" in promise.sentence()
    text = promise.statement()
    if trust is Trust.NONE:
        assert "no privacy promise" in text
        return
    for phrase in ("replaced", "takes part k times", "timing", "tuned on private data", "e^1 = "):
        assert phrase in text


def test_statements_say_from_whom() -> None:
    def text(trust: Trust) -> str:
        return Guarantee(epsilon=2.0, delta=0.0, trust=trust).statement()

    assert "operator included" in text(Trust.LOCAL)
    assert "serving the chosen item" in text(Trust.LOCAL)
    assert "even if all other users" in text(Trust.JOINT)
    assert "does not collude" in text(Trust.SHUFFLE)
    assert "batches" in text(Trust.CENTRAL)
    assert ", plus" not in text(Trust.LOCAL)
    assert "nobody else reads a report on its way" in text(Trust.SHUFFLE)
    for trust in (Trust.JOINT, Trust.CENTRAL):
        assert "as long as only the curator reads reports" in text(trust)


@pytest.mark.parametrize("trust", [Trust.LOCAL, Trust.SHUFFLE, Trust.CENTRAL])
def test_a_promise_about_public_actions_speaks_of_no_context(trust: Trust) -> None:
    facts: dict[str, Any] = {"horizon": 100, "low": 0.0, "high": 1.0, "arms": 5}
    space: dict[str, Any] = {"dim": 2, "norm": 1.0, "radius": 1.0, "clients": 9, "spread": 0.1}
    population, free = PopulationProblem(**facts, **space), ContextFreeProblem(**facts)
    promise = Guarantee(epsilon=1.0, delta=1e-5, trust=trust)
    for problem, what in ((population, "rewards (all"), (free, "answer to a public question")):
        for text in (promise.sentence, promise.statement):
            said = text(protected=problem.protected)
            assert f"user's {what}" in said
            assert "context" not in said
            assert "serving the chosen item" not in said
            assert "own action" not in said


def test_guarantees_are_checked() -> None:
    with pytest.raises(InvalidValueError):
        Guarantee(epsilon=math.inf, delta=0.0, trust=Trust.LOCAL)
    with pytest.raises(InvalidValueError):
        Guarantee(epsilon=-1.0, delta=0.0, trust=Trust.LOCAL)
    with pytest.raises(InvalidValueError):
        Guarantee(epsilon=1.0, delta=1.0, trust=Trust.LOCAL)
    with pytest.raises(InvalidValueError):
        Guarantee(epsilon=1.0, delta=0.0, trust=Trust.LOCAL, adjacency="add-remove")
    with pytest.raises(InvalidValueError):
        Guarantee(epsilon=1.0, delta=0.0, trust=Trust.LOCAL, rounds=0)
    with pytest.raises(InvalidValueError):
        Guarantee(epsilon=1.0, delta=0.0, trust=Trust.LOCAL, unit="")
    with pytest.raises(CodecError):
        Guarantee.from_dict({"epsilon": 1.0})
    endless = Guarantee(epsilon=math.inf, delta=0.0, trust=Trust.NONE)
    assert Guarantee.from_dict(endless.to_dict()) == endless
