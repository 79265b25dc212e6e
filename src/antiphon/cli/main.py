"""The `antiphon` command: its subcommands, and one way for all of them to say what is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final

import click

from antiphon import __version__
from antiphon.errors import AntiphonError

__all__ = ["cli", "main"]


_COMMANDS: Final[Sequence[str]] = (
    "serve",
    "chat",
    "ask",
    "models",
    "doctor",
    "corpus",
    "keys",
    "tenants",
    "prompts",
    "db",
    "deploy",
)
"""The subcommands: each is the command of its name in the module of its name, loaded when it is asked for."""


class _Refused(click.ClickException):
    """A setting, a model or a store that cannot be used: one line on stderr, exit code 2."""

    exit_code = 2


class _Group(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        """Called by click to list the subcommands."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Called by click to find a subcommand; the others are not loaded: a server would start later for them."""
        if cmd_name not in _COMMANDS:
            return None
        found: click.Command = getattr(import_module(f"antiphon.cli.{cmd_name}"), cmd_name)
        return found

    def invoke(self, ctx: click.Context) -> Any:
        """Called by click to run the chosen subcommand."""
        try:
            return super().invoke(ctx)
        except AntiphonError as error:
            # Not only ConfigurationError: a store that is busy refuses a start in the words that a client would get.
            raise _Refused(str(error)) from None


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, "-V", "--version", message="%(prog)s %(version)s")
def cli() -> None:
    """A self-hosted server for the OpenAI Responses API, over any model.

    \b
    First steps:
      antiphon models pull smollm2       fetch the small default model (93 MB)
      antiphon serve                     serve it on http://127.0.0.1:8080/v1
      antiphon chat "What is a canon?"   talk to it from a terminal

    \b
    Then, with a model of your own:
      antiphon serve --model ~/models/qwen.gguf --alias gpt-5=qwen

    Every setting is a flag, an environment variable ANTIPHON_<NAME> and a key of the file given by --config; flags win
    over the environment, and the environment over the file.
    """  # noqa: D301 - the escape is click's mark for lines to keep


def main() -> None:
    """Run the command line."""
    cli(prog_name="antiphon")
