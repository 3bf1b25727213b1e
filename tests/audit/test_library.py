"""What `taut audit` does, from Python: models and data by name, a folder, and going on."""

from __future__ import annotations

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from taut import audit  # noqa: E402
from taut.models import Samples  # noqa: E402
from tests.helpers.architectures import tiny  # noqa: E402
from tests.helpers.command_line import taut  # noqa: E402

LINES = ["the cat sat", "the dog", "the dog ran the cat", "sat", "the the the"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A small BERT with its tokenizer, and a file of text beside it."""
    folder = tmp_path_factory.mktemp("named")
    tiny("bert")[0].save_pretrained(folder / "bert")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "dog", "ran"]
    (folder / "bert" / "vocab.txt").write_text("\n".join(words))
    transformers.BertTokenizer(str(folder / "bert" / "vocab.txt")).save_pretrained(folder / "bert")
    (folder / "texts.txt").write_text("\n".join(LINES))
    return folder


def refuse(*_, **__):
    raise AssertionError("nothing is left to be done")


def test_python_does_what_the_command_does(place, tmp_path, monkeypatch):
    given = (place / "bert", place / "texts.txt")
    record = audit.run(*given, folder=tmp_path / "a", batch_size=2)
    assert record.complete
    assert record.file.parent == tmp_path / "a"
    assert audit.Record.load(record.file).to_dict() == record.to_dict()
    done = taut("audit", given[0], "--data", given[1], "--batch-size", 2, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    for key in ("layers", "settings", "columns", "kinds", "tokens"):
        assert said[key] == json.loads(json.dumps(record.to_dict()))[key], key
    assert [entry.file for entry in audit.records_in(tmp_path / "a")] == [record.file]
    monkeypatch.setattr(audit.Auditor, "add", refuse)
    again = audit.run(*given, folder=tmp_path / "a", batch_size=2)
    assert (again.file, again.heads) == (record.file, record.heads)


def test_files_may_be_named_by_text(tmp_path, monkeypatch):
    """As the notebooks and the documents write them."""
    monkeypatch.chdir(tmp_path)
    model = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    record = audit.run(model, [torch.randn(2, 5, 8)], norms=[], epsilons=[])
    record.save("step-1.json")
    assert audit.Record.load("step-1.json").heads == record.heads
    assert audit.read_training(".").last.heads == record.heads
    audit.write_report(record, "report.html")
    audit.write_comparison([record, record], "comparison.html")
    audit.save_picture(record, "heads.svg")
    written = {"step-1.json", "report.html", "comparison.html", "heads.svg"}
    assert {file.name for file in tmp_path.iterdir()} == written


def test_names_without_a_folder(place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    named = audit.run(str(place / "bert"), [str(place / "texts.txt")], limit=3)
    assert named.samples == 3
    assert named.complete
    assert named.data["kind"] == "text"
    assert named.file is None
    assert not list(tmp_path.iterdir())
    model = transformers.BertModel.from_pretrained(place / "bert").eval()
    loaded = audit.run(model, Samples("text", LINES[:3], "here"))  # its tokenizer is found
    assert loaded.heads == named.heads


def test_batches_in_a_folder_go_on_after_a_stop(tmp_path, monkeypatch):
    model, inputs = tiny("gpt2")
    many = {key: value.repeat(4, 1) for key, value in inputs.items()}
    cut = [(0, 3), (3, 4), (4, 8)]  # of different sizes
    batches = [{key: value[a:b] for key, value in many.items()} for a, b in cut]
    whole = audit.run(model, batches, epsilons=[])
    real, left = audit.Auditor.add, [2]

    def stopped(self, *args, **given):
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        return real(self, *args, **given)

    monkeypatch.setattr(audit.Auditor, "add", stopped)
    partial = audit.run(model, batches, epsilons=[], folder=tmp_path)
    assert (partial.complete, partial.seen) == (False, [(0, 4)])
    monkeypatch.setattr(audit.Auditor, "add", real)
    found = audit.run(model, batches, epsilons=[], folder=tmp_path)
    assert (found.complete, found.seen, found.file) == (True, [(0, 8)], partial.file)
    for mine, theirs in zip(found.heads, whole.heads, strict=True):
        assert mine == pytest.approx(theirs, nan_ok=True)
    batches[2]["input_ids"] = batches[2]["input_ids"].flip(0)
    other = audit.run(model, batches, epsilons=[], folder=tmp_path)
    assert other.file != found.file


def test_what_cannot_be_audited_says_why(tmp_path):
    model, inputs = tiny("gpt2")
    with pytest.raises(TypeError, match="can be read only once"):
        audit.run(model, iter([inputs]), folder=tmp_path)
    with pytest.raises(TypeError, match="must hold tensors, not a ndarray"):
        audit.run(model, [{**inputs, "more": np.zeros(3)}], folder=tmp_path)
    with pytest.raises(TypeError, match=r"torch\.nn\.Module, or the name of one"):
        audit.run(3, [inputs])
    with pytest.raises(TypeError, match="batchsize"):
        audit.run(model, [inputs], batchsize=3)
    with pytest.raises(ValueError, match="batch_size must be at least 1"):
        audit.run(model, [inputs], batch_size=0)
    with pytest.raises(ValueError, match="no attention was seen"):
        audit.run(torch.nn.Linear(2, 2), [torch.ones(1, 2)])
    assert not list(tmp_path.iterdir())
