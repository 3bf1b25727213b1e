"""`taut` as a user types it, in this process: a new one takes seconds to import PyTorch."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple


class Done(NamedTuple):
    """What a command said and how it ended, as ``subprocess.run`` tells it."""

    returncode: int
    stdout: str
    stderr: str


@contextmanager
def _inside(folder: Path) -> Iterator[None]:
    """Work in a folder; what is imported from it is forgotten, as other tests have their own."""
    before, path, modules = Path.cwd(), list(sys.path), set(sys.modules)
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
        sys.path[:] = path
        for name in set(sys.modules) - modules:
            file = getattr(sys.modules[name], "__file__", None)
            if file and "site-packages" not in file and Path(file).is_relative_to(folder):
                del sys.modules[name]


def taut(*arguments: object, cwd: Path | None = None, **env: str) -> Done:
    """Run a command in a folder, on a screen of 120 columns."""
    from typer.testing import CliRunner

    from taut.cli.app import app

    with warnings.catch_warnings(), _inside((cwd or Path.cwd()).resolve()):
        warnings.simplefilter("ignore")  # in a process of its own they would only be shown
        done = CliRunner().invoke(app, [str(word) for word in arguments],
                                  env={"COLUMNS": "120", **env})  # fmt: skip
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return Done(done.exit_code, done.stdout, done.stderr)
