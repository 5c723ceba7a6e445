"""What a mechanism did, with a fixed mathematical meaning that any accountant can price.

Every sensitivity is under replacement: neighbours differ in one user's record. The meaning of an
event never changes; a new meaning gets a new event with a new `kind` word.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, ClassVar

from kerchief.core.errors import CodecError, InvalidValueError, UnsupportedEventError
from kerchief.core.validate import at_least, plain, positive, whole

_KINDS: dict[str, Callable[..., Event]] = {}
MOST_SCALE = 2**62
"""The largest scale, dimension and count: what a 64-bit number holds."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """The root of all events; each one has its own `kind` word, under which it is stored."""

    kind: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        """Enter the new kind, so that `event_from_dict` can read it."""
        super().__init_subclass__()
        if cls.kind:
            _KINDS[cls.kind] = cls

    def __post_init__(self) -> None:
        """Check the values of all fields with a usual name; a new kind checks its own."""
        plain(self)
        for field in fields(self):
            if (check := _CHECKS.get(field.name)) is not None:
                check(field.name, getattr(self, field.name))

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-able dictionary tagged by `kind`; `event_from_dict` reads it back.

        >>> Gaussian(noise_multiplier=2.0).to_dict()
        {'kind': 'gaussian', 'noise_multiplier': 2.0}
        """
        values = {field.name: _encode(getattr(self, field.name)) for field in fields(self)}
        return {"kind": self.kind, **values}


@dataclass(frozen=True, kw_only=True)
class Nothing(Event):
    """The output's distribution does not depend on the data: δ(ε) = 0 for every ε ≥ 0."""

    kind: ClassVar[str] = "nothing"


@dataclass(frozen=True, kw_only=True)
class NonPrivate(Event):
    """The output may be the data itself: δ(ε) = 1 for every finite ε."""

    kind: ClassVar[str] = "non_private"


@dataclass(frozen=True, kw_only=True)
class Gaussian(Event):
    """A real vector query plus continuous Gaussian noise, of multiplier σ / Δ.

    The output is f(X) + Z, with f(X) in R^n for some n, max ‖f(X) − f(X')‖₂ ≤ Δ over
    neighbours X, X', and Z ~ N(0, σ² I_n). The query may depend on earlier outputs.
    """

    kind: ClassVar[str] = "gaussian"
    noise_multiplier: float


@dataclass(frozen=True, kw_only=True)
class _OnGrid(Event):
    """An integer vector query plus noise in whole steps of a grid.

    Attributes:
        sensitivity: Δ, in units of the grid (the step between two integers is 1).
        scale: s, in units of the grid.
        dimension: n, the number of coordinates.
    """

    sensitivity: float
    scale: int
    dimension: int

    @property
    def noise_multiplier(self) -> float:
        """Return s / Δ: the multiplier of the continuous Gaussian that it stands for."""
        return self.scale / self.sensitivity


@dataclass(frozen=True, kw_only=True)
class DiscreteGaussian(_OnGrid):
    """An integer vector query plus discrete Gaussian noise.

    The output is f(X) + Z, with f(X) in Z^n, max ‖f(X) − f(X')‖₂ ≤ Δ over neighbours, and
    the Z_j independent, each with P(Z_j = k) proportional to exp(−k² / (2 s²)) on all integers k.
    Note that s is the scale in this formula, not quite the standard deviation.
    """

    kind: ClassVar[str] = "discrete_gaussian"


@dataclass(frozen=True, kw_only=True)
class Binomial(_OnGrid):
    """An integer vector query plus fair coins.

    The output is f(X) + Z, with f(X) in Z^n, max ‖f(X) − f(X')‖₂ ≤ Δ over neighbours, and the Z_j
    independent, each the number of heads among 4 s² fair coins less its mean 2 s². A query that
    is itself random, such as one that is rounded at random, is covered if the outcomes of two
    neighbours can be paired so that every pair is. Here s is exactly the standard deviation.
    """

    kind: ClassVar[str] = "binomial"

    @property
    def trials(self) -> int:
        """Return the number of coins per coordinate, 4 s²."""
        return 4 * self.scale**2


