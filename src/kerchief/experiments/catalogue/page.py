"""The page of the catalogue: what each experiment plays, what its paper claims, and what holds."""

from __future__ import annotations

from collections.abc import Iterator

from kerchief.experiments.catalogue import EXPERIMENTS
from kerchief.experiments.claims import Claim
from kerchief.experiments.experiment import Experiment, Setting

_PREFACE = """\
# Experiments

Made by `make pages`. `kerchief reproduce NAME` plays one and judges its claims; with `--quick` it
plays the small size and judges the claims that are marked so. Our claims must hold. A paper's claim
has the verdict of a full-size run: it *holds*, or it *does not hold here*, which needs figures that
contradict it beyond their standard errors. The command fails where a claim of ours fails, or where
a verdict differs from the recorded one. At quick size a paper's claim may be *undecided*, which
fails at full size alone. Beside the players named here stand uniform and greedy play and, at full
size, each player's non-private parent. That no private row spends more than was asked for is
always claimed. Where every construction of the papers is:
[generalized linear](papers/generalized_linear.md), [shuffle-batched](papers/shuffle_batched.md),
[phased elimination](papers/phased_elimination.md), [locally private](papers/locally_private.md),
[online confidence](papers/online_confidence.md).
"""


def page() -> str:
    """The page of the documentation."""
    return "\n".join([_PREFACE, *(_section(one) for _, one in EXPERIMENTS.items())])


def _section(one: Experiment) -> str:
    return "\n".join(_lines(one)) + "\n"


def _lines(one: Experiment) -> Iterator[str]:
    players = ", ".join(f"`{name}`" for name in dict.fromkeys(p.policy for p in one.players))
    worlds = ", ".join(map(_world, one.settings))
    yield f"## {one.name}"
    yield f"\n{one.title}: {one.summary}. From {one.source}.\n"
    yield f"- Players: {players}; worlds: {worlds}; delta {one.delta:g}."
    yield f"- Size: {_size(one, quick=False)}; quick: {_size(one, quick=True)}."
    yield f"- The paper's parameters: {one.sizes.rstrip('.')}."
    yield f"- What the paper claims: {one.claimed.rstrip('.')}."
    yield f"- What holds at a true guarantee: {one.holds.rstrip('.')}."
    yield "\n| our claim: it must hold | judged at quick size |\n|---|---|"
    for claim in one.ours:
        yield f"| {claim.sentence} | {_quick(claim)} |"
    if one.of_paper:
        yield "\n| the paper's claim | where | verdict | figures | judged at quick size |"
        yield "|---|---|---|---|---|"
    for claim in one.of_paper:
        yield (
            f"| {claim.sentence} | {claim.place} | {claim.recorded} | {claim.figures or '-'} "
            f"| {_quick(claim)} |"
        )


def _quick(claim: Claim) -> str:
    return "yes" if claim.quick else "no"


def _world(one: Setting) -> str:
    """Its name, and who plays there, where not all do."""
    names = ", ".join(f"`{name}`" for name in dict.fromkeys(p.label() for p in one.players))
    return f"{one.name} (there {names})" if names else one.name


def _size(one: Experiment, *, quick: bool) -> str:
    size = one.size(quick=quick)
    return f"{size.horizon} rounds, {size.replicates} replicates"
