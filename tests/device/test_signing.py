"""Signed messages: what a device refuses, and that a refusal costs nothing."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.device.helpers import (
    COINS,
    NEEDS,
    ROWS,
    VALID_S,
    asking,
    model,
    status,
    task,
)

from kerchief_device import Budget, Device, Pending
from kerchief_protocol import signing
from kerchief_protocol.errors import (
    BudgetExceededError,
    CodecError,
    FencedError,
    InvalidValueError,
    KerchiefError,
    RejectedError,
)
from kerchief_protocol.model import Model, Numbers, Question, Status
from kerchief_protocol.noise import Bits
from kerchief_protocol.parties import Party
from kerchief_protocol.programs import Phased
from kerchief_protocol.report import Report
from kerchief_protocol.signing import Signed, Signer, new_key, public_key, verify_message
from kerchief_protocol.task import Promise, Task

KEYS = {"aggregator": bytes([1]) * 32, "learner": bytes([2]) * 32}
PARTIES = tuple(
    Party(role=role, operator="Example Ltd", keys=(public_key(key),)) for role, key in KEYS.items()
)
NOW = 10_000.0
SIGNED = task(COINS, trust="shuffle", needs=NEEDS, parties=PARTIES)
UNSIGNED = task(COINS, trust="shuffle", needs=NEEDS)
# Heights of the points of low order, as encodings that libraries take.
PRIME = 2**255 - 19
OCTAVE = int.from_bytes(
    bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"), "little"
)
LOW_ORDER = (0, 1, PRIME - 1, PRIME, PRIME + 1, OCTAVE, PRIME - OCTAVE)
BITS = Bits(size=5, bits=2, bound=1.0, keep=(2**16, 2**18))


def signed(
    message: Model | Status | Question, of: Task, *, role: str | None = None, at: float = NOW
) -> Signed:
    """A message as its role signs it."""
    own = "learner" if isinstance(message, Model) else "aggregator"
    return Signer(of, KEYS[role or own], clock=lambda: at).sign(message)


def device(of: Task = SIGNED, **more: Any) -> Device:
    return Device(of, clock=lambda: NOW, **more)


def asks(**more: Any) -> Task:
    return asking(parties=PARTIES, **more)


def question(of: Task, number: int = 7) -> Question:
    return Question(task=of.id, id=bytes([number]) * 16, action=Numbers.of(ROWS[0]))


def false_statuses(of: Task) -> dict[str, Status | Signed]:
    """What a network without the aggregator's key can make up, or show again."""
    true, foreign = status(of, label=0), dataclasses.replace(of, nonce=b"other nonce byte")
    bytes_of = signed(model(of), of)
    return {
        "unsigned": true,
        "stale": signed(true, of, at=NOW - VALID_S - 1),
        "future": signed(true, of, at=NOW + 61),
        "other label": dataclasses.replace(signed(true, of), message=status(of, label=1).write()),
        "other time": dataclasses.replace(signed(true, of, at=NOW - VALID_S - 1), issued=int(NOW)),
        "other context": bytes_of,
        "status in a model's envelope": dataclasses.replace(bytes_of, message=true.write()),
        "other task": signed(status(foreign), foreign),
        "other signature": dataclasses.replace(signed(true, of), signature=bytes(64)),
    }


def test_signed_status_and_model_are_followed() -> None:
    own = device()
    for label in (0, 1):
        decision = own.decide(signed(model(SIGNED), SIGNED), ROWS)
        data = own.report(decision.id, signed(status(SIGNED, label=label), SIGNED))
        assert Report.read(data, SIGNED).label == label


@pytest.mark.parametrize("lie", false_statuses(SIGNED))
def test_false_status_uses_up_no_decision(lie: str) -> None:
    own = device()
    decision = own.decide(signed(model(SIGNED), SIGNED), ROWS)
    own.reward(decision.id, 1.0)
    with pytest.raises(InvalidValueError):
        own.report(decision.id, false_statuses(SIGNED)[lie])
    assert own.due() == (decision.id,)
    data = own.report(decision.id, signed(status(SIGNED), SIGNED))
    assert Report.read(data, SIGNED).label == 0


@pytest.mark.parametrize("lie", false_statuses(asks()))
def test_false_status_uses_up_no_budget(lie: str) -> None:
    of = asks()
    own = device(of, budget=Budget(epsilon=1.0))
    id = own.accept_question(signed(question(of), of))
    own.reward(id, 0.25)
    with pytest.raises(InvalidValueError):
        own.report(id, false_statuses(of)[lie])
    assert own.spent().epsilon == 0.0
    assert len(own.report(id, signed(status(of), of))) == 68
    assert own.spent().epsilon == 1.0


