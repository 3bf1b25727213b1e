"""What can be audited besides attention on lines of text, and what can go wrong."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import wave

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
import taut  # noqa: E402
from taut import audit  # noqa: E402
from taut.models.samples import read_samples  # noqa: E402
from tests.helpers import command_line  # noqa: E402
from tests.helpers.architectures import tiny  # noqa: E402

nn = torch.nn


def run(*arguments, cwd):
    return command_line.taut("audit", *arguments, cwd=cwd)


def rows_of(seen):
    return seen.scores.reshape(-1, seen.scores.shape[-1])


def test_bounds_for_other_norms_hold_on_every_row():
    model, inputs = tiny("gpt2")
    with torch.no_grad():
        for block in model.transformer.h:
            block.attn.c_attn.weight *= 20
    record = audit.run(model, [inputs], norms=[1.3, 4])
    seen = []
    with torch.no_grad(), audit.capture(model, seen.append):
        model(**inputs)
    for layer, found in zip(record.layers, seen, strict=True):
        for p in (1.3, 4):
            for h in (3,) if p == 4 else (0,):  # certified by search, which takes its time
                rows = found.scores[:, h].reshape(-1, 7).double()
                rows = rows.masked_fill(rows < -1e30, -math.inf)
                true = taut.local_lipschitz(rows, p=p, tight=True)
                state, name = layer.state, f"l{p:g}"
                assert state.maxima[name][h] >= float(true.lower.max())
                assert state.sums[name][h] >= float(true.lower.sum())
                assert state.maxima[name][h] <= 1.3 * float(true.upper.max()) + 1e-9
                assert state.histograms[name][h].sum() == 14
                # The constant in l2 is below the one in any norm.
                assert state.maxima["two"][h] <= float(true.upper.max()) * (1 + 1e-6)
                (row,) = (r for r in record.heads if (r["layer"], r["head"]) == (layer.name, h))
                assert row[f"largest_{p:g}_upper"] == state.maxima[name][h]


def test_the_share_above_a_threshold():
    model, inputs = tiny("bert")
    for threshold in (0.05, 0.2):
        record = audit.run(model, [inputs], threshold=threshold, norms=[])
        seen = []
        with torch.no_grad(), audit.capture(model, seen.append):
            model(**inputs)
        for layer, found in zip(record.layers, seen, strict=True):
            exact = taut.local_lipschitz(found.scores).value
            share = (exact >= threshold).double().mean(dim=(0, 2))
            assert layer.state.counts["above"] / 14 == pytest.approx(share.numpy())
    with pytest.raises(ValueError, match="threshold"):
        audit.run(model, [inputs], threshold=0.6)
    other = audit.run(model, [inputs], threshold=0.1)
    with pytest.raises(ValueError, match="threshold"):
        record.merge(other)


class Policy(nn.Module):
    """No attention: observations to the logits of actions."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 3))

    def forward(self, x):
        return self.layers(x)


@pytest.mark.parametrize("scale", [0.5, 1.0, 4.0])
def test_final_logits_of_a_policy(scale):
    torch.manual_seed(1)
    data = torch.randn(40, 4)
    record = audit.run(Policy(), data.split(16), logits=scale)
    with torch.no_grad():
        exact = taut.local_lipschitz(Policy()(data), scale=scale).value / scale
    row = record.predictions
    assert row["rows"] == record.samples == 40
    assert row["largest"] == pytest.approx(float(exact.max()), rel=1e-5)
    assert row["mean"] == pytest.approx(float(exact.mean()), rel=1e-5)
    assert row["sample"] == int(exact.argmax())
    assert record.logits.grid.rows == 40
    assert (record.logits.grid.worst <= 0.5).all()
    again = audit.Auditor(Policy(), logits=scale)
    again.add(data, first=40)
    again.record.merge(record)
    assert again.record.predictions["rows"] == 80
    with pytest.raises(ValueError, match="hold the same samples"):
        again.record.merge(record)


def test_final_logits_of_a_language_model_leave_padding_out():
    model, inputs = tiny("gpt2")
    inputs["attention_mask"] = torch.ones(2, 7, dtype=torch.long)
    inputs["attention_mask"][1, 4:] = 0
    record = audit.run(model, [inputs], logits=1.0)
    assert record.predictions["rows"] == 11
    assert record.layers
    with torch.no_grad():
        exact = taut.local_lipschitz(model(**inputs).logits).value
    exact = exact[inputs["attention_mask"].bool()]
    assert record.predictions["largest"] == pytest.approx(float(exact.max()), rel=1e-5)


