"""Algorithm 2 of the main paper at home: adversarial contexts, and when to switch."""

from __future__ import annotations

from kerchief.comparison.players import player
from kerchief.papers.catalogue.glm import EXPLORING, FITS, OURS
from kerchief.papers.catalogue.worlds import by_contexts, players, size
from kerchief.papers.claims import Claim, Finding, Results, Row, all_of, at, rows
from kerchief.papers.experiment import enter

__all__: list[str] = []

_, MIDDLE, HIGH = OURS

# Algorithm 2 at home: contexts that an adversary chooses, blindly or knowing what will be chosen.
SAMPLED = player("sampling", trust="joint", epsilon=1.0)
PROVED = player("glm-rare-explore", trust="joint", epsilon=4.0, mode="theory")
FREE, GREEDY, UNIFORM = player("glm"), player("greedy"), player("uniform")
BLIND, SEEING = "starved", "hostile"

enter(
    name="adversarial-contexts",
    title="Algorithm 2 at home: contexts by an adversary",
    summary="probit rewards, d=3, K=20: one direction starved, or sets that the model loses in",
    source="Sarmasarkar 2026, Section 6 and Theorem 6.2; no experiment with adversaries is printed",
    sizes="d, K, S and T of Section 8; contexts are `starved` (a direction is seen in one round of "
    "64) and `hostile` (of 16 sets the one in which the choice, coins and all, loses most)",
    claimed="regret of order √T for any contexts, without assumptions on their spectrum",
    holds="no world here makes it linear. An adversary that foresees the choice costs sums about "
    "four times what redrawn arms cost; they lose half of what fits lose, and sampling least at "
    "epsilon 1. Criterion I, which more than doubles regret on redrawn arms, costs nothing there "
    "at epsilon 4; widths of the theorem explore to the end",
    settings=by_contexts(
        BLIND,
        SEEING,
        link="probit",
        dim=3,
        arms=20,
        radius=2.0,
        players={BLIND: (MIDDLE, HIGH, *FITS, EXPLORING)},
    ),
    players=(MIDDLE, HIGH, *FITS, EXPLORING, SAMPLED, PROVED),
    full=size(5000, 100),
    quick=size(600, 24, players=(HIGH, FITS[1], EXPLORING)),
    claims=(
        all_of(
            "against the adversary that foresees the choice sums lose at most 200 at epsilon 4 and "
            "500 at epsilon 1, where sampling loses less than optimism",
            at(HIGH, SEEING).at_most(200),
            at(MIDDLE, SEEING).at_most(500),
            at(SAMPLED, SEEING).below(MIDDLE),
        ),
        all_of(
            "without privacy greedy play loses more than twice what optimism loses there, and "
            "widths of the theorem, with privacy, half of what uniform play loses at least",
            at(FREE, SEEING).below(GREEDY, times=0.5),
            at(UNIFORM, SEEING).below(PROVED, times=2.0),
        ),
        all_of(
            "fits, between which the model stands still, lose more than sums alone",
            *rows([HIGH], BLIND, SEEING).below(FITS[1]),
            at(MIDDLE, SEEING).below(FITS[0]),
        ),
        all_of(
            "at epsilon 4 Criterion I costs half again and more on starved contexts, and at most a "
            "fifth against the adversary that foresees the choice",
            at(FITS[1], BLIND).below(EXPLORING, times=0.6),
            at(EXPLORING, SEEING).below(FITS[1], times=1.2),
        ),
        at(HIGH, SEEING).below_uniform(times=0.22, quick=True),
        at(HIGH, SEEING).below(FITS[1], quick=True),
        at(FITS[1], BLIND).below(EXPLORING, times=0.7, quick=True),
        at(HIGH, BLIND).below(at(HIGH, SEEING), times=0.4, quick=True),
    ),
)

# When to fit again: a direction that has grown, or the volume, which noise makes non-monotone.
WAYS = DIRECTION, VOLUME = players(
    "glm-rare", "glm-rare-volume", trust="joint", epsilon=1.0, factor=2.0
)
BARE = players("glm-rare", "glm-rare-volume", trust="joint", epsilon=1.0, factor=2.0, damping=0.0)


def _claim_fits(row: Row, smallest: float, largest: float, *, quick: bool = False) -> Claim:
    """Claim that a bandit makes this many fits, on average."""

    def test(results: Results) -> Finding:
        fits = results[row].releases["fit"]
        return smallest <= fits <= largest, f"{fits:.2f} fits"

    sentence = f"{row}: {smallest:g} to {largest:g} fits"
    return Claim(sentence=sentence, needs=(row,), test=test, quick=quick)


enter(
    name="switching-rules",
    title="When to switch: directional growth against volume",
    summary="probit rewards, d=3, K=20, S=2, epsilon 1: with the ridge that noise needs, and bare",
    source="Sarmasarkar 2026, Lemma P.4, Remark P.5 and Appendix P.1; no experiment is printed",
    sizes="d, K, S and T of Section 8, the paper's factor 2, and at most 12 fits, all paid for",
    claimed="the volume of a noisy matrix is not monotone, so the usual bound on switches is lost; "
    "directional growth has a bound, and without noise it switches no more often",
    holds="with a ridge as large as the noise, directional growth switches less often (Remark P.5) "
    "and neither loses less on redrawn arms. Without one the opposite of Appendix P.1 is seen: "
    "noise alone makes some direction grow, and the directional rule has spent its fits within "
    "some rounds, while the volume rule waits for a positive matrix and loses a tenth",
    settings=by_contexts("ball", "fixed", link="probit", dim=3, arms=20, radius=2.0),
    players=(*WAYS, *BARE),
    full=size(5000, 100),
    quick=size(800, 32, "ball", players=(*WAYS, *BARE)),
    claims=(
        all_of(
            "with the ridge that noise needs neither loses half again on redrawn arms",
            at(DIRECTION, "ball").below(VOLUME, times=1.5),
            at(VOLUME, "ball").below(DIRECTION, times=1.5),
        ),
        all_of(
            "directional growth makes fewer fits: 4 to 5.5 against 6 to 8",
            _claim_fits(at(DIRECTION, "ball"), 4, 5.5),
            _claim_fits(at(VOLUME, "ball"), 6, 8),
        ),
        all_of(
            "without it the directional rule loses three times what the volume rule loses",
            *rows(BARE[1:], "ball", "fixed").below(rows(BARE[:1], "ball", "fixed"), times=0.33),
        ),
        at(BARE[1], "ball").below(BARE[0], times=0.9, quick=True),
        _claim_fits(at(BARE[0], "ball"), 9, 12, quick=True),
        all_of(
            "with the ridge both are far from uniform play",
            *rows(WAYS, "ball").below_uniform(times=0.6),
            quick=True,
        ),
    ),
)
