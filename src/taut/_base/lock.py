"""One writer at a time: a file lock that the system releases when its holder ends."""

from __future__ import annotations

import errno
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from taut._base.terminal_text import say

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

# What file systems without locks answer, as those of some clusters do.
_NONE = (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK)

# A link in its place is not followed: what it points to would be overwritten.
_OPEN = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


class InUseError(ValueError):
    """Another process holds the lock."""


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Hold the lock of a file, which lies beside it; the error says which process has it."""
    place = file.with_suffix(".lock")
    held = _held(place)
    try:
        yield
    finally:
        if held is not None:
            _let_go(held, place)


def _held(place: Path) -> int | None:
    while True:
        try:
            lock = os.open(place, _OPEN, 0o666)
        except OSError as error:
            raise OSError(f"cannot write {place}: {error.strerror}") from None
        try:
            _take(lock)
        except OSError as error:
            who = os.pread(lock, 200, 0).decode(errors="replace") if hasattr(os, "pread") else ""
            os.close(lock)
            if error.errno in _NONE:
                say(f"taut: {place.parent} has no file locks: do not run the same command twice "
                    "at once there", file=sys.stderr)  # fmt: skip
                place.unlink(missing_ok=True)
                return None
            raise InUseError(
                f"another process{who and f' ({who})'} works on {place.with_suffix('.json')}: "
                "wait until it is done, or give another folder"
            ) from None
        try:  # the holder before may have removed the file that was opened here
            same = os.path.samestat(os.fstat(lock), os.stat(place))
        except FileNotFoundError:
            same = False
        if same:
            with suppress(OSError):  # a full disk: others are kept out all the same
                os.truncate(lock, 0)
                os.write(lock, f"process {os.getpid()} on {socket.gethostname()}".encode())
            return lock
        os.close(lock)


def _take(lock: int) -> None:
    if sys.platform == "win32":
        msvcrt.locking(lock, msvcrt.LK_NBLCK, 1)
    else:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _let_go(lock: int, place: Path) -> None:
    if sys.platform == "win32":
        os.close(lock)
        place.unlink(missing_ok=True)
    else:  # removed while it is held: nobody else takes this file any more
        place.unlink(missing_ok=True)
        os.close(lock)
