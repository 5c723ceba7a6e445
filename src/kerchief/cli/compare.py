"""`kerchief compare`: the regret of policies under each trust model and epsilon."""

from __future__ import annotations

import itertools
from typing import Any

import click
from click.core import ParameterSource

from kerchief.cli import options
from kerchief.cli.config import config
from kerchief.cli.data import NAMES, check_without, environment_of, of_data
from kerchief.cli.device import use_device
from kerchief.cli.global_options import with_plugins
from kerchief.cli.options import words
from kerchief.cli.playing import Playing, perform, playing_options, print_promises
from kerchief.cli.printing import print_json, print_table, print_wrapped
from kerchief.comparison.comparison import Comparison
from kerchief.comparison.results import headings_of
from kerchief.environments.contexts import CONTEXTS
from kerchief.privacy.guarantee import Trust
from kerchief.reports.outputs import Outputs


@click.command()
@config
@of_data
@options.env
@options.option("--contexts", "Source of contexts.", metavar=words(CONTEXTS))
@options.dim
@options.of_environment("--arms", type=int, help="Largest number of arms in a round.")
@options.radius
@options.env_param
@options.horizon
@options.option("--policy", "Policy by name, or `best`.", field="policies", metavar="NAME")
@click.option(
    "--trust",
    "trusts",
    multiple=True,
    callback=lambda context, parameter, values: values or None,
    metavar=words(Trust),
    help="Trust model. Repeatable.  [default: all that the policy supports]",
)
@options.mechanism
@options.pairs("--param", "numbers", help="Parameter of the policies, such as exploration=0.5.")
@options.option("--epsilon", "Privacy budget epsilon.", field="epsilons", type=float)
@options.delta
@options.option("--replicates", "Number of independent runs.")
@options.seed
@options.option("--mode", "Confidence widths: tuned, or from the theorem.", metavar="tuned|theory")
@with_plugins
@playing_options(pictures=True)
def compare(*, playing: Playing, **settings: Any) -> None:
    """Compare policies, trust models and epsilons, and show what privacy costs.

    With --data FILE, --features and --label (or --declare rewards=COLUMNS) the policies run on your
    own data. With --declare action=, reward= and propensity= they replay your own logs. Uniform
    play, greedy play and the non-private counterpart of each policy always run too, and on data the
    best single arm. The folder gets a picture, a report and the results. Finished runs are kept:
    run the same command to continue after an interrupt, or to show a finished comparison again.
    """
    # A plan is made of arrays, and arrays live on the device.
    use_device(playing.device)
    data = {name: settings.pop(name) for name in NAMES}
    settings |= options.choose_mechanisms(settings.pop("mechanisms"), settings["trusts"])
    settings |= _split_projection(settings.pop("options"))
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


def _split_projection(parameters: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    """Return the environment's own parameters, and the number of features to project to."""
    own = tuple(pair for pair in parameters if pair[0] != "project")
    return {"options": own, "project": dict(parameters).get("project")}


def _compare_on_data(data: dict[str, Any], settings: dict[str, Any]) -> Comparison:
    """Build a comparison on data, with one round per user unless `--horizon` is given."""
    source = click.get_current_context().get_parameter_source("horizon")
    if source is ParameterSource.DEFAULT:
        settings = settings | {"horizon": None}
    return Comparison.on(environment_of(data), **settings)


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
