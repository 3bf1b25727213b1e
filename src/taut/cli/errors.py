"""How every command reports what is wrong: one line, and an exit code."""

from __future__ import annotations

import os
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
        for line in _own_frames(error):
            say(line, file=sys.stderr)
        why = str(error) or ("out of memory" if isinstance(error, MemoryError) else repr(error))
        for line in f"taut {command}: {why}".split("\n"):
            say(line, file=sys.stderr)
        raise typer.Exit(2) from None


def _own_frames(error: BaseException) -> list[str]:
    """Where the user's own code failed, as Python shows it; nothing if none of it was running.

    Whoever gives module:function needs the line to mend; frames of taut would not help.
    """
    frames = traceback.extract_tb(error.__traceback__)
    own = [number for number, frame in enumerate(frames) if _is_own(frame.filename)]
    if not own:
        return []
    shown = traceback.format_list(frames[own[0] :])
    return ["Traceback of your code:", *(line for each in shown for line in each.splitlines())]


def _is_own(file: str) -> bool:
    if file.startswith("<"):
        return False
    path = Path(file).resolve()
    library = (Path(sysconfig.get_path("stdlib")), Path(__file__).resolve().parents[1])
    installed = {"site-packages", "dist-packages"} & set(path.parts)
    return not installed and not any(path.is_relative_to(each) for each in library)
