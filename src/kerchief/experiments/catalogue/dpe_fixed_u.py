"""Figure 2(c) of distributed phased elimination: clients that grow, or equally many in each phase.

The number of clients of the fixed rows was chosen, on another seed, so that as many numbers are
sent as by the rows with growing phases.
"""

from __future__ import annotations

from kerchief.environments.population import Population
from kerchief.experiments.claims import Claim, Finding, Results, at, below
from kerchief.experiments.experiment import Experiment, Setting, Size, enter
from kerchief.experiments.players import Player, player

__all__ = ["EXPERIMENT"]

WORLD = "d=20, k=1000"
DPE, FIXED = player("dpe"), player("dpe-fixed-u")
PRIVATE = player("dpe", trust="central", epsilon=10.0)
PRIVATE_FIXED = player("dpe-fixed-u", trust="central", epsilon=10.0, clients=230.0)
PAPER, PAPER_FIXED = player("dpe@paper"), player("dpe@paper", clients=345.0)
PAIRS = ((DPE, FIXED), (PRIVATE, PRIVATE_FIXED), (PAPER, PAPER_FIXED))


def _same_cost(pairs: tuple[tuple[Player, Player], ...], share: float) -> Claim:
    """Both of each pair send equally many numbers, up to a share."""
    spots = tuple(at(one, WORLD) for pair in pairs for one in pair)

    def test(results: Results) -> Finding:
        sent = [results[spot].communication["reals"] for spot in spots]
        ratios = [more / fewer for fewer, more in zip(sent[::2], sent[1::2], strict=True)]
        return Finding(
            holds=all(abs(ratio - 1) <= share for ratio in ratios),
            seen=", ".join(f"{ratio:.2f}" for ratio in ratios),
        )

    sentence = f"fixed and growing phases send equally many numbers, within {100 * share:g} %"
    return Claim(sentence=sentence, needs=spots, test=test)


EXPERIMENT = enter(
    Experiment(
        name="dpe-fixed-u",
        title="Growing and fixed numbers of clients, at equal communication",
        summary="phases that ask more and more clients against equally many in each",
        source="Li, Zhou, Ji 2022, Figure 2(c)",
        settings=(Setting(name=WORLD, make=Population.of),),
        players=(DPE, FIXED, PRIVATE, PRIVATE_FIXED, PAPER, PAPER_FIXED),
        delta=0.25,
        full=Size(horizon=1_000_000, replicates=200),
        quick=Size(horizon=100_000, replicates=8, players=(PRIVATE,)),
        claims=(
            _same_cost(PAIRS, 0.4),
            below(at(DPE, WORLD), at(FIXED, WORLD), times=0.5),
            below(at(PRIVATE, WORLD), at(PRIVATE_FIXED, WORLD), times=0.5),
            below(at(PRIVATE, WORLD), at(DPE, WORLD), times=1.6),
            below(at(PAPER, WORLD), at(PAPER_FIXED, WORLD), times=0.2),
            below(at(PRIVATE, WORLD), at(player("uniform"), WORLD), times=0.015, quick=True),
        ),
        panels=("rounds",),
    )
)
