"""Files are written whole or not at all, whoever else writes into the same folder."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
import threading
import time

import pytest

from taut._base import files as _files
from taut._base.files import new_folder, write_whole

MANY = """
import sys
from pathlib import Path
from taut._base.files import write_whole
file, mark = Path(sys.argv[1]), sys.argv[2]
for _ in range(60):
    write_whole(mark * 20000, file)
"""


def test_writers_of_one_file_do_not_disturb_each_other(tmp_path):
    file = tmp_path / "record.json"
    running = [
        subprocess.Popen([sys.executable, "-c", MANY, str(file), mark], stderr=subprocess.PIPE)
        for mark in "abc"
    ]
    errors = [process.communicate(timeout=120)[1].decode() for process in running]
    assert [process.returncode for process in running] == [0, 0, 0], errors
    assert file.read_text() in {mark * 20000 for mark in "abc"}
    assert os.listdir(tmp_path) == ["record.json"]


def test_threads_too(tmp_path):
    file, wrong = tmp_path / "a", []

    def write(mark):
        try:
            for _ in range(40):
                write_whole(mark * 9000, file)
        except OSError as error:
            wrong.append(error)

    threads = [threading.Thread(target=write, args=(mark,)) for mark in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert file.read_text() in ("a" * 9000, "b" * 9000)


def test_a_link_in_the_place_of_the_part_is_not_followed(tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (tmp_path / "record.json.part").symlink_to(precious)
    write_whole("new", tmp_path / "record.json")
    assert precious.read_text() == "mine"
    assert (tmp_path / "record.json").read_text() == "new"
    assert not (tmp_path / "record.json").is_symlink()


def test_a_link_in_the_place_of_the_file_is_replaced(tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("mine")
    for name, place in (("a", precious), ("b", tmp_path / "nowhere")):
        (tmp_path / name).symlink_to(place)
        write_whole("new", tmp_path / name)
        assert not (tmp_path / name).is_symlink()
        assert (tmp_path / name).read_text() == "new"
    assert precious.read_text() == "mine"
    assert not (tmp_path / "nowhere").exists()


def test_what_is_no_file_is_left_alone(tmp_path):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    for name in ("folder", "pipe", "link"):
        with pytest.raises(OSError, match=f"cannot write .*{name}: it is not a regular file"):
            write_whole("new", tmp_path / name)
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    with pytest.raises(OSError, match="cannot write /dev/null"):
        write_whole("new", _files.Path("/dev/null"))
    with pytest.raises(OSError, match=r"cannot write .*: No such file"):
        write_whole("new", tmp_path / "none" / "a")
    write_whole("a file", tmp_path / "a")
    with pytest.raises(OSError, match=r"cannot write .*: Not a directory"):
        write_whole("new", tmp_path / "a" / "b")


def test_permissions_are_the_usual_ones_or_those_that_were(tmp_path):
    before = os.umask(0o027)
    try:
        write_whole("new", tmp_path / "a")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640
    (tmp_path / "a").chmod(0o600)
    write_whole("newer", tmp_path / "a")
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o600


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_an_end_in_the_middle_leaves_what_was_there(tmp_path, monkeypatch, error):
    write_whole("old", tmp_path / "a")

    def stop(*_):
        raise error

    monkeypatch.setattr(os, "fsync", stop)
    expected = KeyboardInterrupt if error is KeyboardInterrupt else OSError
    with pytest.raises(expected):
        write_whole("new", tmp_path / "a")

    def half():
        with new_folder(tmp_path / "b") as part:
            (part / "x").write_text("half")
            stop()

    with pytest.raises(expected):
        half()
    assert os.listdir(tmp_path) == ["a"]
    assert (tmp_path / "a").read_text() == "old"


def test_parts_of_killed_processes_go_after_a_day(tmp_path):
    killed = """
import os, signal, sys
from pathlib import Path
from taut._base.files import new_folder, write_whole
os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[2] == "file":
    write_whole("new", Path(sys.argv[1]) / "record.json")
with new_folder(Path(sys.argv[1]) / "weights") as part:
    (part / "x").write_text("half")
    os.fsync(0)
"""
    for kind in ("file", "folder"):
        subprocess.run([sys.executable, "-c", killed, str(tmp_path), kind], timeout=60)
    left = sorted(tmp_path.iterdir())
    assert len(left) == 2
    assert not list(tmp_path.glob("*.json"))  # no record, by its name
    write_whole("new", tmp_path / "a")
    assert len(list(tmp_path.iterdir())) == 3  # they may be somebody's who is writing now
    old = time.time() - 2 * 86400
    for part in left:
        os.utime(part, (old, old))
    (tmp_path / "notes.part").write_text("not ours")
    os.utime(tmp_path / "notes.part", (old, old))
    write_whole("new", tmp_path / "a")
    assert sorted(os.listdir(tmp_path)) == ["a", "notes.part"]


def test_bytes_long_names_and_odd_text(tmp_path):
    write_whole(b"\x00\xff", tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == b"\x00\xff"
    write_whole("x", tmp_path / ("n" * 255))
    write_whole("a name that is no UTF-8: \udc80\n", tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == b"a name that is no UTF-8: \\udc80\n"


def test_a_folder_is_whole_or_not_there(tmp_path):
    for text in ("one", "two"):
        with new_folder(tmp_path / "weights") as part:
            assert part.parent == tmp_path
            (part / "x").write_text(text)
        assert (tmp_path / "weights" / "x").read_text() == text
    (tmp_path / "link").symlink_to(tmp_path / "weights", target_is_directory=True)
    with new_folder(tmp_path / "link") as part:
        (part / "x").write_text("three")
    assert not (tmp_path / "link").is_symlink()
    assert (tmp_path / "weights" / "x").read_text() == "two"


def test_nothing_else_in_the_package_writes_files():
    """But for a log, which grows line by line, and what goes into a temporary folder."""
    ways = (
        r"write_text\(|write_bytes\(|open\([^)]*[\"'][wxa]b?[\"']"
        r"|os\.replace|torch\.save\((?!tensor)|np\.save"
    )
    source = _files.Path(_files.__file__).parents[1]
    found = {
        str(file.relative_to(source))
        for file in source.rglob("*.py")
        for line in file.read_text(encoding="utf-8").splitlines()
        if re.search(ways, line) and not line.lstrip().startswith((">>>", "..."))
    }
    known = {
        "_base/files.py", "audit/part_files.py", "reproduce/kept_arrays.py",
        "reproduce/seq2seq/training_log.py", "reproduce/seq2seq/meteor.py",
        "networks/verification/state.py",
    }  # fmt: skip
    assert found == known  # part_files.py renames, kept_arrays.py and state.py write into memory
