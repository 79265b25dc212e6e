"""The `antiphon` command: its subcommands, and one way for all of them to say what is wrong."""

from __future__ import annotations

from typing import Any

import click

from antiphon import __version__
from antiphon.cli.ask import ask
from antiphon.cli.chat import chat
from antiphon.cli.corpus import corpus
from antiphon.cli.db import db
from antiphon.cli.deploy import deploy
from antiphon.cli.doctor import doctor
from antiphon.cli.keys import keys
from antiphon.cli.models import models
from antiphon.cli.prompts import prompts
from antiphon.cli.serve import serve
from antiphon.cli.tenants import tenants
from antiphon.errors import AntiphonError

__all__ = ["cli", "main"]


class _Refused(click.ClickException):
    """A setting, a model or a store that cannot be used: one line on stderr, exit code 2."""

    exit_code = 2


class _Group(click.Group):
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


cli.add_command(serve)
cli.add_command(chat)
cli.add_command(ask)
cli.add_command(models)
cli.add_command(doctor)
cli.add_command(corpus)
cli.add_command(keys)
cli.add_command(tenants)
cli.add_command(prompts)
cli.add_command(db)
cli.add_command(deploy)


def main() -> None:
    """Run the command line."""
    cli(prog_name="antiphon")
