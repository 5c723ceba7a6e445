"""The noise that is built, and that a simulation draws, is the one that was printed.

A run says by a word of `MECHANISMS_OF` which noise protects it. Here is what each word means,
written a second time: what is built for it must be that, and what is drawn must have its law.
"""

from __future__ import annotations

import dataclasses
import math
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np

from kerchief.checks.bills import users_of
from kerchief.checks.deviations import named_deviation, published_deviation, pure_epsilon
from kerchief.checks.engines import begun, phase_after, phase_scene
from kerchief.checks.errors import expect, law
from kerchief.checks.learning import bare, silenced
from kerchief.checks.policy_fixture import BEST, PolicyFixture, asks
from kerchief.checks.statistics import (
    Floats,
    expect_deviation,
    fits_chances,
    fits_scale,
    fits_squares,
)
from kerchief.core.contracts import BoundedLoss, Clock, NoiseInfo, Start, Tree
from kerchief.core.errors import InvalidValueError
from kerchief.core.phases import ANSWERS
from kerchief.core.struct import static, struct
from kerchief.deployment.protected_policy import ProtectedPolicy
from kerchief.mechanisms.binomial import Binomial
from kerchief.mechanisms.blt import BLT
from kerchief.mechanisms.compass import Compass
from kerchief.mechanisms.continual import ContinualNoise
from kerchief.mechanisms.doubling import Doubling
from kerchief.mechanisms.gaussian import Gaussian
from kerchief.mechanisms.laplace import Laplace
from kerchief.mechanisms.one_bit import OneBit
from kerchief.mechanisms.privunit import PrivUnitG
from kerchief.mechanisms.randomized_bits import Response
from kerchief.mechanisms.shortlist import Shortlist
from kerchief.mechanisms.toeplitz import SqrtToeplitz
from kerchief.mechanisms.tree import Tree as BinaryTree
from kerchief.privatizers import MECHANISMS_OF, At, Every, OnDemand, Privatizer
from kerchief.privatizers.billing import pay
from kerchief.simulation import loop
from kerchief.simulation.machine import compiled
from kerchief.simulation.phases import phases_of

WORDS: dict[str, dict[str, tuple[type, ...]]] = {
    "none": {BEST: ()},
    "local": {
        BEST: (Gaussian, Laplace, PrivUnitG, Compass, OneBit),
        "gaussian": (Gaussian,),
        "laplace": (Laplace,),
        "privunit": (PrivUnitG,),
        "shortlist": (Shortlist,),
        "compass": (Compass,),
        "one-bit": (OneBit,),
    },
    "shuffle": {
        BEST: (Binomial,),
        "theorem": (Binomial,),
        "bits": (Response,),
        "byte": (Response,),
        "bit": (Response,),
    },
    "joint": {
        BEST: (BLT,),
        "blt": (BLT,),
        "tree": (BinaryTree,),
        "toeplitz": (SqrtToeplitz,),
        "doubling": (Doubling,),
    },
    "central": {BEST: (Gaussian, Laplace), "gaussian": (Gaussian,), "laplace": (Laplace,)},
}
"""What a word means for sums. Every look at the records of a loss is a Gaussian, or coins."""

_THEOREM = "theorem"
_BITS = {"bits": 64, "byte": 8, "bit": 1}
# Published constants are proved for epsilons below 15.
_PROVED = 4.0
# The noise of bits is searched for, for every size of a batch: here there is one batch.
_SHORT = 2
# Copies of a run, by what bandits hear: single bits tell little each.
_COPIES = {"totals": 2048, "reports": 2**14, "phases": 512}
# What a word states is the most in any direction, for any statistic or of two halves of one: at a
# small epsilon there is nearly as much everywhere, and on average this share of it at least.
_AT_MOST, _SHARE = (Shortlist, Response, OneBit, Compass), 0.85
# Some bandits ask for other statistics, with other noise, at a small epsilon.
_SMALL = 1.0


@law(when=asks, cheap=True)
def noise_is_of_the_word_printed(case: PolicyFixture) -> None:
    """For every word of the trust, what is built has that word's noise, or the word is refused.

    Its class is the word's, and its deviation what its event says that was charged, or what was
    published for coins by a theorem; the bill fits the promise. Nothing is ever put in a word's
    place: it is refused with InvalidValueError. A word that someone has added may be of any class.
    """
    mechanisms = MECHANISMS_OF[case.promise().trust]
    expected = set(WORDS[case.trust])
    expect(
        expected <= set(mechanisms),
        seen=list(mechanisms),
        expected=f"all of {list(WORDS[case.trust])}",
    )
    for mechanism in mechanisms:
        variant = dataclasses.replace(case, mechanism=mechanism)
        epsilon = _PROVED if mechanism == _THEOREM else None
        try:
            bandit = variant.arranged(epsilon, horizon=_SHORT if mechanism in _BITS else None)
        except InvalidValueError:
            expect(
                mechanism != case.mechanism,
                seen=f"{mechanism} is refused",
                expected="its own noise",
            )
            continue
        ledger = case.make_ledger(variant.promise(epsilon))
        pay(
            bandit.privatizers,
            ledger,
            horizon=_SHORT if mechanism in _BITS else users_of(variant, bandit),
        )
        for name, privatizer in bandit.privatizers.items():
            _expect_mechanism(variant, name, privatizer)


