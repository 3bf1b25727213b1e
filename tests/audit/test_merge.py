"""Merging: what belongs together is put together, and nothing else, and nothing is lost."""

from __future__ import annotations

import copy
import json
import os
import sys

import pytest

torch = pytest.importorskip("torch")
from taut import audit  # noqa: E402
from taut._base.lock import locked  # noqa: E402
from taut.audit import merge, merge_files, run  # noqa: E402
from taut.audit.sample_spans import missing  # noqa: E402
from tests.helpers.command_line import taut  # noqa: E402

_merge_files = sys.modules["taut.audit.merge_files"]  # the package has a function of this name
SIZES = (2, 3, 1, 2, 4, 1, 2)


def layer():
    torch.manual_seed(0)
    return torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()


def batches(seed=1):
    source = torch.Generator().manual_seed(seed)
    return [torch.randn(size, 5, 8, generator=source) for size in SIZES]


def part(shard, folder=None, seed=1, model=None, **settings):
    given = {"norms": [2, 4], **settings}
    return run(model or layer(), batches(seed), name="tiny", shard=shard, folder=folder, **given)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return part(None, tmp_path_factory.mktemp("whole"))


@pytest.fixture
def folder(tmp_path):
    """Three shards, and other files as folders have them."""
    for number in (1, 2, 3):
        part((number, 3), tmp_path)
    (tmp_path / "other.json").write_text('{"name": "a package"}')
    (tmp_path / "notes.txt").write_text("mine")
    return tmp_path


def files(folder):
    return sorted(folder.glob("*shard*.json"))


def content(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_what_is_missing():
    assert missing([], 3) == [(0, 3)]
    assert missing([(0, 3)], 3) == []
    assert missing([(1, 2), (4, 5)], 7) == [(0, 1), (2, 4), (5, 7)]
    assert missing([(1, 9)], 7) == [(0, 1)]
    assert missing([], 0) == []


def test_folders_files_and_records_in_any_order(folder, whole):
    text = whole.to_json()
    one, two, three = files(folder)
    for given in (folder, str(folder), [three, one, two], [two, folder], [folder, folder],
                  [audit.Record.load(two), one, str(three)]):  # fmt: skip
        assert merge(given).to_json() == text


def test_missing_samples_are_named(folder, tmp_path):
    one, _, three = files(folder)
    found = merge_files([three, one], tmp_path / "new.json")
    assert not found.record.complete
    assert found.shards == ["2/3"]
    assert found.missing == [(2, 5), (8, 12)]
    assert found.missing_text == "2 to 4, 8 to 11"
    assert audit.Record.load(tmp_path / "new.json").seen == found.record.seen


def test_one_record_alone(folder):
    one, *_ = files(folder)
    alone = merge(one)
    assert alone.shard is None
    assert not alone.complete
    assert alone.heads == audit.Record.load(one).heads


def test_a_shard_that_was_stopped_is_named(folder):
    one, *_ = files(folder)
    record = audit.Record.load(one)
    record.shard = record.shard._replace(complete=False)
    record.save(one)
    assert merge_files([one]).shards == ["1/3 (not finished)", "2/3", "3/3"]


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"threshold": 0.2}, r"differ in settings\.threshold: 0\.45, 0\.2"),
        ({"norms": [2]}, r"differ in settings\.norms"),
        ({"seed": 2}, r"differ in data\.digest"),
        ({"model": torch.nn.MultiheadAttention(8, 2, batch_first=True)}, "not of one run"),
    ],
)
def test_records_of_other_runs_are_refused(folder, other, words):
    if isinstance(other.get("model"), torch.nn.MultiheadAttention):
        torch.manual_seed(3)
        other = {"model": torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()}
    part((2, 3), folder / "more", **other)
    before = content(folder / "more")
    with pytest.raises(ValueError, match=words) as caught:
        merge_files([*files(folder)[:1], folder / "more"])
    assert "There are 2 runs in 2 records: give the files of one of them" in str(caught.value)
    assert content(folder / "more") == before


def test_overlapping_shards_are_refused(folder):
    other = part((1, 2), folder / "more")
    with pytest.raises(ValueError, match=r"both hold the samples 0 to 1, 13 to 14, and each has"):
        merge([files(folder)[0], other.file])


def test_records_inside_others_are_left_out(folder, whole):
    """A merge that is done again when more shards are there, in the same folder."""
    first = merge_files(files(folder)[:2])
    assert first.record.file.parent == folder
    again = merge_files([folder])
    assert again.record.file == first.record.file
    assert again.left_out == [str(file) for file in files(folder)[:2]]
    assert again.record.to_json() == whole.to_json()
    assert merge_files([folder]).left_out == [str(file) for file in files(folder)]


def test_the_audit_goes_on_from_a_merged_record(folder, whole, monkeypatch):
    merge_files(files(folder)[:2])
    seen = []
    real = audit.Auditor.add

    def add(self, *args, **given):
        seen.append(given["first"])
        return real(self, *args, **given)

    monkeypatch.setattr(audit.Auditor, "add", add)
    record = part(None, folder)
    assert seen == [5, 12]  # the third shard: batches 3 and 6
    assert record.to_json() == whole.to_json()


