"""How every command reports what is wrong: one line, and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from taut._base.optional import MissingPackageError, install
from taut._base.terminal_text import say

try:
    import rich  # noqa: F401
    import typer
except ImportError:
    sys.exit(f"the command line needs typer and rich: {install('cli')}")

__all__ = ["explained", "typer"]


@contextmanager
def explained(command: str, *extras: str) -> Iterator[None]:
    """Report an error in one line and exit with code 2; a closed pipe is not an error.

    If a package is missing, the line names every extra that the command may need, so that one
    installation is enough.
    """
    try:
        yield
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(0) from None
    except KeyboardInterrupt as stop:  # every command keeps what it has done
        say(f"taut {command}: {str(stop) or 'stopped'}", file=sys.stderr)
        raise typer.Exit(130) from None
    except MissingPackageError as error:
        wanted = () if error.packages else ("cli", *extras, *error.extras)
        mend = install(*wanted, packages=error.packages)
        say(f"taut {command}: {error.what}: {mend}", file=sys.stderr)
        raise typer.Exit(2) from None
    except (ValueError, TypeError, OSError, ImportError, RuntimeError, MemoryError) as error:
        why = str(error) or ("out of memory" if isinstance(error, MemoryError) else repr(error))
        for line in f"taut {command}: {why}".split("\n"):
            say(line, file=sys.stderr)
        raise typer.Exit(2) from None
