from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
import pytest

from kerchief.core.codec import decode, encode
from kerchief.core.contracts import Clock, Release
from kerchief.core.errors import CodecError
from kerchief.core.problems import Problem
from kerchief.policies import POLICIES
from kerchief.privacy import Guarantee
from kerchief.privatizers import At, Protection, protect

FACTS = Problem(dim=3, arms=4, norm=1.0, radius=1.0, low=-1.0, high=1.0, horizon=60)


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        -(2**70),
        0.1,
        -0.0,
        math.inf,
        "a \u03c0 \n text",
        (1, [2, (3,)], {"a": None}),
        {"array": 1, "class": 2},
        {"map": {"map": {}}},
        FACTS,
        At(ends=(1, 2, 5)),
    ],
)
def test_values_survive(value: object) -> None:
    again = decode(encode(value))
    assert again == value
    assert type(again) is type(value)


@pytest.mark.parametrize("kind", ["float32", "float64", "int32", "uint32", "int64", "bool"])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3)])
def test_arrays_keep_every_bit(kind: str, shape: tuple[int, ...]) -> None:
    bits = np.random.default_rng(7).integers(0, 2, size=shape)
    array = (np.asarray(bits) * np.pi).astype(kind)
    again = decode(encode(array))
    assert again.dtype == array.dtype
    assert again.shape == array.shape
    assert again.tobytes() == array.tobytes()
    assert again.flags.writeable


def test_special_floats_in_arrays_survive() -> None:
    array = np.array([math.nan, -math.inf, -0.0, 5e-324])
    assert decode(encode(jnp.asarray(array))).tobytes() == array.tobytes()
    assert math.isnan(decode(encode(math.nan)))


def test_policies_privatizers_and_releases_survive() -> None:
    policy = POLICIES["linucb"].build(FACTS, "theory")
    assert decode(encode(policy)) == policy
    promise = Guarantee(epsilon=1.0, delta=1e-6, trust="central")  # type: ignore[arg-type]
    privatizers = protect(policy, Protection(guarantee=promise), horizon=60)
    assert decode(encode(promise)) == promise
    assert decode(encode(dict(privatizers))) == privatizers
    exact = {name: privatizer.exact() for name, privatizer in privatizers.items()}
    assert decode(encode(exact)) == exact
    clock = Clock(round=jnp.int32(3), since={"a": jnp.int32(2)})
    assert int(decode(encode(clock)).since["a"]) == 2
    release = Release(total=jnp.ones(2), count=jnp.int32(4), noise=jnp.float64(0.5))
    assert decode(encode(release)).total.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        '{"class":"os:system","fields":{}}',
        '{"class":"kerchief.core.codec:decode","fields":{}}',
        '{"class":"kerchief.core.codec:nothing","fields":{}}',
        '{"class":"kerchief.nowhere:Box","fields":{}}',
        # A foreign or re-exported class under a name that is not its own.
        '{"class":"kerchief.core.queries:Problem","fields":{}}',
        '{"class":"kerchief.core.contracts:Problem","fields":{"dim":1}}',
        '{"class":"kerchief.privatizers.schedule:At","fields":{"ends":{"tuple":[3,1]}}}',
        '{"array":"AAAA","dtype":"float64","shape":[1]}',
        '{"array":"AAAAAAAAAAA=","dtype":"object","shape":[1]}',
        '{"array":"AAAAAAAAAAA=","dtype":"float64","shape":[2]}',
        '{"float":"much"}',
        "[" * 100_000,
        '{"tuple":[' * 5_000 + "]}" * 5_000,
    ],
)
def test_what_is_not_a_message_is_refused(text: str) -> None:
    with pytest.raises(CodecError):
        decode(text)


@pytest.mark.parametrize("value", [{1: 2}, object(), {1, 2}, np, Problem])
def test_what_cannot_be_written_is_refused(value: object) -> None:
    with pytest.raises(CodecError):
        encode(value)
