"""How commands show their help: plain names for values, whole paragraphs, and examples."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args, get_type_hints

from typer.core import TyperCommand, TyperGroup

_WORDS = {bool: "", int: "N", float: "NUMBER", str: "TEXT", Path: "PATH"}  # a flag has no value


class Command(TyperCommand):
    """A command whose help names values in words, and does not break its paragraphs."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        if options.get("help"):
            options["help"] = in_paragraphs(options["help"])
        super().__init__(*arguments, **options)
        _name_values(self.params, options.get("callback"))

    def get_help_option(self, ctx: Any) -> Any:
        """The option ``-h``, which takes no value."""
        return _plain(super().get_help_option(ctx))


class CommandGroup(TyperGroup):
    """A group of commands, whose own help is like that of its commands."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        _name_values(self.params, options.get("callback"))

    def get_help_option(self, ctx: Any) -> Any:
        """The option ``-h``, which takes no value."""
        return _plain(super().get_help_option(ctx))


def _plain(option: Any) -> Any:
    if option is not None:
        option.metavar, option.help = "", "Show this help."
    return option


def _name_values(parameters: Sequence[Any], function: Any) -> None:
    """Give a word to every value that has none, by the type in the function's signature."""
    hints = {} if function is None else get_type_hints(inspect.unwrap(function))
    for each in parameters:
        if each.param_type_name == "argument":
            each.metavar = each.metavar or str(each.name).upper()
            each.display_type_rich = _nothing  # its name says it; a type beside it says less
        elif each.metavar is None:
            each.metavar = _word(hints.get(str(each.name)))


def _nothing(*_arguments: Any, **_options: Any) -> None:
    return None


def _word(kind: Any) -> str:
    """A word for the values of a type; ``int | None`` and ``list[int]`` have that of ``int``."""
    if kind in _WORDS:
        return _WORDS[kind]
    inside = [each for each in get_args(kind) if each is not type(None)]
    return _word(inside[0]) if inside else "TEXT"


def in_paragraphs(text: str) -> str:
    """Text without the line breaks of its source, except between paragraphs."""
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def examples(*commands: str) -> str:
    """The last part of a command's help: commands that somebody would type."""
    return "\n\n".join(["Examples:", *commands])
