"""Shuffle-batched linear bandits: as published and repaired, their bits, batches and promises."""

from __future__ import annotations

import math
from functools import partial

from kerchief.comparison.players import Key, ladder, player
from kerchief.environments.worlds import make_environment
from kerchief.papers.catalogue.worlds import by_number, by_rounds, names, players, size
from kerchief.papers.claims import Claim, Finding, Results, all_of, at, falling, no_steeper, rows
from kerchief.papers.experiment import enter

SETTINGS = by_number(
    "d", (2, 5), lambda dim: make_environment(contexts="orthant", dim=dim, arms=10)
)
WORLDS = WORLD, _ = names(SETTINGS)
UNIFORM = player("uniform")

# As published, and repaired, with one bit and with many.
MANY = ladder("sblb", "shuffle", (0.2, 1.0, 5.0), mechanism="bits")
ONE, COINS = (
    ladder("sblb", "shuffle", (1.0, 5.0), mechanism=mechanism) for mechanism in ("bit", "best")
)
PAPER = players("sblb@paper", "sblb-fixed@paper", trust="shuffle", epsilon=1.0, mechanism="bit")
# At the epsilon that is really spent, 0.04 and 1: the repaired one is asked for less, and the
# published one keeps as many bits as an epsilon of 1 allows, in batches of the same length.
FRUGAL = player("sblb", trust="shuffle", epsilon=0.04)
SPENDING = players(
    "sblb@paper",
    "sblb-fixed@paper",
    trust="shuffle",
    epsilon=1.0,
    mechanism="bit",
    local=100.0,
    length=371,
)


def spends(key: Key, *, low: float, high: float) -> Claim:
    """The epsilon that the ledger charged lies between two bounds."""

    def test(results: Results) -> Finding:
        spent, _ = results[key].spent or (math.inf, 1.0)
        return low <= spent <= high, f"{spent:.4g}"

    sentence = f"{key}: spends an epsilon between {low:.3g} and {high:.3g}"
    return Claim(sentence=sentence, needs=(key,), test=test, quick=True)


