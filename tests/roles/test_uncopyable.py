"""What holds raw data is in no copy, no pickle, no text and no error message."""

from __future__ import annotations

import copy
import logging
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from kerchief.core.errors import InvalidValue
from kerchief.core.problems import ContextFreeProblem, Problem
from kerchief.privacy import Guarantee, MemoryLedger, Trust
from kerchief.privatizers import Protection
from kerchief.privatizers.sums import Tally
from kerchief.roles import Answerer, Bandit, Curator, Device, InProcess, Mixer, Shuffler
from kerchief.roles.arrange import arrange
from kerchief.roles.messages import Batch, Done, Mixed, Reports

FACTS = Problem(dim=2, arms=3, norm=1.0, radius=1.0, low=0.0, high=1.0, horizon=200)
PRIVATE = ("local", "shuffle", "joint", "central")
SECRET = 0.87654321
"""No public number of any run looks like this."""


def promise(trust: str) -> Guarantee:
    return Guarantee(epsilon=1.0, delta=1e-6, trust=Trust(trust))


def bandit(trust: str) -> Bandit:
    """A bandit to which one user has told a secret, and another one half of it."""
    one = Bandit(policy="linucb", problem=FACTS, guarantee=promise(trust))
    one.decide([[SECRET, 0.0], [SECRET, 0.1]])
    one.learn(SECRET)
    one.decide([[0.0, SECRET]])
    return one


def _answerer() -> Answerer:
    problem = ContextFreeProblem(horizon=50, low=0.0, high=1.0, arms=3)
    promised = Guarantee(epsilon=1.0, delta=0.0, trust=Trust.LOCAL)
    device = Answerer(arrange("tsallis", problem, Protection(guarantee=promised)))
    device.answer(0, 0, [SECRET])
    return device


def _sorter(kind: Callable[..., Any], **size: Any) -> Any:
    sorter = kind(transport=InProcess(), to="curator", **size)
    sorter.handle(Reports(ticket="a", answers={"moments": np.array([SECRET])}))
    return sorter


HOLDERS: dict[str, Callable[[], Any]] = {
    **{f"bandit under {trust}": partial(bandit, trust) for trust in PRIVATE},
    "device": lambda: Device(policy=bandit("local")._setup.policy, privatizers={}),
    "curator": lambda: Curator(privatizers={}, ledger=MemoryLedger(promise("joint")), horizon=9),
    "shuffler": lambda: _sorter(Shuffler, size=3),
    "mixer": lambda: _sorter(Mixer, ends=(3,)),
    "answerer": _answerer,
}


@pytest.mark.parametrize("name", HOLDERS)
def test_what_holds_secrets_is_not_copied_and_not_shown(name: str) -> None:
    """Not by pickle, not by copy, and its text says nothing."""
    holder = HOLDERS[name]()
    for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(InvalidValue, match="neither copied nor pickled"):
            duplicate(holder)
    assert "8765" not in repr(holder) + str(holder)


@pytest.mark.parametrize("trust", PRIVATE)
def test_errors_and_logs_hold_no_secret(trust: str, caplog: pytest.LogCaptureFixture) -> None:
    """What is out of bounds is refused without being repeated."""
    one = bandit(trust)
    said = []
    with caplog.at_level(logging.DEBUG):
        for wrong in (SECRET + 7, [SECRET, 1.0], f"{SECRET}x", complex(SECRET, 1), -SECRET):
            with pytest.raises(InvalidValue) as caught:
                one.learn(wrong)  # type: ignore[arg-type]
            said.append(str(caught.value))
        one.learn(SECRET)
        for features in ([[SECRET + 7, 0.0]], [[SECRET, np.nan]], [[f"{SECRET}x", 0.0]], [SECRET]):
            with pytest.raises(InvalidValue) as caught:
                one.decide(features)  # type: ignore[arg-type]
            said.append(str(caught.value))
    assert not [text for text in [*said, caplog.text] if "8765" in text]


def test_messages_and_tallies_show_nothing() -> None:
    """Under joint and central trust a report is an exact statistic."""
    answers = {"moments": np.array([SECRET])}
    texts = [
        repr(Reports(ticket="a", answers=answers)),
        repr(Batch(answers=(answers,))),
        repr(Mixed(users=3, answers=answers)),
        repr(Tally(total=answers["moments"])),  # type: ignore[arg-type]
    ]
    assert not [text for text in texts if "8765" in text]


@pytest.mark.parametrize("trust", ["local", "central"])
def test_what_is_saved_holds_no_open_record(trust: str) -> None:
    """Only what was released survives: nothing of those who wait for a release."""
    one = Bandit(policy="linucb", problem=FACTS, guarantee=promise(trust))
    one.decide([[SECRET, 0.0]])
    one.learn(SECRET)
    for text in (one.save(), one.save()):
        assert "8765" not in text


def test_one_cohort_that_is_too_large_does_not_stop_the_next() -> None:
    """Reports at the limit add up to a total within the limit of so many."""
    told: list[Mixed] = []

    class Curator:
        def handle(self, message: Any) -> Any:
            told.append(message)
            return Done()

    transport = InProcess()
    transport.register("curator", Curator())
    mixer = Mixer(ends=(2, 4), transport=transport, to="curator")
    for ticket in "abcd":
        mixer.handle(Reports(ticket=ticket, answers={"moments": np.array([9e26])}))
    assert [message.users for message in told] == [2, 2]
