"""Options of a command from a TOML file."""

from __future__ import annotations

import sys
from pathlib import Path

from taut._base.terminal_text import printable
from taut.cli.errors import typer


def read_config(context: typer.Context, file: Path | None) -> Path | None:
    """Take the options in a file as defaults; options that are typed come first."""
    if file is None:
        return None
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        read = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise typer.BadParameter(printable(f"cannot read {file}: {error.strerror}")) from None
    except ValueError as error:
        raise typer.BadParameter(printable(f"{file} is not valid TOML: {error}")) from None
    known = {parameter.name for parameter in context.command.params} - {"config"}
    given = {key.replace("-", "_"): value for key, value in read.items()}
    for key in ("p", "epsilons"):
        if isinstance(given.get(key), list):
            given[key] = ",".join(map(str, given[key]))
    repeated = {each.name for each in context.command.params if getattr(each, "multiple", False)}
    for key in repeated & set(given):  # data = "lines.txt" is one of several
        if not isinstance(given[key], list):
            given[key] = [given[key]]
    if unknown := sorted(set(given) - known):
        raise typer.BadParameter(printable(f"{file} has unknown options: {', '.join(unknown)}"))
    context.default_map = given
    return file