def test_a_model_without_logits_says_so():
    model, inputs = tiny("bert")  # gives out hidden states and no logits, but a tensor first

    class Words(nn.Module):
        def forward(self, x):
            return {"words": "none"}

    with pytest.raises(ValueError, match="no logits"):
        audit.run(Words(), [torch.ones(1, 2)], logits=1.0)
    with pytest.raises(ValueError, match="logits must"):
        audit.run(model, [inputs], logits=0.0)


OWN = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.block = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.head = nn.Linear(8, 3)
    def forward(self, x):
        return self.head(self.block(x).mean(1))

class Greedy(Model):
    def forward(self, x):
        if len(x) > 2:
            torch.empty(1 << 50)
        return super().forward(x)

def model():
    return Model()

def greedy():
    return Greedy()
"""


@pytest.fixture
def own(tmp_path):
    (tmp_path / "mine.py").write_text(OWN)
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(6, 5, 8)).astype("float32"))
    return tmp_path


def test_own_models_on_tensors_with_options_from_a_file(own):
    (own / "options.toml").write_text(
        'data = ["x.npy"]\nlogits = true\nscale = 2.0\np = "2,3"\nepsilons = "0.1"\nlimit = 5\n'
        "batch-size = 2\n"
    )
    done = run("mine:model", "--config", "options.toml", "--limit", 4, "--json", cwd=own)
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert record["samples"] == 4  # what is typed goes before the file
    assert record["settings"]["norms"] == ["2.0", "3.0"]
    assert record["settings"]["logits"] == 2.0
    assert record["layers"][0]["norms"] == [3.0]
    assert record["logits"]["counts"]["rows"] == [4]
    (own / "bad.toml").write_text("batchsize = 3\n")
    wrong = run("mine:model", "--config", "bad.toml", cwd=own)
    assert wrong.returncode == 2
    assert "unknown options: batchsize" in wrong.stderr
    assert "not valid TOML" in run("mine:model", "--config", "mine.py", cwd=own).stderr
    assert "cannot read" in run("mine:model", "--config", "none.toml", cwd=own).stderr


def test_out_of_memory_says_what_to_try(own):
    done = run("mine:greedy", "--data", "x.npy", "--batch-size", 4, cwd=own)
    assert done.returncode == 2
    assert "out of memory: try a batch size of 2" in done.stderr
    fits = run("mine:greedy", "--data", "x.npy", "--batch-size", 2, cwd=own)
    assert fits.returncode == 0, fits.stderr


def test_a_full_disk_leaves_what_was_there(own):
    """A limit on the size of files stands for a disk that has no room."""
    assert run("mine:model", "--data", "x.npy", cwd=own).returncode == 0
    (file,) = (own / "taut-audit").glob("*.json")
    before = file.read_bytes()

    no_room = ("sh", "-c", 'ulimit -f 4; exec "$@"', "sh")
    command = [*no_room, sys.executable, "-m", "taut", "audit", "mine:model", "--data", "x.npy"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=own, timeout=300)
    assert done.returncode == 2
    assert "cannot write" in done.stderr
    assert file.read_bytes() == before
    assert not list((own / "taut-audit").glob("*.part"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("mine:model", "--data", "x.npy", "--p", "a"), "--p must be comma-separated numbers"),
        (("mine:model", "--data", "x.npy", "--p", "0.5"), "p"),
        (("mine:model", "--data", "x.npy", "--epsilons", "-1"), "epsilon"),
        (("mine:model", "--data", "x.npy", "--device", "nowhere"), "device"),
        (("mine:model", "--data", "missing.jsonl"), "no file missing.jsonl"),
        (("mine:model", "--data", "x.npy", "--column", "a"), "--column is for tables"),
        (("mine:model", "--data", "hf:a:b:c:d"), "hf:name"),
        (("mine:nothing", "--data", "x.npy"), "cannot load"),
        (("missing.gguf", "--data", "text"), "no file missing.gguf"),
    ],
)
def test_bad_options_say_why(own, arguments, words):
    done = run(*arguments, cwd=own)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_errors_of_ones_own_code_keep_their_lines(own):
    """Whoever writes module:function needs the line to mend, not only the words of the error."""
    (own / "bad.py").write_text("def model():\n    raise ValueError('my own words')\n")
    (own / "needs.py").write_text("import nowhere_to_be_found\n")
    for name, line, words in (("bad", 2, "my own words"), ("needs", 1, "nowhere_to_be_found")):
        done = run(f"{name}:model", "--data", "x.npy", cwd=own)
        assert done.returncode == 2
        assert "Traceback of your code:" in done.stderr
        assert f'{name}.py", line {line}' in done.stderr
        assert words in done.stderr.splitlines()[-1]
    done = run("nowhere_to_be_found:model", "--data", "x.npy", cwd=own)
    assert "cannot load nowhere_to_be_found:model" in done.stderr
    assert "Traceback" not in done.stderr


def test_tables(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    lines = [{"id": i, "label": "x", "text": f"line {i}"} for i in range(9)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, lines)))
    found = read_samples([str(tmp_path / "a.jsonl")], 4)
    assert (found.kind, found.items) == ("text", ["line 0", "line 1", "line 2", "line 3"])
    assert read_samples([str(tmp_path / "a.jsonl")], 2, "label").items == ["x", "x"]
    with pytest.raises(ValueError, match="no column 'other': it has id, label, text"):
        read_samples([str(tmp_path / "a.jsonl")], 2, "other")
    with pytest.raises(ValueError, match="neither text nor images"):
        read_samples([str(tmp_path / "a.jsonl")], 2, "id")
    (tmp_path / "a.csv").write_text("n,words\n1,one\n2,two\n")
    assert read_samples([str(tmp_path / "a.csv")], 9).items == ["one", "two"]
    # A folder stands for a data set on the Hub: the same loader takes both.
    folder = tmp_path / "set"
    folder.mkdir()
    datasets.Dataset.from_list(lines).to_parquet(folder / "test-00000-of-00001.parquet")
    assert len(read_samples([f"hf:{folder}"], 100).items) == 9
    assert len(read_samples([f"hf:{folder}::test"], 3).items) == 3
    with pytest.raises(ValueError, match="cannot read"):
        read_samples([f"hf:{folder}::train"], 3)
    pictures = pytest.importorskip("PIL.Image")
    images = [pictures.new("RGB", (8, 8), (i, 0, 0)) for i in range(3)]
    table = datasets.Dataset.from_dict({"img": images}).cast_column("img", datasets.Image())
    table.to_parquet(tmp_path / "images.parquet")
    found = read_samples([str(tmp_path / "images.parquet")], 2)
    assert found.kind == "images"
    assert found.description["samples"] == 2
    model, _ = tiny("vit")
    from taut.models.batches import batches

    (batch,) = batches(found, model, str(tmp_path), [0], size=2, max_length=9)
    record = audit.run(model, [batch.inputs], norms=[])
    assert record.samples == 2


@pytest.mark.slow
def test_sound(tmp_path):
    config = tiny("whisper")[0].config
    config.max_source_positions = 50  # it listens for a second, not for thirty
    place = tmp_path / "whisper"
    transformers.WhisperForConditionalGeneration(config).save_pretrained(place)
    transformers.WhisperFeatureExtractor(
        feature_size=config.num_mel_bins, chunk_length=1
    ).save_pretrained(place)
    tone = (8000 * np.sin(np.arange(8000) / 5)).astype("<i2")
    for name in ("a.wav", "b.wav"):
        with wave.open(str(tmp_path / name), "wb") as sound:
            sound.setnchannels(1)
            sound.setsampwidth(2)
            sound.setframerate(16000)
            sound.writeframes(tone.tobytes())
    done = run(place, "--data", "a.wav", "--data", "b.wav", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert record["samples"] == 2
    assert len(record["layers"]) == 6
    with wave.open(str(tmp_path / "c.wav"), "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(8000)
        sound.writeframes(tone.tobytes())
    wrong = run(place, "--data", "c.wav", cwd=tmp_path)
    assert "has 8000 samples a second; the model takes 16000" in wrong.stderr
    (tmp_path / "d.wav").write_text("no sound")
    assert "cannot read the sound" in run(place, "--data", "d.wav", cwd=tmp_path).stderr


def test_a_model_spread_over_devices(tmp_path):
    pytest.importorskip("accelerate")
    from taut.models.load import load

    model, inputs = tiny("gpt2")
    model.save_pretrained(tmp_path / "m")
    spread = load(str(tmp_path / "m"), device="auto")
    mine, theirs = (audit.run(m, [inputs], norms=[]) for m in (model, spread))
    assert mine.heads == theirs.heads
    # Weights that wait on the disk are there when they are needed, and not before.
    waiting = transformers.GPT2LMHeadModel.from_pretrained(
        tmp_path / "m", device_map={"": "disk"}, offload_folder=tmp_path / "off"
    )
    assert next(waiting.parameters()).device.type == "meta"
    late = audit.run(waiting, [inputs], norms=[])
    assert late.heads == mine.heads
    assert late.model["weights"] == mine.model["weights"]