enter(
    name="sblb",
    title="Shuffle-batched linear bandits, as published and repaired",
    summary="randomized bits behind a shuffler: one bit, many bits, coins",
    source="Garcelon et al. 2022, Algorithms 1 and 4",
    sizes="The paper has no experiment: T, d and K were chosen here. What is published plays at "
    "p = 8/9 of corollary 8, so that it spends 0.04 where an epsilon of 1 was asked for; with "
    "`local=100` it keeps as many bits as a spent epsilon of 1 allows.",
    claimed="Algorithm 1 reaches T^(2/3) and Algorithm 4 T^(3/4): a new model after every batch "
    "means more regret.",
    holds="At p = 8/9 they lose 2730 and 2570 of the 3700 that uniform play loses at d = 2, as "
    "much as it at d = 5, and without any noise 3450 and 3350 at d = 2. At a spent epsilon of 1 "
    "Algorithm 4 loses less than Algorithm 1. Arms here have no negative coordinate. Repaired, 64 "
    "bits lose 200 at epsilon 1, one bit 670, and coins 190. At equal spent epsilons, of 0.04 and "
    "of 1, the repaired one loses less too. `sblb-rates` shows how regret grows.",
    settings=SETTINGS,
    players=(*MANY, *ONE, *COINS, *PAPER, FRUGAL, *SPENDING),
    full=size(20_000, 200),
    quick=size(2500, 64, WORLD, players=(MANY[1], COINS[0], *PAPER, *SPENDING)),
    claims=(
        all_of(
            "with 64 bits, d=2 and 5, epsilon 0.2, 1 and 5: at most 700, 225, 190, 1300, 400, 225",
            *rows(MANY, *WORLDS).at_most((700, 225, 190, 1300, 400, 225)),
        ),
        all_of(
            "regret falls with epsilon, for 64 bits",
            *(falling(rows(MANY, world)) for world in WORLDS),
        ),
        all_of(
            "at epsilon 1 and 5, 64 bits lose less than 0.6 of what one bit loses, and coins no "
            "more than bits, up to errors",
            *(
                claim
                for bits, bit, coins in zip(
                    rows(MANY[1:], *WORLDS), rows(ONE, *WORLDS), rows(COINS, *WORLDS), strict=True
                )
                for claim in (bits.below(bit, times=0.6), coins.below(bits, times=1.2))
            ),
        ),
        all_of(
            "with the paper's widths it loses more than half of what uniform play loses",
            *rows(PAPER, WORLD).above(UNIFORM, times=2),
            quick=True,
        ),
        all_of(
            "at a spent epsilon of 1 the repaired one loses less than 0.4 of what is published",
            *(spends(row, low=0.95, high=1) for row in rows(SPENDING, WORLD)),
            *rows(SPENDING, WORLD).above(COINS[0], times=0.4),
            quick=True,
        ),
        all_of(
            "at a spent epsilon of 0.04 the repaired one loses less than 0.9 of what is published",
            *(spends(row, low=0.038, high=0.041) for row in rows((FRUGAL, *PAPER), WORLD)),
            *rows(PAPER, WORLD).above(FRUGAL, times=0.9),
        ),
        at(COINS[0], WORLD).below(MANY[1], times=1.5, quick=True),
        at(MANY[1], WORLD).below(SPENDING[0], times=0.5, quick=True),
        at(SPENDING[0], WORLD)
        .below(SPENDING[1], errors=2)
        .from_paper(
            "Appendix C",
            "does not hold here",
            figures="2795 ± 15 against 2666 ± 9, 400 runs",
            sentence="at a spent epsilon of 1 and d = 2, a new model as the determinant says loses "
            "less than one after every batch",
        ),
    ),
)


paced = partial(player, "sblb", trust="shuffle")
"""The repaired one, on equal batches of the length that is named."""


# How long a batch of shuffled bits should be, and how many bits it should have.
BY_LENGTH = tuple(
    paced(length=length, epsilon=1.0, mechanism="bits") for length in (100, 400, 6400)
)
BIT, BYTE = (paced(length=400, epsilon=1.0, mechanism=mechanism) for mechanism in ("bit", "byte"))
GROWING = MANY[1]

enter(
    name="sblb-batches",
    title="Shuffled bits: how many users per batch, how many bits per number",
    summary="equal batches of 100 to 6400 users, 1 to 64 bits, beside batches that grow",
    source="Garcelon et al. 2022, the parameters l and m of Algorithm 1, and Remark 2",
    sizes="The paper has no experiment; Corollary 8 takes m = 1, and Theorem 5 a length by "
    "Equation (3), which is 371 here as printed and beyond the horizon as derived.",
    claimed="Longer batches buy privacy for the whole sequence of outputs, at the price of regret; "
    "against an adversary who sees one output only, short ones would do (Remark 2).",
    holds="Short ones do against everyone: a user is in one batch. Of equal ones 400 users are "
    "better than 100 and than 6400, 64 bits lose half of what one bit loses, and batches that grow "
    "lose least.",
    settings=SETTINGS[:1],
    players=(*BY_LENGTH, BIT, BYTE, GROWING),
    full=size(20_000, 256),
    quick=size(2500, 256, players=(BY_LENGTH[1], BYTE, BIT)),
    claims=(
        at(BY_LENGTH[1], WORLD).below_uniform(times=0.14),
        # Nobody learns before the first batch ends, and every batch has noise of its own.
        all_of(
            "batches that grow lose less than any of one length, and those of 6400 lose most",
            *rows(BY_LENGTH, WORLD).above(GROWING),
            *rows(BY_LENGTH[:2], WORLD).below(at(BY_LENGTH[2], WORLD), times=0.8),
        ),
        all_of(
            "batches of 400 lose less than those of 100, and with 64 bits less than with one",
            at(BY_LENGTH[1], WORLD).below(BY_LENGTH[0]),
            at(BY_LENGTH[1], WORLD).below(BIT, times=0.8),
        ),
        at(BYTE, WORLD).below(BY_LENGTH[1], times=1.5, quick=True),
        *rows((BY_LENGTH[1], BYTE), WORLD).below(at(BIT, WORLD), quick=True),
    ),
    panels=("rounds",),
)


