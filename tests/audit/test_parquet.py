"""The heads as Parquet: the same numbers, and columns that say what they are."""

from __future__ import annotations

import json
import math
import sys

import pytest

torch = pytest.importorskip("torch")
parquet = pytest.importorskip("pyarrow.parquet")
from taut import audit  # noqa: E402
from taut.audit.record_json import VERSION  # noqa: E402
from tests.helpers.command_line import taut  # noqa: E402


@pytest.fixture
def record():
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    found = audit.run(layer, [torch.randn(3, 5, 8)] * 3, name="tiny", shard=(1, 2))
    found.tokens = {"self_attn/0": "caté", "self_attn/1": "\ud800"}
    found.layers[0].state.affinity[1] = math.inf
    return found


def test_it_is_the_table_of_heads(record, tmp_path):
    record.to_parquet(tmp_path / "a.parquet")
    table = parquet.read_table(tmp_path / "a.parquet")
    rows = record.heads
    rows[1]["token"] = "\\ud800"  # what is not Unicode is escaped
    assert table.to_pylist() == rows
    assert table.column_names == list(record.columns)
    for name, column in record.columns.items():
        field = table.schema.field(name)
        said = {key.decode(): value.decode() for key, value in field.metadata.items()}
        assert {key: said[key] for key in column.to_dict()} == column.to_dict()
        kind = "string" if name in ("layer", "token", "sink_key") else None
        assert str(field.type) == (kind or ("int64" if column.form == "d" else "double"))
    assert list(tmp_path.iterdir()) == [tmp_path / "a.parquet"]


def test_the_schema_says_what_was_audited(record, tmp_path):
    record.to_parquet(str(tmp_path / "a.parquet"))
    said = parquet.read_schema(tmp_path / "a.parquet").metadata
    assert int(said[b"taut_audit"]) == VERSION
    whole = json.loads(record.to_json())
    for name in ("model", "data", "settings", "versions", "identity", "samples", "seen",
                 "complete", "shard"):  # fmt: skip
        assert json.loads(said[name.encode()]) == whole[name], name


def test_a_record_without_heads(tmp_path):
    audit.Record({}, {}, {}).to_parquet(tmp_path / "a.parquet")
    assert parquet.read_table(tmp_path / "a.parquet").num_rows == 0


def test_commands_write_it_beside_the_record(record, tmp_path):
    record.save(tmp_path / "a.json")
    for command in ("report", "merge"):
        done = taut(command, "a.json", "--parquet", cwd=tmp_path)
        assert done.returncode in (0, 3), done.stderr
        (line,) = (line for line in done.stdout.splitlines() if line.startswith("heads: "))
        assert parquet.read_table(tmp_path / line.removeprefix("heads: ")).num_rows == 2
    done = taut("merge", "a.json", "--parquet", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["samples"] == record.samples
    assert "heads: " in done.stderr


def test_without_pyarrow_it_says_so_before_the_work(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setattr(audit, "run", lambda *_, **__: pytest.fail("it should not begin"))
    done = taut("audit", "mine:model", "--data", "x.npy", "--parquet", cwd=tmp_path)
    assert done.returncode == 2
    assert "--parquet needs pyarrow" in done.stderr
    assert "data" in done.stderr