def test_unusable_status_erases_no_record_of_a_spent_budget() -> None:
    of = asking()
    own = device(of, budget=Budget(epsilon=0.5))
    id = own.accept_question(bytes(16))
    with pytest.raises(RejectedError, match="takes no reports"):
        own.report(id, status(of, state="closed"))
    with pytest.raises(InvalidValueError, match="labels are below 1"):
        own.report(id, status(of, label=1))
    assert own.due() == (id,)
    with pytest.raises(BudgetExceededError):
        own.report(id, status(of))
    assert own.due() == ()


def test_questions_are_signed_where_the_task_names_keys() -> None:
    of = asks()
    own, true = device(of), question(of)
    lies: list[Any] = [
        true.id,
        signed(true, of, at=NOW - VALID_S - 1),
        dataclasses.replace(signed(true, of), message=question(of, 8).write()),
        dataclasses.replace(signed(status(of), of), message=true.write()),
        signed(model(of), of),
    ]
    for lie in lies:
        with pytest.raises(InvalidValueError):
            own.accept_question(lie)
    assert own.due() == ()
    assert own.accept_question(signed(true, of)) == true.id.hex()
    with pytest.raises(InvalidValueError, match="names no keys of the aggregator"):
        device(asking()).accept_question(signed(true, of))


def false_models(of: Task) -> dict[str, Model | Signed]:
    true, foreign = model(of), dataclasses.replace(of, nonce=b"other nonce byte")
    return {
        "unsigned": true,
        "stale": signed(true, of, at=NOW - VALID_S - 1),
        "future": signed(true, of, at=NOW + 61),
        "other numbers": dataclasses.replace(
            signed(true, of), message=model(of, version=1).write()
        ),
        "other context": dataclasses.replace(signed(status(of), of), message=true.write()),
        "other task": signed(model(foreign), foreign),
    }


@pytest.mark.parametrize("message", [None, b"{}", "status", 7, object(), UNSIGNED])
def test_message_of_another_type_costs_nothing(message: Any) -> None:
    own = device(UNSIGNED)
    with pytest.raises(InvalidValueError, match="the model is a"):
        own.decide(message, ROWS)
    with pytest.raises(InvalidValueError, match="the model is a Status"):
        own.decide(status(UNSIGNED), ROWS)  # type: ignore[arg-type]
    decision = own.decide(model(UNSIGNED), ROWS)
    with pytest.raises(InvalidValueError, match="the status is a"):
        own.report(decision.id, message)
    assert own.due() == (decision.id,)


@pytest.mark.parametrize("lie", false_models(SIGNED))
def test_false_model_is_refused_and_nothing_is_stored(lie: str) -> None:
    own = device()
    with pytest.raises(InvalidValueError):
        own.decide(false_models(SIGNED)[lie], ROWS)
    assert own.due() == ()
    own.decide(signed(model(SIGNED), SIGNED), ROWS)


def test_signed_model_goes_stale_on_a_device_that_knows_it() -> None:
    clock = [NOW]
    own, posted = Device(SIGNED, clock=lambda: clock[0]), signed(model(SIGNED), SIGNED)
    own.decide(posted, ROWS)
    clock[0] += VALID_S + 1
    with pytest.raises(InvalidValueError, match="valid for 600 seconds"):
        own.decide(posted, ROWS)


def test_every_key_of_a_role_signs_and_no_other() -> None:
    second = bytes([3]) * 32
    wider = dataclasses.replace(PARTIES[0], keys=(*PARTIES[0].keys, public_key(second)))
    of = task(COINS, trust="shuffle", needs=NEEDS, parties=(wider, PARTIES[1]))
    for key in (KEYS["aggregator"], second):
        message = Signer(of, key, clock=lambda: NOW).sign(status(of))
        assert verify_message(of, Status, message, lambda: NOW) == status(of)
    with pytest.raises(InvalidValueError, match="is not in the task"):
        Signer(of, bytes([9]) * 32)
    wrong: list[tuple[Model | Status, str]] = [
        (status(of), "learner"),
        (model(of), "aggregator"),
    ]
    for other, role in wrong:
        with pytest.raises(InvalidValueError, match="sign with the key of that role"):
            signed(other, of, role=role)
    with pytest.raises(InvalidValueError, match="sign with the key of that role"):
        signed(status(SIGNED), of)


@pytest.mark.parametrize("parties", [(), PARTIES[:1], PARTIES[1:]])
def test_lying_status_never_lowers_the_coins(parties: tuple[Party, ...]) -> None:
    """Without both signatures: the label of the largest cohort, said to the first cohort."""
    of = task(COINS, trust="shuffle", needs=NEEDS, parties=parties)
    own, roles = device(of), {party.role for party in parties}
    posted = signed(model(of), of) if "learner" in roles else model(of)
    for label in (0, 1):
        lie = status(of, label=label)
        decision = own.decide(posted, ROWS)
        data = own.report(decision.id, signed(lie, of) if "aggregator" in roles else lie)
        report = Report.read(data, of)
        assert COINS.coins[report.label] == max(COINS.coins)
        assert all(of.enters(report.label, cohort) for cohort in range(len(NEEDS)))