# Table 1: tuned for the device's promise, or for regret.
#
# With one bit per coordinate and equal batches, one keep parameter decides both what a report tells
# by itself and what the sums of a batch tell. `local` is asked of the first, ε of the second: the
# noise keeps both, and what the second comes to is spent. `kerchief calibrate --trust shuffle
# --local-epsilon` shows all three promises.
LENGTH, ROUNDS = 250, 20_000
# Tuned for the wire: a local ε, which is all that is asked of the sums as well.
LOCAL = tuple(
    paced(length=LENGTH, epsilon=epsilon, mechanism="bit", local=epsilon) for epsilon in (1.0, 5.0)
)
# Tuned for regret: what is asked of the sums is the promise, and the wire gets what is left.
REGRET = paced(length=LENGTH, epsilon=1.0, mechanism="bit")
# With many bits the wire promises nothing.
BITS = paced(length=LENGTH, epsilon=1.0, mechanism="bits")
# As published: corollary 7 at ε₀ = 1, and corollary 8 at its largest ε, 1 − p = 1/9.
COROLLARIES = (
    player(
        "sblb@paper",
        trust="shuffle",
        epsilon=math.sqrt(math.expm1(1.0)),
        mechanism="bit",
        local=1.0,
    ),
    PAPER[0],
)
# The other rows of the table.
JOINT, ZHENG = (player("linucb", trust=trust, epsilon=1.0) for trust in ("joint", "local"))

enter(
    name="sblb-settings",
    title="Shuffled bits, tuned for the device's promise or for regret",
    summary="one bit: a local ε of 1 or 5 for each report, or an ε of 1 for the sums alone, beside "
    "joint and local trust at ε = 1; what the sums really tell differs, and is shown as spent",
    source="Garcelon et al. 2022, Table 1 (Corollaries 7 and 8)",
    sizes="The table has rates and no sizes. T = 20,000, d = 2, δ = 1e-5; corollary 7 at ε₀ = 1, "
    "and corollary 8 at the largest ε that it allows, by p = 8/9 and batches of 371.",
    claimed="The row of Corollary 7: ε₀ for each report, ε₀^(3/2)/T^(1/4) = 0.084 for the models, "
    "T^(3/4). That of Corollary 8: at most 1/(27 T^(1/4)) = 0.0031 for the models, T^(2/3).",
    holds="As published both lose three quarters of what uniform play loses on these arms. For the "
    "models of Corollary 7 an epsilon of 0.036 is certified, for those of Corollary 8 one of "
    "0.040: its 0.0031 is not kept (`sblb.md`). Repaired, a local ε of 5 costs a third more than "
    "one bit at ε = 1, a local ε of 1 two thirds of uniform play, and with 64 bits, which promise "
    "nothing for a report, regret is less than twice that of joint trust.",
    settings=SETTINGS[:1],
    players=(*LOCAL, REGRET, BITS, *COROLLARIES, SPENDING[0], JOINT, ZHENG),
    full=size(ROUNDS, 200),
    quick=size(2500, 64, players=(BITS, *COROLLARIES, SPENDING[0])),
    claims=(
        all_of(
            "regret falls from a local ε of 1 to 5 to 64 bits, and from local to joint trust",
            falling(rows((*LOCAL, BITS), WORLD)),
            falling(rows((ZHENG, BITS, JOINT), WORLD)),
        ),
        at(REGRET, WORLD).below(LOCAL[0], times=0.5),
        at(BITS, WORLD).below(REGRET),
        spends(Key(COROLLARIES[0], WORLD), low=0, high=ROUNDS**-0.25).from_paper(
            "Table 1, the row of Corollary 7",
            "holds",
            figures="0.0361 against 0.0841, 400 runs",
            sentence="tuned for ε₀ = 1, the models tell an epsilon of at most ε₀^(3/2)/T^(1/4)",
        ),
        spends(Key(COROLLARIES[1], WORLD), low=10 / (27 * ROUNDS**0.25), high=0.05),
        at(BITS, WORLD).below(SPENDING[0], times=0.5, quick=True),
        at(UNIFORM, WORLD).below(COROLLARIES[1], times=2, quick=True),
    ),
    panels=("rounds",),
)

