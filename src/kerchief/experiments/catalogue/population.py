"""Phased elimination in a population: what each trust costs, and how many clients to ask.

Figure 2 of the paper draws curves alone, at δ = 0.25; its worlds at δ = 1e-5 are an entry too. Its
appendix proves the setting where every round is another client's, and draws nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from kerchief.environments.population import Population
from kerchief.experiments.claims import Claim, Results, Row, all_below, all_of, at, falling, rows
from kerchief.experiments.experiment import Experiment, Setting, Size, enter
from kerchief.experiments.players import Player, ladder, player

__all__ = ["dpe"]

TRUSTS = ("central", "shuffle", "local")


def _alike(ones: Sequence[Row], others: Sequence[Row]) -> Claim:
    return all_of(
        "central and shuffle trust cost the same at each epsilon, within a quarter",
        [
            claim
            for one, other in zip(ones, others, strict=True)
            for claim in (one.below(other, times=1.25), other.below(one, times=1.25))
        ],
    )


# Figure 2(a) and (b) of distributed phased elimination: what each trust costs, over time too.
WIDE = Setting(name="d=20, k=1000", make=Population.of)
DPE, PUBLISHED = player("dpe"), player("dpe@paper")
CENTRAL, SHUFFLE, LOCAL = (ladder("dpe", trust, (1.0, 5.0, 10.0, 20.0)) for trust in TRUSTS)
PAPER = tuple(player("dpe@paper", trust=trust, epsilon=10.0) for trust in TRUSTS)
dpe = partial(at, world=WIDE.name)
"""The row of a player in the world of Figure 2."""


def _figure(delta: float, *claims: Claim, name: str, summary: str) -> Experiment:
    """The figure at a delta, with what holds at every one: the ladder of trusts, and our widths."""
    central, shuffle, local = (rows(one, WIDE.name) for one in (CENTRAL, SHUFFLE, LOCAL))
    return enter(
        name=name,
        title=f"Distributed phased elimination under every trust, δ = {delta:g}",
        summary=summary,
        source="Li, Zhou, Ji 2022, Figure 2(a) and (b)",
        settings=(WIDE,),
        players=(*CENTRAL, *SHUFFLE, *LOCAL, PUBLISHED, *PAPER),
        delta=delta,
        full=Size(horizon=1_000_000, replicates=200),
        quick=Size(horizon=100_000, replicates=8, players=(CENTRAL[2],)),
        claims=(
            *claims,
            # From epsilon 5 on, central privacy costs too little to order.
            falling(central[::2]),
            falling(local),
            _alike(central, shuffle),
            all_below(
                "local trust costs at least twice as much as shuffle trust, at each epsilon",
                shuffle,
                local,
                times=1 / 2,
            ),
            all_below(
                "our widths lose less than a fifth of what the paper's lose, under each trust",
                (central[2], shuffle[2], local[2]),
                rows(PAPER, WIDE.name),
                times=0.2,
            ),
            dpe(DPE).below(dpe(PUBLISHED), times=0.3),
            central[2].below_uniform(times=0.015, quick=True),
        ),
    )


_figure(
    0.25,
    dpe(DPE).at_most(804),
    *(dpe(one[2]).below(dpe(DPE), times=1.5) for one in (CENTRAL, SHUFFLE)),
    *(dpe(one[2]).at_most(1100) for one in (CENTRAL, SHUFFLE)),
    *(dpe(one[0]).at_most(2000) for one in (CENTRAL, SHUFFLE)),
    name="dpe-privacy",
    summary="regret against epsilon and rounds: 20 dimensions, 1000 actions, clients that differ",
)
_figure(
    1e-5,
    *(dpe(one[0]).at_most(6000) for one in (CENTRAL, SHUFFLE)),
    name="dpe-small-delta",
    summary="the same at a delta that protects someone",
)

# Figure 2(c): clients that grow, or equally many in each phase. The number of clients of the fixed
# rows was chosen, on another seed, so that as many numbers are sent as by growing phases.
FIXED, PRIVATE = player("dpe-fixed-u"), CENTRAL[2]
PRIVATE_FIXED = player("dpe-fixed-u", trust="central", epsilon=10.0, clients=230.0)
PAPER_FIXED = player("dpe@paper", clients=345.0)
PAIRS = (DPE, FIXED, PRIVATE, PRIVATE_FIXED, PUBLISHED, PAPER_FIXED)


def _same_cost(players: tuple[Player, ...], share: float) -> Claim:
    """Of growing and fixed phases in turn, both send equally many numbers, up to a share."""
    keys = rows(players, WIDE.name)

    def test(results: Results) -> tuple[bool, str]:
        sent = [results[key].communication["reals"] for key in keys]
        ratios = [more / fewer for fewer, more in zip(sent[::2], sent[1::2], strict=True)]
        holds = all(abs(ratio - 1) <= share for ratio in ratios)
        return holds, ", ".join(f"{ratio:.2f}" for ratio in ratios)

    sentence = f"fixed and growing phases send equally many numbers, within {100 * share:g} %"
    return Claim(sentence=sentence, needs=tuple(keys), test=test)


enter(
    name="dpe-fixed-u",
    title="Growing and fixed numbers of clients, at equal communication",
    summary="phases that ask more and more clients against equally many in each",
    source="Li, Zhou, Ji 2022, Figure 2(c)",
    settings=(WIDE,),
    players=PAIRS,
    delta=0.25,
    full=Size(horizon=1_000_000, replicates=200),
    quick=Size(horizon=100_000, replicates=8, players=(PRIVATE,)),
    claims=(
        _same_cost(PAIRS, 0.4),
        dpe(DPE).below(dpe(FIXED), times=0.5),
        dpe(PRIVATE).below(dpe(PRIVATE_FIXED), times=0.5),
        dpe(PRIVATE).below(dpe(DPE), times=1.6),
        dpe(PUBLISHED).below(dpe(PAPER_FIXED), times=0.2),
        dpe(PRIVATE).below_uniform(times=0.015, quick=True),
    ),
    panels=("rounds",),
)

# Where every round is another client's: the world of the paper's own simulation, smaller, and with
# clients that are all alike. Greedy play asks as in the paper's main setting, where a client sees a
# whole phase.
EACH = Setting(
    name="d=10, k=200", make=partial(Population.of, dim=10, arms=200, clients=100_000, spread=0.0)
)
PE_PUBLISHED = player("pe@paper")
PE = tuple(ladder("pe", trust, (0.2, 1.0, 5.0)) for trust in TRUSTS)
PE_PAPER = tuple(player("pe@paper", trust=trust, epsilon=5.0) for trust in TRUSTS)
PARENT = at(player("pe"), EACH.name)
BY_CENTRAL, BY_SHUFFLE, BY_LOCAL = PE_ROWS = [rows(one, EACH.name) for one in PE]

enter(
    name="dp-pe",
    title="Phased elimination where every round is another client's",
    summary="one public action per client, one protected reward: central, shuffle, local",
    source="Li, Zhou, Ji 2022, Appendix C",
    settings=(EACH,),
    players=(*PE[0], *PE[1], *PE[2], PE_PUBLISHED, *PE_PAPER),
    full=Size(horizon=100_000, replicates=100),
    quick=Size(horizon=20_000, replicates=8, players=(PE[0][2],)),
    claims=(
        PARENT.at_most(10_500),
        BY_CENTRAL[1].at_most(11_500),
        BY_SHUFFLE[1].at_most(11_500),
        falling(BY_CENTRAL[:2]),
        falling(BY_LOCAL),
        all_of(
            "at epsilon 5, central and shuffle trust cost at most a fifth of the regret",
            [one[2].below(PARENT, times=1.2) for one in (BY_CENTRAL, BY_SHUFFLE)],
        ),
        _alike(BY_CENTRAL, BY_SHUFFLE),
        all_below(
            "up to epsilon 1, local trust costs at least one and a half times as much as shuffle",
            BY_SHUFFLE[:2],
            BY_LOCAL[:2],
            times=1 / 1.5,
        ),
        BY_SHUFFLE[2].below(BY_LOCAL[2]),
        all_below(
            "our widths lose less than two fifths of what the paper's lose, private or not",
            (PARENT, *(one[2] for one in PE_ROWS)),
            rows((PE_PUBLISHED, *PE_PAPER), EACH.name),
            times=0.4,
        ),
        BY_CENTRAL[2].below_uniform(times=0.5, quick=True),
    ),
)