def test_task_whose_noise_a_label_could_lower_is_refused() -> None:
    shuffled: dict[str, Any] = {"trust": "shuffle", "needs": NEEDS}
    for parties in ((), PARTIES[:1], PARTIES[1:]):
        with pytest.raises(InvalidValueError, match="nobody signs in this task"):
            device(task(BITS, parties=parties, **shuffled))
    even = dataclasses.replace(BITS, keep=(2**16, 2**16))
    for of in (task(even, **shuffled), task(BITS, parties=PARTIES, **shuffled)):
        assert device(of).task is of
    assert device(task(BITS, **shuffled), in_process=True).due() == ()


def test_phases_with_other_coins_each_need_signatures() -> None:
    program = Phased(low=0.0, high=1.0, groups=1, atoms=2, size=5)
    with pytest.raises(InvalidValueError, match="nobody signs in this task"):
        device(_phases(program))
    assert device(_phases(program, parties=PARTIES, valid_s=VALID_S)).due() == ()
    even = dataclasses.replace(COINS, coins=(78400, 78400))
    assert device(_phases(program, noise=(even,))).due() == ()


def _phases(program: Phased, **more: Any) -> Task:
    words: dict[str, Any] = {"program": program, "bandit": "phased", "promise": _PROMISED}
    words["problem"] = {"arms": 2, "horizon": 100}
    return dataclasses.replace(UNSIGNED, **words, **more)


_PROMISED = Promise(epsilon=4.0, delta=1e-5)


def test_unsigned_chain_is_never_remembered(tmp_path: Path) -> None:
    """One posted model with a false chain stops nobody, after a restart neither."""
    of = task()
    lies = [model(of, length=1000, head=b"x" * 32), model(of, length=1, head=b"y" * 32)]
    for opening in range(2):
        own = device(of, pending=Pending(tmp_path / "d.db"))
        for posted in (*lies, model(of, length=1), model(of, length=0)):
            own.decide(posted, ROWS)
        assert len(own.due()) == 4 * (opening + 1)


def test_signed_chain_is_remembered_over_a_restart(tmp_path: Path) -> None:
    own = device(pending=Pending(tmp_path / "d.db"))
    own.decide(signed(model(SIGNED, length=7), SIGNED), ROWS)
    own = device(pending=Pending(tmp_path / "d.db"))
    for chain in ((6, bytes(32)), (7, b"x" * 32)):
        posted = model(SIGNED, length=chain[0], head=chain[1])
        with pytest.raises(FencedError, match=r"call Device\.forget_chain"):
            own.decide(signed(posted, SIGNED), ROWS)
    own.decide(signed(model(SIGNED, length=8), SIGNED), ROWS)


def test_forgetting_a_false_signed_chain_loses_nothing(tmp_path: Path) -> None:
    of = asks()
    own = device(of, pending=Pending(tmp_path / "d.db"), budget=Budget(epsilon=2.0))
    answered, waiting = (own.accept_question(signed(question(of, number), of)) for number in (1, 2))
    own.report(answered, signed(status(of), of))
    own.confirm(answered)
    sent = own.report(waiting, signed(status(of), of))
    shuffled = device(pending=Pending(tmp_path / "d.db"))
    decision = shuffled.decide(signed(model(SIGNED, length=900), SIGNED), ROWS)
    true = signed(model(SIGNED, length=3), SIGNED)
    with pytest.raises(FencedError):
        shuffled.decide(true, ROWS)
    shuffled.forget_chain()
    own = device(of, pending=Pending(tmp_path / "d.db"))
    own.forget_chain()
    shuffled = device(pending=Pending(tmp_path / "d.db"))
    later = shuffled.decide(true, ROWS)
    assert set(shuffled.due()) == {decision.id, later.id}
    assert own.spent().epsilon == 2.0
    assert own.report(waiting, signed(status(of), of)) == sent
    assert own.accept_question(signed(question(of, 1), of)) == answered
    assert own.due() == (waiting,)


def test_question_ids_of_one_task_block_no_other(tmp_path: Path) -> None:
    """A server chooses ids of questions: here that of another task's question."""
    first, second = asking(), asking(nonce=b"second run bytes")
    store = Pending(tmp_path / "d.db")
    one, two = device(first, pending=store), device(second, pending=store)
    id = one.accept_question(bytes(16))
    one.report(id, status(first))
    one.confirm(id)
    assert two.accept_question(bytes(16)) == id
    assert two.reward(id, 0.5)
    assert two.due() == (id,)
    assert one.accept_question(bytes(16)) == id
    assert one.due() == ()
    two.discard(id)
    assert (one.due(), two.due()) == ((), ())


