"""`kerchief calibrate`: the noise that a guarantee needs, and what others would have cost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from kerchief.cli import options
from kerchief.cli.printing import complain, print_json, print_table, print_wrapped
from kerchief.experiments.calibrate import Noise, Twin, worlds
from kerchief.experiments.calibrate import calibrate as find
from kerchief.experiments.ways import Alternative, View
from kerchief.privacy.guarantee import delta_warnings


@click.command()
@options.epsilon
@options.delta
@click.option(
    "--trust",
    default="local",
    show_default=True,
    metavar=options.PRIVATE_TRUSTS,
    help="Noise on each report, on each shuffled batch, on every prefix, or on each batch's sum.",
)
@click.option(
    "--env",
    metavar=options.words(worlds()),
    help="The world that bounds contexts and rewards.  [default: linear]",
)
@options.dim
@options.radius
@options.horizon
@click.option(
    "--sensitivity",
    type=float,
    help="How far one user can move the statistic.  [default: exact, for LinUCB's (x xᵀ, y x)]",
)
@click.option(
    "--local-epsilon",
    "local",
    type=float,
    help="What one report may tell by itself, under shuffle trust: then reports are bits.",
)
@options.json_output
def calibrate(*, delta: float, horizon: int, as_json: bool, **asked: Any) -> None:
    """Show the noise that a guarantee needs.

    Also what other ways to keep the same promise would have cost.
    """
    given = {name: value for name, value in asked.items() if value is not None}
    noise = find(delta=delta, horizon=horizon, **given)
    for warning in delta_warnings(delta, horizon):
        complain("warning", warning)
    if noise.twin.refused is not None:
        complain("warning", f"this noise cannot be deployed: {noise.twin.refused}")
    if as_json:
        print_json(noise.to_dict())
        return
    print_table(("the noise", ""), _facts(noise), columns="lr")
    same = "the same promise" if noise.alone is None else "one report's promise"
    headings = (f"{same} by", "std", "factor", "")
    print_table(headings, [_texts(one) for one in noise.alternatives], columns="lrrl")
    if noise.views:
        headings = ("promised to who sees", "a: a report", "b: the sums", "c: the models")
        print_table(headings, [_seen(one) for one in noise.views], columns="lrrr")
    if noise.alone is not None:
        print_wrapped(f"one report, on its way to the shuffler: {noise.alone.sentence()}")
    print_wrapped(noise.kept.sentence())


def _facts(noise: Noise) -> list[tuple[str, str]]:
    multipliers = {
        "noise multiplier (std / sensitivity)": noise.noise_multiplier,
        "noise multiplier of a Gaussian": noise.gaussian_noise_multiplier,
    }
    known = [(name, f"{one:.6g}") for name, one in multipliers.items() if one is not None]
    return [
        ("mechanism", f"{noise.word} ({noise.kind})"),
        ("sensitivity (one user replaced)", f"{noise.sensitivity:.6g}"),
        ("coordinates", str(noise.size)),
        *known[:1],
        ("standard deviation on each coordinate", f"{noise.std:.6g}"),
        (f"on the total after {noise.releases} noisy releases", f"{noise.total_std:.6g}"),
        *((f"discrete twin: {name}", text) for name, text in _twin(noise.twin)),
    ]


def _twin(twin: Twin) -> Iterator[tuple[str, str]]:
    if twin.refused is not None:
        yield "standard deviation", "refused"
        return
    if twin.grid_bits is not None:
        yield "grid", f"2**{-twin.grid_bits} = {twin.grid:.4g}"
        yield "scale in steps", str(twin.scale)
    yield "standard deviation", f"{twin.std:.6g}"
    yield "epsilon really spent", f"{twin.epsilon:.6g}"


def _texts(one: Alternative) -> tuple[str, str, str, str]:
    if one.std is None or one.factor is None:
        return one.name, "-", "refused", one.note
    name = f"{one.name} (used)" if one.used else one.name
    return name, f"{one.std:.5g}", f"{one.factor:.2f}x", one.note


def _seen(one: View) -> tuple[str, str, str, str]:
    wire = "no promise" if one.wire is None else f"{one.wire:.4g}"
    return one.name, wire, f"{one.sums:.4g}", f"{one.models:.4g}"
