"""Bandits without contexts in one's own program: a server that asks, and devices that answer.

The server proposes an action and learns from one protected number. The device knows its user's
losses, and only the protected number leaves it. Together they are Algorithm 1 of Zheng, Cai, Huang,
Li and Wang 2020 with exact noise; the proof is in `policies/context_free/base.md`.
"""

from __future__ import annotations

import secrets
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike, NDArray

from kerchief.core.contracts import Clock, Outlook, Stops, Tree
from kerchief.core.errors import CapacityExceeded, InvalidValue
from kerchief.core.precision import double_precision
from kerchief.core.random import POLICY, Stream
from kerchief.core.validate import MOST_ROUNDS, real_array, whole
from kerchief.policies.context_free.base import LOSS, ContextFree
from kerchief.privacy.guarantee import Guarantee
from kerchief.privacy.ledger import Ledger
from kerchief.privacy.receipts import Cohort
from kerchief.privatizers.billing import pay, settle
from kerchief.roles.arrange import Arranged
from kerchief.roles.uncopyable import Guarded

__all__ = ["Answerer", "Asker"]

# Far beyond what any device sends.
FARTHEST = 1e27


@double_precision
class Asker:
    """The server: proposes actions, takes in reports, and names what it would choose.

    It is blind to users: a report is all that it gets, and that is safe to publish. Its own coins
    come from the operating system.

    >>> from kerchief.core.problems import ContextFreeProblem
    >>> from kerchief.privacy import MemoryLedger, Trust
    >>> from kerchief.privatizers import Protection
    >>> from kerchief.roles.arrange import arrange
    >>> promise = Guarantee(epsilon=1.0, delta=0.0, trust=Trust.LOCAL)
    >>> problem = ContextFreeProblem(horizon=100, low=0.0, high=1.0, arms=3)
    >>> made = arrange("tsallis", problem, Protection(guarantee=promise))
    >>> server = Asker(made, ledger=MemoryLedger(promise))
    >>> device = Answerer(made)
    >>> action = server.ask()
    >>> server.learn(device.answer(server.round, action, [0.0]))
    >>> server.round, round(server.spent().epsilon, 6)
    (1, 1.0)
    """

    def __init__(self, arranged: Arranged, *, ledger: Ledger) -> None:
        """Pay for the whole horizon.

        Args:
            arranged: the bandit and its protection, from `roles.arrange`.
            ledger: pays, or refuses before anything is asked.

        Raises:
            BudgetExceeded: the ledger refuses.
            InvalidValue: the bandit is not for problems without contexts.
        """
        self.round, self._ledger = 0, ledger
        self._policy, self._privatizers = _context_free(arranged), dict(arranged.privatizers)
        outlook = {name: one.outlook for name, one in self._privatizers.items()}
        self._state = _init(self._policy, tuple(outlook.items()))
        self._action: Array | None = None
        words = secrets.randbits(32), secrets.randbits(32)
        self._root = Stream.of(seed=words[0], replicate=words[1])
        self._receipts = pay(self._privatizers, ledger, horizon=self._policy.problem.horizon)

    @property
    def stopped(self) -> bool:
        """Whether nothing more is asked."""
        done = self.round >= self._policy.problem.horizon
        return done or bool(_stopped(self._policy, self._state))

    def ask(self) -> NDArray[np.generic]:
        """The action for the next user; asking again before a report comes gives the same one.

        Raises:
            CapacityExceeded: nothing more is asked.
        """
        if self.stopped:
            raise CapacityExceeded(
                f"{self.round} users were asked and the bandit has stopped; read recommendation"
            )
        if self._action is None:
            at = self._root.at(POLICY, round=self.round)
            self._action = _propose(self._policy, self._state, jnp.int32(self.round), at)
        return np.asarray(self._action)

    def learn(self, report: ArrayLike) -> None:
        """Take in the report of the user who was asked.

        Raises:
            InvalidValue: nobody was asked, or it is not one finite number.
        """
        if self._action is None:
            raise InvalidValue("nobody was asked; call ask first")
        number = np.ravel(real_array("reports", report))
        if number.shape != (1,) or not abs(number[0]) <= FARTHEST:
            raise InvalidValue(f"the report must be one finite number, at most {FARTHEST:g}")
        self._state = _update(
            self._policy, self._state, self._action, jnp.asarray(number), jnp.int32(self.round)
        )
        self.round, self._action = self.round + 1, None

    @property
    def recommendation(self) -> NDArray[np.generic]:
        """The arm or the point that it would name now."""
        return np.asarray(_recommend(self._policy, self._state))

    def spent(self) -> Guarantee:
        """What the worst-off user was charged."""
        return self._ledger.spent()

    def settle(self) -> Guarantee:
        """End the run: the bill is then for the users who were really asked."""
        covered = dict.fromkeys(self._privatizers, self.round)
        settle(
            self._privatizers,
            self._ledger,
            self._receipts,
            users=self.round,
            covered=covered,
            releases=covered,
        )
        return self._ledger.spent()


