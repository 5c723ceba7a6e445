"""Phased elimination beyond the paper's figure: communication, covers, and a client each round."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from functools import partial

from kerchief.comparison.players import ladder, player
from kerchief.environments.population import Population
from kerchief.papers.catalogue.population import CENTRAL, DPE, PUBLISHED, TRUSTS, claim_equal_cost
from kerchief.papers.catalogue.worlds import size
from kerchief.papers.claims import Claim, Results, Row, all_of, at, falling, rows
from kerchief.papers.experiment import Setting, enter

# Remark 5.2: the more clients are asked, the less is lost. The world needs more clients than that
# of Figure 2, since with a growth of 0.9 its phases ask 160 000.
CROWD = Setting(name="400000 clients", make=partial(Population.of, clients=400_000))
GROWTHS = (0.4, 0.5, 0.6, 2 / 3, 0.8, 0.9)


ALPHAS = tuple(
    tuple(dataclasses.replace(bandit, numbers=(("growth", growth),)) for growth in GROWTHS)
    for bandit in (DPE, CENTRAL[0], PUBLISHED)
)
PLAIN, CURATED, PRINTED = (rows(steps, CROWD.name) for steps in ALPHAS)


def _claim_rising_communication(keys: Sequence[Row], *, quick: bool = False) -> Claim:
    """Claim that clients send more numbers from each row to the next."""

    def test(results: Results) -> tuple[bool, str]:
        totals = [results[key].communication["reals"] for key in keys]
        rises = all(later > earlier for earlier, later in itertools.pairwise(totals))
        return rises, ", ".join(f"{total:.0f}" for total in totals)

    names = " < ".join(key.player.label() for key in keys)
    return Claim(sentence=f"numbers sent: {names}", needs=tuple(keys), test=test, quick=quick)


enter(
    name="dpe-alpha",
    title="Regret against communication, by how fast phases ask more clients",
    summary="phase l asks 2^(growth l) clients, growth from 0.4 to 0.9: what is lost, what is sent",
    source="Li, Zhou, Ji 2022, Remark 5.2",
    settings=(CROWD,),
    players=tuple(itertools.chain(*ALPHAS)),
    full=size(1_000_000, 100),
    quick=size(1_000_000, 12, players=ALPHAS[0] + ALPHAS[1]),
    sizes=(
        "The paper's world, with 400 000 clients for its 100 000. The paper draws no such figure, "
        "and plays a growth of 0.8."
    ),
    claimed=(
        "A larger growth means less regret, T^(1 - growth/2), and more communication, T^growth; "
        "both are T^(2/3) at a growth of 2/3."
    ),
    holds=(
        "More clients lose less and send more, private or not; how both grow with the rounds is "
        "not shown yet. By the paper's widths regret falls from 90 000 to 2000 while "
        "12 000 to 256 000 numbers are sent; with exact widths from 9300 to 280 while 3300 to "
        "31 000 are, since nobody is asked once one action is left."
    ),
    claims=(
        falling(PLAIN[::2]),
        falling(CURATED, quick=True),
        falling(PRINTED).from_paper(
            "Remark 5.2", "holds", figures="90 100 ± 800 down to 2040 ± 60, 400 runs"
        ),
        _claim_rising_communication(PRINTED).from_paper(
            "Remark 5.2", "holds", figures="11 900 up to 256 000, 400 runs"
        ),
        _claim_rising_communication(CURATED[::2], quick=True),
        CURATED[-1].below(CURATED[1], times=0.03, quick=True),
        CURATED[-1].at_most(2200, quick=True),
        PRINTED[-1].below(PRINTED[0], times=0.04),
        PLAIN[-1].below(PRINTED[0], times=0.006),
        PLAIN[-1].below(PLAIN[0], times=0.1, quick=True),
    ),
    panels=("rounds",),
)

# Remark 3.1: every point of the sphere is an action, and a cover of it is played.
COVERED = (player("dpe"), *(player("dpe", trust=trust, epsilon=1.0) for trust in TRUSTS[::2]))
# Under local trust the coarsest and the finest alone: there is nothing between them.
COVERS = tuple(
    Setting(
        name=f"cover {distance:g}",
        make=partial(Population.covering, dim=3, cover=distance),
        number=distance,
        players=players,
    )
    for distance, players in zip((0.8, 0.2, 0.1), (COVERED, COVERED[:2], COVERED), strict=True)
)
OPEN, KEPT = ([at(bandit, cover.name) for cover in COVERS] for bandit in COVERED[:2])
ALONE = [at(COVERED[2], cover.name) for cover in (COVERS[0], COVERS[2])]

enter(
    name="dpe-cover",
    title="A continuum of actions, by covers of the sphere",
    summary="every point of the unit sphere is an action: finer covers lose less, and cost more",
    source="Li, Zhou, Ji 2022, Remark 3.1",
    settings=COVERS,
    players=COVERED,
    full=size(100_000, 100),
    quick=size(100_000, 16, COVERS[0].name, COVERS[1].name, players=COVERED[:2]),
    sizes=(
        "3 dimensions and 100 000 rounds; the paper names no size. A cover within ε₀ has up to "
        "(3/ε₀)^d points, which is why there are 3 dimensions: 26, 434 and 1754 points here."
    ),
    claimed="Infinitely many actions can be replaced by a cover of at most (3/ε₀)^d points.",
    holds=(
        "The best point of a cover lacks at most ε₀²/2 a round. Without privacy regret falls from "
        "4100 to 350 from the coarsest cover to the finest, under central trust at ε = 1 from 4700 "
        "to 990; local noise costs 16 000 with the coarsest and with the finest."
    ),
    claims=(
        falling(OPEN),
        falling(KEPT[:2], quick=True),
        falling(KEPT),
        KEPT[1].at_most(1700, quick=True),
        KEPT[1].below(OPEN[1], times=5, quick=True),
        all_of(
            "under local trust the finest cover and the coarsest lose the same, within a fifth",
            ALONE[0].below(ALONE[1], times=1.2),
            ALONE[1].below(ALONE[0], times=1.2),
        ),
    ),
    axis="distance of the cover",
)

# Where every round is another client's: the world of the paper's own simulation, smaller, and with
# clients that are all alike. Greedy play asks as in the paper's main setting, where a client sees a
# whole phase.
EACH = Setting(
    name="d=10, k=200", make=partial(Population.of, dim=10, arms=200, clients=100_000, spread=0.0)
)
FEW = (0.2, 1.0, 5.0)
PE_PUBLISHED = player("pe@paper")
# Normal noise under central trust, beside the Laplace noise that is the default for one number.
PE = tuple(
    ladder("pe", trust, FEW, mechanism=mechanism)
    for trust, mechanism in zip(TRUSTS, ("gaussian", None, None), strict=True)
)
PE_PAPER = tuple(player("pe@paper", trust=trust, epsilon=5.0) for trust in TRUSTS)
# Remark C.9, and the coins of Algorithm 4.
LAPLACE, LOCAL_LAPLACE = (ladder("pe", trust, FEW, mechanism="laplace") for trust in TRUSTS[::2])
PE_COINS = ladder("pe", "shuffle", FEW, mechanism="theorem")
PE_PAPER_COINS = player("pe@paper", trust="shuffle", epsilon=5.0, mechanism="theorem")
PARENT = at(player("pe"), EACH.name)
BY_CENTRAL, BY_SHUFFLE, BY_LOCAL = PE_ROWS = [rows(steps, EACH.name) for steps in PE]
BY_LAPLACE, BY_LOCAL_LAPLACE, BY_COINS = (
    rows(steps, EACH.name) for steps in (LAPLACE, LOCAL_LAPLACE, PE_COINS)
)

enter(
    name="dp-pe",
    title="Phased elimination where every round is another client's",
    summary=(
        "one public action per client, one protected reward: central, shuffle, local; rows with "
        "Laplace noise promise more, δ = 0"
    ),
    source="Li, Zhou, Ji 2022, Appendix C",
    settings=(EACH,),
    players=(
        *(*PE[0], *PE[1], *PE[2], PE_PUBLISHED, *PE_PAPER),
        *(*LAPLACE, *LOCAL_LAPLACE, *PE_COINS, PE_PAPER_COINS),
    ),
    full=size(100_000, 100),
    quick=size(100_000, 48, players=(player("pe"), *PE[0], PE[1][1], *LAPLACE)),
    sizes=(
        "10 dimensions, 200 actions and 100 000 rounds, a client each; the paper names no size, "
        "and draws nothing."
    ),
    claimed=(
        "Privacy is free under central and shuffle trust, in the order of regret; Laplace noise "
        "would give pure privacy (Table 2, Remarks C.8 and C.9)."
    ),
    holds=(
        "From ε = 1 on central and shuffle trust lose at most a tenth more than without privacy, "
        "and by the paper's widths at ε = 5 a fifth more. "
        "Laplace noise on the totals is pure and costs less than normal noise at δ = 1e-5, which "
        "is why it is the default for single numbers under central trust. The "
        "published coins spend 0.37 of ε = 5."
    ),
    claims=(
        PARENT.at_most(10_500, quick=True),
        BY_CENTRAL[1].at_most(11_500, quick=True),
        BY_SHUFFLE[1].at_most(11_500, quick=True),
        falling(BY_CENTRAL[:2], quick=True),
        all_of(
            "regret falls as epsilon grows: under local trust by one bit and by Laplace noise, by "
            "Laplace noise on totals, and by the published coins",
            *(falling(steps) for steps in (BY_LOCAL, BY_LOCAL_LAPLACE, BY_LAPLACE[:2], BY_COINS)),
        ),
        all_of(
            "from epsilon 1 on, central and shuffle trust cost at most a third of the regret",
            *(row.below(PARENT, times=4 / 3) for row in (*BY_CENTRAL[1:], *BY_SHUFFLE[1:])),
        ),
        claim_equal_cost(BY_CENTRAL, BY_SHUFFLE),
        all_of(
            "up to epsilon 1, local trust costs at least one and a half times as much as shuffle",
            *rows(PE[1][:2], EACH.name).below(BY_LOCAL[:2], times=1 / 1.5),
        ),
        BY_SHUFFLE[2].below(BY_LOCAL[2]),
        BY_LAPLACE[0].below(BY_CENTRAL[0], quick=True),
        BY_LAPLACE[1].below(PARENT, times=1.35, quick=True),
        BY_LAPLACE[0].at_most(12_000, quick=True),
        all_of(
            "by the paper's widths privacy is free at epsilon 5: central and shuffle trust lose "
            "less than a third more than without privacy",
            *rows(PE_PAPER[:2], EACH.name).below(at(PE_PUBLISHED, EACH.name), times=4 / 3),
        ).from_paper(
            "Remark C.8",
            "holds",
            figures="39 600 ± 150 and 39 600 ± 150 against 32 800 ± 120, 400 runs",
        ),
        all_of(
            "our widths lose less than two fifths of what the paper's lose, private or not",
            *rows((player("pe"), *(steps[2] for steps in PE)), EACH.name).below(
                rows((PE_PUBLISHED, *PE_PAPER), EACH.name), times=0.4
            ),
        ),
        BY_CENTRAL[2].below(PARENT, times=1.5, quick=True),
    ),
)
