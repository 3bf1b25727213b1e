"""An audit that is run again: what is said, and what is not done twice."""

from __future__ import annotations

import os
import shutil
import sys

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("typer")
from taut import audit  # noqa: E402
from taut.audit.made import made_sentence, made_together, now  # noqa: E402
from taut.models import file_stamp  # noqa: E402
from tests.helpers.architectures import small  # noqa: E402
from tests.helpers.command_line import taut  # noqa: E402

LINES = "the cat sat\nthe dog\nthe cat ran\nthe dog sat\n"


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A small BERT with a tokenizer, saved as people save theirs."""
    place = tmp_path_factory.mktemp("again") / "bert"
    torch.manual_seed(0)
    small("bert").save_pretrained(place)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "dog", "ran"]
    (place / "vocab.txt").write_text("\n".join(words))
    transformers.BertTokenizer(str(place / "vocab.txt")).save_pretrained(place)
    return place


@pytest.fixture
def folder(saved, tmp_path):
    shutil.copytree(saved, tmp_path / "bert")
    (tmp_path / "lines.txt").write_text(LINES)
    return tmp_path


@pytest.fixture
def no_loading(monkeypatch):
    """Count how often a model is loaded."""
    run = sys.modules["taut.audit.run"]
    real, loaded = run.load_model, []

    def load(*arguments):
        loaded.append(arguments)
        return real(*arguments)

    monkeypatch.setattr(run, "load_model", load)
    return loaded


CALL = ("audit", "bert", "--data", "lines.txt", "--batch-size", 2, "--epsilons", "")


def test_a_finished_audit_does_not_load_its_model(folder, no_loading):
    first = taut(*CALL, cwd=folder)
    assert (first.returncode, len(no_loading)) == (0, 1), first.stderr
    again = taut(*CALL, cwd=folder)
    assert (again.returncode, len(no_loading)) == (0, 1)
    assert "is finished; nothing is measured again" in again.stderr
    assert again.stdout == first.stdout
    (file,) = (folder / "taut-audit").glob("*.json")
    assert audit.Record.load(file).made["date"] == now()


@pytest.mark.parametrize("change", ["weights", "date", "data", "settings", "tokenizer", "version"])
def test_whatever_changes_is_measured_again(folder, no_loading, change, monkeypatch):
    taut(*CALL, cwd=folder)
    call = CALL
    weights = folder / "bert" / "model.safetensors"
    if change == "weights":
        torch.manual_seed(1)
        small("bert").save_pretrained(folder / "bert")
    elif change == "date":  # the same weights in a new file: loaded, and then found to be the same
        os.utime(weights, (1, 1))
    elif change == "data":
        (folder / "lines.txt").write_text(LINES.replace("ran", "sat"))
    elif change == "settings":
        call = (*CALL, "--threshold", "0.4")
    elif change == "tokenizer":
        file = folder / "bert" / "tokenizer_config.json"
        file.write_text(file.read_text().replace("true", "false"))
    else:
        from taut.models._identity import file_stamps

        monkeypatch.setattr(file_stamps, "versions", lambda known: {**known, "torch": "0"})
    done = taut(*call, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert len(no_loading) == 2
    if change in ("date", "version"):
        assert "is finished" in done.stderr


def test_a_resumed_audit_says_from_where(folder):
    part = (*CALL, "--shard", "1/2")
    assert taut(*part, cwd=folder).returncode == 0
    assert taut("merge", "taut-audit", cwd=folder).returncode == 3
    done = taut(*CALL, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "continuing, as 2 of 4 samples are in taut-audit" in done.stderr


def test_a_stamp_covers_every_file_and_nothing_else(folder):
    before = file_stamp(str(folder / "bert"))
    assert before == file_stamp(str(folder / "bert"))
    (folder / "bert" / "more.txt").write_text("more")
    assert file_stamp(str(folder / "bert")) != before
    assert file_stamp("mine:model") is None
    assert file_stamp("no/such-model") is None


def test_date_and_command_are_kept_and_merged():
    one, other = {"date": "2026-01-02T00:00:00Z", "command": "a"}, {"date": "2026-01-01T00:00:00Z"}
    assert made_together(one, {}) == made_together({}, one) == one
    assert made_together(one, other) == {"date": "2026-01-02T00:00:00Z"}
    assert made_together(one, dict(one)) == one
    assert made_sentence({}) == ""
    assert made_sentence(other) == "Made on 2026-01-01 at 00:00 UTC."
    model = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    record = audit.run(model, [torch.randn(1, 3, 8)], command="taut audit mine")
    assert record.made == {"command": "taut audit mine", "date": now()}
    assert audit.merge([record]).made == record.made


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("picture.png", "this model reads input_ids, not images: give text"),
        ("floats.npy", "this model reads token ids, a row of whole numbers"),
        ("large.npy", "the model has tokens 0 to"),
    ],
)
def test_data_of_another_kind_are_refused_in_words(folder, data, words):
    import numpy as np

    image = pytest.importorskip("PIL.Image")
    image.fromarray(np.zeros((8, 8, 3), dtype=np.uint8)).save(folder / "picture.png")
    np.save(folder / "floats.npy", np.zeros((2, 3, 4), dtype=np.float32))
    np.save(folder / "large.npy", np.full((2, 3), 10**6))
    done = taut("audit", "bert", "--data", data, cwd=folder)
    assert done.returncode == 2
    assert words in done.stderr
    if data == "picture.png":
        assert words in taut("certify", "bert", "--inputs", data, cwd=folder).stderr


def test_a_tokenizer_of_another_model_is_named(folder):
    words = "\n".join(f"word{number}" for number in range(5000))
    vocabulary = (folder / "bert" / "vocab.txt").read_text()
    (folder / "other").mkdir()
    (folder / "other" / "vocab.txt").write_text(f"{vocabulary}\n{words}")
    transformers.BertTokenizer(str(folder / "other" / "vocab.txt")).save_pretrained(
        folder / "other"
    )
    done = taut("audit", "bert", "--data", "word4999", "--tokenizer", "other", cwd=folder)
    assert done.returncode == 2
    assert "is it that of another model (--tokenizer)?" in done.stderr


def test_an_error_in_code_of_the_user_shows_where(tmp_path):
    (tmp_path / "broken_code.py").write_text("def model():\n    raise ValueError('too small')\n")
    done = taut("audit", "broken_code:model", "--data", "a text", cwd=tmp_path)
    assert done.returncode == 2
    assert 'broken_code.py", line 2, in model' in done.stderr
    assert "taut audit: too small" in done.stderr
    assert "taut/cli" not in done.stderr


def test_a_configuration_takes_the_forms_of_the_command_line(folder):
    (folder / "audit.toml").write_text(
        'model = "bert"\ndata = "lines.txt"\np = [1, 2]\nepsilons = ""\nqueries = 2\nlimit = 3\n'
        'output-dir = "there"\n'
    )
    done = taut("audit", "--config", "audit.toml", "--limit", 2, cwd=folder)
    assert done.returncode == 0, done.stderr
    (file,) = (folder / "there").glob("*.json")
    record = audit.Record.load(file)
    assert (record.samples, record.settings["queries"]) == (2, 2)
    assert record.made["command"].startswith("taut")
