"""A whole bandit in one file, to copy: what it asks, what it learns, how it is checked and played.

Every user brings some arms. The device plays the arm that points most along a public direction,
or, ever more rarely, any arm. The direction is the (noisy) sum of reward times features over all
users so far: it points to the parameter when arms come from everywhere alike.

Nothing here knows how users are protected: the same file is the non-private bandit, and the local,
shuffle, joint and central ones. In this folder, hold it to the laws and play it beside ours:

    kerchief --plugin skeleton_policy.py check along-the-mean --trust local
    kerchief --plugin skeleton_policy.py compare --policy along-the-mean --policy linucb

or run it with `python skeleton_policy.py`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import jax.numpy as jnp
from jax import Array

from kerchief.core.contracts import Arms, Clock, Example, NoiseInfo, Policy, Release, Start
from kerchief.core.problems import Problem
from kerchief.core.queries import clip_features, finite
from kerchief.core.random import Stream
from kerchief.core.struct import static, struct
from kerchief.policies.registry import register


@dataclasses.dataclass(frozen=True, kw_only=True)
class RewardedFeatures:
    """The question: the sum over users of reward times features.

    Attributes:
        size: length of the statistic.
        norm: features are scaled into the ball of this radius.
        high: rewards are clipped to at most this in size.
        importance: the part of the privacy budget, relative to the policy's other queries.
        batches: none of its own: where cohorts are released, any will do.
        readings: none of its own: a running total is read after every user.
    """

    size: int
    norm: float
    high: float
    importance: float = 1.0
    batches: tuple[int, ...] = ()
    readings: tuple[int, ...] = ()

    @property
    def sensitivity(self) -> float:
        """How far replacing one user moves the sum: from one end of the ball to the other."""
        return 2 * self.radius

    @property
    def center(self) -> float:
        """The middle of the ball that the statistics lie in."""
        return 0.0

    @property
    def radius(self) -> float:
        """The radius of that ball."""
        return self.norm * self.high

    def encode(self, record: Example) -> Array:
        """Device: clip, always, whatever the record holds; privacy rests on this line."""
        reward = jnp.clip(finite(record.reward), -self.high, self.high)
        return reward * clip_features(record.features, self.norm)


@struct
class State:
    """What the learner remembers: the latest release."""

    total: Array
    count: Array


@struct
class Model:
    """What is posted for everyone to read: a direction."""

    direction: Array


@struct
class AlongTheMean(Policy):
    """Play along the mean of reward times features, and explore ever more rarely.

    Numbers are leaves that may be changed without compiling anew; what shapes the program is
    `static`. A class derived from `Policy` inherits what is usual: `due`, `request`, `refreshes`
    and `publish` are written out here to show them, and may be left out.

    Attributes:
        query: what it asks.
        exploration: chance of playing any arm in the first round; it falls as the root of time.
    """

    query: RewardedFeatures = static()
    exploration: float | Array

    @classmethod
    def of(cls, problem: Problem, *, mode: str = "tuned") -> AlongTheMean:
        """Build it from public facts alone; in theory it explores twice as much."""
        high = max(abs(problem.low), abs(problem.high))
        query = RewardedFeatures(size=problem.dim, norm=problem.norm, high=high)
        return cls(query=query, exploration=2.0 if mode == "theory" else 1.0)

    @property
    def queries(self) -> Mapping[str, RewardedFeatures]:
        """The questions, by name, fixed before the first user."""
        return {"mean": self.query}

    def init(self, outlook: Mapping[str, NoiseInfo]) -> State:
        """Learner: the state before any release."""
        return State(total=jnp.zeros(self.query.size), count=jnp.int32(0))

    def due(self, state: State, clock: Clock) -> Mapping[str, Array | bool]:
        """Learner: which releases it wants now, from public facts; a plain True means always."""
        return {"mean": True}

    def request(self, state: State, name: str) -> Start | None:
        """Learner: what a fit shall begin with; a sum needs nothing."""
        return None

    def update(self, state: State, name: str, release: Release) -> State:
        """Learner: take in one release. No randomness here, and nobody's record."""
        return State(total=release.total, count=jnp.asarray(release.count, jnp.int32))

    def refreshes(self, clock: Clock) -> Array | bool:
        """Learner: whether a new model is posted after this round; a batch always brings one."""
        return True

    def publish(self, state: State) -> Model:
        """Learner: the model, which anyone may read."""
        return Model(direction=state.total.astype(jnp.float32))

    def act(self, model: Model, arms: Arms, clock: Clock, stream: Stream) -> Array:
        """Device: one of the allowed arms, with the user's own coins."""
        coin = stream.split(0).uniform(1)[0]
        tickets = stream.split(1).uniform(arms.allowed.shape[0])
        explores = coin <= self.exploration / jnp.sqrt(1.0 + clock.round)
        scores = jnp.where(explores, tickets, finite(arms.features) @ model.direction)
        return jnp.argmax(jnp.where(arms.allowed, scores, -jnp.inf))

    def record(
        self, model: Model, arms: Arms, action: Array, reward: Array
    ) -> Mapping[str, Example]:
        """Device: what this user would answer to each query, before clipping and noise."""
        return {"mean": Example(features=arms.features[action], reward=reward)}


register(
    "along-the-mean",
    AlongTheMean,
    summary="plays along the mean of reward times features, and explores ever more rarely",
    source="an example, to copy",
)


def main() -> None:
    """Hold it to the laws, then play it under some trusts."""
    from kerchief.checks import check
    from kerchief.environments import make_environment
    from kerchief.privacy import Guarantee, MemoryLedger, Trust
    from kerchief.privatizers import Protection, protect
    from kerchief.simulation import simulate

    print(check(AlongTheMean, trusts=["local", "joint"]))
    world, horizon = make_environment(dim=2, arms=5), 400
    policy = AlongTheMean.of(world.problem(horizon))
    for trust in (Trust.NONE, Trust.LOCAL, Trust.JOINT):
        private = trust is not Trust.NONE
        promise = Guarantee(
            epsilon=4.0 if private else float("inf"), delta=1e-5 if private else 0.0, trust=trust
        )
        run = simulate(
            policy=policy,
            privatizers=protect(policy, Protection(guarantee=promise), horizon=horizon),
            environment=world,
            ledger=MemoryLedger(promise),
            horizon=horizon,
            replicates=32,
            seed=1,
        )
        print(f"{trust.value}: regret {run.regret[-1].mean():.1f}, spent {run.spent.epsilon:.3g}")


if __name__ == "__main__":
    main()
