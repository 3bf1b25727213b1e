"""Records on the disk: damaged, edited, hostile or of another version, each says what is wrong."""

from __future__ import annotations

import copy
import json
import math
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
from taut import audit  # noqa: E402
from taut._base.json_files import SEAL, sealed  # noqa: E402
from taut.cli.comparison_table import show_comparison  # noqa: E402
from taut.cli.ls import show_folder  # noqa: E402
from taut.cli.record_table import show_record  # noqa: E402


@pytest.fixture(scope="module")
def record():
    torch.manual_seed(0)
    layers = [torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True) for _ in range(2)]
    model = torch.nn.Sequential(*layers).eval()
    found = audit.run(model, [torch.randn(3, 5, 8)], name="tiny", norms=[1, 2, 4, math.inf])
    found.missed = [("a", "b")]
    found.tokens = {"0.self_attn/0": "cat"}
    found.data = {"kind": "tensors", "samples": 3}
    found.settings = {"logits": None, "norms": ["1.0"]}
    return found


@pytest.fixture(scope="module")
def data(record):
    return json.loads(json.dumps(record.to_dict()))


def save(data, file):
    """With a checksum that fits, as somebody would write it who means harm."""
    file.write_text(sealed({key: value for key, value in data.items() if key != SEAL}))
    return file


def test_a_changed_digit_is_noticed(record, tmp_path):
    file = tmp_path / "a.json"
    record.save(file)
    assert audit.Record.load(file).to_dict() == record.to_dict()
    text = file.read_text()
    digits = [match.start() for match in re.finditer(r"\d", text)]
    for place in random.Random(0).sample(digits, 40):
        other = str((int(text[place]) + 1) % 10)
        file.write_text(text[:place] + other + text[place + 1 :])
        if json.loads(file.read_text()) == json.loads(text):
            continue  # a digit beyond what a double holds: the same number
        with pytest.raises(ValueError, match=r"a\.json"):
            audit.Record.load(file)
    file.write_text(text.replace('"cat"', '"dog"'))
    with pytest.raises(ValueError, match=r"a\.json .*damaged, or edited by hand"):
        audit.Record.load(file)
    file.write_text(json.dumps(json.loads(text), indent=2))  # laid out anew, and the same numbers
    assert audit.Record.load(file).heads == record.heads


def test_records_of_other_versions_say_what_to_do(data, tmp_path):
    for version in (3, 99):
        file = save({**data, "taut_audit": version}, tmp_path / "a.json")
        with pytest.raises(ValueError, match=f"of version {version}.*run the audit again"):
            audit.Record.load(file)
    (tmp_path / "a.json").write_text('{"taut_audit": 3}')
    with pytest.raises(ValueError, match="run the audit again"):
        audit.Record.load(tmp_path / "a.json")


LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
from pathlib import Path
from taut.audit import Record
from taut.cli.ls import show_folder
show_folder(Path(sys.argv[1]))
for file in sorted(Path(sys.argv[1]).iterdir()):
    try:
        Record.load(file)
    except ValueError as error:
        print(error)
"""


def test_sizes_that_are_not_there_take_no_memory(data, tmp_path):
    """All in one process: each file alone would exceed its limit, if it were believed."""
    hostile = {name: copy.deepcopy(data) for name in ("heads", "norms", "grid", "rows")}
    layers = {name: each["layers"][0] for name, each in hostile.items()}
    layers["heads"]["heads"] = 1_000_000_000
    layers["norms"]["norms"] = [1 + i / 1e6 for i in range(200_000)]
    layers["norms"]["heads"] = 1_000_000
    layers["grid"]["grid"]["norms"] = [3.0] * 100_000
    layers["grid"]["grid"]["epsilons"] = [0.1] * 100_000
    layers["rows"]["counts"]["rows"] = [10**15] * len(layers["rows"]["counts"]["rows"])
    for name, each in hostile.items():
        save(each, tmp_path / f"{name}.json")
    done = subprocess.run([sys.executable, "-c", LIMITED, str(tmp_path)], capture_output=True,
                          text=True, timeout=120)  # fmt: skip
    assert done.returncode == 0, done.stderr
    for name in hostile:
        assert f"{name}.json is not a whole record of an audit" in done.stdout


def test_huge_and_deep_files(tmp_path, monkeypatch):
    file = tmp_path / "a.json"
    texts = ["[" * 100_000, '{"a":' * 100_000, "[" * 5_000_000,
             '{"taut_audit": ' + "9" * 5000 + "}",
             '{"taut_audit": 5, "taut_audit": 5}', "NaN", "", "\x00", "[]", '"taut_audit"',
             '{"taut_audit": NaN}', '{"taut_audit": true}']  # fmt: skip
    for text in texts:
        file.write_text(text)
        with pytest.raises(ValueError, match=r"a\.json"):
            audit.Record.load(file)
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"a\.json.*UTF-8"):
        audit.Record.load(file)
    with file.open("wb") as stream:
        stream.truncate(1 << 40)  # takes no room on the disk, and all of the memory if it is read
    with pytest.raises(ValueError, match=r"a\.json.*MB"):
        audit.Record.load(file)
    for place in (tmp_path, tmp_path / "none.json"):
        with pytest.raises(ValueError, match=re.escape(str(place))):
            audit.Record.load(place)


def places(value, path=()):
    """Every place in JSON data."""
    yield path
    if isinstance(value, dict):
        for key in value:
            yield from places(value[key], (*path, key))
    elif isinstance(value, list):
        for index in list(range(len(value)))[:3]:
            yield from places(value[index], (*path, index))


DEL, TWICE = object(), object()
WRONG = (None, True, -1, 10**30, 10**9, 0.5, -1e300, math.nan, math.inf, -math.inf, "", "inf", "x",
         [], {}, [[]], {"a": 1}, [1] * 7, [[1] * 7] * 7, "\x1b[31m")  # fmt: skip


def test_no_mutation_ends_in_a_traceback(data, tmp_path, capsys):
    """A wrong value anywhere: a ValueError with the file's name, or a record that works."""
    source = random.Random(1)
    every = [(path, wrong) for path in places(data) if path for wrong in (*WRONG, DEL, TWICE)]
    taken = 0
    for path, wrong in source.sample(every, 400):
        hostile = copy.deepcopy(data)
        inside = hostile
        for step in path[:-1]:
            inside = inside[step]
        if wrong is DEL:
            del inside[path[-1]]
        else:
            inside[path[-1]] = [inside[path[-1]]] * 2 if wrong is TWICE else wrong
        file = save(hostile, tmp_path / "a.json")
        try:
            found = audit.Record.load(file)
        except ValueError as error:
            found, named = None, str(file) in str(error)
        if found is None:
            assert named, (path, wrong)
            continue
        taken += 1
        if taken % 5 == 0:
            show_record(found, 3)
            audit.write_report(found, tmp_path / "a.html")
    assert 5 <= taken < 120
    show_folder(tmp_path)
    assert "\x1b" not in capsys.readouterr().out


