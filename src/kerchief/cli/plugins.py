"""The option `--plugin`, which loads files of users before a command runs."""

from __future__ import annotations

import functools
import importlib.metadata
from collections.abc import Callable, Sequence
from typing import Any

import click

plugin_files = click.option(
    "--plugin",
    "plugins",
    multiple=True,
    metavar="FILE",
    help="A Python file that registers bandits, worlds, noises or experiments of your own. "
    "Repeatable.",
)


def plugin_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option to a command, which runs after all plugins are loaded."""

    @functools.wraps(command)
    def load_and_call(*, plugins: Sequence[str], **options: Any) -> Any:
        load(plugins, device=options.get("device"))
        return command(**options)

    return plugin_files(load_and_call)


def load(paths: Sequence[str], *, device: str | None = None) -> bool:
    """Load installed and given plugins, and return whether there are any."""
    # As `comparison.plugins.GROUP`; a listing without plugins shall import nothing of it.
    if not paths and not importlib.metadata.entry_points(group="kerchief.plugins"):
        return False
    from kerchief.comparison.plugins import Plugin, load_installed

    if device is not None:
        from kerchief.cli.device import use_device

        # A plugin may make arrays, and arrays live on the device.
        use_device(device)
    load_installed()
    for plugin in [Plugin.at(path) for path in dict.fromkeys(paths)]:
        plugin.load()
    return True
