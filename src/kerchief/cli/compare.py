"""`kerchief compare`: what privacy costs a bandit."""

from __future__ import annotations

import itertools
from typing import Any

import click
from click.core import ParameterSource

from kerchief.cli import options
from kerchief.cli.config import config
from kerchief.cli.data import NAMES, check_without, of_data, world_of
from kerchief.cli.device import use_device
from kerchief.cli.options import words
from kerchief.cli.playing import Playing, perform, playing_options, print_promises
from kerchief.cli.plugins import plugin_option
from kerchief.cli.printing import print_json, print_table, print_wrapped
from kerchief.comparison.comparison import Comparison
from kerchief.comparison.results import headings_of
from kerchief.environments.contexts import CONTEXTS
from kerchief.environments.worlds import NOISES
from kerchief.privacy.guarantee import Trust
from kerchief.privatizers.registry import CONTINUALS, CURATORS, RANDOMIZERS, SHUFFLES
from kerchief.reports.outputs import Outputs


@click.command()
@config
@of_data
@options.env
@options.option("--contexts", "Where arms come from.", metavar=words(CONTEXTS))
@options.dim
@options.of_world("--arms", type=int, help="The most arms in a round.")
@click.option(
    "--fewest-arms", "fewest", type=int, help="The fewest arms in a round.  [default: all]"
)
@options.radius
@options.of_world(
    "--reward-noise", "noise", metavar=words(NOISES), help="How rewards fall around their mean."
)
@options.pairs(
    "--option",
    "options",
    help="A further option of the world, such as clients=5000, gap=0.1 or growth=1.6.",
)
@click.option(
    "--project",
    type=int,
    help="Project features onto so many numbers first: for more than some 64 dimensions.",
)
@options.horizon
@options.option("--policy", "A bandit's own name, or `best`.", field="policies", metavar="NAME")
@click.option(
    "--trust",
    "trusts",
    multiple=True,
    callback=lambda context, parameter, values: values or None,
    metavar=words(Trust),
    help="Whom users must trust. Repeatable.  [default: all that the policy supports]",
)
@options.of_policy(
    "--continual",
    "Noise on running totals, for rows of joint trust.",
    metavar=words(CONTINUALS),
    own="best; tree for glm@paper, glm@author-code",
)
@options.of_policy(
    "--shuffling",
    "What devices add to reports, for rows of shuffle trust.",
    metavar=words(SHUFFLES),
    own="best; bit for sblb@paper, sblb-fixed@paper",
)
@options.of_policy(
    "--randomizer",
    "What devices do to their reports, for rows of local trust.",
    metavar=words(RANDOMIZERS),
    own="best; gaussian for papers' own versions",
)
@options.of_policy(
    "--curator",
    "What a curator adds to the totals of batches, for rows of central trust.",
    metavar=words(CURATORS),
    own="best; gaussian for dpe@paper, pe@paper",
)
@options.pairs("--number", "numbers", help="A parameter of the policies, such as exploration=0.5.")
@options.option("--epsilon", "Privacy asked for.", field="epsilons", type=float)
@options.delta
@options.option("--replicates", "Independent runs.")
@options.seed
@options.option("--mode", "Widths, tuned or from the theorem.", metavar="tuned|theory")
@plugin_option
@playing_options(pictures=True)
def compare(*, playing: Playing, **settings: Any) -> None:
    """Play policies x trusts x epsilons, and show what privacy costs.

    With --data FILE, --features and --label (or --rewards) they play on data of your own; with
    --action, --reward and --propensity in place of labels they replay logs of your own. Uniform
    play, greedy play and each policy's non-private parent always play along, and on data the best
    single arm. The folder gets a picture, a report and the results. What is finished is kept: after
    an interrupt (Ctrl-C, or worse) the same command continues, and a finished run is shown again
    without being played.
    """
    # A plan is made of arrays, and arrays live on the device.
    use_device(playing.device)
    data = {name: settings.pop(name) for name in NAMES}
    if data["data"] is None:
        check_without(data)
        plan = Comparison(**settings)
    else:
        plan = _compare_on_data(data, settings)
    contexts = "--contexts, " if "contexts" in plan.parameters() else ""
    narrow = f"{contexts}--trust, --epsilon, --horizon or --replicates"
    (document,) = perform([plan], _print_results, playing, narrow=narrow)
    if playing.as_json:
        print_json(document)


def _compare_on_data(data: dict[str, Any], settings: dict[str, Any]) -> Comparison:
    """Build a comparison on data, with one round per user unless `--horizon` is given."""
    source = click.get_current_context().get_parameter_source("horizon")
    if source is ParameterSource.DEFAULT:
        settings = settings | {"horizon": None}
    return Comparison.on(world_of(data), **settings)


def _print_results(outputs: Outputs) -> None:
    """Print tables, guarantees and files."""
    for world, group in itertools.groupby(outputs.finished, key=lambda row: row.world):
        rows = list(group)
        rewarded = outputs.plan.rewarded
        headings = headings_of(rows, rewarded=rewarded)
        caption = outputs.plan.caption(world)
        texts = [row.texts(rewarded=rewarded) for row in rows]
        columns = ("llrRrrr" if rewarded else "llrRrr").ljust(len(headings), "R")
        print_table(headings, texts, title=caption, columns=columns)
    if outputs.plan.note():
        print_wrapped(outputs.plan.note())
    print_promises(outputs)