def test_parties_and_nonce_are_in_the_task_id() -> None:
    other = dataclasses.replace(SIGNED, nonce=b"second run bytes")
    longer = dataclasses.replace(SIGNED, valid_s=VALID_S + 1)
    renamed = tuple(dataclasses.replace(party, operator="Another") for party in PARTIES)
    others = [other, longer, UNSIGNED, dataclasses.replace(SIGNED, parties=renamed)]
    assert len({of.id for of in (SIGNED, *others)}) == 5
    for of in (SIGNED, UNSIGNED, *others):
        assert Task.read(of.data) == of
    assert b"parties" not in UNSIGNED.data
    assert b"valid_s" not in UNSIGNED.data
    empty = UNSIGNED.data.replace(b'"policy"', b'"parties":[],"policy"')
    with pytest.raises(CodecError, match="names none of parties, projection, valid_s"):
        Task.read(empty)
    old = UNSIGNED.data.replace(b'"nonce":"' + b"00" * 16 + b'",', b"")
    with pytest.raises(CodecError, match="what another version wrote is not read"):
        Task.read(old)


@pytest.mark.parametrize(
    ("parties", "valid_s", "words"),
    [
        ((PARTIES[0], PARTIES[0]), 1, "occurs twice"),
        ((PARTIES[0], dataclasses.replace(PARTIES[1], keys=PARTIES[0].keys)), 1, "occurs twice"),
        (PARTIES, 0, "valid_s is 0"),
        (PARTIES, 2**31, "valid_s is 2147483648"),
        ((), 1, "valid_s is 1"),
    ],
)
def test_task_refuses_parties(parties: tuple[Party, ...], valid_s: int, words: str) -> None:
    with pytest.raises(InvalidValueError, match=words):
        dataclasses.replace(UNSIGNED, parties=parties, valid_s=valid_s)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"role": "mixer"}, "must be aggregator or learner"),
        ({"operator": ""}, "one short line"),
        ({"keys": ()}, "give 1 to 3"),
        ({"keys": (bytes(31),)}, "public keys of 32 bytes"),
        ({"keys": tuple(bytes([number]) * 32 for number in range(4))}, "give 1 to 3"),
    ],
)
def test_party_is_checked(change: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidValueError, match=words):
        dataclasses.replace(PARTIES[0], **change)


@pytest.mark.parametrize("sign", [0, 1])
@pytest.mark.parametrize("height", LOW_ORDER)
def test_party_refuses_a_key_of_low_order(height: int, sign: int) -> None:
    """Anyone can sign under such a key: some such point is a signature of one message in two."""
    with pytest.raises(InvalidValueError, match="anyone could sign"):
        Party(role="learner", operator="Eve", keys=(_key(height, sign),))
    forged = [_key(point, mark) + bytes(32) for point in LOW_ORDER for mark in (0, 1)]
    messages = [bytes([number]) for number in range(64)]
    signs = signing._is_valid
    assert any(signs(_key(height, sign), lie, message) for lie in forged for message in messages)


def _key(height: int, sign: int) -> bytes:
    return (height | sign << 255).to_bytes(32, "little")


def test_task_refuses_a_short_nonce() -> None:
    with pytest.raises(InvalidValueError, match="nonce has 15 bytes"):
        dataclasses.replace(UNSIGNED, nonce=bytes(15))


def test_signed_message_survives_the_wire() -> None:
    sent = signed(status(SIGNED), SIGNED)
    assert Signed.read(sent.write()) == sent
    assert len(sent.write()) == 76 + len(sent.message)
    other: tuple[Any, ...] = (None, 7, "kcs1" * 20)
    for data in (b"", sent.write()[:75], b"x" + sent.write()[1:], *other):
        with pytest.raises(CodecError, match="no signed message"):
            Signed.read(data)
    for change in ({"issued": -1}, {"issued": 2**64}, {"signature": b""}):
        with pytest.raises(CodecError, match="64 bytes"):
            dataclasses.replace(sent, **change)


def test_missing_cryptography_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(KerchiefError, match=r"kerchief-device\[sign\]"):
        public_key(new_key())
    assert Device(task()).decide(model(task()), ROWS).arm == 2


@pytest.mark.parametrize("moment", [float("nan"), float("inf"), -1.0, 1e300])
def test_signer_refuses_a_clock_without_a_time(moment: float) -> None:
    with pytest.raises(InvalidValueError, match="the clock gives"):
        signed(status(SIGNED), SIGNED, at=moment)


def test_private_key_has_32_bytes() -> None:
    with pytest.raises(InvalidValueError, match="draw one with new_key"):
        public_key(b"short")