def _expect_mechanism(case: PolicyFixture, name: str, privatizer: Privatizer) -> None:
    # Noise of prefixes goes by the factor that mixes its seeds.
    noises = [
        noise.factor if isinstance(noise, ContinualNoise) else noise for noise in privatizer.noises
    ]
    classes = [type(noise) for noise in noises]
    kinds, mechanism = _find_classes(case, privatizer) or classes, case.mechanism
    observed = f"{name}: {[kind.__name__ for kind in classes]}"
    expected = f"{mechanism}: {' or '.join(kind.__name__ for kind in kinds) or 'noise'}"
    expect(all(kind in kinds for kind in classes), seen=observed, expected=expected)
    expect(bool(classes) == (case.trust != "none"), seen=observed, expected=expected)
    noise: Any
    for noise in privatizer.noises:
        if mechanism in _BITS:
            expect(
                noise.bits == _BITS[mechanism], seen=f"{noise.bits} bits", expected=_BITS[mechanism]
            )
        deviation = named_deviation(noise, privatizer)
        close = deviation is None or math.isclose(float(noise.std), deviation, rel_tol=1e-6)
        observed = f"{name}: a deviation of {noise.std}"
        expect(close, seen=observed, expected=f"{deviation}, as {mechanism} charges")
        if mechanism == _THEOREM:
            published = _compute_published_deviation(case, privatizer)
            above = 0 <= float(noise.std) - published <= float(noise.step)
            expect(
                above, seen=observed, expected=f"{published}, or up to one step more, as published"
            )


def _find_classes(case: PolicyFixture, privatizer: Privatizer) -> tuple[type, ...]:
    """The classes that the word may be of; none for a word that someone has added."""
    kinds = WORDS[case.trust].get(case.mechanism, ())
    if isinstance(privatizer.query, BoundedLoss) and kinds:
        return (Gaussian, Binomial)
    # Of single numbers one bit is the best.
    single = case.feedback == "reports" and privatizer.query.size == 1
    return (OneBit,) if single and case.mechanism == BEST and kinds else kinds


def _compute_published_deviation(case: PolicyFixture, privatizer: Privatizer) -> float:
    return published_deviation(
        privatizer, case.promise(_PROVED), by_phases=case.feedback == "phases"
    )


@law(when=asks)
def noise_drawn_is_the_word_printed(case: PolicyFixture) -> None:
    """What a simulation adds to its first releases has the law of its word, at what was charged.

    The engine plays twice, with the noise and without, until the first release: all that differs is
    the noise. Normal noise: its deviation (chi-square) and shape (Kolmogorov and Smirnov). Laplace
    noise: its scale and shape. One bit: its two reports and their chances. All others, and sums of
    bits: their mean squares. Errors of 1e-6 each; a third too little, or too much, is rejected.
    Once more at a small epsilon, where a bandit has noise of another class there.
    """
    bandit = case.arranged(_choose_epsilon(case))
    _expect_noise(case, bandit)
    if case.trust == "local" and case.feedback == "totals":
        small_bandit = case.arranged(_SMALL)
        if _list_noise_classes(small_bandit) != _list_noise_classes(bandit):
            _expect_noise(case, small_bandit)


def _list_noise_classes(bandit: ProtectedPolicy) -> list[type]:
    return [
        type(noise) for privatizer in bandit.privatizers.values() for noise in privatizer.noises
    ]


def _expect_noise(case: PolicyFixture, bandit: ProtectedPolicy) -> None:
    draw = _draw_by_phases if case.feedback == "phases" else _draw_by_rounds
    for name, draws in draw(case, bandit).items():
        noises: Any = bandit.privatizers[name].noises
        if not noises:
            observed = f"noise of {float(np.abs(draws.noise).max())}"
            expect(not draws.noise.any(), seen=observed, expected="none, as nothing is promised")
        elif isinstance(noises[0], OneBit) and draws.single:
            _expect_bit(noises[0], draws)
        else:
            _expect_law(noises[0], draws)


def _choose_epsilon(case: PolicyFixture) -> float | None:
    """Where a word states the most there may be, an epsilon at which that is not far off."""
    if case.feedback == "phases" and case.mechanism in ("one-bit", "shortlist"):
        return 1.0
    return 4.0 if case.feedback == "totals" else None


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Draws:
    """What was added to a release and to what, one row per copy, and the deviation it states.

    `single` is whether it is the noise of one draw alone, not of many reports.
    """

    noise: Floats
    total: Floats
    stated: Floats
    single: bool

    @classmethod
    def of(cls, noisy: Any, exact: Any, stated: Any, *, single: bool) -> _Draws:
        """From a total with noise and the same one without."""
        total = np.asarray(exact, np.float64)
        noise = np.asarray(noisy, np.float64) - total
        return cls(noise=noise, total=total, stated=np.asarray(stated, np.float64), single=single)


