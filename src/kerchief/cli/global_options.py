"""Options of `kerchief` itself, which come before the name of a command."""

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
    help="Python file that registers your own policies, environments, mechanisms or experiments. "
    "Repeatable.",
)
device_option = click.option(
    "--device",
    default="auto",
    show_default=True,
    metavar="cpu|gpu|auto",
    help="Device that computes simulations.",
)


def chosen_device() -> str:
    """Return the device that the command line chose."""
    return str(_root_parameters().get("device", "auto"))


def chosen_plugins() -> tuple[str, ...]:
    """Return the plugin files that the command line named."""
    return tuple(_root_parameters().get("plugins", ()))


def _root_parameters() -> dict[str, Any]:
    """Return the options before the name of the command."""
    return click.get_current_context().find_root().params


def with_plugins(command: Callable[..., Any]) -> Callable[..., Any]:
    """Load all plugins before a command runs."""

    @functools.wraps(command)
    def load_and_call(**options: Any) -> Any:
        load(chosen_plugins(), device=chosen_device())
        return command(**options)

    return load_and_call


def load(paths: Sequence[str], *, device: str | None = None) -> bool:
    """Load installed and given plugins, and return whether there are any."""
    # As `comparison.plugins.GROUP`; a listing without plugins imports nothing of it.
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