# How regret grows. The published one plays the largest ε of Corollary 8 at each horizon, where
# T^(2/3)/ε^(1/3) is of the order T^(3/4).
LENGTHS = (5000, 20_000, 80_000)
HORIZONS = by_rounds(LENGTHS, make_environment, contexts="orthant", dim=2, arms=10)
FIRST, SECOND, LAST = names(HORIZONS)
PUBLISHED = PAPER[0]


def first_term(rounds: int) -> float:
    """First term of Theorem 10 at d = 2, S = L = m = 1, p = 8/9, η = 1/2, λ = √T.

    >>> round(first_term(20_000))
    132739
    """
    root = math.sqrt(1.5 * math.log1p(math.sqrt(rounds) / 2))
    return 2 * math.sqrt(3) * (1 + 2) * math.pow(rounds, 0.75) / math.sqrt(1 / 9) * root


enter(
    name="sblb-rates",
    title="Shuffle-batched linear bandits: how regret grows",
    summary="64 bits and coins at epsilon 1 beside what is published, which spends 0.04 or all",
    source="Garcelon et al. 2022, Theorem 10 and Corollary 8",
    sizes="The paper has no experiment. d = 2 and up to 80,000 rounds, as more take minutes each.",
    claimed="Regret of order T^(2/3)/ε^(1/3), which is T^(3/4) at the largest ε that Corollary 8 "
    "allows; Theorem 10 has the constants.",
    holds="Repaired, regret grows like T^0.35 with 64 bits and T^0.37 with coins. As published, at "
    "the largest ε, it grows like T^0.82 on these arms: it falls from nine tenths of what uniform "
    "play loses to somewhat more than half of it, since the widths exceed most rewards. Uniform "
    "play keeps the bound of Theorem 10, too. How regret grows at one ε is not shown yet.",
    settings=HORIZONS,
    players=(GROWING, COINS[0], PUBLISHED, SPENDING[0]),
    full=size(5000, 100),
    quick=size(5000, 64, FIRST, players=(COINS[0], PUBLISHED, SPENDING[0])),
    claims=(
        no_steeper(rows([GROWING], FIRST, SECOND, LAST), 0.5),
        no_steeper(rows([COINS[0]], FIRST, SECOND, LAST), 0.5),
        all_of(
            "at p = 8/9 regret stays below the first term of the bound, as that of uniform play "
            "does",
            *(
                at(policy, setting.name).at_most(first_term(rounds))
                for setting, rounds in zip(HORIZONS, LENGTHS, strict=True)
                for policy in (PUBLISHED, UNIFORM)
            ),
        ).from_paper(
            "Theorem 10",
            "holds",
            figures="8240 ± 160, and 14 800 ± 320 by uniform play, against 404 000 at 80 000 "
            "rounds, 400 runs",
        ),
        at(UNIFORM, FIRST).below(PUBLISHED, times=2, quick=True),
        at(COINS[0], FIRST).below(SPENDING[0], times=0.4, quick=True),
    ),
    panels=(),
    axis="rounds",
)
