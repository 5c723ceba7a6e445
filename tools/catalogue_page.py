"""The page of the catalogue: what each experiment plays, what its paper claims, and what holds."""

from __future__ import annotations

from collections.abc import Iterator

from kerchief.papers.catalogue import EXPERIMENTS
from kerchief.papers.claims import Claim
from kerchief.papers.experiment import Experiment, Setting

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
    """Write the page of all experiments."""
    return "\n".join(
        [_PREFACE, *(_write_section(experiment) for _, experiment in EXPERIMENTS.items())]
    )


def _write_section(experiment: Experiment) -> str:
    return "\n".join(_write_lines(experiment)) + "\n"


def _write_lines(experiment: Experiment) -> Iterator[str]:
    players = ", ".join(f"`{name}`" for name in dict.fromkeys(p.policy for p in experiment.players))
    worlds = ", ".join(map(_describe_setting, experiment.settings))
    yield f"## {experiment.name}"
    yield f"\n{experiment.title}: {experiment.summary}. From {experiment.source}.\n"
    yield f"- Players: {players}; worlds: {worlds}; delta {experiment.delta:g}."
    yield (
        f"- Size: {_describe_size(experiment, quick=False)}; "
        f"quick: {_describe_size(experiment, quick=True)}."
    )
    yield f"- The paper's parameters: {experiment.sizes.rstrip('.')}."
    yield f"- What the paper claims: {experiment.claimed.rstrip('.')}."
    yield f"- What holds at a true guarantee: {experiment.holds.rstrip('.')}."
    yield "\n| our claim: it must hold | judged at quick size |\n|---|---|"
    for claim in experiment.ours:
        yield f"| {claim.sentence} | {_answer_quick(claim)} |"
    if experiment.of_paper:
        yield "\n| the paper's claim | where | verdict | figures | judged at quick size |"
        yield "|---|---|---|---|---|"
    for claim in experiment.of_paper:
        yield (
            f"| {claim.sentence} | {claim.place} | {claim.recorded} | {claim.figures or '-'} "
            f"| {_answer_quick(claim)} |"
        )


def _answer_quick(claim: Claim) -> str:
    return "yes" if claim.quick else "no"


def _describe_setting(setting: Setting) -> str:
    """Return the name of a setting, with its players if they are not all."""
    names = ", ".join(f"`{name}`" for name in dict.fromkeys(p.label() for p in setting.players))
    return f"{setting.name} (there {names})" if names else setting.name


def _describe_size(experiment: Experiment, *, quick: bool) -> str:
    size = experiment.size(quick=quick)
    return f"{size.horizon} rounds, {size.replicates} replicates"
