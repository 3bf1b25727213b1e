"""Files and folders that are written whole or not at all: a reader never meets half of one."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# Parts have names that nobody can guess, so that no two writers share one and no link waits there.
_PART = re.compile(r"\.taut-[0-9a-f]{16}\.part")
_STALE = 86400.0  # seconds after which a part was left behind by a process that was killed
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL
_NEW |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


def write_whole(content: str | bytes, file: Path) -> None:
    """Write a file through another one beside it.

    A file that is there keeps its permissions; a new one gets the usual ones (umask). A symbolic
    link in its place is replaced by the file, and what it points to is left alone. Devices, pipes
    and folders are refused.
    """
    if isinstance(content, str):
        content = content.encode("utf-8", "backslashreplace")  # of lone surrogates in file names
    part = _part(file)
    try:
        _refuse_special(file)
        _sweep(file.parent)
        with open(os.open(part, _NEW, 0o666), "wb") as stream:
            if file.is_file() and not file.is_symlink():
                part.chmod(stat.S_IMODE(file.stat().st_mode) & 0o777)
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(part, file)
    except BaseException as error:  # Ctrl-C leaves no half file either
        with suppress(OSError):
            part.unlink()
        if isinstance(error, OSError):
            raise OSError(f"cannot write {file}: {error.strerror or error}") from error
        raise


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A folder to write into, which takes the place of ``folder`` once all of it is there."""
    part = _part(folder)
    _sweep(folder.parent)
    part.mkdir()
    try:
        yield part
        if folder.is_symlink():
            folder.unlink()
        else:
            shutil.rmtree(folder, ignore_errors=True)
        part.rename(folder)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


def _part(file: Path) -> Path:
    return file.with_name(f".taut-{secrets.token_hex(8)}.part")


def _refuse_special(file: Path) -> None:
    """Replacing /dev/null or /dev/stdout would take it from everybody else."""
    if (file.exists() and not file.is_file()) or file.parent.resolve() == Path("/dev"):
        raise OSError("it is not a regular file")


def _sweep(folder: Path) -> None:
    """Remove the parts of processes that were killed."""
    with os.scandir(folder) as entries:
        parts = [entry for entry in entries if _PART.fullmatch(entry.name)]
    for entry in parts:
        with suppress(OSError):  # another process was faster, or it is not ours to remove
            old = time.time() - entry.stat(follow_symlinks=False).st_mtime > _STALE
            if old and entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            elif old:
                os.unlink(entry.path)