@dataclass(frozen=True, kw_only=True)
class Laplace(Event):
    """A real vector query plus Laplace noise, of multiplier b / Δ: so it is (Δ/b)-private.

    The output is f(X) + Z, with f(X) in R^n for some n, max ‖f(X) − f(X')‖₁ ≤ Δ over
    neighbours, and the Z_j independent with density exp(−|z| / b) / (2 b).
    """

    kind: ClassVar[str] = "laplace"
    noise_multiplier: float


@dataclass(frozen=True, kw_only=True)
class RandomizedResponse(Event):
    """Any mechanism with pure ε-differential privacy, most often a local randomizer.

    For all neighbours X, X' and all sets S: P(M(X) ∈ S) ≤ e^ε P(M(X') ∈ S). It is priced as
    the worst of its kind: binary randomized response that tells the truth with probability
    e^ε / (1 + e^ε), from which every other such mechanism can be simulated.
    """

    kind: ClassVar[str] = "randomized_response"
    epsilon: float


@dataclass(frozen=True, kw_only=True)
class Zcdp(Event):
    """Any mechanism with ρ-zero-concentrated differential privacy.

    For all neighbours X, X' and all orders α > 1, the Rényi divergence of order α between
    M(X) and M(X') is at most ρ α (Bun and Steinke 2016, definition 1.1).
    """

    kind: ClassVar[str] = "zcdp"
    rho: float


@dataclass(frozen=True, kw_only=True)
class Repeated(Event):
    """The same kind of event, `count` times (0: it did not happen), each with fresh noise.

    Each query may depend on all earlier outputs; the parameters of the event may not.
    """

    kind: ClassVar[str] = "repeated"
    event: Event
    count: int


@dataclass(frozen=True, kw_only=True)
class Composed(Event):
    """Several events on the same data, one after another, each with fresh noise.

    Each query may depend on all earlier outputs; the parameters of the events may not.
    """

    kind: ClassVar[str] = "composed"
    events: tuple[Event, ...]


def event_from_dict(data: Mapping[str, object]) -> Event:
    """Read an event back from what `to_dict` wrote."""
    kind = data.get("kind")
    build = _KINDS.get(kind) if isinstance(kind, str) else None
    if build is None:
        raise UnsupportedEventError(f"event kind {kind!r} is not known; known: {', '.join(_KINDS)}")
    try:
        values = {name: _decode(value) for name, value in data.items() if name != "kind"}
        return build(**values)
    except (TypeError, RecursionError) as error:
        raise CodecError(f"the fields of a {kind!r} event do not fit: {error}") from error


def _check_event(name: str, value: object) -> None:
    if not isinstance(value, Event):
        raise InvalidValueError(f"{name} holds {value!r}; it must be an event")


def _check_events(name: str, values: object) -> None:
    if not isinstance(values, tuple):
        raise InvalidValueError(f"{name} is a {type(values).__name__}; it must be a tuple")
    for value in values:
        _check_event(name, value)


_CHECKS: dict[str, Callable[[str, Any], object]] = {
    "noise_multiplier": positive,
    "sensitivity": positive,
    "epsilon": positive,
    "rho": partial(at_least, low=0.0),
    "scale": partial(whole, high=MOST_SCALE),
    "dimension": partial(whole, high=MOST_SCALE),
    "count": partial(whole, low=0, high=MOST_SCALE),
    "event": _check_event,
    "events": _check_events,
}


def _encode(value: object) -> object:
    if isinstance(value, Event):
        return value.to_dict()
    if isinstance(value, tuple):
        return [_encode(element) for element in value]
    return value


def _decode(value: object) -> object:
    if isinstance(value, Mapping):
        return event_from_dict(value)
    if isinstance(value, list):
        return tuple(_decode(element) for element in value)
    return value
