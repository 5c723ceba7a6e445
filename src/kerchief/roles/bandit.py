"""One bandit in one object: decide, then learn."""

from __future__ import annotations

import dataclasses
import hashlib
import warnings
from collections.abc import Mapping
from typing import Literal

from numpy.typing import ArrayLike

from kerchief.core import validate
from kerchief.core.codec import decode, encode
from kerchief.core.contracts import Policy, Tree
from kerchief.core.errors import CapacityExceeded, CodecError, InvalidValue, WeakPromise
from kerchief.core.phases import PhasePolicy
from kerchief.core.precision import double_precision
from kerchief.core.problems import Problem
from kerchief.policies import POLICIES, AnyPolicy, Mode
from kerchief.privacy.guarantee import Guarantee, Trust, delta_warnings
from kerchief.privacy.ledger import Ledger, MemoryLedger
from kerchief.privacy.receipts import Receipt
from kerchief.privatizers.privatizer import Privatizer
from kerchief.privatizers.protect import Protection, protect
from kerchief.privatizers.randomizers import BEST
from kerchief.roles.arrange import Arranged, arrange
from kerchief.roles.device import on_host
from kerchief.roles.engines import Apart, Compiled, Engine
from kerchief.roles.uncopyable import Guarded
from kerchief.roles.values import as_mask, as_reward, as_rows

__all__ = ["Bandit", "Noise", "Saved", "Setup"]

