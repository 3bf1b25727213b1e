"""Work in threads that are kept: all of it is done, errors are raised, forks do no harm."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import pytest

from taut._base import threads
from taut._base.threads import in_threads


def helpers():
    return [thread for thread in threading.enumerate() if thread.name.startswith("taut-")]


def test_every_share_is_done_once():
    done = []
    in_threads(done.append, list(range(100)))
    assert sorted(done) == list(range(100))


def test_several_threads_work_at_once():
    met = threading.Barrier(3, timeout=30)
    in_threads(lambda share: met.wait(), [0, 1, 2])


def test_threads_are_kept():
    in_threads(lambda share: time.sleep(0.001), [0, 1, 2])
    before = len(helpers())
    for _ in range(5):
        in_threads(lambda share: time.sleep(0.001), [0, 1, 2])
    assert len(helpers()) == before >= 2


@pytest.mark.parametrize("bad", [0, 1, 2])
def test_an_error_in_any_share_is_raised_after_all_are_done(bad):
    done = []

    def work(share):
        if share == bad:
            raise ZeroDivisionError(share)
        time.sleep(0.01)
        done.append(share)

    with pytest.raises(ZeroDivisionError):
        in_threads(work, [0, 1, 2])
    assert sorted(done) == sorted({0, 1, 2} - {bad})


def test_calls_from_many_threads_and_from_inside():
    done = []

    def inner(share):
        in_threads(done.append, [(share, i) for i in range(4)])

    callers = [
        threading.Thread(target=in_threads, args=(inner, [(n, k) for k in range(3)]))
        for n in range(6)
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(timeout=60)
    assert len(set(done)) == len(done) == 6 * 3 * 4


FORK = """
import os, time
from taut._base.threads import in_threads

in_threads(time.sleep, [0.0, 0.0, 0.0])  # helpers that the child will not have
child = os.fork()
done = []
in_threads(done.append, list(range(8)))
assert sorted(done) == list(range(8))
if child:
    assert os.waitpid(child, 0) == (child, 0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_after_a_fork():
    # In a process of its own: other libraries have threads here, and warn of forks.
    options = ["-W", "ignore::DeprecationWarning", "-c", FORK]
    subprocess.run([sys.executable, *options], check=True, timeout=300)


def test_helpers_that_never_come_are_not_waited_for(monkeypatch):
    monkeypatch.setattr(threads._Helpers, "call", lambda self, job, wanted: None)
    done = []
    in_threads(done.append, [1, 2, 3])
    assert done == [1, 2, 3]
