"""Records of other versions are read, or say what to do; docs/record.md names every field."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
from taut import audit  # noqa: E402
from taut._base.json_files import SEAL, sealed  # noqa: E402
from taut.audit.consequence.head_consequence import HeadConsequence  # noqa: E402
from taut.audit.head_table import head_columns  # noqa: E402
from taut.audit.record_json import VERSION  # noqa: E402
from taut.audit.thumbnails import thumbnail  # noqa: E402
from tests.helpers.command_line import taut  # noqa: E402
from tests.helpers.places import DOCS, needs_repository  # noqa: E402

RECORDS = Path(__file__).parent / "records"  # as older versions wrote them


def written(version, tmp_path, **changes):
    """An old record with some changes, and a checksum that fits."""
    data = json.loads((RECORDS / f"version-{version}.json").read_text())
    data = {key: value for key, value in (data | changes).items() if key != SEAL}
    file = tmp_path / "old.json"
    file.write_text(sealed(data))
    return file


def test_report_of_an_older_record(tmp_path):
    done = taut("report", RECORDS / "version-5.json", "--output", tmp_path / "old.html")
    assert done.returncode == 2
    assert "a record of version 5" in done.stderr
    assert "run the audit again" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_page_never_takes_the_place_of_a_record(tmp_path, full):
    file = tmp_path / "a.html"
    file.write_text(json.dumps(full))
    before = file.read_bytes()
    done = taut("report", file)
    assert done.returncode == 2
    assert "give another --output" in done.stderr
    assert file.read_bytes() == before


def test_records_that_cannot_be_read_say_how_to_make_them_again(tmp_path):
    settings = {"batch_size": 4, "limit": 256, "dtype": "bfloat16", "seed": 0, "threshold": "x y"}
    file = written(5, tmp_path, taut_audit=4, model={"name": "gpt2"}, settings=settings,
                   data={"source": "my lines.txt", "kind": "text"})  # fmt: skip
    done = taut("report", file)
    assert done.returncode == 2
    assert done.stderr == (
        f"taut report: {file} is a record of version 4, which taut 0.1.0 wrote, and this taut "
        f"({audit_version()}) reads version {VERSION}: run the audit again: taut audit gpt2 "
        "--data 'my lines.txt' --threshold 'x y' --batch-size 4 --dtype bfloat16\n"
    )
    assert not file.with_suffix(".html").exists()
    newer = taut("report", written(5, tmp_path, taut_audit=VERSION + 1))
    assert newer.returncode == 2
    assert "install a newer taut" in newer.stderr


def audit_version():
    import taut as package

    return package.__version__


@pytest.mark.parametrize(
    "changes",
    [{"model": 3}, {"model": {"name": 7}}, {"data": {"source": "x" * 999}}, {"versions": None},
     {"data": {"source": "a.txt, b.txt"}}, {"settings": [1]}],
)  # fmt: skip
def test_nonsense_in_an_old_record_is_not_repeated(tmp_path, changes):
    file = written(5, tmp_path, taut_audit=1, **changes)
    with pytest.raises(ValueError, match=r"is a record of version 1.*run the audit again"):
        audit.Record.load(file)


# The page on the file: a table for each object in it, with every field.


def fields(value, path=""):
    """Every field of JSON data by its path; names that differ from record to record are NAME."""
    if isinstance(value, dict):
        for key, item in value.items():
            free = path in FREE or (path.split(".")[-1] in BY_KEY and "grid" not in path)
            where = f"{path}.{'NAME' if free else key}".lstrip(".")
            yield where
            if path not in FREE:
                yield from fields(item, where)
    elif isinstance(value, list):
        for item in value:
            yield from fields(item, path)


FREE = {"model", "data", "settings", "versions", "identity", "tokens", "made", "pictures"}
BY_KEY = {"counts", "sums", "rests", "maxima", "places", "histograms", "columns", "kinds.rows"}


@pytest.fixture(scope="module")
def full():
    """A record in which nothing is missing."""
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    batches = [torch.randn(2, 5, 8) for _ in range(3)]
    record = audit.run(layer, batches, shard=(1, 2), logits=1.0)
    record.tokens = {"self_attn/0": "cat"}
    record.pictures = {"0": thumbnail(torch.rand(3, 9, 7))}
    record.missed = [("a", "b")]
    record.layers[0].consequence = HeadConsequence(2)
    return json.loads(record.to_json())


@needs_repository
def test_the_page_names_every_field(full):
    page = (DOCS / "record.md").read_text(encoding="utf-8")
    assert f"version {VERSION}" in page
    named = set()
    for prefix, table in re.findall(r"^## .*?`(.*?)`.*?\n(.*?)(?=^## |\Z)", page, re.S | re.M):
        rows = re.findall(r"^\| `([^`]+)`", table, re.M)
        named |= {row if prefix == "{}" else f"{prefix}.{row}" for row in rows}
    found = {re.sub(r"^logits\.", "layers.", path) for path in fields(full)}
    found = {re.sub(r"^layers\.few\..*", "layers.few", path) for path in found}
    found = {re.sub(r"^(layers\.profiles\.\w+)\..*", r"\1", path) for path in found}
    found = {re.sub(r"^(layers\.consequence\.\w+)\..*", r"\1", path) for path in found}
    found = {re.sub(r"^(columns|layers\.\w+)\.NAME.*", r"\1", path) for path in found}
    found = {path for path in found if not re.match(r"(kinds\.(rows|grid)|tokens)\.", path)}
    found = {path for path in found if path.split(".")[0] not in FREE or "." not in path}
    assert found - named == set(), "docs/record.md does not name these"
    assert named - found == set(), "docs/record.md names what is not in a record"


@needs_repository
def test_the_page_names_every_version():
    page = (DOCS / "record.md").read_text(encoding="utf-8")
    listed = [int(number) for number in re.findall(r"^\| (\d+) \|", page, re.M)]
    assert listed == [VERSION]


@needs_repository
def test_the_page_on_audits_names_every_column():
    """The columns of to_pandas() with the usual norms and consequences, and no others."""
    page = (DOCS / "audit.md").read_text(encoding="utf-8")
    table = re.findall(r"## The columns of a table\n(.*?)\n## ", page, re.S)[0]
    named = {name for row in re.findall(r"^\| (.*?) \|", table, re.M) for name in _names(row)}
    every = head_columns((4.0,), drawn=False, quick=False, consequence=True, theta=True)
    known = {c.name for c in every}
    assert named == {name for name in known if not re.match("kl_(keys|values)", name)}


def _names(row):
    return re.findall(r"`(\w+)`", row)
