"""`kerchief calibrate`: the noise that a guarantee needs, and what others would have cost."""

from __future__ import annotations

import click

from kerchief.cli import options
from kerchief.cli.printing import complain, print_json, print_table
from kerchief.core.links import LINKS
from kerchief.experiments.calibrate import Alternative, Noise
from kerchief.experiments.calibrate import calibrate as find
from kerchief.privacy import Trust
from kerchief.privacy.guarantee import delta_warnings

__all__ = ["calibrate"]


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
    "link",
    default="linear",
    show_default=True,
    metavar="|".join(LINKS),
    help="How a score becomes an expected reward.",
)
@click.option("--dim", default=5, show_default=True, help="Length of an arm's feature vector.")
@click.option("--radius", default=1.0, show_default=True, help="Norm of the unknown parameter.")
@options.horizon
@click.option(
    "--sensitivity",
    type=float,
    help="How far one user can move the statistic.  [default: exact, for LinUCB's (x xᵀ, y x)]",
)
@options.json_output
def calibrate(
    *,
    epsilon: float,
    delta: float,
    trust: str,
    link: str,
    dim: int,
    radius: float,
    horizon: int,
    sensitivity: float | None,
    as_json: bool,
) -> None:
    """Show the noise that a guarantee needs.

    Also what other ways to keep the same promise would have cost.
    """
    noise = find(
        epsilon=epsilon,
        delta=delta,
        trust=trust,
        link=link,
        dim=dim,
        radius=radius,
        horizon=horizon,
        sensitivity=sensitivity,
    )
    for warning in delta_warnings(delta, horizon):
        complain("warning", warning)
    if as_json:
        print_json(noise.to_dict())
        return
    print_table(("the noise", ""), _facts(noise), columns="lr")
    rows = [_texts(one) for one in noise.alternatives]
    way = "all prefixes at once" if noise.guarantee.trust is Trust.JOINT else "one joint release"
    kind = "coins" if noise.guarantee.trust is Trust.SHUFFLE else "exact Gaussian"
    used = "" if noise.guarantee.trust is Trust.LOCAL else " (used)"
    first = (f"{kind}{used}", f"{noise.std:.5g}", "1.00x", way)
    headings = ("the same promise by", "std", "factor", "")
    print_table(headings, [first, *rows], columns="lrrl")
    click.echo(noise.guarantee.sentence())


def _facts(noise: Noise) -> list[tuple[str, str]]:
    twin = noise.twin
    return [
        ("sensitivity (one user replaced)", f"{noise.sensitivity:.6g}"),
        ("coordinates", str(noise.size)),
        ("noise multiplier (std / sensitivity)", f"{noise.noise_multiplier:.6g}"),
        ("standard deviation on each coordinate", f"{noise.std:.6g}"),
        (f"on the total after {noise.releases} noisy releases", f"{noise.total_std:.6g}"),
        ("discrete twin: grid", f"2**{-twin.grid_bits} = {twin.grid:.4g}"),
        ("discrete twin: scale in grid steps", f"{twin.std / twin.grid:.0f}"),
        ("discrete twin: standard deviation", f"{noise.twin_std:.6g}"),
        ("discrete twin: epsilon really spent", f"{noise.twin_epsilon:.6g}"),
    ]


def _texts(one: Alternative) -> tuple[str, str, str, str]:
    if one.std is None or one.factor is None:
        return one.name, "-", "refused", one.note
    return one.name, f"{one.std:.5g}", f"{one.factor:.2f}x", one.note
