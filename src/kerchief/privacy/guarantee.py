"""A privacy promise, never as bare numbers: how much, to whom, about what, and its limits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from kerchief.core.errors import CodecError, InvalidValueError
from kerchief.core.problems import WHOLE_RECORD
from kerchief.core.validate import at_least, between, one_of, plain, whole
from kerchief_protocol.task import MOST_UNIT

ADJACENCIES = ("replace",)
MOST_EPSILON = 1e9
"""The largest ε of a promise: far beyond any meaning, and all of it can be paid for."""


class Trust(StrEnum):
    """Whom a user must trust for the promise to hold.

    >>> [str(trust) for trust in Trust]
    ['none', 'local', 'shuffle', 'joint', 'central']
    """

    NONE = "none"
    LOCAL = "local"
    SHUFFLE = "shuffle"
    JOINT = "joint"
    CENTRAL = "central"


_FROM_WHOM = {
    Trust.NONE: "It protects from nobody.",
    Trust.LOCAL: (
        "It protects from everyone, the operator included: "
        "only a randomized report ever leaves the user's device."
    ),
    Trust.SHUFFLE: (
        "It protects from everyone who sees the shuffled messages, "
        "as long as the shuffler does not collude with them "
        "and nobody else reads a report on its way to it."
    ),
    Trust.JOINT: (
        "It protects from everyone but the trusted curator and the user in question, "
        "even if all other users put together everything that they are shown, "
        "as long as only the curator reads reports."
    ),
    Trust.CENTRAL: (
        "It protects from everyone but the trusted curator, "
        "which releases noisy sums over batches of users and nothing else, "
        "as long as only the curator reads reports."
    ),
}

_SIDE_DOOR = {
    Trust.LOCAL: (
        "the action, if the operator sees it by another way, such as serving the chosen item itself"
    ),
    Trust.SHUFFLE: "a user whose messages can be told apart by where or when they were sent",
    Trust.JOINT: "what the user's own action shows to whoever watches that user",
    Trust.CENTRAL: "what the user's own action shows to whoever watches that user",
}


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """(ε, δ)-differential privacy with its meaning attached.

    Attributes:
        epsilon: ε from 0 to `MOST_EPSILON`; infinite only when the trust is `Trust.NONE`.
        delta: δ in [0, 1).
        trust: whom a user must trust.
        unit: whose contribution is protected as a whole.
        adjacency: what a neighbour is: "replace", one unit's record becomes any other record.
        rounds: over how many rounds, or None if there is no limit.
        honest: under shuffle trust, the part of every cohort that must add its noise, as a
            fraction; elsewhere nobody relies on other users, and it is all of them.
        excluded: the part of a cohort that may be struck out after it has closed, as a fraction.

    >>> Guarantee(epsilon=1.0, delta=1e-6, trust="joint", rounds=100).trust
    <Trust.JOINT: 'joint'>
    """

    epsilon: float
    delta: float
    trust: Trust
    unit: str = "user"
    adjacency: str = "replace"
    rounds: int | None = None
    honest: tuple[int, int] = (1, 1)
    excluded: tuple[int, int] = (0, 1)

    def __post_init__(self) -> None:
        """Check the values."""
        plain(self)
        one_of("trust", str(self.trust), tuple(Trust))
        endless = isinstance(self.epsilon, float) and self.epsilon == math.inf
        if not (self.trust == Trust.NONE and endless):
            between("epsilon", self.epsilon, 0.0, MOST_EPSILON, closed=True)
        if at_least("delta", self.delta, 0.0) > 0:
            between("delta", self.delta, 0.0, 1.0)
        one_of("adjacency", self.adjacency, ADJACENCIES)
        is_printable = isinstance(self.unit, str) and self.unit.isprintable()
        if not (is_printable and 0 < len(self.unit) <= MOST_UNIT):
            raise InvalidValueError(
                f"unit is no printable text of at most {MOST_UNIT} letters; name what is "
                "protected, such as 'user'"
            )
        if self.rounds is not None:
            whole("rounds", self.rounds)
        self._check_parts()
        object.__setattr__(self, "trust", Trust(self.trust))

    def _check_parts(self) -> None:
        for name in ("honest", "excluded"):
            part: object = getattr(self, name)
            if not isinstance(part, tuple) or len(part) != 2:
                raise InvalidValueError(f"{name} is no fraction; give (numerator, denominator)")
            top, bottom = part
            whole(f"{name}'s denominator", bottom, high=10**6)
            whole(f"{name}'s numerator", top, low=0, high=bottom)
        if self.counted(10**12) < 1:
            raise InvalidValueError(
                f"honest is {self.honest} and excluded {self.excluded}; less must be excluded than "
                "is honest"
            )
        if self.trust != Trust.SHUFFLE and (self.honest, self.excluded) != ((1, 1), (0, 1)):
            raise InvalidValueError(
                f"honest is {self.honest} under {self.trust} trust, where nobody relies on other "
                "users' noise; leave it out"
            )

    def counted(self, users: int) -> int:
        """Return how many users of a cohort add noise that counts, at least.

        >>> Guarantee(epsilon=1.0, delta=1e-5, trust="shuffle", honest=(4, 5)).counted(300)
        240
        """
        (a, b), (c, d) = self.honest, self.excluded
        return (a * d - c * b) * users // (b * d)

    def sentence(
        self, *others: float, protected: str = WHOLE_RECORD, over: str | None = None
    ) -> str:
        """Return the promise in one line, which may stand for others that differ in ε alone.

        What of one unit's is `protected` follows from the problem, which says it by that name.
        A promise that is not about rounds says `over` what it holds.

        >>> Guarantee(epsilon=1.0, delta=1e-5, trust=Trust.LOCAL, rounds=20000).sentence()
        "(epsilon=1, delta=1e-05) local differential privacy for one user's context, action and \
reward, replaced by any other, over 20000 rounds"
        """
        if self.trust is Trust.NONE:
            return f"no differential privacy, {over or self._describe_rounds()}"
        *first, last = (f"{epsilon:.6g}" for epsilon in (self.epsilon, *others))
        epsilons = f"{', '.join(first)} or {last}" if first else last
        return (
            f"(epsilon={epsilons}, delta={self.delta:.6g}) {self.trust} "
            f"differential privacy for one {self.unit}'s {protected}, "
            f"replaced by any other, {over or self._describe_rounds()}"
        )

    def statement(self, *, protected: str = WHOLE_RECORD) -> str:
        """Return the promise and its limits in a few plain sentences; see `sentence`.

        >>> print(Guarantee(epsilon=math.inf, delta=0.0, trust=Trust.NONE).statement())
        This run keeps no privacy promise, over any number of rounds. It protects from nobody.
        """
        if self.trust is Trust.NONE:
            return (
                f"This run keeps no privacy promise, {self._describe_rounds()}. "
                f"{_FROM_WHOM[self.trust]}"
            )
        from_whom = _FROM_WHOM[self.trust] + self._describe_reliance()
        return " ".join(
            (self._describe_protection(protected), from_whom, self._describe_limits(protected))
        )

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-able dictionary; an infinite ε is written as the word "inf"."""
        epsilon = "inf" if math.isinf(self.epsilon) else self.epsilon
        parts = {"honest": list(self.honest), "excluded": list(self.excluded)}
        return vars(self) | {"epsilon": epsilon, "trust": str(self.trust)} | parts

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> Guarantee:
        """Read back what `to_dict` wrote."""
        match data:
            case {
                "epsilon": float() | int() | "inf" as epsilon,
                "delta": float() | int() as delta,
                "trust": str() as trust,
                "unit": str() as unit,
                "adjacency": str() as adjacency,
                "rounds": int() | None as rounds,
                **rest,
            } if rest.keys() <= {"honest", "excluded"}:
                one_of("trust", trust, tuple(Trust))
                return cls(
                    epsilon=math.inf if isinstance(epsilon, str) else epsilon,
                    delta=delta,
                    trust=Trust(trust),
                    unit=unit,
                    adjacency=adjacency,
                    rounds=rounds,
                    honest=_read_fraction(rest.get("honest", [1, 1])),
                    excluded=_read_fraction(rest.get("excluded", [0, 1])),
                )
        raise CodecError(f"a guarantee has other fields than {sorted(data)}, or of other types")

    def _describe_rounds(self) -> str:
        return "over any number of rounds" if self.rounds is None else f"over {self.rounds} rounds"

    def _describe_reliance(self) -> str:
        (a, b), (c, d) = self.honest, self.excluded
        if self.trust is not Trust.SHUFFLE:
            return ""
        part = f"at least {a} in {b} of every cohort" if a < b else "all users of a cohort"
        exclusion = f", of whom {c} in {d} may be struck out" if c else ""
        return f" It relies on other users: {part} must add their noise{exclusion}."

    def _describe_protection(self, protected: str) -> str:
        extra = f", plus {self.delta:.6g}" if self.delta else ""
        return (
            f"What one {self.unit} contributes by taking part once, the {self.unit}'s {protected}, "
            f"could be replaced by any other, and the probability of anything that is shown, "
            f"{self._describe_rounds()}, would change by a factor of at most e^{self.epsilon:.6g} "
            f"= {_format_factor(self.epsilon)}{extra}."
        )

    def _visits(self) -> str:
        if self.trust is Trust.LOCAL:
            return "pays at most k times epsilon and k times delta"
        # All k records may be in one total: group privacy (`visits.py`).
        return "may pay more than k times epsilon at the same delta"

    def _describe_limits(self, protected: str) -> str:
        public = "" if protected == WHOLE_RECORD else "the action, which is public; "
        # Mixed messages have a side door of their own, whatever is in them.
        has_side_door = not public or self.trust is Trust.SHUFFLE
        side_doors = public + (f"{_SIDE_DOOR[self.trust]}; " if has_side_door else "")
        return (
            f"It does not protect: a {self.unit} who takes part k times, who {self._visits()}; "
            f"{side_doors}settings tuned on private data beforehand; "
            f"the fact of taking part; side channels such as timing."
        )


def delta_warnings(delta: float, horizon: int, *, of: str = "horizon") -> tuple[str, ...]:
    """Return a warning if delta is so large that the guarantee means little.

    Args:
        delta: of the promise.
        horizon: how many are protected.
        of: the word for it.

    >>> delta_warnings(1e-5, 1000)
    ()
    """
    if delta < 1 / horizon:
        return ()
    return (
        f"delta is {delta:g}, which is not below 1/{of} = {1 / horizon:g}: such a promise would "
        "allow publishing one user's data outright; choose a smaller delta",
    )


def _read_fraction(data: object) -> tuple[int, int]:
    match data:
        case [int() as top, int() as bottom]:
            return top, bottom
    raise CodecError("a part of a cohort is not written as two whole numbers")


def _format_factor(epsilon: float) -> str:
    return f"{math.exp(epsilon):.4g}" if epsilon < 700 else "more than 1e304"