def test_ls_says_which_records_are_damaged(record, data, tmp_path, capsys):
    record.save(tmp_path / "good.json")
    save({**data, "taut_audit": 3}, tmp_path / "old.json")
    (tmp_path / "cut.json").write_text((tmp_path / "good.json").read_text()[:-20])
    (tmp_path / "other.json").write_text('{"name": "a package"}')
    show_folder(tmp_path)
    out = capsys.readouterr().out
    assert "good.json: tiny, 3 samples, mean 0." in out
    assert re.search(r"old\.json .*run the audit again", out)
    assert "cut.json" in out
    assert "other.json" not in out


def test_the_printed_record_is_the_one_in_the_file(record, tmp_path):
    (tmp_path / "a.json").write_text(record.to_json())
    assert audit.Record.load(tmp_path / "a.json").heads == record.heads


def test_what_json_has_no_number_for(record, tmp_path):
    odd = copy.deepcopy(record)
    odd.settings = {"epsilon": math.inf, "place": tmp_path, 3: (1, math.nan)}
    odd.layers[0].state.sums["two"][0] = math.nan
    odd.layers[0].grid.worst[0, 0] = math.nan
    odd.save(tmp_path / "a.json")
    again = audit.Record.load(tmp_path / "a.json")
    assert again.settings == {"epsilon": "inf", "place": str(tmp_path), "3": [1, "nan"]}
    assert math.isnan(again.layers[0].state.sums["two"][0])
    assert math.isnan(again.layers[0].grid.worst[0, 0])
    json.loads((tmp_path / "a.json").read_text(), parse_constant=pytest.fail)
    show_record(again, 3)
    audit.write_report(again, tmp_path / "a.html")
    with pytest.raises(ValueError, match="two records"):
        show_comparison([tmp_path / "a.json"], 3, as_json=True)


def test_nothing_is_said_of_a_model_that_was_stopped_before_it_ran(tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from taut.cli import app

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(audit, "run", lambda *_, **__: audit.Record({"name": "m"}, {}, {}))
    done = CliRunner().invoke(app, ["audit", "m", "--data", "x"])
    assert (done.exit_code, done.output) == (3, "")
    assert not list(tmp_path.iterdir())


def test_labels_that_lie_are_noticed(data, tmp_path):
    """A bound that is called exact is refused, in the table and in what layers keep."""
    for change in (
        lambda d: d["columns"]["median_upper"].update(kind="exact"),
        lambda d: d["kinds"]["rows"].update(l4="exact"),
        lambda d: d["kinds"]["grid"].update(worst="upper"),
        lambda d: d.pop("columns"),
    ):
        hostile = copy.deepcopy(data)
        change(hostile)
        with pytest.raises(ValueError, match="labels of its numbers do not match"):
            audit.Record.load(save(hostile, tmp_path / "a.json"))


def test_a_link_in_the_place_of_a_lock_is_not_followed(tmp_path):
    from taut._base.lock import locked

    (tmp_path / "precious").write_text("mine")
    (tmp_path / "a.lock").symlink_to(tmp_path / "precious")

    def take():
        with locked(tmp_path / "a.json"):
            pass

    with pytest.raises(OSError, match=r"cannot write .*a\.lock"):
        take()
    assert (tmp_path / "precious").read_text() == "mine"


def test_compared_records_have_short_names_where_these_differ():
    from taut.cli.comparison_table import read_compared, short_names

    plain, other = Path("a/gpt2-0123456789abcdef.json"), Path("a/gpt2-fedcba9876543210.json")
    assert short_names([plain, Path("after.json")]) == ["gpt2", "after"]
    assert short_names([plain, other]) == [plain.stem, other.stem]
    with pytest.raises(ValueError, match="either files of records, or folders"):
        read_compared([Path(), plain])
