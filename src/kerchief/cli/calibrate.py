"""`kerchief calibrate`: the noise that a guarantee needs, and that of alternatives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from kerchief.cli import options
from kerchief.cli.printing import complain, print_json, print_table, print_wrapped
from kerchief.planning.alternatives import Alternative, View
from kerchief.planning.calibrate import CalibratedNoise, ExactNoise, worlds
from kerchief.planning.calibrate import calibrate as find
from kerchief.privacy.guarantee import delta_warnings


@click.command()
@options.epsilon
@options.delta
@click.option(
    "--trust",
    default="local",
    show_default=True,
    metavar=options.PRIVATE_TRUSTS,
    help="Trust model: noise on each report, shuffled batch, running total or batch total.",
)
@click.option(
    "--env",
    metavar=options.words(worlds()),
    help="Environment that bounds contexts and rewards.  [default: linear]",
)
@options.dim
@options.radius
@options.horizon
@click.option(
    "--sensitivity",
    type=float,
    help="Sensitivity of the statistic to one user.  [default: exact, for LinUCB's (x xᵀ, y x)]",
)
@click.option(
    "--local-epsilon",
    "local",
    type=float,
    help="Epsilon of one report by itself, under shuffle trust; reports are then bits.",
)
@options.json_output
def calibrate(*, delta: float, horizon: int, as_json: bool, **settings: Any) -> None:
    """Show the noise that a privacy guarantee needs.

    Also shows the noise of other protocols and accountants for the same guarantee.
    """
    arguments = {name: value for name, value in settings.items() if value is not None}
    noise = find(delta=delta, horizon=horizon, **arguments)
    for warning in delta_warnings(delta, horizon):
        complain("warning", warning)
    if noise.twin.refused is not None:
        complain("warning", f"this noise cannot be deployed: {noise.twin.refused}")
    if as_json:
        print_json(noise.to_dict())
        return
    print_table(("the noise", ""), _describe_noise(noise), columns="lr")
    same = "the same promise" if noise.alone is None else "one report's promise"
    headings = (f"{same} by", "std", "factor", "")
    print_table(
        headings,
        [_format_alternative(alternative) for alternative in noise.alternatives],
        columns="lrrl",
    )
    if noise.views:
        headings = ("promised to who sees", "a: a report", "b: the sums", "c: the models")
        print_table(headings, [_format_view(view) for view in noise.views], columns="lrrr")
    if noise.alone is not None:
        print_wrapped(f"one report, on its way to the shuffler: {noise.alone.sentence()}")
    print_wrapped(noise.kept.sentence())


def _describe_noise(noise: CalibratedNoise) -> list[tuple[str, str]]:
    multipliers = {
        "noise multiplier (std / sensitivity)": noise.noise_multiplier,
        "noise multiplier of a Gaussian": noise.gaussian_noise_multiplier,
    }
    multiplier_rows = [
        (name, f"{multiplier:.6g}")
        for name, multiplier in multipliers.items()
        if multiplier is not None
    ]
    return [
        ("mechanism", f"{noise.word} ({noise.kind})"),
        ("sensitivity (one user replaced)", f"{noise.sensitivity:.6g}"),
        ("coordinates", str(noise.size)),
        *multiplier_rows[:1],
        ("standard deviation on each coordinate", f"{noise.std:.6g}"),
        (f"on the total after {noise.releases} noisy releases", f"{noise.total_std:.6g}"),
        *((f"discrete twin: {name}", text) for name, text in _describe_twin(noise.twin)),
    ]


def _describe_twin(twin: ExactNoise) -> Iterator[tuple[str, str]]:
    if twin.refused is not None:
        yield "standard deviation", "refused"
        return
    if twin.grid_bits is not None:
        yield "grid", f"2**{-twin.grid_bits} = {twin.grid:.4g}"
        yield "scale in steps", str(twin.scale)
    yield "standard deviation", f"{twin.std:.6g}"
    yield "epsilon really spent", f"{twin.epsilon:.6g}"


def _format_alternative(alternative: Alternative) -> tuple[str, str, str, str]:
    if alternative.std is None or alternative.factor is None:
        return alternative.name, "-", "refused", alternative.note
    name = f"{alternative.name} (used)" if alternative.used else alternative.name
    return name, f"{alternative.std:.5g}", f"{alternative.factor:.2f}x", alternative.note


def _format_view(view: View) -> tuple[str, str, str, str]:
    wire = "no promise" if view.wire is None else f"{view.wire:.4g}"
    return view.name, wire, f"{view.sums:.4g}", f"{view.models:.4g}"
