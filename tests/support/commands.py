"""The subcommands of the command line, loaded: the group itself loads each one when it is asked for."""

from __future__ import annotations

import click

__all__ = ["subcommands"]


def subcommands(group: click.Group) -> dict[str, click.Command]:
    """The commands of a group by their names."""
    context = click.Context(group)
    found = {name: group.get_command(context, name) for name in group.list_commands(context)}
    return {name: command for name, command in found.items() if command is not None}
