"""What all commands share: how they say that something is wrong, and how they read numbers."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from taut._optional import MissingPackageError, install
from taut._text import say

try:
    import rich  # noqa: F401
    import typer
except ImportError:
    sys.exit(f"the command line needs typer and rich: {install('cli')}")

__all__ = ["numbers", "said", "typer"]


@contextmanager
def said(command: str, *extras: str) -> Iterator[None]:
    """Say what is wrong in a line and leave with code 2; a reader who stops reading is no error.

    If a package is missing, all extras that the command may need are named: one installation will
    do.
    """
    try:
        yield
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(0) from None
    except KeyboardInterrupt as stop:  # what was done is kept, as every command sees to
        say(f"taut {command}: {str(stop) or 'stopped'}", file=sys.stderr)
        raise typer.Exit(130) from None
    except MissingPackageError as error:
        wanted = () if error.packages else ("cli", *extras, *error.extras)
        mend = install(*wanted, packages=error.packages)
        say(f"taut {command}: {error.what}: {mend}", file=sys.stderr)
        raise typer.Exit(2) from None
    except (ValueError, TypeError, OSError, ImportError, RuntimeError) as error:
        for line in f"taut {command}: {error}".split("\n"):
            say(line, file=sys.stderr)
        raise typer.Exit(2) from None


def numbers(text: str, what: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise ValueError(f"--{what} must be numbers with commas between, got {text!r}") from None