def test_what_lies_where_the_result_goes_is_kept(folder, tmp_path, whole):
    one, two, three = files(folder)
    out = tmp_path / "out.json"
    merge_files([one, two], out)
    assert merge_files([three], out).record.to_json() == whole.to_json()  # its samples are kept
    assert merge_files([one], out).record.to_json() == whole.to_json()
    out.write_text("mine")
    with pytest.raises(ValueError, match=r"not a record of an audit.*in the way"):
        merge_files([one], out)
    assert out.read_text() == "mine"
    part((1, 3), tmp_path / "more", threshold=0.2).save(out)
    before = out.read_bytes()
    with pytest.raises(ValueError, match="not of one run"):
        merge_files([one], out)
    assert out.read_bytes() == before
    with pytest.raises(ValueError, match="is a folder"):
        merge_files([one], tmp_path)
    with pytest.raises(ValueError, match=r"ends in \.json"):
        merge_files([one], tmp_path / "a.html")
    with pytest.raises(OSError, match="cannot write"):
        merge_files([one], tmp_path / "none" / "a.json")


def test_what_is_added_while_it_waits_is_kept(folder, whole, monkeypatch):
    """An audit that ends between reading and writing: its samples are read again."""
    file = merge_files(files(folder)[:1]).record.file
    real = _merge_files.locked

    def locked_late(place):
        monkeypatch.setattr(_merge_files, "locked", real)
        part(None, folder)  # the command without a shard goes on with the same file
        return real(place)

    monkeypatch.setattr(_merge_files, "locked", locked_late)
    found = merge_files([file, files(folder)[1]])
    assert found.record.to_json() == whole.to_json()
    assert audit.Record.load(file).complete


def test_a_result_that_somebody_works_on_is_left_alone(folder):
    file = merge_files([folder]).record.file
    with locked(file), pytest.raises(ValueError, match=f"process {os.getpid()} .* works on"):
        merge_files([folder])


@pytest.mark.parametrize("damage", ["cut", "digit", "empty", "none"])
def test_a_damaged_record_stops_it(folder, damage):
    broken = files(folder)[1]
    text = broken.read_text()
    number = text.index('"maxima"') + 20
    broken.write_text({"none": "", "cut": text[: len(text) // 2], "empty": '{"taut_audit": 6}',
                       "digit": text[:number] + "7" + text[number + 1 :]}[damage])  # fmt: skip
    before = content(folder)
    for given in (folder, files(folder)):
        with pytest.raises(ValueError, match=r"shard-2-of-3\.json"):
            merge_files([given] if given is folder else given)
    assert content(folder) == before


def test_nothing_to_merge(tmp_path):
    with pytest.raises(ValueError, match="nothing to merge"):
        merge([])
    with pytest.raises(ValueError, match="there are no records in"):
        merge(tmp_path)
    with pytest.raises(ValueError, match="there is no file"):
        merge([tmp_path / "none.json"])


def test_a_model_that_cannot_be_identified(folder):
    record = merge(folder)
    record.identity["unknown"] = ["lost: its numbers are not in memory"]
    with pytest.raises(
        ValueError, match=r"record 1 is of a model that cannot be identified \(lost"
    ):
        merge(record)


def test_records_without_data_are_merged_by_their_samples():
    parts = []
    for number, batch in enumerate(batches()):
        auditor = audit.Auditor(layer(), norms=[2])
        auditor.add(batch, first=sum(SIZES[:number]))
        auditor.record.complete = number > 0
        parts.append(auditor.record)
    merged = merge(parts[::-1])
    assert merged.seen == [(0, sum(SIZES))]
    assert not merged.complete  # one of them was not, and nobody knows how many samples there are
    assert merged.heads == run(layer(), batches(), norms=[2]).heads


def test_records_that_are_merged_stay_as_they_are(folder):
    records = [audit.Record.load(file) for file in files(folder)]
    before = copy.deepcopy([record.to_dict() for record in records])
    merged = merge(records)
    merged.layers[0].state.maxima["two"][:] = 7
    merged.data["samples"] = 0
    assert [record.to_dict() for record in records] == before


def test_the_command(folder):
    done = taut("merge", *files(folder)[1:], "--json", cwd=folder)
    assert done.returncode == 3
    assert json.loads(done.stdout)["samples"] == 9
    assert "missing shards: 1/3" in done.stderr
    assert "6 of 15 samples are missing (0 to 1, 6 to 7, 13 to 14)" in done.stderr
    assert "or run the audit without --shard, which goes on from here" in done.stderr
    done = taut("merge", folder, "--show", 1, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "15 samples." in done.stdout
    assert "left out, as all of their samples are in other records" in done.stderr
    assert "report:" in done.stdout
    wrong = taut("merge", "none", cwd=folder)
    assert wrong.returncode == 2
    assert wrong.stderr == "taut merge: there is no file none\n"