Noise = Literal["exact", "simulated"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setup:
    """What a bandit was made from; all of it public but the seed of simulated noise."""

    policy: Policy
    privatizers: Mapping[str, Privatizer]
    problem: Problem
    guarantee: Guarantee
    noise: str
    seed: int | None = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Saved:
    """A bandit at rest: what is public, proof that it was paid for, and a digest of all that."""

    setup: Setup
    round: int
    receipts: tuple[Receipt, ...]
    memory: Tree = dataclasses.field(repr=False)
    ledger: str | None
    digest: str = ""


@double_precision
class Bandit(Guarded):
    """A private bandit for one process: NumPy arrays in, an arm's number out.

    The privacy of the whole horizon is paid for when the bandit is made, before any noise is drawn.
    All roles run in this object, so its owner sees raw contexts and rewards; what the guarantee
    protects from is everyone who sees `model`, or the actions of others. Where the owner must not
    see them, run `Device` on the user's side.

    With exact noise (the default) the noise is discrete, drawn from the operating system. Simulated
    noise is floating point from a seed: for experiments only.

    A program that decides for one user at a time is two to three times as fast if it says
    `jax.config.update("jax_cpu_enable_async_dispatch", False)` before its first JAX array.

    >>> from kerchief.core.problems import Problem
    >>> from kerchief.privacy import Guarantee
    >>> facts = Problem(dim=2, arms=3, norm=1.0, radius=1.0, low=0.0, high=1.0, horizon=100)
    >>> promise = Guarantee(epsilon=1.0, delta=1e-6, trust="local")
    >>> bandit = Bandit(policy="linucb", problem=facts, guarantee=promise)
    >>> arm = bandit.decide([[1.0, 0.0], [0.6, 0.8]])
    >>> arm in (0, 1)
    True
    >>> bandit.learn(0.5)
    >>> bandit
    Bandit(LinUCB, local trust, exact noise, round 1 of 100)
    >>> round(bandit.spent().epsilon, 3)
    1.0
    >>> Bandit.load(bandit.save()).round
    1
    """

    def __init__(
        self,
        *,
        policy: str | Policy,
        problem: Problem,
        guarantee: Guarantee,
        noise: Noise = "exact",
        seed: int | None = None,
        mode: Mode = "tuned",
        mechanism: str = BEST,
        ledger: Ledger | None = None,
    ) -> None:
        """Make a bandit, compile it, and pay for its whole horizon.

        Args:
            policy: a registered policy's name, or a policy.
            problem: the public bounds; values outside them are refused, never clipped in silence.
            guarantee: what is promised to each user.
            noise: "exact" for deployment, "simulated" for experiments.
            seed: of simulated noise, 0 to 2**32 - 1; exact noise has none.
            mode: for a policy given by name: widths from its theorem, or tuned.
            mechanism: which noise keeps the guarantee, a word of `MECHANISMS_OF` its trust: under
                joint trust "blt", "tree", "toeplitz", or "doubling", whose noise does not grow with
                the horizon; under shuffle trust "bits", "byte" or "bit" for randomized response,
                "theorem" for the published constants; under local trust "gaussian", "laplace",
                "privunit" or "shortlist". The default is the least noisy one.
            ledger: pays; a fresh one with the guarantee as its budget if None.

        Raises:
            BudgetExceeded: the ledger refuses.
            InvalidValue: a value is outside its bound; nothing was charged.
            UnknownName: no such policy, or no privatizer for this trust.

        Warns:
            WeakPromise: delta is not below 1/horizon.
        """
        validate.one_of("noise", noise, ("exact", "simulated"))
        if ledger is not None and ledger.budget.trust != guarantee.trust:
            raise InvalidValue(
                f"the ledger's budget is for {ledger.budget.trust} trust and the guarantee for "
                f"{guarantee.trust}; they must speak of the same trust"
            )
        protection = Protection(guarantee=guarantee, mechanism=mechanism)
        made = _arranged(policy, problem, protection, mode)
        chosen, privatizers = _contextual(made.policy), made.privatizers
        if noise == "exact":
            privatizers = {name: privatizer.exact() for name, privatizer in privatizers.items()}
        setup = Setup(
            policy=chosen,
            privatizers=privatizers,
            problem=problem,
            guarantee=guarantee,
            noise=noise,
            seed=_checked_seed(noise, seed),
        )
        for line in delta_warnings(guarantee.delta, problem.horizon):
            warnings.warn(line, WeakPromise, stacklevel=2)
        self._start(setup, MemoryLedger(guarantee) if ledger is None else ledger)
        paid = self._engine.open(self._ledger, problem.horizon)
        self._receipts = tuple(receipt for lines in paid.values() for receipt in lines)

    def _start(self, setup: Setup, ledger: Ledger) -> None:
        self._setup, self._ledger = setup, ledger
        self._problem = setup.problem
        self._engine = _engine(setup, ledger)
        self._rounds = 0
        self._pending = False

    @property
    def round(self) -> int:
        """How many rounds are over."""
        return self._rounds

    @property
    def model(self) -> Tree:
        """What is public: the model that the next decision is made from."""
        return self._engine.model

    def spent(self) -> Guarantee:
        """What the ledger has charged the worst-off user for."""
        return self._ledger.spent()

    def decide(self, features: ArrayLike, allowed: ArrayLike | None = None) -> int:
        """Choose an arm; a decision that was not learned from is replaced.

        Args:
            features: one row per arm, at most `problem.arms` rows of `problem.dim` numbers.
            allowed: which rows may be chosen; all if None.

        Returns:
            The number of a row.

        Raises:
            CapacityExceeded: the horizon is over.
            InvalidValue: the arms are outside the declared bounds; nothing has changed.
        """
        if self._rounds >= self._problem.horizon:
            raise CapacityExceeded(
                f"all {self._problem.horizon} rounds that were paid for are over; make a new bandit"
            )
        rows = as_rows(features, self._problem)
        mask = None if allowed is None else as_mask(allowed, len(rows))
        action = self._engine.act(rows, mask)
        self._pending = True
        return action

    def learn(self, reward: float) -> None:
        """Take in the reward of the pending decision.

        Args:
            reward: within [problem.low, problem.high].

        Raises:
            InvalidValue: there is no pending decision, or the reward is out of range; nothing has
                changed.
        """
        if not self._pending:
            raise InvalidValue("there is no decision to learn from; call decide first")
        value = as_reward(reward, self._problem)
        self._pending = False
        self._rounds += 1
        self._engine.learn(value)

    def save(self) -> str:
        """Write what a restart needs, which is public: no noise, no secret seed, no data.

        A pending decision is dropped, and so are, under central trust, the users of the cohort that
        was not released yet: a copy that knew them could release them twice.

        Raises:
            CodecError: the policy is not one of this package's.
            InvalidValue: under joint trust, where a restart would need the exact totals, and with
                exact noise under shuffle trust, where it would need the present cohort's coins.
        """
        kept = [name for name, one in self._setup.privatizers.items() if not one.restorable]
        if kept:
            raise InvalidValue(
                f"{self._setup.guarantee.trust} trust keeps what a copy could not go on from, in "
                f"{', '.join(kept)}: exact totals would be released again, and coins of devices "
                "would be missing; keep the process alive, or begin anew"
            )
        saved = Saved(
            setup=self._setup,
            round=self._rounds,
            receipts=self._receipts,
            memory=self._engine.snapshot(),
            ledger=self._ledger.dumps() if isinstance(self._ledger, MemoryLedger) else None,
        )
        return encode(dataclasses.replace(saved, digest=_digest(saved)))

    @classmethod
    def load(cls, text: str, *, ledger: Ledger | None = None) -> Bandit:
        """Go on from what `save` wrote; nothing is charged again.

        Args:
            text: what `save` returned.
            ledger: the ledger that paid, where it is not a `MemoryLedger` and so not in the text.

        Raises:
            CodecError: the text is not a saved bandit, or not as it was saved.
            InvalidValue: the ledger is neither in the text nor given, or it never paid.
        """
        saved = decode(text)
        if not isinstance(saved, Saved):
            raise CodecError(f"the text holds a {type(saved).__name__}, not a saved bandit")
        if str(saved.digest) != _digest(saved):
            raise CodecError("the text was changed after it was saved; give what `save` returned")
        if ledger is None and saved.ledger is None:
            raise InvalidValue("ledger is None and the text holds none; give the one that paid")
        books = ledger or MemoryLedger.loads(saved.ledger or "")
        known = {dataclasses.replace(receipt, used=None) for receipt in books.receipts}
        if not known.issuperset(saved.receipts):
            raise InvalidValue("the ledger does not hold the receipts of this bandit; give its own")
        bandit = cls.__new__(cls)
        bandit._start(saved.setup, books)
        bandit._receipts = saved.receipts
        bandit._engine.resume(saved.memory)
        bandit._rounds = saved.round
        return bandit

    def __repr__(self) -> str:
        """Public facts alone."""
        setup = self._setup
        return (
            f"Bandit({type(setup.policy).__name__}, {setup.guarantee.trust} trust, "
            f"{setup.noise} noise, round {self._rounds} of {self._problem.horizon})"
        )


def _arranged(
    policy: str | Policy, problem: Problem, protection: Protection, mode: Mode
) -> Arranged:
    """A bandit that may be deployed here, by its name or as it is given."""
    if isinstance(policy, str):
        _check_deployable(policy, protection.trust, mode)
        made = arrange(policy, problem, protection, mode=mode)
    elif hasattr(policy, "queries"):
        privatizers = protect(policy, protection, horizon=problem.horizon)
        made = Arranged(policy=policy, privatizers=privatizers)
    else:
        raise InvalidValue(f"a {type(policy).__name__} is no policy; give a name, or a policy")
    return made


def _contextual(policy: AnyPolicy) -> Policy:
    if policy.feedback == "totals" and not isinstance(policy, PhasePolicy):
        return policy
    raise InvalidValue(
        f"{type(policy).__name__} hears {policy.feedback}; a Bandit decides among a user's own "
        "arms: choose a policy for a Problem, such as 'linucb'"
    )


def _check_deployable(name: str, trust: Trust, mode: Mode) -> None:
    entry = POLICIES[name]
    if trust not in entry.trusts:
        known = ", ".join(entry.trusts)
        raise InvalidValue(f"trust is {trust}; {name!r} runs under {known}")
    validate.one_of("mode", mode, ("theory", "tuned"))
    if not entry.deployable:
        raise InvalidValue(
            f"{name!r} is a paper's own version, for study alone; choose {name.split('@')[0]!r}"
        )


def _digest(saved: Saved) -> str:
    """Shows accidental damage; it does not stop someone who alters both text and digest."""
    content = encode(dataclasses.replace(saved, digest=""))
    return hashlib.sha256(content.encode()).hexdigest()


def _checked_seed(noise: Noise, seed: int | None) -> int | None:
    if noise == "exact":
        if seed is not None:
            raise InvalidValue(
                "seed is given with exact noise; leave it out, or simulate the noise"
            )
        return None
    if seed is None:
        raise InvalidValue("seed is None; simulated noise needs one, from 0 to 2**32 - 1")
    return validate.whole("seed", seed, low=0, high=2**32 - 1)


def _engine(setup: Setup, ledger: Ledger) -> Engine:
    policy, privatizers, problem = setup.policy, setup.privatizers, setup.problem
    if any(on_host(privatizer) for privatizer in privatizers.values()):
        return Apart(policy=policy, privatizers=privatizers, problem=problem, ledger=ledger)
    return Compiled(policy=policy, privatizers=privatizers, problem=problem, seed=setup.seed)
