"""Algorithm 1 under shuffle trust: a design over what earlier batches leave, beside plain sums."""

from __future__ import annotations

from functools import partial

from kerchief.environments.worlds import make_environment
from kerchief.experiments.claims import all_of, at, at_most, below, falling
from kerchief.experiments.experiment import Experiment, Setting, Size, enter
from kerchief.experiments.players import player

__all__ = ["EXPERIMENT"]

WORLDS = ("ball", "fixed")
UNIFORM, PARENT = player("uniform"), player("glm-batched")
LOW, HIGH = OURS = tuple(
    player("glm-batched", trust="shuffle", epsilon=epsilon) for epsilon in (1.0, 4.0)
)
PAPER = player("glm-batched@paper", trust="shuffle", epsilon=4.0)
SUMS, CURATED = (player("glm", trust=trust, epsilon=1.0) for trust in ("shuffle", "joint"))

EXPERIMENT = enter(
    Experiment(
        name="shuffle-glm",
        title="Shuffle private GLM bandits: fits to batches, and sums alone",
        summary="probit rewards, d=3, K=20, S=2: Algorithm 1, its parent, and glm",
        source="Sarmasarkar 2026, Algorithms 1 and 7; no experiment with them is printed",
        settings=tuple(
            Setting(
                name=world,
                make=partial(
                    make_environment, link="probit", contexts=world, dim=3, arms=20, radius=2.0
                ),
            )
            for world in WORLDS
        ),
        players=(*OURS, PAPER, SUMS, CURATED, player("b-glincb")),
        delta=1e-4,
        full=Size(horizon=20_000, replicates=100),
        quick=Size(horizon=2000, replicates=12, settings=("ball",), players=(PARENT, HIGH)),
        claims=(
            at_most(at(LOW, "ball"), 310),
            at_most(at(LOW, "fixed"), 340),
            at_most(at(HIGH, "ball"), 220),
            falling([at(LOW, "ball"), at(HIGH, "ball")]),
            below(at(PARENT, "ball"), at(LOW, "ball")),
            below(at(HIGH, "ball"), at(PARENT, "ball"), times=1.25),
            at_most(at(HIGH, "fixed"), 260),
            # Redrawn arms explore by themselves, so optimism needs no design there.
            below(at(SUMS, "ball"), at(LOW, "ball")),
            below(at(CURATED, "ball"), at(SUMS, "ball")),
            all_of(
                "plain noisy descent loses more than two steps in a released metric",
                [below(at(HIGH, world), at(PAPER, world)) for world in WORLDS],
            ),
            all_of(
                "far from uniform play",
                [below(at(LOW, w), at(UNIFORM, w), times=0.06) for w in WORLDS],
            ),
            below(at(HIGH, "ball"), at(UNIFORM, "ball"), times=0.3, quick=True),
        ),
    )
)