@double_precision
class Answerer(Guarded):
    """A user's device: knows the losses, and lets one protected number out.

    A question is answered once. Asked again, as by a server that did not hear back, the device
    repeats its report: fresh noise on the same losses would be a second release that nobody paid
    for. With a ledger of its user's own, every question is charged there before noise is drawn: a
    user who returns pays again, and sends nothing once the budget is spent.
    """

    def __init__(self, arranged: Arranged, *, ledger: Ledger | None = None) -> None:
        """Give the device its code and exact noise.

        Args:
            arranged: the bandit and its protection; the exact twin of the latter is what answers.
            ledger: of the one user whose device this is.

        Raises:
            InvalidValue: the bandit is not for problems without contexts.
        """
        self._policy, self._ledger = _context_free(arranged), ledger
        self._privatizer = arranged.privatizers[LOSS].exact()
        self._said: tuple[int, NDArray[np.float64]] | None = None

    def answer(self, round: int, action: ArrayLike, losses: ArrayLike) -> NDArray[np.float64]:
        """What leaves the device: one number.

        Args:
            round: the server's, which numbers the question.
            action: what was proposed.
            losses: the loss of each point of the action; stays here.

        Raises:
            BudgetExceeded: the user's own ledger refuses; nothing was drawn.
        """
        whole("round", round, low=0, high=MOST_ROUNDS)
        if self._said is not None and self._said[0] == round:
            return self._said[1]
        asked, lost = real_array("actions", action), real_array("losses", losses)
        questions = len(asked) if asked.ndim else 1
        if lost.shape != (questions,):
            raise InvalidValue(
                f"losses have shape {lost.shape}; give one for each of the {questions} questions"
            )
        number = _answer(self._policy, jnp.asarray(action), jnp.asarray(lost))
        statistic = np.asarray(self._privatizer.query.encode(number), np.float64)
        if self._ledger is not None:
            (line,) = self._privatizer.charges(1)
            self._ledger.charge(line.event, cohort=Cohort(first=0, last=1))
        clock = Clock(round=jnp.int32(round), since={})
        report = np.asarray(self._privatizer.report(statistic, clock, None), np.float64)
        self._said = round, report
        return report


@partial(jax.jit, static_argnums=1)
def _init(policy: ContextFree, outlook: tuple[tuple[str, Outlook], ...]) -> Tree:
    return policy.init(dict(outlook))


def _context_free(arranged: Arranged) -> ContextFree:
    policy = arranged.policy
    if not isinstance(policy, ContextFree):
        raise InvalidValue(
            f"{type(policy).__name__} hears {policy.feedback}, and these roles are for bandits "
            "that hear reports; use Bandit, or Device, Curator and Learner"
        )
    return policy


@jax.jit
def _stopped(policy: ContextFree, state: Tree) -> Array:
    return policy.stopped(state) if isinstance(policy, Stops) else jnp.asarray(False)


@jax.jit
def _propose(policy: ContextFree, state: Tree, round: Array, stream: Stream) -> Array:
    return policy.propose(state, round, stream)


@jax.jit
def _answer(policy: ContextFree, action: Array, losses: Array) -> Array:
    return policy.answer(action, losses)


@jax.jit
def _update(policy: ContextFree, state: Tree, action: Array, report: Array, round: Array) -> Tree:
    return policy.learn(state, action, report, round)


@jax.jit
def _recommend(policy: ContextFree, state: Tree) -> Array:
    return policy.recommend(state)