def _expect_law(noise: Any, draws: _Draws) -> None:
    scaled = draws.noise / draws.stated[:, None]
    if isinstance(noise, Laplace) and draws.single:
        expect_deviation(scaled, 1 / math.sqrt(2), fits=fits_scale, law="laplace")
    elif isinstance(noise, Gaussian | ContinualNoise):
        expect_deviation(scaled, 1.0)
    else:
        # Up to a tenth: rounding states the most it adds.
        share = _SHARE if isinstance(noise, _AT_MOST) else 1.0
        fits = partial(fits_squares, share=share, slack=0.1)
        expect_deviation(scaled, 1.0, fits=fits, law=None)


def _expect_bit(noise: OneBit, draws: _Draws) -> None:
    """Two reports, whose chances are those of the epsilon that is charged for."""
    reports = (draws.noise + draws.total)[:, 0]
    high = reports > noise.center
    sides = np.where(high, *noise.reports[::-1])
    expect(np.allclose(reports, sides), seen=f"{reports[:4]}", expected=f"one of {noise.reports}")
    place = np.clip((draws.total[:, 0] - noise.center) / noise.radius, -1, 1)
    epsilon: float = pure_epsilon(noise.event())
    chances = [0.5 + 0.5 * place * math.tanh(epsilon * f / 2) for f in (1.0, 3 / 2, 2 / 3)]
    verdict = [fits_chances(high, chance) for chance in chances]
    # Numbers near the center say little about epsilon.
    telling = [True, False, False] if float(np.abs(place).mean()) > 0.9 else [True, *verdict[1:]]
    expect(verdict == telling, seen=f"chances {high.mean():.4g}: {verdict}", expected=telling)


@struct
class _Telling:
    """A privatizer that remembers what it released last, with the outlook that it is given."""

    inner: Any
    outlook: NoiseInfo = static()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def open(self) -> tuple[Tree, Tree]:
        memory, tally = self.inner.open()
        return (memory, jnp.zeros(self.query.size, jnp.float64), jnp.float64(0)), tally

    def release(
        self, memory: Tree, tally: Tree, request: Start | None, clock: Clock, stream: Any
    ) -> tuple[Any, Tree]:
        release, now = self.inner.release(memory[0], tally, request, clock, stream)
        return release, (now, release.total, jnp.asarray(release.noise, jnp.float64))


def _draw_by_rounds(case: PolicyFixture, bandit: ProtectedPolicy) -> dict[str, _Draws]:
    """What the engine adds to the first release of every sum that comes first."""
    sums: dict[str, Any] = {
        name: p
        for name, p in bandit.privatizers.items()
        if not isinstance(p.query, BoundedLoss) and not isinstance(p.schedule, OnDemand)
    }
    loud = {name: _Telling(inner=p, outlook=p.outlook) for name, p in sums.items()}
    quiet = {name: _Telling(inner=bare(p), outlook=p.outlook) for name, p in sums.items()}
    schedules = [p.schedule for p in sums.values()]
    length = min((int(s.ends[0]) if isinstance(s, At) else 1 for s in schedules), default=0)
    ends = [
        _play_until(case, bandit, replacements, length) for replacements in (loud, quiet) if sums
    ]
    draws = {}
    for name, privatizer in sums.items():
        (_, noisy, stated), (_, exact, _) = (end.memory[name] for end in ends)
        if (np.asarray(ends[0].used[name]) > 0).all():
            draws[name] = _Draws.of(
                noisy, exact, stated, single=isinstance(privatizer.schedule, Every)
            )
    return draws


def _play_until(
    case: PolicyFixture, bandit: ProtectedPolicy, replacements: Any, length: int
) -> Any:
    privatizers = {**bandit.privatizers, **replacements}
    scene = case.scene(ProtectedPolicy(policy=bandit.policy, privatizers=privatizers))
    carry = loop.begin(scene, jnp.arange(_COPIES[case.feedback], dtype=jnp.uint32))
    step, _ = compiled(case.advance, scene, carry, jnp.int32(0), length=length)
    return step(scene, carry, jnp.int32(0))


def _draw_by_phases(case: PolicyFixture, bandit: ProtectedPolicy) -> dict[str, _Draws]:
    """What the engine adds to the release of the first phase."""
    policy: Any = bandit.policy
    first = phases_of(policy, bandit.privatizers)[0]
    quiet = {name: silenced(p) for name, p in bandit.privatizers.items()}
    ends = []
    for privatizers in (bandit.privatizers, quiet):
        scene = phase_scene(case, ProtectedPolicy(policy=policy, privatizers=privatizers))
        start = begun(scene, _COPIES[case.feedback])
        ends.append(phase_after(case, scene, start, first).last)
    is_asked = np.asarray(ends[0].count) > 0
    (noisy, exact), stated = (end.total[is_asked] for end in ends), ends[0].noise[is_asked]
    single = not bandit.privatizers[ANSWERS].noisy_device
    return {ANSWERS: _Draws.of(noisy, exact, stated, single=single)}
